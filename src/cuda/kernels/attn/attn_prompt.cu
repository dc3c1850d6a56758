// Attention of prompts (contract: ops/attn/attn.h): 64 queries of one KV head, or 32, row by row and head by head, pass
// through their segments together. A warp has 8 queries; a thread has scores of 8 queries by 8 keys, and values of 8
// queries by 8 dims (attn_prompt.cuh). T is a stack of nodes in scratch memory, where a thread reads and writes only
// its own elements; a query's last leaf is added to the remaining nodes and gives the result.
#include "cuda/kernels/attn/attn_prompt.cuh"

using namespace ek;

__device__ __forceinline__ int clamp_key(int x)
{
    return x < 0 ? 0 : x > SEGMENT ? SEGMENT : x;
}

// What the queries [first, first + n) see of the segment.
__device__ __forceinline__ visible seen_by(const shared &sm, int first, int n)
{
    visible of = {SEGMENT, 0, 0, SEGMENT};
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        const int from = sm.from[first + i], to = sm.to[first + i];
        if (from >= to) continue;
        of.from = min(of.from, from), of.to = max(of.to, to);
        of.common_from = max(of.common_from, from), of.common_to = min(of.common_to, to);
    }
    of.from = -__reduce_max_sync(~0u, -of.from), of.to = __reduce_max_sync(~0u, of.to);
    of.common_from = __reduce_max_sync(~0u, of.common_from), of.common_to = -__reduce_max_sync(~0u, -of.common_to);
    return of;
}

// A node of T per query of the warp: this thread's elements of o, and all of m and l.
struct nodes {
    float o[OWN][8], l[OWN];
    int m[OWN];

    // x: the node of `level` of the warp's first query, at the thread's first element; wanted: bit h for elements 4 h..
    __device__ __forceinline__ void meet(const shared &sm, const float *x, int level, int dim, int wanted, u32 seen)
    {
#pragma unroll
        for (int n0 = 0; n0 < OWN; n0 += 4) {
            if (!(seen >> n0 & 15)) continue;
            float4 left[4][2];
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    left[n][h] = wanted >> h & 1 ? *(const float4 *)(x + (n0 + n) * dim + h * 128)
                                                 : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int n = n0; n < n0 + 4; n++) {
                if (!(seen >> n & 1)) continue;
                const int q = threadIdx.x / 32 * OWN + n, left_m = sm.m[level][q], both = max(left_m, m[n]);
                const float fa = factor(left_m - both), fb = factor(m[n] - both);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float4 v = left[n - n0][h];
                    float *mine = o[n] + h * 4;
                    mine[0] = v.x * fa + mine[0] * fb, mine[1] = v.y * fa + mine[1] * fb;
                    mine[2] = v.z * fa + mine[2] * fb, mine[3] = v.w * fa + mine[3] * fb;
                }
                l[n] = sm.l[level][q] * fa + l[n] * fb;
                m[n] = both;
            }
        }
    }
};

// The description of the segment's pages. `started`, in shared memory: the segment is one of the first positions.
__device__ __forceinline__ int64_t k_bytes(const ek_cuda_attn_args &a, const bool &started)
{
    return started ? a.start.k_bytes : a.kv.k_bytes;
}

__device__ __forceinline__ int64_t v_bytes(const ek_cuda_attn_args &a, const bool &started)
{
    return started ? a.start.v_bytes : a.kv.v_bytes;
}

__device__ __forceinline__ int k_format(const ek_cuda_attn_args &a, const bool &started)
{
    return started ? a.start.k_format : a.kv.k_format;
}

__device__ __forceinline__ int v_format(const ek_cuda_attn_args &a, const bool &started)
{
    return started ? a.start.v_format : a.kv.v_format;
}

// l of every query; then the weights take their values' scales.
__device__ __forceinline__ void sum_weights(shared &sm, const ek_cuda_attn_args &a, const bool &started)
{
    const int tid = threadIdx.x;
    { // thread (g, n) has lanes g, g + 4, g + 8, g + 12 of query n
        const int n = tid % TILE, g = tid / TILE;
        float sum[4] = {0, 0, 0, 0};
        for (int j = 0; j < SEGMENT; j += 16)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] = sum[i] + sm.s[j + g + 4 * i][piece_of(n / 4, j + 4 * i) + n % 4];
        sm.part[g][n] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
    __syncthreads();
    if (tid < TILE) sm.leaf_l[tid] = (sm.part[0][tid] + sm.part[2][tid]) + (sm.part[1][tid] + sm.part[3][tid]);
    if (v_format(a, started) == I16) {
        for (int i = tid; i < SEGMENT * TILE; i += THREADS)
            sm.s[i / TILE][i % TILE] = sm.s[i / TILE][i % TILE] * sm.value_scale[i / TILE];
    }
    __syncthreads();
}

__device__ __forceinline__ void sum_values(shared &sm, int format, int d0, float (&o)[OWN][8])
{
#pragma unroll
    for (int n = 0; n < OWN; n++) {
#pragma unroll
        for (int d = 0; d < 8; d++) o[n][d] = 0;
    }
    switch (format) {
    case F32: values<F32>(sm, d0, o); break;
    case F16: values<F16>(sm, d0, o); break;
    case BF16: values<BF16>(sm, d0, o); break;
    case I16: values<I16>(sm, d0, o); break;
    case Q8: values<Q8>(sm, d0, o); break;
    case Q4: values<Q4>(sm, d0, o); break;
    case PLANES: values<PLANES>(sm, d0, o); break;
    }
}

// Query n of the tile, row by row among the KV head's queries; and the place of its result, in the same order.
__device__ __forceinline__ int64_t query_at(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, int n, int ld)
{
    const int at = t.head + n;
    return (int64_t)(t.row + at / a.ratio) * ld + (int64_t)(t.kv_head * a.ratio + at % a.ratio) * a.kv.head_dim;
}

// Reads DIMS dims, from d0 on, of the tile's queries, transposed; zeros after the last query and the last dim.
__device__ __forceinline__ void load_queries(shared &sm, const ek_cuda_attn_args &a, int d0)
{
    const int n = threadIdx.x % TILE, dim = a.kv.head_dim;
    const float *from = n < sm.tile.n_q ? (const float *)a.q + query_at(a, sm.tile, n, a.ldq) + d0 : 0;
#pragma unroll 8
    for (int d = threadIdx.x / TILE * 4; d < DIMS; d += THREADS / TILE * 4) {
        float4 v = make_float4(0, 0, 0, 0);
        if (from && d0 + d < dim) v = *(const float4 *)(from + d);
        sm.q[d][n] = v.x, sm.q[d + 1][n] = v.y, sm.q[d + 2][n] = v.z, sm.q[d + 3][n] = v.w;
    }
}

// Reads the tile's description and the keys that each of its queries sees. Reads the queries, too, if one load holds
// them all.
__device__ __forceinline__ void load_tile(shared &sm, const ek_cuda_attn_args &a, int number)
{
    const ek_cuda_attn_tile &t = sm.tile;
    const int tid = threadIdx.x;
    __syncthreads();
    if (tid == 0) sm.tile = ((const ek_cuda_attn_tile *)a.tiles)[number];
    __syncthreads();
    if (tid < TILE) {
        sm.lo[tid] = sm.end[tid] = 0;
        if (tid < t.n_q) {
            ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[t.row + (t.head + tid) / a.ratio];
            sm.lo[tid] = row.lo, sm.end[tid] = row.end;
        }
    }
    if (a.kv.head_dim <= DIMS) load_queries(sm, a, 0);
}

// Finds what the queries see of segment `seg`, and its pages. At the tile's last segment, requests the block's next
// tile.
__device__ __forceinline__ void load_segment(shared &sm, const ek_cuda_attn_args &a, int seg, bool &started)
{
    const ek_cuda_attn_tile &t = sm.tile;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    __syncthreads();
    if (tid == 0) {
        started = seg * 4 < a.n_start;
        if (seg == t.seg0 + t.n_seg - 1) { // n_tiles are requested in all; the last request restores the counter
            const int taken = atomicAdd((int *)a.ended, 1);
            sm.next = (int)gridDim.x + taken;
            if (taken == a.n_tiles - 1) *(volatile int *)a.ended = 0;
        }
    }
    if (tid < TILE)
        sm.from[tid] = clamp_key(sm.lo[tid] - seg * SEGMENT), sm.to[tid] = clamp_key(sm.end[tid] - seg * SEGMENT);
    __syncthreads();
    const visible own = seen_by(sm, warp * OWN, OWN);
    if (lane == 0) sm.own[warp] = own;
    if (warp == 0) {
        const visible all = seen_by(sm, 0, TILE);
        const ek_cuda_kv &kv = started ? a.start : a.kv;
        if (lane == 0) sm.all = all, sm.keys = keys_of(kv), sm.values = values_of(kv);
        if (lane < SEGMENT / PAGE) {
            u64 page = all.from < (lane + 1) * PAGE && all.to > lane * PAGE ? page_block(kv, t.view, seg * 4 + lane)
                                                                            : 0;
            if (!page && all.from < lane * PAGE && all.to > lane * PAGE)
                page = page_block(kv, t.view, seg * 4 + all.from / PAGE); // absent: no query sees it
            sm.page[lane] = page ? (const uint8_t *)page + t.kv_head * (k_bytes(a, started) + v_bytes(a, started)) +
                                       k_bytes(a, started)
                                 : 0;
        }
    }
    __syncthreads();
}

// Scores of the warp's queries and all keys of the segment, into s. The chains of dims follow each other.
template <int K>
__device__ __forceinline__ void score_segment(shared &sm, const ek_cuda_attn_args &a, const bool &started)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * OWN, dim = a.kv.head_dim;
    for (int d0 = 0; d0 < dim; d0 += CHAIN) {
        float acc[OWN][8];
#pragma unroll
        for (int n = 0; n < OWN; n++)
#pragma unroll
            for (int j = 0; j < 8; j++) acc[n][j] = 0;
        for (int part = d0, end; part < min(dim, d0 + CHAIN); part = end) {
            end = min(dim, part + DIMS);
            if (dim > DIMS) {
                __syncthreads();
                load_queries(sm, a, part);
            }
            if (grouped(K) && k_format(a, started) == BF16) scores<BF16>(sm, k_bytes(a, started), part, end, acc);
            else scores<K>(sm, k_bytes(a, started), part, end, acc);
            if (DIMS == CHAIN) break; // one part
        }
#pragma unroll
        for (int n = 0; n < OWN; n += 4)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float4 *const to = (float4 *)&sm.s[key_of(lane, j)][piece_of((mine + n) / 4, lane * 4)];
                float4 v = make_float4(acc[n][j], acc[n + 1][j], acc[n + 2][j], acc[n + 3][j]);
                if (d0) { // after the first chain
                    const float4 x = *to;
                    v.x = x.x + v.x, v.y = x.y + v.y, v.z = x.z + v.z, v.w = x.w + v.w;
                }
                *to = v;
            }
    }
}

// Replaces the scores that the thread wrote by weights (a warp has all keys of its queries), and finds each query's
// max.
template <int K>
__device__ __forceinline__ void weigh_segment(shared &sm, const ek_cuda_attn_args &a, const bool &started)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mine = warp * OWN;
    float key_scale[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int key = key_of(lane, j);
        const uint8_t *at = sm.page[key / PAGE];
        bool seen = key >= sm.all.from && key < sm.all.to;
        key_scale[j] = K == I16 && seen
                           ? ((const float *)(at - k_bytes(a, started) + k_codes(I16, sm.keys)))[key % PAGE]
                           : 1.0f;
        if (v_format(a, started) == I16 && warp == 0)
            sm.value_scale[key] = seen ? ((const float *)(at + k_codes(I16, sm.keys)))[key % PAGE] : 0.0f;
    }
#pragma unroll 1
    for (int n0 = 0; n0 < OWN; n0 += 4) {
        float x[4][8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float4 v = *(const float4 *)&sm.s[key_of(lane, j)][piece_of((mine + n0) / 4, lane * 4)];
            x[0][j] = v.x, x[1][j] = v.y, x[2][j] = v.z, x[3][j] = v.w;
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int from = sm.from[mine + n0 + n], to = sm.to[mine + n0 + n], max_n = INT32_MIN, n_of[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                x[n][j] = exp_split(K == I16 ? x[n][j] * key_scale[j] : x[n][j], &n_of[j]);
                if (key_of(lane, j) >= from && key_of(lane, j) < to) max_n = max(max_n, n_of[j]);
            }
            max_n = __reduce_max_sync(~0u, max_n);
            if (lane == 0) sm.leaf_m[mine + n0 + n] = max_n;
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[n][j] = key_of(lane, j) >= from && key_of(lane, j) < to ? x[n][j] * factor(n_of[j] - max_n) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(float4 *)&sm.s[key_of(lane, j)][piece_of((mine + n0) / 4, lane * 4)] = make_float4(x[0][j], x[1][j],
                                                                                                 x[2][j], x[3][j]);
    }
    __syncthreads();
}

// Results of the queries that end in this segment: the rest of each in `leaf`, divided by l. ends: a bit per query.
__device__ __forceinline__ void put_results(const shared &sm, const ek_cuda_attn_args &a, const nodes &leaf, int d,
                                            int wanted, u32 ends)
{
    const int mine = threadIdx.x / 32 * OWN;
#pragma unroll
    for (int n = 0; n < OWN; n++) {
        if (!(ends >> n & 1)) continue;
        float *out = (float *)a.o + query_at(a, sm.tile, mine + n, a.ldo) + d;
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = __fdiv_rn(leaf.o[n][i] + 0.0f, leaf.l[n]);
        if (wanted & 1) *(float4 *)out = make_float4(y[0], y[1], y[2], y[3]);
        if (wanted & 2) *(float4 *)(out + 128) = make_float4(y[4], y[5], y[6], y[7]);
    }
}

// The segment's leaves, COLS dims at once, meet the nodes of T that they complete. The rest goes to the stack, or is
// the result of a query that ends here. stack: MAX_LEVELS nodes of the tile's queries. seg: the segment's number.
__device__ __forceinline__ void merge_segment(shared &sm, const ek_cuda_attn_args &a, const bool &started, int seg,
                                              float *stack)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * OWN, count = seg - sm.tile.seg0;
    for (int d0 = 0; d0 < a.kv.head_dim; d0 += COLS) {
        nodes leaf;
        sum_values(sm, v_format(a, started), d0, leaf.o);
        const u32 seen = __ballot_sync(~0u, lane < OWN && sm.from[mine + lane % OWN] < sm.to[mine + lane % OWN]);
        const u32 ends = seen & __ballot_sync(~0u, sm.end[mine + lane % OWN] <= (seg + 1) * SEGMENT);
        if (!seen) continue;
#pragma unroll
        for (int n = 0; n < OWN; n++) leaf.m[n] = sm.leaf_m[mine + n], leaf.l[n] = sm.leaf_l[mine + n];
        const int dim = sm.values.dim, d = d0 + lane * 4, wanted = (d < dim) | (d + 128 < dim) << 1;
        float *const node = stack + (int64_t)mine * dim + d;
        int level = 0;
        for (; count >> level & 1; level++) leaf.meet(sm, node + (int64_t)level * TILE * dim, level, dim, wanted, seen);
#pragma unroll
        for (int n = 0; n < OWN; n++) {
            const int q = mine + n;
            if (!((seen & ~ends) >> n & 1)) continue;
            float *to = node + ((int64_t)level * TILE + n) * dim;
            if (wanted & 1) *(float4 *)to = make_float4(leaf.o[n][0], leaf.o[n][1], leaf.o[n][2], leaf.o[n][3]);
            if (wanted & 2) *(float4 *)(to + 128) = make_float4(leaf.o[n][4], leaf.o[n][5], leaf.o[n][6], leaf.o[n][7]);
            if (lane == 0 && d0 + COLS >= dim) sm.l[level][q] = leaf.l[n], sm.m[level][q] = leaf.m[n];
        }
        if (!ends) continue;
        for (level++; count >> level; level++)
            if (count >> level & 1) leaf.meet(sm, node + (int64_t)level * TILE * dim, level, dim, wanted, seen);
        put_results(sm, a, leaf, d, wanted, ends);
    }
}

template <int K>
__device__ __forceinline__ void tile_of_prompt(shared &sm, const ek_cuda_attn_args &a, int number, float *stack)
{
    __shared__ bool started; // the segment is one of the first positions; kept in shared memory, because there are no
                             // registers left
    load_tile(sm, a, number);
    for (int seg = sm.tile.seg0; seg < sm.tile.seg0 + sm.tile.n_seg; seg++) {
        load_segment(sm, a, seg, started);
        score_segment<K>(sm, a, started);
        weigh_segment<K>(sm, a, started);
        sum_weights(sm, a, started);
        merge_segment(sm, a, started, seg, stack);
    }
}

// Any grid of at most n_tiles blocks. A block takes tile blockIdx.x, then the first tile that no other block has taken.
// There is one kernel per format of keys; the format of values is a branch.
#define PROMPT(name, K)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                          \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                      \
        let_next_start();                                                                                      \
        wait_for_previous();                                                                                   \
        float *stack = (float *)a.leaf_o + (int64_t)blockIdx.x * a.levels * TILE * a.kv.head_dim;              \
        for (int i = blockIdx.x; i < a.n_tiles; i = ((shared *)base)->next)                                    \
            tile_of_prompt<K>(*(shared *)base, a, i, stack);                                                   \
    }
#ifdef EK_PROMPT_SMALL
PROMPT(ek_attn_prompt_small_f32, F32)
PROMPT(ek_attn_prompt_small_f16, F16)
PROMPT(ek_attn_prompt_small_bf16, BF16)
PROMPT(ek_attn_prompt_small_16, I16)
PROMPT(ek_attn_prompt_small_8, Q8)
PROMPT(ek_attn_prompt_small_planes, PLANES)
constexpr size_t SHARED = EK_CUDA_PROMPT_SMALL_SHARED;
#else
PROMPT(ek_attn_prompt_f32, F32)
PROMPT(ek_attn_prompt_f16, F16)
PROMPT(ek_attn_prompt_bf16, BF16)
PROMPT(ek_attn_prompt_16, I16)
PROMPT(ek_attn_prompt_8, Q8)
PROMPT(ek_attn_prompt_4, Q4)
PROMPT(ek_attn_prompt_planes, PLANES)
constexpr size_t SHARED = EK_CUDA_PROMPT_SHARED;
#endif

static_assert(sizeof(shared) == SHARED, "args.h says what a launch must ask for");
