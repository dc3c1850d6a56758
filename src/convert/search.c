#include "convert/search.h"

#include <math.h>

#include "tensor/dtype.h"

static float half(float x)
{
    return ek_f16_f32(ek_f32_f16(x));
}

/* Sums are taken in eight lanes and then as a tree, so that the compiler may use vectors. */
enum { LANES = 8 };

static float tree(float lane[LANES])
{
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
    return lane[0];
}

/* Codes for x / d, less zero, and the squared error of what they decode to. */
static float try_symmetric(const float *x, int n, float d, float lo, float hi, float *code)
{
    float error[LANES] = {0}, inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float c = ek_nearest(x[i + l] * inverse, lo, hi), e = x[i + l] - d * c;
            code[i + l] = c;
            error[l] += e * e;
        }
    return tree(error);
}

/* The scale with the least squared error for these codes. */
static float fit_symmetric(const float *x, int n, const float *code)
{
    float xc[LANES] = {0}, cc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float c = code[i + l];
            xc[l] += x[i + l] * c, cc[l] += c * c;
        }
    float under = tree(cc);
    return under > 0 ? tree(xc) / under : 0;
}

typedef struct best {
    float error, d, m;
} best;

static void keep(best *b, float error, float d, float m)
{
    if (error < b->error) *b = (best){error, d, m};
}

float ek_search_symmetric(const float *x, int n, int bits, bool search, uint8_t *u)
{
    const float zero = (float)(1 << (bits - 1)), lo = -zero, hi = zero - 1;
    float code[EK_SEARCH_MAX], edge = 0;
    for (int i = 0; i < n; i++) edge = fabsf(x[i]) > fabsf(edge) ? x[i] : edge;
    float d = half(edge / lo);
    best b = {try_symmetric(x, n, d, lo, hi, code), d, 0};
    /* The outermost value at code -zero - 1 (clipped) up to -zero + 1, and the same for the other sign, where the
     * outermost is zero - 1. */
    for (int step = -10; search && step <= 10; step++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            float at = zero + (sign > 0 ? -0.5f : 0.0f) + 0.1f * (float)step;
            d = half((float)sign * edge / at);
            if (d == 0) continue;
            keep(&b, try_symmetric(x, n, d, lo, hi, code), d, 0);
            float fitted = half(fit_symmetric(x, n, code));
            if (fitted != 0 && fitted != d) keep(&b, try_symmetric(x, n, fitted, lo, hi, code), fitted, 0);
        }
    }
    try_symmetric(x, n, b.d, lo, hi, code);
    for (int i = 0; i < n; i++) u[i] = (uint8_t)(code[i] + zero);
    return b.d;
}

static float try_biased(const float *x, int n, float d, float m, float top, float *code)
{
    float error[LANES] = {0}, inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float c = ek_nearest((x[i + l] - m) * inverse, 0, top), e = x[i + l] - (d * c + m);
            code[i + l] = c;
            error[l] += e * e;
        }
    return tree(error);
}

/* d and m with the least squared error for these codes; false where they are all the same. */
static bool fit_biased(const float *x, int n, const float *code, float *d, float *m)
{
    float x1[LANES] = {0}, c1[LANES] = {0}, xc[LANES] = {0}, cc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l], c = code[i + l];
            x1[l] += v, c1[l] += c, xc[l] += v * c, cc[l] += c * c;
        }
    float sx = tree(x1), sc = tree(c1), count = (float)n, under = count * tree(cc) - sc * sc;
    if (!(under > 0)) return false;
    *d = (count * tree(xc) - sx * sc) / under;
    *m = (sx - *d * sc) / count;
    return *d > 0;
}

void ek_search_biased(const float *x, int n, int bits, bool search, float *d, float *m, uint8_t *u)
{
    const float top = (float)((1 << bits) - 1);
    float code[EK_SEARCH_MAX], min = x[0], max = x[0];
    for (int i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    float step = half((max - min) / top), bias = half(min);
    best b = {try_biased(x, n, step, bias, top, code), step, bias};
    for (int i = -5; search && i <= 12; i++) { /* from a grid wider than the values to one that clips them */
        float s = (max - min) / (top + 0.1f * (float)i), c = bias;
        if (!(s > 0)) break;
        try_biased(x, n, s, c, top, code);
        for (int again = 0; again < 2; again++) {
            if (!fit_biased(x, n, code, &s, &c)) break;
            s = half(s), c = half(c);
            if (!(s > 0)) break;
            keep(&b, try_biased(x, n, s, c, top, code), s, c);
        }
    }
    try_biased(x, n, b.d, b.m, top, code);
    for (int i = 0; i < n; i++) u[i] = (uint8_t)code[i];
    *d = b.d, *m = b.m;
}
