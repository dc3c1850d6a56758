/* exp, tanh, log, sine and cosine of the answer path: our own, the same bits everywhere.
 * Only add, sub, mul, fma, div, sqrt, compares and conversions are used (NUMERICS.md 1, 6).
 * Each function here is the scalar definition; the vector kernels equal it bit for bit. */
#ifndef EK_OPS_MATH_H
#define EK_OPS_MATH_H

#include <stdint.h>

/* exp(s) = 2^*n * p, p in about [0.707, 1.415): a function of s alone. s finite. */
float ek_exp_split(float s, int *n);
float ek_exp(float x);   /* 0.7 ulp; +0 below, +inf above the range */
float ek_tanh(float x);  /* 1.2 ulp */
float ek_log(float x);   /* x > 0 normal or denormal */
float ek_gelu_tanh(float x);
/* x * 2^n, exact when the result is normal; two steps when it is not. */
float ek_ldexp(float x, int n);

/* cos and sin of a in float64 by add, mul and fma alone, |a| up to 2^31; error below 1e-12. */
void ek_cos_sin(double a, double *c, double *s);
/* base^e for base > 0 in float64, relative error below 1e-14: RoPE frequencies. */
double ek_pow(double base, double e);

#endif
