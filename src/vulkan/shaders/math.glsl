// The arithmetic of docs/NUMERICS.md for shaders: each operation alone, rounded once; exp, tanh, gelu and ln of
// ops/math.c. An fma occurs only where it is written: `precise` keeps the GLSL compiler from others, and
// vulkan/strict.c the driver.
//
// EK_SOFT: fma by integers (soft.glsl) everywhere; otherwise the device's, and by integers where that may lose
// denormals. Quotients and square roots use the device's own only as an estimate; exact remainders in integers decide
// which neighbour is nearest.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require

// Unrolls a loop over an array in registers; loops with an fma_ are not unrolled, because that is long.
#define UNROLL [[unroll]]
// Unrolls a loop with an fma, which is long if computed by integers.
#if EK_SOFT
#define UNROLL_FMA [[dont_unroll]]
#else
#define UNROLL_FMA [[unroll]]
#endif

float f_(uint u)
{
    return uintBitsToFloat(u);
}

uint u_(float f)
{
    return floatBitsToUint(f);
}

float add_(float a, float b)
{
    precise const float r = a + b;
    return r;
}

float sub_(float a, float b)
{
    precise const float r = a - b;
    return r;
}

float mul_(float a, float b)
{
    precise const float r = a * b;
    return r;
}

#include "soft.glsl"

// fma without denormal operands and results, or where these do not matter.
float normal_fma(float a, float b, float c)
{
#if EK_SOFT || defined(EK_STAND_IN)
    return soft_fma(a, b, c);
#else
    precise const float r = fma(a, b, c);
    return r;
#endif
}

// Whether the device's own fma of a, b and c, with the result r, may have treated denormals as zeros.
bool may_lose(float a, float b, float c, float r)
{
    const uint a2 = u_(a) << 1, b2 = u_(b) << 1, r2 = u_(r) << 1; // without signs; minus 1, zeros become large
    const bool denormal = min(min(a2 - 1u, b2 - 1u), min((u_(c) << 1) - 1u, r2 - 1u)) < 0x00ffffffu;
    return denormal || (r2 == 0u && a2 != 0u && b2 != 0u);
}

// fma everywhere; a device's own may treat denormals as zeros, in operands and in its result.
float fma_(float a, float b, float c)
{
#if EK_SOFT
    return soft_fma(a, b, c);
#else
    const float r = normal_fma(a, b, c);
    return may_lose(a, b, c, r) ? soft_fma(a, b, c) : r;
#endif
}

bool is_nan(float x)
{
    return (u_(x) & 0x7fffffffu) > 0x7f800000u;
}

float negated(float x)
{
    return f_(u_(x) ^ 0x80000000u);
}

float magnitude(float x)
{
    return f_(u_(x) & 0x7fffffffu);
}

// x + 0, which compilers leave out: -0 becomes +0
float plus_zero(float x)
{
    return u_(x) == 0x80000000u ? 0.0 : x;
}

// A magnitude's 24 bits, the first of which is set, and its exponent with the bias. u is neither 0 nor infinite.
uint mantissa(uint u, out int e)
{
    const uint m = u & 0x7fffffu;
    e = int(u >> 23);
    if (e != 0) return m | 0x800000u;
    const int up = 23 - findMSB(m);
    e = 1 - up;
    return m << up;
}

// m 2^(e - 150) for m in [2^23, 2^24]; rest is the part beyond its last place: below 0 less than half a unit, 0 half,
// above 0 more; `more`: there is any rest.
float nearest(uint sign, uint m, int e, int rest, bool more)
{
    if (e >= 1) {
        if (rest > 0 || (rest == 0 && (m & 1u) == 1u)) m++;
        const uint u = (uint(e - 1) << 23) + m;
        return f_(sign | (e > 254 || u > 0x7f800000u ? 0x7f800000u : u));
    }
    const int shift = 1 - e;
    if (shift > 24) return f_(sign);
    uint kept = m >> shift;
    const uint lost = m & ((1u << shift) - 1u), middle = 1u << (shift - 1);
    if (lost > middle || (lost == middle && (more || (kept & 1u) == 1u))) kept++;
    return f_(sign | kept);
}

// A number's rank as an integer; both zeros have the same. Comparisons of floats may treat denormals as zeros.
int order_of(float x)
{
    const int u = int(u_(x));
    return u < 0 ? -(u & 0x7fffffff) : u;
}

float slow_div(float a, float b)
{
    const uint sign = (u_(a) ^ u_(b)) & 0x80000000u, ua = u_(a) & 0x7fffffffu, ub = u_(b) & 0x7fffffffu;
    if (ua > 0x7f800000u || ub > 0x7f800000u) return f_(0x7fc00000u);
    if (ua == 0x7f800000u) return f_(ub == 0x7f800000u ? 0x7fc00000u : sign | 0x7f800000u);
    if (ub == 0u) return f_(ua == 0u ? 0x7fc00000u : sign | 0x7f800000u);
    if (ua == 0u || ub == 0x7f800000u) return f_(sign);
    int ea, eb;
    uint ma = mantissa(ua, ea);
    const uint mb = mantissa(ub, eb);
    int e = ea - eb + 127;
    if (ma < mb) ma <<= 1, e--;
    precise const float near = float(ma) / float(mb); // in [1, 2], to some units of its last place
    uint q = uint(mul_(near, 8388608.0));
    int left = int((ma << 23) - q * mb); // its low 32 bits, which suffice
    [[unroll]] for (int i = 0; i < 4; i++) {
        if (left < 0) q--, left += int(mb);
        else if (left >= int(mb)) q++, left -= int(mb);
    }
    return nearest(sign, q, e, 2 * left - int(mb), left > 0);
}

// The nearest quotient of positive numbers between 2^-50 and 2^50. The device's own is often not the nearest, and one lane
// of a subgroup would send all into a slow path: an exact remainder says which neighbour is. r is within half a unit in
// q's last place, times b; below a power of two the numbers are twice as dense. With such exponents nothing is denormal.
float near_quotient(float a, float b)
{
#if EK_SOFT
    return slow_div(a, b);
#else
    precise const float estimate = 1.0 / b;
    const float inverse = normal_fma(normal_fma(-b, estimate, 1.0), estimate, estimate), near = mul_(a, inverse);
    const float q = normal_fma(normal_fma(-near, b, a), inverse, near), r = normal_fma(-q, b, a);
    const uint uq = u_(q), below = u_(r) >> 31, unit = u_(mul_(b, f_((uq & 0x7f800000u) - (24u << 23))));
    const uint half_unit = (uq & 0x7fffffu) == 0u ? unit - (below << 23) : unit;
    return f_((u_(r) & 0x7fffffffu) > half_unit ? uq + 1u - 2u * below : uq);
#endif
}

float div_(float a, float b)
{
#if !EK_SOFT
    const uint ua = u_(a) & 0x7fffffffu, ub = u_(b) & 0x7fffffffu;
    if (ua - 0x26800000u < 0x32000000u && ub - 0x26800000u < 0x32000000u) // 2^-50 to 2^50
        return f_(u_(near_quotient(f_(ua), f_(ub))) | ((u_(a) ^ u_(b)) & 0x80000000u));
#endif
    return slow_div(a, b);
}

// The nearest quotient of positive normal numbers, where it is normal itself: mantissas are divided.
float normal_quotient(float a, float b)
{
    const uint ea = u_(a) & 0x7f800000u, eb = u_(b) & 0x7f800000u;
    const float q = near_quotient(f_(u_(a) - ea + 0x3f800000u), f_(u_(b) - eb + 0x3f800000u));
    return f_(u_(q) + ea - eb);
}

float slow_sqrt(float x)
{
    const uint u = u_(x);
    // Zeros, infinity, negative numbers and NaN by one comparison of integers: Mesa turns a comparison of the bits
    // without the sign into x == 0.0, which is true for denormals where these count as zeros.
    if (u - 1u >= 0x7f7fffffu) return f_(u << 1 == 0u || u == 0x7f800000u ? u : 0x7fc00000u);
    int e;
    const uint m = mantissa(u, e);
    const bool odd = (e & 1) == 0; // of an exponent without bias
    precise const float near = sqrt(mul_(float(m), odd ? 2.3841858e-07 : 1.1920929e-07)); // of a number in [1, 4)
    uint r = uint(mul_(near, 8388608.0));
    int left = int((odd ? m << 24 : m << 23) - r * r); // as in div_
    [[unroll]] for (int i = 0; i < 4; i++) {
        if (left < 0) r--, left += int(2u * r + 1u);
        else if (left > int(2u * r)) left -= int(2u * r + 1u), r++;
    }
    if (left > int(r)) r++; // no root lies halfway between two numbers
    return f_((uint(((e - (odd ? 128 : 127)) / 2) + 126) << 23) + r);
}

// The nearest root of a number between 2^-60 and 2^60, likewise: r = x - q q is within q times a unit in q's last place,
// and only the upper bound may be reached.
float near_root(float x)
{
#if EK_SOFT
    return slow_sqrt(x);
#else
    precise const float near = sqrt(x), half_inverse = 0.5 / near;
    const float q = normal_fma(normal_fma(-near, near, x), half_inverse, near), r = normal_fma(-q, q, x);
    const uint uq = u_(q), ur = u_(r) & 0x7fffffffu, most = u_(mul_(q, f_((uq & 0x7f800000u) - (23u << 23))));
    if (u_(r) >> 31 == 0u) return f_(ur > most ? uq + 1u : uq);
    return f_(ur >= ((uq & 0x7fffffu) == 0u ? most - (1u << 23) : most) ? uq - 1u : uq);
#endif
}

float sqrt_(float x)
{
#if !EK_SOFT
    if (u_(x) - 0x21800000u < 0x3c000000u) return near_root(x);
#endif
    return slow_sqrt(x);
}

// 2^n for -126 <= n <= 127, and +0 below -125 where n <= 0
float pow2(int n)
{
    return f_(uint(n + 127) << 23);
}

float factor_(int n)
{
    return n < -125 ? 0.0 : pow2(n);
}

const float LN2_HI = 0.693145751953125, LN2_LO = 1.428606765330187e-06;

// A denormal s, or r r, changes no bit of the result.
float exp_split(float s, out int n)
{
    s = s > -1048576.0 ? s : -1048576.0;
    s = s < 1048576.0 ? s : 1048576.0;
    const float nf = roundEven(mul_(s, 1.44269504));
    float r = normal_fma(nf, -LN2_HI, s);
    r = normal_fma(nf, -LN2_LO, r);
    float q = 1.9875691500e-4;
    q = normal_fma(q, r, 1.3981999507e-3);
    q = normal_fma(q, r, 8.3334519073e-3);
    q = normal_fma(q, r, 4.1665795894e-2);
    q = normal_fma(q, r, 1.6666665459e-1);
    q = normal_fma(q, r, 5.0000001201e-1);
    n = int(nf);
    return add_(normal_fma(q, mul_(r, r), r), 1.0);
}

// x 2^n of a normal x
float ldexp_(float x, int n)
{
    const int exponent = int(u_(x) >> 23 & 255u) + n;
    if (exponent >= 1 && exponent <= 254) return f_(u_(x) + (uint(n) << 23));
    int e;
    const uint u = u_(x), m = mantissa(u & 0x7fffffffu, e);
    return nearest(u & 0x80000000u, m, e + clamp(n, -252, 252), -1, false);
}

float exp_(float x)
{
    if (is_nan(x)) return x;
    int n;
    const float p = exp_split(x, n);
    return ldexp_(p, n);
}

float with_sign(float x, float of)
{
    return f_((u_(x) & 0x7fffffffu) | (u_(of) & 0x80000000u));
}

float tanh_(float x)
{
    const float a = magnitude(x);
    if (is_nan(x)) return x;
    if (a > 9.0) return with_sign(1.0, x);
    if (a < 9.5367431640625e-07) return plus_zero(x); // the polynomial changes no bit, and no denormal enters an fma
    if (a < 0.625) {
        const float z = mul_(x, x);
        float p = -5.70498872745e-3;
        p = normal_fma(p, z, 2.06390887954e-2);
        p = normal_fma(p, z, -5.37397155531e-2);
        p = normal_fma(p, z, 1.33314422036e-1);
        p = normal_fma(p, z, -3.33332819422e-1);
        return normal_fma(mul_(p, z), x, x);
    }
    int n; // at most 26: the power of e is normal
    const float e = exp_split(mul_(2.0, a), n);
    return with_sign(sub_(1.0, near_quotient(2.0, add_(f_(u_(e) + (uint(n) << 23)), 1.0))), x);
}

// If x x is denormal, t is x, and 1 + tanh is 1 in any case.
float gelu_(float x)
{
    const float t = normal_fma(mul_(0.044715, mul_(x, x)), x, x);
    return mul_(mul_(0.5, x), add_(1.0, tanh_(mul_(0.7978845608, t))));
}

// f is 0 or at least 2^-33, and nothing is denormal.
float ln_tail(float k, float f)
{
    const float t = div_(f, add_(2.0, f)), z = mul_(t, t), h = mul_(mul_(0.5, f), f);
    float q = 0.233304672163;
    q = normal_fma(q, z, 0.285508208160);
    q = normal_fma(q, z, 0.400001218398);
    q = normal_fma(q, z, 0.666666665545);
    const float tail = normal_fma(k, LN2_LO, mul_(t, normal_fma(q, z, h)));
    return normal_fma(k, LN2_HI, sub_(f, sub_(h, tail)));
}

float ln_(float x)
{
    const uint u = u_(x);
    if (u - 1u >= 0x7f7fffffu) return f_(u << 1 == 0u ? 0xff800000u : u == 0x7f800000u ? u : 0x7fc00000u);
    int e;
    const uint m = mantissa(u, e);
    const uint wide = (127u << 23) + (m & 0x7fffffu); // in [1, 2)
    const int up = wide >= 0x3fb504f3u ? 1 : 0;       // 1 + f in [sqrt(1/2), sqrt(2))
    return ln_tail(float(e - 127 + up), sub_(f_(wide - (uint(up) << 23)), 1.0));
}

// binary16 and bf16 by integers, to nearest even
float half_to_float(uint h)
{
    const uint u = (h & 0x7fffu) << 13, e = u & 0x0f800000u;
    const float small = sub_(f_(u + 0x38800000u), f_(0x38800000u)); // m 2^-24, of a mantissa behind 2^-14
    const uint normal = u + (e == 0x0f800000u ? 0x70000000u : 0x38000000u);
    return f_((e == 0u ? u_(small) : normal) | (h & 0x8000u) << 16);
}

float bf16_to_float(uint h)
{
    return f_(h << 16);
}

uint float_to_half(float x)
{
    const uint u = u_(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x47800000u) return sign | 0x7c00u;
    const int e = int(a >> 23) - 112;
    const uint m = (a & 0x7fffffu) | 0x800000u;
    const int shift = e >= 1 ? 13 : 14 - e;
    if (shift > 24) return sign;
    const uint from = e >= 1 ? a - (112u << 23) : m, lost = from & ((1u << shift) - 1u), middle = 1u << (shift - 1);
    uint kept = from >> shift;
    if (lost > middle || (lost == middle && (kept & 1u) == 1u)) kept++;
    return sign | kept;
}

uint float_to_bf16(float x)
{
    const uint u = u_(x);
    if (is_nan(x)) return u >> 16 | 0x40u;
    return u + 0x7fffu + (u >> 16 & 1u) >> 16;
}

bool less_(float a, float b)
{
    return !is_nan(a) && !is_nan(b) && order_of(a) < order_of(b);
}

// x within [least, most]; NaN: least
float held(float x, float least, float most)
{
    return less_(least, x) ? less_(x, most) ? x : most : least;
}

// ek_mix64 (base/hash/rng.h)
uint64_t mix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ul;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ul;
    x = (x ^ x >> 27) * 0x94D049BB133111EBul;
    return x ^ x >> 31;
}
