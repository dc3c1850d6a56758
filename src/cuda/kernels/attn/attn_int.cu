// Attention in integers of few queries (contract: ops/attn/attn_int.h): ek_attn_int computes one segment of 256 keys
// for a tile of up to 8 queries of one KV head, ek_attn_int_join adds the leaves of a query in T and turns the result
// back.
//
// A block of threads is one segment. Codes come from the page to operand a of mma.sync, 16 keys or dims at a time,
// and serve all queries, which are its columns. Scores: a warp has 32 keys; values: 32 dims, then the next 32.
//
// Model, H100: a segment of 256 dims is 256 KB, 13 bytes a clock and multiprocessor at 3 TB/s. Of 4 warps' 1 KB of
// codes unpacking takes 40 clocks (100 bytes a clock), 4 products of m16n8k32 28: the memory bounds it at any batch.
#include "cuda/kernels/attn/attn.cuh"
#include "cuda/kernels/attn/attn_int.cuh"

using namespace ek;

constexpr int N = EK_CUDA_ATTN_INT_TILE, THREADS = 256, WARPS = 8;

struct few_shared {
    u32 q[HEAD][2][32][2];         // limbs of queries by 32 dims, as a lane has them of operand b: low, high
    u32 p[SEGMENT / 32][2][32][2]; // of weights, by 32 keys
    float q_scale[N];
    u32 max_n[WARPS][N], sum[WARPS][N];
    float largest[WARPS][N];
    int from[N], to[N];
    const uint8_t *page[SEGMENT / PAGE]; // the head's part; 0: nobody sees any
};

// Element i of operand b's 32 inputs of column n, of both limbs of a code.
__device__ __forceinline__ void put_limbs(u32 (&of)[2][32][2], int n, int i, int code)
{
    const int lane = n * 4 + i % 16 / 4;
    ((uint8_t *)&of[0][lane][i / 16])[i % 4] = (uint8_t)(code & 127);
    ((uint8_t *)&of[1][lane][i / 16])[i % 4] = (uint8_t)(code >> 7);
}

// Two tiles of 16 columns by a step of 32 inputs, whose codes of the next step come while they are multiplied.
template <int BITS> struct two_tiles {
    fragment<BITS> x[2];
    int sum[2][3][4] = {}; // hh, mid, ll

    // at: the lane's column of the step's first row, of `rows`
    __device__ __forceinline__ void load(const uint8_t *at0, const uint8_t *at1, int ld, int rows, int lane)
    {
#pragma unroll
        for (int i = 0; i < BITS / 4; i++) {
            const int64_t row = (int64_t)min(fragment<BITS>::row(i, lane % 4), rows - 1) * ld;
            x[0].w[i] = __ldg((const uint2 *)(at0 + row)), x[1].w[i] = __ldg((const uint2 *)(at1 + row));
        }
    }

    __device__ __forceinline__ void add(const fragment<BITS> (&now)[2], const u32 (&b)[2][32][2], int lane)
    {
        const uint2 low = *(const uint2 *)b[0][lane], high = *(const uint2 *)b[1][lane];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            u32 l[4], h[4];
            now[m].limbs(l, h);
            mma(sum[m][2], l, low.x, low.y);
            mma(sum[m][1], l, high.x, high.y);
            if (BITS == 8) continue;
            mma(sum[m][1], h, low.x, low.y);
            mma(sum[m][0], h, high.x, high.y);
        }
    }
};

// Scores of the warp's 32 keys, whose page is there: s[m][i] of key 16 m + 2 g + i / 2 and query 2 t + i % 2.
template <int BITS>
__device__ __forceinline__ void scores(float (&s)[2][4], const few_shared &sm, const uint8_t *page, int dim, int warp,
                                       int lane)
{
    two_tiles<BITS> two;
    const int(&sum)[2][3][4] = two.sum;
    const int column = warp % 2 * 32 + lane / 4 * 2, ld = PAGE * 4, rows = dim * BITS / 32;
    const uint8_t *at = page + column * 4;
    two.load(at, at + 64, ld, rows, lane);
#pragma unroll 1
    for (int step = 0; step * 32 < dim; step++) {
        const fragment<BITS> now[2] = {two.x[0], two.x[1]};
        at += fragment<BITS>::ROWS * ld;
        const int left = rows - (step + 1) * fragment<BITS>::ROWS;
        if (left > 0) two.load(at, at + 64, ld, left, lane);
        two.add(now, sm.q[step], lane);
    }
    const float *scale = (const float *)(page + rotated_codes(BITS, dim)) + column;
    const float2 q = *(const float2 *)&sm.q_scale[lane % 4 * 2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const float2 k = *(const float2 *)(scale + m * 16);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[m][i] = (float)score_sum<BITS>(sum[m][0][i], sum[m][1][i], sum[m][2][i]) * (i / 2 ? k.y : k.x) *
                      (i % 2 ? q.y : q.x);
    }
}

// Leaves of dims [d0, d0 + 32) over the pages that are seen.
template <int BITS>
__device__ __forceinline__ void values(const few_shared &sm, const ek_cuda_kv &kv, int first, int end, int d0, int lane,
                                       const float (&unit)[2], float *out, int n_q)
{
    two_tiles<BITS> two;
    const int(&sum)[2][3][4] = two.sum;
    constexpr int ROWS = fragment<BITS>::ROWS;
    const int dim = kv.head_dim, ld = dim * 4, column = d0 + lane / 4 * 2;
    const int at0 = (column < dim ? column : 0) * 4, at1 = (column + 16 < dim ? column + 16 : 0) * 4;
    const uint8_t *v = sm.page[first] + kv.k_bytes;
    two.load(v + at0, v + at1, ld, ROWS, lane);
#pragma unroll 1
    for (int step = first * 2; step < end * 2; step++) {
        const fragment<BITS> now[2] = {two.x[0], two.x[1]};
        if (step + 1 < end * 2) {
            v = step % 2 ? sm.page[step / 2 + 1] + kv.k_bytes : v + ROWS * ld;
            two.load(v + at0, v + at1, ld, ROWS, lane);
        }
        two.add(now, sm.p[step], lane);
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int n = lane % 4 * 2 + c;
            if (n >= n_q || column + m * 16 >= dim) continue;
            const float x = value_sum_of<BITS>(sum[m][0][c], sum[m][1][c], sum[m][2][c]),
                        y = value_sum_of<BITS>(sum[m][0][c + 2], sum[m][1][c + 2], sum[m][2][c + 2]);
            *(float2 *)(out + (int64_t)n * dim + column + m * 16) = make_float2(x * unit[c], y * unit[c]);
        }
}

// Of the lanes that have the same queries: lanes apart by 4, 8 and 16.
template <class T, class F> __device__ __forceinline__ T over_keys(T x, F f)
{
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) x = f(x, __shfl_xor_sync(~0u, x, apart));
    return x;
}

// Codes of weights into sm.p; l and m of the leaf; the units of the lane's two queries.
__device__ __forceinline__ void weigh(few_shared &sm, const ek_cuda_attn_args &a, const ek_cuda_kv &kv,
                                      float (&s)[2][4], int64_t number, int warp, int lane, float (&unit)[2])
{
    const int t = lane % 4, key0 = warp * 32 + lane / 4 * 2;
    const uint8_t *page = sm.page[warp / 2];
    bool seen[2][4];
    u32 max_n[2] = {0, 0}, sum[2] = {0, 0};
    float largest[2] = {0, 0}, scale[2][2] = {};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (page) {
            const float *at = (const float *)(page + kv.k_bytes + rotated_codes(kv.v_bits, kv.head_dim));
            const float2 v = *(const float2 *)(at + key0 % PAGE + m * 16);
            scale[m][0] = v.x, scale[m][1] = v.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = t * 2 + i % 2, key = key0 + m * 16 + i / 2;
            seen[m][i] = key >= sm.from[n] && key < sm.to[n];
            s[m][i] = held_score(s[m][i]);
            if (seen[m][i]) max_n[i % 2] = max(max_n[i % 2], exponent_bits(s[m][i]));
        }
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        max_n[c] = over_keys(max_n[c], [](u32 x, u32 y) { return max(x, y); });
        if (lane < 4) sm.max_n[warp][t * 2 + c] = max_n[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int w = 0; w < WARPS; w++) max_n[c] = max(max_n[c], sm.max_n[w][t * 2 + c]);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int c = i % 2;
            const float e = seen[m][i] ? weight_of(s[m][i], max_n[c]) : 0.0f;
            sum[c] += sum_bits(e) - WHOLE_BITS;
            s[m][i] = seen[m][i] ? e * scale[m][i / 2] : 0.0f;
            largest[c] = fmaxf(largest[c], s[m][i]);
        }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        sum[c] = over_keys(sum[c], [](u32 x, u32 y) { return x + y; });
        largest[c] = over_keys(largest[c], [](float x, float y) { return fmaxf(x, y); });
        if (lane < 4) sm.sum[warp][t * 2 + c] = sum[c], sm.largest[warp][t * 2 + c] = largest[c];
    }
    __syncthreads();
    float factor[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int n = t * 2 + c;
        u32 all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) largest[c] = fmaxf(largest[c], sm.largest[w][n]), all += sm.sum[w][n];
        factor[c] = code_factor(largest[c]), unit[c] = code_unit(largest[c]);
        if (threadIdx.x < 4 && sm.from[n] < sm.to[n]) {
            ((float *)a.leaf_l)[number * a.tile + n] = (float)(int)all * (1.0f / (1 << SUM_BITS));
            ((int *)a.leaf_m)[number * a.tile + n] = (int)(max_n[c] - WHOLE_BITS);
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int c = 0; c < 2; c++) { // two keys that are neighbours
            const u32 x = code_bits(s[m][c], factor[c]) & 0x3fffu, y = code_bits(s[m][c + 2], factor[c]) & 0x3fffu;
            const int n = t * 2 + c, i = m * 16 + lane / 4 * 2, to = n * 4 + i % 16 / 4;
            ((unsigned short *)&sm.p[warp][0][to][m])[i % 4 / 2] = (unsigned short)((x & 127) | (y & 127) << 8);
            ((unsigned short *)&sm.p[warp][1][to][m])[i % 4 / 2] = (unsigned short)(x >> 7 | y >> 7 << 8);
        }
    __syncthreads();
}

// A warp has a query.
__device__ __forceinline__ void code_query(few_shared &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t,
                                           int n, int dim, int lane)
{
    float x[HEAD];
    int code[HEAD];
#pragma unroll
    for (int i = 0; i < HEAD; i++) x[i] = 0, code[i] = 0;
    if (n < t.n_q) {
        const float *q = (const float *)a.q + row_of(a, t, n) * a.ldq + (int64_t)head_of(a, t, n) * dim;
#pragma unroll
        for (int i = 0; i < HEAD; i++)
            if (i * 32 + lane < dim) x[i] = __ldcg(q + i * 32 + lane);
        const float scale = encode(x, dim, QUERY_CODE, code);
        if (lane == 0) sm.q_scale[n] = scale * __fdiv_rn(1.0f, (float)(dim & -dim));
    } else if (lane == 0) sm.q_scale[n] = 0;
#pragma unroll
    for (int i = 0; i < HEAD; i++)
        if (i * 32 < dim) put_limbs(sm.q[i], n, lane, code[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) ek_attn_int(const __grid_constant__ ek_cuda_attn_args a)
{
    __shared__ few_shared sm;
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[max(item.tile, 0)];
    const ek_cuda_kv kv = kv_at(a, item.seg * 4);
    let_next_start();
    fetch_ahead(kv, a, item, t);
    wait_for_previous();
    if (item.tile < 0) return; // a graph's launch has room for more items than there are
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, dim = kv.head_dim;
    int from = SEGMENT, to = 0; // lane n: of query n
    if (lane < t.n_q) {
        const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[row_of(a, t, lane)];
        from = clamp_key(row.lo - item.seg * SEGMENT), to = clamp_key(row.end - item.seg * SEGMENT);
    }
    if (warp == 0 && lane < N) sm.from[lane] = from, sm.to[lane] = to;
    const bool any = from < to;
    const int all_from = -__reduce_max_sync(~0u, any ? -from : -SEGMENT), all_to = __reduce_max_sync(~0u, any ? to : 0);
    if (all_from >= all_to) return;
    const int first = all_from / PAGE, end = (all_to - 1) / PAGE + 1;
    if (tid < SEGMENT / PAGE) {
        u64 page = tid >= first && tid < end ? page_block(kv, t.view, item.seg * 4 + tid) : 0;
        if (!page && tid > first && tid < end) page = page_block(kv, t.view, item.seg * 4 + first); // nobody sees it
        sm.page[tid] = page ? (const uint8_t *)page + t.kv_head * (kv.k_bytes + kv.v_bytes) : 0;
    }
    code_query(sm, a, t, warp, dim, lane);
    __syncthreads();
    if (gridDim.x > FEW_BLOCKS) // values come while scores are computed
        for (int p = first; p < end; p++)
            for (int64_t i = tid * 128; i < kv.v_bytes; i += THREADS * 128) prefetch_line(sm.page[p] + kv.k_bytes + i);
    float s[2][4] = {}, unit[2];
    const uint8_t *own = sm.page[warp / 2];
    if (own) {
        if (kv.k_bits == 16) scores<16>(s, sm, own, dim, warp, lane);
        else scores<8>(s, sm, own, dim, warp, lane);
    }
    const int64_t number = t.leaf0 + item.seg - t.seg0;
    weigh(sm, a, kv, s, number, warp, lane, unit);
    float *out = (float *)a.leaf_o + number * a.tile * dim;
#pragma unroll 1
    for (int d0 = warp * 32; d0 < dim; d0 += WARPS * 32) {
        if (kv.v_bits == 16) values<16>(sm, kv, first, end, d0, lane, unit, out, t.n_q);
        else values<8>(sm, kv, first, end, d0, lane, unit, out, t.n_q);
    }
}

// grid (tiles, tile), a thread per dim, rounded up to warps: T over the leaves of a query; R (o / l) / n.
extern "C" __global__ void __launch_bounds__(512) ek_attn_int_join(const __grid_constant__ ek_cuda_attn_args a)
{
    __shared__ float all[512];
    let_next_start();
    wait_for_previous();
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[blockIdx.x];
    const int n = blockIdx.y, dim = a.kv.head_dim, d = threadIdx.x, block = dim & -dim, lane = d % 32;
    if (n >= t.n_q) return;
    float value = d < dim ? finish(join_leaves(a, t, n, d)) : 0.0f;
#pragma unroll 1
    for (int h = 1; h < block; h *= 2) {
        float other;
        if (h < 32) other = __shfl_xor_sync(~0u, value, h);
        else {
            __syncthreads();
            all[d] = value;
            __syncthreads();
            other = all[d ^ h];
        }
        value = d & h ? other - value : value + other;
    }
    value = value * __fdiv_rn(1.0f, (float)block);
    const int row = row_of(a, t, n), place = head_of(a, t, n) * dim;
    if (d < dim) ((float *)a.o)[row * a.ldo + place + d] = value;
    if (!a.to.q) return;
    __syncthreads();
    all[d] = value;
    __syncthreads();
    const int g = d / 32;
    if (g * 64 >= dim) return;
    const float v[2] = {all[g * 64 + lane], all[g * 64 + lane + 32]};
    quantize_group(a.to, row, place / 64 + g, v);
}
