/* The search for scales, shared by the quantisers. n is a multiple of 8, at most EK_SEARCH_MAX; codes are
 * unsigned. */
#ifndef EK_CONVERT_SEARCH_H
#define EK_CONVERT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_SEARCH_MAX = 64 };

/* x rounded to the nearest whole number, ties to even, within [lo, hi]; |x| below 2^22 or beyond the bounds. */
static inline float ek_nearest(float x, float lo, float hi)
{
    x = x < lo ? lo : x > hi ? hi : x;
    return (x + 12582912.0f) - 12582912.0f;
}

/* value = d * (u - 2^(bits - 1)): returns d, exact in half precision, of either sign, and the codes for it. */
float ek_search_symmetric(const float *x, int n, int bits, bool search, uint8_t *u);

/* value = d * u + m: d and m exact in half precision, d >= 0. */
void ek_search_biased(const float *x, int n, int bits, bool search, float *d, float *m, uint8_t *u);

#endif
