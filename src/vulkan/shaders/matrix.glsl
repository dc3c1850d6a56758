// Elements of a matrix in the device's layout (cuda/product/layout.h), equal to those of ek_linear_row
// (ops/linear/linear.h).
#include "element.glsl"

// ek_cuda_embed_args
struct matrix {
    uint64_t h, id, codes, scales, token;
    int64_t ldh;
    float factor;
    int first, n, rows, k, form, bits, a_group, group_shift, zero, biased, f32_scales, f16_scales;
};

const int HALF = 1, BFLOAT = 2, QUANTISED = 3, INVENTED = 4;

float invented(matrix a, int id, int k)
{
    const uint u = uint(mix64(a.codes ^ (uint64_t(id) * uint64_t(a.k) + uint64_t(k))) >> 40);
    return sub_(mul_(float(u), 5.9604644775390625e-8), 0.5);
}

float plain(matrix a, int id, int k)
{
    const int64_t size = a.form == 0 ? 4 : 2, panel = (int64_t(a.k) * 16l * size + 63l) / 64l * 64l;
    const uint64_t at = a.codes + uint64_t(int64_t(id / 16) * panel + (int64_t(k) * 16l + int64_t(id % 16)) * size);
    if (a.form == 0) return Floats(at).at[0];
    const uint u = uint(Halves(at).at[0]);
    return a.form == HALF ? half_to_float(u) : bf16_to_float(u);
}

// Scale i of the matrix, or bias.
float scale_at(matrix a, int64_t i)
{
    if (a.f32_scales != 0) return Floats(a.scales + uint64_t(i * 4l)).at[0];
    const uint u = uint(Halves(a.scales + uint64_t(i * 2l)).at[0]);
    return a.f16_scales != 0 ? half_to_float(u) : bf16_to_float(u);
}

float quantised(matrix a, int id, int k)
{
    const int o = id % 16;
    const int64_t panel = id / 16, units = (a.k + 63) / 64, groups = a.k >> a.group_shift;
    int shift;
    const int place = place_of_code(o, k % 64, a.bits, a.a_group, shift);
    const int64_t unit = (panel * units + int64_t(k / 64)) * int64_t(a.bits) * 128l;
    const uint byte = uint(Bytes(a.codes + uint64_t(unit + int64_t(place))).at[0]);
    const int c = centred(byte, shift, a.bits);
    const int64_t g = (panel * groups + int64_t(k >> a.group_shift)) * 8l + int64_t(o % 8);
    if (a.biased == 0) return mul_(scale_at(a, g * 2l + int64_t(o / 8)), float(c));
    const int64_t at = g * 4l + int64_t(o / 8 * 2);
    return fma_(scale_at(a, at), float(c + a.zero), scale_at(a, at + 1l));
}

// Element k of row `id`.
float element_of_matrix(matrix a, int id, int k)
{
    return a.form == INVENTED ? invented(a, id, k) : a.form == QUANTISED ? quantised(a, id, k) : plain(a, id, k);
}
