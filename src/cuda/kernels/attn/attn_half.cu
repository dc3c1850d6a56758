// Attention of few queries over keys and values in f16 (contract: ops/attn/attn.h), for heads of 64, 128, 256 or 512
// dims: the leaves of ek_attn_segment_N of attn.cu, in little code and with few waits, which determine the time of a
// short step.
//
// A block is a segment of 256 keys for a tile of queries. Its pages arrive in pieces of 8 KB, 64 dims of a page's keys
// or as many values, by bulk copies into a ring. A step takes one piece of each visible page, and as many steps are in
// flight as the ring has room for. If every view has one row in the step (a.single), pieces arrive while the previous
// kernels still run, because only the row's own key and value, its last, are new in the pages; they are put into the
// ring later.
//
// Scores: a thread has a key and all queries. With one query whose pieces all fit the ring, its key is in registers
// before the previous kernels have ended. Values: a warp has 64 dims, two per lane, and all queries; the last warp adds
// the weights.
#include "cuda/kernels/attn/attn_half_end.cuh"
#include "cuda/kernels/attn/attn_heads.cuh"

using namespace ek;

// The segment's page: the head's part of it, 0 if there is none.
__device__ __forceinline__ u64 own_page(const ek_cuda_attn_args &a, const ek_cuda_attn_start &item, int number)
{
    if (number < 0) return 0;
    return a.kv.base + (u64)a.kv.stride * (u32)number + item.t.kv_head * (a.kv.k_bytes + a.kv.v_bytes);
}

// Finds what the block's queries see. False: no query sees a key of the segment. For one row, `item` has all data.
template <int N, int DIM> __device__ __forceinline__ bool open(half_leaf<N, DIM> &h)
{
    const ek_cuda_attn_args &a = h.a;
    const ek_cuda_attn_start &item = h.item;
    half_shared<N, DIM> &m = h.m;
    const int tid = threadIdx.x, seg = item.seg;
    const bool one_row = N == 1 || h.t.head + h.t.n_q <= a.ratio;
    if (tid < N) {
        const int n = min(tid, h.t.n_q - 1), row = one_row ? h.t.row : row_of(a, h.t, n);
        const ek_cuda_attn_row seen = one_row ? ek_cuda_attn_row{item.lo, item.end}
                                              : ((const ek_cuda_attn_row *)a.rows)[row];
        m.row[tid] = row, m.column[tid] = (one_row ? h.t.kv_head * a.ratio + h.t.head + n : head_of(a, h.t, n)) * DIM;
        m.from[tid] = tid < h.t.n_q ? clamp_key(seen.lo - seg * SEGMENT) : 0,
        m.to[tid] = tid < h.t.n_q ? clamp_key(seen.end - seg * SEGMENT) : 0;
        m.leaves[tid] = (seen.end - 1) / SEGMENT - h.t.seg0 + 1;
    }
    if (tid >= 32 && tid < 32 + MAX_SLOTS) {
        arrival_open(m.arrived + tid - 32, by_block() ? h.THREADS : 1);
        arrival_fence();
    }
    if (tid >= 64 && tid < 68) {
        const int i = tid - 64;
        m.page[i] = own_page(a, item,
                             i & 2   ? i & 1 ? item.page[3] : item.page[2]
                               : i & 1 ? item.page[1]
                                     : item.page[0]);
        if (i == 0) m.holes = 0;
    }
    if (DIM > 256 && a.head.norm)
#pragma unroll 2
        for (int d = tid; d < DIM; d += h.THREADS)
            m.weight[0][d] = ((const float *)a.head.norm)[d], m.weight[1][d] = a.k ? ((const float *)a.k_norm)[d] : 0;
    h.fresh = a.single && (item.end - 1) / SEGMENT == seg ? (item.end - 1) % SEGMENT
                                                          : -1; // the token of a.single's row
    __syncthreads();
    if (one_row) {
        h.all_from = clamp_key(item.lo - seg * SEGMENT), h.all_to = clamp_key(item.end - seg * SEGMENT);
        h.mine = tid >= h.all_from && tid < h.all_to ? (1u << h.t.n_q) - 1 : 0;
    } else {
        h.all_from = SEGMENT, h.all_to = 0;
        h.mine = 0;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int from = m.from[n], to = m.to[n];
            if (from >= to) continue;
            h.all_from = min(h.all_from, from), h.all_to = max(h.all_to, to);
            h.mine |= tid >= from && tid < to ? 1u << n : 0;
        }
        if (tid < SEGMENT) m.seen[tid] = h.mine != 0;
        if (!h.mine && tid >= h.all_from && tid < h.all_to) m.holes = 1;
    }
    if (h.all_from >= h.all_to) return false;
    h.first = h.all_from / PAGE, h.some = (h.all_to - 1) / PAGE + 1 - h.first;
    h.ahead = min(a.slots / h.some, 2 * h.STEPS);
    if (!a.single) fetch_ahead(a.kv, a, {item.tile, seg}, h.t);
    return true;
}

template <int N, int DIM>
__device__ __forceinline__ void segment(const ek_cuda_attn_args &a, const ek_cuda_attn_start &item)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ half_shared<N, DIM> m;
    const int tid = threadIdx.x;
    float *const q = (float *)(base + a.slots * PIECE);
    const ek_cuda_attn_tile &t = item.t;
    half_leaf<N, DIM> h = {a, item, t, m, base, q, q};
    h.alone = t.n_seg == 1, h.there = false;
    if (!open(h)) { // a row of a tile has keys in each of the tile's segments
        wait_for_previous();
        return;
    }
    const bool new_token = a.k && h.fresh >= 0,
               reads = !a.k && h.fresh >= 0; // reads: another kernel has stored the new token
    const int warp = tid / 32;
    if (a.single) h.issue_first();
    half_head<N, DIM> head(h);
    const int head_warp = new_token ? half_head<N, DIM>::FIRST_NEW : 0; // the head with the longest code
    float s[N] = {}, o[N][2] = {};
    u32 key[N == 1 ? half_leaf<N, DIM>::PAIRS : 1];
    const bool kept = N == 1 && a.single && h.ahead == 2 * h.STEPS && (DIM <= 256 || h.some <= 2); // keys in registers
#pragma unroll 1
    for (int pass = N <= 2 && a.single && h.alone && a.slots == EK_CUDA_ATTN_FEW_SLOTS ? 0 : 1; pass < 2; pass++) {
        const bool real = N > 2 || pass; // otherwise each warp runs a different part of it
        if (real) {
            if (a.single && h.ahead == 2 * h.STEPS) h.arrive();
            if constexpr (N == 1)
                if (kept) h.keep_key(key);
            wait_for_previous();
            if (!a.single) h.issue_first();
            if (reads && warp >= head.FIRST_NEW) { // the other warps have heads
                const unsigned short *at = (const unsigned short *)m.page[h.fresh / PAGE];
#pragma unroll 2
                for (int d = tid - head.FIRST_NEW * 32; d < DIM; d += h.THREADS - head.FIRST_NEW * 32)
                    m.fresh[0][d] = at[d * PAGE + h.fresh % PAGE],
                    m.fresh[1][d] = at[a.kv.k_bytes / 2 + h.fresh % PAGE * DIM + d];
            }
        }
        ring_cursor at;
        if (real || warp == head_warp) do
                head.finish(new_token, real);
            while (real && head.next(new_token));
        if (real) __syncthreads();
        if (real || warp == 4) {
            if constexpr (N == 1) {
                if (kept) h.score_kept(s, key, real), at.place = real ? h.STEPS : 0;
                else h.scores(s, real, at);
            } else h.scores(s, real, at);
        }
        if (real || warp == 5) h.weights(s, real);
        if (real ? warp == h.LAST : warp == 6) h.sums(real);
        if (real && warp == h.LAST && new_token && t.head == 0) h.store_fresh();
        if (real || warp == 7) h.values(o, real, at);
        if (real) __syncthreads();
        if (h.alone && (real || warp == 3)) finish_alone(h, o, real);
    }
    if (h.alone) return;
    keep(h, o);
    join(h);
}

template <int N, int DIM> __device__ __forceinline__ void item(const ek_cuda_attn_args &a)
{
    let_next_start();
    const int4 *const from = (const int4 *)a.items + blockIdx.x * (sizeof(ek_cuda_attn_start) / sizeof(int4));
    const int4 x = from[0], y = from[1], z = from[2], p = from[3];
    const ek_cuda_attn_start item = {
        {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}, z.x, z.y, z.z, z.w, {p.x, p.y, p.z, p.w}};
    if (item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    segment<N, DIM>(a, item);
}

// The number of blocks per multiprocessor: as many as have room for their rings (cuda/attn_work.c).
template <int N, int DIM> constexpr int AT_ONCE = N == 1 ? 1 : N == 4 && DIM <= 256 ? 3 : 2;

#define HALF(N, DIM)                                                                    \
    extern "C" __global__ void __launch_bounds__(HALF_THREADS<N, DIM>, AT_ONCE<N, DIM>) \
        ek_attn_half_##N##_##DIM(const __grid_constant__ ek_cuda_attn_args a)           \
    {                                                                                   \
        item<N, DIM>(a);                                                                \
    }
#define HALVES(N) HALF(N, 64) HALF(N, 128) HALF(N, 256) HALF(N, 512)
HALVES(1)
HALVES(2)
HALVES(4)
HALVES(8)
