// Attention in integers (ops/attn/attn_int.h): one segment of 256 keys for a tile of TILE queries of one KV head, whose codes
// attn_int_queries.comp wrote. Heads have a multiple of 64 dims. Two products: queries with the 256 keys over the dims, and
// weights with 256 dims over the keys, in steps of 32 numbers. Numbers of 16 bits are two limbs: 12 bits are 5 and 7, weights'
// 14 bits twice 7. COOPERATIVE: by matrices of bytes; else by packed products. grid (items)
//
// Sums are variables, not elements of an array: an array that a loop indexes lies in memory where the driver does not unroll the
// loop, and takes several times as long as the products. A workgroup has a multiprocessor to itself, because a second one finds
// no shared memory, and waits more than it computes: each step's numbers are asked for two steps before. With matrices a
// subgroup places the columns that it multiplies, and waits for no other.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
#include "dot.glsl"
#ifdef COOPERATIVE
const int TILE = 32, THREADS = 512, PITCH = 3;
#else
const int TILE = 16, THREADS = 256, PITCH = 2;
#endif
layout(local_size_x = THREADS) in;
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Quads { uvec4 at[]; };

// PITCH, ROW, SCORES: quads of a column in a step, of 256 dims of a query or its weights, of its scores; one is spare where that
// keeps neighbours in different banks. PARTS: threads of a column, of whose words in a step each has WORDS.
const int STEP = 32, STEP_QUADS = 2, ROW = 17, SCORES = 65, LANES = THREADS / TILE, FOURS = 64 / LANES;
const int PARTS = THREADS / 256, WORDS = 16 / PARTS;
const int LOW = 256 * PITCH, LEFT_AT = 2 * LOW, LOW_LEFT = TILE * ROW;
shared uvec4 memory[LEFT_AT + 2 * LOW_LEFT]; // high limbs of columns, low ones; the same of 256 dims of queries, or of weights
shared uint64_t page[4];
shared ivec2 seen[TILE];
shared float unit[TILE]; // first of a query's scores, then of its values
shared uint weight_top[TILE];
shared int top_exponent[TILE], sum_weight[TILE];
shared vec4 key_scale[64], value_scale[64];

int sum_of_bytes(int high, int low)
{
    return high * 128 + low;
}

int sum_of_limbs(int high, int middle, int low)
{
    return high * 16384 + middle * 128 + low;
}

// The nearest float of high 2^14 + middle 2^7 + low, which is below 2^34.
float value_of_limbs(int high, int middle, int low)
{
    const int rest = middle * 128 + low;
    return add_(mul_(float(high + (rest >> 14)), 16384.0), float(rest & 16383)); // the product is exact
}

#include "limb_products.glsl"

// --- a step's columns; two steps are on their way

// The column that the thread places, with matrices one that its subgroup multiplies, and which part.
int own_column()
{
#if defined(COOPERATIVE) && !EK_SOFT
    return SUBGROUP * 16 + int(gl_SubgroupInvocationID) % 16;
#else
    return int(gl_LocalInvocationIndex) % 256;
#endif
}

int own_part()
{
#if defined(COOPERATIVE) && !EK_SOFT
    return int(gl_SubgroupInvocationID) / 16;
#else
    return int(gl_LocalInvocationIndex) / 256;
#endif
}

// The first of a thread's words in a step.
int own_word(int step, bool limbs)
{
    return (step * PARTS + own_part()) * (limbs ? WORDS : WORDS / 2);
}

uint64_t keys_from(int step, bool limbs)
{
    const int key = own_column();
    if (page[key / PAGE] == 0ul) return 0ul;
    return page[key / PAGE] + uint64_t((own_word(step, limbs) * PAGE + key % PAGE) * 4);
}

uint64_t values_from(kv_pages kv, int step, int d0, bool limbs)
{
    const int d = d0 + own_column();
    const uint64_t from = page[step / 2];
    if (from == 0ul || d >= kv.head_dim) return 0ul;
    return from + uint64_t(kv.k_bytes + int64_t((own_word(step % 2, limbs) * kv.head_dim + d) * 4));
}

// Limbs of two words beside each other in four.
uvec4 high_of(uvec4 even, uvec4 odd)
{
    return (even >> 7 & 0x00ff00ffu) | (odd >> 7 & 0x00ff00ffu) << 8;
}

uvec4 low_of(uvec4 even, uvec4 odd)
{
    return (even & 0x007f007fu) | (odd & 0x007f007fu) << 8;
}

// fetch_column: words of a column, each `apart` behind the last one; from 0: zeros.
#define ON_ITS_WAY(s)                                                                                    \
    uint w##s[WORDS];                                                                                    \
    void fetch_column##s(uint64_t from, int apart, bool limbs)                                           \
    {                                                                                                    \
        Words w = Words(from);                                                                           \
        [[unroll]] for (int i = 0; i < WORDS; i++) w##s[i] = 0u;                                         \
        if (from == 0ul) return;                                                                         \
        [[unroll]] for (int i = 0; i < WORDS / 2; i++) w##s[i] = w.at[i * apart];                        \
        if (limbs)                                                                                       \
            [[unroll]] for (int i = WORDS / 2; i < WORDS; i++) w##s[i] = w.at[i * apart];                \
    }                                                                                                    \
    void place_column##s(bool limbs)                                                                     \
    {                                                                                                    \
        const int at = own_column() * PITCH + own_part();                                                \
        [[unroll]] for (int q = 0; q < WORDS / 8; q++) {                                                 \
            const int i = 8 * q;                                                                         \
            const uvec4 even = uvec4(w##s[i], w##s[i + 2], w##s[i + 4], w##s[i + 6]);                    \
            const uvec4 odd = uvec4(w##s[i + 1], w##s[i + 3], w##s[i + 5], w##s[i + 7]);                 \
            if (limbs) memory[at + q] = high_of(even, odd), memory[LOW + at + q] = low_of(even, odd);    \
            else memory[at + q] = uvec4(w##s[4 * q], w##s[4 * q + 1], w##s[4 * q + 2], w##s[4 * q + 3]); \
        }                                                                                                \
    }
ON_ITS_WAY(0)
ON_ITS_WAY(1)

// The scales of a thread's own key, which lie behind the codes.
vec2 fetch_scales(kv_pages kv)
{
    const int key = int(gl_LocalInvocationIndex), dim = kv.head_dim;
    if (key >= SEGMENT || page[key / PAGE] == 0ul) return vec2(0.0);
    const uint64_t at = page[key / PAGE] + uint64_t(key % PAGE * 4);
    return vec2(Floats(at + uint64_t(kv.k_bits / 8 * dim * PAGE)).at[0],
                Floats(at + uint64_t(kv.k_bytes + int64_t(kv.v_bits / 8 * dim * PAGE))).at[0]);
}

// Dims [d0, d0 + 256) of the queries.
void place_queries(uint64_t codes, int dim, int d0)
{
    [[unroll]] for (int j = 0; j < 32 * TILE / THREADS; j++) {
        const int i = j * THREADS + int(gl_LocalInvocationIndex), row = i / 16, quad = i % 16; // rows of high limbs, of low ones
        if (d0 + quad * 16 < dim)
            memory[LEFT_AT + row * ROW + quad] = Quads(codes + uint64_t(row * dim + d0 + quad * 16)).at[0];
    }
}

void score(kv_pages kv, uint64_t codes)
{
    const int dim = kv.head_dim, steps = dim / STEP, key = int(gl_LocalInvocationIndex);
    const bool limbs = kv.k_bits == 16;
    begin_sums();
    fetch_column0(keys_from(0, limbs), PAGE, limbs), fetch_column1(keys_from(1, limbs), PAGE, limbs);
    const vec2 scales = fetch_scales(kv);
#define SCORE_STEP(s)                                                                                   \
    STEP_BARRIER;                                                                                       \
    place_column##s(limbs);                                                                             \
    STEP_BARRIER;                                                                                       \
    if (first + step + 2 < steps) fetch_column##s(keys_from(first + step + 2 + s, limbs), PAGE, limbs); \
    multiply(step + s, limbs);
    for (int first = 0; first < steps; first += 8) {
        if (first > 0) barrier();
        place_queries(codes, dim, first * STEP);
        barrier();
        for (int step = 0; step < 8 && first + step < steps; step += 2) {
            SCORE_STEP(0)
            SCORE_STEP(1)
        }
    }
    barrier();
    put_scores(limbs);
    if (key < SEGMENT) key_scale[key / 4][key % 4] = scales.x, value_scale[key / 4][key % 4] = scales.y;
    barrier();
}

// --- weights: a query's keys by LANES threads, four beside each other. What becomes of a score stands in its place.

const float WEIGHT_CODE = 16383.0, LEAST_SCORE = -1048576.0, MOST_SCORE = 1048576.0; // as in exp_split

void weigh()
{
    const int n = int(gl_LocalInvocationIndex) / LANES, lane = int(gl_LocalInvocationIndex) % LANES, scores = n * SCORES + lane;
    const int from = seen[n].x, end = seen[n].y;
    float top_score = LEAST_SCORE;
    for (int i = 0; i < FOURS; i++) {
        const int at = scores + LANES * i, j = (lane + LANES * i) * 4;
        const uvec4 sum = memory[at];
        const vec4 scale = key_scale[j / 4];
        uvec4 out_;
        [[unroll]] for (int c = 0; c < 4; c++) {
            float s = mul_(mul_(float(int(sum[c])), scale[c]), unit[n]);
            s = s > LEAST_SCORE ? s : LEAST_SCORE;
            s = s < MOST_SCORE ? s : MOST_SCORE;
            if (j + c >= from && j + c < end) top_score = max(top_score, s);
            out_[c] = u_(s);
        }
        memory[at] = out_;
    }
    if (from < end) atomicMax(top_exponent[n], int(roundEven(mul_(top_score, 1.44269504)))); // exponents grow with scores
    barrier();
    const int top = top_exponent[n];
    int sum = 0;
    uint largest = 0u;
    for (int i = 0; i < FOURS; i++) {
        const int at = scores + LANES * i, j = (lane + LANES * i) * 4;
        const uvec4 s = memory[at];
        const vec4 scale = value_scale[j / 4];
        uvec4 out_;
        [[unroll]] for (int c = 0; c < 4; c++) {
            int exponent;
            float e = exp_split(f_(s[c]), exponent);
            e = mul_(e, factor_(exponent - top));
            float w = mul_(e, scale[c]);
            if (w < 0.0) w = 0.0;
            if (j + c < from || j + c >= end) e = w = 0.0;
            sum += int(roundEven(mul_(e, 2097152.0))); // 2^21
            if (!is_nan(w)) largest = max(largest, u_(w) & 0x7fffffffu);
            out_[c] = u_(w);
        }
        memory[at] = out_;
    }
    atomicAdd(sum_weight[n], sum);
    atomicMax(weight_top[n], largest);
    barrier();
    largest = weight_top[n];
    const bool none = largest < 0x0d800000u; // 2^-100
    const float factor = none ? 0.0 : pow2(140 - int(largest >> 23));
    if (lane == 0) unit[n] = none ? 0.0 : pow2(int(largest >> 23) - 140);
    for (int i = 0; i < FOURS; i++) {
        const int at = scores + LANES * i, j = (lane + LANES * i) * 4;
        const uvec4 w = memory[at];
        uint h = 0u, l = 0u;
        [[unroll]] for (int c = 0; c < 4; c++) {
            const bool sees = j + c >= from && j + c < end;
            const float x = mul_(f_(w[c]), factor);
            const uint code = none || !sees ? 0u : uint(int(roundEven(x < WEIGHT_CODE ? x : WEIGHT_CODE)));
            h |= code >> 7 << (c % 2 * 2 + c / 2) * 8, l |= (code & 127u) << (c % 2 * 2 + c / 2) * 8;
        }
        memory[at].xy = uvec2(h, l);
    }
    uvec2 code[FOURS];
    [[unroll]] for (int i = 0; i < FOURS; i++) code[i] = memory[scores + LANES * i].xy;
    barrier();
    [[unroll]] for (int i = 0; i < FOURS; i++) {
        const int four = lane + LANES * i, at = LEFT_AT + n * ROW + four / 4;
        memory[at][four % 4] = code[i].x;
        memory[at + LOW_LEFT][four % 4] = code[i].y;
    }
    barrier();
}

// --- values: blocks of 256 dims

#define FETCH_VALUES(s)                                                              \
    void fetch_values##s(kv_pages kv, int step, int d0)                              \
    {                                                                                \
        const bool limbs = kv.v_bits == 16;                                          \
        fetch_column##s(values_from(kv, step, d0, limbs), kv.head_dim, limbs);       \
    }
FETCH_VALUES(0)
FETCH_VALUES(1)

// The first two steps are on their way, and in the end the next block's.
void add_values(kv_pages kv, Floats leaf, ivec2 pages, int d0)
{
    const bool limbs = kv.v_bits == 16;
    begin_sums();
#define VALUE_STEP(s)                                                                \
    STEP_BARRIER;                                                                    \
    place_column##s(limbs);                                                          \
    STEP_BARRIER;                                                                    \
    if (p + 1 < pages.y) fetch_values##s(kv, 2 * p + 2 + s, d0);                     \
    else if (d0 + 256 < kv.head_dim) fetch_values##s(kv, 2 * pages.x + s, d0 + 256); \
    multiply(2 * p + s, limbs);
    for (int p = pages.x; p < pages.y; p++) {
        VALUE_STEP(0)
        VALUE_STEP(1)
    }
    put_values(leaf, d0, kv.head_dim, limbs);
}

void main()
{
    const int thread = int(gl_LocalInvocationIndex);
    const ivec2 item = Pairs(a.items).at[gl_WorkGroupID.x]; // tile, segment
    if (item.x < 0) return;
    const tile_of_queries t = Tiles(a.tiles).at[item.x];
    kv_pages kv = a.kv;
    if (int64_t(item.y * 4) < a.n_start) kv = a.start;
    const int dim = kv.head_dim;
    const uint64_t codes = a.k + uint64_t(item.x) * uint64_t(TILE * (2 * dim + 4));
    if (thread < TILE) {
        seen[thread] = thread < t.n_q ? seen_by(t, thread, item.y) : ivec2(0);
        unit[thread] = Floats(codes + uint64_t(2 * TILE * dim)).at[thread];
        top_exponent[thread] = -0x7fffffff, sum_weight[thread] = 0, weight_top[thread] = 0u;
    }
    uint64_t from = 0ul;
    if (thread < 4 && int64_t(item.y * 4 + thread) < kv.ld_pages) from = page_block(kv, t.view, item.y * 4 + thread);
    write_numbers();
    barrier();
    int first = SEGMENT, end = 0;
    [[unroll]] for (int n = 0; n < TILE; n++) {
        const ivec2 of = seen[n];
        if (of.x < of.y) first = min(first, of.x), end = max(end, of.y);
    }
    if (first >= end) return;
    const ivec2 pages = ivec2(first / PAGE, (end + PAGE - 1) / PAGE);
    const bool sees = thread >= pages.x && thread < pages.y;
    if (thread < 4) page[thread] = !sees || from == 0ul ? 0ul : from + uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes));
    find_elements();
    barrier();
    score(kv, codes);
    fetch_values0(kv, 2 * pages.x, 0), fetch_values1(kv, 2 * pages.x + 1, 0);
    weigh();
    Floats leaf = leaf_o_at(leaf_number(t, 0, item.y - t.seg0), dim);
    for (int d0 = 0; d0 < dim; d0 += 256) add_values(kv, leaf, pages, d0);
    if (thread < t.n_q && seen[thread].x < seen[thread].y) {
        const uint64_t at = uint64_t(leaf_number(t, thread, item.y - t.seg0)) * 4ul;
        Floats(a.leaf_l + at).at[0] = mul_(float(sum_weight[thread]), 4.76837158203125e-07); // 2^-21
        Ints(a.leaf_m + at).at[0] = top_exponent[thread];
    }
}
