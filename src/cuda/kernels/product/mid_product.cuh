// Products of Form Q for 9 to some hundred rows by wgmma, 4 bits, with bf16 scales and biases and groups of 64, or with
// f16 scales alone and groups of 32 (contract: ops/linear/linear.h), for cases where the tiles of wide_product.cuh
// would be too few for the multiprocessors.
//
// A block is a warpgroup and computes 128 outputs for OCT x 8 columns (rows of activations, or with two limbs half as
// many rows) over the units of a part, which is whole leaves. Each warp has two panels that alternate: one is
// multiplied while the floats of the other are added. All threads copy chunks of two units ahead: each lane its own
// codes, and words of activations in wgmma's order, so that a chunk costs one barrier and nothing is arranged before.
// Chains stay in registers; nodes of T are in shared memory. With a gate the two panels are of two matrices: a lane has
// both factors, the block a group of 64 of the quantised rows. For experts a tile is a job, whose rows are selected by
// a list in shared memory.
#pragma once

#include "cuda/kernels/product/product_fragment.cuh"
#include "cuda/tiles.h"

namespace ek
{

// Groups of A inputs. JOBS: the most rows of a job of experts by this kernel; 0: no experts.
template <int LIMBS, int OCT, int A, int JOBS = 0> struct mid_product {
    static constexpr int CHUNK = EK_CUDA_MID_CHUNK,
                         SLOTS = JOBS ? EK_CUDA_MID_JOB_SLOTS(JOBS, OCT) : EK_CUDA_MID_SLOTS(OCT), WARPS = 4,
                         THREADS = 128, PANELS = 2;
    static constexpr int GROUPS = 64 / A; // of a unit
    static constexpr int CODE = 512, SCALE = 64, COLUMNS = OCT * 8, ROWS = COLUMNS / LIMBS, PER = LIMBS == 1 ? 2 : 1;
    static constexpr int EACH = OCT * 2 * PER, SUMS = PANELS * EACH; // of a panel, of a lane
    static constexpr int WEIGHTS = PANELS * CHUNK * (CODE + SCALE), ACTS = COLUMNS * CHUNK * 64, SX = CHUNK * ROWS * 8;
    static constexpr int SLOT_BYTES = ACTS + WARPS * WEIGHTS; // {sx, X} of all slots, or sx, follow the slots
    static_assert(SLOT_BYTES % 1024 == 0, "wgmma's swizzle");
    static_assert(SLOT_BYTES + SX == EK_CUDA_MID_SLOT(OCT, LIMBS) && SUMS * 4 * THREADS == EK_CUDA_MID_NODE(OCT, LIMBS),
                  "args.h says what a launch must ask for");
    static_assert(CHUNK == 2, "a column of a chunk is 32 words, its scales of a warp are 16 pieces");

    const ek_cuda_linear_args &a;
    uint8_t *ring;
    int first, units, row0, rows; // units of the part; rows of the tile, some of which may not exist
    int lane, w;

    // For experts: the tile's rows of x; after the slots.
    __device__ __forceinline__ int32_t *picked() const
    {
        return (int32_t *)(ring + SLOTS * (SLOT_BYTES + SX));
    }

    // Before the rows are used. Behind the list, for registers are scarce, where the tile begins and how many rows it
    // has.
    __device__ __forceinline__ void pick(const int32_t *index) const
    {
        const int r = row0 + min((int)threadIdx.x, rows - 1);
        if (threadIdx.x < ROWS) picked()[threadIdx.x] = index ? index[r] : r;
        if (threadIdx.x == 0) picked()[JOBS] = row0, picked()[JOBS + 1] = rows;
        __syncthreads();
    }

    // The tile's first row and its rows, behind the products.
    __device__ __forceinline__ int first_row() const
    {
        return JOBS ? picked()[JOBS] : row0;
    }

    __device__ __forceinline__ int all_rows() const
    {
        return JOBS ? picked()[JOBS + 1] : rows;
    }

    __device__ __forceinline__ const uint8_t *record(int r) const
    {
        return (const uint8_t *)a.x.q + (JOBS ? picked()[r] : row0 + min(r, rows - 1)) * a.x.ldq;
    }

    // Unit u of the part, or its last one. Units after the end are copied a second time and not read.
    __device__ __forceinline__ int unit(int u) const
    {
        return first + min(u, units - 1);
    }

    __device__ __forceinline__ uint8_t *scales_of_rows(int slot) const
    {
        return ring + SLOTS * SLOT_BYTES + slot * SX;
    }

    __device__ __forceinline__ void fetch_weights(int c, int slot, const u64 (&code)[PANELS],
                                                  const u64 (&scale)[PANELS]) const
    {
        uint8_t *to = ring + slot * SLOT_BYTES + ACTS + w * WEIGHTS;
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int u = 0; u < CHUNK; u++)
                copy_async<16>(to + (p * CHUNK + u) * CODE + lane * 16,
                               (const uint8_t *)code[p] + (int64_t)unit(c * CHUNK + u) * CODE + lane * 16);
        if (lane >= PANELS * CHUNK * 4) return;
        const int p = lane / (CHUNK * 4), u = lane / 4 % CHUNK;
        copy_async<16>(to + PANELS * CHUNK * CODE + lane * 16, (const uint8_t *)(p ? scale[1] : scale[0]) +
                                                                   (int64_t)unit(c * CHUNK + u) * SCALE +
                                                                   lane % 4 * 16);
    }

    // A warp takes a column's chunk at once: lane i its word i, of unit i / 16. Piece q of a unit has the words that
    // codes of lanes t = 0 .. 3 meet (cuda/product/layout.h): q, q + 4, q + 8 and q + 12, or in groups of 32 every
    // second of a group.
    __device__ __forceinline__ void fetch_acts(int c, int slot) const
    {
        uint8_t *to = ring + slot * SLOT_BYTES + (A == 64 ? lane / 4 % 4 : lane / 2 % 4) * 4;
        const int piece = A == 64 ? lane / 16 * 4 + lane % 4 : lane / 8 * 2 + lane % 2;
        const int64_t from = unit(c * CHUNK + lane / 16) * 64 + lane % 16 * 4;
#pragma unroll
        for (int i = 0; i < COLUMNS / WARPS; i++) {
            const int column = w + i * WARPS;
            copy_async<4>(to + column * 128 + (piece ^ column % 8) * 16,
                          record(column / LIMBS) + column % LIMBS * a.x.low + from);
        }
        const int tid = w * 32 + lane;
        if (tid >= CHUNK * GROUPS * ROWS) return;
        const uint8_t *group = record(tid % ROWS) + a.x.groups[LIMBS - 1];
        if (A == 64) copy_async<8>(scales_of_rows(slot) + tid * 8, group + unit(c * CHUNK + tid / ROWS) * 8);
        else
            copy_async<4>(scales_of_rows(slot) + tid * 4,
                          group + (unit(c * CHUNK + tid / ROWS / 2) * 2 + tid / ROWS % 2) * 8);
    }

    typedef int accumulators[OCT * 4];

    // Of 24 columns 16, then 8.
    template <int KEPT>
    static __device__ __forceinline__ void multiply(accumulators &d, const u32 *code, const uint8_t *acts)
    {
        if constexpr (OCT == 3) {
            wgmma<KEPT>(*(int(*)[8])d, code, acts);
            wgmma<KEPT>(*(int(*)[4])(d + 8), code, acts + 16 * 128);
        } else {
            wgmma<KEPT>(d, code, acts);
        }
    }

    // Group g of a unit.
    static __device__ __forceinline__ void issue(accumulators &d, u32 (&code)[8], int g, const uint8_t *acts)
    {
        wgmma_pin(code), wgmma_pin(d);
        wgmma_fence();
        multiply<0>(d, code + g * 4, acts + g * 32);
        if (A == 64) multiply<1>(d, code + 4, acts + 32);
        wgmma_commit();
    }

    // scale, sx: of a unit, whose group g it is.
    __device__ __forceinline__ void floats(float (&sum)[SUMS], accumulators &d, int p, int g, const uint8_t *scale,
                                           const uint8_t *sx) const
    {
        if constexpr (A == 64) floats_64(sum, d, p, *(const uint2 *)(scale + lane / 4 * 8), sx);
        else floats_32(sum, d, p, __half22float2(*(const __half2 *)(scale + g * 32 + lane / 4 * 4)), sx + g * ROWS * 4);
    }

    // The floats of a group without biases for panel p.
    __device__ __forceinline__ void floats_32(float (&sum)[SUMS], accumulators &d, int p, const float2 v,
                                              const uint8_t *sx) const
    {
        constexpr float UNIT = 0.0625f; // codes come as 16 c; s / 16 is exact
        const float s[2] = {v.x * UNIT, v.y * UNIT};
        wgmma_pin(d);
#pragma unroll
        for (int o = 0; o < OCT; o++) {
            float x[2];
            if (LIMBS == 1) {
                const float2 row = *(const float2 *)(sx + (o * 4 + lane % 4) * 8);
                x[0] = row.x, x[1] = row.y;
            } else {
                x[0] = *(const float *)(sx + (o * 4 + lane % 4) * 4);
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < PER; c++) {
                    const int *i = &d[o * 4 + h * 2];
                    const float whole = __int2float_rn(LIMBS == 1 ? i[c] : i[0] * 256 + i[1]);
                    float &to = sum[p * EACH + (o * 2 + h) * PER + c];
                    to = fma_(__fmul_rn(s[h], whole), x[c], to);
                }
        }
    }

    // Of a group with biases, which is a unit.
    __device__ __forceinline__ void floats_64(float (&sum)[SUMS], accumulators &d, int p, const uint2 v,
                                              const uint8_t *sx) const
    {
        const float zero = (float)a.zero;
        constexpr float UNIT = 0.0625f; // codes come as 16 c; s / 16 is exact
        float s[2] = {bits(v.x << 16), bits(v.y << 16)};
        const float b[2] = {fma_(zero, s[0], bits(v.x & 0xffff0000u)), fma_(zero, s[1], bits(v.y & 0xffff0000u))};
        s[0] *= UNIT, s[1] *= UNIT;
        wgmma_pin(d);
#pragma unroll
        for (int o = 0; o < OCT; o++) {
            float x[2], X[2];
            if (LIMBS == 1) {
                const float4 row = *(const float4 *)(sx + (o * 4 + lane % 4) * 16);
                x[0] = row.x, X[0] = row.y, x[1] = row.z, X[1] = row.w;
            } else {
                const float2 row = *(const float2 *)(sx + (o * 4 + lane % 4) * 8);
                x[0] = row.x, X[0] = row.y;
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < PER; c++) {
                    const int *i = &d[o * 4 + h * 2];
                    const float whole = __int2float_rn(LIMBS == 1 ? i[c] : i[0] * 256 + i[1]);
                    float &to = sum[p * EACH + (o * 2 + h) * PER + c];
                    to = fma_(fma_(b[h], X[c], __fmul_rn(s[h], whole)), x[c], to);
                }
        }
    }

    // N units of a chunk: one panel is multiplied while the other's floats are added.
    template <int N>
    __device__ __forceinline__ void chunk(float (&sum)[SUMS], accumulators (&d)[PANELS], int slot) const
    {
        const uint8_t *acts = ring + slot * SLOT_BYTES, *codes = acts + ACTS + w * WEIGHTS + lane * 16,
                      *sx = scales_of_rows(slot);
        const uint8_t *scales = acts + ACTS + w * WEIGHTS + PANELS * CHUNK * CODE;
        u32 code[PANELS][8];
#pragma unroll
        for (int p = 0; p < PANELS; p++) {
            read_codes<4>(codes + p * CHUNK * CODE, code[p]);
            issue(d[p], code[p], 0, acts);
        }
#pragma unroll
        for (int step = 0; step < N * GROUPS; step++)
#pragma unroll
            for (int p = 0; p < PANELS; p++) {
                const int u = step / GROUPS, g = step % GROUPS;
                const bool ends = g + 1 == GROUPS,
                           more = step + 1 <
                                  N * GROUPS; // ends: the last group of its unit; more: of the chunk, after this step
                u32 next[8];
                if (ends && more) read_codes<4>(codes + (p * CHUNK + u + 1) * CODE, next);
                if (more || p + 1 < PANELS) wgmma_wait<1>();
                else wgmma_wait<0>();
                floats(sum, d[p], p, g, scales + (p * CHUNK + u) * SCALE, sx + u * ROWS * 8);
                if (!more) continue;
#pragma unroll
                for (int i = 0; i < 8; i++) code[p][i] = ends ? next[i] : code[p][i];
                issue(d[p], code[p], ends ? 0 : g + 1, acts + (ends ? u + 1 : u) * 64);
            }
    }

    // The node of a level before leaf `leaf`, if it has one. Of experts it lies behind those of the levels above, so
    // that levels that have none at the same time take no memory.
    __device__ __forceinline__ float4 *node(int leaf, int level) const
    {
        return (float4 *)(ring + SLOTS * (SLOT_BYTES + SX) + EK_CUDA_MID_PICKED(JOBS) +
                          (JOBS ? __popc(leaf >> level >> 1) : level) * SUMS * 4 * THREADS) +
               w * 32 + lane;
    }

    __device__ __forceinline__ void add(float (&sum)[SUMS], int leaf, int level) const
    {
        const float4 *from = node(leaf, level);
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            const float4 v = from[i * THREADS];
            sum[i * 4] = v.x + sum[i * 4], sum[i * 4 + 1] = v.y + sum[i * 4 + 1];
            sum[i * 4 + 2] = v.z + sum[i * 4 + 2], sum[i * 4 + 3] = v.w + sum[i * 4 + 3];
        }
    }

    static __device__ __forceinline__ void clear(float (&sum)[SUMS])
    {
#pragma unroll
        for (int i = 0; i < SUMS; i++) sum[i] = 0;
    }

    // The products of the part: T over its leaves. index: for experts, the rows of x of the job; 0: the rows
    // themselves.
    __device__ __forceinline__ void run(float (&sum)[SUMS], const u64 (&code)[PANELS], const u64 (&scale)[PANELS],
                                        const int32_t *index = 0) const
    {
        let_next_start();
        for (int s = 0; s < SLOTS - 1; s++)
            if (s * CHUNK < units) fetch_weights(s, s, code, scale);
        wait_for_previous(); // weights do not depend on it, rows do
        if (JOBS) pick(index);
        for (int s = 0; s < SLOTS - 1; s++) {
            if (s * CHUNK < units) fetch_acts(s, s);
            copy_commit();
        }
        int slot = 0;
        accumulators d[PANELS];
        for (int p = 0; p < PANELS; p++)
            for (int i = 0; i < OCT * 4; i++) d[p][i] = 0;
        clear(sum);
#pragma unroll 1
        for (int c = 0; c * CHUNK < units; c++) {
            copy_wait<SLOTS - 2>();
            wgmma_reads_fence();
            __syncthreads(); // all copies of the chunk are there, and the chunk before was read
            const int filled = slot ? slot - 1 : SLOTS - 1;
            if ((c + SLOTS - 1) * CHUNK < units)
                fetch_weights(c + SLOTS - 1, filled, code, scale), fetch_acts(c + SLOTS - 1, filled);
            copy_commit();
            if (units - c * CHUNK > 1) chunk<2>(sum, d, slot);
            else chunk<1>(sum, d, slot);
            if (++slot == SLOTS) slot = 0;
            const int done = (c + 1) * CHUNK;
            if (done % 16 || done >= units) continue; // a leaf that is not the last
            const int leaf = done / 16 - 1;
            int level = 0;
            for (; leaf >> level & 1; level++) add(sum, leaf, level);
            float4 *to = node(leaf, level);
#pragma unroll
            for (int i = 0; i < SUMS / 4; i++)
                to[i * THREADS] = make_float4(sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]);
            clear(sum);
        }
        const int last = (units - 1) / 16;
        for (int level = 0; last >> level; level++)
            if (last >> level & 1) add(sum, last, level);
    }
};

} // namespace ek
