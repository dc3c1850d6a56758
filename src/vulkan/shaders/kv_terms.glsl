// Elements of keys and values as terms of a chain, for all formats except those in integers (ops/kv/kv_codec.h).

// A code of less than 8 bits from its planes at `codes`: keys [dim / ..][64], values [64][dim / ..].
int plane_code(uint64_t codes, int bits, int dim, int d, int slot, bool keys)
{
    int code = 0, at = 0;
    [[unroll]] for (int plane = 4; plane > 0; plane /= 2) {
        if ((bits & plane) == 0) continue;
        const int per = 8 / plane;
        int byte, shift;
        if (keys) byte = d / per * PAGE + slot, shift = d % per * plane;
        else if (plane == 4) byte = slot * v_plane_row(4, dim) + d / 32 * 16 + d % 16, shift = d / 16 % 2 * 4;
        else byte = slot * v_plane_row(plane, dim) + d / per, shift = d % per * plane;
        code |= (int(Bytes(codes).at[byte]) >> shift & (1 << plane) - 1) << at;
        codes += uint64_t(keys ? k_plane(plane, dim) : PAGE * v_plane_row(plane, dim));
        at += plane;
    }
    return code;
}

// Element d of the token in a slot, of keys or of values; part: the head's part of the page.
float kv_term(uint64_t part, int format, int bits, int shift, int dim, int d, int slot, bool keys)
{
    const int at = keys ? d * PAGE + slot : slot * dim + d;
    if (format == F16) return half_to_float(uint(Halves(part).at[at]));
    if (format == F32) return Floats(part).at[at];
    if (format == BF16) return bf16_to_float(uint(Halves(part).at[at]));
    if (format == I16) return float(int(Halves(part).at[at]) << 16 >> 16);
    const int groups = groups_of(dim, shift), g = d >> shift, scale_at = keys ? g * PAGE + slot : slot * groups + g;
    Halves scales = Halves(part + uint64_t(keys ? k_code_bytes(bits, dim) : v_code_bytes(bits, dim)));
    const float s = half_to_float(uint(scales.at[scale_at]));
    if (format == Q8) return mul_(s, float(int(Bytes(part).at[at]) << 24 >> 24));
    const float b = half_to_float(uint(scales.at[groups * PAGE + scale_at]));
    return fma_(s, float(plane_code(part, bits, dim, d, slot, keys)), b);
}

// The factor of a key's sum or of a value's weight.
float token_scale(uint64_t part, int format, int dim, int slot)
{
    return format == I16 ? Floats(part + uint64_t(2 * dim * PAGE)).at[slot] : 1.0;
}
