// Products of Form Q for few rows of weights with their file's own scales, in groups of 32 or 16 (contract:
// ops/linear/linear.h; layout: cuda/linear.h, cuda/planes.h).
//
// As in product_leaf.cuh a warp takes a chunk of a panel, here of 8 groups: codes and scales come as two pieces into a
// ring of the warp's own, before the kernel in front has ended; the warp computes its groups' values at once, and only
// the chain over them waits for the warp of the chunk before, whose sums lie in shared memory. Up to 4 rows of one limb
// take every second column, so that a lane adds for one row instead of two.
#pragma once

#include "cuda/kernels/product/plane_format.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek
{

template <class F, int LIMBS, int ROWS> struct plane_product {
    static constexpr int OCT = LIMBS == 2 && ROWS == 8 ? 2 : 1; // times 8 columns
    static constexpr int COLS = ROWS / OCT / 4, PER = ROWS / OCT,
                         SUMS = 16 * ROWS; // rows of a lane, of 8 columns; sums of a leaf
    static constexpr bool AHEAD = ROWS == 4 &&
                                  !F::BIASED; // rows are read a chunk ahead; else there are no registers for it
    // scales of rows are read twice, for the same reason
    static constexpr bool AGAIN = ROWS == 8 &&
                                  (F::BIASED ? LIMBS == 2 || F::KIND == PLANE_F32 : F::A == 16 && LIMBS == 2);

    const ek_cuda_leaf_args &p;                           // read where it is needed, instead of kept in registers
    u64 skip;                                             // of an expert
    int units, groups, chunks, panels, turn, turns, half; // half: panels of a turn that the first matrix has
    int blocks;                                           // that share the turns
    // the warp's ring
    int lane, g, t, w, warps, stages, slot;
    u32 phase;
    uint8_t *ring;
    u64 *arrived;

    // The tasks of a warp, turn by turn: chunk c of panel j of the turn.
    struct cursor {
        int turn, j, c, panels, step_j, step_c;
    };
    int next_turn, next_task; // to copy: task c * panels + j

    __device__ __forceinline__ int panels_of(int turn_number) const
    {
        return min(turn, panels - turn_number * turn);
    }

    // The first turn from this one on that has a task for the warp.
    __device__ __forceinline__ int turn_from(int turn_number) const
    {
        while (turn_number < turns && w >= panels_of(turn_number) * chunks) turn_number += blocks;
        return turn_number;
    }

    __device__ __forceinline__ void begin(cursor &at, int turn_number) const
    {
        at.turn = turn_from(turn_number);
        if (at.turn >= turns) return;
        at.panels = panels_of(at.turn);
        at.c = w / at.panels, at.j = w - at.c * at.panels;
        at.step_c = warps / at.panels, at.step_j = warps - at.step_c * at.panels;
    }

    // False: the turn has no more for this warp.
    __device__ __forceinline__ bool step(cursor &at) const
    {
        at.c += at.step_c, at.j += at.step_j;
        if (at.j >= at.panels) at.j -= at.panels, at.c++;
        return at.c < chunks;
    }

    // Copies the next chunk of this warp into a slot.
    __device__ __forceinline__ void fetch(int to)
    {
        if (next_turn >= turns) return;
        const int n = panels_of(next_turn);
        if (lane == 0) {
            int j;
            const int c = small_quotient(next_task, n, &j), unit = c * F::UNITS, group = c * F::GROUPS;
            const bool second = j >= half;
            const int64_t panel = next_turn * half + j - (second ? half : 0);
            const u32 n_codes = min(F::UNITS, units - unit) * F::CODE,
                      n_scales = min(F::GROUPS, groups - group) * F::SCALE;
            const u64 codes = (second || blockIdx.z ? p.codes2 : p.a.codes) + skip,
                      scales = (second || blockIdx.z ? p.scales2 : p.a.scales) + skip;
            uint8_t *at = ring + to * F::CHUNK;
            arrival_expect(arrived + to, n_codes + n_scales);
            copy_piece(at, (const uint8_t *)codes + (panel * units + unit) * F::CODE, n_codes, arrived + to);
            copy_piece(at + F::CODES, (const uint8_t *)scales + (panel * groups + group) * F::SCALE, n_scales,
                       arrived + to);
        }
        next_task += warps;
        if (next_task >= n * chunks) next_turn = turn_from(next_turn + blocks), next_task = w;
    }

    __device__ __forceinline__ void next_slot()
    {
        if (++slot == stages) slot = 0, phase ^= 1;
    }

    // What a lane reads of 8 columns for a chunk.
    struct operands {
        uint4 b[F::UNITS];
        float4 x[COLS][F::GROUPS / 2]; // {sx, X} of two groups
    };

    const uint8_t *rec[OCT]; // of the lane's column; no such row: 0, or AHEAD any, for nobody reads its sums
    const float4 *act[OCT][COLS];

    static __device__ __forceinline__ void load_unit(uint4 &to, const uint8_t *from)
    {
        if (F::A == 32) {
            const uint2 v = *(const uint2 *)from, w = *(const uint2 *)(from + 32);
            to = make_uint4(v.x, v.y, w.x, w.y);
        } else
            to = make_uint4(*(const u32 *)from, *(const u32 *)(from + 16), *(const u32 *)(from + 32),
                            *(const u32 *)(from + 48));
    }

    // Conditions keep few loads on their way where registers are few.
    __device__ __forceinline__ void load(operands &in, int o, int c) const
    {
        const int first = c * F::UNITS;
        const uint8_t *const from = rec[o] + first * 64 + t * (F::A / 4);
        if (AHEAD && first + F::UNITS <= units) {
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) load_unit(in.b[u], from + u * 64);
        } else {
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                in.b[u] = make_uint4(0, 0, 0, 0);
                if ((!AHEAD && !rec[o]) || first + u >= units) continue;
                load_unit(in.b[u], rec[o] + (first + u) * 64 + t * (F::A / 4));
            }
        }
#pragma unroll
        for (int i = 0; i < COLS; i++)
#pragma unroll
            for (int p = 0; p < F::GROUPS / 2; p++) in.x[i][p] = act[o][i][c * (F::GROUPS / 2) + p];
    }

    static __device__ __forceinline__ float scale_of(const operands &in, int group, int i)
    {
        return group % 2 ? in.x[i][group / 2].z : in.x[i][group / 2].x;
    }

    static __device__ __forceinline__ float sum_of(const operands &in, int group, int i)
    {
        return group % 2 ? in.x[i][group / 2].w : in.x[i][group / 2].y;
    }

    // The chain over chunk c of a leaf, its values first. `sums` has the chain so far and takes the result; told:
    // that a part of the leaf but the last is there, once in each turn.
    __device__ __forceinline__ void relay(operands &in, int c, float zero, float *sums, u64 *told, u32 told_phase,
                                          int next_c)
    {
        const uint8_t *at = ring + slot * F::CHUNK;
        float value[F::GROUPS][OCT][2][COLS], sx[F::GROUPS][OCT][COLS];
        const int some = min(F::GROUPS, groups - c * F::GROUPS), part = c % F::LEAF;
        arrival_wait(arrived + slot, phase);
#pragma unroll
        for (int o = 0; o < OCT; o++) {
            if (!AHEAD) load(in, o, c);
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                u32 code[8];
                read_codes<F::BITS>(at + u * F::CODE + lane * 16, code);
#pragma unroll
                for (int sub = 0; sub < F::SUB; sub++) {
                    const int n = u * F::SUB + sub;
                    float s[2], b[2];
                    F::read(at + F::CODES + n * F::SCALE + g * F::LANE, zero, s, b);
                    group_product<F::BITS, LIMBS, F::A> r;
                    r.run(code, in.b[u], sub);
#pragma unroll
                    for (int i = 0; i < COLS; i++) {
                        if (!AGAIN) sx[n][o][i] = scale_of(in, n, i);
#pragma unroll
                        for (int h = 0; h < 2; h++)
                            value[n][o][h][i] = group_value(s[h], b[h], r.i[h][i], sum_of(in, n, i), F::BIASED);
                    }
                }
            }
        }
        __syncwarp(); // all have read the slot
        if (AHEAD && next_c >= 0) load(in, 0, next_c);
        float *mine = sums + g * PER + t * COLS;
        if (part) arrival_wait(told + part - 1, told_phase);
        if (AGAIN)
#pragma unroll
            for (int o = 0; o < OCT; o++)
#pragma unroll
                for (int i = 0; i < COLS; i++)
#pragma unroll
                    for (int n = 0; n < F::GROUPS; n += 2) {
                        const float4 x = act[o][i][c * (F::GROUPS / 2) + n / 2];
                        sx[n][o][i] = x.x, sx[n + 1][o][i] = x.z;
                    }
#pragma unroll
        for (int o = 0; o < OCT; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    float *place = mine + (o * 16 + h * 8) * PER + i, sum = part ? *place : 0;
                    if (AHEAD && F::A == 32 && some == F::GROUPS) {
#pragma unroll
                        for (int n = 0; n < F::GROUPS; n++) sum = fma_(value[n][o][h][i], sx[n][o][i], sum);
                    } else {
#pragma unroll
                        for (int n = 0; n < F::GROUPS; n++)
                            if (n < some) sum = fma_(value[n][o][h][i], sx[n][o][i], sum);
                    }
                    *place = sum;
                }
        if (part != F::LEAF - 1 && c + 1 < chunks) arrival_tell(told + part);
        fetch(slot);
        next_slot();
    }
};

// By block number `block` of `blocks`, of tile or, where JOBS, job number `tile`.
template <class F, int LIMBS, int ROWS, bool JOBS = true>
__device__ __forceinline__ void planes(const ek_cuda_leaf_args &p, int block, int blocks, int tile)
{
    typedef plane_product<F, LIMBS, ROWS> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x;
    const bool gated = p.codes2 && !p.y2;
    product m = {p};
    m.lane = tid % 32, m.w = tid / 32, m.warps = blockDim.x / 32, m.g = m.lane / 4, m.t = m.lane % 4;
    m.units = (a.x.k + 63) / 64, m.groups = a.x.k / F::A, m.chunks = (m.units + F::UNITS - 1) / F::UNITS;
    m.turn = a.turn, m.half = gated ? a.turn / 2 : a.turn;
    m.panels = (a.n + 15) / 16 * (gated ? 2 : 1), m.turns = (m.panels + m.turn - 1) / m.turn;
    m.stages = a.stages, m.slot = 0, m.phase = 0, m.blocks = blocks;
    m.arrived = (u64 *)base + m.w * m.stages;
    const int leaves = (m.chunks + F::LEAF - 1) / F::LEAF, n_told = m.turn * leaves * (F::LEAF - 1);
    u64 *told = (u64 *)base + m.warps * m.stages; // of each leaf of a turn
    uint8_t *rings = base + ((m.warps * m.stages + n_told) * 8 + 127) / 128 * 128;
    m.ring = rings + m.w * m.stages * F::CHUNK;
    float *const sums = (float *)(rings + m.warps * m.stages * F::CHUNK); // of a turn, and of the next

    if (m.lane == 0)
        for (int s = 0; s < m.stages; s++) arrival_open(m.arrived + s);
    for (int i = tid; i < n_told; i += blockDim.x) arrival_open(told + i, 32);
    arrival_fence();
    __syncthreads();
    if (!p.holds) let_next_start();
    int row0 = tile * ROWS, rows = min(ROWS, a.rows - row0);
    const int32_t *index = 0;
    if (JOBS && p.jobs) {
        if (!p.known) wait_for_previous(); // which experts there are
        if (p.holds) let_next_start();
        // past the cache, which may have those of a layer before
        if ((u32)tile >= *(const volatile u32 *)p.n_jobs) return;
        const volatile ek_cuda_job *const one = (const volatile ek_cuda_job *)p.jobs + tile;
        m.skip = one->expert * p.expert_bytes;
        row0 = one->first, rows = one->n, index = (const int32_t *)p.index;
    }
    typename product::cursor at;
    m.begin(at, block);
    m.next_turn = at.turn, m.next_task = m.w;
    for (int s = 0; s < m.stages; s++) m.fetch(s);
    if (!JOBS || !p.jobs || p.known) wait_for_previous(); // weights do not depend on it, rows do
    if (!(JOBS && p.jobs) && p.holds) let_next_start();
#pragma unroll
    for (int o = 0; o < product::OCT; o++) {
        auto record = [&](int r) {
            r = row0 + min(r, rows - 1);
            return (const uint8_t *)a.x.q + (index ? index[r] : r) * a.x.ldq;
        };
        const int r = o * product::PER + m.g * product::PER / 8;
        const bool low = product::PER == 4 && m.g % 2; // the column of a row's second limb, empty with one
        m.rec[o] = product::AHEAD || (r < rows && (LIMBS == 2 || !low)) ? record(r) + (LIMBS == 2 && low ? a.x.low : 0)
                                                                        : 0;
#pragma unroll
        for (int i = 0; i < product::COLS; i++)
            m.act[o][i] = (const float4 *)(record(o * product::PER + m.t * product::COLS + i) + a.x.groups[LIMBS - 1]);
    }
    const float zero = (float)a.zero;
    const int room = m.turn * leaves * product::SUMS;
    for (int turn = block, count = 0; turn < m.turns; turn += blocks, count++) {
        const int n = min(m.turn, m.panels - turn * m.turn);
        float *const mine = sums + (count & 1) * room;
        if (at.turn == turn) {
            bool more = true;
            typename product::operands in;
            if (product::AHEAD) m.load(in, 0, at.c);
            while (more) {
                const int c = at.c, place = c / F::LEAF * m.turn + at.j;
                more = m.step(at);
                m.relay(in, c, zero, mine + place * product::SUMS, told + place * (F::LEAF - 1), count & 1,
                        more ? at.c : -1);
            }
            m.begin(at, turn + blocks);
        }
        __syncthreads();
        auto result = [&](int j, int o, int r) {
            const float *leaf = mine + j * product::SUMS + (r / product::PER * 16 + o) * product::PER +
                                r % product::PER;
            return tree_sum([&](int l) { return leaf[l * m.turn * product::SUMS]; }, leaves);
        };
        if (!p.to.q) {
            for (int i = tid; i < n * 16 * rows; i += blockDim.x) {
                const int o = i % 16, j = i / 16 % n, r = i / 16 / n, out = (turn * m.turn + j) * 16 + o;
                if (out < a.n) ((float *)(blockIdx.z ? p.y2 : a.y))[(row0 + r) * a.ldy + out] = result(j, o, r);
            }
            continue;
        }
        const int parts = 64 / p.to.a_group; // of 64 outputs
        for (int task = m.w; task < rows * parts; task += m.warps) {
            const int r = task / parts, part = task % parts;
            float v[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (m.lane + i * 32 >= p.to.a_group) continue;
                const int e = part * p.to.a_group + m.lane + i * 32, j = e / 16, o = e % 16;
                const float gate = result(j, o, r);
                v[i] = gelu_(gate) *
                       (gated ? result(j + m.half, o, r) : ((const float *)p.u)[(row0 + r) * p.ldu + turn * 64 + e]);
            }
            quantize_group(p.to, row0 + r, turn * parts + part, v);
        }
    }
}

// All kernels: q<bits>, scales h f16, b bf16, f f32, m with a bias, the group; limbs; rows; whether of experts too, for
// which registers suffice, where not, for 4 rows only (cuda/linear_plane.c).
#define EK_PLANE_KERNEL(K, NAME, BITS, A, SCALES, ONE, TWO) \
    K(NAME, BITS, A, SCALES, 1, 4, true)                    \
    K(NAME, BITS, A, SCALES, 2, 4, true) K(NAME, BITS, A, SCALES, 1, 8, ONE) K(NAME, BITS, A, SCALES, 2, 8, TWO)
#define EK_PLANE_KERNELS(K)                                                    \
    EK_PLANE_KERNEL(K, q4h_32, 4, 32, PLANE_F16, true, true)                   \
    EK_PLANE_KERNEL(K, q8h_32, 8, 32, PLANE_F16, true, true)                   \
    EK_PLANE_KERNEL(K, q8b_32, 8, 32, PLANE_BF16, true, false)                 \
    EK_PLANE_KERNEL(K, q8f_32, 8, 32, PLANE_F32, true, false)                  \
    EK_PLANE_KERNEL(K, q8f_16, 8, 16, PLANE_F32, true, false)                  \
    EK_PLANE_KERNEL(K, q4hm_32, 4, 32, PLANE_BIASED + PLANE_F16, true, false)  \
    EK_PLANE_KERNEL(K, q8hm_32, 8, 32, PLANE_BIASED + PLANE_F16, true, false)  \
    EK_PLANE_KERNEL(K, q4bm_32, 4, 32, PLANE_BIASED + PLANE_BF16, true, false) \
    EK_PLANE_KERNEL(K, q8bm_32, 8, 32, PLANE_BIASED + PLANE_BF16, true, false) \
    EK_PLANE_KERNEL(K, q4fm_32, 4, 32, PLANE_BIASED + PLANE_F32, false, false) \
    EK_PLANE_KERNEL(K, q8fm_32, 8, 32, PLANE_BIASED + PLANE_F32, false, false)

} // namespace ek
