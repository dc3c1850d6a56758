// Products of Form Q for few rows, with bf16 scales and biases and groups of 64 (contract: ops/linear.h).
//
// A warp takes a chunk of 256 inputs of a panel: its codes and scales come as two pieces into a ring of the warp's own,
// as many chunks ahead as the ring has, before the kernel in front has ended. A leaf is four chunks. With few columns
// (RELAY) each chunk goes to another warp: it computes the values of its groups at once, and only the chain over them
// waits for the warp of the chunk before, whose sums lie in shared memory. With many columns a warp computes whole
// leaves, so that nobody waits. The leaves of a turn's panels meet in shared memory; then a thread adds them by T.
#pragma once

#include "cuda/kernels/product.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek {

constexpr int CHUNK_UNITS = 4, LEAF_CHUNKS = 4, SCALES = 64; // bytes of scales of a unit

template <int BITS, int LIMBS, int OCT, bool RELAY> struct leaf_product {
    static constexpr int CODE = BITS * 128, CHUNK = CHUNK_UNITS * (CODE + SCALES), PER = 8 / LIMBS, ROWS = OCT * PER;
    static constexpr int COLS = LIMBS == 1 ? 2 : 1, SUMS = 16 * ROWS; // columns of a lane; sums of a leaf

    // the matrices
    u64 codes, scales, codes2, scales2;
    int units, chunks, leaves, panels, turn, turns, half; // half: panels of a turn that the first matrix has
    // the warp's ring
    int lane, g, t, w, warps, stages, slot;
    u32 phase;
    uint8_t *ring;
    u64 *arrived;
    // the next chunk to copy
    int to_turn, to_task, to_part;

    __device__ __forceinline__ int panels_of(int turn_number) const
    {
        return min(turn, panels - turn_number * turn);
    }

    __device__ __forceinline__ int tasks_of(int turn_number) const
    {
        return panels_of(turn_number) * (RELAY ? chunks : leaves);
    }

    // Copies the next chunk of this warp into a slot.
    __device__ __forceinline__ void fetch(int to)
    {
        if (to_turn >= turns) return;
        const int n = panels_of(to_turn), j = to_task % n, c = RELAY ? to_task / n : to_task / n * LEAF_CHUNKS + to_part;
        if (lane == 0) {
            const int second = j >= half, some = min(CHUNK_UNITS, units - c * CHUNK_UNITS);
            const int64_t unit = (int64_t)(half < turn ? to_turn * half + j - second * half : to_turn * turn + j) * units + c * CHUNK_UNITS;
            uint8_t *at = ring + to * CHUNK;
            arrival_expect(arrived + to, some * (CODE + SCALES));
            copy_piece(at, (const uint8_t *)(second ? codes2 : codes) + unit * CODE, some * CODE, arrived + to);
            copy_piece(at + CHUNK_UNITS * CODE, (const uint8_t *)(second ? scales2 : scales) + unit * SCALES, some * SCALES, arrived + to);
        }
        if (!RELAY && ++to_part < LEAF_CHUNKS && c + 1 < chunks) return;
        to_part = 0;
        to_task += warps;
        while (to_turn < turns && to_task >= tasks_of(to_turn)) to_turn += gridDim.x, to_task = w;
    }

    __device__ __forceinline__ void next_slot()
    {
        if (++slot == stages) slot = 0, phase ^= 1;
    }

    // What a lane reads of the rows for a chunk.
    struct operands {
        uint4 b[CHUNK_UNITS];
        float4 x[COLS][2];
    };

    const uint8_t *rec[OCT];       // of the lane's column; 0: no such row
    const float4 *act[OCT][COLS];  // {sx, X} of two groups

    __device__ __forceinline__ void load(operands &in, int c) const
    {
#pragma unroll
        for (int u = 0; u < CHUNK_UNITS; u++) {
            in.b[u] = make_uint4(0, 0, 0, 0);
            if (rec[0] && c * CHUNK_UNITS + u < units) in.b[u] = *(const uint4 *)(rec[0] + (c * CHUNK_UNITS + u) * 64 + t * 16);
        }
#pragma unroll
        for (int i = 0; i < COLS; i++)
#pragma unroll
            for (int p = 0; p < 2; p++) in.x[i][p] = act[0][i][c * 2 + p];
    }

    // s and b' = fma(zero, s, b) of outputs g and g + 8
    __device__ __forceinline__ void unit_scales(const uint8_t *at, float zero, float (&s)[2], float (&b)[2]) const
    {
        const uint2 v = *(const uint2 *)(at + g * 8);
        s[0] = bits(v.x << 16), b[0] = fma_(zero, s[0], bits(v.x & 0xffff0000u));
        s[1] = bits(v.y << 16), b[1] = fma_(zero, s[1], bits(v.y & 0xffff0000u));
    }

    // The chain over a chunk, its values first. `sums` has the chain so far and takes the result; word: who may read it.
    __device__ __forceinline__ void relay(operands &in, int c, float zero, float *sums, u32 *word, u32 tag, int next)
    {
        const uint8_t *at = ring + slot * CHUNK;
        float value[CHUNK_UNITS][2][COLS], sx[CHUNK_UNITS][COLS];
        const int some = min(CHUNK_UNITS, units - c * CHUNK_UNITS);
        arrival_wait(arrived + slot, phase);
#pragma unroll
        for (int u = 0; u < CHUNK_UNITS; u++) {
            u32 code[8];
            float s[2], b[2];
            read_codes<BITS>(at + u * CODE + lane * 16, code);
            unit_scales(at + CHUNK_UNITS * CODE + u * SCALES, zero, s, b);
            group_product<BITS, LIMBS, 64> r;
            r.run(code, in.b[u], 0);
#pragma unroll
            for (int i = 0; i < COLS; i++) {
                const float4 x = in.x[i][u / 2];
                sx[u][i] = u % 2 ? x.z : x.x;
#pragma unroll
                for (int h = 0; h < 2; h++) value[u][h][i] = fma_(b[h], u % 2 ? x.w : x.y, __fmul_rn(s[h], r.i[h][i]));
            }
        }
        __syncwarp(); // all have read the slot
        fetch(slot);
        next_slot();
        if (next >= 0) load(in, next);
        float sum[2][COLS] = {};
        float *mine = sums + g * PER + t * COLS;
        if (c % LEAF_CHUNKS) {
            await(word, tag + c % LEAF_CHUNKS);
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) sum[h][i] = mine[h * 8 * PER + i];
        }
#pragma unroll
        for (int u = 0; u < CHUNK_UNITS; u++) {
            if (u >= some) break;
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) sum[h][i] = fma_(value[u][h][i], sx[u][i], sum[h][i]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < COLS; i++) mine[h * 8 * PER + i] = sum[h][i];
        __syncwarp();
        if (lane == 0 && c % LEAF_CHUNKS != LEAF_CHUNKS - 1) tell(word, tag + c % LEAF_CHUNKS + 1);
    }

    // A leaf of a panel.
    __device__ __forceinline__ void whole(int leaf, float zero, float *sums)
    {
        float sum[OCT][2][COLS] = {};
        const int end = min(chunks, (leaf + 1) * LEAF_CHUNKS);
#pragma unroll 1
        for (int c = leaf * LEAF_CHUNKS; c < end; c++) {
            const uint8_t *at = ring + slot * CHUNK;
            const int some = min(CHUNK_UNITS, units - c * CHUNK_UNITS);
            arrival_wait(arrived + slot, phase);
#pragma unroll 1
            for (int u = 0; u < some; u++) {
                const int unit = c * CHUNK_UNITS + u;
                uint4 in[OCT];
                float2 x[OCT][COLS];
#pragma unroll
                for (int o = 0; o < OCT; o++) {
                    in[o] = make_uint4(0, 0, 0, 0);
                    if (rec[o]) in[o] = *(const uint4 *)(rec[o] + unit * 64 + t * 16);
#pragma unroll
                    for (int i = 0; i < COLS; i++) x[o][i] = ((const float2 *)act[o][i])[unit];
                }
                u32 code[8];
                float s[2], b[2];
                read_codes<BITS>(at + u * CODE + lane * 16, code);
                unit_scales(at + CHUNK_UNITS * CODE + u * SCALES, zero, s, b);
#pragma unroll
                for (int o = 0; o < OCT; o++) {
                    group_product<BITS, LIMBS, 64> r;
                    r.run(code, in[o], 0);
#pragma unroll
                    for (int i = 0; i < COLS; i++)
#pragma unroll
                        for (int h = 0; h < 2; h++)
                            sum[o][h][i] = fma_(fma_(b[h], x[o][i].y, __fmul_rn(s[h], r.i[h][i])), x[o][i].x, sum[o][h][i]);
                }
            }
            __syncwarp();
            fetch(slot);
            next_slot();
        }
#pragma unroll
        for (int o = 0; o < OCT; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) sums[(o * 16 + g + h * 8) * PER + t * COLS + i] = sum[o][h][i];
    }
};

// Where output o of 16 and row r lie among a leaf's sums.
template <int PER> __device__ __forceinline__ int sum_at(int o, int r)
{
    return (r / PER * 16 + o) * PER + r % PER;
}

template <int BITS, int LIMBS, int OCT> __device__ __forceinline__ void leaves(const ek_cuda_leaf_args &p)
{
    typedef leaf_product<BITS, LIMBS, OCT, OCT == 1> product;
    constexpr bool RELAY = OCT == 1;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x;
    product m;
    m.lane = tid % 32, m.w = tid / 32, m.warps = blockDim.x / 32, m.g = m.lane / 4, m.t = m.lane % 4;
    m.codes = a.codes, m.codes2 = p.codes2, m.scales = a.scales, m.scales2 = p.scales2;
    m.units = a.x.k / 64, m.chunks = (m.units + CHUNK_UNITS - 1) / CHUNK_UNITS, m.leaves = (m.chunks + LEAF_CHUNKS - 1) / LEAF_CHUNKS;
    m.turn = a.turn, m.half = p.codes2 ? a.turn / 2 : a.turn;
    m.panels = (a.n + 15) / 16 * (p.codes2 ? 2 : 1), m.turns = (m.panels + m.turn - 1) / m.turn;
    m.stages = a.stages, m.slot = 0, m.phase = 0;
    m.arrived = (u64 *)base + m.w * m.stages;
    u32 *word = (u32 *)((u64 *)base + m.warps * m.stages); // of each leaf of a turn
    const int n_words = RELAY ? m.turn * m.leaves : 0;
    uint8_t *rings = base + (m.warps * m.stages * 8 + n_words * 4 + 127) / 128 * 128;
    m.ring = rings + m.w * m.stages * product::CHUNK;
    float *const sums = (float *)(rings + m.warps * m.stages * product::CHUNK); // of a turn, and of the next

    if (m.lane == 0) {
        for (int s = 0; s < m.stages; s++) arrival_open(m.arrived + s);
        arrival_fence();
    }
    for (int i = tid; i < n_words; i += blockDim.x) word[i] = 0;
    __syncthreads();
    let_next_start();
    int row0 = blockIdx.y * product::ROWS, rows = min(product::ROWS, a.rows - row0);
    const int32_t *index = 0;
    if (p.jobs) {
        wait_for_previous(); // which experts there are
        if (blockIdx.y >= *(const u32 *)p.n_jobs) return;
        const ek_cuda_job job = ((const ek_cuda_job *)p.jobs)[blockIdx.y];
        const int64_t skip = job.expert * p.expert_bytes;
        m.codes += skip, m.codes2 += skip, m.scales += skip, m.scales2 += skip;
        row0 = job.first, rows = job.n, index = (const int32_t *)p.index;
    }
    m.to_turn = blockIdx.x, m.to_task = m.w, m.to_part = 0;
    while (m.to_turn < m.turns && m.to_task >= m.tasks_of(m.to_turn)) m.to_turn += gridDim.x;
    for (int s = 0; s < m.stages; s++) m.fetch(s);
    if (!p.jobs) wait_for_previous(); // weights do not depend on it, rows do
#pragma unroll
    for (int o = 0; o < OCT; o++) {
        auto record = [&](int r) {
            r = row0 + min(r, rows - 1);
            return (const uint8_t *)a.x.q + (index ? index[r] : r) * a.x.ldq;
        };
        const int r = o * product::PER + m.g / LIMBS;
        m.rec[o] = r < rows ? record(r) + m.g % LIMBS * a.x.low : 0;
#pragma unroll
        for (int i = 0; i < product::COLS; i++) m.act[o][i] = (const float4 *)(record(o * product::PER + m.t * product::COLS + i) + a.x.groups[LIMBS - 1]);
    }
    const float zero = (float)a.zero;
    const int room = m.turn * m.leaves * product::SUMS;
    u32 tag = 0;
    for (int turn = blockIdx.x, odd = 0; turn < m.turns; turn += gridDim.x, odd ^= 1, tag += LEAF_CHUNKS) {
        const int n = m.panels_of(turn), tasks = m.tasks_of(turn);
        float *const mine = sums + odd * room;
        if (RELAY) {
            typename product::operands in;
            if (m.w < tasks) m.load(in, m.w / n);
            for (int i = m.w; i < tasks; i += m.warps) {
                const int j = i % n, c = i / n, leaf = c / LEAF_CHUNKS * m.turn + j;
                m.relay(in, c, zero, mine + leaf * product::SUMS, word + leaf, tag, i + m.warps < tasks ? (i + m.warps) / n : -1);
            }
        } else
            for (int i = m.w; i < tasks; i += m.warps) m.whole(i / n, zero, mine + (i / n * m.turn + i % n) * product::SUMS);
        __syncthreads();
        auto result = [&](int j, int o, int r) {
            const float *leaf = mine + j * product::SUMS + sum_at<product::PER>(o, r);
            return tree_sum([&](int l) { return leaf[l * m.turn * product::SUMS]; }, m.leaves);
        };
        if (!p.to.q) {
            for (int i = tid; i < n * 16 * rows; i += blockDim.x) {
                const int o = i % 16, j = i / 16 % n, r = i / 16 / n, out = (turn * m.turn + j) * 16 + o;
                if (out < a.n) ((float *)a.y)[(row0 + r) * a.ldy + out] = result(j, o, r);
            }
            continue;
        }
        for (int r = m.w; r < rows; r += m.warps) {
            float v[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int e = m.lane + i * 32, j = e / 16, o = e % 16;
                const float gate = result(j, o, r);
                v[i] = gelu_(gate) * (p.codes2 ? result(j + m.half, o, r) : ((const float *)p.u)[(row0 + r) * p.ldu + turn * 64 + e]);
            }
            quantize_group(p.to, row0 + r, turn, v);
        }
    }
}

} // namespace ek
