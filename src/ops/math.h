/* exp, tanh, log, sine and cosine of the answer path: our own, the same bits everywhere.
 * Only add, sub, mul, fma, div, sqrt, compares and conversions are used (NUMERICS.md 1, 6).
 * Each function here is the scalar definition; the vector kernels equal it bit for bit,
 * except that which NaN a NaN gives is not defined. Accuracy: docs/numerics/rows.md. */
#ifndef EK_OPS_MATH_H
#define EK_OPS_MATH_H

#include <stdint.h>

/* exp(s) = 2^*n * p, p in about [0.707, 1.415): a function of s alone. s is clamped to
 * +-2^20 (exp is outside every format there) and NaN counts as -2^20, so n is always an integer of
 * 22 bits and p is never NaN. */
float ek_exp_split(float s, int *n);
float ek_exp(float x);  /* 1 ulp; +0 below -103.97, +inf above 88.72; NaN of NaN */
float ek_tanh(float x); /* 1.5 ulp; NaN of NaN */
float ek_ln(float x);   /* 1 ulp; x normal or denormal; -inf of +-0, NaN below, +inf of +inf */

/* Noise from 32 random bits (NUMERICS.md 7.5): with v = (n + 1/2) 2^-32, which is never 0 or 1,
 * an exponential variate E = -ln(1 - v) and a Gumbel variate g = -ln E. Finite for every n; E never
 * falls and g never rises as n grows.
 * E in [2^-33, 22.874], error 2.5e-7 relative; g in [-3.13, EK_MAX_GUMBEL), error 1.1e-6 absolute. */
#define EK_MAX_GUMBEL 22.875f
float ek_standard_exponential(uint32_t n);
float ek_standard_gumbel(uint32_t n);

/* 0.5 x (1 + tanh(0.7978845608 (x + 0.044715 x^3))) in this order: t = fma(0.044715 * (x * x), x, x),
 * (0.5 * x) * (1 + tanh(0.7978845608 * t)). Formula: torch.nn.functional.gelu(approximate="tanh"). */
float ek_gelu_tanh(float x);

/* x * 2^n for |n| <= 252 (clamped there): exact when the result is normal, rounded once for
 * 0.5 <= |x| < 2 when it is not. */
float ek_ldexp(float x, int n);

/* cos and sin of a in float64 by add, mul and fma alone, |a| up to 2^31; error below 1e-12. */
void ek_cos_sin(double a, double *c, double *s);
/* ln x in float64, error below 2 ulp; -inf of +-0, NaN below and of NaN, +inf of +inf. */
double ek_ln64(double x);
/* base^e for base > 0 in float64, relative error below 1e-14 while |e ln base| < 16. */
double ek_pow(double base, double e);

#endif
