// Attention of few queries over many keys (contract: ops/attn/attn.h), for tiles of 8 queries of one row and heads of
// 256 or 512 dims: the leaves of ek_attn_segment_8 of attn.cu, with few instructions besides the fma, because those are
// the limit there.
//
// A block is a segment of 256 keys. Its last warp copies pieces of the pages into a ring, by bulk copies, keys and then
// values, while the others compute. Scores: a warp has 128 keys, four per lane, and a chain of 256 dims. Values: 128
// dims, four per lane. So each element that is read from shared memory and decoded serves 32 fma of a lane.
#include "cuda/kernels/attn/attn_deep.cuh"

using namespace ek;

constexpr int N = EK_CUDA_ATTN_DEEP_TILE, MAX_SLOTS = EK_CUDA_ATTN_DEEP_SLOTS;

struct deep_shared {
    u64 full[MAX_SLOTS], empty[MAX_SLOTS], met, ready;
    __align__(16) int most[N][4]; // largest exponents of a warp's keys
};

struct ring_cursor {
    int slot = 0;
    u32 phase = 0;
    __device__ __forceinline__ void advance(int slots)
    {
        if (++slot == slots) slot = 0, phase ^= 1;
    }
};

// The place of weights: [j % 4][j / 4][N]. A lane has four keys, so neighbouring lanes write neighbouring places.
__device__ __forceinline__ int place_of(int j)
{
    return ((j & 3) * 64 + (j >> 2)) * N;
}

template <int DIM> struct deep_leaf {
    static constexpr int CHAINS = DIM / 256, WARPS = DIM / 128, CONSUMERS = WARPS * 32;
    const ek_cuda_attn_args &a;
    const ek_cuda_attn_tile &t;
    const ek_cuda_kv &kv;
    deep_shared &m;
    uint8_t *ring;
    float *q, *e, *w; // q: [DIM][N]; e: weights, in q's memory; w: e, or weights times scales: operands of the fma
    int slots, slot_bytes;
    int from, to;           // keys that the queries see
    int64_t leaf;           // number
    const uint8_t *page[4]; // the head's part, 0: not seen

    // --- the copying warp
    template <int F> __device__ __forceinline__ void copy_keys(int step, uint8_t *slot, u64 *full, int lane) const
    {
        using P = deep_piece<F, DIM>;
        constexpr int PARTS = affine(F) ? 3 : grouped(F) ? 2 : 1, CODES = P::CODES / CHAINS / 4;
        const int some = (to - 1) / PAGE - from / PAGE + 1;
        if (lane == 0) arrival_expect(full, some * CHAINS * (CODES + (PARTS - 1) * PAGE * 2));
        __syncwarp();
        const int part = lane / (4 * CHAINS), chain = lane / 4 % CHAINS, p = lane % 4;
        const uint8_t *at = p & 2 ? p & 1 ? page[3] : page[2] : p & 1 ? page[1] : page[0];
        if (part >= PARTS || !at) return;
        const int d = chain * 256 + step * P::STEP;
        if (part == 0) copy_piece(slot + lane * CODES, at + d / deep_keys<F>::DIMS * deep_keys<F>::ROW, CODES, full);
        else {
            const kv_codec c = keys_of(kv);
            const int64_t row = k_codes(F, c) + ((part - 1) * c.groups() + (d >> c.shift)) * PAGE * 2;
            copy_piece(slot + P::CODES + (part - 1) * P::SCALES + lane % (4 * CHAINS) * PAGE * 2, at + row, PAGE * 2,
                       full);
        }
    }

    template <int F> __device__ __forceinline__ void copy_values(int step, uint8_t *slot, u64 *full, int lane) const
    {
        using P = deep_piece<F, DIM>;
        constexpr int PARTS = affine(F) ? 3 : grouped(F) ? 2 : 1;
        const kv_codec c = values_of(kv);
        const int j = step * P::STEP, p = j / PAGE, scales = P::STEP * c.groups() * 2;
        if (lane == 0) arrival_expect(full, P::CODES + (PARTS - 1) * scales);
        __syncwarp();
        const uint8_t *at = (p & 2 ? p & 1 ? page[3] : page[2] : p & 1 ? page[1] : page[0]) + kv.k_bytes;
        if (lane == 0) copy_piece(slot, at + (int64_t)(j % PAGE) * (P::CODES / P::STEP), P::CODES, full);
        else if (lane < PARTS)
            copy_piece(slot + P::CODES + (lane - 1) * P::SCALES,
                       at + v_codes(F, c) + ((lane - 1) * PAGE + j % PAGE) * c.groups() * 2, scales, full);
    }

    template <int F> __device__ __forceinline__ int value_steps(int &first) const
    {
        constexpr int STEP = deep_piece<F, DIM>::STEP;
        first = from / STEP;
        return (to - 1) / STEP + 1 - first;
    }

#define EACH_FORMAT(f, CALL)      \
    switch (f) {                  \
    case F32: CALL(F32); break;   \
    case F16: CALL(F16); break;   \
    case BF16: CALL(BF16); break; \
    case I16: CALL(I16); break;   \
    case Q8: CALL(Q8); break;     \
    case Q4: CALL(Q4); break;     \
    }

    // Steps [step, end) of keys and values.
    __device__ __forceinline__ void copy(int step, int end, int key_steps, int first_value, ring_cursor &at,
                                         int lane) const
    {
#pragma unroll 1
        for (; step < end; step++, at.advance(slots)) {
            if (step >= slots) arrival_wait(m.empty + at.slot, at.phase ^ 1);
            uint8_t *const slot = ring + at.slot * slot_bytes;
            u64 *const full = m.full + at.slot;
#define COPY_KEYS(F)   copy_keys<F>(step, slot, full, lane)
#define COPY_VALUES(F) copy_values<F>(step - key_steps + first_value, slot, full, lane)
            if (step < key_steps) EACH_FORMAT(kv.k_format, COPY_KEYS)
            else EACH_FORMAT(kv.v_format, COPY_VALUES)
        }
    }

    // l and m of the leaf: lanes l and l + 8 of a query, added 8, 4, 2, 1 apart.
    __device__ __forceinline__ void sums(int lane) const
    {
        const int l = lane % 8;
#pragma unroll 1
        for (int n = lane / 8; n < N; n += 4) {
            float s0 = 0, s1 = 0;
#pragma unroll 4
            for (int j = l; j < SEGMENT; j += 16) s0 = s0 + e[place_of(j) + n], s1 = s1 + e[place_of(j + 8) + n];
            float total = s0 + s1;
#pragma unroll
            for (int apart = 4; apart; apart /= 2) total = total + __shfl_down_sync(~0u, total, apart, 8);
            if (l) continue;
            ((float *)a.leaf_l)[leaf * N + n] = total;
            ((int *)a.leaf_m)[leaf * N + n] = largest(n);
        }
    }

    __device__ __forceinline__ int largest(int n) const
    {
        const int4 x = *(const int4 *)m.most[n];
        return max(x.x, x.y);
    }

    // --- the other warps
    template <int F> __device__ __forceinline__ void scores(float (&s)[N][4], ring_cursor &at, int warp, int lane) const
    {
        using P = deep_piece<F, DIM>;
        using K = deep_keys<F>;
        constexpr int ROWS = P::STEP / K::DIMS;
        [[maybe_unused]] constexpr int UNROLL = 8 / K::DIMS;
        const int page4 = warp * 2 + lane / 16, own = lane % 16 * 4; // chains after another: pages of a chain are four
        const float *x = q + warp / 2 * 256 * N;
#pragma unroll 1
        for (int step = 0; step < 256 / P::STEP; step++, at.advance(slots)) {
            const uint8_t *const slot = ring + at.slot * slot_bytes;
            const uint8_t *k = slot + page4 * (P::CODES / CHAINS / 4) + own * K::ROW / PAGE;
            arrival_wait(m.full + at.slot, at.phase);
            K keys;
            keys.scales(slot + P::CODES + page4 * (PAGE * 2) + own * 2, P::SCALES);
#pragma unroll UNROLL
            for (int r = 0; r < ROWS; r++, k += K::ROW) {
                float key[K::DIMS][4];
                keys.decode(key, k);
#pragma unroll
                for (int d = 0; d < K::DIMS; d++, x += N) {
                    float v[N];
                    load_queries<N>(v, x);
                    add_products<N>(s, v, key[d]);
                }
            }
            arrival_tell(m.empty + at.slot);
        }
    }

    __device__ __forceinline__ void meet(u32 phase) const
    {
        arrival_tell(&m.met);
        arrival_wait(&m.met, phase);
    }

    // Weights of the lane's keys for queries [N0, N0 + COUNT) of s, into e.
    template <int COUNT>
    __device__ __forceinline__ void weights(float (&s)[COUNT][4], int n0, int pair, int lane, u32 phase,
                                            const float4 &key_scale, const float4 &value_scale) const
    {
        int exponent[COUNT][4];
        const int j0 = pair * 128 + lane * 4;
        const float ks[4] = {key_scale.x, key_scale.y, key_scale.z, key_scale.w},
                    vs[4] = {value_scale.x, value_scale.y, value_scale.z, value_scale.w};
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            int most = INT32_MIN;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (kv.k_format == I16) s[n][i] = s[n][i] * ks[i];
                s[n][i] = exp_split(s[n][i], &exponent[n][i]);
                if (j0 + i >= from && j0 + i < to) most = max(most, exponent[n][i]);
            }
            most = __reduce_max_sync(~0u, most);
            if (lane == 0) m.most[n0 + n][pair] = most;
        }
        meet(phase);
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            const int most = largest(n0 + n);
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = j0 + i >= from && j0 + i < to ? s[n][i] * factor(exponent[n][i] - most) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < COUNT; n += 4)
                *(float4 *)(e + place_of(j0 + i) + n0 + n) = make_float4(s[n][i], s[n + 1][i], s[n + 2][i],
                                                                         s[n + 3][i]);
        if (kv.v_format != I16) return;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < COUNT; n += 4)
                *(float4 *)(w + place_of(j0 + i) + n0 + n) = make_float4(s[n][i] * vs[i], s[n + 1][i] * vs[i],
                                                                         s[n + 2][i] * vs[i], s[n + 3][i] * vs[i]);
    }

    template <int F>
    __device__ __forceinline__ void add(float (&o)[N][4], const deep_values<F> &v, const uint8_t *piece, int i,
                                        const float *weight) const
    {
        float x[N], value[4];
        v.decode(value, piece, i, deep_piece<F, DIM>::CODES / deep_piece<F, DIM>::STEP);
        load_queries<N>(x, weight);
        add_products<N>(o, x, value);
    }

    template <int F> __device__ __forceinline__ void values(ring_cursor &at, int warp, int lane) const
    {
        using P = deep_piece<F, DIM>;
        constexpr int UNROLL = P::STEP < 8 ? P::STEP : 8;
        float o[N][4] = {};
        deep_values<F> v;
        const kv_codec c = values_of(kv);
        v.open(warp, lane, c.shift, c.groups(), P::CODES, P::SCALES);
        int first;
        const int count = value_steps<F>(first);
#pragma unroll 1
        for (int step = first; step < first + count; step++, at.advance(slots)) {
            const uint8_t *piece = ring + at.slot * slot_bytes;
            const int j0 = step * P::STEP, begin = max(from - j0, 0), end = min(to - j0, P::STEP);
            const float *weight = w + place_of(j0);
            arrival_wait(m.full + at.slot, at.phase);
            if (end - begin == P::STEP) {
#pragma unroll 1
                for (int i0 = 0; i0 < P::STEP; i0 += UNROLL)
#pragma unroll
                    for (int i = 0; i < UNROLL; i++) add<F>(o, v, piece, i0 + i, weight + i0 / 4 * N + place_of(i));
            } else
#pragma unroll 1
                for (int i = begin; i < end; i++) add<F>(o, v, piece, i, weight + place_of(i));
            arrival_tell(m.empty + at.slot);
        }
        float *const out = (float *)a.leaf_o + leaf * N * DIM + v.dim;
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (F != Q4) *(float4 *)(out + n * DIM) = make_float4(o[n][0], o[n][1], o[n][2], o[n][3]);
            else {
                *(float2 *)(out + n * DIM) = make_float2(o[n][0], o[n][1]);
                *(float2 *)(out + n * DIM + 16) = make_float2(o[n][2], o[n][3]);
            }
        }
    }

    // Scores and weights of all keys.
    __device__ __forceinline__ void weigh(ring_cursor &at, int warp, int lane) const
    {
        float s[N][4] = {};
        float4 key_scale = {}, value_scale = {};
        const int pair = warp % 2, p = pair * 2 + lane / 16;
        const uint8_t *const own = p & 2 ? p & 1 ? page[3] : page[2] : p & 1 ? page[1] : page[0];
        if (kv.k_format == I16 && own) key_scale = *(const float4 *)(own + k_codes(I16, keys_of(kv)) + lane % 16 * 16);
        if (kv.v_format == I16 && own)
            value_scale = *(const float4 *)(own + kv.k_bytes + v_codes(I16, values_of(kv)) + lane % 16 * 16);
#define SCORES(F) scores<F>(s, at, warp, lane)
        EACH_FORMAT(kv.k_format, SCORES)
        if (CHAINS == 1) weights<N>(s, 0, pair, lane, 1, key_scale, value_scale);
        else { // two warps have these keys: each weighs four queries and gets the other's sums for them
            const int chain = warp / 2;
            float *const other = q + 8 * SEGMENT + (pair * 32 + lane) * 4; // [chain][key of four][lanes][4 queries]
            meet(1);
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float4 *)(other + (chain * 4 + i) * 256) = chain ? make_float4(s[0][i], s[1][i], s[2][i], s[3][i])
                                                                   : make_float4(s[4][i], s[5][i], s[6][i], s[7][i]);
            meet(0);
            float both[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 x = *(const float4 *)(other + ((chain ^ 1) * 4 + i) * 256);
                both[0][i] = (chain ? s[4][i] : s[0][i]) + x.x, both[1][i] = (chain ? s[5][i] : s[1][i]) + x.y;
                both[2][i] = (chain ? s[6][i] : s[2][i]) + x.z, both[3][i] = (chain ? s[7][i] : s[3][i]) + x.w;
            }
            weights<4>(both, chain * 4, pair, lane, 1, key_scale, value_scale);
        }
    }
};

template <int DIM> __device__ __forceinline__ void deep(const ek_cuda_attn_args &a)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ deep_shared m;
    using leaf = deep_leaf<DIM>;
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    let_next_start();
    if (item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    const ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[item.tile];
    const ek_cuda_kv kv = kv_at(a, item.seg * 4);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, row = row_of(a, t, 0);
    const ek_cuda_attn_row seen = ((const ek_cuda_attn_row *)a.rows)[row];
    constexpr int WEIGHTS = SEGMENT * N * 4;
    const bool scaled = kv.v_format == I16;
    const int front = max(DIM * N * 4, scaled ? 2 * WEIGHTS : 0);
    leaf h = {a, t, kv, m, base + front, (float *)base, (float *)base, (float *)(base + (scaled ? WEIGHTS : 0))};
    h.from = clamp_key(seen.lo - item.seg * SEGMENT), h.to = clamp_key(seen.end - item.seg * SEGMENT);
    h.leaf = t.leaf0 + item.seg - t.seg0;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const u64 at = h.from < (p + 1) * PAGE && h.to > p * PAGE ? page_block(kv, t.view, item.seg * 4 + p) : 0;
        h.page[p] = at ? (const uint8_t *)at + t.kv_head * (kv.k_bytes + kv.v_bytes) : 0;
    }
    int key_steps = 0, value_steps = 0, first_value = 0, k_slot = 0, v_slot = 0;
#define OF_KEYS(F)   key_steps = 256 / deep_piece<F, DIM>::STEP, k_slot = deep_piece<F, DIM>::BYTES
#define OF_VALUES(F) value_steps = h.template value_steps<F>(first_value), v_slot = deep_piece<F, DIM>::BYTES
    EACH_FORMAT(kv.k_format, OF_KEYS)
    EACH_FORMAT(kv.v_format, OF_VALUES)
    h.slot_bytes = max(k_slot, v_slot), h.slots = min(MAX_SLOTS, (EK_CUDA_ATTN_DEEP_SHARED - front) / h.slot_bytes);
    if (tid == leaf::CONSUMERS) {
#pragma unroll 1
        for (int i = 0; i < h.slots; i++) arrival_open(m.full + i), arrival_open(m.empty + i, leaf::CONSUMERS);
        arrival_open(&m.met, leaf::CONSUMERS), arrival_open(&m.ready, leaf::CONSUMERS);
        arrival_fence();
    }
    __syncthreads();
    ring_cursor at;
    if (warp == leaf::WARPS) {
        const int all = key_steps + value_steps,
                  ahead = a.single && item.seg != (seen.end - 1) / SEGMENT ? min(h.slots, all) : 0;
        h.copy(0, ahead, key_steps, first_value, at, lane); // pages that no earlier kernel writes
        wait_for_previous();
        h.copy(ahead, all, key_steps, first_value, at, lane);
        arrival_wait(&m.ready, 0);
        h.sums(lane);
        return;
    }
    wait_for_previous();
    const float *from = (const float *)a.q + row * a.ldq + (int64_t)head_of(a, t, 0) * DIM;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int d = tid + i * leaf::CONSUMERS;
        float x[N];
#pragma unroll
        for (int n = 0; n < N; n++) x[n] = from[n * DIM + d];
        *(float4 *)(h.q + d * N) = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)(h.q + d * N + 4) = make_float4(x[4], x[5], x[6], x[7]);
    }
    h.meet(0);
    h.weigh(at, warp, lane);
    arrival_tell(&m.ready);
    arrival_wait(&m.ready, 0);
#define VALUES(F) h.template values<F>(at, warp, lane)
    EACH_FORMAT(kv.v_format, VALUES)
}

#define DEEP(DIM)                                                       \
    extern "C" __global__ void __launch_bounds__(DIM / 4 + 32, 4)       \
        ek_attn_deep_##DIM(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                   \
        deep<DIM>(a);                                                   \
    }
DEEP(256)
DEEP(512)
