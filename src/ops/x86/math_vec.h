/* ops/math.h for vectors: the same steps as math.c in each lane. Included after a vec_*.h. */
#ifndef EK_OPS_X86_MATH_VEC_H
#define EK_OPS_X86_MATH_VEC_H

/* n is an integer; a NaN counts as the lower bound, because max returns its second operand. */
INLINE vf v_exp_split(vf s, vi *n)
{
    s = v_min(v_max(s, v_set1(-0x1p20f)), v_set1(0x1p20f));
    vf nf = v_round(v_mul(s, v_set1(1.44269504f)));
    vf r = v_fnma(nf, v_set1(0.693145751953125f), s);
    r = v_fnma(nf, v_set1(1.428606765330187e-06f), r);
    vf q = v_set1(1.9875691500e-4f);
    q = v_fma(q, r, v_set1(1.3981999507e-3f));
    q = v_fma(q, r, v_set1(8.3334519073e-3f));
    q = v_fma(q, r, v_set1(4.1665795894e-2f));
    q = v_fma(q, r, v_set1(1.6666665459e-1f));
    q = v_fma(q, r, v_set1(5.0000001201e-1f));
    *n = v_int(nf);
    return v_add(v_fma(q, v_mul(r, r), r), v_set1(1.0f));
}

/* p 2^n where p is near 1 and -125 <= n <= 127. */
INLINE vf v_scale(vf p, vi n)
{
    return v_as_float(vi_add(v_bits(p), vi_shl(n, 23)));
}

/* exp(s) for s <= 0 or -inf: the last step is done in two if the result may be denormal, as in ek_ldexp. */
INLINE vf v_exp_below(vf s)
{
    vi n;
    vf p = v_exp_split(s, &n);
    n = vi_max(n, vi_set1(-251)); /* +0 from there on */
    vf low = v_mul(v_scale(p, vi_add(n, vi_set1(126))), v_set1(0x1p-126f));
    return v_pick(vi_less(n, vi_set1(-125)), low, v_scale(p, n));
}

/* Above 9 the long form is computed for a clamped argument and replaced; the clamp lets NaN
 * through (min gives its second operand) and the additions keep it. */
INLINE vf v_tanh(vf x)
{
    vi sign = vi_and(v_bits(x), vi_set1(INT32_MIN));
    vf a = v_as_float(vi_and(v_bits(x), vi_set1(INT32_MAX)));
    vf z = v_mul(x, x);
    vf p = v_set1(-5.70498872745e-3f);
    p = v_fma(p, z, v_set1(2.06390887954e-2f));
    p = v_fma(p, z, v_set1(-5.37397155531e-2f));
    p = v_fma(p, z, v_set1(1.33314422036e-1f));
    p = v_fma(p, z, v_set1(-3.33332819422e-1f));
    vf small = v_fma(v_mul(p, z), x, x);
    vi n;
    vf twice = v_min(v_set1(18.0f), v_mul(v_set1(2.0f), a));
    vf e = v_exp_split(twice, &n);
    e = v_add(v_scale(e, n), v_set1(1.0f));
    vf large = v_sub(v_set1(1.0f), v_div(v_set1(2.0f), e));
    large = v_pick(v_less(v_set1(9.0f), a), v_set1(1.0f), large);
    large = v_as_float(vi_or(v_bits(large), sign));
    vf y = v_pick(v_less(a, v_set1(0.625f)), small, large);
    return v_add(y, v_mul(v_set1(0.0f), twice)); /* NaN, lost in the split, comes back */
}

INLINE vf v_gelu_tanh(vf x)
{
    vf t = v_fma(v_mul(v_set1(0.044715f), v_mul(x, x)), x, x);
    vf h = v_add(v_set1(1.0f), v_tanh(v_mul(v_set1(0.7978845608f), t)));
    return v_mul(v_mul(v_set1(0.5f), x), h);
}

#endif
