// A unit of few rows' products by a thread: two outputs' codes and scales, their sums of products with a row's codes, and
// the values t that chains add (product_q.glsl).
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

// The words of the scales of outputs p and p + 8 in group g of a unit.
uvec4 scale_words(int panel, int unit, int g, int p)
{
    const bool biased = is_biased(), wide = FORM == FLOAT_16 || (FORM == ANY_FORM && args.a.f32_scales != 0);
    const int k = args.a.x.k, shift = group_shift(), first = unit * UNIT + g * group_of_acts();
    const int group = (FORM == ANY_FORM ? min(first, k - 1) : first) >> shift;
    const int bytes = (wide ? 8 : 4) * (biased ? 2 : 1); // of both outputs
    const uint at = uint(panel * (k >> shift) + group);
    const uint64_t from = scales_at + uint64_t(at) * uint64_t(8 * bytes) + uint64_t(p * bytes);
    uvec4 w = uvec4(0u);
    w.x = Words(from).at[0];
    if (wide || biased) w.y = Words(from).at[1];
    if (wide && biased) w.zw = uvec2(Words(from).at[2], Words(from).at[3]);
    return w;
}

// s and b' of output p, then of output p + 8.
vec4 scales_from(uvec4 w, bool care)
{
    const bool biased = is_biased(), wide = FORM == FLOAT_16 || (FORM == ANY_FORM && args.a.f32_scales != 0);
    vec4 x = vec4(0.0); // s, b, s, b
    if (wide && biased) x = uintBitsToFloat(w);
    else if (wide) x.xz = uintBitsToFloat(w.xy);
    else {
        const vec2 first = narrow_scales(w.x);
        if (biased) x = vec4(first, narrow_scales(w.y));
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

vec4 scales_of(int panel, int unit, int g, int p, bool care)
{
    return scales_from(scale_words(panel, unit, g, p), care);
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

// What a thread reads of a unit: codes, and words of scales of each group. No array stands here: one that a driver
// indexes by a variable lies in memory.
struct unit_weights {
    uvec4 w0, w1, w2, w3;
#if BITS == 8
    uvec4 w4, w5, w6, w7;
#endif
    uvec4 s0, s1, s2, s3;
};

unit_weights read_unit(int panel, int unit, int p)
{
    const int each = UNIT / group_of_acts();
    unit_weights w;
    Quads codes = Quads(unit_at(panel, unit) + uint64_t(p * 16));
    w.w0 = codes.at[0], w.w1 = codes.at[8], w.w2 = codes.at[16], w.w3 = codes.at[24];
#if BITS == 8
    w.w4 = codes.at[32], w.w5 = codes.at[40], w.w6 = codes.at[48], w.w7 = codes.at[56];
#endif
    w.s0 = scale_words(panel, unit, 0, p);
    if (each > 1) w.s1 = scale_words(panel, unit, 1, p);
    if (each > 2) w.s2 = scale_words(panel, unit, 2, p), w.s3 = scale_words(panel, unit, 3, p);
    return w;
}

// A limb's codes of a unit by lanes of four: each lane's by step and half.
struct unit_codes {
    uvec4 x0, x1, x2, x3;
};

unit_codes read_codes(uint64_t record, int unit, int limb, int a_group)
{
    Quads h = Quads(record + uint64_t(unit * UNIT) + (limb > 0 ? uint64_t(args.a.x.low) : 0ul));
    const uvec4 a = h.at[0], b = h.at[1], c = h.at[2], d = h.at[3];
    if (a_group == 32) return unit_codes(uvec4(a.xy, c.xy), uvec4(a.zw, c.zw), uvec4(b.xy, d.xy), uvec4(b.zw, d.zw));
    if (a_group == 16)
        return unit_codes(uvec4(a.x, b.x, c.x, d.x), uvec4(a.y, b.y, c.y, d.y), uvec4(a.z, b.z, c.z, d.z),
                          uvec4(a.w, b.w, c.w, d.w));
    return unit_codes(a, b, c, d);
}

void add_limb(inout pair_sums s, unit_weights w, unit_codes x)
{
    s.low *= 256, s.high *= 256;
    add_lane(s, w.w0, SECOND(w.w4), x.x0), add_lane(s, w.w1, SECOND(w.w5), x.x1);
    add_lane(s, w.w2, SECOND(w.w6), x.x2), add_lane(s, w.w3, SECOND(w.w7), x.x3);
}

// t of a unit's groups, of outputs p and p + 8.
struct pair_values {
    vec4 low, high;
};

// X: sums of the row's groups.
pair_values values_of(pair_sums s, unit_weights w, vec4 X, int a_group)
{
    const int each = UNIT / a_group;
    const bool biased = is_biased();
    pair_values t = pair_values(vec4(0.0), vec4(0.0));
    s.low = sums_of_groups(s.low, a_group), s.high = sums_of_groups(s.high, a_group);
#define GROUP_VALUE(g, words)                                            \
    {                                                                    \
        const vec4 sb = scales_from(words, false);                       \
        t.low[g] = value_of(sb.xy, s.low[g], X[g], biased, false);       \
        t.high[g] = value_of(sb.zw, s.high[g], X[g], biased, false);     \
    }
#if EK_SOFT // once, for an fma is long
    [[dont_unroll]] for (int g = 0; g < each; g++) GROUP_VALUE(g, (g == 0 ? w.s0 : g == 1 ? w.s1 : g == 2 ? w.s2 : w.s3))
#else
    GROUP_VALUE(0, w.s0)
    if (each > 1) GROUP_VALUE(1, w.s1)
    if (each > 2) {
        GROUP_VALUE(2, w.s2)
        GROUP_VALUE(3, w.s3)
    }
#endif
    return t;
}

// sx of a unit's groups, or (i = 1) X.
vec4 groups_of_row(uint64_t record, int unit, int a_group, int i)
{
    const int each = UNIT / a_group, first = unit * each;
    const int n = FORM == ANY_FORM ? (args.a.x.k + a_group - 1) / a_group - first : each;
    Floats at = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1]) + uint64_t(first * 8));
    vec4 x = vec4(at.at[i], 0.0, 0.0, 0.0);
    if (each > 1 && n > 1) x.y = at.at[2 + i];
    if (each > 2 && n > 2) x.z = at.at[4 + i];
    if (each > 2 && n > 3) x.w = at.at[6 + i];
    return x;
}

// Of a row: t of a unit w and, with a pair of matrices, of the second's unit.
void multiply(unit_weights w, unit_weights w2, uint64_t record, int unit, out pair_values t, out pair_values t2)
{
    const int a_group = group_of_acts();
    pair_sums s = pair_sums(ivec4(0), ivec4(0)), s2 = s;
    for (int limb = 0; limb < LIMBS; limb++) {
        const unit_codes x = read_codes(record, unit, limb, a_group);
        add_limb(s, w, x);
        if (PAIR > 1) add_limb(s2, w2, x);
    }
    vec4 X = vec4(0.0);
    if (is_biased()) X = groups_of_row(record, unit, a_group, 1);
    t = values_of(s, w, X, a_group);
    if (PAIR > 1) t2 = values_of(s2, w2, X, a_group);
}
