// Products of Form Q for few rows (ops/linear/linear.h), weights as cuda/product/layout.h has them, LIMBS of an
// activation: 16 outputs and a tile of rows. A thread computes the values t of two outputs and a unit of 64 inputs, for
// all rows; then a thread the chain over them of an output, row and leaf. Any number of threads of a multiple of 8 does
// (specialised by vulkan/kernels.def). grid (panels, ceil(rows / TILE)); of experts (EXPERTS)
// (panels, jobs ceil(rows of a job / TILE), matrices); with a gate (GATED) (groups of its outputs, rows or jobs of one)
//
// Chains take the device's fma as it is. A workgroup that meets a small scale computes its outputs again,
// by code that is short and slow: what is rarely used would take registers that leave one workgroup to a multiprocessor.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "dot.glsl"
#include "jobs.glsl"
// The tile; 256 times the form of the matrix; with a gate (GATED) 4,096 times its panels, of each of its matrices if
// there are two (65,536).
#ifdef GATED
layout(constant_id = 1) const int SPECIAL = 0x2101;
#else
layout(constant_id = 1) const int SPECIAL = 4;
#endif
const int TILE = SPECIAL & 255, FORM = SPECIAL >> 8 & 15;
#ifdef GATED
const int OWN_PANELS = SPECIAL >> 12 & 15, PANELS = OWN_PANELS * (1 + (SPECIAL >> 16));
#else
const int OWN_PANELS = 1, PANELS = 1;
#endif
const int WIDTH = 16 * PANELS; // outputs
#define TREE_WIDTH (WIDTH * TILE)
#include "tree.glsl"
layout(local_size_x_id = 0) in;

// What is known of the matrix and its rows: nothing; groups of 32 with binary16 scales; MLX's, groups of 64 with biases;
// groups of 16 with scales of 32 bits (cuda/product/plain.c).
const int ANY_FORM = 0, HALF_32 = 1, AFFINE_64 = 2, FLOAT_16 = 3;

int group_of_acts()
{
    return FORM == HALF_32 ? 32 : FORM == AFFINE_64 ? 64 : FORM == FLOAT_16 ? 16 : args.a.x.a_group;
}

int group_shift()
{
    return FORM == HALF_32 ? 5 : FORM == AFFINE_64 ? 6 : FORM == FLOAT_16 ? 4 : args.a.group_shift;
}

bool is_biased()
{
    return FORM == AFFINE_64 || (FORM == ANY_FORM && args.a.biased != 0);
}

#include "unit.glsl"
#include "element.glsl"
// Scales of few rows' weights, and the condition on which a workgroup begins again. If no scale of weights or rows is
// below 2^-40 and not 0, all numbers of a chain are multiples of 2^-126 and not denormal.
shared uint careful; // 1: one was met
bool met_small = false; // by this thread

bool is_small(float x)
{
    const uint u = u_(x) & 0x7fffffffu;
    return u != 0u && u < 0x2b800000u; // 2^-40
}

// Two scales that lie side by side. A device converts a normal binary16 exactly, in one instruction; its denormals may be
// zeros there, so those are converted by integers, which takes some 13.
vec2 narrow_scales(uint u)
{
    if (!(FORM == HALF_32 || (FORM == ANY_FORM && args.a.f16_scales != 0)))
        return vec2(bf16_to_float(u & 0xffffu), bf16_to_float(u >> 16));
    if ((u & 0x7c00u) == 0u || (u & 0x7c000000u) == 0u) return vec2(half_to_float(u & 0xffffu), half_to_float(u >> 16));
    return unpackHalf2x16(u);
}

// s and b' of output p, then of output p + 8, in group g of a unit.
vec4 scales_of(int panel, int unit, int g, int p, bool care)
{
    const bool biased = is_biased(), wide = FORM == FLOAT_16 || (FORM == ANY_FORM && args.a.f32_scales != 0);
    const int k = args.a.x.k, shift = group_shift(), first = unit * UNIT + g * group_of_acts();
    const int group = (FORM == ANY_FORM ? min(first, k - 1) : first) >> shift;
    const int bytes = (wide ? 8 : 4) * (biased ? 2 : 1); // of both outputs
    const uint at = uint(panel * (k >> shift) + group);
    const uint64_t from = scales_at + uint64_t(at) * uint64_t(8 * bytes) + uint64_t(p * bytes);
    vec4 x = vec4(0.0); // s, b, s, b
    if (wide && biased) {
        x = vec4(Floats(from).at[0], Floats(from).at[1], Floats(from).at[2], Floats(from).at[3]);
    } else if (wide) {
        x.xz = vec2(Floats(from).at[0], Floats(from).at[1]);
    } else {
        const vec2 first = narrow_scales(Words(from).at[0]);
        if (biased) x = vec4(first, narrow_scales(Words(from).at[1]));
        else x.xz = first;
    }
    if (FORM == HALF_32) return x; // no binary16 but 0 is below 2^-24
    bool small = is_small(x.x) || is_small(x.z);
    if (biased) {
        const float zero = float(args.a.zero);
        small = small || is_small(x.y) || is_small(x.w);
#if EK_SOFT
        for (int i = 0; i < 4; i += 2) x[i + 1] = soft_fma(zero, x[i], x[i + 1]);
#else
        if (care) x.yw = vec2(fma_(zero, x.x, x.y), fma_(zero, x.z, x.w));
        else x.yw = vec2(normal_fma(zero, x.x, x.y), normal_fma(zero, x.z, x.w));
#endif
        small = small || is_small(x.y) || is_small(x.w);
    }
    met_small = met_small || small;
    return x;
}

// t of a group: a sum of products, and with biases X, the sum of its activations.
float value_of(vec2 sb, int sum, float x, bool biased, bool care)
{
    const float t = mul_(sb.x, float(sum));
    if (!biased) return t;
#if EK_SOFT
    return soft_fma(sb.y, x, t);
#else
    return care ? fma_(sb.y, x, t) : normal_fma(sb.y, x, t);
#endif
}

const int VALUES = 4096, FACTORS = VALUES / 16, LEAVES = 16;
shared float value_at[VALUES];    // t of groups in order, TILE rows of WIDTH outputs each
shared float factor_at[FACTORS];  // sx of groups in order, TILE rows each
shared float leaf_at[FACTORS];

uint64_t record_of(int row)
{
    return args.a.x.q + uint64_t(int64_t(row_read(row)) * args.a.x.ldq);
}

// Sums of products of outputs p and p + 8 with a limb, by step and half of its inputs.
struct pair_sums {
    ivec4 low, high;
};

// Adds those of lane t of four: w its codes of both steps, or (8 bits) of the first, and of the second w2.
void add_lane(inout pair_sums s, uvec4 w, uvec4 w2, uvec4 x)
{
#if BITS == 8
    s.low += ivec4(dot4(w.x, x.x), dot4(w.z, x.y), dot4(w2.x, x.z), dot4(w2.z, x.w));
    s.high += ivec4(dot4(w.y, x.x), dot4(w.w, x.y), dot4(w2.y, x.z), dot4(w2.w, x.w));
#else
    s.low += ivec4(dot4(low_nibbles(w.x), x.x), dot4(high_nibbles(w.x), x.y), dot4(low_nibbles(w.z), x.z),
                   dot4(high_nibbles(w.z), x.w));
    s.high += ivec4(dot4(low_nibbles(w.y), x.x), dot4(high_nibbles(w.y), x.y), dot4(low_nibbles(w.w), x.z),
                    dot4(high_nibbles(w.w), x.w));
#endif
}

#if BITS == 8
#define SECOND(w) w
#else
#define SECOND(w) uvec4(0)
#endif

// The panel of panel q of the workgroup; with two matrices, codes_at and scales_at become those of its own.
int open_panel(int q)
{
#ifdef GATED
    open_matrix(q >= OWN_PANELS);
#endif
    return int(gl_WorkGroupID.x) * OWN_PANELS + q % OWN_PANELS;
}

// No array stands here: one that a driver indexes by a variable lies in memory.
void unit_values(int unit, int slot, int q, int p, int row, int rows)
{
    const int a_group = group_of_acts(), each = UNIT / a_group, k = args.a.x.k, panel = open_panel(q);
#ifdef GATED
    if (panel * 16 >= args.a.n) return;
#endif
    const bool biased = is_biased();
    Quads codes = Quads(unit_at(panel, unit) + uint64_t(p * 64));
    const uvec4 w0 = codes.at[0], w1 = codes.at[1], w2 = codes.at[2], w3 = codes.at[3];
#if BITS == 8
    const uvec4 w4 = codes.at[32], w5 = codes.at[33], w6 = codes.at[34], w7 = codes.at[35];
#endif
#if !EK_SOFT
    const vec4 sb0 = scales_of(panel, unit, 0, p, false);
    vec4 sb1 = vec4(0.0), sb2 = vec4(0.0), sb3 = vec4(0.0);
    if (each > 1) sb1 = scales_of(panel, unit, 1, p, false);
    if (each > 2) sb2 = scales_of(panel, unit, 2, p, false), sb3 = scales_of(panel, unit, 3, p, false);
#endif
    for (int r = 0; r < rows; r++) {
        const uint64_t record = record_of(row + r);
        pair_sums s = pair_sums(ivec4(0), ivec4(0));
        for (int limb = 0; limb < LIMBS; limb++) {
            Quads h = Quads(record + uint64_t(unit * UNIT) + (limb > 0 ? uint64_t(args.a.x.low) : 0ul));
            const uvec4 a = h.at[0], b = h.at[1], c = h.at[2], d = h.at[3];
            uvec4 x0 = a, x1 = b, x2 = c, x3 = d; // of lanes, by step and half
            if (a_group == 32) {
                x0 = uvec4(a.xy, c.xy), x1 = uvec4(a.zw, c.zw), x2 = uvec4(b.xy, d.xy), x3 = uvec4(b.zw, d.zw);
            } else if (a_group == 16) {
                x0 = uvec4(a.x, b.x, c.x, d.x), x1 = uvec4(a.y, b.y, c.y, d.y);
                x2 = uvec4(a.z, b.z, c.z, d.z), x3 = uvec4(a.w, b.w, c.w, d.w);
            }
            s.low *= 256, s.high *= 256;
            add_lane(s, w0, SECOND(w4), x0), add_lane(s, w1, SECOND(w5), x1);
            add_lane(s, w2, SECOND(w6), x2), add_lane(s, w3, SECOND(w7), x3);
        }
        s.low = sums_of_groups(s.low, a_group), s.high = sums_of_groups(s.high, a_group);
        Floats groups = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1]));
        const int first = unit * each, at = slot * each * TILE * WIDTH + r * WIDTH + q * 16 + p, by = TILE * WIDTH;
#define VALUE(g, sb)                                                                 \
    if (g < each && (FORM != ANY_FORM || (first + g) * a_group < k)) {               \
        const float x = biased ? groups.at[(first + g) * 2 + 1] : 0.0;               \
        value_at[at + g * by] = value_of(sb.xy, s.low[g], x, biased, false);         \
        value_at[at + g * by + 8] = value_of(sb.zw, s.high[g], x, biased, false);    \
    }
#if EK_SOFT // once, for an fma is long
        for (int g = 0; g < each; g++) {
            const vec4 sb = scales_of(panel, unit, g, p, false);
            VALUE(g, sb)
        }
#else
        VALUE(0, sb0)
        VALUE(1, sb1)
        if (each > 2) {
            VALUE(2, sb2)
            VALUE(3, sb3)
        }
#endif
    }
}

// A leaf's chain over n groups from group `from` on.
float chain(int from, int n, int r, int o)
{
    float sum = 0.0;
    int at = (from * TILE + r) * WIDTH + o, x = from * TILE + r, g = 0;
#if !EK_SOFT
#define LINK(i) sum = normal_fma(value_at[at + i * TILE * WIDTH], factor_at[x + i * TILE], sum);
    for (; g + 8 <= n; g += 8, at += 8 * TILE * WIDTH, x += 8 * TILE) {
        LINK(0) LINK(1) LINK(2) LINK(3) LINK(4) LINK(5) LINK(6) LINK(7)
    }
#endif
    for (; g < n; g++, at += TILE * WIDTH, x += TILE) sum = normal_fma(value_at[at], factor_at[x], sum);
    return sum;
}

// T over n leaves of an output and row, whose own they are.
float tree_of(int at, int n)
{
    for (int apart = 1; apart < n; apart *= 2)
        for (int i = 0; i + apart < n; i += 2 * apart)
            leaf_at[i * TREE_WIDTH + at] = add_(leaf_at[i * TREE_WIDTH + at], leaf_at[(i + apart) * TREE_WIDTH + at]);
    return leaf_at[at];
}

float factor_of(int row, int group)
{
    return Floats(record_of(row) + uint64_t(args.a.x.groups[LIMBS - 1])).at[group * 2];
}

// Of the workgroup's outputs and rows, each by a thread of the first.
float run(int row, int rows)
{
    const int thread = int(gl_LocalInvocationID.x), threads = int(gl_WorkGroupSize.x), k = args.a.x.k;
    const int a_group = group_of_acts(), each = UNIT / a_group, in_leaf = LEAF / a_group;
    const int at_once = LEAVES / (each * TILE * PANELS), all = (k + LEAF - 1) / LEAF; // leaves
    const int groups = (k + a_group - 1) / a_group, units = (k + UNIT - 1) / UNIT;
    float y = 0.0;
    for (int leaf0 = 0; leaf0 < all; leaf0 += at_once) {
        const int n = min(at_once, all - leaf0), group0 = leaf0 * in_leaf, unit0 = leaf0 * (LEAF / UNIT);
        // Of one row a thread has one factor at most, which is asked for in front of all else and stored behind it.
        const bool early = TILE == 1 && thread < n * in_leaf && group0 + thread < groups;
        float x = 0.0;
        if (early) x = factor_of(row, group0 + thread);
        for (int i = thread; TILE > 1 && i < n * in_leaf * TILE; i += threads) {
            const int g = group0 + i / TILE, r = i % TILE;
            if (g >= groups || r >= rows) continue;
            x = factor_of(row + r, g);
            factor_at[i] = x;
            met_small = met_small || is_small(x);
        }
        for (int i = thread / 8; i < n * (LEAF / UNIT) * PANELS && unit0 + i / PANELS < units; i += threads / 8)
            unit_values(unit0 + i / PANELS, i / PANELS, i % PANELS, thread % 8, row, rows);
        if (early) factor_at[thread] = x, met_small = met_small || is_small(x);
        barrier();
        if (met_small) careful = 1u;
        for (int i = thread; i < n * TREE_WIDTH; i += threads) {
            const int o = i % WIDTH, r = i / WIDTH % TILE, from = i / TREE_WIDTH * in_leaf;
            if (r < rows) leaf_at[i] = chain(from, min(in_leaf, groups - group0 - from), r, o);
        }
        barrier();
        if (thread >= WIDTH * rows) continue;
        y = tree_of(thread, n);
        if (all > at_once) push_leaf(thread, y, leaf0 / at_once);
    }
    return all > at_once && thread < WIDTH * rows ? sum_of_leaves(thread, (all + at_once - 1) / at_once) : y;
}

#if !EK_SOFT
// The sum of products of an output's codes in a group with a row's.
int sum_of_group(uint64_t record, int panel, int o, int first)
{
    const int end = min(first + group_of_acts(), args.a.x.k);
    int high = 0, low = 0, shift;
    for (int k = first; k < end; k++) {
        const int place = place_of_code(o, k % UNIT, BITS, group_of_acts(), shift);
        const int code = centred(uint(Bytes(unit_at(panel, k / UNIT)).at[place]), shift, BITS);
        high += code * centred(uint(Bytes(record).at[k]), 0, 8);
        if (LIMBS == 2) low += code * centred(uint(Bytes(record + uint64_t(args.a.x.low)).at[k]), 0, 8);
    }
    return LIMBS == 2 ? 256 * high + low : high;
}

// An output of a row, by a thread, with an fma that loses nothing.
float with_care(int row, int q, int o, int node)
{
    const int a_group = group_of_acts(), each = UNIT / a_group, groups = (args.a.x.k + a_group - 1) / a_group;
    const int in_leaf = LEAF / a_group, all = (groups + in_leaf - 1) / in_leaf, panel = open_panel(q);
    const uint64_t record = record_of(row);
    Floats own = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1]));
    for (int leaf = 0; leaf < all; leaf++) {
        float sum = 0.0;
        for (int g = leaf * in_leaf; g < min(groups, (leaf + 1) * in_leaf); g++) {
            const vec4 sb = scales_of(panel, g / each, g % each, o % 8, true);
            const float x = is_biased() ? own.at[g * 2 + 1] : 0.0;
            const int s = sum_of_group(record, panel, o, g * a_group);
            sum = fma_(value_of(o < 8 ? sb.xy : sb.zw, s, x, is_biased(), true), own.at[g * 2], sum);
        }
        push_leaf(node, sum, leaf);
    }
    return sum_of_leaves(node, all);
}
#endif

#ifdef GATED
const int GROUPS = 1;
#include "group_codes.glsl"

// gelu of the gate's outputs times those of the second matrix, or times u, quantised: as many as a group has.
void gate(int row, float y)
{
    const int thread = int(gl_LocalInvocationID.x), group = 16 * OWN_PANELS, at = int(gl_WorkGroupID.x) * group + thread;
    const bool mine = thread < group, there = mine && at < args.a.n;
    float v = 0.0;
    begin_groups();
    if (thread < WIDTH) leaf_at[thread] = y;
    barrier();
    if (there) {
        Floats u = Floats(args.u + uint64_t(int64_t(row) * args.ldu * 4l));
        v = mul_(gelu_(leaf_at[thread]), PANELS > OWN_PANELS ? leaf_at[group + thread] : u.at[at]);
    }
    if (mine) see_value(0, v);
    barrier();
    if (mine) write_code(args.to, int64_t(row), at, 0, v);
    barrier();
    write_groups(args.to, int64_t(row), int(gl_WorkGroupID.x), 1);
}
#endif

void main()
{
    const int thread = int(gl_LocalInvocationID.x);
    if (!open_work(TILE)) return;
    const int row = first_row, rows = min(TILE, end_row - row);
    if (thread == 0) careful = 0u; // what sets it is behind a barrier
    float y = run(row, rows);
#if !EK_SOFT
    if (careful != 0u && thread < WIDTH * rows) y = with_care(row + thread / WIDTH, thread % WIDTH / 16, thread % 16, thread);
#endif
#ifdef GATED
    gate(row, y);
#else
    const int output_ = int(gl_WorkGroupID.x) * 16 + thread % 16;
    if (thread < 16 * rows && output_ < args.a.n)
        Floats(y_at + uint64_t((int64_t(row + thread / 16) * args.a.ldy + int64_t(output_)) * 4l)).at[0] = y;
#endif
}
