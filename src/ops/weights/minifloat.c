#include "ops/weights/quantised_type.h"

#include <math.h>

#include "tensor/dtype.h"

float ek_e2m1_f32(unsigned code)
{
    static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -value[code & 7] : value[code & 7];
}

float ek_e4m3_f32(unsigned byte)
{
    unsigned e = byte >> 3 & 15, frac = byte & 7;
    float v = e ? (float)(8 + frac) * ek_bits_f32((e + 127 - 10) << 23) : (float)frac * 0x1p-9f;
    return byte & 128 ? -v : v;
}

float ek_e8m0_f32(unsigned byte)
{
    return ek_bits_f32(byte ? byte << 23 : 0x00400000u);
}

unsigned ek_f32_e2m1(float x)
{
    float a = fabsf(x);
    int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (unsigned)code | (signbit(x) ? 8u : 0u);
}

unsigned ek_f32_e4m3(float x)
{
    unsigned sign = signbit(x) ? 0x80u : 0;
    float a = fabsf(x);
    if (!(a < 448.0f)) return sign | 0x7e;
    if (a < 0x1p-6f) return sign | (unsigned)rintf(a * 0x1p9f); /* 8 is the first normal */
    uint32_t u = ek_f32_bits(a);
    u += 0x7ffffu + (u >> 20 & 1);
    unsigned code = (u >> 20) - ((127u - 7) << 3);
    return sign | (code > 0x7e ? 0x7e : code);
}

/* No logarithm is needed: the ratio to the power of two below decides. */
unsigned ek_f32_e8m0(float x)
{
    if (!(x < (float)INFINITY)) return 255;
    if (x <= 0x1p-127f) return 0;
    int k = (int)(ek_f32_bits(x < 0x1p-126f ? x * 0x1p24f : x) >> 23) - 127;
    if (x < 0x1p-126f) k -= 24;
    float base = ek_e8m0_f32((unsigned)(k + 127 < 0 ? 0 : k + 127)), ratio = x / base; /* exact, in [1, 2) */
    k += ratio > 1.41421356f;
    return (unsigned)(k > 127 ? 254 : k < -127 ? 0 : k + 127);
}
