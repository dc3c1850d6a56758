// Products of Form Q for few rows (ops/linear/linear.h), weights as cuda/product/layout.h has them with quads in the order
// of element.glsl, LIMBS of an activation: 16 outputs and a tile of rows. A thread computes the values t of two outputs and
// a unit of 64 inputs, for all rows; then a thread the chain over them of an output, row and leaf. For long rows (LONG) a
// thread computes both for a leaf, with its chain in registers. Any number of threads of a multiple of 8 does
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
// there are two (65,536); 131,072 for a long row.
#ifdef GATED
layout(constant_id = 1) const int SPECIAL = 0x2101;
#else
layout(constant_id = 1) const int SPECIAL = 4;
#endif
const int TILE = SPECIAL & 255, FORM = SPECIAL >> 8 & 15;
const bool LONG = (SPECIAL >> 17 & 1) != 0;
#ifdef GATED
const int OWN_PANELS = SPECIAL >> 12 & 15, PANELS = OWN_PANELS * (1 + (SPECIAL >> 16 & 1));
#else
const int OWN_PANELS = 1, PANELS = 1;
#endif
const int WIDTH = 16 * PANELS; // outputs
// Matrices whose products a thread computes together: both read the same codes of rows. With codes in bytes they would
// take too many registers.
const int PAIR = BITS == 4 ? PANELS / OWN_PANELS : 1;
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
#include "product_unit.glsl"
// Groups of an output that are computed at once, and quads of each output's values: with one more, outputs begin in
// different banks. LEAVES: the most of a long row.
const int AT_ONCE = 256 / (TILE * PANELS), VALUES = AT_ONCE / 4 + 1, LEAVES = 32;
shared vec4 value_at[LONG ? 1 : TREE_WIDTH * VALUES]; // t of groups, of outputs and rows
shared vec4 factor_at[LONG ? 1 : TILE * AT_ONCE / 4]; // sx of groups, of rows
shared float leaf_at[LONG ? LEAVES * TREE_WIDTH : 256];

// A unit of panel q of the workgroup, and of the second matrix; false: there is no such panel.
bool read_pair(int q, int unit, int p, out unit_weights w, out unit_weights w2)
{
    int panel = open_panel(q);
#ifdef GATED
    if (panel * 16 >= args.a.n) return false;
#endif
    w = read_unit(panel, unit, p);
    if (PAIR > 1) panel = open_panel(q + OWN_PANELS), w2 = read_unit(panel, unit, p);
    return true;
}

// Keeps the values of an output and row, of unit `slot` of those at once.
void keep(int o, int slot, int each, vec4 t)
{
    const int at = o * VALUES + slot * each / 4;
    if (each == 4) value_at[at] = t;
    else if (each == 2 && slot % 2 == 0) value_at[at].xy = t.xy;
    else if (each == 2) value_at[at].zw = t.xy;
    else value_at[at][slot % 4] = t.x;
}

void unit_values(int unit, int slot, int q, int p, int row, int rows)
{
    const int each = UNIT / group_of_acts(), second = 16 * OWN_PANELS;
    unit_weights w, w2;
    if (!read_pair(q, unit, p, w, w2)) return;
    for (int r = 0; r < rows; r++) {
        const int o = r * WIDTH + q * 16 + p;
        pair_values t, t2;
        multiply(w, w2, record_of(row + r), unit, t, t2);
        keep(o, slot, each, t.low), keep(o + 8, slot, each, t.high);
        if (PAIR > 1) keep(o + second, slot, each, t2.low), keep(o + second + 8, slot, each, t2.high);
    }
}

// A leaf's chain over n groups from group `from` on, a multiple of 4.
float chain(int from, int n, int r, int o)
{
    float sum = 0.0;
    int at = (r * WIDTH + o) * VALUES + from / 4, x = (r * AT_ONCE + from) / 4, g = 0;
#if !EK_SOFT
    for (; g + 4 <= n; g += 4, at++, x++) {
        const vec4 t = value_at[at], sx = factor_at[x];
        sum = normal_fma(t.x, sx.x, sum), sum = normal_fma(t.y, sx.y, sum);
        sum = normal_fma(t.z, sx.z, sum), sum = normal_fma(t.w, sx.w, sum);
    }
#endif
    for (; g < n; g++) {
        sum = normal_fma(value_at[at][g % 4], factor_at[x][g % 4], sum);
        if (g % 4 == 3) at++, x++;
    }
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
    const int at_once = AT_ONCE / in_leaf, all = (k + LEAF - 1) / LEAF; // leaves
    const int groups = (k + a_group - 1) / a_group, units = (k + UNIT - 1) / UNIT;
    const int panels = PANELS / PAIR;
    float y = 0.0;
    for (int leaf0 = 0; leaf0 < all; leaf0 += at_once) {
        const int n = min(at_once, all - leaf0), group0 = leaf0 * in_leaf, unit0 = leaf0 * (LEAF / UNIT);
        // Of one row a thread has one factor at most, which is asked for in front of all else and stored behind it.
        const bool lone = TILE == 1 && threads >= AT_ONCE, early = lone && thread < n * in_leaf && group0 + thread < groups;
        float x = 0.0;
        if (early) x = factor_of(row, group0 + thread);
        for (int i = thread; !lone && i < n * in_leaf * TILE; i += threads) {
            const int g = i / TILE, r = i % TILE;
            if (group0 + g >= groups || r >= rows) continue;
            x = factor_of(row + r, group0 + g);
            factor_at[(r * AT_ONCE + g) / 4][g % 4] = x;
            met_small = met_small || is_small(x);
        }
        for (int i = thread / 8; i < n * (LEAF / UNIT) * panels && unit0 + i / panels < units; i += threads / 8)
            unit_values(unit0 + i / panels, i / panels, i % panels, thread % 8, row, rows);
        if (early) factor_at[thread / 4][thread % 4] = x, met_small = met_small || is_small(x);
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

// Adds a unit's groups to the chains of outputs p and p + 8.
void add_unit(unit_weights w, int unit, uint64_t record, inout vec2 sum)
{
    const int a_group = group_of_acts(), each = UNIT / a_group;
    const vec4 sx = groups_of_row(record, unit, a_group, 0);
    pair_values t, none;
    multiply(w, w, record, unit, t, none);
    for (int g = 0; g < each; g++) {
        if (FORM == ANY_FORM && (unit * each + g) * a_group >= args.a.x.k) break;
        met_small = met_small || is_small(sx[g]);
        sum = vec2(normal_fma(t.low[g], sx[g], sum.x), normal_fma(t.high[g], sx[g], sum.y));
    }
}

// The same for one row of up to LEAVES leaves, of one matrix. Each unit is asked for before the one that is multiplied.
float run_long(int row)
{
    const int thread = int(gl_LocalInvocationID.x), threads = int(gl_WorkGroupSize.x), k = args.a.x.k, p = thread % 8;
    const int all = (k + LEAF - 1) / LEAF, units = (k + UNIT - 1) / UNIT, panel = open_panel(0);
    const uint64_t record = record_of(row);
    barrier(); // behind careful = 0
    for (int leaf = thread / 8; leaf < all; leaf += threads / 8) {
        const int from = leaf * (LEAF / UNIT), end = min(units, from + LEAF / UNIT);
        unit_weights w = read_unit(panel, from, p);
        vec2 sum = vec2(0.0);
        [[dont_unroll]] for (int unit = from; unit < end; unit += 2) {
            const unit_weights odd = read_unit(panel, min(unit + 1, end - 1), p);
            add_unit(w, unit, record, sum);
            w = read_unit(panel, min(unit + 2, end - 1), p);
            if (unit + 1 < end) add_unit(odd, unit + 1, record, sum);
        }
        leaf_at[leaf * TREE_WIDTH + p] = sum.x, leaf_at[leaf * TREE_WIDTH + p + 8] = sum.y;
    }
    if (met_small) careful = 1u;
    barrier();
    return thread < WIDTH ? tree_of(thread, all) : 0.0;
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
#ifdef GATED
    float y = run(row, rows);
#else
    float y;
    if (LONG) y = run_long(row);
    else y = run(row, rows);
#endif
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
