// Products of Form Q for many rows (contract: ops/linear/linear.h): a block computes 128 outputs for 64 columns (rows
// of activations, or with two limbs half as many rows), a warp 32 outputs for 32 columns. Units of 64 inputs
// go through shared memory, chains stay in registers, nodes of T lie in scratch memory: one per 1024 inputs.
#include "cuda/kernels/product/product_fragment.cuh"
#include "cuda/model_args.h"

using namespace ek;

constexpr int SLOTS = 3, COLUMNS = 64, PANELS = 8;

// PICK: experts, whose jobs are up to a tile of rows (cuda/model_args.h); blocks z = 1 take the second matrix. HALF:
// scales are known to be f16 without biases. Of one limb the sum I is there as the float MAGIC + I, and s I is one fma,
// (MAGIC + I) s - MAGIC s: MAGIC s has 13 bits, so it rounds once, as the product does.
template <int BITS, int LIMBS, int A, bool PICK, bool HALF = false>
__device__ __forceinline__ void tile(const ek_cuda_linear_args &a, const ek_cuda_products_args *pick)
{
    constexpr int CODE = BITS * 128, SUB = 64 / A, PER = LIMBS == 1 ? 2 : 1, ROWS = COLUMNS / LIMBS,
                  SUMS = 2 * 4 * 2 * PER;
    constexpr bool FOLDED = HALF && LIMBS == 1 && A == 32;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4, wp = w % 4 * 2, wo = w / 4 * 4;
    const int k = a.x.k, units = (k + 63) / 64, panels = (a.n + 15) / 16, sb = scale_bytes(a),
              groups = k >> a.group_shift;
    const int acts_at = PANELS * CODE, sx_at = acts_at + COLUMNS * 64, scales_at = sx_at + SUB * ROWS * 8;
    const int slot_bytes = scales_at + SUB * PANELS * 8 * sb;
    const int row_tiles = (a.rows + ROWS - 1) / ROWS, columns = (panels + PANELS - 1) / PANELS;
    const int block = PICK ? blockIdx.z * gridDim.x + blockIdx.x : blockIdx.x;
    __shared__ int row_of[PICK ? ROWS : 1]; // the places in x of a job's rows
    auto stack = [&](int level) {
        return (float4 *)a.stack + ((int64_t)block * a.levels + level) * (SUMS / 4) * 256 + threadIdx.x;
    };
    wait_for_previous();
    const int parts = !PICK && a.split ? (units + a.split - 1) / a.split : 1;
    const int tiles = (PICK ? *(const int *)pick->n_jobs : row_tiles) * columns * parts;
    for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
        const int job = PICK ? number : number / parts, part = PICK ? 0 : number % parts;
        const int first = PICK ? 0 : part * a.split, end = !PICK && a.split ? min(units, first + a.split) : units;
        const int p0 = (PICK ? job % columns : job / row_tiles) * PANELS;
        int row0 = job % row_tiles * ROWS, rows = a.rows;
        u64 codes = a.codes, scales = a.scales;
        if (PICK) {
            const ek_cuda_job one = ((const ek_cuda_job *)pick->jobs)[job / columns];
            codes = (blockIdx.z ? pick->codes2 : codes) + one.expert * pick->expert_bytes;
            scales = (blockIdx.z ? pick->scales2 : scales) + one.expert * pick->expert_bytes;
            row0 = one.first, rows = one.first + one.n;
            __syncthreads(); // the job before no longer needs row_of
            if (threadIdx.x < ROWS) {
                int r = min(row0 + (int)threadIdx.x, rows - 1);
                row_of[threadIdx.x] = pick->index ? ((const int32_t *)pick->index)[r] : r;
            }
        }
        auto fetch = [&](int u, int slot) {
            const int tid = thread_again(); // otherwise a dozen values of it stay in registers
            uint8_t *to = base + slot * slot_bytes;
#pragma unroll
            for (int i = 0; i < BITS / 4; i++) {
                int at = tid + i * 256, p = min(p0 + at / (CODE / 16), panels - 1);
                copy_async<16>(to + at * 16,
                               (const uint8_t *)codes + ((int64_t)p * units + u) * CODE + at % (CODE / 16) * 16);
            }
            {
                int c = tid / 4, q = tid % 4, r = PICK ? row_of[c / LIMBS] : min(row0 + c / LIMBS, rows - 1);
                const uint8_t *from = (const uint8_t *)a.x.q + r * a.x.ldq + c % LIMBS * a.x.low + u * 64;
                if (A == 64) copy_async<16>(to + acts_at + tid * 16, from + q * 16);
                else if (A == 16) {
#pragma unroll
                    for (int s = 0; s < 4; s++) copy_async<4>(to + acts_at + tid * 16 + s * 4, from + s * 16 + q * 4);
                } else
                    copy_async<8>(to + acts_at + tid * 16, from + q * 8),
                        copy_async<8>(to + acts_at + tid * 16 + 8, from + 32 + q * 8);
            }
            if (tid < SUB * ROWS) {
                int s = tid / ROWS, r = PICK ? row_of[tid % ROWS] : min(row0 + tid % ROWS, rows - 1),
                    at = min(u * SUB + s, k / A - 1);
                copy_async<8>(to + sx_at + tid * 8,
                              (const uint8_t *)a.x.q + r * a.x.ldq + a.x.groups[LIMBS - 1] + at * 8);
            }
            constexpr int FROM = SUB == 4 ? 0 : 128;
            if (tid >= FROM && tid < FROM + SUB * PANELS * 8) {
                int i = tid - FROM, s = i / (PANELS * 8), p = min(p0 + i / 8 % PANELS, panels - 1),
                    at = min((u * 64 + s * A) >> a.group_shift, groups - 1);
                copy_scales(to + scales_at + i * sb,
                            (const uint8_t *)scales + (((int64_t)p * groups + at) * 8 + i % 8) * sb, sb);
            }
        };
        float sum[2][4][2][PER];
        auto clear = [&]() {
#pragma unroll
            for (int i = 0; i < SUMS; i++) (&sum[0][0][0][0])[i] = 0;
        };
        auto add = [&](int level) {
            const float4 *from = stack(level);
            float *s = &sum[0][0][0][0];
#pragma unroll
            for (int i = 0; i < SUMS / 4; i++) {
                float4 v = from[i * 256];
                s[i * 4] = v.x + s[i * 4], s[i * 4 + 1] = v.y + s[i * 4 + 1];
                s[i * 4 + 2] = v.z + s[i * 4 + 2], s[i * 4 + 3] = v.w + s[i * 4 + 3];
            }
        };
        clear();
        __syncthreads(); // the tile before was read
        for (int s = 0; s < SLOTS - 1; s++) {
            if (first + s < end) fetch(first + s, s);
            copy_commit();
        }
        int slot = 0, filled = SLOTS - 1;
#pragma unroll 1
        for (int u = first; u < end; u++) {
            copy_wait<SLOTS - 2>();
            __syncthreads();
            if (u + SLOTS - 1 < end) fetch(u + SLOTS - 1, filled);
            copy_commit();
            if (++filled == SLOTS) filled = 0;
            const uint8_t *at = base + slot * slot_bytes;
            if (++slot == SLOTS) slot = 0;
#pragma unroll
            for (int s = 0; s < SUB; s++) {
                if (SUB > 1 && (u * SUB + s) * A >= k) break;
#pragma unroll
                for (int p = 0; p < 2; p++) {
                    u32 code[8];
                    float scale[2], bias[2];
                    read_codes<BITS>(at + (wp + p) * CODE + lane * 16, code);
                    read_scales(a, at + scales_at + ((s * PANELS + wp + p) * 8 + g) * sb, scale, bias);
                    if (FOLDED)
#pragma unroll
                        for (int h = 0; h < 2; h++)
                            scale[h] *= BITS == 4 ? 0.0625f : 1, bias[h] = -MAGIC_F * scale[h]; // codes come as 16 c
#pragma unroll
                    for (int o = 0; o < 4; o++) {
                        const float2 *x = (const float2 *)(at + sx_at) + s * ROWS + ((wo + o) * 4 + t) * PER;
                        const uint4 b = *(const uint4 *)(at + acts_at + (wo + o) * 512 + lane * 16);
                        if constexpr (FOLDED) {
                            int d[4];
                            mma_from(d, MAGIC, code + s * 4, s ? b.z : b.x, s ? b.w : b.y);
#pragma unroll
                            for (int i = 0; i < 4; i++)
                                sum[p][o][i / 2][i % 2] = fma_(fma_(__int_as_float(d[i]), scale[i / 2], bias[i / 2]),
                                                               x[i % 2].x, sum[p][o][i / 2][i % 2]);
                            continue;
                        }
                        group_product<BITS, LIMBS, A> r;
                        r.run(code, b, s);
#pragma unroll
                        for (int c = 0; c < PER; c++) {
                            const float2 sx = x[c];
#pragma unroll
                            for (int h = 0; h < 2; h++)
                                sum[p][o][h][c] = fma_(group_value(scale[h], bias[h], r.i[h][c], sx.y, a.biased), sx.x,
                                                       sum[p][o][h][c]);
                        }
                    }
                }
            }
            if (u % 16 == 15 && u + 1 < end) { // a leaf that is not the last
                int count = (u - first) / 16, level = 0;
                for (; count >> level & 1; level++) add(level);
                float4 *to = stack(level);
                const float *s = &sum[0][0][0][0];
#pragma unroll
                for (int i = 0; i < SUMS / 4; i++)
                    to[i * 256] = make_float4(s[i * 4], s[i * 4 + 1], s[i * 4 + 2], s[i * 4 + 3]);
                clear();
            }
        }
        const int before = (end - first - 1) / 16; // leaves in the stack
        for (int level = 0; before >> level; level++)
            if (before >> level & 1) add(level);
#pragma unroll
        for (int p = 0; p < 2; p++)
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int c = 0; c < PER; c++) {
                        int out = (p0 + wp + p) * 16 + g + h * 8, r = row0 + ((wo + o) * 4 + t) * PER + c;
                        if (out < a.n && r < rows)
                            ((float *)(PICK && blockIdx.z
                                           ? pick->y2
                                           : a.y))[((int64_t)part * a.rows + r) * a.ldy + out] = sum[p][o][h][c];
                    }
    }
    copy_wait<0>();
}

#define TILE(BITS, LIMBS, A)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2)                                           \
        ek_product_q##BITS##_l##LIMBS##_a##A##_tile(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                              \
        tile<BITS, LIMBS, A, false>(a, 0);                                                         \
    }
TILE(4, 1, 64)
TILE(4, 2, 64)
TILE(8, 1, 64)
TILE(8, 2, 64)
TILE(4, 1, 32)
TILE(4, 2, 32)
TILE(8, 1, 32)
TILE(8, 2, 32)
TILE(8, 1, 16)
TILE(8, 2, 16)

// The same with scales known at compile time (cuda/product/tile.c).
#define TILE_OF(NAME, BITS, A, LIMBS, BIASED, F32, F16)                                             \
    extern "C" __global__ void __launch_bounds__(256, 2)                                            \
        ek_product_##NAME##_l##LIMBS##_tile(const __grid_constant__ ek_cuda_linear_args args)       \
    {                                                                                               \
        ek_cuda_linear_args a = args;                                                               \
        a.biased = BIASED, a.f32_scales = F32, a.f16_scales = F16, a.group_shift = A == 16 ? 4 : 5; \
        tile<BITS, LIMBS, A, false, F16 && !BIASED>(a, 0);                                          \
    }
#define TILES_OF(NAME, BITS, A, BIASED, F32, F16) \
    TILE_OF(NAME, BITS, A, 1, BIASED, F32, F16) TILE_OF(NAME, BITS, A, 2, BIASED, F32, F16)
TILES_OF(q4h_32, 4, 32, 0, 0, 1)
TILES_OF(q8h_32, 8, 32, 0, 0, 1)
TILES_OF(q4bm_32, 4, 32, 1, 0, 0)
TILES_OF(q4fm_32, 4, 32, 1, 1, 0)
TILES_OF(q8f_16, 8, 16, 0, 1, 0)

extern "C" __global__ void __launch_bounds__(256) ek_product_join(const __grid_constant__ ek_cuda_join_args a)
{
    const int i = blockIdx.x * 256 + threadIdx.x, r = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (i >= a.n) return;
    const float *part = (const float *)a.parts + (int64_t)r * a.n + i;
    const int64_t step = (int64_t)a.rows * a.n;
    ((float *)a.y)[r * a.ldy + i] = tree_sum([&](int j) { return part[j * step]; }, a.n_parts);
}

#define TILES(BITS, LIMBS, A)                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 2)                                              \
        ek_products_q##BITS##_l##LIMBS##_a##A##_tile(const __grid_constant__ ek_cuda_products_args p) \
    {                                                                                                 \
        tile<BITS, LIMBS, A, true>(p.a, &p);                                                          \
    }
TILES(4, 1, 64)
TILES(4, 2, 64)
TILES(8, 1, 64)
TILES(8, 2, 64)
TILES(4, 1, 32)
TILES(4, 2, 32)
TILES(8, 1, 32)
TILES(8, 2, 32)
TILES(8, 1, 16)
TILES(8, 2, 16)
