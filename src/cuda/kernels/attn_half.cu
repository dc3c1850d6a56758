// Attention of few queries over keys and values in f16 (contract: ops/attn.h), for heads of 64, 128, 256 or 512 dims: what
// ek_attn_leaf_N of attn.cu computes, in little code, because a kernel of a short step is as long as it takes to fetch it.
//
// A block of 256 threads is a segment of 256 keys. Its pages come in pieces of 8 KB, 64 dims of a page's keys or as many
// values, by bulk copies into a ring: a step takes one piece of each page that is seen, and as many steps are on their way
// as the ring has room for. Scores are a key per thread,
// values one or two dims per thread.
#include "cuda/kernels/attn.cuh"

using namespace ek;

constexpr int PIECE = 8192, SLOTS = 12; // pieces on their way

template <int N> struct half_leaf {
    const ek_cuda_attn_args &a;
    const ek_cuda_attn_item &item;
    const ek_cuda_attn_tile &t;
    uint8_t *ring;
    float *q, *e;           // [dim][N], [256][N], in one place
    u64 *arrived;           // per step on its way
    const u64 *page;        // the head's part of each of the segment's pages
    int dim, shift, steps;  // 2^shift steps of keys, as many of values
    int first, some;        // pages that are seen
    int all_from, all_to;   // keys that are seen
    int ahead;              // steps on their way
    float *own;             // l of a tile's only leaf, which is joined at once; 0: leaves go to memory

    // Pieces of a step into its place of `ahead`, by one thread.
    __device__ __forceinline__ void issue(int step, int place) const
    {
        uint8_t *to = ring + place * some * PIECE;
        arrival_expect(arrived + place, some * PIECE);
        for (int r = 0; r < some; r++) {
            const int i = (step - steps) * some + r;
            const u64 own_page = page[first + (step < steps ? r : i >> shift)], at = own_page ? own_page : page[first]; // absent: nobody sees it
            const u64 from = at + (step < steps ? step * PIECE : a.kv.k_bytes + (i & (steps - 1)) * PIECE);
            copy_piece(to + r * PIECE, (const uint8_t *)from, PIECE, arrived + place);
        }
    }

    // Where a step is: its place, and the phase in which all of its pieces are there.
    struct cursor {
        int place = 0;
        u32 phase = 0;
    };

    __device__ __forceinline__ void await(const cursor &at) const
    {
        arrival_wait(arrived + at.place, at.phase);
    }

    // All threads have read the step's pieces: others may come in their place.
    __device__ __forceinline__ void release(int step, cursor &at) const
    {
        __syncthreads();
        if (threadIdx.x == 0 && step + ahead < 2 * steps) issue(step + ahead, at.place);
        if (++at.place == ahead) at.place = 0, at.phase ^= 1;
    }

    // The thread's key: one chain over 256 dims, two for more.
    __device__ __forceinline__ void scores(float (&s)[N], cursor &at) const
    {
        const int mine = threadIdx.x / PAGE - first;
        float before[N];
#pragma unroll
        for (int n = 0; n < N; n++) s[n] = before[n] = 0;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            await(at);
            if (step == 4)
#pragma unroll
                for (int n = 0; n < N; n++) before[n] = s[n], s[n] = 0;
            if (mine >= 0 && mine < some) {
                const unsigned short *k = (const unsigned short *)(ring + (at.place * some + mine) * PIECE) + threadIdx.x % PAGE;
                const float *x = q + step * 64 * N;
#pragma unroll 64 / N // reads of shared memory in a row: few warps hide their latency from each other
                for (int d = 0; d < 64; d++) {
                    const float key = half_f32(k[d * PAGE]);
                    float v[N];
                    load_queries<N>(v, x + d * N);
#pragma unroll
                    for (int n = 0; n < N; n++) s[n] = fma_(v[n], key, s[n]);
                }
            }
            release(step, at);
        }
        if (steps > 4)
#pragma unroll
            for (int n = 0; n < N; n++) s[n] = before[n] + s[n];
    }

    template <int D> __device__ __forceinline__ void add(float (&o)[N][D], const uint8_t *row, int j) const
    {
        const uint8_t *value = row + j * dim * 2;
        const u32 two = D == 2 ? *(const u32 *)value : *(const unsigned short *)value;
        float x[N], v[D];
        load_queries<N>(x, e + j * N);
        v[0] = half_f32(two & 0xffff);
        if (D == 2) v[D - 1] = half_f32(two >> 16);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < D; k++) o[n][k] = fma_(x[n], v[k], o[n][k]);
    }

    // D dims of a thread over the keys that are seen, ascending. A key that one query sees and another does not has
    // weight 0 there, which adds nothing; what nobody sees may be anything.
    template <int D> __device__ __forceinline__ void values(const uint8_t *seen, bool holes, cursor &at) const
    {
        const int per = PIECE / 2 / dim, d = threadIdx.x * D;
        float o[N][D];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < D; i++) o[n][i] = 0;
#pragma unroll 1
        for (int step = steps; step < 2 * steps; step++) {
            await(at);
#pragma unroll 1
            for (int r = 0; r < some && d < dim; r++) {
                const int i = (step - steps) * some + r, j0 = (first + (i >> shift)) * PAGE + (i & (steps - 1)) * per;
                const int from = max(j0, all_from), end = min(j0 + per, all_to);
                const uint8_t *row = ring + (at.place * some + r) * PIECE + d * 2 - j0 * dim * 2;
                if (holes) {
#pragma unroll 1
                    for (int j = from; j < end; j++)
                        if (seen[j]) add(o, row, j);
                } else {
#pragma unroll 8
                    for (int j = from; j < end; j++) add(o, row, j);
                }
            }
            release(step, at);
        }
        if (d >= dim) return;
        float *out = (own ? (float *)ring : (float *)a.leaf_o + (int64_t)(t.leaf0 + item.seg - t.seg0) * N * dim) + d;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < D; k++)
                if (n < t.n_q) out[n * dim + k] = o[n][k];
    }
};

// Weights of the thread's key into e; the largest exponents, and the leaf's l and m.
template <int N> __device__ __forceinline__ void weights(const half_leaf<N> &h, const float (&s)[N], const int *from, const int *to)
{
    __shared__ int most[8][N];
    const int tid = threadIdx.x;
    float p[N];
    int exponent[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
        p[n] = exp_split(s[n], &exponent[n]);
        const int m = __reduce_max_sync(~0u, tid >= from[n] && tid < to[n] ? exponent[n] : INT32_MIN);
        if (tid % 32 == 0) most[tid / 32][n] = m;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        int m = most[0][n];
#pragma unroll
        for (int w = 1; w < 8; w++) m = max(m, most[w][n]);
        h.e[tid * N + n] = tid >= from[n] && tid < to[n] ? p[n] * factor(exponent[n] - m) : 0.0f;
    }
    __syncthreads();
    if (tid >= 8 * N) return;
    const int n = tid / 8, l = tid % 8; // lanes l and l + 8 of query n, added 8, 4, 2, 1 apart
    float s0 = 0, s1 = 0;
#pragma unroll 4
    for (int j = l; j < SEGMENT; j += 16) s0 = s0 + h.e[j * N + n], s1 = s1 + h.e[(j + 8) * N + n];
    float sum = s0 + s1;
    const u32 active = N >= 4 ? ~0u : 0xffffu; // the threads that came here
    for (int apart = 4; apart; apart /= 2) sum = sum + __shfl_down_sync(active, sum, apart, 8);
    if (l || from[n] >= to[n]) return;
    if (h.own) {
        h.own[n] = sum;
        return;
    }
    int m = most[0][n];
    for (int w = 1; w < 8; w++) m = max(m, most[w][n]);
    const int64_t leaf = (h.t.leaf0 + h.item.seg - h.t.seg0) * N + n;
    ((float *)h.a.leaf_l)[leaf] = sum;
    ((int *)h.a.leaf_m)[leaf] = m;
}

template <int N> __device__ __forceinline__ void segment(const ek_cuda_attn_args &a, const ek_cuda_attn_item &item, const ek_cuda_attn_tile &t, float *own)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ int from[N], to[N], holes;
    __shared__ u64 arrived[SLOTS], page[4];
    __shared__ uint8_t seen[SEGMENT];
    const int tid = threadIdx.x, dim = a.kv.head_dim, shift = dim > 256 ? 3 : dim > 128 ? 2 : dim > 64 ? 1 : 0;
    float *const q = (float *)(base + SLOTS * PIECE);
    if (tid < N) {
        from[tid] = to[tid] = 0;
        if (tid < t.n_q) {
            const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[row_of(a, t, tid)];
            from[tid] = clamp_key(row.lo - item.seg * SEGMENT), to[tid] = clamp_key(row.end - item.seg * SEGMENT);
        }
    }
    if (tid >= 32 && tid < 36) {
        const u64 at = page_block(a.kv, t.view, item.seg * 4 + tid - 32);
        page[tid - 32] = at ? at + t.kv_head * (a.kv.k_bytes + a.kv.v_bytes) : 0;
    }
    if (tid == 64) {
        for (int i = 0; i < SLOTS; i++) arrival_open(arrived + i);
        arrival_fence();
        holes = 0;
    }
    __syncthreads();
    int all_from = SEGMENT, all_to = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (from[n] >= to[n]) continue;
        all_from = min(all_from, from[n]), all_to = max(all_to, to[n]);
    }
    if (all_from >= all_to) return;
    half_leaf<N> h = {a, item, t, base, q, q, arrived, page, dim, shift, 1 << shift};
    h.all_from = all_from, h.all_to = all_to;
    h.first = all_from / PAGE, h.some = (all_to - 1) / PAGE + 1 - h.first;
    h.ahead = min(SLOTS / h.some, 2 * h.steps), h.own = own;
    if (tid < h.ahead) h.issue(tid, tid);
    {
        float x[N][2];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float *from = (const float *)a.q + row_of(a, t, min(n, t.n_q - 1)) * a.ldq + (int64_t)head_of(a, t, min(n, t.n_q - 1)) * dim;
#pragma unroll
            for (int i = 0; i < 2; i++) x[n][i] = n < t.n_q && tid + i * 256 < dim ? from[tid + i * 256] : 0;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (tid + i * 256 < dim) q[(tid + i * 256) * N + n] = x[n][i];
    }
    bool mine = false;
#pragma unroll
    for (int n = 0; n < N; n++) mine = mine || (tid >= from[n] && tid < to[n]);
    seen[tid] = mine;
    if (!mine && tid >= all_from && tid < all_to) holes = 1;
    __syncthreads();
    if (a.head.norm) finish_queries<N>(a, t, q);
    float s[N];
    typename half_leaf<N>::cursor at;
    h.scores(s, at);
    weights<N>(h, s, from, to);
    if (dim > 256) h.template values<2>(seen, holes, at);
    else h.template values<1>(seen, holes, at);
}

template <int N> __device__ __forceinline__ void item(const ek_cuda_attn_args &a)
{
    __shared__ float sums[N];
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[max(item.tile, 0)];
    float *const own = a.ended && t.n_seg == 1 ? sums : 0;
    let_next_start();
    fetch_ahead(a.kv, a, item, t);
    wait_for_previous();
    if (item.tile < 0) return; // a graph's launch has room for more items than there are
    segment<N>(a, item, t, own);
    if (a.ended) join_few<N>(a, t, item.tile, own);
}

#define HALF(N)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) ek_attn_half_##N(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                                \
        item<N>(a);                                                                                                  \
    }
HALF(2)
HALF(4)
HALF(8)
