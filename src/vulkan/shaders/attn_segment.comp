// Attention in floats (ops/attn/attn.h): one segment of 256 keys for a tile of up to 8 queries of one KV head. A thread
// has a key for the scores, and then a dim for the values. grid (items)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
// Elements of keys and values as terms of a chain, for all formats except those in integers (ops/kv/kv_codec.h).

// A code of less than 8 bits from its planes at `codes`: keys [dim / ..][64], values [64][dim / ..].
int plane_code(uint64_t codes, int bits, int dim, int d, int slot, bool keys)
{
    int code = 0, at = 0;
    [[unroll]] for (int plane = 4; plane > 0; plane /= 2) {
        if ((bits & plane) == 0) continue;
        const int per = 8 / plane;
        int byte, shift;
        if (keys) byte = d / per * PAGE + slot, shift = d % per * plane;
        else if (plane == 4) byte = slot * v_plane_row(4, dim) + d / 32 * 16 + d % 16, shift = d / 16 % 2 * 4;
        else byte = slot * v_plane_row(plane, dim) + d / per, shift = d % per * plane;
        code |= (int(Bytes(codes).at[byte]) >> shift & (1 << plane) - 1) << at;
        codes += uint64_t(keys ? k_plane(plane, dim) : PAGE * v_plane_row(plane, dim));
        at += plane;
    }
    return code;
}

// Element d of the token in a slot, of keys or of values; part: the head's part of the page.
float kv_term(uint64_t part, int format, int bits, int shift, int dim, int d, int slot, bool keys)
{
    const int at = keys ? d * PAGE + slot : slot * dim + d;
    if (format == F16) return half_to_float(uint(Halves(part).at[at]));
    if (format == F32) return Floats(part).at[at];
    if (format == BF16) return bf16_to_float(uint(Halves(part).at[at]));
    if (format == I16) return float(int(Halves(part).at[at]) << 16 >> 16);
    const int groups = groups_of(dim, shift), g = d >> shift, scale_at = keys ? g * PAGE + slot : slot * groups + g;
    Halves scales = Halves(part + uint64_t(keys ? k_code_bytes(bits, dim) : v_code_bytes(bits, dim)));
    const float s = half_to_float(uint(scales.at[scale_at]));
    if (format == Q8) return mul_(s, float(int(Bytes(part).at[at]) << 24 >> 24));
    const float b = half_to_float(uint(scales.at[groups * PAGE + scale_at]));
    return fma_(s, float(plane_code(part, bits, dim, d, slot, keys)), b);
}

// The factor of a key's sum or of a value's weight.
float token_scale(uint64_t part, int format, int dim, int slot)
{
    return format == I16 ? Floats(part + uint64_t(2 * dim * PAGE)).at[slot] : 1.0;
}
layout(local_size_x = 256) in;

#if EK_SOFT
#define REPEAT [[dont_unroll]]
#else
#define REPEAT [[unroll]]
#endif
const int TILE = 8, MAX_DIM = 512, CHAIN = 256, LANES = 16;
shared vec4 query[TILE * MAX_DIM / 4];
shared float weight[TILE * SEGMENT]; // e; times the value's scale in the fma
shared float lane_sum[TILE * LANES];
shared int top_exponent[TILE];
shared ivec2 seen[TILE];

// Chains use the device's fma directly if all their numbers are multiples of 2^-126 and not denormal. Elements of keys
// and values are multiples of 2^-24, except in f32 and bf16; numbers of 24 bits from 2^-78 on are multiples of 2^-101.
// A query or a weight below 2^-78 that is not 0 sets its bit.
shared uint small_query, small_weight;

bool is_small(float x)
{
    const uint u = u_(x) & 0x7fffffffu;
    return u != 0u && u < 0x18800000u; // 2^-78
}

bool is_coarse(int format)
{
    return format != F32 && format != BF16;
}

// Scores of the key in a slot, before its scale: a chain for each 256 dims.
void score_all(uint64_t part, kv_pages kv, int slot, out float s[TILE])
{
    const int dim = kv.head_dim;
    for (int d0 = 0; d0 < dim; d0 += CHAIN) {
        float chain[TILE];
        [[unroll]] for (int n = 0; n < TILE; n++) chain[n] = 0.0;
        for (int d = d0; d < min(dim, d0 + CHAIN); d += 4) {
            vec4 k;
            [[unroll]] for (int i = 0; i < 4; i++) k[i] = kv_term(part, kv.k_format, kv.k_bits, kv.k_shift, dim, d + i, slot, true);
            REPEAT for (int n = 0; n < TILE; n++) {
                const vec4 q = query[(n * MAX_DIM + d) / 4];
                REPEAT for (int i = 0; i < 4; i++) chain[n] = normal_fma(q[i], k[i], chain[n]);
            }
        }
        [[unroll]] for (int n = 0; n < TILE; n++) s[n] = d0 != 0 ? add_(s[n], chain[n]) : chain[n];
    }
}

// The same for one query, with an fma that is exact for denormals, too.
float score_with_care(uint64_t part, kv_pages kv, int n, int slot)
{
    const int dim = kv.head_dim;
    float s = 0.0;
    for (int d0 = 0; d0 < dim; d0 += CHAIN) {
        float chain = 0.0;
        for (int d = d0; d < min(dim, d0 + CHAIN); d++)
            chain = fma_(query[(n * MAX_DIM + d) / 4][d % 4], kv_term(part, kv.k_format, kv.k_bits, kv.k_shift, dim, d, slot, true),
                         chain);
        s = d0 != 0 ? add_(s, chain) : chain;
    }
    return s;
}

// l of each query: 16 lanes, added 8, 4, 2, 1 apart
void sum_weights()
{
    const int thread = int(gl_LocalInvocationID.x), n = thread / LANES, lane = thread % LANES;
    if (n < TILE) {
        float sum = 0.0;
        for (int j = lane; j < SEGMENT; j += LANES) sum = add_(sum, weight[n * SEGMENT + j]);
        lane_sum[thread] = sum;
    }
    barrier();
    for (int apart = 8; apart > 0; apart /= 2) {
        if (n < TILE && lane < apart) lane_sum[thread] = add_(lane_sum[thread], lane_sum[thread + apart]);
        barrier();
    }
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
    if (j < TILE) seen[j] = j < t.n_q ? seen_by(t, j, item.y) : ivec2(0), top_exponent[j] = -0x7fffffff;
    if (j == 0) small_query = small_weight = 0u;
    barrier();
    for (int n = 0; n < TILE; n++)
        for (int d = j; d < dim; d += 256) {
            const float q = n < t.n_q ? Floats(query_at(t, n, dim)).at[d] : 0.0;
            query[(n * MAX_DIM + d) / 4][d % 4] = q;
            if (is_small(q)) atomicOr(small_query, 1u << n);
        }
    barrier();
    int first = SEGMENT, end = 0;
    for (int n = 0; n < t.n_q; n++)
        if (seen[n].x < seen[n].y) first = min(first, seen[n].x), end = max(end, seen[n].y);
    if (first >= end) return;
    const uint64_t mine = uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes));
    uint64_t page = 0ul;
    if (j >= first && j < end) page = page_block(kv, t.view, item.y * 4 + j / PAGE);
    if (page != 0ul) page += mine; // otherwise no query sees it
    float p[TILE];
    int exponent[TILE];
    if (page != 0ul) {
        const bool coarse = is_coarse(kv.k_format);
        const uint careful = coarse ? small_query : 0xffu;
        const float scale = token_scale(page, kv.k_format, dim, j % PAGE);
        if (careful != 0xffu) score_all(page, kv, j % PAGE, p);
        REPEAT for (int n = 0; n < TILE; n++) {
            if (j < seen[n].x || j >= seen[n].y) continue;
            if ((careful >> n & 1u) != 0u) p[n] = score_with_care(page, kv, n, j % PAGE);
            p[n] = exp_split(mul_(p[n], scale), exponent[n]);
            atomicMax(top_exponent[n], exponent[n]);
        }
    }
    barrier();
    [[unroll]] for (int n = 0; n < TILE; n++) {
        float e = 0.0;
        if (j >= seen[n].x && j < seen[n].y) e = mul_(p[n], factor_(exponent[n] - top_exponent[n]));
        if (is_small(e)) atomicOr(small_weight, 1u << n);
        weight[n * SEGMENT + j] = e;
    }
    barrier();
    sum_weights();
    if (j < t.n_q && seen[j].x < seen[j].y) {
        const uint64_t at = uint64_t(leaf_number(t, j, item.y - t.seg0)) * 4ul;
        Floats(a.leaf_l + at).at[0] = lane_sum[j * LANES];
        Ints(a.leaf_m + at).at[0] = top_exponent[j];
    }
    const uint careful = is_coarse(kv.v_format) && kv.v_format != I16 ? small_weight : 0xffu; // I16 has its own scales
    for (int d = j; d < dim; d += 256) {
        float o[TILE];
        [[unroll]] for (int n = 0; n < TILE; n++) o[n] = 0.0;
        for (int k = first; k < end; k++) {
            const uint64_t block = page_block(kv, t.view, item.y * 4 + k / PAGE), part = block + mine + uint64_t(kv.k_bytes);
            if (block == 0ul) continue; // between the visible ranges of queries
            const float v = kv_term(part, kv.v_format, kv.v_bits, kv.v_shift, dim, d, k % PAGE, false);
            const float scale = token_scale(part, kv.v_format, dim, k % PAGE);
            REPEAT for (int n = 0; n < TILE; n++) {
                const float w = mul_(weight[n * SEGMENT + k], scale);
                if (k < seen[n].x || k >= seen[n].y) continue;
                o[n] = (careful >> n & 1u) != 0u ? fma_(w, v, o[n]) : normal_fma(w, v, o[n]);
            }
        }
        [[unroll]] for (int n = 0; n < TILE; n++)
            if (seen[n].x < seen[n].y) leaf_o_at(leaf_number(t, n, item.y - t.seg0), dim).at[d] = o[n];
    }
}
