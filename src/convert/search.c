#include "convert/target.h"

#include <math.h>

#include "tensor/dtype.h"

float ek_half(float x)
{
    return ek_f16_f32(ek_f32_f16(x));
}

/* Sums have eight lanes and then a tree, so that the compiler may use vectors. */
enum { LANES = 8 };

static float tree(float lane[LANES])
{
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
    return lane[0];
}

static float inverse_of(float d)
{
    return fabsf(d) > 1e-30f ? 1 / d : 0; /* not infinite: for smaller d, all values are 0 */
}

/* ------------------------------------------------------------------ symmetric */

float ek_try_symmetric(const float *x, int n, float d, int bits, float *c)
{
    const float lo = -(float)(1 << (bits - 1)), hi = -lo - 1, inverse = inverse_of(d);
    float error[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float code = ek_nearest(x[i + l] * inverse, lo, hi), e = x[i + l] - d * code;
            c[i + l] = code;
            error[l] += e * e;
        }
    return tree(error);
}

/* The scale with the least squared error for these code values. */
static float fit(const float *x, int n, const float *value)
{
    float xc[LANES] = {0}, cc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float c = value[i + l];
            xc[l] += x[i + l] * c, cc[l] += c * c;
        }
    float under = tree(cc);
    return under > 0 ? tree(xc) / under : 0;
}

static float edge_of(const float *x, int n)
{
    float edge = 0;
    for (int i = 0; i < n; i++) edge = fabsf(x[i]) > fabsf(edge) ? x[i] : edge;
    return edge;
}

typedef struct best {
    float error, d, m;
} best;

static void keep(best *b, float error, float d, float m)
{
    if (error < b->error) *b = (best){error, d, m};
}

static float rounded(float x, bool half)
{
    return half ? ek_half(x) : x;
}

/* The distance from the plain scale that is searched, in tenths of a code. Fine grids gain nothing from scales far
 * away. */
static int reach(int bits)
{
    return bits <= 4 ? 10 : bits == 5 ? 6 : 3;
}

float ek_search_symmetric(const float *x, int n, int bits, bool search, bool half)
{
    const float outer = (float)(1 << (bits - 1)), edge = edge_of(x, n);
    float c[EK_SEARCH_MAX], d = rounded(-edge / outer, half);
    best b = {ek_try_symmetric(x, n, d, bits, c), d, 0};
    for (int step = -reach(bits); search && step <= reach(bits); step++)
        for (int sign = -1; sign <= 1; sign += 2) { /* the lowest code is farther from 0 than the highest */
            float at = outer - (sign > 0 ? 1 : 0) + 0.1f * (float)step;
            d = rounded((float)sign * edge / at, half);
            if (d == 0) continue;
            keep(&b, ek_try_symmetric(x, n, d, bits, c), d, 0);
            float fitted = rounded(fit(x, n, c), half);
            if (fitted != 0 && fitted != d) keep(&b, ek_try_symmetric(x, n, fitted, bits, c), fitted, 0);
        }
    return b.d;
}

/* ------------------------------------------------------------------ tables */

/* Computes code and value as sums of steps over the thresholds below x, without branches and look-ups. */
static float try_table(const float *x, int n, float d, const float table[EK_TABLE_CODES], float *c, float *value)
{
    const float inverse = inverse_of(d);
    float error[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        float code[LANES] = {0}, v[LANES];
        for (int l = 0; l < LANES; l++) v[l] = table[0];
        for (int t = 0; t + 1 < EK_TABLE_CODES; t++) {
            float middle = 0.5f * (table[t] + table[t + 1]), step = table[t + 1] - table[t];
            for (int l = 0; l < LANES; l++) {
                bool above = x[i + l] * inverse > middle;
                code[l] += above ? 1.0f : 0.0f;
                v[l] += above ? step : 0.0f;
            }
        }
        for (int l = 0; l < LANES; l++) {
            float e = x[i + l] - d * v[l];
            c[i + l] = code[l];
            value[i + l] = v[l];
            error[l] += e * e;
        }
    }
    return tree(error);
}

float ek_try_table(const float *x, int n, float d, const float table[EK_TABLE_CODES], float *c)
{
    float value[EK_SEARCH_MAX];
    return try_table(x, n, d, table, c, value);
}

float ek_search_table(const float *x, int n, const float table[EK_TABLE_CODES], bool search, bool half)
{
    const float edge = edge_of(x, n);
    float c[EK_SEARCH_MAX], value[EK_SEARCH_MAX], d = rounded(edge / table[0], half);
    best b = {try_table(x, n, d, table, c, value), d, 0};
    for (int step = -7; search && step <= 7; step++)
        for (int end = 0; end < EK_TABLE_CODES; end += EK_TABLE_CODES - 1) {
            d = rounded(edge / (table[end] * (1 + 0.02f * (float)step)), half);
            if (d == 0) continue;
            keep(&b, try_table(x, n, d, table, c, value), d, 0);
            float fitted = rounded(fit(x, n, value), half);
            if (fitted != 0 && fitted != d) keep(&b, try_table(x, n, fitted, table, c, value), fitted, 0);
        }
    return b.d;
}

/* ------------------------------------------------------------------ biased */

float ek_try_biased(const float *x, int n, float d, float m, int bits, float *c)
{
    const float top = (float)((1 << bits) - 1), inverse = inverse_of(d);
    float error[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float code = ek_nearest((x[i + l] - m) * inverse, 0, top), e = x[i + l] - (d * code + m);
            c[i + l] = code;
            error[l] += e * e;
        }
    return tree(error);
}

/* Finds d and m with the least squared error for these codes. False if all codes are equal. */
static bool fit_biased(const float *x, int n, const float *c, bool below, float *d, float *m)
{
    float x1[LANES] = {0}, c1[LANES] = {0}, xc[LANES] = {0}, cc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l], u = c[i + l];
            x1[l] += v, c1[l] += u, xc[l] += v * u, cc[l] += u * u;
        }
    float sx = tree(x1), sc = tree(c1), sxc = tree(xc), scc = tree(cc), count = (float)n;
    float under = count * scc - sc * sc;
    if (!(under > 0)) return false;
    *d = (count * sxc - sx * sc) / under;
    *m = (sx - *d * sc) / count;
    if (below && *m > 0) *m = 0, *d = sxc / scc;
    return *d > 0;
}

void ek_search_biased(const float *x, int n, int bits, bool search, bool half, bool below, float *d, float *m)
{
    const float top = (float)((1 << bits) - 1);
    float c[EK_SEARCH_MAX], min = x[0], max = x[0];
    for (int i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (below && min > 0) min = 0;
    if (below && max < 0) max = 0; /* a range without 0 would need a scale below its bias */
    float s = rounded((max - min) / top, half), bias = rounded(min, half);
    best b = {ek_try_biased(x, n, s, bias, bits, c), s, bias};
    for (int i = -reach(bits) / 2; search && i <= reach(bits); i++) { /* from a wider grid to a grid that clips */
        float wide = (max - min) / (top + 0.1f * (float)i), from = min;
        if (!(wide > 0)) break;
        ek_try_biased(x, n, wide, from, bits, c);
        for (int again = 0; again < 2; again++) {
            if (!fit_biased(x, n, c, below, &wide, &from)) break;
            wide = rounded(wide, half), from = rounded(from, half);
            if (!(wide > 0)) break;
            keep(&b, ek_try_biased(x, n, wide, from, bits, c), wide, from);
        }
    }
    *d = b.d, *m = b.m;
}
