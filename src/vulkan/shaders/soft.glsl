// fma by integers only, rounded once, denormals kept: for devices whose own fma is a product and a sum, or loses
// denormals. The product has 48 bits. The sum is of two 64-bit numbers. The smaller one is shifted down, and its last
// bit says whether any bit was lost. This is enough for one rounding, because after a large cancellation nothing was
// lost.

// v shifted down by k; the last bit is set if a lost bit was set.
uvec2 shifted_down(uvec2 v, uint k)
{
    if (k == 0u) return v;
    if (k >= 64u) return uvec2((v.x | v.y) != 0u ? 1u : 0u, 0u);
    const uint by = k & 31u;
    uvec2 r;
    uint lost;
    if (k >= 32u) {
        r = uvec2(v.y >> by, 0u);
        lost = v.x | (by != 0u ? v.y << (32u - by) : 0u);
    } else {
        r = uvec2(v.x >> by | v.y << (32u - by), v.y >> by);
        lost = v.x << (32u - by);
    }
    return uvec2(r.x | (lost != 0u ? 1u : 0u), r.y);
}

// The 24 bits of a number's magnitude, and the exponent of the last one.
void take_apart(uint u, out uint m, out int e)
{
    e = int(u >> 23 & 255u);
    m = u & 0x7fffffu;
    if (e != 0) {
        m |= 0x800000u;
    } else {
        const int up = 23 - findMSB(m | 1u);
        m <<= up;
        e = 1 - up;
    }
    e -= 150;
}

// The float of magnitude v 2^e, v not 0, to nearest even.
float rounded(uint sign, uvec2 v, int e)
{
    const int top = v.y != 0u ? 32 + findMSB(v.y) : findMSB(v.x), up = 63 - top;
    const uint lower = up >= 32 ? 0u : v.x << up;
    uint high = up >= 32 ? v.x << (up - 32) : up > 0 ? v.y << up | v.x >> (32 - up) : v.y;
    high |= lower != 0u ? 1u : 0u;
    int exponent = e + top + 127;
    if (exponent < 1) {
        const uint k = uint(1 - exponent);
        high = k >= 32u ? 1u : high >> k | ((high & ((1u << k) - 1u)) != 0u ? 1u : 0u);
        exponent = 1; // a number without the first bit is below 2^-126
    }
    uint m = high >> 8;
    const uint rest = high & 255u;
    if (rest > 128u || (rest == 128u && (m & 1u) == 1u)) m++;
    const uint u = (uint(exponent - 1) << 23) + m;
    return f_(sign | (exponent > 254 || u > 0x7f800000u ? 0x7f800000u : u));
}

float soft_fma(float x, float y, float z)
{
    const uint a = u_(x), b = u_(y), c = u_(z), sign = (a ^ b) & 0x80000000u;
    const uint a0 = a & 0x7fffffffu, b0 = b & 0x7fffffffu, c0 = c & 0x7fffffffu;
    if (a0 >= 0x7f800000u || b0 >= 0x7f800000u) {
        const bool none = a0 > 0x7f800000u || b0 > 0x7f800000u || c0 > 0x7f800000u || a0 == 0u || b0 == 0u ||
                          (c0 == 0x7f800000u && (c & 0x80000000u) != sign);
        return f_(none ? 0x7fc00000u : sign | 0x7f800000u);
    }
    if (c0 >= 0x7f800000u) return f_(c0 > 0x7f800000u ? 0x7fc00000u : c);
    if (a0 == 0u || b0 == 0u) return f_(c0 != 0u ? c : c & sign);
    uint ma, mb, mc, high, low;
    int ea, eb, ec;
    take_apart(a, ma, ea);
    take_apart(b, mb, eb);
    take_apart(c, mc, ec);
    umulExtended(ma, mb, high, low);
    uvec2 p = uvec2(low << 14, high << 14 | low >> 18), q = uvec2(0u, mc << 6); // below 2^62
    int ep = ea + eb - 14;
    const int eq = c0 != 0u ? ec - 38 : ep;
    if (c0 == 0u) q = uvec2(0u);
    p = shifted_down(p, uint(max(eq - ep, 0)));
    q = shifted_down(q, uint(max(ep - eq, 0)));
    ep = max(ep, eq);
    uint carry, s = sign;
    uvec2 sum;
    if ((c & 0x80000000u) == sign) {
        sum.x = uaddCarry(p.x, q.x, carry);
        sum.y = p.y + q.y + carry;
    } else {
        const bool less = p.y < q.y || (p.y == q.y && p.x < q.x);
        const uvec2 from = less ? q : p, take = less ? p : q;
        sum.x = usubBorrow(from.x, take.x, carry);
        sum.y = from.y - take.y - carry;
        if (less) s ^= 0x80000000u;
        if ((sum.x | sum.y) == 0u) return 0.0;
    }
    return rounded(s, sum, ep);
}
