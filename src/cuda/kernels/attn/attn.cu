// Attention of few queries over paged keys and values (contract: ops/attn/attn.h): ek_attn_segment_N computes one
// segment of 256 keys for a tile of N queries of one KV head, ek_attn_join adds the leaves of a query in T.
//
// A block of threads is one segment. First a warp takes a page of 64 keys (two per lane) and one chain of 256
// dims: per dim it reads 64 adjacent elements and uses them for all queries. Then all threads turn scores
// into weights, and a warp takes a slice of 64 dims of the values (two per lane) over the segment's keys. Every
// load of keys and values is a row of 64 elements; the next 8 to 32 rows are under way while a chunk is added.
// Blocks do not communicate. Tiles, chunks and prefetching change no bit.
#include "cuda/kernels/attn/attn.cuh"

using namespace ek;

constexpr int CHAIN = 256;

template <int N> struct smem {
    float *q;       // [dim][N]
    float *a;       // [256][N] scores, then e
    float *b;       // [256][N] scores of the second chain, then the operands of the fma
    uint8_t *scale; // V's scales, then biases: f16 [256][groups]
    uint8_t *seen;  // [256] a bit per query
    int *max_n;     // [8 warps][N] largest exponents
    __device__ __forceinline__ smem(uint8_t *base, int dim)
    {
        q = (float *)base;
        a = q + dim * N;
        b = a + SEGMENT * N;
        max_n = (int *)(b + SEGMENT * N);
        seen = (uint8_t *)(max_n + 8 * N);
        scale = seen + SEGMENT;
    }
};

template <int F, int N, bool EDGE>
__device__ __forceinline__ void add_keys(float (&s)[N][2], const chunk<F> &c, const float *q, int left)
{
#pragma unroll
    for (int i = 0; i < chunk<F>::K_ROWS; i++) {
        if (EDGE && i >= left) break;
        float x[N];
        load_queries<N>(x, q + i * N);
        float2 k = c.key(i);
#pragma unroll
        for (int n = 0; n < N; n++) {
            s[n][0] = fma_(x[n], k.x, s[n][0]);
            s[n][1] = fma_(x[n], k.y, s[n][1]);
        }
    }
}

// Scores of the warp's page over dims [d0, end): one chain, ascending.
template <int F, int N>
__device__ __forceinline__ void scores(const uint8_t *k, const kv_codec &c, int d0, int end, int lane, const float *q,
                                       float *out)
{
    constexpr int ROWS = chunk<F>::K_ROWS;
    float s[N][2] = {};
    chunk<F> now, next;
    int d = d0, whole = d0 + (end - d0) / ROWS * ROWS;
    if (d < whole) now.template load_k<false>(k, c, d, lane);
#pragma unroll 1
    for (; d < whole; d += ROWS) {
        if (d + ROWS < whole) next.template load_k<false>(k, c, d + ROWS, lane);
        add_keys<F, N, false>(s, now, q + d * N, ROWS);
        now = next;
    }
    if (d < end) {
        now.template load_k<true>(k, c, d, lane);
        add_keys<F, N, true>(s, now, q + d * N, end - d);
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int n = 0; n < N; n++) out[(lane * 2 + j) * N + n] = s[n][j];
}

template <int F, int N> struct value_sum {
    float o[N][2];
    const float *w;
    const unsigned short *scale, *bias;
    const uint8_t *seen;
    int groups;
    lane_dims<F> dims;

    // slots [j, j + ROWS) of the segment; MASKED: not every query sees all of them
    template <bool MASKED> __device__ __forceinline__ void add(const chunk<F> &c, int j)
    {
#pragma unroll
        for (int i = 0; i < chunk<F>::ROWS; i++) {
            u32 mask = MASKED ? seen[j + i] : 0;
            if (MASKED && mask == 0) continue;
            float x[N], s = 0, b = 0;
            load_queries<N>(x, w + (j + i) * N);
            if (grouped(F)) s = half_f32(scale[(j + i) * groups]);
            if (affine(F)) b = half_f32(bias[(j + i) * groups]);
            float2 v = c.value(i, s, b, dims);
#pragma unroll
            for (int n = 0; n < N; n++) {
                if (MASKED && !(mask >> n & 1)) continue;
                o[n][0] = fma_(x[n], v.x, o[n][0]);
                o[n][1] = fma_(x[n], v.y, o[n][1]);
            }
        }
    }
};

// The warp's slice of dims over keys [from, to) of the segment, ascending.
template <int F, int N>
__device__ __forceinline__ void values(const smem<N> &sm, const uint8_t *const (&v)[4], const kv_codec &c, int slice,
                                       int lane, int from, int to, int common_from, int common_to, float *out, int n_q)
{
    constexpr int ROWS = chunk<F>::ROWS;
    const int dim = c.dim;
    value_sum<F, N> sum = {};
    sum.dims = lane_dims_of<F>(c, slice, lane);
    const int d0 = sum.dims.d0, d1 = sum.dims.d1;
    sum.groups = c.groups();
    sum.w = F == I16 ? sm.b : sm.a;
    sum.seen = sm.seen;
    sum.scale = (const unsigned short *)sm.scale + sum.dims.group;
    sum.bias = sum.scale + SEGMENT * sum.groups;
    auto page = [&](int j) { return j & 128 ? j & 64 ? v[3] : v[2] : j & 64 ? v[1] : v[0]; };
    chunk<F> now, next;
    int j = from / ROWS * ROWS;
    now.load_v(page(j), sum.dims, j % PAGE);
#pragma unroll 1
    for (; j < to; j += ROWS) {
        if (j + ROWS < to) next.load_v(page(j + ROWS), sum.dims, (j + ROWS) % PAGE);
        if (j >= common_from && j + ROWS <= common_to) sum.template add<false>(now, j);
        else sum.template add<true>(now, j);
        now = next;
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (n >= n_q) break;
        if (F != Q4) {
            if (d0 < dim) *(float2 *)(out + (int64_t)n * dim + d0) = make_float2(sum.o[n][0], sum.o[n][1]);
        } else {
            if (d0 < dim) out[(int64_t)n * dim + d0] = sum.o[n][0];
            if (d1 < dim) out[(int64_t)n * dim + d1] = sum.o[n][1];
        }
    }
}

// The leaf of a segment for a tile.
template <int N>
__device__ __forceinline__ void leaf(const ek_cuda_attn_args &a, const ek_cuda_attn_item &item,
                                     const ek_cuda_attn_tile &t)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ int from[N], to[N];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, threads = blockDim.x, dim = a.kv.head_dim;
    smem<N> sm(base, dim);
    const ek_cuda_kv kv = kv_at(a, item.seg * 4);
    const kv_codec kc = keys_of(kv), vc = values_of(kv);
    if (tid < N) {
        from[tid] = to[tid] = 0;
        if (tid < t.n_q) {
            ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[row_of(a, t, tid)];
            from[tid] = clamp_key(row.lo - item.seg * SEGMENT), to[tid] = clamp_key(row.end - item.seg * SEGMENT);
        }
    }
    for (int i = tid; i < dim * N; i += threads) {
        int n = i / dim, d = i % dim;
        float x = 0;
        if (n < t.n_q) x = ((const float *)a.q)[row_of(a, t, n) * a.ldq + (int64_t)head_of(a, t, n) * dim + d];
        sm.q[d * N + n] = x;
    }
    __syncthreads();

    int all_from = SEGMENT, all_to = 0, common_from = 0, common_to = SEGMENT;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (n < t.n_q) common_from = max(common_from, from[n]), common_to = min(common_to, to[n]);
        if (from[n] >= to[n]) continue;
        all_from = min(all_from, from[n]), all_to = max(all_to, to[n]);
    }
    if (all_from >= all_to) return;
    const int64_t mine = t.kv_head * (kv.k_bytes + kv.v_bytes);
    const uint8_t *v[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        u64 page = all_from < (p + 1) * PAGE && all_to > p * PAGE ? page_block(kv, t.view, item.seg * 4 + p) : 0;
        if (!page && all_from < p * PAGE && all_to > p * PAGE)
            page = page_block(kv, t.view, item.seg * 4 + all_from / PAGE); // absent: no query sees it
        v[p] = page ? (const uint8_t *)page + mine + kv.k_bytes : 0;
    }

    if (gridDim.x <= FEW_BLOCKS) { // in few blocks a chain of reads would wait for memory in every chunk, so all lines
                                   // are requested at once
        const int p = warp % 4, d0 = warp / 4 * CHAIN, end = min(dim, d0 + CHAIN);
        const uint8_t *at = p & 2 ? p & 1 ? v[3] : v[2] : p & 1 ? v[1] : v[0], *k = at - kv.k_bytes;
        const int64_t from = (int64_t)k_codes(kv.k_format, kc) * d0 / dim,
                      to_byte = (int64_t)k_codes(kv.k_format, kc) * end / dim;
        if (at)
            for (int64_t i = from + lane * 128; i < to_byte; i += 32 * 128) touch_line(k + i);
        const int64_t row = v_codes(kv.v_format, vc) / PAGE;
        const int slice = (int)(row * warp * 64 / dim);
        if (warp * 64 < dim)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (v[i]) touch_line(v[i] + lane * row + slice), touch_line(v[i] + (lane + 32) * row + slice);
    }

    { // scores: warps 0..3 the first chain, 4..7 the second
        int p = warp % 4, c = warp / 4, d0 = c * CHAIN, end = min(dim, d0 + CHAIN);
        const uint8_t *at = p & 2 ? p & 1 ? v[3] : v[2] : p & 1 ? v[1] : v[0], *k = at - kv.k_bytes;
        if (at && d0 < end) {
            float *out = (c ? sm.b : sm.a) + p * PAGE * N;
            switch (kv.k_format) {
            case F32: scores<F32, N>(k, kc, d0, end, lane, sm.q, out); break;
            case F16: scores<F16, N>(k, kc, d0, end, lane, sm.q, out); break;
            case BF16: scores<BF16, N>(k, kc, d0, end, lane, sm.q, out); break;
            case I16: scores<I16, N>(k, kc, d0, end, lane, sm.q, out); break;
            case Q8: scores<Q8, N>(k, kc, d0, end, lane, sm.q, out); break;
            case Q4: scores<Q4, N>(k, kc, d0, end, lane, sm.q, out); break;
            case PLANES: scores<PLANES, N>(k, kc, d0, end, lane, sm.q, out); break;
            }
        }
    }
    __syncthreads();

    { // weights: a thread has one key or two; exponents of a pair are kept until the segment's largest is known
        const int keys = SEGMENT / threads; // 1 or 2
        float p[2][N];
        int n_of[2][N], max_n[N];
        u32 mask[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < N; n++) max_n[n] = INT32_MIN;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int j = tid + i * threads, page = j / PAGE;
            if (i >= keys) break;
#pragma unroll
            for (int n = 0; n < N; n++) mask[i] |= (j >= from[n] && j < to[n] ? 1u : 0u) << n;
            sm.seen[j] = (uint8_t)mask[i];
            float key_scale = 1;
            const uint8_t *at = page & 2 ? page & 1 ? v[3] : v[2] : page & 1 ? v[1] : v[0];
            if (kv.k_format == I16 && mask[i])
                key_scale = ((const float *)(at - kv.k_bytes + k_codes(I16, kc)))[j % PAGE];
#pragma unroll
            for (int n = 0; n < N; n++) {
                float s = sm.a[j * N + n];
                if (dim > CHAIN) s = s + sm.b[j * N + n];
                if (kv.k_format == I16) s = s * key_scale;
                p[i][n] = exp_split(s, &n_of[i][n]);
                if (mask[i] >> n & 1) max_n[n] = max(max_n[n], n_of[i][n]);
            }
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            int m = __reduce_max_sync(~0u, max_n[n]);
            if (lane == 0) sm.max_n[warp * N + n] = m;
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; n++) {
            max_n[n] = sm.max_n[n];
            for (int w = 1; w < threads / 32; w++) max_n[n] = max(max_n[n], sm.max_n[w * N + n]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int j = tid + i * threads, page = j / PAGE;
            if (i >= keys) break;
            float value_scale = 0;
            const uint8_t *at = page & 2 ? page & 1 ? v[3] : v[2] : page & 1 ? v[1] : v[0];
            if (kv.v_format == I16 && mask[i]) value_scale = ((const float *)(at + k_codes(I16, kc)))[j % PAGE];
#pragma unroll
            for (int n = 0; n < N; n++) {
                float e = mask[i] >> n & 1 ? p[i][n] * factor(n_of[i][n] - max_n[n]) : 0.0f;
                sm.a[j * N + n] = e;
                if (kv.v_format == I16) sm.b[j * N + n] = e * value_scale;
            }
        }
        if (grouped(kv.v_format)) { // scales of the visible pages, and biases after them
            int groups = vc.groups(), words = PAGE * groups / 2;
            int64_t codes = v_codes(kv.v_format, vc);
            for (int part = 0; part < (affine(kv.v_format) ? 2 : 1); part++)
#pragma unroll
                for (int pg = 0; pg < 4; pg++) {
                    if (!v[pg]) continue;
                    const u32 *src = (const u32 *)(v[pg] + codes) + part * words;
                    for (int i = tid; i < words; i += threads)
                        ((u32 *)sm.scale)[part * 4 * words + pg * words + i] = __ldg(src + i);
                }
        }
    }
    __syncthreads();

    int64_t number = t.leaf0 + item.seg - t.seg0;
    if (tid < 8 * N) { // l: lanes l and l + 8 of query n, added 8, 4, 2, 1 apart
        int n = tid / 8, l = tid % 8;
        float s0 = 0, s1 = 0;
        for (int j = l; j < SEGMENT; j += 16) {
            s0 = s0 + sm.a[j * N + n];
            s1 = s1 + sm.a[(j + 8) * N + n];
        }
        float s = s0 + s1;
        u32 active = N >= 4 ? ~0u : 0xffffu; // the threads that take part
        for (int apart = 4; apart; apart /= 2) s = s + __shfl_down_sync(active, s, apart, 8);
        if (l == 0 && from[n] < to[n]) {
            int m = sm.max_n[n];
            for (int w = 1; w < threads / 32; w++) m = max(m, sm.max_n[w * N + n]);
            ((float *)a.leaf_l)[number * N + n] = s;
            ((int *)a.leaf_m)[number * N + n] = m;
        }
    }
    if (warp * 64 >= dim) return;
    float *out = (float *)a.leaf_o + number * N * dim;
#define VALUES(F) \
    case F: values<F, N>(sm, v, vc, warp, lane, all_from, all_to, common_from, common_to, out, t.n_q); break;
    switch (kv.v_format) {
        VALUES(F32) VALUES(F16) VALUES(BF16) VALUES(I16) VALUES(Q8) VALUES(Q4) VALUES(PLANES)
    }
}

template <int N> __device__ __forceinline__ void segment(const ek_cuda_attn_args &a)
{
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[max(item.tile, 0)];
    let_next_start();
    fetch_ahead(kv_at(a, item.seg * 4), a, item, t);
    wait_for_previous();
    if (item.tile < 0) return; // a graph's launch has room for more items than there are
    leaf<N>(a, item, t);
}

#define LEAF(N)                                                          \
    extern "C" __global__ void __launch_bounds__(256, 2)                 \
        ek_attn_segment_##N(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                    \
        segment<N>(a);                                                   \
    }
LEAF(2)
LEAF(4)
LEAF(8)

// grid (tiles, tile, dims / 128): T over the leaves of a query, with a dim per thread; o / l.
extern "C" __global__ void __launch_bounds__(128) ek_attn_join(const __grid_constant__ ek_cuda_attn_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[blockIdx.x];
    const int n = blockIdx.y, dim = a.kv.head_dim, d = blockIdx.z * 128 + threadIdx.x;
    if (n >= t.n_q || d >= dim) return; // if rows are quantised, these are whole groups of threads
    const int row = row_of(a, t, n);
    const float value = finish(join_leaves(a, t, n, d));
    const int place = head_of(a, t, n) * dim + d;
    ((float *)a.o)[row * a.ldo + place] = value;
    if (!a.to.q) return;
    __shared__ float all[128];
    all[threadIdx.x] = value;
    __syncthreads();
    const int g = threadIdx.x / 32, lane = threadIdx.x % 32, from = place - (int)threadIdx.x + g * 64;
    if (g * 64 + (int)blockIdx.z * 128 >= dim || g > 1) return;
    const float v[2] = {all[g * 64 + lane], all[g * 64 + lane + 32]};
    quantize_group(a.to, row, from / 64, v);
}
