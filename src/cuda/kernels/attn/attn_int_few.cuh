// A segment of 256 keys for a tile of few queries of attention in integers (attn_int.cu): scores, weights, values. A
// block of threads is one segment. Codes go from the page to operand a of mma.sync, 16 keys or dims at a time, and
// serve all queries, which are its columns. Scores: a warp has 32 keys; values: 32 dims, then the next 32.
//
// Model, H100: a segment of 256 dims is 256 KB, 13 bytes per clock and multiprocessor at 3 TB/s. For 4 warps' 1 KB of
// codes unpacking takes 40 clocks (100 bytes per clock), and 4 products of m16n8k32 take 28: memory bounds it at any
// batch. Memory answers after about 800 clocks, for which 10 KB per multiprocessor must be in flight: with scores two
// blocks have 32, with values 64.
#pragma once

#include "cuda/kernels/attn/attn.cuh"
#include "cuda/kernels/int_codes.cuh"
#include "cuda/kernels/mma.cuh"

namespace ek
{

constexpr int N = EK_CUDA_ATTN_INT_TILE, THREADS = 256, WARPS = 8;
constexpr int SCORE_AHEAD = 1, VALUE_AHEAD = 2; // steps

// DIM: dims of a head, a power of two of 64 to 512; 0: any, known when the kernel runs. W: warps of the block, 8 or 4,
// of which each has the keys of two.
template <int DIM, int W = WARPS> struct few_shared {
    ek_cuda_attn_start item;       // kept here, because registers are needed for codes
    u32 q[HEAD][2][32][2];         // limbs of queries by 32 dims, as a lane has them of operand b: low, high
    u32 p[SEGMENT / 32][2][32][2]; // of weights, by 32 keys
    float q_scale[N];
    u32 max_n[W][N], sum[W][N];
    float largest[W][N];
    int from[N], to[N];
    const uint8_t *page[SEGMENT / PAGE];        // the head's part; 0: no query sees it
    int first, end;                             // of the visible pages
    float l[N];                                 // of the leaf, then of the node into which it is joined
    float unit[N];                              // of the codes of weights
    int leaves[N];                              // per query
    int before;                                 // ended blocks of those whose nodes are joined
    int nodes[N];                               // nodes to join, per query
    float factor[N][7][2];                      // the factors of two nodes, in the order of their joins
    __align__(16) float all[DIM ? N * DIM : 1]; // sums of all leaves
};

// Element i of operand b's 32 inputs of column n, of both limbs of a code.
__device__ __forceinline__ void put_limbs(u32 (&of)[2][32][2], int n, int i, int code)
{
    const int lane = n * 4 + i % 16 / 4;
    ((uint8_t *)&of[0][lane][i / 16])[i % 4] = (uint8_t)(code & 127);
    ((uint8_t *)&of[1][lane][i / 16])[i % 4] = (uint8_t)(code >> 7);
}

// Two tiles of 16 columns by a step of 32 inputs, and the codes of AHEAD steps.
template <int BITS, bool EDGE, int AHEAD> struct two_tiles {
    static constexpr int ROWS = fragment<BITS>::ROWS;
    fragment<BITS> x[AHEAD][2];
    int sum[2][3][4] = {}; // hh, mid, ll

    // at: the lane's columns of the step's first row, of `rows`
    __device__ __forceinline__ void load(int place, const uint8_t *at0, const uint8_t *at1, int ld, int rows, int lane)
    {
        typedef fragment<BITS> part;
        const int first = part::row(0, lane % 4) * ld; // of the lane's rows, the others lie constants apart
        if (!EDGE) at0 += first, at1 += first;
#pragma unroll
        for (int i = 0; i < BITS / 4; i++) {
            const int64_t row = EDGE ? (int64_t)min(part::row(i, lane % 4), rows - 1) * ld : part::row(i, 0) * ld;
            x[place][0].w[i] = *(const uint2 *)(at0 + row), x[place][1].w[i] = *(const uint2 *)(at1 + row);
        }
    }

    __device__ __forceinline__ void add(int place, const u32 (&b)[2][32][2], int lane)
    {
        const uint2 low = *(const uint2 *)b[0][lane], high = *(const uint2 *)b[1][lane];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            u32 l[4], h[4];
            x[place][m].limbs(l, h);
            mma(sum[m][2], l, low.x, low.y);
            mma(sum[m][1], l, high.x, high.y);
            if (BITS == 8) continue;
            mma(sum[m][1], h, low.x, low.y);
            mma(sum[m][0], h, high.x, high.y);
        }
    }
};

// The number of the block's leaf.
__device__ __forceinline__ int64_t leaf_of(const ek_cuda_attn_start &item)
{
    return item.t.leaf0 + item.seg - item.t.seg0;
}

// Scales of keys, or values: of `column` and its neighbour among 2 x 16, in the page's part at `at`.
__device__ __forceinline__ void load_scales(float (&scale)[2][2], const uint8_t *at, int code_bits, int dim, int column)
{
    const float *const from = (const float *)(at + rotated_codes(code_bits, dim)) + column;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const float2 x = *(const float2 *)(from + m * 16);
        scale[m][0] = x.x, scale[m][1] = x.y;
    }
}

// s[m][i] of key 16 m + 2 g + i / 2 and query 2 t + i % 2.
template <int BITS>
__device__ __forceinline__ void scale_scores(float (&s)[2][4], const int (&sum)[2][3][4], const float (&k)[2][2],
                                             float2 q)
{
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[m][i] = (float)score_sum<BITS>(sum[m][0][i], sum[m][1][i], sum[m][2][i]) * k[m][i / 2] *
                      (i % 2 ? q.y : q.x);
}

// Scores of the warp's 32 keys, whose page exists: s[m][i] of key 16 m + 2 g + i / 2 and query 2 t + i % 2.
template <int BITS, int DIM, int W>
__device__ __forceinline__ void scores(float (&s)[2][4], const few_shared<DIM, W> &sm, const uint8_t *page, int dim,
                                       int warp, int lane)
{
    constexpr int AHEAD = DIM ? SCORE_AHEAD : 1;
    typedef two_tiles<BITS, !DIM, AHEAD> tiles;
    tiles two;
    const int(&sum)[2][3][4] = two.sum;
    const int column = warp % 2 * 32 + lane / 4 * 2, ld = PAGE * 4, rows = dim * BITS / 32, steps = (dim + 31) / 32;
    const uint8_t *at = page + column * 4;
#pragma unroll
    for (int u = 0; u < AHEAD; u++, at += tiles::ROWS * ld)
        if (u < steps) two.load(u, at, at + 64, ld, rows - u * tiles::ROWS, lane);
#pragma unroll 1
    for (int step0 = 0; step0 < steps; step0 += AHEAD)
#pragma unroll
        for (int u = 0; u < AHEAD; u++, at += tiles::ROWS * ld) {
            const int step = step0 + u;
            if (step >= steps) break;
            two.add(u, sm.q[step], lane);
            if (step + AHEAD < steps) two.load(u, at, at + 64, ld, rows - (step + AHEAD) * tiles::ROWS, lane);
        }
    float k_scale[2][2];
    load_scales(k_scale, page, BITS, dim, column);
    scale_scores<BITS>(s, sum, k_scale, *(const float2 *)&sm.q_scale[lane % 4 * 2]);
}

// Stores sums of values of a lane's queries at dims `column` and three more: in a leaf, or for the only leaf in sm.all.
template <int BITS, int DIM, int W>
__device__ __forceinline__ void put_values(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a,
                                           const int (&sum)[2][3][4], bool alone, int dim, int column)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int n = lane % 4 * 2 + c;
            if (n >= sm.item.t.n_q || (!DIM && column + m * 16 >= dim)) continue;
            float2 x;
            x.x = value_sum_of<BITS>(sum[m][0][c], sum[m][1][c], sum[m][2][c]) * sm.unit[n];
            x.y = value_sum_of<BITS>(sum[m][0][c + 2], sum[m][1][c + 2], sum[m][2][c + 2]) * sm.unit[n];
            float *const out = alone ? sm.all : (float *)a.leaf_o + leaf_of(sm.item) * a.tile * dim;
            *(float2 *)(out + n * dim + column + m * 16) = x;
        }
}

// Sums of values at dims [d0, d0 + 32) over the visible pages: to a leaf, or for the only leaf to sm.all.
template <int BITS, int DIM, int W>
__device__ __forceinline__ void values(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, const ek_cuda_kv &kv,
                                       bool alone, int d0)
{
    constexpr int AHEAD = DIM ? VALUE_AHEAD : 1;
    typedef two_tiles<BITS, !DIM, AHEAD> tiles;
    tiles two;
    const int(&sum)[2][3][4] = two.sum;
    const int lane = thread_again() % 32, dim = DIM ? DIM : kv.head_dim, ld = dim * 4, column = d0 + lane / 4 * 2,
              from = sm.first * 2, to = sm.end * 2;
    const int at0 = (DIM || column < dim ? column : 0) * 4, at1 = (DIM || column + 16 < dim ? column + 16 : 0) * 4;
    auto load = [&](int place, int step) {
        const uint8_t *v = sm.page[step / 2] + kv.k_bytes + step % 2 * tiles::ROWS * ld;
        two.load(place, v + at0, v + at1, ld, tiles::ROWS, lane);
    };
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (from + u < to) load(u, from + u);
#pragma unroll 1
    for (int step0 = from; step0 < to; step0 += AHEAD)
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int step = step0 + u;
            if (step >= to) break;
            two.add(u, sm.p[step], lane);
            if (step + AHEAD < to) load(u, step + AHEAD);
        }
    put_values<BITS>(sm, a, sum, alone, dim, column);
}

// Combines the lanes with the same queries: lanes 4, 8 and 16 apart.
template <class T, class F> __device__ __forceinline__ T over_keys(T x, F f)
{
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) x = f(x, __shfl_xor_sync(~0u, x, apart));
    return x;
}

// Writes codes of weights, from scores s and scales of values, to sm.p; l and m of the leaf, to memory if there are
// several; units to sm.unit. Of four warps each has the keys of the fourth behind it, too.
template <int DIM, int W>
__device__ __forceinline__ void weigh(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, float (&s)[WARPS / W][2][4],
                                      const float (&scale)[WARPS / W][2][2], bool alone, int warp, int lane)
{
    constexpr int PARTS = WARPS / W;
    const int t = lane % 4, key0 = warp * 32 + lane / 4 * 2;
    bool seen[PARTS][2][4];
    u32 max_n[2] = {0, 0}, sum[2] = {0, 0};
    float largest[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < PARTS; j++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int n = t * 2 + i % 2, key = key0 + j * W * 32 + m * 16 + i / 2;
                seen[j][m][i] = key >= sm.from[n] && key < sm.to[n];
                s[j][m][i] = held_score(s[j][m][i]);
                if (seen[j][m][i]) max_n[i % 2] = max(max_n[i % 2], exponent_bits(s[j][m][i]));
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
        for (int w = 0; w < W; w++) max_n[c] = max(max_n[c], sm.max_n[w][t * 2 + c]);
#pragma unroll
    for (int j = 0; j < PARTS; j++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = i % 2;
                const float e = seen[j][m][i] ? weight_of(s[j][m][i], max_n[c]) : 0.0f;
                sum[c] += sum_bits(e) - WHOLE_BITS;
                s[j][m][i] = seen[j][m][i] ? e * scale[j][m][i / 2] : 0.0f;
                largest[c] = fmaxf(largest[c], s[j][m][i]);
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
        for (int w = 0; w < W; w++) largest[c] = fmaxf(largest[c], sm.largest[w][n]), all += sm.sum[w][n];
        factor[c] = code_factor(largest[c]);
        if (threadIdx.x < 4) sm.unit[n] = code_unit(largest[c]);
        if (threadIdx.x >= 4 || sm.from[n] >= sm.to[n]) continue;
        const float l = (float)(int)all * (1.0f / (1 << SUM_BITS));
        sm.l[n] = l;
        if (alone) continue;
        ((float *)a.leaf_l)[leaf_of(sm.item) * a.tile + n] = l;
        ((int *)a.leaf_m)[leaf_of(sm.item) * a.tile + n] = (int)(max_n[c] - WHOLE_BITS);
    }
#pragma unroll
    for (int j = 0; j < PARTS; j++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int c = 0; c < 2; c++) { // two keys that are neighbours
                const u32 x = code_bits(s[j][m][c], factor[c]) & 0x3fffu,
                          y = code_bits(s[j][m][c + 2], factor[c]) & 0x3fffu;
                const int n = t * 2 + c, i = m * 16 + lane / 4 * 2, to = n * 4 + i % 16 / 4, of = warp + j * W;
                ((unsigned short *)&sm.p[of][0][to][m])[i % 4 / 2] = (unsigned short)((x & 127) | (y & 127) << 8);
                ((unsigned short *)&sm.p[of][1][to][m])[i % 4 / 2] = (unsigned short)(x >> 7 | y >> 7 << 8);
            }
    __syncthreads();
}

} // namespace ek
