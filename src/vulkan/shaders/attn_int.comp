// Attention in integers (ops/attn/attn_int.h): one segment of 256 keys for a tile of up to 8 queries of one KV head. A
// thread has a key for the scores, and then a dim for the values. grid (items)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
layout(local_size_x = 256) in;

const int TILE = 8, MAX_DIM = 512, LANES = 256 / TILE;
shared int query[TILE * MAX_DIM];   // bits of floats, then codes
shared int weight[TILE * SEGMENT];  // codes
shared uint query_top[TILE], weight_top[TILE];
shared int top_exponent[TILE], sum_weight[TILE];
shared ivec2 seen[TILE];

// Codes of the queries, by 32 threads each; the scale of query n is query_top's over QUERY_CODE.
const float QUERY_CODE = 2047.0, WEIGHT_CODE = 16383.0;

void rotate_queries(int n, int lane, int dim)
{
    const int block = dim & -dim;
    for (int h = 1; h < block; h *= 2) {
        for (int i = lane; i < dim / 2; i += LANES) {
            const int at = n * MAX_DIM + i / h * 2 * h + i % h;
            const float x = intBitsToFloat(query[at]), y = intBitsToFloat(query[at + h]);
            query[at] = floatBitsToInt(add_(x, y)), query[at + h] = floatBitsToInt(sub_(x, y));
        }
        barrier();
    }
}

void code_queries(tile_of_queries t, int dim)
{
    const int n = int(gl_LocalInvocationID.x) / LANES, lane = int(gl_LocalInvocationID.x) % LANES;
    if (lane == 0) query_top[n] = 0u;
    for (int d = lane; d < dim; d += LANES) {
        float x = 0.0;
        if (n < t.n_q) x = held(Floats(query_at(t, n, dim)).at[d], f_(0xef800000u), f_(0x6f800000u)); // 2^96
        query[n * MAX_DIM + d] = floatBitsToInt(x);
    }
    barrier();
    rotate_queries(n, lane, dim);
    for (int d = lane; d < dim; d += LANES) atomicMax(query_top[n], uint(query[n * MAX_DIM + d]) & 0x7fffffffu);
    barrier();
    const float factor = query_top[n] < 0x0d800000u ? 0.0 : div_(QUERY_CODE, f_(query_top[n])); // 2^-100
    for (int d = lane; d < dim; d += LANES) {
        const float x = mul_(intBitsToFloat(query[n * MAX_DIM + d]), factor);
        query[n * MAX_DIM + d] = int(roundEven(held(x, -QUERY_CODE, QUERY_CODE)));
    }
}

// Sums of products with the key of slot `slot` of a page, of all queries.
void score(uint64_t keys, int bits, int dim, int slot, out int sum[TILE])
{
    for (int n = 0; n < TILE; n++) sum[n] = 0;
    Words w = Words(keys);
    if (bits == 16) {
        for (int d = 0; d < dim; d += 2) {
            const int k = int(w.at[d / 2 * PAGE + slot]), k0 = k << 16 >> 16, k1 = k >> 16;
            [[unroll]] for (int n = 0; n < TILE; n++)
                sum[n] += query[n * MAX_DIM + d] * k0 + query[n * MAX_DIM + d + 1] * k1;
        }
        return;
    }
    for (int d = 0; d < dim; d += 4) {
        const int k = int(w.at[d / 4 * PAGE + slot]); // dims 0, 2, 1, 3
        const int k0 = k << 24 >> 24, k2 = k << 16 >> 24, k1 = k << 8 >> 24, k3 = k >> 24;
        [[unroll]] for (int n = 0; n < TILE; n++) {
            const int at = n * MAX_DIM + d;
            sum[n] += query[at] * k0 + query[at + 1] * k1 + query[at + 2] * k2 + query[at + 3] * k3;
        }
    }
}

// Weights of the thread's key, from its scores, and what they are together.
void weigh(tile_of_queries t, uint64_t page, kv_pages kv, int j, int sum[TILE])
{
    const int dim = kv.head_dim, slot = j % PAGE, block = dim & -dim;
    float e[TILE];
    int exponent[TILE];
    bool sees[TILE];
    float k_scale = 0.0, v_scale = 0.0;
    if (page != 0ul) {
        k_scale = Floats(page + uint64_t(kv.k_bits / 8 * dim * PAGE)).at[slot];
        v_scale = Floats(page + uint64_t(kv.k_bytes) + uint64_t(kv.v_bits / 8 * dim * PAGE)).at[slot];
    }
    for (int n = 0; n < t.n_q; n++) {
        sees[n] = j >= seen[n].x && j < seen[n].y;
        if (!sees[n]) continue;
        const float scale = query_top[n] < 0x0d800000u ? 0.0 : div_(f_(query_top[n]), QUERY_CODE);
        e[n] = exp_split(mul_(mul_(float(sum[n]), k_scale), div_(scale, float(block))), exponent[n]);
        atomicMax(top_exponent[n], exponent[n]);
    }
    barrier();
    for (int n = 0; n < t.n_q; n++) {
        if (!sees[n]) continue;
        e[n] = mul_(e[n], factor_(exponent[n] - top_exponent[n]));
        atomicAdd(sum_weight[n], int(roundEven(mul_(e[n], 2097152.0)))); // 2^21
        e[n] = mul_(e[n], v_scale);
        if (e[n] < 0.0) e[n] = 0.0;
        if (!is_nan(e[n])) atomicMax(weight_top[n], u_(e[n]) & 0x7fffffffu);
    }
    barrier();
    for (int n = 0; n < TILE; n++) {
        int code = 0;
        if (n < t.n_q && sees[n] && weight_top[n] >= 0x0d800000u) { // 2^-100
            const float x = mul_(e[n], pow2(140 - int(weight_top[n] >> 23)));
            code = int(roundEven(x < WEIGHT_CODE ? x : WEIGHT_CODE));
        }
        weight[n * SEGMENT + j] = code;
    }
}

// Sums of a dim's values of a page: 16 bits less go to high, and the rest stays in low (ops/attn/attn_int.h).
void add_page(uint64_t values, int bits, int dim, int d, int first, inout int high[TILE], inout int low[TILE])
{
    Words w = Words(values);
    if (bits == 16) {
        for (int s = 0; s < PAGE; s += 2) {
            const int v = int(w.at[s / 2 * dim + d]), v0 = v << 16 >> 16, v1 = v >> 16;
            [[unroll]] for (int n = 0; n < TILE; n++) {
                const int at = n * SEGMENT + first + s;
                low[n] += weight[at] * v0 + weight[at + 1] * v1;
            }
        }
    } else {
        for (int s = 0; s < PAGE; s += 4) {
            const int v = int(w.at[s / 4 * dim + d]); // tokens 0, 2, 1, 3
            const int v0 = v << 24 >> 24, v2 = v << 16 >> 24, v1 = v << 8 >> 24, v3 = v >> 24;
            [[unroll]] for (int n = 0; n < TILE; n++) {
                const int at = n * SEGMENT + first + s;
                low[n] += weight[at] * v0 + weight[at + 1] * v1 + weight[at + 2] * v2 + weight[at + 3] * v3;
            }
        }
    }
    [[unroll]] for (int n = 0; n < TILE; n++) high[n] += low[n] >> 16, low[n] &= 0xffff;
}

void main()
{
    const int j = int(gl_LocalInvocationID.x);
    const ivec2 item = Pairs(a.items).at[gl_WorkGroupID.x]; // tile, segment
    if (item.x < 0) return;
    const tile_of_queries t = Tiles(a.tiles).at[item.x];
    kv_pages kv = a.kv;
    if (int64_t(item.y * 4) < a.n_start) kv = a.start;
    const int dim = kv.head_dim;
    if (j < TILE) {
        seen[j] = j < t.n_q ? seen_by(t, j, item.y) : ivec2(0);
        top_exponent[j] = -0x7fffffff, sum_weight[j] = 0, weight_top[j] = 0u;
    }
    barrier();
    int first = SEGMENT, end = 0;
    for (int n = 0; n < t.n_q; n++)
        if (seen[n].x < seen[n].y) first = min(first, seen[n].x), end = max(end, seen[n].y);
    if (first >= end) return;
    code_queries(t, dim);
    barrier();
    uint64_t page = 0ul;
    if (j >= first && j < end) page = page_block(kv, t.view, item.y * 4 + j / PAGE);
    if (page != 0ul) page += uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes));
    int sum[TILE];
    if (page != 0ul) score(page, kv.k_bits, dim, j % PAGE, sum);
    weigh(t, page, kv, j, sum);
    barrier();
    for (int d = j; d < dim; d += 256) {
        int high[TILE], low[TILE];
        for (int n = 0; n < TILE; n++) high[n] = low[n] = 0;
        for (int p = first / PAGE; p * PAGE < end; p++) {
            const uint64_t from = page_block(kv, t.view, item.y * 4 + p);
            if (from != 0ul)
                add_page(from + uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes) + kv.k_bytes), kv.v_bits, dim, d,
                         p * PAGE, high, low);
        }
        for (int n = 0; n < t.n_q; n++) {
            if (seen[n].x >= seen[n].y) continue;
            const bool none = weight_top[n] < 0x0d800000u;
            const float unit = none ? 0.0 : pow2(int(weight_top[n] >> 23) - 140);
            const float all = add_(mul_(float(high[n]), 65536.0), float(low[n])); // the product is exact
            leaf_o_at(leaf_number(t, n, item.y - t.seg0), dim).at[d] = none ? 0.0 : mul_(all, unit);
        }
    }
    if (j < t.n_q && seen[j].x < seen[j].y) {
        const uint64_t at = uint64_t(leaf_number(t, j, item.y - t.seg0)) * 4ul;
        Floats(a.leaf_l + at).at[0] = mul_(float(sum_weight[j]), 4.76837158203125e-07); // 2^-21
        Ints(a.leaf_m + at).at[0] = top_exponent[j];
    }
}
