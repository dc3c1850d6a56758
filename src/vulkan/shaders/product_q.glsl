// Products of Form Q for few rows (ops/linear/linear.h), weights as cuda/product/layout.h has them, LIMBS of an
// activation: 16 outputs and a tile of rows. A thread computes the values t of two outputs and a unit of 64 inputs, for
// all rows; then a thread the chain over them of an output, row and leaf. Any number of threads of a multiple of 8 does
// (specialised by vulkan/kernels.def). grid (panels, ceil(rows / TILE)); of experts (EXPERTS)
// (panels, jobs ceil(rows of a job / TILE), matrices)
//
// Chains take the device's fma as it is, and a workgroup that meets a small scale begins again (scales.glsl).
#include "memory.glsl"
#include "linear_args.glsl"
#include "dot.glsl"
#include "jobs.glsl"
layout(constant_id = 1) const int SPECIAL = 4; // the tile, and 256 times the form of the matrix
const int TILE = SPECIAL & 255, FORM = SPECIAL >> 8;
#include "tree.glsl"
layout(local_size_x_id = 0) in;

// What is known of the matrix and its rows: nothing; groups of 32 with binary16 scales; MLX's, groups of 64 with biases
// (cuda/product/plain.c).
const int ANY_FORM = 0, HALF_32 = 1, AFFINE_64 = 2;

int group_of_acts()
{
    return FORM == HALF_32 ? 32 : FORM == AFFINE_64 ? 64 : args.a.x.a_group;
}

int group_shift()
{
    return FORM == HALF_32 ? 5 : FORM == AFFINE_64 ? 6 : args.a.group_shift;
}

bool is_biased()
{
    return FORM == AFFINE_64 || (FORM == ANY_FORM && args.a.biased != 0);
}

#include "unit.glsl"
#include "scales.glsl"

const int VALUES = 4096, FACTORS = VALUES / 16, LEAVES = 16;
shared float value_at[VALUES];    // t of groups in order, TILE rows of 16 outputs each
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

// No array stands here: one that a driver indexes by a variable lies in memory.
void unit_values(int unit, int slot, int p, int row, int rows, bool care)
{
    const int a_group = group_of_acts(), each = UNIT / a_group, k = args.a.x.k, panel = int(gl_WorkGroupID.x);
    const bool biased = is_biased();
    Quads codes = Quads(unit_at(panel, unit) + uint64_t(p * 64));
    const uvec4 w0 = codes.at[0], w1 = codes.at[1], w2 = codes.at[2], w3 = codes.at[3];
#if BITS == 8
    const uvec4 w4 = codes.at[32], w5 = codes.at[33], w6 = codes.at[34], w7 = codes.at[35];
#endif
#if !EK_SOFT
    const vec4 sb0 = scales_of(panel, unit, 0, p, care);
    vec4 sb1 = vec4(0.0), sb2 = vec4(0.0), sb3 = vec4(0.0);
    if (each > 1) sb1 = scales_of(panel, unit, 1, p, care);
    if (each > 2) sb2 = scales_of(panel, unit, 2, p, care), sb3 = scales_of(panel, unit, 3, p, care);
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
        const int first = unit * each, at = slot * each * TILE * 16 + r * 16 + p, by = TILE * 16;
#define VALUE(g, sb)                                                                 \
    if (g < each && (FORM != ANY_FORM || (first + g) * a_group < k)) {               \
        const float x = biased ? groups.at[(first + g) * 2 + 1] : 0.0;               \
        value_at[at + g * by] = value_of(sb.xy, s.low[g], x, biased, care);          \
        value_at[at + g * by + 8] = value_of(sb.zw, s.high[g], x, biased, care);     \
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
float chain(int from, int n, int r, int o, bool care)
{
    float sum = 0.0;
    int at = (from * TILE + r) * 16 + o, x = from * TILE + r, g = 0;
#if !EK_SOFT
#define LINK(i) sum = normal_fma(value_at[at + i * TILE * 16], factor_at[x + i * TILE], sum);
    if (!care)
        for (; g + 8 <= n; g += 8, at += 8 * TILE * 16, x += 8 * TILE) {
            LINK(0) LINK(1) LINK(2) LINK(3) LINK(4) LINK(5) LINK(6) LINK(7)
        }
#endif
    for (; g < n; g++, at += TILE * 16, x += TILE) sum = fma_(value_at[at], factor_at[x], sum);
    return sum;
}

// T over n leaves of an output and row, whose own they are.
float tree_of(int at, int n)
{
    for (int apart = 1; apart < n; apart *= 2)
        for (int i = 0; i + apart < n; i += 2 * apart)
            leaf_at[i * 16 * TILE + at] = add_(leaf_at[i * 16 * TILE + at], leaf_at[(i + apart) * 16 * TILE + at]);
    return leaf_at[at];
}

float factor_of(int row, int group)
{
    return Floats(record_of(row) + uint64_t(args.a.x.groups[LIMBS - 1])).at[group * 2];
}

// Of the workgroup's outputs and rows, each by a thread of the first; `care`: with an fma that loses nothing.
float run(int row, int rows, bool care)
{
    const int thread = int(gl_LocalInvocationID.x), threads = int(gl_WorkGroupSize.x), k = args.a.x.k;
    const int a_group = group_of_acts(), each = UNIT / a_group, in_leaf = LEAF / a_group;
    const int at_once = LEAVES / (each * TILE), all = (k + LEAF - 1) / LEAF; // leaves
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
        for (int slot = thread / 8; slot < n * (LEAF / UNIT) && unit0 + slot < units; slot += threads / 8)
            unit_values(unit0 + slot, slot, thread % 8, row, rows, care);
        if (early) factor_at[thread] = x, met_small = met_small || is_small(x);
        barrier();
        if (met_small) careful = 1u;
        for (int i = thread; i < n * TILE * 16; i += threads) {
            const int o = i % 16, r = i / 16 % TILE, from = i / 16 / TILE * in_leaf;
            if (r < rows) leaf_at[i] = chain(from, min(in_leaf, groups - group0 - from), r, o, care);
        }
        barrier();
        if (thread >= 16 * rows) continue;
        y = tree_of(thread, n);
        if (all > at_once) push_leaf(thread, y, leaf0 / at_once);
    }
    return all > at_once && thread < 16 * rows ? sum_of_leaves(thread, (all + at_once - 1) / at_once) : y;
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x);
    if (!open_work(TILE)) return;
    const int row = first_row, rows = min(TILE, end_row - row);
    if (thread == 0) careful = 0u; // what sets it is behind a barrier
    float y = run(row, rows, false);
#if !EK_SOFT
    if (careful != 0u) y = run(row, rows, true);
#endif
    const int output_ = int(gl_WorkGroupID.x) * 16 + thread % 16;
    if (thread < 16 * rows && output_ < args.a.n)
        Floats(y_at + uint64_t((int64_t(row + thread / 16) * args.a.ldy + int64_t(output_)) * 4l)).at[0] = y;
}
