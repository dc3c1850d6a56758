// The operations of docs/NUMERICS.md 1, for every shader: sums, products and fma as IEEE binary32 has them, division and
// square root rounded to nearest even whatever a device's own are worth. Each is marked NoContraction when it is loaded
// (vulkan/strict.h). With EK_SOFT fma goes by way of binary64, for devices that do not fuse it or flush denormals.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

const uint SIGN = 0x80000000u, INFINITE = 0x7f800000u, NOT_A_NUMBER = 0x7fc00000u;

float f_(uint u) { return uintBitsToFloat(u); }
uint u_(float f) { return floatBitsToUint(f); }

float add_(float a, float b) { precise float r = a + b; return r; }
float sub_(float a, float b) { precise float r = a - b; return r; }
float mul_(float a, float b) { precise float r = a * b; return r; }

// m of 24 bits and more, of which the low `shift` are rounded to nearest even; rest: some is below them.
uint round_(uint m, int shift, bool rest)
{
    const uint low = m & ((1u << shift) - 1u), mid = 1u << (shift - 1), kept = m >> shift;
    const bool up = low > mid || (low == mid && (rest || (kept & 1u) == 1u));
    return up ? kept + 1u : kept;
}

// The exponent and, under an implicit bit, the fraction of a finite number that is not zero: denormals are normalised.
int split_(uint u, out uint fraction)
{
    const int e = int(u >> 23 & 0xffu);
    fraction = u & 0x7fffffu;
    if (e != 0) return e;
    const int top = findMSB(fraction);
    fraction = fraction << (23 - top) & 0x7fffffu;
    return top - 22;
}

#if EK_SOFT
double wide_(float x)
{
    const uint u = u_(x), sign = u & SIGN, a = u & ~SIGN;
    uint m;
    if (a == 0u) return packDouble2x32(uvec2(0u, sign));
    if (a >= INFINITE) return packDouble2x32(uvec2(a == INFINITE ? 0u : 1u, sign | 0x7ff00000u));
    const int e = split_(u, m) + 896;
    return packDouble2x32(uvec2(m << 29, sign | uint(e) << 20 | m >> 3));
}

// To nearest even; denormals by integers.
float narrow_(double x)
{
    const uvec2 u = unpackDouble2x32(x);
    const uint sign = u.y & SIGN, a = u.y & ~SIGN;
    if (a >= 0x7ff00000u) return f_(a == 0x7ff00000u && u.x == 0u ? sign | INFINITE : NOT_A_NUMBER);
    const int e = int(a >> 20) - 896;
    if (e >= 255) return f_(sign | INFINITE);
    if (e < -24) return f_(sign);
    // 26 bits and whether more are below
    const uint m = 0x2000000u | (a & 0xfffffu) << 5 | u.x >> 27;
    const bool rest = (u.x & 0x7ffffffu) != 0u;
    if (e >= 1) return f_(sign | (uint(e - 1) << 23) + round_(m, 2, rest));
    return f_(sign | round_(m, 3 - e, rest));
}

// The product is exact in binary64; the sum is rounded to odd, so that the rounding to binary32 is the only one.
float fma_(float x, float y, float z)
{
    const double c = wide_(z);
    precise double p = wide_(x) * wide_(y);
    precise double s = p + c;
    precise double of_p = s - c;
    precise double of_c = s - of_p;
    precise double lost_p = p - of_p;
    precise double lost_c = c - of_c;
    precise double lost = lost_p + lost_c;
    uvec2 u = unpackDouble2x32(s);
    const uvec2 l = unpackDouble2x32(lost);
    if ((u.y & 0x7ff00000u) != 0x7ff00000u && ((l.y & ~SIGN) | l.x) != 0u && (u.x & 1u) == 0u) {
        if (((u.y ^ l.y) & SIGN) != 0u) { // towards zero
            if (u.x == 0u) u.y--;
            u.x--;
        }
        u.x |= 1u;
    }
    return narrow_(packDouble2x32(u));
}
#else
float fma_(float x, float y, float z) { precise float r = fma(x, y, z); return r; }
#endif

// a / b. The native quotient of numbers in [1, 4) need only be near: a step of Newton's leads to at most one unit off,
// and the remainder, which fma makes exact, decides.
float div_(float a, float b)
{
    const uint sign = (u_(a) ^ u_(b)) & SIGN, ua = u_(a) & ~SIGN, ub = u_(b) & ~SIGN;
    if (ua > INFINITE || ub > INFINITE || (ua == INFINITE && ub == INFINITE) || (ua | ub) == 0u)
        return f_(NOT_A_NUMBER);
    if (ua == INFINITE || ub == 0u) return f_(sign | INFINITE);
    if (ub == INFINITE || ua == 0u) return f_(sign);
    uint ma, mb;
    int e = split_(ua, ma) - split_(ub, mb) + 127;
    const bool less = ma < mb; // the quotient of 2 a or a is in [1, 2)
    if (less) e--;
    const float x = f_((less ? 0x40000000u : 0x3f800000u) | ma), y = f_(0x3f800000u | mb);
    precise float inverse = 1.0 / y;
    const float near = mul_(x, inverse), q = fma_(fma_(-near, y, x), inverse, near), unit = mul_(y, 1.1920928955078125e-7);
    float r = fma_(-q, y, x);
    uint m = (u_(q) & 0x7fffffu) | 0x800000u;
    if (u_(q) < 0x3f800000u) m = 0x7fffffu; // a unit below 1 is one of half the size
    if (r < 0.0) m--, r = add_(r, unit);
    if (e >= 1) {
        const float twice = add_(r, r);
        if (twice > unit || (twice == unit && (m & 1u) == 1u)) m++;
        return f_(sign | (e > 254 ? INFINITE : min((uint(e - 1) << 23) + m, INFINITE)));
    }
    return f_(sign | (1 - e > 24 ? 0u : round_(m, 1 - e, r > 0.0)));
}

float sqrt_(float x)
{
    const uint u = u_(x);
    // all that is not a positive finite number, by one comparison of integers: compilers make comparisons with zero of
    // others into comparisons of floats, for which a denormal may be zero
    if (u - 1u >= INFINITE - 1u) return f_(u << 1 == 0u || u == INFINITE ? u : NOT_A_NUMBER);
    uint m;
    const int e = split_(u, m) - 127;
    const float v = f_(((e & 1) != 0 ? 0x40000000u : 0x3f800000u) | m);
    precise float near = sqrt(v);
    precise float half_inverse = 0.5 / near;
    const float s = fma_(fma_(-near, near, v), half_inverse, near);
    const float r = fma_(-s, s, v), half_step = mul_(s, 1.1920928955078125e-7); // half of the way to the next square
    uint to = u_(s);
    if (r > half_step) to++;
    else if (r <= -half_step) to--;
    return f_(to + uint((e >> 1) << 23));
}
