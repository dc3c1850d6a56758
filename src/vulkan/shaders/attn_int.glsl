// Attention in integers (ops/attn/attn_int.h): one segment of 256 keys for a tile of up to TILE queries of one KV head.
// Of 256 threads or a multiple of them (specialised by vulkan/kernels.def) each has a part of a key for the scores, and
// then a dim of a part of the pages for the values. No array of a thread stands here: one that a driver indexes by a
// variable lies in memory. With a.ended the workgroup that ends last of a tile joins its leaves. grid (items)
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer LeafFloats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer LeafInts { int at[]; };
#define LEAF_FLOATS LeafFloats
#define LEAF_INTS   LeafInts
#include "attn_nodes.glsl"
layout(local_size_x_id = 0) in;

#if TILE == 1
#define EACH_QUERY(F) F(0)
#elif TILE == 2
#define EACH_QUERY(F) F(0) F(1)
#elif TILE == 4
#define EACH_QUERY(F) F(0) F(1) F(2) F(3)
#else
#define EACH_QUERY(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#endif

const int MAX_DIM = 512;
const bool APART = TILE <= 4; // threads share a dim's pages: sums of both halves have room
const int QUERIES = TILE * MAX_DIM / 4, HIGHS = APART ? QUERIES : 1;
shared ivec4 query[QUERIES];              // bits of floats, then codes; then the low halves of sums
shared ivec4 high_sum[HIGHS];
shared ivec4 weight[TILE * SEGMENT / 4];  // sums of products with a query, then codes
shared uint query_top[TILE], weight_top[TILE];
shared int top_exponent[TILE], sum_weight[TILE];
shared ivec2 seen[TILE];
shared bool is_last;
const int GROUPS = APART ? TILE * MAX_DIM / 32 : 1; // of results that are quantised, too
#include "group_codes.glsl"

// Codes of the queries, by as many threads each; the scale of query n is query_top's over QUERY_CODE.
const float QUERY_CODE = 2047.0, WEIGHT_CODE = 16383.0;

int threads()
{
    return int(gl_WorkGroupSize.x);
}

int query_bits(int n, int d)
{
    return query[(n * MAX_DIM + d) / 4][d % 4];
}

void put_query(int n, int d, int bits)
{
    query[(n * MAX_DIM + d) / 4][d % 4] = bits;
}

float query_value(int n, int d)
{
    return intBitsToFloat(query_bits(n, d));
}

void put_value(int n, int d, float x)
{
    put_query(n, d, floatBitsToInt(x));
}

// Two levels at once, for each has a barrier behind it; the first of an odd number alone.
void rotate_queries(int n, int lane, int lanes, int dim)
{
    const int levels = findMSB(dim & -dim);
    if (levels % 2 == 1) {
        for (int i = lane; i < dim / 2; i += lanes) {
            const float x = query_value(n, 2 * i), y = query_value(n, 2 * i + 1);
            put_value(n, 2 * i, add_(x, y)), put_value(n, 2 * i + 1, sub_(x, y));
        }
        barrier();
    }
    [[dont_unroll]] for (int level = levels % 2; level < levels; level += 2) {
        const int h = 1 << level;
        for (int i = lane; i < dim / 4; i += lanes) {
            const int at = (i >> level << level + 2) + (i & h - 1);
            const float x = query_value(n, at), y = query_value(n, at + h);
            const float z = query_value(n, at + 2 * h), w = query_value(n, at + 3 * h);
            const float s = add_(x, y), t = sub_(x, y), u = add_(z, w), v = sub_(z, w);
            put_value(n, at, add_(s, u)), put_value(n, at + h, add_(t, v));
            put_value(n, at + 2 * h, sub_(s, u)), put_value(n, at + 3 * h, sub_(t, v));
        }
        barrier();
    }
}

void code_queries(tile_of_queries t, int dim)
{
    const int lanes = threads() / TILE, thread = int(gl_LocalInvocationID.x), n = thread / lanes, lane = thread % lanes;
    if (lane == 0) query_top[n] = 0u;
    for (int d = lane; d < dim; d += lanes) {
        float x = 0.0;
        if (n < t.n_q) x = held(Floats(query_at(t, n, dim)).at[d], f_(0xef800000u), f_(0x6f800000u)); // 2^96
        put_query(n, d, floatBitsToInt(x));
    }
    barrier();
    rotate_queries(n, lane, lanes, dim);
    uint top = 0u;
    for (int d = lane; d < dim; d += lanes) top = max(top, uint(query_bits(n, d)) & 0x7fffffffu);
    atomicMax(query_top[n], top);
    barrier();
    const float factor = query_top[n] < 0x0d800000u ? 0.0 : div_(QUERY_CODE, f_(query_top[n])); // 2^-100
    for (int d = lane; d < dim; d += lanes) {
        const float x = mul_(intBitsToFloat(query_bits(n, d)), factor);
        put_query(n, d, int(roundEven(held(x, -QUERY_CODE, QUERY_CODE))));
    }
}

// Codes of 16 bits in two words, and of 8 bits, which lie in the order 0, 2, 1, 3.
ivec4 halves_of(uint a, uint b)
{
    return ivec4(int(a) << 16 >> 16, int(a) >> 16, int(b) << 16 >> 16, int(b) >> 16);
}

ivec4 bytes_of(uint a)
{
    return ivec4(int(a) << 24 >> 24, int(a) << 8 >> 24, int(a) << 16 >> 24, int(a) >> 24);
}

// Adds sums of products of dims [from, to), whole fours, with the key of slot `slot` of a page.
void score(uint64_t keys, int bits, int from, int to, int j)
{
    Words w = Words(keys);
    const int slot = j % PAGE;
#define NO_SUM(n) int sum##n = 0;
    EACH_QUERY(NO_SUM)
    ivec4 q, k;
#define ADD_KEY(n) q = query[(n * MAX_DIM + d) / 4], sum##n += q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
    if (bits == 16) {
#define FOUR_16(a, b, at) d = at, k = halves_of(a, b);
        int d = from;
        for (; d + 16 <= to;) { // asked for together
            const int d0 = d, at = d / 2 * PAGE + slot;
            const uint a = w.at[at], b = w.at[at + PAGE], c = w.at[at + 2 * PAGE], e = w.at[at + 3 * PAGE];
            const uint f = w.at[at + 4 * PAGE], g = w.at[at + 5 * PAGE];
            const uint h = w.at[at + 6 * PAGE], i = w.at[at + 7 * PAGE];
            FOUR_16(a, b, d0) EACH_QUERY(ADD_KEY)
            FOUR_16(c, e, d0 + 4) EACH_QUERY(ADD_KEY)
            FOUR_16(f, g, d0 + 8) EACH_QUERY(ADD_KEY)
            FOUR_16(h, i, d0 + 12) EACH_QUERY(ADD_KEY)
            d = d0 + 16;
        }
        for (; d < to;) {
            const int d0 = d;
            FOUR_16(w.at[d0 / 2 * PAGE + slot], w.at[(d0 / 2 + 1) * PAGE + slot], d0) EACH_QUERY(ADD_KEY)
            d = d0 + 4;
        }
    } else {
#define FOUR_8(a, at) d = at, k = bytes_of(a);
        int d = from;
        for (; d + 16 <= to;) {
            const int d0 = d, at = d / 4 * PAGE + slot;
            const uint a = w.at[at], b = w.at[at + PAGE], c = w.at[at + 2 * PAGE], e = w.at[at + 3 * PAGE];
            FOUR_8(a, d0) EACH_QUERY(ADD_KEY)
            FOUR_8(b, d0 + 4) EACH_QUERY(ADD_KEY)
            FOUR_8(c, d0 + 8) EACH_QUERY(ADD_KEY)
            FOUR_8(e, d0 + 12) EACH_QUERY(ADD_KEY)
            d = d0 + 16;
        }
        for (; d < to;) {
            const int d0 = d;
            FOUR_8(w.at[d0 / 4 * PAGE + slot], d0) EACH_QUERY(ADD_KEY)
            d = d0 + 4;
        }
    }
#define TO_SUM(n) atomicAdd(weight[(n * SEGMENT + j) / 4][j % 4], sum##n);
    EACH_QUERY(TO_SUM)
}

// What a query's score is, as a power of two and what it is times.
float score_of(int n, int j, float k_scale, int block, out int exponent)
{
    const float scale = query_top[n] < 0x0d800000u ? 0.0 : div_(f_(query_top[n]), QUERY_CODE);
    const int sum = weight[(n * SEGMENT + j) / 4][j % 4];
    return exp_split(mul_(mul_(float(sum), k_scale), div_(scale, float(block))), exponent);
}

// Weights of key j, from its scores, and what they are together: of every `parts`-th query by a part of the threads,
// whose subgroups have keys of one query.
void weigh(tile_of_queries t, uint64_t page, kv_pages kv, int j, int part, int parts)
{
    const int dim = kv.head_dim, slot = j % PAGE, block = dim & -dim;
    float k_scale = 0.0, v_scale = 0.0;
    int exponent;
    if (page != 0ul) {
        k_scale = Floats(page + uint64_t(kv.k_bits / 8 * dim * PAGE)).at[slot];
        v_scale = Floats(page + uint64_t(kv.k_bytes) + uint64_t(kv.v_bits / 8 * dim * PAGE)).at[slot];
    }
    for (int n = part; n < t.n_q; n += parts) {
        exponent = -0x7fffffff;
        if (j >= seen[n].x && j < seen[n].y) score_of(n, j, k_scale, block, exponent);
        exponent = subgroupMax(exponent);
        if (subgroupElect()) atomicMax(top_exponent[n], exponent);
    }
    barrier();
    for (int n = part; n < t.n_q; n += parts) {
        int share = 0;
        uint top = 0u;
        float e = 0.0;
        if (j >= seen[n].x && j < seen[n].y) {
            e = score_of(n, j, k_scale, block, exponent);
            e = mul_(e, factor_(exponent - top_exponent[n]));
            share = int(roundEven(mul_(e, 2097152.0))); // 2^21
            e = mul_(e, v_scale);
            if (e < 0.0) e = 0.0;
            if (!is_nan(e)) top = u_(e) & 0x7fffffffu;
        }
        weight[(n * SEGMENT + j) / 4][j % 4] = floatBitsToInt(e);
        share = subgroupAdd(share), top = subgroupMax(top);
        if (subgroupElect()) atomicAdd(sum_weight[n], share), atomicMax(weight_top[n], top);
    }
    barrier();
    for (int n = part; n < t.n_q; n += parts) {
        const float e = intBitsToFloat(weight[(n * SEGMENT + j) / 4][j % 4]);
        int code = 0;
        if (weight_top[n] >= 0x0d800000u && j >= seen[n].x && j < seen[n].y) { // 2^-100
            const float x = mul_(e, pow2(140 - int(weight_top[n] >> 23)));
            code = int(roundEven(x < WEIGHT_CODE ? x : WEIGHT_CODE));
        }
        weight[(n * SEGMENT + j) / 4][j % 4] = code;
    }
}

float sum_of_values(int n, int high, int low)
{
    const bool none = weight_top[n] < 0x0d800000u;
    const float unit = none ? 0.0 : pow2(int(weight_top[n] >> 23) - 140);
    const float all = add_(mul_(float(high), 65536.0), float(low)); // the product is exact
    return none ? 0.0 : mul_(all, unit);
}

void write_sum(tile_of_queries t, int n, int leaf, int dim, int d, int high, int low)
{
    const uint64_t at = a.leaf_o + uint64_t(leaf_number(t, n, leaf) * int64_t(dim) * 4l);
    LeafFloats(at).at[d] = sum_of_values(n, high, low);
}

float sum_of_weights(int n)
{
    return mul_(float(sum_weight[n]), 4.76837158203125e-07); // 2^-21
}

// Sums of a dim's values in pages [first, end) of the segment, of which one part of the threads has every step_-th: 16
// bits less of a page's go to high, and the rest stays in low (ops/attn/attn_int.h).
void add_values(tile_of_queries t, kv_pages kv, int seg, int first, int end, int d, int part, int step_)
{
    const int dim = kv.head_dim;
#define NO_SUMS(n) int high##n = 0, low##n = 0;
    EACH_QUERY(NO_SUMS)
    ivec4 x, v;
#define ADD_VALUE(n) x = weight[(n * SEGMENT + s) / 4], low##n += x.x * v.x + x.y * v.y + x.z * v.z + x.w * v.w;
#define CARRY(n) high##n += low##n >> 16, low##n &= 0xffff;
    for (int p = first / PAGE + part; p * PAGE < end; p += step_) {
        const uint64_t page = page_block(kv, t.view, seg * 4 + p);
        if (page == 0ul) continue;
        Words w = Words(page + uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes) + kv.k_bytes));
        int s;
        if (kv.v_bits == 16) {
#define TOKENS_16(a, b, from) s = p * PAGE + from, v = halves_of(a, b);
            for (int s0 = 0; s0 < PAGE; s0 += 16) {
                const int at = s0 / 2 * dim + d;
                const uint a = w.at[at], b = w.at[at + dim], c = w.at[at + 2 * dim], e = w.at[at + 3 * dim];
                const uint f = w.at[at + 4 * dim], g = w.at[at + 5 * dim];
                const uint h = w.at[at + 6 * dim], i = w.at[at + 7 * dim];
                TOKENS_16(a, b, s0) EACH_QUERY(ADD_VALUE)
                TOKENS_16(c, e, s0 + 4) EACH_QUERY(ADD_VALUE)
                TOKENS_16(f, g, s0 + 8) EACH_QUERY(ADD_VALUE)
                TOKENS_16(h, i, s0 + 12) EACH_QUERY(ADD_VALUE)
            }
        } else {
#define TOKENS_8(a, from) s = p * PAGE + from, v = bytes_of(a);
            for (int s0 = 0; s0 < PAGE; s0 += 16) {
                const int at = s0 / 4 * dim + d;
                const uint a = w.at[at], b = w.at[at + dim], c = w.at[at + 2 * dim], e = w.at[at + 3 * dim];
                TOKENS_8(a, s0) EACH_QUERY(ADD_VALUE)
                TOKENS_8(b, s0 + 4) EACH_QUERY(ADD_VALUE)
                TOKENS_8(c, s0 + 8) EACH_QUERY(ADD_VALUE)
                TOKENS_8(e, s0 + 12) EACH_QUERY(ADD_VALUE)
            }
        }
        EACH_QUERY(CARRY)
    }
#define TO_SUMS(n)                                                       \
    if (n < t.n_q && seen[n].x < seen[n].y) {                            \
        if (APART) {                                                     \
            atomicAdd(high_sum[(n * MAX_DIM + d) / 4][d % 4], high##n);  \
            atomicAdd(query[(n * MAX_DIM + d) / 4][d % 4], low##n);      \
        } else {                                                         \
            write_sum(t, n, seg - t.seg0, dim, d, high##n, low##n);      \
        }                                                                \
    }
    EACH_QUERY(TO_SUMS)
}

// Whether all other workgroups of a tile have written their leaves; the counter is then zero again.
bool ends_last(int tile, int n)
{
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationID.x == 0u) {
        LeafInts ended = LeafInts(a.ended + uint64_t(tile) * 4ul);
        is_last = atomicAdd(ended.at[0], 1) == n - 1;
        if (is_last) ended.at[0] = 0;
    }
    barrier();
    memoryBarrierBuffer();
    return is_last;
}

// R x / n of the joined queries, as attn_join.glsl has it, and their codes.
void finish(tile_of_queries t, int dim)
{
    const int lanes = threads() / TILE, thread = int(gl_LocalInvocationID.x), n = thread / lanes, lane = thread % lanes;
    const int group = a.to.a_group, first = head_of(t, n) * dim, groups = n * (MAX_DIM / 32);
    const int64_t row = int64_t(row_of(t, n));
    const float by = pow2(-findMSB(dim & -dim));
    const bool quantised = a.to.q != 0ul, there = n < t.n_q;
    begin_groups();
    barrier();
    rotate_queries(n, lane, lanes, dim);
    for (int d = lane; d < dim && there; d += lanes) {
        const float x = mul_(intBitsToFloat(query_bits(n, d)), by);
        Floats(result_at(t, n, dim)).at[d] = x;
        if (quantised) put_query(n, d, floatBitsToInt(x)), see_value(groups + d / group, x);
    }
    if (!quantised) return;
    barrier();
    for (int d = lane; d < dim && there; d += lanes)
        write_code(a.to, row, first + d, groups + d / group, intBitsToFloat(query_bits(n, d)));
    barrier();
    for (int g = lane; g < dim / group && there; g += lanes)
        write_group(a.to, row, first / group + g, group_top[groups + g], group_h[groups + g], group_q[groups + g]);
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), parts = threads() / SEGMENT;
    const int j = thread % SEGMENT, part = thread / SEGMENT;
    const ivec2 item = Pairs(a.items).at[gl_WorkGroupID.x]; // tile, segment
    if (item.x < 0) return;
    const tile_of_queries t = Tiles(a.tiles).at[item.x];
    kv_pages kv = a.kv;
    if (int64_t(item.y * 4) < a.n_start) kv = a.start;
    const int dim = kv.head_dim;
    if (thread < TILE) {
        seen[thread] = thread < t.n_q ? seen_by(t, thread, item.y) : ivec2(0);
        top_exponent[thread] = -0x7fffffff, sum_weight[thread] = 0, weight_top[thread] = 0u;
    }
    for (int i = thread; i < TILE * SEGMENT / 4; i += threads()) weight[i] = ivec4(0);
    if (APART)
        for (int i = thread; i < HIGHS; i += threads()) high_sum[i] = ivec4(0);
    barrier();
    int first = SEGMENT, end = 0;
    for (int n = 0; n < t.n_q; n++)
        if (seen[n].x < seen[n].y) first = min(first, seen[n].x), end = max(end, seen[n].y);
    if (first >= end) return;
    code_queries(t, dim);
    barrier();
    uint64_t page = 0ul;
    if (j >= first && j < end) page = page_block(kv, t.view, item.y * 4 + j / PAGE);
    if (page != 0ul) {
        page += uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes));
        score(page, kv.k_bits, dim / 4 * part / parts * 4, dim / 4 * (part + 1) / parts * 4, j);
    }
    barrier();
    weigh(t, page, kv, j, part, parts);
    if (APART)
        for (int i = thread; i < QUERIES; i += threads()) query[i] = ivec4(0);
    barrier();
    if (APART || part == 0)
        for (int d = j; d < dim; d += SEGMENT) add_values(t, kv, item.y, first, end, d, part, APART ? parts : 1);
    barrier();
    const bool joins = APART && a.ended != 0ul, alone = joins && t.n_seg == 1;
    if (APART)
        for (int i = thread; i < t.n_q * dim; i += threads()) {
            const int n = i / dim, d = i % dim, low = query_bits(n, d);
            if (seen[n].x >= seen[n].y) continue;
            const int high = high_sum[(n * MAX_DIM + d) / 4][d % 4] + (low >> 16);
            if (!alone) write_sum(t, n, item.y - t.seg0, dim, d, high, low & 0xffff);
            else put_query(n, d, floatBitsToInt(div_(plus_zero(sum_of_values(n, high, low & 0xffff)), sum_of_weights(n))));
        }
    if (!alone && thread < t.n_q && seen[thread].x < seen[thread].y) {
        const uint64_t at = uint64_t(leaf_number(t, thread, item.y - t.seg0)) * 4ul;
        LeafFloats(a.leaf_l + at).at[0] = sum_of_weights(thread);
        LeafInts(a.leaf_m + at).at[0] = top_exponent[thread];
    }
    if (!joins) return;
    if (!alone && !ends_last(item.x, t.n_seg)) return;
    if (!alone)
        for (int i = thread; i < t.n_q * dim; i += threads())
            put_query(i / dim, i % dim, floatBitsToInt(joined(t, i / dim, dim, i % dim)));
    finish(t, dim);
}
