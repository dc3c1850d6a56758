// The conversions of CUDA's header of this name that the kernels use, on a CPU. Exact; to half: nearest, ties to even.
#pragma once

#include <stdint.h>
#include <string.h>

struct __half {
    unsigned short bits;
};

struct __half2 {
    __half x, y;
};

static inline float __half2float(__half h)
{
    const uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, m = h.bits & 1023;
    uint32_t u = sign | (exponent == 31 ? 0x7f800000u | m << 13 : (exponent + 112) << 23 | m << 13);
    float f;
    if (exponent == 0) {
        f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}

static inline __half __float2half_rn(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return {(unsigned short)(sign | 0x7fff)};
    if (u >= 0x477ff000u) return {(unsigned short)(sign | 0x7c00)}; // rounds to 65536 or is larger
    if (u >= 0x38800000u) {
        const uint32_t v = u - 0x38000000u;
        return {(unsigned short)(sign | ((v + 0xfff + (v >> 13 & 1)) >> 13))};
    }
    float a; // below 2^-14: multiples of 2^-24, by the addition's own rounding
    memcpy(&a, &u, 4);
    a = a + 0.5f;
    memcpy(&u, &a, 4);
    return {(unsigned short)(sign | (u - 0x3f000000u))};
}

static inline __half __ushort_as_half(unsigned short u)
{
    return {u};
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
