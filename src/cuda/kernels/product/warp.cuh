// Products of Form Q for few rows by mma.sync (contract: ops/linear/linear.h): in groups of 64 with bf16 scales and
// biases, in groups of 32 and 16 with their file's own scales (format.cuh).
//
// A warp takes a chunk of a panel, 256 inputs or 8 groups. Its codes and scales arrive as two pieces in the warp's own
// ring, as many chunks ahead as the ring has, before the previous kernel has ended. A leaf is some chunks, each of
// another warp. A warp computes the values of its groups at once; only the chain over them waits for the warp of the
// previous chunk, whose sums are in shared memory. The leaves of a share's panels are there too; a thread adds them by
// T.
//
// Up to 4 rows of one limb in groups of 32 and 16 are every second column, so that a lane adds for one row instead of
// two. In groups of 64 this is done in chunks of 512 inputs (8 units), where a chunk's fixed cost is paid once for
// twice as many inputs; and so are 8 rows of one limb, whose values of half a chunk are held at once.
#pragma once

#include "cuda/kernels/product/warp_chunk.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek
{

constexpr int SPREAD = EK_CUDA_SPREAD;

template <int BITS, int UNITS = 4> using affine_64 = weight_format<BITS, 64, SCALES_BIASED + SCALES_BF16, UNITS>;

// For block number `block` of `blocks`, of tile or job number `tile`. JOBS: also of experts; ONCE: a block has one
// share. SHARE: only of a gate, with a second matrix, or (1) with u. SPREAD_GATE: a share is 16 elements; the blocks of
// a cluster have those of a group, and each rounds some of its rows.
template <class F, int LIMBS, int ROWS, bool JOBS, bool ONCE = false, int SHARE = 0, bool SPREAD_GATE = false>
__device__ __forceinline__ void warps(const ek_cuda_warp_args &p, int block, int blocks, int tile)
{
    typedef warp_product<F, LIMBS, ROWS, SHARE, ONCE> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x;
    const bool gated = SHARE ? SHARE > 1 : p.codes2 && (F::A == 64 || !p.y2); // by a second matrix
    product m = {p};
    m.lane = tid % 32, m.w = tid / 32, m.warps = blockDim.x / 32, m.g = m.lane / 4, m.t = m.lane % 4;
    m.units = (a.x.k + (F::A == 64 ? 0 : 63)) / 64, m.groups = F::A == 64 ? m.units : a.x.k / F::A;
    m.chunks = (m.units + F::UNITS - 1) / F::UNITS, m.leaves = (m.chunks + F::LEAF - 1) / F::LEAF;
    m.share = SHARE ? SHARE : a.share, m.half = gated ? m.share / 2 : m.share;
    m.panels = (a.n + 15) / 16 * (gated ? 2 : 1), m.shares = (m.panels + m.share - 1) / m.share;
    m.slots = a.slots, m.slot = 0, m.phase = 0, m.blocks = blocks;
    m.arrived = (u64 *)base + m.w * m.slots;
    const u32 part = 65535 / (u32)m.share + 1; // 2^16 / share
    const int n_summed = m.share * m.leaves * (F::LEAF - 1);
    u64 *summed = (u64 *)base + m.warps * m.slots; // per leaf of a share
    uint8_t *rings = base + ((m.warps * m.slots + n_summed) * 8 + 127) / 128 * 128;
    m.ring = rings + m.w * m.slots * F::CHUNK;
    float *const sums = (float *)(rings + m.warps * m.slots * F::CHUNK); // of a share, and of the next
    const int room = m.share * m.leaves * product::SUMS;
    u64 *const gathered = (u64 *)(sums + 2 * room);
    float *const gates = (float *)(gathered + 2); // [rows / SPREAD][64]

    if (m.lane == 0)
        for (int s = 0; s < m.slots; s++) arrival_open_copies(m.arrived + s);
    for (int i = tid; i < n_summed; i += blockDim.x) arrival_open(summed + i, 32);
    if (SPREAD_GATE && tid == 0) arrival_open(gathered);
    arrival_fence();
    __syncthreads();
    if (SPREAD_GATE) cluster_arrive();
    typename product::cursor at;
    const bool jobs = JOBS && p.jobs, known = !SPREAD_GATE && p.known, holds = JOBS && p.holds;
    if (!holds) let_next_start();
    const bool early = F::A == 64 && jobs; // the same for any job, so that its code has arrived before the wait
    if (early) m.begin(at, block);
    int row0 = tile * ROWS, rows = min(ROWS, a.rows - row0);
    const int32_t *index = 0;
    if (jobs) {
        if (!known) wait_for_previous(); // the experts of the step
        if (holds) let_next_start();
        // bypasses the cache, which may have those of an earlier layer; an absent job is not read
        const volatile ek_cuda_job *const one = (const volatile ek_cuda_job *)p.jobs + tile;
        const u32 n_jobs = *(const volatile u32 *)p.n_jobs;
        const ek_cuda_job job = {one->expert, one->first, one->n, 0};
        if (tile >= (int)n_jobs) return;
        m.skip = job.expert * p.expert_bytes;
        row0 = job.first, rows = job.n, index = (const int32_t *)p.index;
    }
    if (!early) m.begin(at, block);
    m.copy_from(at);
    for (int s = 0; s < m.slots; s++) m.fetch(s);
    if (!jobs || known) wait_for_previous(); // weights do not depend on it, rows do
    if (!jobs && holds) let_next_start();
#pragma unroll
    for (int o = 0; o < product::OCT; o++) {
        auto record = [&](int r) {
            r = row0 + min(r, rows - 1);
            return (typename product::codes_at)a.x.q + (index ? index[r] : r) * a.x.ldq;
        };
        const int r = o * product::PER + m.g / (8 / product::PER);
        const bool low = product::PER == 4 && m.g % 2; // the column of a row's second limb, empty with one
        m.rec[o] = product::ANY || (r < rows && (LIMBS == 2 || !low))
                       ? record(r) + (LIMBS == 2 && low ? a.x.low : 0) + (product::LARGE ? m.t * 16 : 0)
                       : 0;
#pragma unroll
        for (int i = 0; i < product::COLS; i++)
            m.act[o][i] = (typename product::groups_at)(record(o * product::PER + m.t * product::COLS + i) +
                                                        a.x.groups[LIMBS - 1]);
    }
    const float zero = (float)a.zero;
    for (int share = block, count = 0; share < m.shares; share += ONCE ? 1 << 30 : blocks, count += !ONCE) {
        float *const mine = sums + (count & 1) * room;
        if (at.share == share) {
            bool more = true;
            typename product::operands in[product::AT_ONCE];
            if (product::HALVES) m.load_half(in[0], at.c * F::UNITS);
            else if (product::AHEAD) m.load(in[0], 0, at.c);
            while (more) {
                const int c = at.c, place = c / F::LEAF * m.share + m.panel_of(at);
                more = m.step(at);
                float *const leaf = mine + place * product::SUMS;
                u64 *const parts = summed + place * (F::LEAF - 1);
                if constexpr (product::HALVES) m.relay_halves(in[0], c, zero, leaf, parts, count & 1, more ? at.c : -1);
                else m.relay(in, c, zero, leaf, parts, count & 1, more ? at.c : -1);
            }
            if (!ONCE) m.begin(at, share + blocks);
        }
        __syncthreads();
        auto result = [&](int j, int o, int r) { // output o of 16, row r
            const float *leaf = mine + j * product::SUMS + (r / product::PER * 16 + o) * product::PER +
                                r % product::PER;
            return tree_sum([&](int l) { return leaf[l * m.share * product::SUMS]; }, m.leaves);
        };
        if (SPREAD_GATE) {
            const int rank = (int)blockIdx.x % SPREAD, some = (rows - rank + SPREAD - 1) / SPREAD;
            cluster_wait();
            if (tid == 0 && some > 0) arrival_expect(gathered, (u32)some * 256);
            for (int i = thread_again(); i < 16 * rows; i += blockDim.x) {
                const int o = i % 16, r = i / 16;
                const float by = SHARE == 1 ? ((const float *)p.u)[(row0 + r) * p.ldu + share * 16 + o]
                                            : result(1, o, r);
                send(gates + r / SPREAD * 64 + rank * 16 + o, gelu_(result(0, o, r)) * by, gathered, r % SPREAD);
            }
            if (m.w >= some) return;
            sent_wait(gathered, 0);
            const float v[2] = {gates[m.w * 64 + m.lane], gates[m.w * 64 + m.lane + 32]};
            quantize_group(p.to, row0 + rank + m.w * SPREAD, share / SPREAD, v);
            return;
        }
        if (!SHARE && !p.to.q) {
            float *const y = (float *)(F::A != 64 && blockIdx.z ? p.y2 : a.y);
            for (int i = tid; i < m.share * 16 * rows; i += blockDim.x) { // no division while others wait for it
                const int o = i % 16, r = F::A == 64 ? (int)((u32)(i / 16) * part >> 16) : i / 16 / m.share,
                          j = i / 16 - r * m.share, out = (share * m.share + j) * 16 + o;
                if (out < a.n) y[(row0 + r) * a.ldy + out] = result(j, o, r);
            }
            continue;
        }
        const int group = F::A == 64 ? 64 : p.to.a_group,
                  groups = 64 / group; // of 64 outputs
        for (int task = m.w; task < rows * groups; task += m.warps) {
            const int r = task / groups, which = task % groups;
            float v[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (m.lane + i * 32 >= group) continue;
                const int e = which * group + m.lane + i * 32, j = e / 16, o = e % 16;
                const float gate = result(j, o, r);
                v[i] = gelu_(gate) *
                       (gated ? result(j + m.half, o, r) : ((const float *)p.u)[(row0 + r) * p.ldu + share * 64 + e]);
            }
            quantize_group(p.to, row0 + r, share * groups + which, v);
        }
    }
}

// q with Q limbs, k and v with two.
template <class F, int Q, int Q_ROWS, int ROWS>
__device__ __forceinline__ void warp_heads(const ek_cuda_warp_heads_args &h)
{
    ek_cuda_warp_args p = {};
    int block = blockIdx.x - h.q_blocks;
    if (block < 0) {
        p.a = h.q;
        warps<F, Q, Q_ROWS, false>(p, blockIdx.x, h.q_blocks, blockIdx.y);
        return;
    }
    p.a = h.k;
    if (block >= h.k_blocks) block -= h.k_blocks, p.a.codes = h.v_codes, p.a.scales = h.v_scales, p.a.y = h.v;
    warps<F, 2, ROWS, false>(p, block, h.k_blocks, blockIdx.y);
}

// A product without jobs or a gate.
template <class F, int LIMBS, int ROWS, bool ONCE = false>
__device__ __forceinline__ void warps_of(const ek_cuda_linear_args &a)
{
    ek_cuda_warp_args p = {};
    p.a = a;
    warps<F, LIMBS, ROWS, false, ONCE>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

// Kernels of weights with their file's own scales: q<bits>, scales h f16, b bf16, f f32, m with a bias, the group;
// limbs; rows; and whether also of experts, for which registers suffice; otherwise for 4 rows only
// (cuda/product/warp_own.c).
#define EK_WARP_OWN_KERNEL(K, NAME, BITS, A, SCALES, ONE, TWO) \
    K(NAME, BITS, A, SCALES, 1, 4, true)                       \
    K(NAME, BITS, A, SCALES, 2, 4, true)                       \
    K(NAME, BITS, A, SCALES, 1, 8, ONE) K(NAME, BITS, A, SCALES, 2, 8, TWO)
// Without the last one where a warp copies by itself, because registers are lacking (warp_chunk.cuh).
#if EK_HAS_BULK
#define EK_WARP_OWN_FOUR EK_WARP_OWN_KERNEL
#else
#define EK_WARP_OWN_FOUR(K, NAME, BITS, A, SCALES, ONE, TWO) \
    K(NAME, BITS, A, SCALES, 1, 4, true)                     \
    K(NAME, BITS, A, SCALES, 2, 4, true)                     \
    K(NAME, BITS, A, SCALES, 1, 8, ONE)
#endif
#define EK_WARP_OWN_KERNELS(K)                                                      \
    EK_WARP_OWN_KERNEL(K, q4h_32, 4, 32, SCALES_F16, true, true)                    \
    EK_WARP_OWN_KERNEL(K, q8h_32, 8, 32, SCALES_F16, true, true)                    \
    EK_WARP_OWN_KERNEL(K, q8b_32, 8, 32, SCALES_BF16, true, false)                  \
    EK_WARP_OWN_KERNEL(K, q8f_32, 8, 32, SCALES_F32, true, false)                   \
    EK_WARP_OWN_KERNEL(K, q8f_16, 8, 16, SCALES_F32, true, false)                   \
    EK_WARP_OWN_KERNEL(K, q4hm_32, 4, 32, SCALES_BIASED + SCALES_F16, true, false)  \
    EK_WARP_OWN_KERNEL(K, q8hm_32, 8, 32, SCALES_BIASED + SCALES_F16, true, false)  \
    EK_WARP_OWN_KERNEL(K, q4bm_32, 4, 32, SCALES_BIASED + SCALES_BF16, true, false) \
    EK_WARP_OWN_FOUR(K, q8bm_32, 8, 32, SCALES_BIASED + SCALES_BF16, true, false)   \
    EK_WARP_OWN_KERNEL(K, q4fm_32, 4, 32, SCALES_BIASED + SCALES_F32, false, false) \
    EK_WARP_OWN_FOUR(K, q8fm_32, 8, 32, SCALES_BIASED + SCALES_F32, false, false)

} // namespace ek
