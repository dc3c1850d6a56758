// Products of Form Q for few rows, with bf16 scales and biases and groups of 64 (contract: ops/linear/linear.h).
//
// A warp takes a chunk of 256 inputs of a panel: its codes and scales come as two pieces into a ring of the warp's own,
// as many chunks ahead as the ring has, before the kernel in front has ended.
// A leaf is four chunks, each of another warp: it computes the values of its groups at once, and only the chain over
// them waits for the warp of the chunk before, whose sums lie in shared memory. There too lie the leaves of a turn's
// panels; a thread adds them by T.
// Up to 4 rows also by chunks of 512 inputs (UNITS 8): rows of one limb are every second column, so that a lane adds
// for one row, and what a chunk costs beside its groups is paid once for twice as many inputs. So are 8 rows of one
// limb, whose values of half a chunk are held at once.
#pragma once

#include "cuda/kernels/product/product_chunk.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek
{

// Where output o of 16 and row r lie among a leaf's sums.
template <int PER> __device__ __forceinline__ int sum_at(int o, int r)
{
    return (r / PER * 16 + o) * PER + r % PER;
}

constexpr int SPREAD = EK_CUDA_SPREAD;

// By block number `block` of `blocks`, of tile or job number `tile`. SPREAD_GATE: of a gate, of which a turn is 16
// elements (TURN 1: of one matrix, with u); the blocks of a cluster have those of a group; of its rows each rounds
// some. JOBS: of experts too; by chunks of 512 a block then has one turn.
template <int BITS, int LIMBS, int OCT, bool SPREAD_GATE = false, int UNITS = 4, int TURN = 0,
          bool JOBS = UNITS == 4 && !SPREAD_GATE, bool EIGHT = false,
          bool ONCE = UNITS == 8 && (JOBS || (EIGHT && !TURN))>
__device__ __forceinline__ void leaves(const ek_cuda_leaf_args &p, int block, int blocks, int tile)
{
    typedef leaf_product<BITS, LIMBS, OCT, UNITS, TURN, ONCE, EIGHT> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x;
    product m;
    m.lane = tid % 32, m.w = tid / 32, m.warps = blockDim.x / 32, m.g = m.lane / 4, m.t = m.lane % 4;
    m.codes = a.codes, m.codes2 = p.codes2, m.scales = a.scales, m.scales2 = p.scales2;
    m.units = a.x.k / 64, m.chunks = (m.units + UNITS - 1) / UNITS,
    m.leaves = (m.chunks + product::CHUNKS - 1) / product::CHUNKS;
    m.turn = TURN ? TURN : a.turn, m.half = p.codes2 ? m.turn / 2 : m.turn;
    m.panels = (a.n + 15) / 16 * (p.codes2 ? 2 : 1), m.turns = (m.panels + m.turn - 1) / m.turn;
    m.stages = a.stages, m.slot = 0, m.phase = 0, m.blocks = blocks;
    m.arrived = (u64 *)base + m.w * m.stages;
    const u32 part = 65535 / (u32)m.turn + 1; // 2^16 / turn
    const int n_told = m.turn * m.leaves * (product::CHUNKS - 1);
    u64 *told = (u64 *)base + m.warps * m.stages; // of each leaf of a turn
    uint8_t *rings = base + ((m.warps * m.stages + n_told) * 8 + 127) / 128 * 128;
    m.ring = rings + m.w * m.stages * product::CHUNK;
    float *const sums = (float *)(rings + m.warps * m.stages * product::CHUNK); // of a turn, and of the next
    const int room = m.turn * m.leaves * product::SUMS;
    u64 *const gathered = (u64 *)(sums + 2 * room);
    float *const gated = (float *)(gathered + 2); // [rows / SPREAD][64]

    if (m.lane == 0)
        for (int s = 0; s < m.stages; s++) arrival_open(m.arrived + s);
    for (int i = tid; i < n_told; i += blockDim.x) arrival_open(told + i, 32);
    if (SPREAD_GATE && tid == 0) arrival_open(gathered);
    arrival_fence();
    __syncthreads();
    if (SPREAD_GATE) cluster_arrive();
    typename product::cursor at;
    const bool jobs = JOBS && p.jobs, known = !SPREAD_GATE && p.known, holds = JOBS && p.holds;
    if (!holds) let_next_start();
    if (jobs) m.begin(at, block); // the same for any job, so that its code has come before the wait
    int row0 = tile * product::ROWS, rows = min(product::ROWS, a.rows - row0);
    const int32_t *index = 0;
    if (jobs) {
        if (!known) wait_for_previous(); // which experts there are
        if (holds) let_next_start();
        // past the cache, which may have those of a layer before; a job that is not there is not looked at
        const volatile ek_cuda_job *const one = (const volatile ek_cuda_job *)p.jobs + tile;
        const u32 n_jobs = *(const volatile u32 *)p.n_jobs;
        const ek_cuda_job job = {one->expert, one->first, one->n, 0};
        if (tile >= (int)n_jobs) return;
        const int64_t skip = job.expert * p.expert_bytes;
        m.codes += skip, m.codes2 += skip, m.scales += skip, m.scales2 += skip;
        row0 = job.first, rows = job.n, index = (const int32_t *)p.index;
    }
    if (!jobs) m.begin(at, block);
    m.next = at;
    for (int s = 0; s < m.stages; s++) m.fetch(s);
    if (!jobs || known) wait_for_previous(); // weights do not depend on it, rows do
    if (!jobs && holds) let_next_start();
#pragma unroll
    for (int o = 0; o < OCT; o++) {
        auto record = [&](int r) {
            r = row0 + min(r, rows - 1);
            return (const uint8_t *)a.x.q + (index ? index[r] : r) * a.x.ldq;
        };
        const int r = o * product::PER + m.g / (8 / product::PER);
        m.rec[o] = product::FEW ? record(r) + m.g % LIMBS * a.x.low + m.t * 16
                   : r < rows   ? record(r) + m.g % LIMBS * a.x.low
                                : 0;
#pragma unroll
        for (int i = 0; i < product::COLS; i++)
            m.act[o][i] = (const float4 *)(record(o * product::PER + m.t * product::COLS + i) + a.x.groups[LIMBS - 1]);
    }
    const float zero = (float)a.zero;
    for (int turn = block, count = 0; turn < m.turns; turn += ONCE ? 1 << 30 : blocks, count += !ONCE) {
        float *const mine = sums + (count & 1) * room;
        if (at.turn == turn) {
            bool more = true;
            typename product::operands in[OCT];
            if (EIGHT) m.load_half(in[0], at.c * UNITS);
            else if (OCT == 1) m.load(in[0], 0, at.c);
            while (more) {
                const int c = at.c, place = c / product::CHUNKS * m.turn + m.panel_of(at);
                more = m.step(at);
                float *const leaf = mine + place * product::SUMS;
                u64 *const parts = told + place * (product::CHUNKS - 1);
                if constexpr (EIGHT) m.relay_halves(in[0], c, zero, leaf, parts, count & 1, more ? at.c : -1);
                else m.relay(in, c, zero, leaf, parts, count & 1, more ? at.c : -1);
            }
            if (!ONCE) m.begin(at, turn + blocks);
        }
        __syncthreads();
        auto result = [&](int j, int o, int r) {
            const float *leaf = mine + j * product::SUMS + sum_at<product::PER>(o, r);
            return tree_sum([&](int l) { return leaf[l * m.turn * product::SUMS]; }, m.leaves);
        };
        if (SPREAD_GATE) {
            const int rank = (int)blockIdx.x % SPREAD, some = (rows - rank + SPREAD - 1) / SPREAD;
            cluster_wait();
            if (tid == 0 && some > 0) arrival_expect(gathered, (u32)some * 256);
            for (int i = thread_again(); i < 16 * rows; i += blockDim.x) {
                const int o = i % 16, r = i / 16;
                const float by = TURN == 1 ? ((const float *)p.u)[(row0 + r) * p.ldu + turn * 16 + o] : result(1, o, r);
                send(gated + r / SPREAD * 64 + rank * 16 + o, gelu_(result(0, o, r)) * by, gathered, r % SPREAD);
            }
            if (m.w >= some) return;
            sent_wait(gathered, 0);
            const float v[2] = {gated[m.w * 64 + m.lane], gated[m.w * 64 + m.lane + 32]};
            quantize_group(p.to, row0 + rank + m.w * SPREAD, turn / SPREAD, v);
            return;
        }
        if (!p.to.q) {
            for (int i = tid; i < m.turn * 16 * rows; i += blockDim.x) { // no division while others wait for it
                const int o = i % 16, r = (int)((u32)(i / 16) * part >> 16), j = i / 16 - r * m.turn,
                          out = (turn * m.turn + j) * 16 + o;
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
                v[i] = gelu_(gate) *
                       (p.codes2 ? result(j + m.half, o, r) : ((const float *)p.u)[(row0 + r) * p.ldu + turn * 64 + e]);
            }
            quantize_group(p.to, row0 + r, turn, v);
        }
    }
}

} // namespace ek
