// The sums of prompts' attention (attn_prompt.cu): scores and values of 64 queries over a stage of 32 rows (dims of
// keys, or values), which is decoded once for all queries while the previous stage is added.
#pragma once

#include "cuda/kernels/kv.cuh"

namespace ek
{

// OWN: queries per warp; BRINGS: rows of a stage that a warp decodes; CHAIN: dims of a chain, of which DIMS are in
// shared memory at once. EK_PROMPT_SMALL: half of the queries and rows, by half of the threads, in 80 KB; not for 4-bit
// keys, which arrive in 32 rows.
#ifdef EK_PROMPT_SMALL
inline namespace small_prompt
{
constexpr int TILE = EK_CUDA_PROMPT_SMALL_TILE, THREADS = 128, DIMS = 64;
#else
inline namespace large_prompt
{
constexpr int TILE = EK_CUDA_PROMPT_TILE, THREADS = 256, DIMS = 256;
#endif
constexpr int WARPS = THREADS / 32, OWN = TILE / WARPS, BRINGS = 16, ROWS = BRINGS * (WARPS / 4), COLS = 256;
constexpr int MAX_LEVELS = 12, CHAIN = 256;

// The part of a segment that a warp's queries see: keys [from, to) are seen by some query, keys [common_from,
// common_to) by all queries that see any.
struct visible {
    int from, to, common_from, common_to;
    __device__ __forceinline__ int halves() const // of the segment: bits 0 and 1
    {
        return (from < 128 && from < to) | (to > 128 && from < to) << 1;
    }
};

struct shared {
    float stage[2][ROWS][COLS]; // keys: [dim][key]; values: [key][dim]
    float q[DIMS][TILE];        // of one chain
    float s[SEGMENT][TILE];     // scores, then the operands of the fma; see piece_of
    float part[4][TILE];        // of l
    float l[MAX_LEVELS][TILE];  // of the nodes of T
    int m[MAX_LEVELS][TILE];
    float leaf_l[TILE];
    int leaf_m[TILE];
    int from[TILE], to[TILE]; // of the segment
    int lo[TILE], end[TILE];
    float value_scale[SEGMENT];
    const uint8_t *page[SEGMENT / PAGE]; // values of the KV head, its keys lie before them; 0: no query sees them
    kv_codec keys, values;               // of the segment; kept here so that derived values need no registers
    visible all, own[TILE / OWN];        // of the tile's queries, of a warp's
    ek_cuda_attn_tile tile;              // and the number of the next one
    int next;
};

// The place of four queries, number `piece`, in a key's row of s: permuted by the key, so that lanes of different keys
// write to different banks.
__device__ __forceinline__ int piece_of(int piece, int key)
{
    return (piece ^ (key / 4 & 7)) * 4;
}

// The same for row i of the stage that begins with `key`: stages of 32 rows begin where nothing is permuted.
__device__ __forceinline__ int turn_of(int key, int i)
{
    return ROWS % 32 ? key + i : i;
}

// 16 rows of 64 elements as in memory: a warp's part of a stage.
template <int F> struct half_stage {
    static constexpr int K_PARTS = chunk<F>::K_ROWS < 16 ? 2 : 1, V_PARTS = 16 / chunk<F>::ROWS, PARTS = V_PARTS;
    chunk<F> c[PARTS];
    static constexpr int SCALES = grouped(F) ? 16 : 1;
    u32 scale[SCALES]; // V: the row's scale, bias above it

    __device__ __forceinline__ void load_k(const uint8_t *k, const kv_codec &of, int d, int lane)
    {
#pragma unroll
        for (int i = 0; i < K_PARTS; i++) {
            if (d + i * 8 + chunk<F>::K_ROWS <= of.dim) c[i].template load_k<false>(k, of, d + i * 8, lane);
            else c[i].template load_k<true>(k, of, d + i * 8, lane);
        }
    }

    // to: the stage at the warp's first row and column
    __device__ __forceinline__ void put_k(float *to, int lane) const
    {
#pragma unroll
        for (int i = 0; i < (F == Q4 ? 32 : 16); i++)
            *(float2 *)(to + i * COLS + lane * 2) = c[i / 8 % K_PARTS].key(K_PARTS == 2 ? i % 8 : i);
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
            float s = SCALES > 1 ? half_f32(scale[i % SCALES] & 0xffffu) : 0,
                  b = affine(F) ? half_f32(scale[i % SCALES] >> 16) : 0;
            float2 v = c[i / 8 % V_PARTS].value(V_PARTS == 2 ? i % 8 : i, s, b, l);
            if (F == Q4) {
                float *at = to + i * COLS + lane / 16 * 32 + (lane % 16 ^ 1);
                at[0] = v.x, at[16] = v.y;
            } else *(float2 *)(to + i * COLS + lane * 2) = make_float2(v.y, v.x);
        }
    }
};

// Key j of a lane: four adjacent ones in each half of the segment.
__device__ __forceinline__ int key_of(int lane, int j)
{
    return j / 4 * 128 + lane * 4 + j % 4;
}

// Rows [from, to) of the stage, both multiples of 4: acc[n][j] += x[n] y[j] for x of 8 queries and y of 8 columns, of
// which HALVES (bits 0 and 1) are needed. TURNED: x is s, at the stage's first key, and y has its neighbours exchanged.
// Sums are stored in fours, and would otherwise be in the same bank of registers as their y. Queries alternate their
// direction over the columns, so a y is kept at the turn.
template <int HALVES, bool TURNED>
__device__ __forceinline__ void add_rows(const float *x, const float *y, int from, int to, float (&acc)[OWN][8],
                                         int key = 0)
{
    const int piece = threadIdx.x / 32 * (OWN / 4);
    float a[2][OWN], b[2][8];
    // the last row of four requests the first of the next four, or itself once more
    auto read = [&](int row, int block, float(&a)[OWN], float(&b)[8]) {
#pragma unroll
        for (int n = 0; n < OWN; n += 4)
            *(float4 *)(a + n) = *(
                const float4 *)(x + row * TILE +
                                (TURNED ? piece_of(piece + n / 4, turn_of(key, block)) : (piece * 4 + n)));
        if (HALVES & 1) *(float4 *)b = *(const float4 *)(y + row * COLS);
        if (HALVES & 2) *(float4 *)(b + 4) = *(const float4 *)(y + row * COLS + 128);
    };
    if (from >= to) return;
    read(from, from, a[0], b[0]);
#pragma unroll 1
    for (int i = from; i < to; i += 4) {
        const int next = i + 4 < to ? i + 4 : i;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k < 3) read(i + k + 1, i, a[(k + 1) % 2], b[(k + 1) % 2]);
            else read(next, next, a[(k + 1) % 2], b[(k + 1) % 2]);
#pragma unroll
            for (int n = 0; n < OWN; n++)
#pragma unroll
                for (int turn = 0; turn < 8; turn++) {
                    const int j = n & 1 ? 7 - turn : turn;
                    if (HALVES >> j / 4 & 1) acc[n][j] = fma_(a[k % 2][n], b[k % 2][TURNED ? j ^ 1 : j], acc[n][j]);
                }
        }
    }
}

// acc[i][j] += chain over dims [d0, end) of query 8 warp + i and key j, of the halves that the warp's queries see
template <int F>
__device__ __forceinline__ void scores(shared &sm, int64_t k_bytes, int d0, int end, float (&acc)[OWN][8])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, page = warp % 4, half = warp / 4;
    const uint8_t *at = sm.page[page];
    const bool brings = at && (F != Q4 || half == 0);
    half_stage<F> raw;
    constexpr bool EARLY =
        F != F32; // the row after the next is fetched while these are added; f32 has no registers left for it
    auto load = [&](int d) { raw.load_k(at - k_bytes, sm.keys, d + half * BRINGS, lane); };
    auto put = [&](int to) { raw.put_k(&sm.stage[to][half * BRINGS][page * PAGE], lane); };
    if (brings) load(d0);
    __syncthreads();
    if (brings) {
        put(0);
        if (EARLY && d0 + ROWS < end) load(d0 + ROWS);
    }
    for (int d = d0, now = 0; d < end; d += ROWS, now ^= 1) {
        __syncthreads();
        if (brings && d + ROWS < end) {
            if (!EARLY) load(d + ROWS);
            put(now ^ 1);
            if (EARLY && d + 2 * ROWS < end) load(d + 2 * ROWS);
        }
        const float *x = sm.q[d - d0], *y = &sm.stage[now][0][lane * 4];
        const int rows = min(ROWS, end - d), halves = sm.own[warp].halves();
        if (halves == 3) add_rows<3, false>(x, y, 0, rows, acc);
        else if (halves == 1) add_rows<1, false>(x, y, 0, rows, acc);
        else if (halves == 2) add_rows<2, false>(x, y, 0, rows, acc);
    }
}

// Rows [first, rows) of a stage of values, where some queries see a key and others do not. j0: the stage's first key.
__device__ __forceinline__ void add_masked(const shared &sm, const float *y, int j0, int first, int rows,
                                           float (&acc)[OWN][8])
{
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int i = first; i < rows; i++) {
        float x[OWN], v[8];
#pragma unroll
        for (int n = 0; n < OWN; n += 4)
            *(float4 *)(x + n) = *(const float4 *)&sm.s[j0 + i][piece_of(warp * (OWN / 4) + n / 4, turn_of(j0, i))];
        *(float4 *)v = *(const float4 *)(y + i * COLS);
        *(float4 *)(v + 4) = *(const float4 *)(y + i * COLS + 128);
#pragma unroll
        for (int n = 0; n < OWN; n++) {
            if (j0 + i < sm.from[warp * OWN + n] || j0 + i >= sm.to[warp * OWN + n]) continue;
#pragma unroll
            for (int d = 0; d < 8; d++) acc[n][d] = fma_(x[n], v[d ^ 1], acc[n][d]);
        }
    }
}

// The same for PLANES, 16 slots at once: intermediate values are recomputed, because no registers are left.
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
        for (int k = 0; k < chunk<PLANES>::ROWS; k++, s += groups) {
            const float2 v = raw.value(k, half_f32(__ldg(s)), half_f32(__ldg(s + groups * PAGE)), l);
            *(float2 *)(to + (i + k) * COLS + lane * 2) = make_float2(v.y, v.x);
        }
    }
}

// acc[i][j] += the chain over the keys in [from, to) that query 8 warp + i sees, for dims d0 + 4 lane .. and d0 + 128 +
// 4 lane ..
template <int F> __device__ __forceinline__ void values(shared &sm, int d0, float (&acc)[OWN][8])
{
    constexpr bool EARLY = F != PLANES; // as for keys
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % 4, half = warp / 4;
    half_stage<F> raw;
    auto load = [&](int j) {
        const lane_dims<F> dims = lane_dims_of<F>(sm.values, d0 / 64 + slice, lane);
        raw.load_v(sm.page[j / PAGE], sm.values, dims, j % PAGE + half * BRINGS);
    };
    auto put = [&](int now, int j) {
        float *const to_stage = &sm.stage[now][half * BRINGS][slice * 64];
        if (EARLY) raw.put_v(to_stage, lane, lane_dims_of<F>(sm.values, d0 / 64 + slice, lane));
        else bring_planes(to_stage, sm.page[j / PAGE], sm.values, d0 / 64 + slice, j % PAGE + half * BRINGS);
    };
    const int to = sm.all.to;
    int j = sm.all.from / ROWS * ROWS;
    if (EARLY) load(j);
    __syncthreads();
    put(0, j);
    if (EARLY && j + ROWS < to) load(j + ROWS);
    for (int now = 0; j < to; j += ROWS, now ^= 1) {
        __syncthreads();
        if (j + ROWS < to) {
            put(now ^ 1, j + ROWS);
            if (EARLY && j + 2 * ROWS < to) load(j + 2 * ROWS);
        }
        const visible of = sm.own[warp];
        const int first = max(0, of.from - j), rows = min(ROWS, of.to - j);
        int all = min(max((of.common_from + 3) / 4 * 4 - j, 0), ROWS), some = min(of.common_to / 4 * 4 - j, ROWS);
        if (all >= some) all = some = max(first, rows); // there are no rows that all queries see
        const float *y = &sm.stage[now][0][lane * 4];
#pragma unroll 1
        for (int behind = 0; behind < 2; behind++) {
            add_masked(sm, y, j, behind ? some : first, behind ? rows : all, acc);
            if (!behind) add_rows<3, true>(sm.s[j], y, all, some, acc, j);
        }
    }
}

} // namespace

} // namespace ek
