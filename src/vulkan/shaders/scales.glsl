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
