/* The search for scales, shared by the quantisers. n is a multiple of 8, at most EK_SEARCH_MAX. Codes are whole numbers
 * in float. Scales and biases are rounded to half precision where half is true, and errors are those of the rounded
 * ones. */
#ifndef EK_CONVERT_SEARCH_H
#define EK_CONVERT_SEARCH_H

#include <stdbool.h>

enum { EK_SEARCH_MAX = 64, EK_TABLE_CODES = 16 };

/* x rounded to the nearest whole number, ties to even, within [lo, hi]; the bounds are below 2^22. */
static inline float ek_nearest(float x, float lo, float hi)
{
    x = x < lo ? lo : x > hi ? hi : x;
    return (x + 12582912.0f) - 12582912.0f;
}

float ek_half(float x); /* rounded to half precision */

/* Each ek_try: the codes that are nearest for a scale, and the squared error of what they decode to. */

/* value = d * c, c of [-2^(bits - 1), 2^(bits - 1) - 1] */
float ek_try_symmetric(const float *x, int n, float d, int bits, float *c);
/* value = d * c + m, c of [0, 2^bits - 1], d >= 0 */
float ek_try_biased(const float *x, int n, float d, float m, int bits, float *c);
/* value = d * table[c]: table ascends */
float ek_try_table(const float *x, int n, float d, const float table[EK_TABLE_CODES], float *c);

/* The best scale of those that are tried: with search false the one that puts the value of largest magnitude on the
 * outermost code, else several around it, of either sign, and for each the least-squares fit to its codes. */
float ek_search_symmetric(const float *x, int n, int bits, bool search, bool half);
float ek_search_table(const float *x, int n, const float table[EK_TABLE_CODES], bool search, bool half);
/* The same for a scale and a bias, which is never positive where below is true. */
void ek_search_biased(const float *x, int n, int bits, bool search, bool half, bool below, float *d, float *m);

#endif
