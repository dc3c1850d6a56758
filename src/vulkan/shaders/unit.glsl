// A unit of 64 inputs of Form Q: its codes, scales, and sums of products (cuda/product/layout.h).
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Quads { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Pairs { uvec2 at[]; };

const int LEAF = 1024, UNIT = 64, WORDS = UNIT / 4;

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

// The codes of an output in a unit, four per word, in the order of inputs; 4-bit codes times 16.
void load_codes(uint64_t unit, int o, int a_group, out uint c[WORDS])
{
    Words code = Words(unit);
    [[unroll]] for (int i = 0; i < WORDS; i++) {
        const int j = a_group == 64 ? i / 2 % 2 : i / 8, upper = a_group == 16 ? i / 4 % 2 : i % 2;
        const int lane = (a_group == 64 ? i / 4 : a_group == 32 ? i / 2 % 4 : i % 4) * 8 + o % 8;
#if BITS == 8
        c[i] = code.at[j * 128 + lane * 4 + o / 8 + 2 * upper];
#else
        const uint both = code.at[lane * 4 + j * 2 + o / 8];
        c[i] = upper != 0 ? high_nibbles(both) : low_nibbles(both);
#endif
    }
}

// The sum of products of 16 codes with a limb.
int sum_of_16(uint c[WORDS], int i, uvec4 x)
{
    return dot4(c[4 * i], x.x) + dot4(c[4 * i + 1], x.y) + dot4(c[4 * i + 2], x.z) + dot4(c[4 * i + 3], x.w);
}

// Sums of products of the codes with a limb, per 16 inputs.
ivec4 sums_of(uint c[WORDS], uint64_t limb)
{
    ivec4 sum = ivec4(0);
    [[unroll]] for (int i = 0; i < 4; i++) sum[i] = sum_of_16(c, i, Quads(limb).at[i]);
    return sum;
}

// The sums per group, made from the sums of 16 inputs.
ivec4 sums_of_groups(ivec4 sum, int a_group)
{
    if (a_group == 64) sum.x = sum.x + sum.y + sum.z + sum.w;
    if (a_group == 32) sum.xy = ivec2(sum.x + sum.y, sum.z + sum.w);
#if BITS == 4
    sum >>= 4;
#endif
    return sum;
}

// s and b' of group i of a unit.
vec2 factors_of(int panel, int unit, int i, int o)
{
    const int k = args.a.x.k, first = min(unit * UNIT + i * args.a.x.a_group, k - 1);
    const int scale_bytes = (args.a.f32_scales != 0 ? 64 : 32) * (args.a.biased != 0 ? 2 : 1);
    const int64_t g = int64_t(panel) * int64_t(k >> args.a.group_shift) + int64_t(first >> args.a.group_shift);
    vec2 sb = scale_of(scales_at + uint64_t(g) * uint64_t(scale_bytes), o);
    sb.y = fma_(float(args.a.zero), sb.x, sb.y);
    return sb;
}

uint64_t unit_at(int panel, int unit)
{
    const int units = (args.a.x.k + UNIT - 1) / UNIT;
    return codes_at + uint64_t(uint(panel * units + unit)) * uint64_t(BITS * 128);
}

