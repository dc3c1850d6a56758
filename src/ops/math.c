#include "ops/math.h"

#include <float.h>
#include <math.h>

#include "tensor/dtype.h"

/* ln 2 in two parts: the first has 15 significant bits, so that its products with the integers used here are exact even
 * before the fma. */
#define LN2_HI 0.693145751953125f
#define LN2_LO 1.428606765330187e-06f

/* 2^n for -126 <= n <= 127. */
static float pow2(int n)
{
    return ek_bits_f32((uint32_t)(n + 127) << 23);
}

float ek_exp_split(float s, int *n)
{
    s = s > -0x1p20f ? s : -0x1p20f; /* NaN fails the comparison */
    s = s < 0x1p20f ? s : 0x1p20f;
    float nf = rintf(s * 1.44269504f);
    float r = fmaf(nf, -LN2_HI, s);
    r = fmaf(nf, -LN2_LO, r);
    float q = 1.9875691500e-4f;
    q = fmaf(q, r, 1.3981999507e-3f);
    q = fmaf(q, r, 8.3334519073e-3f);
    q = fmaf(q, r, 4.1665795894e-2f);
    q = fmaf(q, r, 1.6666665459e-1f);
    q = fmaf(q, r, 5.0000001201e-1f);
    *n = (int)nf;
    return fmaf(q, r * r, r) + 1.0f;
}

float ek_ldexp(float x, int n)
{
    n = n < -252 ? -252 : n > 252 ? 252 : n;
    if (n > 127) return x * pow2(n - 126) * pow2(126);
    if (n < -126) return x * pow2(n + 126) * pow2(-126);
    return x * pow2(n);
}

float ek_exp(float x)
{
    if (x != x) return x;
    int n;
    float p = ek_exp_split(x, &n);
    return ek_ldexp(p, n);
}

float ek_tanh(float x)
{
    float a = fabsf(x);
    if (x != x) return x;
    if (a > 9.0f) return copysignf(1.0f, x);
    if (a < 0.625f) {
        float z = x * x;
        float p = -5.70498872745e-3f;
        p = fmaf(p, z, 2.06390887954e-2f);
        p = fmaf(p, z, -5.37397155531e-2f);
        p = fmaf(p, z, 1.33314422036e-1f);
        p = fmaf(p, z, -3.33332819422e-1f);
        return fmaf(p * z, x, x);
    }
    return copysignf(1.0f - 2.0f / (ek_exp(2.0f * a) + 1.0f), x);
}

float ek_gelu_tanh(float x)
{
    float t = fmaf(0.044715f * (x * x), x, x);
    return 0.5f * x * (1.0f + ek_tanh(0.7978845608f * t));
}

/* ln(2^k (1 + f)) for 1 + f in [sqrt(1/2), sqrt(2)); with t = f / (2 + f), z = t^2:
 * log(1 + f) = f - (h - t (h + R)), h = f^2 / 2, R = z Q(z), because log(1 + f) = 2 artanh(t).
 * Q: Chebyshev fit of degree 3, relative error of the logarithm below 1e-11. */
static float ln_tail(float k, float f)
{
    float t = f / (2.0f + f), z = t * t, h = 0.5f * f * f;
    float q = 0.233304672163f;
    q = fmaf(q, z, 0.285508208160f);
    q = fmaf(q, z, 0.400001218398f);
    q = fmaf(q, z, 0.666666665545f);
    float tail = fmaf(k, LN2_LO, t * fmaf(q, z, h));
    return fmaf(k, LN2_HI, f - (h - tail));
}

float ek_ln(float x)
{
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    if (x > 0x1.fffffep127f) return x;
    int k = 0;
    if (x < 0x1p-126f) x *= 0x1p24f, k = -24;
    uint32_t u = ek_f32_bits(x);
    k += (int)(u - 0x3f3504f3u) >> 23; /* of x / sqrt(1/2), rounded down */
    float f = ek_bits_f32(((u - 0x3f3504f3u) & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    return ln_tail((float)k, f);
}

/* n + 1/2, rounded once: both halves of n, and the lower one plus 1/2, are exact in float32. The halves fit signed
 * integers, so every instruction set converts them in one step. */
static float plus_half(uint32_t n)
{
    return fmaf((float)(int32_t)(n >> 16), 65536.0f, (float)(int32_t)(n & 0xffff) + 0.5f);
}

/* Below v = 1/4 the logarithm takes f = -v directly, because 1 - v would round small v away. Above, 1 - v is exactly
 * (~n + 1/2) 2^-32, so there is one rounding only. */
float ek_standard_exponential(uint32_t n)
{
    if (n < 1u << 30) return -ln_tail(0.0f, plus_half(n) * -0x1p-32f);
    return -ek_ln(plus_half(~n) * 0x1p-32f);
}

float ek_standard_gumbel(uint32_t n)
{
    return -ek_ln(ek_standard_exponential(n));
}

/* pi/2 in three parts; each is the double nearest to the rest. */
#define PIO2_1 1.5707963267948966
#define PIO2_2 6.123233995736766e-17
#define PIO2_3 -1.4973849048591698e-33

/* sum of c[i] z^i, i < n, highest first */
static double horner(const double *c, int n, double z)
{
    double p = c[n - 1];
    for (int i = n - 2; i >= 0; i--) p = fma(p, z, c[i]);
    return p;
}

void ek_cos_sin(double a, double *c, double *s)
{
    /* Taylor coefficients; on [-pi/4, pi/4] the first term left out is below 1e-17. */
    static const double sin_c[] = {1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
                                   1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    static const double cos_c[] = {1.0,
                                   -1.0 / 2,
                                   1.0 / 24,
                                   -1.0 / 720,
                                   1.0 / 40320,
                                   -1.0 / 3628800,
                                   1.0 / 479001600.0,
                                   -1.0 / 87178291200.0,
                                   1.0 / 20922789888000.0};
    double k = rint(a * 0.6366197723675814);
    double r = fma(-k, PIO2_1, a);
    r = fma(-k, PIO2_2, r);
    r = fma(-k, PIO2_3, r);
    double z = r * r;
    double sr = r * horner(sin_c, 8, z), cr = horner(cos_c, 9, z);
    switch ((int64_t)k & 3) {
    case 0: *c = cr, *s = sr; break;
    case 1: *c = -sr, *s = cr; break;
    case 2: *c = -cr, *s = -sr; break;
    default: *c = sr, *s = -cr; break;
    }
}

/* ln 2 with the low 21 bits of the first part zero: products with exponents are exact. */
#define LN2_HI64 0x1.62e42fee00000p-1
#define LN2_LO64 0x1.a39ef35793c76p-33

static double log64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    const uint64_t root = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    int64_t k = (int64_t)(u - root) >> 52;
    u = ((u - root) & 0x000fffffffffffffu) + root;
    double m;
    memcpy(&m, &u, sizeof m);
    double t = (m - 1.0) / (m + 1.0), z = t * t, p = 1.0 / 23;
    for (int i = 21; i >= 3; i -= 2) p = fma(p, z, 1.0 / i);
    double kd = (double)k;
    return fma(kd, LN2_HI64, 2.0 * t + fma(2.0 * t * z, p, kd * LN2_LO64));
}

double ek_ln64(double x)
{
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    if (x > DBL_MAX) return x;
    if (x >= DBL_MIN) return log64(x);
    const double k = 54; /* denormal: 2^54 x is not */
    return log64(x * 0x1p54) - k * LN2_HI64 - k * LN2_LO64;
}

double ek_pow(double base, double e)
{
    double t = e * log64(base), k = rint(t * 1.4426950408889634);
    double r = fma(-k, LN2_HI64, t);
    r = fma(-k, LN2_LO64, r);
    double p = 1.0;
    for (int i = 14; i >= 1; i--) p = fma(p, r / i, 1.0);
    uint64_t u = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &u, sizeof scale);
    return p * scale;
}
