// Products of Form Q (ops/linear/linear.h), weights as cuda/product/layout.h has them, LIMBS of an activation: 16
// outputs and a row. A thread computes the values t of an output and unit of 64 inputs; then a thread the chain over
// them of an output and leaf. grid (panels, rows)
#include "memory.glsl"
#include "linear_args.glsl"
#include "dot.glsl"
#include "tree.glsl"
layout(local_size_x = 256) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    linear_args a;
};
layout(push_constant, scalar) uniform Push { Args args; };

const int VALUES = 2048, LEAF = 1024, UNIT = 64;
shared float value_at[VALUES]; // t of groups in order, 16 outputs each
shared float leaf_at[VALUES / 16];

// s and b of output o in a group of weights.
vec2 scale_of(uint64_t group, int o)
{
    const int parts = args.a.biased != 0 ? 2 : 1, at = o % 8 * 2 * parts + o / 8 * parts;
    vec2 sb = vec2(0.0);
    for (int i = 0; i < parts; i++) {
        if (args.a.f32_scales != 0) sb[i] = Floats(group).at[at + i];
        else if (args.a.f16_scales != 0) sb[i] = half_to_float(uint(Halves(group).at[at + i]));
        else sb[i] = bf16_to_float(uint(Halves(group).at[at + i]));
    }
    return sb;
}

// Sums of products of a unit's codes with a limb, of each group of the unit: times 16 with codes of 4 bits.
ivec4 sums_of(uint64_t unit, uint64_t limb, int o, int a_group)
{
    Words code = Words(unit), x = Words(limb);
    ivec4 sum = ivec4(0);
    for (int j = 0; j < 2; j++)
        for (int t = 0; t < 4; t++)
            for (int upper = 0; upper < 2; upper++) {
                const int lane = o % 8 * 4 + t;
#if BITS == 8
                const uint c = code.at[j * 128 + lane * 4 + o / 8 + 2 * upper];
#else
                const uint both = code.at[lane * 4 + j * 2 + o / 8], c = upper != 0 ? high_nibbles(both) : low_nibbles(both);
#endif
                const int at = a_group == 64 ? t * 4 + j * 2 + upper : a_group == 32 ? 8 * j + 2 * t + upper
                                                                                     : 8 * j + 4 * upper + t;
                sum[a_group == 64 ? 0 : a_group == 32 ? j : 2 * j + upper] += dot4(c, x.at[at]);
            }
    return sum;
}

void unit_values(int unit, int slot, int o, uint64_t record)
{
    const int a_group = args.a.x.a_group, k = args.a.x.k, units = (k + UNIT - 1) / UNIT, panel = int(gl_WorkGroupID.x);
    const uint64_t codes = args.a.codes + uint64_t(panel * units + unit) * uint64_t(BITS * 128);
    const uint64_t h = record + uint64_t(unit * UNIT);
    ivec4 sum = sums_of(codes, h, o, a_group);
#if LIMBS == 2
    sum = sum * 256 + sums_of(codes, h + uint64_t(args.a.x.low), o, a_group);
#endif
#if BITS == 4
    sum >>= 4;
#endif
    const int scale_bytes = (args.a.f32_scales != 0 ? 64 : 32) * (args.a.biased != 0 ? 2 : 1);
    const int64_t groups = int64_t(k >> args.a.group_shift);
    for (int i = 0; i < UNIT / a_group; i++) {
        const int first = unit * UNIT + i * a_group;
        if (first >= k) break;
        const int64_t g = int64_t(panel) * groups + int64_t(first >> args.a.group_shift);
        const vec2 sb = scale_of(args.a.scales + uint64_t(g) * uint64_t(scale_bytes), o);
        float t = mul_(sb.x, float(sum[i]));
        if (args.a.biased != 0) {
            const float x = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1])).at[first / a_group * 2 + 1];
            t = fma_(fma_(float(args.a.zero), sb.x, sb.y), x, t);
        }
        value_at[(slot * (UNIT / a_group) + i) * 16 + o] = t;
    }
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), o = thread % 16, a_group = args.a.x.a_group, k = args.a.x.k;
    const int leaves_at_once = a_group / 8, row = int(gl_WorkGroupID.y), all = (k + LEAF - 1) / LEAF;
    const uint64_t record = args.a.x.q + uint64_t(int64_t(row) * args.a.x.ldq);
    Floats groups = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1]));
    for (int leaf0 = 0; leaf0 < all; leaf0 += leaves_at_once) {
        const int first = leaf0 * LEAF, n = min(leaves_at_once, all - leaf0);
        for (int slot = thread / 16; slot < n * (LEAF / UNIT) && first + slot * UNIT < k; slot += 16)
            unit_values(first / UNIT + slot, slot, o, record);
        barrier();
        if (thread < n * 16) {
            const int each = LEAF / a_group, from = (leaf0 + thread / 16) * each, to = min(from + each, (k + a_group - 1) / a_group);
            float sum = 0.0;
            for (int g = from; g < to; g++) sum = fma_(value_at[(g - leaf0 * each) * 16 + o], groups.at[g * 2], sum);
            leaf_at[thread] = sum;
        }
        barrier();
        if (thread < 16)
            for (int l = 0; l < n; l++) push_leaf(o, leaf_at[l * 16 + o], leaf0 + l);
    }
    const int output_ = int(gl_WorkGroupID.x) * 16 + o;
    if (thread < 16 && output_ < args.a.n)
        Floats(args.a.y + uint64_t((int64_t(row) * args.a.ldy + int64_t(output_)) * 4l)).at[0] = sum_of_leaves(o, all);
}
