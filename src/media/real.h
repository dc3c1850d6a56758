/* Cosine, sine, exponential and logarithm in float64, by add, multiply and divide alone, so that tables and log-mel
 * rows have the same bits everywhere. Inside src/media. */
#ifndef EK_MEDIA_REAL_H
#define EK_MEDIA_REAL_H

/* cos and sin of 2 pi i / n, n > 0, 0 <= i < n; error below 1e-15. Exact at multiples of a quarter turn. */
void ek_real_cos_sin(int i, int n, double *c, double *s);
double ek_real_exp(double x); /* |x| < 700, relative error below 1e-15 */
double ek_real_ln(double x);  /* x normal and > 0, absolute error below 1e-15 + 2 ulp of the result */

#endif
