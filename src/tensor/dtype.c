#include "tensor/dtype.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[EK_DTYPE_COUNT] = {
    [EK_F32] = {"F32", 4},         [EK_F16] = {"F16", 2},         [EK_BF16] = {"BF16", 2},
    [EK_F64] = {"F64", 8},         [EK_U8] = {"U8", 1},           [EK_I8] = {"I8", 1},
    [EK_U16] = {"U16", 2},         [EK_I16] = {"I16", 2},         [EK_U32] = {"U32", 4},
    [EK_I32] = {"I32", 4},         [EK_U64] = {"U64", 8},         [EK_I64] = {"I64", 8},
    [EK_BOOL] = {"BOOL", 1},       [EK_F8_E4M3] = {"F8_E4M3", 1}, [EK_F8_E5M2] = {"F8_E5M2", 1},
    [EK_F8_E8M0] = {"F8_E8M0", 1},
};

size_t ek_dtype_size(ek_dtype t)
{
    return dtypes[t].size;
}

const char *ek_dtype_name(ek_dtype t)
{
    return dtypes[t].name;
}

int ek_dtype_parse(const char *name)
{
    for (int t = 0; t < EK_DTYPE_COUNT; t++)
        if (strcmp(dtypes[t].name, name) == 0) return t;
    return -1;
}

float ek_f16_f32(ek_f16 h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31u, frac = h & 0x3ffu;
    if (exp == 31) return ek_bits_f32(sign | 0x7f800000u | frac << 13);
    if (exp) return ek_bits_f32(sign | (exp + 112) << 23 | frac << 13);
    float tiny = (float)frac * 0x1p-24f; /* exact: zero or a denormal of binary16 */
    return sign ? -tiny : tiny;
}

ek_f16 ek_f32_f16(float f)
{
    uint32_t u = ek_f32_bits(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (ek_f16)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u) return (ek_f16)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (mag < 0x38800000u) { /* below 2^-14: after adding 0.5, the low bits are the rounded code */
        uint32_t code = ek_f32_bits(ek_bits_f32(mag) + 0.5f) - ek_f32_bits(0.5f);
        return (ek_f16)(sign | code);
    }
    mag -= 112u << 23;
    return (ek_f16)(sign | (mag + 0xfffu + (mag >> 13 & 1)) >> 13);
}
