// Attention of prompts (contract: ops/attn.h): 64 queries of one KV head, row by row and head by head, go
// through their segments together. A warp has 8 queries; scores are 8 queries by 8 keys per thread, values
// 8 queries by 8 dims, fed from a stage of 32 rows of 256 floats that is decoded once for all queries. T is
// kept as a stack of nodes in scratch memory, which a thread reads and writes only where it owns the element.
#include "cuda/kernels/kv.cuh"

using namespace ek;

constexpr int TILE = EK_CUDA_PROMPT_TILE, THREADS = 256, OWN = 8, ROWS = 32, COLS = 256;
constexpr int S_STRIDE = TILE + 4, MAX_LEVELS = 12, CHAIN = 256;

struct shared {
    float q[CHAIN][TILE];        // dims of one chain
    float stage[ROWS][COLS];     // keys: [dim][key]; values: [key][dim]
    float s[SEGMENT][S_STRIDE];  // scores, then what enters the fma
    float part[4][TILE];         // of l
    float l[MAX_LEVELS][TILE];   // of the nodes of T
    int m[MAX_LEVELS][TILE];
    float leaf_l[TILE];
    int leaf_m[TILE];
    int from[TILE], to[TILE];    // of the segment
    int lo[TILE], end[TILE];
    float value_scale[SEGMENT];
};

// 16 rows of 64 elements as they lie in memory: what a warp brings to the stage.
template <int F> struct half_stage {
    static constexpr int K_PARTS = chunk<F>::K_ROWS < 16 ? 2 : 1, V_PARTS = 16 / chunk<F>::ROWS, PARTS = V_PARTS;
    chunk<F> c[PARTS];
    static constexpr int SCALES = grouped(F) ? 16 : 1;
    u32 scale[SCALES]; // V: the row's scale, bias above it

    __device__ __forceinline__ void load_k(const uint8_t *k, const kv_codec &of, int d, int lane)
    {
#pragma unroll
        for (int i = 0; i < K_PARTS; i++) c[i].template load_k<true>(k, of, d + i * 8, lane);
    }

    // to: the stage at the warp's first row and column
    __device__ __forceinline__ void put_k(float *to, int lane) const
    {
#pragma unroll
        for (int i = 0; i < (F == Q4 ? 32 : 16); i++) *(float2 *)(to + i * COLS + lane * 2) = c[i / 8 % K_PARTS].key(K_PARTS == 2 ? i % 8 : i);
    }

    __device__ __forceinline__ void load_v(const uint8_t *v, const kv_codec &of, const lane_dims<F> &l, int slot)
    {
        const int groups = of.groups();
#pragma unroll
        for (int i = 0; i < V_PARTS; i++) c[i].load_v(v, l, slot + i * 8);
        if (!grouped(F)) return;
        const unsigned short *s = (const unsigned short *)(v + v_codes(F, of)) + slot * groups + l.group;
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            scale[i] = __ldg(s + i * groups);
            if (affine(F)) scale[i] |= (u32)__ldg(s + groups * PAGE + i * groups) << 16;
        }
    }

    __device__ __forceinline__ void put_v(float *to, int lane, const lane_dims<F> &l) const
    {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float s = SCALES > 1 ? half_f32(scale[i % SCALES] & 0xffffu) : 0, b = affine(F) ? half_f32(scale[i % SCALES] >> 16) : 0;
            float2 v = c[i / 8 % V_PARTS].value(V_PARTS == 2 ? i % 8 : i, s, b, l);
            if (F == Q4) {
                float *at = to + i * COLS + lane / 16 * 32 + lane % 16;
                at[0] = v.x, at[16] = v.y;
            } else *(float2 *)(to + i * COLS + lane * 2) = v;
        }
    }
};

__device__ __forceinline__ const uint8_t *pick(const uint8_t *const (&v)[4], int p)
{
    return p & 2 ? p & 1 ? v[3] : v[2] : p & 1 ? v[1] : v[0];
}

// Key j of a lane: four adjacent ones in each half of the segment.
__device__ __forceinline__ int key_of(int lane, int j)
{
    return j / 4 * 128 + lane * 4 + j % 4;
}

// Rows [0, rows) of the stage: acc[n][j] += x[n] y[j], x 8 queries, y 8 columns, of which HALVES (bits 0 and 1) are wanted.
// x: of row 0, x_step floats apart.
template <int HALVES>
__device__ __forceinline__ void add_rows(const float *x, int x_step, const float *y, int rows, float (&acc)[OWN][8])
{
#pragma unroll 4
    for (int i = 0; i < rows; i++) {
        float a[OWN], b[8];
        *(float4 *)a = *(const float4 *)(x + i * x_step);
        *(float4 *)(a + 4) = *(const float4 *)(x + i * x_step + 4);
        if (HALVES & 1) *(float4 *)b = *(const float4 *)(y + i * COLS);
        if (HALVES & 2) *(float4 *)(b + 4) = *(const float4 *)(y + i * COLS + 128);
#pragma unroll
        for (int n = 0; n < OWN; n++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (HALVES >> j / 4 & 1) acc[n][j] = fma_(a[n], b[j], acc[n][j]);
    }
}

// acc[i][j] += chain over dims [d0, end) of query 8 warp + i and key j
template <int F>
__device__ __forceinline__ void scores(shared &sm, const uint8_t *const (&v)[4], int64_t k_bytes, const kv_codec &c, int d0, int end,
                                       float (&acc)[OWN][8])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, page = warp % 4, half = warp / 4;
    const uint8_t *at = pick(v, page);
    const bool brings = at && (F != Q4 || half == 0);
    const bool first = v[0] || v[1], second = v[2] || v[3]; // halves of the segment that somebody sees
    half_stage<F> raw;
    constexpr bool EARLY = F != F32; // the next rows are fetched while these are added; f32 has no registers left
    if (EARLY && brings) raw.load_k(at - k_bytes, c, d0 + half * 16, lane);
    for (int d = d0; d < end; d += ROWS) {
        __syncthreads();
        if (brings) {
            if (!EARLY) raw.load_k(at - k_bytes, c, d + half * 16, lane);
            raw.put_k(&sm.stage[half * 16][page * PAGE], lane);
            if (EARLY && d + ROWS < end) raw.load_k(at - k_bytes, c, d + ROWS + half * 16, lane);
        }
        __syncthreads();
        const float *x = &sm.q[d - d0][warp * OWN], *y = &sm.stage[0][lane * 4];
        const int rows = min(ROWS, end - d);
        if (first && second) add_rows<3>(x, TILE, y, rows, acc);
        else if (first) add_rows<1>(x, TILE, y, rows, acc);
        else add_rows<2>(x, TILE, y, rows, acc);
    }
}

// Where some queries see a key and others do not.
__device__ __forceinline__ void add_masked(const shared &sm, int j0, int first, int rows, float (&acc)[OWN][8])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int from[OWN], to[OWN];
#pragma unroll
    for (int n = 0; n < OWN; n++) from[n] = sm.from[warp * OWN + n], to[n] = sm.to[warp * OWN + n];
#pragma unroll 1
    for (int i = first; i < rows; i++) {
        float x[OWN], v[8];
        *(float4 *)x = *(const float4 *)&sm.s[j0 + i][warp * OWN];
        *(float4 *)(x + 4) = *(const float4 *)&sm.s[j0 + i][warp * OWN + 4];
        *(float4 *)v = *(const float4 *)&sm.stage[i][lane * 4];
        *(float4 *)(v + 4) = *(const float4 *)&sm.stage[i][128 + lane * 4];
#pragma unroll
        for (int n = 0; n < OWN; n++) {
            if (!(j0 + i >= from[n] && j0 + i < to[n])) continue;
#pragma unroll
            for (int d = 0; d < 8; d++) acc[n][d] = fma_(x[n], v[d], acc[n][d]);
        }
    }
}

// The same of PLANES for 16 slots at once: what is needed in between is computed anew, because no registers are left.
__device__ __forceinline__ void bring_planes(float *to, const uint8_t *v, const kv_codec &c, int slice, int slot)
{
    const int lane = thread_again() % 32, groups = c.groups();
    const lane_dims<PLANES> l = lane_dims_of<PLANES>(c, slice, lane);
    const unsigned short *s = (const unsigned short *)(v + v_codes(PLANES, c)) + slot * groups + l.group;
#pragma unroll 1
    for (int i = 0; i < 16; i += chunk<PLANES>::ROWS) {
        chunk<PLANES> raw;
        raw.load_v(v, l, slot + i);
#pragma unroll
        for (int k = 0; k < chunk<PLANES>::ROWS; k++, s += groups)
            *(float2 *)(to + (i + k) * COLS + lane * 2) = raw.value(k, half_f32(__ldg(s)), half_f32(__ldg(s + groups * PAGE)), l);
    }
}

// acc[i][j] += chain over keys [from, to) of query 8 warp + i and dims d0 + 4 lane.. and d0 + 128 + 4 lane..
template <int F>
__device__ __forceinline__ void values(shared &sm, const uint8_t *const (&v)[4], const kv_codec &c, int d0, int from, int to, int common_from,
                                       int common_to, float (&acc)[OWN][8])
{
    constexpr bool EARLY = F != PLANES; // as for keys
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % 4, half = warp / 4;
    const lane_dims<F> dims = lane_dims_of<F>(c, d0 / 64 + slice, lane);
    half_stage<F> raw;
    int j = from / ROWS * ROWS;
    if (EARLY) raw.load_v(pick(v, j / PAGE), c, dims, j % PAGE + half * 16);
    for (; j < to; j += ROWS) {
        __syncthreads();
        float *const to_stage = &sm.stage[half * 16][slice * 64];
        if (EARLY) raw.put_v(to_stage, lane, dims);
        else bring_planes(to_stage, pick(v, j / PAGE), c, d0 / 64 + slice, j % PAGE + half * 16);
        int next = j + ROWS;
        if (EARLY && next < to) raw.load_v(pick(v, next / PAGE), c, dims, next % PAGE + half * 16);
        __syncthreads();
        if (j >= common_from && next <= common_to) add_rows<3>(&sm.s[j][warp * OWN], S_STRIDE, &sm.stage[0][lane * 4], ROWS, acc);
        else add_masked(sm, j, max(0, from - j), min(ROWS, to - j), acc);
    }
}

__device__ __forceinline__ int clamp_key(int x)
{
    return x < 0 ? 0 : x > SEGMENT ? SEGMENT : x;
}

// The leaves of query n that were pushed; T is a binary counter of them.
__device__ __forceinline__ int leaves_of(const shared &sm, int n, int seg0)
{
    return (sm.end[n] - 1) / SEGMENT - seg0 + 1;
}

template <int K>
__device__ __forceinline__ void tile_of_prompt(shared &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, float *stack)
{
    __shared__ bool started; // the segment is one of the first positions; not in a register, of which there are none left
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, dim = a.kv.head_dim;
#define KV(field) (started ? a.start.field : a.kv.field)
    auto query = [&](int n) {
        int at = t.head + n;
        return (const float *)a.q + (t.row + at / a.ratio) * a.ldq + (int64_t)(t.kv_head * a.ratio + at % a.ratio) * dim;
    };
    auto load_q = [&](int d0) {
        const int n = tid % TILE;
        const float *from = n < t.n_q ? query(n) + d0 : 0;
#pragma unroll 4
        for (int d = tid / TILE * 4; d < CHAIN; d += THREADS / TILE * 4) {
            float4 v = make_float4(0, 0, 0, 0);
            if (from && d0 + d < dim) v = *(const float4 *)(from + d);
            sm.q[d][n] = v.x, sm.q[d + 1][n] = v.y, sm.q[d + 2][n] = v.z, sm.q[d + 3][n] = v.w;
        }
    };
    __syncthreads();
    if (tid < TILE) {
        sm.lo[tid] = sm.end[tid] = 0;
        if (tid < t.n_q) {
            ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[t.row + (t.head + tid) / a.ratio];
            sm.lo[tid] = row.lo, sm.end[tid] = row.end;
        }
    }
    if (dim <= CHAIN) load_q(0);
    for (int seg = t.seg0; seg < t.seg0 + t.n_seg; seg++) {
        const int count = seg - t.seg0;
        __syncthreads();
        if (tid == 0) started = seg * 4 < a.n_start;
        if (tid < TILE) sm.from[tid] = clamp_key(sm.lo[tid] - seg * SEGMENT), sm.to[tid] = clamp_key(sm.end[tid] - seg * SEGMENT);
        __syncthreads();
        int all_from = SEGMENT, all_to = 0, common_from = 0, common_to = SEGMENT;
        for (int n = 0; n < t.n_q; n++) {
            int from = sm.from[n], to = sm.to[n];
            common_from = max(common_from, from), common_to = min(common_to, to);
            if (from < to) all_from = min(all_from, from), all_to = max(all_to, to);
        }
        const int64_t mine = t.kv_head * (KV(k_bytes) + KV(v_bytes)) + KV(k_bytes);
        const uint8_t *v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            u64 page = all_from < (p + 1) * PAGE && all_to > p * PAGE ? page_block(started ? a.start : a.kv, t.view, seg * 4 + p) : 0;
            if (!page && all_from < p * PAGE && all_to > p * PAGE) page = page_block(started ? a.start : a.kv, t.view, seg * 4 + all_from / PAGE); // absent: nobody sees it
            v[p] = page ? (const uint8_t *)page + mine : 0;
        }

        float acc[OWN][8];
        for (int d0 = 0; d0 < dim; d0 += CHAIN) {
            if (dim > CHAIN) {
                __syncthreads();
                load_q(d0);
            }
            if (d0) { // the first chain waits where its scores will be
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    float *s = &sm.s[key_of(lane, j)][warp * OWN];
                    *(float4 *)s = make_float4(acc[0][j], acc[1][j], acc[2][j], acc[3][j]);
                    *(float4 *)(s + 4) = make_float4(acc[4][j], acc[5][j], acc[6][j], acc[7][j]);
                }
            }
#pragma unroll
            for (int n = 0; n < OWN; n++)
#pragma unroll
                for (int j = 0; j < 8; j++) acc[n][j] = 0;
            int end = min(dim, d0 + CHAIN);
            if (grouped(K) && KV(k_format) == BF16) scores<BF16>(sm, v, KV(k_bytes), keys_of(started ? a.start : a.kv), d0, end, acc);
            else scores<K>(sm, v, KV(k_bytes), keys_of(started ? a.start : a.kv), d0, end, acc);
        }
        if (dim > CHAIN) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float *s = &sm.s[key_of(lane, j)][warp * OWN];
#pragma unroll
                for (int n = 0; n < OWN; n++) acc[n][j] = s[n] + acc[n][j];
            }
        }

        // weights: a warp has all keys of its queries
        float key_scale[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int key = key_of(lane, j);
            const uint8_t *at = pick(v, key / PAGE);
            bool seen = key >= all_from && key < all_to;
            key_scale[j] = K == I16 && seen ? ((const float *)(at - KV(k_bytes) + k_codes(I16, keys_of(started ? a.start : a.kv))))[key % PAGE] : 1.0f;
            if (KV(v_format) == I16 && warp == 0) sm.value_scale[key] = seen ? ((const float *)(at + k_codes(I16, keys_of(started ? a.start : a.kv))))[key % PAGE] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < OWN; n++) {
            int from = sm.from[warp * OWN + n], to = sm.to[warp * OWN + n], most = INT32_MIN, n_of[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                int key = key_of(lane, j);
                float s = acc[n][j];
                if (K == I16) s = s * key_scale[j];
                acc[n][j] = exp_split(s, &n_of[j]);
                if (key >= from && key < to) most = max(most, n_of[j]);
            }
            most = __reduce_max_sync(~0u, most);
            if (lane == 0) sm.leaf_m[warp * OWN + n] = most;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                int key = key_of(lane, j);
                acc[n][j] = key >= from && key < to ? acc[n][j] * factor(n_of[j] - most) : 0.0f;
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float *s = &sm.s[key_of(lane, j)][warp * OWN];
            *(float4 *)s = make_float4(acc[0][j], acc[1][j], acc[2][j], acc[3][j]);
            *(float4 *)(s + 4) = make_float4(acc[4][j], acc[5][j], acc[6][j], acc[7][j]);
        }
        __syncthreads();
        { // l: thread (g, n) has lanes g, g + 4, g + 8, g + 12 of query n
            int n = tid % TILE, g = tid / TILE;
            float sum[4] = {0, 0, 0, 0};
            for (int j = 0; j < SEGMENT; j += 16)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[i] = sum[i] + sm.s[j + g + 4 * i][n];
            sm.part[g][n] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
        }
        __syncthreads();
        if (tid < TILE) sm.leaf_l[tid] = (sm.part[0][tid] + sm.part[2][tid]) + (sm.part[1][tid] + sm.part[3][tid]);
        if (KV(v_format) == I16) {
            for (int i = tid; i < SEGMENT * TILE; i += THREADS) sm.s[i / TILE][i % TILE] = sm.s[i / TILE][i % TILE] * sm.value_scale[i / TILE];
        }
        __syncthreads();

        for (int d0 = 0; d0 < dim; d0 += COLS) {
#pragma unroll
            for (int n = 0; n < OWN; n++)
#pragma unroll
                for (int d = 0; d < 8; d++) acc[n][d] = 0;
#define VALUES(F) \
    case F: values<F>(sm, v, values_of(started ? a.start : a.kv), d0, all_from, all_to, common_from, common_to, acc); break;
            switch (KV(v_format)) {
                VALUES(F32) VALUES(F16) VALUES(BF16) VALUES(I16) VALUES(Q8) VALUES(Q4) VALUES(PLANES)
            }
            // push the leaf: this thread's elements of each query that saw something
#pragma unroll
            for (int n = 0; n < OWN; n++) {
                const int q = warp * OWN + n;
                if (sm.from[q] >= sm.to[q]) continue;
                int m = sm.leaf_m[q], level = 0;
                float *node = stack + (int64_t)q * dim + d0;
                for (; count >> level & 1; level++) {
                    int mine_m = sm.m[level][q], both = max(mine_m, m);
                    float fa = factor(mine_m - both), fb = factor(m - both);
                    const float *left = node + (int64_t)level * TILE * dim;
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int d = h * 128 + lane * 4;
                        if (d0 + d >= dim) continue;
                        float4 x = *(const float4 *)(left + d);
                        acc[n][h * 4] = x.x * fa + acc[n][h * 4] * fb;
                        acc[n][h * 4 + 1] = x.y * fa + acc[n][h * 4 + 1] * fb;
                        acc[n][h * 4 + 2] = x.z * fa + acc[n][h * 4 + 2] * fb;
                        acc[n][h * 4 + 3] = x.w * fa + acc[n][h * 4 + 3] * fb;
                    }
                    m = both;
                }
                float *to = node + (int64_t)level * TILE * dim;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int d = h * 128 + lane * 4;
                    if (d0 + d < dim) *(float4 *)(to + d) = make_float4(acc[n][h * 4], acc[n][h * 4 + 1], acc[n][h * 4 + 2], acc[n][h * 4 + 3]);
                }
            }
        }
        __syncthreads();
        if (tid < TILE && sm.from[tid] < sm.to[tid]) {
            int m = sm.leaf_m[tid], level = 0;
            float l = sm.leaf_l[tid];
            for (; count >> level & 1; level++) {
                int left = sm.m[level][tid], both = max(left, m);
                l = sm.l[level][tid] * factor(left - both) + l * factor(m - both);
                m = both;
            }
            sm.l[level][tid] = l, sm.m[level][tid] = m;
        }
    }
    __syncthreads();

    // fold: nodes that are left, from the lowest level up
    for (int n = 0; n < OWN; n++) {
        const int q = warp * OWN + n;
        if (q >= t.n_q) break;
        const int leaves = leaves_of(sm, q, t.seg0), at = t.head + q;
        float *out = (float *)a.o + (t.row + at / a.ratio) * a.ldo + (int64_t)(t.kv_head * a.ratio + at % a.ratio) * dim;
        for (int d = lane * 4; d < dim; d += 128) {
            float4 sum = make_float4(0, 0, 0, 0);
            float l = 0;
            int m = 0;
            bool any = false;
            for (int level = 0; leaves >> level; level++) {
                if (!(leaves >> level & 1)) continue;
                float4 x = *(const float4 *)(stack + (int64_t)level * TILE * dim + (int64_t)q * dim + d);
                float left_l = sm.l[level][q];
                int left_m = sm.m[level][q];
                if (!any) sum = x, l = left_l, m = left_m;
                else {
                    int both = max(left_m, m);
                    float fa = factor(left_m - both), fb = factor(m - both);
                    sum = make_float4(x.x * fa + sum.x * fb, x.y * fa + sum.y * fb, x.z * fa + sum.z * fb, x.w * fa + sum.w * fb);
                    l = left_l * fa + l * fb;
                    m = both;
                }
                any = true;
            }
            *(float4 *)(out + d) = make_float4(__fdiv_rn(sum.x + 0.0f, l), __fdiv_rn(sum.y + 0.0f, l), __fdiv_rn(sum.z + 0.0f, l),
                                               __fdiv_rn(sum.w + 0.0f, l));
        }
    }
}

// Any grid: a block of threads takes tile blockIdx.x, blockIdx.x + gridDim.x, ... One kernel per format of
// keys; the format of values is a branch.
#define PROMPT(name, K)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                       \
        EK_DYNAMIC_SHARED(uint8_t, base); \
        let_next_start();                                                                                   \
        wait_for_previous();                                                                                \
        float *stack = (float *)a.leaf_o + (int64_t)blockIdx.x * a.levels * TILE * a.kv.head_dim;           \
        for (int i = blockIdx.x; i < a.n_tiles; i += gridDim.x)                                             \
            tile_of_prompt<K>(*(shared *)base, a, ((const ek_cuda_attn_tile *)a.tiles)[i], stack);          \
    }
PROMPT(ek_attn_prompt_f32, F32)
PROMPT(ek_attn_prompt_f16, F16)
PROMPT(ek_attn_prompt_bf16, BF16)
PROMPT(ek_attn_prompt_16, I16)
PROMPT(ek_attn_prompt_8, Q8)
PROMPT(ek_attn_prompt_4, Q4)
PROMPT(ek_attn_prompt_planes, PLANES)

static_assert(sizeof(shared) == EK_CUDA_PROMPT_SHARED, "args.h says what a launch must ask for");
