// Attention in integers (ops/attn/attn_int.h): one segment of 256 keys for a tile of TILE queries of one KV head, whose codes
// attn_int_queries.comp wrote. Heads of a multiple of 64 dims. Two products: of queries with 256 keys over the dims, and of
// weights with 256 dims over the keys, in steps of 64 bytes of a column, or 32 numbers of 16 bits in two limbs: of 12 bits 5
// and 7, of weights' 14 twice 7. COOPERATIVE: by matrices of bytes; else by packed products. grid (items)
#include "memory.glsl"
#include "attn.glsl"
#include "dot.glsl"
layout(local_size_x = 256) in;
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Quads { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Fours { vec4 at[]; };

// Quads of a column, of a query in a step, of its weights, of its scores: one is spare where that keeps rows in different banks.
#ifdef COOPERATIVE
const int TILE = 32, COLUMN = 3, QUERY = 3;
#else
const int TILE = 16, COLUMN = 2, QUERY = 2;
#endif
const int WEIGHTS = 17, SCORES = 65, LEFT_AT = 2 * 256 * COLUMN, LANES = 256 / TILE, FOURS = 64 / LANES;
shared uvec4 memory[LEFT_AT + 2 * TILE * WEIGHTS]; // columns; queries, then weights; scores are over both
shared uint64_t page[4];
shared ivec2 seen[TILE];
shared float query_scale[TILE];
shared uint weight_top[TILE];
shared int top_exponent[TILE], sum_weight[TILE];

// --- products: sums of limbs, high by high, high by low, low by low; of bytes high by them, none, low by them

#ifdef COOPERATIVE
#include "matrices.glsl"
const int DOWN = 2, ACROSS = 2, EACH = 8;
#if EK_SOFT
uvec4 left_quad(int i)
{
    return memory[i];
}

uvec4 right_quad(int i)
{
    return memory[i];
}
#endif

SUMS high[DOWN * ACROSS], middle[DOWN * ACROSS], low[DOWN * ACROSS];
int number[EACH]; // of the element: 16 row + column

void find_elements()
{
    SUMS numbers;
    const uint at = gl_LocalInvocationIndex;
    if (at < 64u) memory[at] = uvec4(4u * at, 4u * at + 1u, 4u * at + 2u, 4u * at + 3u);
    barrier();
    NUMBERS(numbers, memory, 4);
    [[unroll]] for (int c = 0; c < EACH; c++) number[c] = numbers[c];
    barrier();
}

void begin_sums()
{
    [[unroll]] for (int i = 0; i < DOWN * ACROSS; i++) high[i] = middle[i] = low[i] = ZERO_SUMS;
}

// left: a row's quad of high limbs; low ones are limb_step behind it, the second half of bytes slot_step.
void multiply(int left, int limb_step, int slot_step, int pitch, bool limbs)
{
    const int column = SUBGROUP * ACROSS * 16;
    LEFT h[DOWN], l[DOWN];
    RIGHT r, s;
    [[unroll]] for (int slot = 0; slot < 2; slot++) {
        if (limbs && slot == 1) break;
        [[unroll]] for (int i = 0; i < DOWN; i++) {
            LOAD_LEFT(h[i], memory, left + slot * slot_step + i * 16 * pitch, pitch);
            LOAD_LEFT(l[i], memory, left + slot * slot_step + limb_step + i * 16 * pitch, pitch);
        }
        [[unroll]] for (int j = 0; j < ACROSS; j++) {
            LOAD_RIGHT(r, memory, (slot * 256 + column + j * 16) * COLUMN, COLUMN);
            if (limbs) LOAD_RIGHT(s, memory, (256 + column + j * 16) * COLUMN, COLUMN);
            [[unroll]] for (int i = 0; i < DOWN; i++) {
                const int e = i * ACROSS + j;
                high[e] = ADD_PRODUCT(h[i], r, high[e]);
                if (limbs) {
                    middle[e] = ADD_PRODUCT(l[i], r, middle[e]);
                    middle[e] = ADD_PRODUCT(h[i], s, middle[e]);
                    low[e] = ADD_PRODUCT(l[i], s, low[e]);
                } else {
                    low[e] = ADD_PRODUCT(l[i], r, low[e]);
                }
            }
        }
    }
}

void put_scores(bool limbs)
{
    [[unroll]] for (int i = 0; i < DOWN; i++)
        [[unroll]] for (int j = 0; j < ACROSS; j++) {
            const int e = i * ACROSS + j;
            SUMS sum;
            [[unroll]] for (int c = 0; c < EACH; c++)
                sum[c] = limbs ? high[e][c] * 16384 + middle[e][c] * 128 + low[e][c] : high[e][c] * 128 + low[e][c];
            STORE_SUMS(sum, memory, i * 16 * SCORES + (SUBGROUP * ACROSS + j) * 4, SCORES);
        }
}

const int ELEMENTS = DOWN * ACROSS * EACH;
int row_of(int e)
{
    return e / (ACROSS * EACH) * 16 + number[e % EACH] / 16;
}

int column_of(int e)
{
    return (SUBGROUP * ACROSS + e / EACH % ACROSS) * 16 + number[e % EACH] % 16;
}

ivec3 sums_of(int e)
{
    return ivec3(high[e / EACH][e % EACH], middle[e / EACH][e % EACH], low[e / EACH][e % EACH]);
}
#else
const int DOWN = 4, ACROSS = 4, ELEMENTS = DOWN * ACROSS;
int high[ELEMENTS], middle[ELEMENTS], low[ELEMENTS];

void find_elements()
{
}

void begin_sums()
{
    [[unroll]] for (int i = 0; i < ELEMENTS; i++) high[i] = middle[i] = low[i] = 0;
}

int row_of(int e)
{
    return int(gl_LocalInvocationIndex) / 64 * DOWN + e / ACROSS;
}

int column_of(int e)
{
    return int(gl_LocalInvocationIndex) % 64 + e % ACROSS * 64;
}

int dot16(uvec4 x, uvec4 y)
{
    return dot4(x.x, y.x) + dot4(x.y, y.y) + dot4(x.z, y.z) + dot4(x.w, y.w);
}

void multiply(int left, int limb_step, int slot_step, int pitch, bool limbs)
{
    for (int slot = 0; slot < (limbs ? 1 : 2); slot++)
        for (int quad = 0; quad < 2; quad++) {
            uvec4 r[ACROSS], s[ACROSS];
            [[unroll]] for (int j = 0; j < ACROSS; j++) {
                r[j] = memory[(slot * 256 + column_of(j)) * COLUMN + quad];
                if (limbs) s[j] = memory[(256 + column_of(j)) * COLUMN + quad];
            }
            [[unroll]] for (int i = 0; i < DOWN; i++) {
                const int at = left + slot * slot_step + row_of(i * ACROSS) * pitch + quad;
                const uvec4 h = memory[at], l = memory[at + limb_step];
                [[unroll]] for (int j = 0; j < ACROSS; j++) {
                    const int e = i * ACROSS + j;
                    high[e] += dot16(h, r[j]);
                    if (limbs) middle[e] += dot16(l, r[j]) + dot16(h, s[j]), low[e] += dot16(l, s[j]);
                    else low[e] += dot16(l, r[j]);
                }
            }
        }
}

void put_scores(bool limbs)
{
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) {
        const int sum = limbs ? high[e] * 16384 + middle[e] * 128 + low[e] : high[e] * 128 + low[e];
        memory[row_of(e) * SCORES + column_of(e) / 4][column_of(e) % 4] = uint(sum);
    }
}

ivec3 sums_of(int e)
{
    return ivec3(high[e], middle[e], low[e]);
}
#endif

// --- a step of columns: a thread has one

uint next_word[16];
uvec4 next_query;

// Words [0, 16) of a column, each `step` behind the last one; from 0: zeros.
void fetch_column(uint64_t from, int step)
{
    Words w = Words(from);
    [[unroll]] for (int i = 0; i < 16; i++) next_word[i] = 0u;
    if (from == 0ul) return;
    [[unroll]] for (int i = 0; i < 16; i++) next_word[i] = w.at[i * step];
}

void place_column(bool limbs)
{
    const int at = int(gl_LocalInvocationIndex) * COLUMN;
    uvec4 q[4];
    [[unroll]] for (int i = 0; i < 16; i++) q[i / 4][i % 4] = next_word[i];
    if (limbs) {
        uvec4 h[2], l[2];
        [[unroll]] for (int i = 0; i < 8; i++) {
            const uint x = next_word[2 * i], y = next_word[2 * i + 1];
            h[i / 4][i % 4] = (x >> 7 & 0x00ff00ffu) | (y >> 7 & 0x00ff00ffu) << 8;
            l[i / 4][i % 4] = (x & 0x007f007fu) | (y & 0x007f007fu) << 8;
        }
        q[0] = h[0], q[1] = h[1], q[2] = l[0], q[3] = l[1];
    }
    memory[at] = q[0], memory[at + 1] = q[1];
    memory[256 * COLUMN + at] = q[2], memory[256 * COLUMN + at + 1] = q[3];
}

// Of codes at `from`: two limbs of TILE queries; a step of bytes has four quads of each, of limbs two.
void fetch_queries(uint64_t from, int dim, int step, bool limbs)
{
    const int i = int(gl_LocalInvocationIndex), quads = limbs ? 2 : 4;
    if (i < 2 * TILE * quads)
        next_query = Quads(from + uint64_t(i / quads * dim + (step * quads + i % quads) * 16)).at[0];
}

void place_queries(bool limbs)
{
    const int i = int(gl_LocalInvocationIndex), quads = limbs ? 2 : 4, quad = i % quads;
    if (i < 2 * TILE * quads) memory[LEFT_AT + (quad / 2 * 2 * TILE + i / quads) * QUERY + quad % 2] = next_query;
}

void score(kv_pages kv, uint64_t codes)
{
    const int key = int(gl_LocalInvocationIndex), dim = kv.head_dim, left = LEFT_AT;
    const bool limbs = kv.k_bits == 16;
    const int steps = dim / (limbs ? 32 : 64);
    const uint64_t keys = page[key / PAGE] == 0ul ? 0ul : page[key / PAGE] + uint64_t(key % PAGE * 4);
    begin_sums();
    fetch_column(keys, PAGE);
    fetch_queries(codes, dim, 0, limbs);
    for (int step = 0; step < steps; step++) {
        barrier();
        place_column(limbs), place_queries(limbs);
        barrier();
        if (step + 1 < steps) {
            fetch_column(keys == 0ul ? 0ul : keys + uint64_t((step + 1) * 16 * PAGE * 4), PAGE);
            fetch_queries(codes, dim, step + 1, limbs);
        }
        if (limbs) multiply(left, TILE * QUERY, 0, QUERY, true);
        else multiply(left, TILE * QUERY, 2 * TILE * QUERY, QUERY, false);
    }
    barrier();
    put_scores(limbs);
    barrier();
}

// --- weights: a query's keys by LANES threads, four beside each other

const float WEIGHT_CODE = 16383.0;

void weigh(kv_pages kv)
{
    const int n = int(gl_LocalInvocationIndex) / LANES, lane = int(gl_LocalInvocationIndex) % LANES, dim = kv.head_dim;
    float e[4 * FOURS];
    int exponent[4 * FOURS], top = -0x7fffffff, sum = 0;
    uint largest = 0u;
    [[unroll]] for (int i = 0; i < FOURS; i++) {
        const int j = (lane + LANES * i) * 4;
        const uvec4 s = memory[n * SCORES + j / 4];
        vec4 scale = vec4(0.0);
        if (page[j / PAGE] != 0ul) scale = Fours(page[j / PAGE] + uint64_t((kv.k_bits / 8 * dim * PAGE) + j % PAGE * 4)).at[0];
        [[unroll]] for (int c = 0; c < 4; c++) {
            e[i * 4 + c] = exp_split(mul_(mul_(float(int(s[c])), scale[c]), query_scale[n]), exponent[i * 4 + c]);
            if (j + c >= seen[n].x && j + c < seen[n].y) top = max(top, exponent[i * 4 + c]);
        }
    }
    atomicMax(top_exponent[n], top);
    barrier();
    top = top_exponent[n];
    [[unroll]] for (int i = 0; i < FOURS; i++) {
        const int j = (lane + LANES * i) * 4;
        vec4 scale = vec4(0.0);
        if (page[j / PAGE] != 0ul)
            scale = Fours(page[j / PAGE] + uint64_t(kv.k_bytes + int64_t(kv.v_bits / 8 * dim * PAGE + j % PAGE * 4))).at[0];
        [[unroll]] for (int c = 0; c < 4; c++) {
            const int at = i * 4 + c;
            if (j + c < seen[n].x || j + c >= seen[n].y) continue;
            e[at] = mul_(e[at], factor_(exponent[at] - top));
            sum += int(roundEven(mul_(e[at], 2097152.0))); // 2^21
            e[at] = mul_(e[at], scale[c]);
            if (e[at] < 0.0) e[at] = 0.0;
            if (!is_nan(e[at])) largest = max(largest, u_(e[at]) & 0x7fffffffu);
        }
    }
    atomicAdd(sum_weight[n], sum);
    atomicMax(weight_top[n], largest);
    barrier();
    largest = weight_top[n];
    const bool none = largest < 0x0d800000u; // 2^-100
    const float factor = none ? 0.0 : pow2(140 - int(largest >> 23));
    [[unroll]] for (int i = 0; i < FOURS; i++) {
        const int j = (lane + LANES * i) * 4, at = LEFT_AT + n * WEIGHTS + j / 16;
        uint h = 0u, l = 0u;
        [[unroll]] for (int c = 0; c < 4; c++) {
            if (none || j + c < seen[n].x || j + c >= seen[n].y) continue;
            const float x = mul_(e[i * 4 + c], factor);
            const uint code = uint(int(roundEven(x < WEIGHT_CODE ? x : WEIGHT_CODE)));
            h |= code >> 7 << (c % 2 * 2 + c / 2) * 8, l |= (code & 127u) << (c % 2 * 2 + c / 2) * 8;
        }
        memory[at][j / 4 % 4] = h;
        memory[at + TILE * WEIGHTS][j / 4 % 4] = l;
    }
}

// --- values

float value_of(ivec3 sum, bool limbs)
{
    if (!limbs) return float(sum.x * 128 + sum.z);
    const int rest = ((sum.x & 3) << 14) + (sum.y << 7) + sum.z;
    return add_(mul_(float((sum.x >> 2) + (rest >> 16)), 65536.0), float(rest & 0xffff)); // the product is exact
}

uint64_t values_from(kv_pages kv, int step, int d, bool limbs)
{
    const uint64_t from = page[limbs ? step / 2 : step];
    if (from == 0ul || d >= kv.head_dim) return 0ul;
    return from + uint64_t(kv.k_bytes + int64_t(((limbs ? step % 2 * 16 : 0) * kv.head_dim + d) * 4));
}

void add_values(kv_pages kv, tile_of_queries t, int seg, ivec2 pages, int d0)
{
    const bool limbs = kv.v_bits == 16;
    const int dim = kv.head_dim, d = d0 + int(gl_LocalInvocationIndex), each = limbs ? 2 : 1;
    begin_sums();
    fetch_column(values_from(kv, pages.x * each, d, limbs), dim);
    for (int step = pages.x * each; step < pages.y * each; step++) {
        barrier();
        place_column(limbs);
        barrier();
        if (step + 1 < pages.y * each) fetch_column(values_from(kv, step + 1, d, limbs), dim);
        if (limbs) multiply(LEFT_AT + step * 2, TILE * WEIGHTS, 0, WEIGHTS, true);
        else multiply(LEFT_AT + step * 4, TILE * WEIGHTS, 2, WEIGHTS, false);
    }
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) {
        const int n = row_of(e), at = d0 + column_of(e);
        if (n >= t.n_q || at >= dim || seen[n].x >= seen[n].y) continue;
        const bool none = weight_top[n] < 0x0d800000u;
        const float unit = none ? 0.0 : pow2(int(weight_top[n] >> 23) - 140);
        leaf_o_at(leaf_number(t, n, seg - t.seg0), dim).at[at] = none ? 0.0 : mul_(value_of(sums_of(e), limbs), unit);
    }
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
        query_scale[thread] = Floats(codes + uint64_t(2 * TILE * dim)).at[thread];
        top_exponent[thread] = -0x7fffffff, sum_weight[thread] = 0, weight_top[thread] = 0u;
    }
    barrier();
    int first = SEGMENT, end = 0;
    for (int n = 0; n < t.n_q; n++)
        if (seen[n].x < seen[n].y) first = min(first, seen[n].x), end = max(end, seen[n].y);
    if (first >= end) return;
    const ivec2 pages = ivec2(first / PAGE, (end + PAGE - 1) / PAGE);
    if (thread < 4) {
        uint64_t from = 0ul;
        if (thread >= pages.x && thread < pages.y) from = page_block(kv, t.view, item.y * 4 + thread);
        page[thread] = from == 0ul ? 0ul : from + uint64_t(int64_t(t.kv_head) * (kv.k_bytes + kv.v_bytes));
    }
    barrier();
    find_elements();
    score(kv, codes);
    weigh(kv);
    for (int d0 = 0; d0 < dim; d0 += 256) add_values(kv, t, item.y, pages, d0);
    if (thread < t.n_q && seen[thread].x < seen[thread].y) {
        const uint64_t at = uint64_t(leaf_number(t, thread, item.y - t.seg0)) * 4ul;
        Floats(a.leaf_l + at).at[0] = mul_(float(sum_weight[thread]), 4.76837158203125e-07); // 2^-21
        Ints(a.leaf_m + at).at[0] = top_exponent[thread];
    }
}
