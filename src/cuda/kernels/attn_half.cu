// Attention of few queries over keys and values in f16 (contract: ops/attn.h), for heads of 64, 128, 256 or 512 dims: what
// ek_attn_leaf_N of attn.cu computes, in little code and with few waits, because a short step is as long as those take.
//
// A block is a segment of 256 keys for a tile of queries. Its pages come in pieces of 8 KB, 64 dims of a page's keys or as
// many values, by bulk copies into a ring: a step takes one piece of each page that is seen, and as many steps are on their
// way as the ring has room for. Where every view has one row in the step (a.single), they come while the kernels in front
// still run: of what lies in pages only the row's own key and value are new, its last; those are kept apart.
//
// Scores: a warp has a page, two keys per lane, and half of the queries; the last warp has the new key, a query per lane.
// Values: a warp has 64 dims, two per lane, and all queries; the last warp adds the weights.
#include "cuda/kernels/attn.cuh"

using namespace ek;

constexpr int PIECE = 8192, SLOTS = 12; // pieces on their way
constexpr int THREADS = 288, LAST = THREADS / 32 - 1, MAX_DIM = 512;

template <int N> struct half_leaf {
    static constexpr int PART = N / 2; // queries of a warp
    const ek_cuda_attn_args &a;
    const ek_cuda_attn_item &item;
    const ek_cuda_attn_tile &t;
    uint8_t *ring;
    float *q, *e;                  // [2][dim][PART], [256][N], in one place
    unsigned short *new_k, *new_v; // [dim]
    float *sum;                    // [N] l of a tile's only leaf, which is joined at once
    u64 *arrived;                  // per step on its way
    const u64 *page;               // the head's part of each of the segment's pages
    int dim, shift, steps;         // 2^shift steps of keys, as many of values
    int first, some;               // pages that are seen
    int all_from, all_to, fresh;   // keys that are seen; the new one, or -1
    const int *row, *column;       // [N] of the queries, and their first element there
    int ahead;                     // steps on their way
    bool alone;                    // the tile has no other leaf

    // Pieces of a step into its place of `ahead`, by one thread.
    __device__ __forceinline__ void issue(int step, int place) const
    {
        uint8_t *to = ring + place * some * PIECE;
        arrival_expect(arrived + place, some * PIECE);
#pragma unroll 1
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

    // All threads have read the step's pieces, if others shall come in their place.
    __device__ __forceinline__ void release(int step, cursor &at) const
    {
        if (step + ahead < 2 * steps) {
            __syncthreads();
            if (threadIdx.x == 0) issue(step + ahead, at.place);
        }
        if (++at.place == ahead) at.place = 0, at.phase ^= 1;
    }

    __device__ __forceinline__ const float *queries(int part, int step) const
    {
        return q + (part * dim + step * 64) * PART;
    }

    // Two keys of a lane: for each a chain over 256 dims, two for more. The last warp: the new key, for a query.
    __device__ __forceinline__ void scores(float (&s)[PART][2], cursor &at) const
    {
        constexpr int PER = 4 / PART; // dims of a load
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = warp % 4 - first;
        float before[PART][2];
#pragma unroll
        for (int n = 0; n < PART; n++) s[n][0] = s[n][1] = before[n][0] = before[n][1] = 0;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            if (step == 4)
#pragma unroll
                for (int n = 0; n < PART; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) before[n][i] = s[n][i], s[n][i] = 0;
            if (warp < LAST) {
                await(at);
                if (mine >= 0 && mine < some) {
                    const u32 *k = (const u32 *)(ring + (at.place * some + mine) * PIECE) + lane;
                    const float *x = queries(warp / 4, step);
#pragma unroll 32 / PER
                    for (int d = 0; d < 64; d += PER) {
                        const float4 v4 = *(const float4 *)(x + d * PART);
                        const float v[4] = {v4.x, v4.y, v4.z, v4.w};
#pragma unroll
                        for (int p = 0; p < PER; p++) {
                            const u32 two = k[(d + p) * (PAGE / 2)];
                            const float key[2] = {half_f32(two & 0xffff), half_f32(two >> 16)};
#pragma unroll
                            for (int n = 0; n < PART; n++)
#pragma unroll
                                for (int i = 0; i < 2; i++) s[n][i] = fma_(v[p * PART + n], key[i], s[n][i]);
                        }
                    }
                }
            } else if (fresh >= 0 && lane < N) {
                const float *x = queries(lane / PART, step) + lane % PART;
#pragma unroll 16
                for (int d = 0; d < 64; d++) s[0][0] = fma_(x[d * PART], half_f32(new_k[step * 64 + d]), s[0][0]);
            }
            release(step, at);
        }
        if (steps > 4)
#pragma unroll
            for (int n = 0; n < PART; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) s[n][i] = before[n][i] + s[n][i];
    }

    static __device__ __forceinline__ void add(float (&o)[N][2], const float *weight, u32 two)
    {
        float x[N];
        load_queries<N>(x, weight);
        const float v[2] = {half_f32(two & 0xffff), half_f32(two >> 16)};
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 2; k++) o[n][k] = fma_(x[n], v[k], o[n][k]);
    }

    // Two dims of a lane over the keys that are seen, ascending. A key that one query sees and another does not has
    // weight 0 there, which adds nothing; what nobody sees may be anything.
    __device__ __forceinline__ void values(float (&o)[N][2], const uint8_t *seen, bool holes, cursor &at) const
    {
        const int per = PIECE / 2 / dim, d = threadIdx.x * 2, to = fresh < 0 ? all_to : fresh;
        const bool mine = d < dim && threadIdx.x < LAST * 32;
#pragma unroll
        for (int n = 0; n < N; n++) o[n][0] = o[n][1] = 0;
#pragma unroll 1
        for (int step = steps; step < 2 * steps; step++) {
            if (mine) await(at);
#pragma unroll 1
            for (int r = 0; r < some && mine; r++) {
                const int i = (step - steps) * some + r, j0 = (first + (i >> shift)) * PAGE + (i & (steps - 1)) * per;
                const int from = max(j0, all_from), end = min(j0 + per, to);
                const uint8_t *row = ring + (at.place * some + r) * PIECE + d * 2 + (from - j0) * dim * 2;
                const float *x = e + from * N;
                if (holes) {
#pragma unroll 1
                    for (int j = from; j < end; j++, row += dim * 2, x += N)
                        if (seen[j]) add(o, x, *(const u32 *)row);
                } else {
#pragma unroll 8
                    for (int j = from; j < end; j++, row += dim * 2, x += N) add(o, x, *(const u32 *)row);
                }
            }
            release(step, at);
        }
        if (mine && fresh >= 0) add(o, e + fresh * N, *(const u32 *)(new_v + d));
    }

    // Weights of all keys into e; l and m of the leaf are the last warp's, while others add values.
    __device__ __forceinline__ void weights(const float (&s)[PART][2], const int *from, const int *to, int (&most)[5][N]) const
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp / 4, j0 = warp % 4 * PAGE + lane * 2;
        float p[PART][2];
        int exponent[PART][2];
        if (warp < LAST) {
#pragma unroll
            for (int n = 0; n < PART; n++) {
                const int of = part * PART + n;
                int m = INT32_MIN;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    p[n][i] = exp_split(s[n][i], &exponent[n][i]);
                    const int j = j0 + i;
                    if (j >= from[of] && j < to[of] && j != fresh) m = max(m, exponent[n][i]);
                }
                m = __reduce_max_sync(~0u, m);
                if (lane == 0) most[warp % 4][of] = m;
            }
        } else if (lane < N) {
            p[0][0] = exp_split(s[0][0], &exponent[0][0]);
            most[4][lane] = fresh >= from[lane] && fresh < to[lane] ? exponent[0][0] : INT32_MIN;
        }
        __syncthreads();
        auto largest = [&](int n) { return max(max(max(most[0][n], most[1][n]), max(most[2][n], most[3][n])), most[4][n]); };
        if (warp < LAST) {
#pragma unroll
            for (int n = 0; n < PART; n++) {
                const int of = part * PART + n, m = largest(of);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int j = j0 + i;
                    if (j != fresh) e[j * N + of] = j >= from[of] && j < to[of] ? p[n][i] * factor(exponent[n][i] - m) : 0.0f;
                }
            }
        } else if (fresh >= 0 && lane < N) {
            e[fresh * N + lane] = most[4][lane] != INT32_MIN ? p[0][0] * factor(exponent[0][0] - largest(lane)) : 0.0f;
        }
        __syncthreads();
        if (warp < LAST) return;
        const int l = lane % 8; // lanes l and l + 8 of a query, added 8, 4, 2, 1 apart; keys of unseen pages add 0
#pragma unroll
        for (int n0 = 0; n0 < N; n0 += 4) {
            const int n = min(n0 + lane / 8, N - 1);
            float s0 = 0, s1 = 0;
#pragma unroll 4
            for (int j = first * PAGE + l; j < (first + some) * PAGE; j += 16) s0 = s0 + e[j * N + n], s1 = s1 + e[(j + 8) * N + n];
            float total = s0 + s1;
            for (int apart = 4; apart; apart /= 2) total = total + __shfl_down_sync(~0u, total, apart, 8);
            if (l || n0 + lane / 8 >= N || from[n] >= to[n]) continue;
            sum[n] = total;
            if (alone) continue;
            const int64_t leaf = (t.leaf0 + item.seg - t.seg0) * N + n;
            ((float *)a.leaf_l)[leaf] = total;
            ((int *)a.leaf_m)[leaf] = largest(n);
        }
    }

    // The tile's only leaf: o / l, and the rows of o quantised; a warp has a group of 64.
    __device__ __forceinline__ void finish_alone(const float (&o)[N][2]) const
    {
        const int d = threadIdx.x * 2;
        if (d >= dim || threadIdx.x >= LAST * 32) return; // whole warps
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n >= t.n_q) break;
            const int at = column[n] + d;
            const float v[2] = {finish({o[n][0], sum[n], 0}), finish({o[n][1], sum[n], 0})};
            *(float2 *)((float *)a.o + row[n] * a.ldo + at) = make_float2(v[0], v[1]);
            if (a.to.q) quantize_pairs(a.to, row[n], at / 64, v);
        }
    }

    __device__ __forceinline__ void keep(const float (&o)[N][2]) const
    {
        const int d = threadIdx.x * 2;
        if (d >= dim || threadIdx.x >= LAST * 32) return;
        float *out = (float *)a.leaf_o + (int64_t)(t.leaf0 + item.seg - t.seg0) * N * dim + d;
#pragma unroll
        for (int n = 0; n < N; n++)
            if (n < t.n_q) *(float2 *)(out + n * dim) = make_float2(o[n][0], o[n][1]);
    }
};

// Heads of a tile: its queries, and where this block has the new token (`new_token`), its key and value; each by half a
// warp, or by a warp for more than 256 dims. A lane has elements 16 apart of a block of 256, which is its chain in the sum
// of squares. norm: [3][MAX_DIM], weights for queries and the key; the second and third become key and value.
template <int N> __device__ __forceinline__ void finish_heads(const half_leaf<N> &h, float *norm, bool new_token)
{
    constexpr int PART = N / 2;
    const ek_cuda_attn_args &a = h.a;
    const int dim = h.dim, half = dim / 2, count = new_token ? N + 2 : N, lane = threadIdx.x % 16;
    const bool wide = dim > 256;
    const int lanes = wide ? 32 : 16, first = wide ? threadIdx.x % 32 / 16 * 256 + lane : lane;
    for (int u0 = 0; u0 < count; u0 += THREADS / lanes) {
        const int u = u0 + (int)threadIdx.x / lanes, n = u < N ? u : 0, row = h.row[n];
        const bool some = u < (u < N ? h.t.n_q : count), turns = a.head.cos && u <= N;
        const float *from = u < N ? (const float *)a.q + row * a.ldq + h.column[n] : (const float *)(u == N ? a.k : a.v) + row * a.ldk + h.t.kv_head * dim;
        const float *cos = (const float *)a.head.cos + row * a.head.ld_table, *sin = (const float *)a.head.sin + row * a.head.ld_table;
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = some && (i < 4 || (i < 8 ? dim > 64 : dim > 128)) ? from[first + i * 16] : 0;
        if (some && turns && lane % 8 * 32 < a.head.rotated) touch_line((lane / 8 ? sin : cos) + lane % 8 * 32); // all at once
        float *const to = u < N ? h.q + u / PART * dim * PART + u % PART : norm + MAX_DIM * (u - N + 1);
        const int step = u < N ? PART : 1;
        if (a.head.norm) {
            float ss = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) ss = fma_(x[i], x[i], ss);
            ss = __shfl_sync(~0u, add_lanes(ss), 0, 16);
            const float upper = __shfl_down_sync(~0u, ss, 16); // lower lanes: the sum of the second block
            if (wide) ss = __shfl_sync(~0u, ss + upper, 0);
            const float f = norm_factor(ss, dim, a.head.eps);
            const float *const w = norm + (u < N ? 0 : MAX_DIM) + first;
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (u <= N && (i < 4 || (i < 8 ? dim > 64 : dim > 128))) x[i] = x[i] * f * w[i * 16];
                else x[i] = x[i] * f;
        }
        if (turns && half >= 128) { // pairs are 8 elements apart in a lane, or lie in the lane 16 apart
            const float sign = wide && threadIdx.x & 16 ? 1 : -1;
            const int back = wide ? 0 : 128;
            float other[16];
#pragma unroll
            for (int i = 0; i < 16; i++) other[i] = wide ? __shfl_xor_sync(~0u, x[i], 16) : x[i ^ 8];
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int j = lane + i * 16 - (i < 8 ? 0 : back);
                if (j >= a.head.rotated) continue;
                const float by = i >= 8 && !wide ? other[i] : sign * other[i];
                x[i] = fma_(by, sin[j], x[i] * cos[j]);
            }
        }
        if (u < count)
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (i < 4 || (i < 8 ? dim > 64 : dim > 128)) to[(first + i * 16) * step] = x[i];
        __syncwarp();
        if (some && turns && half < 128)
#pragma unroll 1
            for (int j = lane; j < a.head.rotated; j += 16) {
                const float x0 = to[j * step], x1 = to[(j + half) * step];
                to[j * step] = fma_(-x1, sin[j], x0 * cos[j]), to[(j + half) * step] = fma_(x0, sin[j], x1 * cos[j]);
            }
        if (!some || u < N) continue;
        unsigned short *const copy = u == N ? h.new_k : h.new_v, *const place = (unsigned short *)h.page[h.fresh / PAGE];
        unsigned short *const out = u == N ? place + h.fresh % PAGE : place + a.kv.k_bytes / 2 + h.fresh % PAGE * dim;
        const int apart = u == N ? PAGE : 1;
#pragma unroll 4
        for (int j = threadIdx.x % lanes; j < dim; j += lanes) {
            const unsigned short y = to_half(to[j]);
            copy[j] = y;
            if (h.t.head == 0) out[j * apart] = y;
        }
    }
}

// False: nobody sees a key of the segment.
template <int N> __device__ __forceinline__ bool segment(const ek_cuda_attn_args &a, const ek_cuda_attn_item &item, const ek_cuda_attn_tile &t)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ int from[N], to[N], rows[N], columns[N], holes, most[5][N];
    __shared__ u64 arrived[SLOTS], page[4];
    __shared__ uint8_t seen[SEGMENT];
    __shared__ float sum[N], norm[3 * MAX_DIM];
    __shared__ __align__(16) unsigned short new_k[MAX_DIM], new_v[MAX_DIM];
    const int tid = threadIdx.x, dim = a.kv.head_dim, shift = dim > 256 ? 3 : dim > 128 ? 2 : dim > 64 ? 1 : 0;
    float *const q = (float *)(base + SLOTS * PIECE);
    if (tid < N) {
        from[tid] = to[tid] = 0;
        const int n = min(tid, t.n_q - 1);
        rows[tid] = row_of(a, t, n), columns[tid] = head_of(a, t, n) * dim;
        if (tid < t.n_q) {
            const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[rows[tid]];
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
    half_leaf<N> h = {a, item, t, base, q, q, new_k, new_v, sum, arrived, page, dim, shift, 1 << shift};
    const int last = ((const ek_cuda_attn_row *)a.rows)[t.row].end - 1; // of a.single: the row's own token
    h.fresh = a.single && last / SEGMENT == item.seg ? last % SEGMENT : -1;
    h.row = rows, h.column = columns;
    h.alone = a.ended && t.n_seg == 1;
    __syncthreads();
    int all_from = SEGMENT, all_to = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (from[n] >= to[n]) continue;
        all_from = min(all_from, from[n]), all_to = max(all_to, to[n]);
    }
    if (all_from >= all_to) {
        wait_for_previous();
        return false;
    }
    h.all_from = all_from, h.all_to = all_to;
    h.first = all_from / PAGE, h.some = (all_to - 1) / PAGE + 1 - h.first;
    h.ahead = min(SLOTS / h.some, 2 * h.steps);
    if (a.single && tid < h.ahead) h.issue(tid, tid);
    if (2 * h.steps * h.some > SLOTS) fetch_ahead(a.kv, a, item, t);
    const bool new_token = a.k && h.fresh >= 0;
    for (int d = tid; d < dim && a.head.norm; d += THREADS) {
        norm[d] = ((const float *)a.head.norm)[d];
        if (new_token) norm[MAX_DIM + d] = ((const float *)a.k_norm)[d];
    }
    bool mine = false;
    if (tid < SEGMENT) {
#pragma unroll
        for (int n = 0; n < N; n++) mine = mine || (tid >= from[n] && tid < to[n]);
        seen[tid] = mine;
        if (!mine && tid >= all_from && tid < all_to) holes = 1;
    }
    __syncthreads();
    wait_for_previous();
    if (!a.single && tid < h.ahead) h.issue(tid, tid);
    unsigned short stored[2][2];
    const bool reads = !a.k && h.fresh >= 0; // another kernel has stored the new token
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int d = tid + i * THREADS;
        if (!reads || d >= dim) continue;
        const unsigned short *at = (const unsigned short *)page[h.fresh / PAGE];
        stored[i][0] = at[d * PAGE + h.fresh % PAGE], stored[i][1] = at[a.kv.k_bytes / 2 + h.fresh % PAGE * dim + d];
    }
    finish_heads(h, norm, new_token);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int d = tid + i * THREADS;
        if (reads && d < dim) new_k[d] = stored[i][0], new_v[d] = stored[i][1];
    }
    __syncthreads();
    float s[N / 2][2], o[N][2];
    typename half_leaf<N>::cursor at;
    h.scores(s, at);
    h.weights(s, from, to, most);
    h.values(o, seen, holes, at);
    if (!h.alone) {
        h.keep(o);
        return true;
    }
    __syncthreads();
    h.finish_alone(o);
    return true;
}

template <int N> __device__ __forceinline__ void item(const ek_cuda_attn_args &a)
{
    let_next_start();
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    if (item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[item.tile];
    segment<N>(a, item, t);
    if (a.ended && t.n_seg > 1) join_few<N>(a, t, item.tile);
}

#define HALF(N)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) ek_attn_half_##N(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                                    \
        item<N>(a);                                                                                                      \
    }
HALF(2)
HALF(4)
HALF(8)
