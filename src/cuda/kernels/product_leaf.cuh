// Products of Form Q for few rows, with bf16 scales and biases and groups of 64 (contract: ops/linear.h).
//
// A warp takes a chunk of 256 inputs of a panel: its codes and scales come as two pieces into a ring of the warp's own,
// as many chunks ahead as the ring has, before the kernel in front has ended.
// A leaf is four chunks, each of another warp: it computes the values of its groups at once, and only the chain over
// them waits for the warp of the chunk before, whose sums lie in shared memory. There too lie the leaves of a turn's
// panels; a thread adds them by T.
// Up to 4 rows also by chunks of 512 inputs (UNITS 8): rows of one limb are every second column, so that a lane adds for
// one row, and what a chunk costs beside its groups is paid once for twice as many inputs.
#pragma once

#include "cuda/kernels/product.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek {

constexpr int LEAF_UNITS = 16, SCALES = 64; // bytes of scales of a unit

template <int BITS, int LIMBS, bool FEW> struct leaf_group : group_product<BITS, LIMBS, 64> {};

// Of one limb, where a lane's row is column 2 t.
template <int BITS> struct leaf_group<BITS, 1, true> {
    float i[2][1]; // (float)I

    __device__ __forceinline__ void run(const u32 (&a)[8], const uint4 &b, int)
    {
        constexpr float UNIT = BITS == 4 ? 0.0625f : 1;
        int d[4];
        mma_from(d, MAGIC, a, b.x, b.y), mma(d, a + 4, b.z, b.w);
#pragma unroll
        for (int h = 0; h < 2; h++) i[h][0] = fma_(__int_as_float(d[h * 2]), UNIT, -MAGIC_F * UNIT); // exact
    }
};

// UNITS: of a chunk, 4 or 8. TURN: panels of every turn, of which warps are a multiple; 0: any. ONCE: a block has one turn.
template <int BITS, int LIMBS, int OCT, int UNITS, int TURN, bool ONCE> struct leaf_product {
    static constexpr bool FEW = UNITS == 8;
    static constexpr int AHEAD = TURN || ONCE ? 3 : 2; // FEW: units whose codes of rows are read a chunk ahead: more would not fit the registers
    static constexpr int CODE = BITS * 128, CHUNK = UNITS * (CODE + SCALES), CHUNKS = LEAF_UNITS / UNITS; // of a leaf
    static constexpr int PER = FEW ? 4 : 8 / LIMBS, ROWS = OCT * PER;
    static constexpr int COLS = PER / 4, SUMS = 16 * ROWS; // rows of a lane; sums of a leaf

    // the matrices
    u64 codes, scales, codes2, scales2;
    int units, chunks, leaves, panels, turn, turns, half; // half: panels of a turn that the first matrix has
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
    cursor next; // to copy

    __device__ __forceinline__ void begin(cursor &at, int turn_number) const
    {
        for (;; turn_number += blocks) {
            at.turn = turn_number;
            if (turn_number >= turns) return;
            at.panels = TURN ? TURN : min(turn, panels - turn_number * turn);
            at.c = w / at.panels, at.j = w - at.c * at.panels;
            if (at.c < chunks) break;
            if (ONCE) {
                at.turn = turns;
                return;
            }
        }
        at.step_c = warps / at.panels, at.step_j = warps - at.step_c * at.panels;
    }

    __device__ __forceinline__ int panel_of(const cursor &at) const
    {
        if constexpr (TURN > 0) return w % TURN;
        return at.j;
    }

    // False: the turn has no more for this warp.
    __device__ __forceinline__ bool step(cursor &at) const
    {
        if constexpr (TURN > 0) {
            at.c += warps / TURN;
        } else {
            at.c += at.step_c, at.j += at.step_j;
            if (at.j >= at.panels) at.j -= at.panels, at.c++;
        }
        return at.c < chunks;
    }

    // Copies the next chunk of this warp into a slot.
    __device__ __forceinline__ void fetch(int to)
    {
        if (next.turn >= turns) return;
        const int c = next.c;
        if (lane == 0) {
            const int j = panel_of(next);
            const bool second = j >= half;
            const int some = min(UNITS, units - c * UNITS);
            const int64_t unit = (int64_t)(next.turn * half + j - (second ? half : 0)) * units + c * UNITS;
            uint8_t *at = ring + to * CHUNK;
            arrival_expect(arrived + to, some * (CODE + SCALES));
            copy_piece_once(at, (const uint8_t *)(second ? codes2 : codes) + unit * CODE, some * CODE, arrived + to);
            copy_piece_once(at + UNITS * CODE, (const uint8_t *)(second ? scales2 : scales) + unit * SCALES, some * SCALES, arrived + to);
        }
        if (step(next)) return;
        if (ONCE) next.turn = turns;
        else begin(next, next.turn + blocks);
    }

    __device__ __forceinline__ void next_slot()
    {
        if (++slot == stages) slot = 0, phase ^= 1;
    }

    // What a lane reads of 8 columns for a chunk.
    struct operands {
        uint4 b[UNITS];
        float4 x[COLS][UNITS / 2]; // {sx, X} of two groups
    };

    const uint8_t *rec[OCT]; // of the lane's column; no such row: 0, or FEW, where rows have every second one, any other
    const float4 *act[OCT][COLS];

    __device__ __forceinline__ void load_groups(operands &in, int o, int c) const
    {
#pragma unroll
        for (int i = 0; i < COLS; i++)
#pragma unroll
            for (int p = 0; p < UNITS / 2; p++) in.x[i][p] = act[o][i][c * (UNITS / 2) + p];
    }

    // FEW: codes of units FROM to TO of a chunk; what lies in place of those behind the last is multiplied too, and not added.
    template <int FROM, int TO> __device__ __forceinline__ void load_some(operands &in, int c) const
    {
        const uint8_t *from = rec[0] + c * (UNITS * 64);
        const int last = units - 1 - c * UNITS;
        if (last >= TO - 1) {
#pragma unroll
            for (int u = FROM; u < TO; u++) in.b[u] = *(const uint4 *)(from + u * 64);
        } else {
#pragma unroll
            for (int u = FROM; u < TO; u++) in.b[u] = *(const uint4 *)(from + min(u, last) * 64);
        }
    }

    // A chunk ahead; FEW: of AHEAD units the codes, and the rest by load_rest.
    __device__ __forceinline__ void load(operands &in, int o, int c) const
    {
        if constexpr (FEW) {
            load_some<0, AHEAD>(in, c);
        } else {
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                in.b[u] = make_uint4(0, 0, 0, 0);
                if (rec[o] && c * UNITS + u < units) in.b[u] = *(const uint4 *)(rec[o] + (c * UNITS + u) * 64 + t * 16);
            }
            load_groups(in, o, c);
        }
    }

    __device__ __forceinline__ void load_rest(operands &in, int c) const
    {
        load_some<AHEAD, UNITS>(in, c);
        load_groups(in, 0, c);
    }

    static __device__ __forceinline__ float scale_of(const operands &in, int u, int i)
    {
        return u % 2 ? in.x[i][u / 2].z : in.x[i][u / 2].x;
    }

    static __device__ __forceinline__ float sum_of(const operands &in, int u, int i)
    {
        return u % 2 ? in.x[i][u / 2].w : in.x[i][u / 2].y;
    }

    // s and b' = fma(zero, s, b) of outputs g and g + 8
    __device__ __forceinline__ void unit_scales(const uint8_t *at, float zero, float (&s)[2], float (&b)[2]) const
    {
        const uint2 v = *(const uint2 *)(at + (FEW ? lane / 4 : g) * 8);
        s[0] = bits(v.x << 16), b[0] = fma_(zero, s[0], bits(v.x & 0xffff0000u));
        s[1] = bits(v.y << 16), b[1] = fma_(zero, s[1], bits(v.y & 0xffff0000u));
    }

    // The chain over chunk c of a leaf, its values first. `sums` has the chain so far and takes the result; told:
    // that a part of the leaf but the last is there, once in each turn.
    __device__ __forceinline__ void relay(operands (&in)[OCT], int c, float zero, float *sums, u64 *told, u32 told_phase, int next_c)
    {
        const uint8_t *at = ring + slot * CHUNK;
        float value[UNITS][OCT][2][COLS], sx[UNITS][OCT][COLS];
        const int some = min(UNITS, units - c * UNITS), part = c % CHUNKS;
        if (OCT > 1) // one column of 8 has room to be read ahead
#pragma unroll
            for (int o = 0; o < OCT; o++) load(in[o], o, c);
        if constexpr (FEW) load_rest(in[0], c);
        arrival_wait(arrived + slot, phase);
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            u32 code[8];
            float s[2], b[2];
            read_codes<BITS>(at + u * CODE + lane * 16, code);
            unit_scales(at + UNITS * CODE + u * SCALES, zero, s, b);
#pragma unroll
            for (int o = 0; o < OCT; o++) {
                leaf_group<BITS, LIMBS, FEW> r;
                r.run(code, in[o].b[u], 0);
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    sx[u][o][i] = scale_of(in[o], u, i);
#pragma unroll
                    for (int h = 0; h < 2; h++) value[u][o][h][i] = fma_(b[h], sum_of(in[o], u, i), __fmul_rn(s[h], r.i[h][i]));
                }
            }
        }
        __syncwarp(); // all have read the slot
        if (OCT == 1 && next_c >= 0) load(in[0], 0, next_c);
        float *mine = sums + (FEW ? lane : g * PER + t * COLS);
        if (part) arrival_wait(told + part - 1, told_phase);
#pragma unroll
        for (int o = 0; o < OCT; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    float *place = mine + (o * 16 + h * 8) * PER + i, sum = part ? *place : 0;
#pragma unroll
                    for (int u = 0; u < UNITS; u++)
                        if (u < some) sum = fma_(value[u][o][h][i], sx[u][o][i], sum);
                    *place = sum;
                }
        if (part != CHUNKS - 1 && c + 1 < chunks) arrival_tell(told + part);
        fetch(slot);
        next_slot();
    }
};

// Where output o of 16 and row r lie among a leaf's sums.
template <int PER> __device__ __forceinline__ int sum_at(int o, int r)
{
    return (r / PER * 16 + o) * PER + r % PER;
}

constexpr int SPREAD = EK_CUDA_SPREAD;

// By block number `block` of `blocks`, of tile or job number `tile`. SPREAD_GATE: of a gate, of which a turn is 16 elements; the
// blocks of a cluster have those of a group; of its rows each rounds some. JOBS: of experts too; by chunks of 512 a block then has
// one turn.
template <int BITS, int LIMBS, int OCT, bool SPREAD_GATE = false, int UNITS = 4, int TURN = 0, bool JOBS = UNITS == 4 && !SPREAD_GATE>
__device__ __forceinline__ void leaves(const ek_cuda_leaf_args &p, int block, int blocks, int tile)
{
    constexpr bool ONCE = JOBS && UNITS == 8;
    typedef leaf_product<BITS, LIMBS, OCT, UNITS, TURN, ONCE> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x;
    product m;
    m.lane = tid % 32, m.w = tid / 32, m.warps = blockDim.x / 32, m.g = m.lane / 4, m.t = m.lane % 4;
    m.codes = a.codes, m.codes2 = p.codes2, m.scales = a.scales, m.scales2 = p.scales2;
    m.units = a.x.k / 64, m.chunks = (m.units + UNITS - 1) / UNITS, m.leaves = (m.chunks + product::CHUNKS - 1) / product::CHUNKS;
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
        m.rec[o] = product::FEW ? record(r) + m.g % LIMBS * a.x.low + m.t * 16 : r < rows ? record(r) + m.g % LIMBS * a.x.low : 0;
#pragma unroll
        for (int i = 0; i < product::COLS; i++) m.act[o][i] = (const float4 *)(record(o * product::PER + m.t * product::COLS + i) + a.x.groups[LIMBS - 1]);
    }
    const float zero = (float)a.zero;
    for (int turn = block, count = 0; turn < m.turns; turn += ONCE ? 1 << 30 : blocks, count += !ONCE) {
        float *const mine = sums + (count & 1) * room;
        if (at.turn == turn) {
            bool more = true;
            typename product::operands in[OCT];
            if (OCT == 1) m.load(in[0], 0, at.c);
            while (more) {
                const int c = at.c, place = c / product::CHUNKS * m.turn + m.panel_of(at);
                more = m.step(at);
                m.relay(in, c, zero, mine + place * product::SUMS, told + place * (product::CHUNKS - 1), count & 1, more ? at.c : -1);
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
                send(gated + r / SPREAD * 64 + rank * 16 + o, gelu_(result(0, o, r)) * result(1, o, r), gathered, r % SPREAD);
            }
            if (m.w >= some) return;
            sent_wait(gathered, 0);
            const float v[2] = {gated[m.w * 64 + m.lane], gated[m.w * 64 + m.lane + 32]};
            quantize_group(p.to, row0 + rank + m.w * SPREAD, turn / SPREAD, v);
            return;
        }
        if (!p.to.q) {
            for (int i = tid; i < m.turn * 16 * rows; i += blockDim.x) { // no division while others wait for it
                const int o = i % 16, r = (int)((u32)(i / 16) * part >> 16), j = i / 16 - r * m.turn, out = (turn * m.turn + j) * 16 + o;
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
