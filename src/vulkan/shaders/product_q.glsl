// Products of Form Q (ops/linear/linear.h), weights as cuda/product/layout.h has them, LIMBS of an activation: 16
// outputs and a tile of rows. A thread computes the values t of an output and unit of 64 inputs, for all rows; then a
// thread the chain over them of an output, row and leaf. grid (panels, ceil(rows / TILE)); of experts (EXPERTS)
// (panels, jobs ceil(rows of a job / TILE), matrices)
#include "memory.glsl"
#include "linear_args.glsl"
#include "dot.glsl"
#include "jobs.glsl"
const int TILE = 4;
#include "tree.glsl"
layout(local_size_x = 256) in;

#include "unit.glsl"

const int VALUES = 4096;
shared float value_at[VALUES]; // t of groups in order, TILE rows of 16 outputs each
shared float leaf_at[256];

uint64_t record_of(int row)
{
    return args.a.x.q + uint64_t(int64_t(row_read(row)) * args.a.x.ldq);
}

void unit_values(int unit, int slot, int o, int first_row, int rows)
{
    const int a_group = args.a.x.a_group, each = UNIT / a_group, k = args.a.x.k, panel = int(gl_WorkGroupID.x);
    uint c[WORDS];
    vec2 sb[4];
    load_codes(unit_at(panel, unit), o, a_group, c);
    for (int i = 0; i < each; i++) sb[i] = factors_of(panel, unit, i, o);
    for (int r = 0; r < rows; r++) {
        const uint64_t record = record_of(first_row + r), h = record + uint64_t(unit * UNIT);
        ivec4 sum = sums_of(c, h);
#if LIMBS == 2
        sum = sum * 256 + sums_of(c, h + uint64_t(args.a.x.low));
#endif
        sum = sums_of_groups(sum, a_group);
        for (int i = 0; i < each; i++) {
            float t = mul_(sb[i].x, float(sum[i]));
            if (args.a.biased != 0) {
                const int g = unit * each + i;
                if (g * a_group < k) t = fma_(sb[i].y, Floats(record + uint64_t(args.a.x.groups[LIMBS - 1])).at[g * 2 + 1], t);
            }
            value_at[((slot * each + i) * TILE + r) * 16 + o] = t;
        }
    }
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), o = thread % 16, a_group = args.a.x.a_group, k = args.a.x.k;
    const int at_once = a_group / 16, all = (k + LEAF - 1) / LEAF; // leaves
    if (!open_work(TILE)) return;
    const int row = first_row, rows = min(TILE, end_row - row);
    for (int leaf0 = 0; leaf0 < all; leaf0 += at_once) {
        const int first = leaf0 * LEAF, n = min(at_once, all - leaf0);
        for (int slot = thread / 16; slot < n * (LEAF / UNIT) && first + slot * UNIT < k; slot += 16)
            unit_values(first / UNIT + slot, slot, o, row, rows);
        barrier();
        const int r = thread / 16 % TILE, leaf = thread / 16 / TILE;
        if (leaf < n && r < rows) {
            const int each = LEAF / a_group, from = (leaf0 + leaf) * each, to = min(from + each, (k + a_group - 1) / a_group);
            Floats groups = Floats(record_of(row + r) + uint64_t(args.a.x.groups[LIMBS - 1]));
            float sum = 0.0;
            for (int g = from; g < to; g++)
                sum = fma_(value_at[((g - leaf0 * each) * TILE + r) * 16 + o], groups.at[g * 2], sum);
            leaf_at[thread] = sum;
        }
        barrier();
        if (thread < 16 * rows)
            for (int l = 0; l < n; l++) push_leaf(thread, leaf_at[l * TILE * 16 + thread], leaf0 + l);
    }
    const int output_ = int(gl_WorkGroupID.x) * 16 + o;
    if (thread < 16 * rows && output_ < args.a.n)
        Floats(y_at + uint64_t((int64_t(row + thread / 16) * args.a.ldy + int64_t(output_)) * 4l)).at[0] =
            sum_of_leaves(thread, all);
}
