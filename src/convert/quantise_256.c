/* GGUF's formats of 256 values per block: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS. A block has parts with whole-number
 * scales (and minima), and one scale (and one for the minima) in half precision.
 *
 * First each part's real scale is found as in target.h. ggml's make_qkx2_quants and make_qx_quants also search, but
 * weigh errors by the values' size; here all values count the same. Then the block's scale is chosen so that the
 * largest part's scale is whole. Every part tries the neighbouring whole numbers, with new codes for each. Last, the
 * block's scales are fitted to the codes once more, if that lowers the error. */
#include <math.h>
#include <string.h>

#include "convert/target.h"

enum { N = 256, MAX_PARTS = 16 };

static void put_half(uint8_t *to, float x)
{
    ek_f16 h = ek_f32_f16(x);
    memcpy(to, &h, sizeof h);
}

/* ------------------------------------------------------------------ biased parts */

/* value = d * scale[p] * c - dmin * min[p] */
typedef struct biased {
    int parts, bits, top; /* parts: their number; bits: of a code; top: scales and minima are 0 to top */
    float d, dmin, scale[MAX_PARTS], min[MAX_PARTS], c[N];
} biased;

/* Computes part p with the best whole scale and minimum near the wanted ones. */
static float choose_biased(biased *q, const float *x, int p, float s, float m, bool search)
{
    const int n = N / q->parts, around = search ? 1 : 0;
    const float top = (float)q->top;
    float at_s = q->d > 0 ? ek_nearest(s / q->d, 0, top) : 0, at_m = q->dmin > 0 ? ek_nearest(m / q->dmin, 0, top) : 0;
    float best = INFINITY, c[EK_SEARCH_MAX];
    for (int i = -around; i <= around; i++)
        for (int j = -around; j <= around; j++) {
            float scale = at_s + (float)i, min = at_m + (float)j;
            if (scale < 0 || scale > top || min < 0 || min > top) continue;
            float error = ek_try_biased(x, n, q->d * scale, -(q->dmin * min), q->bits, c);
            if (!(error < best)) continue;
            best = error;
            q->scale[p] = scale, q->min[p] = min;
            memcpy(q->c + p * n, c, sizeof *c * (size_t)n);
        }
    return best;
}

static float choose_all_biased(biased *q, const float *x, const float *s, const float *m, bool search)
{
    float error = 0;
    for (int p = 0; p < q->parts; p++) error += choose_biased(q, x + p * (N / q->parts), p, s[p], m[p], search);
    return error;
}

/* Finds d and dmin with the least squared error for the codes and whole numbers. False if the error does not determine
 * them. */
static bool fit_biased(biased *q, const float *x)
{
    const int n = N / q->parts;
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < N; i++) {
        double a = (double)q->scale[i / n] * (double)q->c[i], b = -(double)q->min[i / n];
        aa += a * a, ab += a * b, bb += b * b, ax += a * (double)x[i], bx += b * (double)x[i];
    }
    double under = aa * bb - ab * ab;
    if (!(under > 1e-9 * aa * bb)) return false;
    q->d = ek_half((float)((ax * bb - bx * ab) / under));
    q->dmin = ek_half((float)((bx * aa - ax * ab) / under));
    return q->d > 0 && q->dmin >= 0;
}

static void quantise_biased(biased *q, const float *x, bool search)
{
    const int n = N / q->parts;
    float s[MAX_PARTS], m[MAX_PARTS], max_s = 0, max_m = 0;
    for (int p = 0; p < q->parts; p++) {
        ek_search_biased(x + p * n, n, q->bits, search, false, true, &s[p], &m[p]);
        m[p] = -m[p];
        max_s = s[p] > max_s ? s[p] : max_s;
        max_m = m[p] > max_m ? m[p] : max_m;
    }
    q->d = ek_half(max_s / (float)q->top);
    q->dmin = ek_half(max_m / (float)q->top);
    float error = choose_all_biased(q, x, s, m, search);
    if (!search) return;
    biased again = *q;
    if (fit_biased(&again, x) && choose_all_biased(&again, x, s, m, true) < error) *q = again;
}

/* ------------------------------------------------------------------ symmetric parts */

/* value = d * scale[p] * c, or d * scale[p] * table[c] */
typedef struct symmetric {
    int parts, bits;
    float lo, hi; /* of scales */
    const float *table;
    float d, scale[MAX_PARTS], c[N];
} symmetric;

static float try_part(const symmetric *q, const float *x, float d, float *c)
{
    const int n = N / q->parts;
    return q->table ? ek_try_table(x, n, d, q->table, c) : ek_try_symmetric(x, n, d, q->bits, c);
}

static float choose_part(symmetric *q, const float *x, int p, float s, bool search)
{
    const int n = N / q->parts, around = search ? 1 : 0;
    float at = q->d != 0 ? ek_nearest(s / q->d, q->lo, q->hi) : 0, best = INFINITY, c[EK_SEARCH_MAX];
    for (int i = -around; i <= around; i++) {
        float scale = at + (float)i;
        if (scale < q->lo || scale > q->hi) continue;
        float error = try_part(q, x, q->d * scale, c);
        if (!(error < best)) continue;
        best = error;
        q->scale[p] = scale;
        memcpy(q->c + p * n, c, sizeof *c * (size_t)n);
    }
    return best;
}

static float choose_all(symmetric *q, const float *x, const float *s, bool search)
{
    float error = 0;
    for (int p = 0; p < q->parts; p++) error += choose_part(q, x + p * (N / q->parts), p, s[p], search);
    return error;
}

static bool fit(symmetric *q, const float *x)
{
    const int n = N / q->parts;
    double aa = 0, ax = 0;
    for (int i = 0; i < N; i++) {
        double c = (double)(q->table ? q->table[(int)q->c[i]] : q->c[i]), a = (double)q->scale[i / n] * c;
        aa += a * a, ax += a * (double)x[i];
    }
    if (!(aa > 0)) return false;
    q->d = ek_half((float)(ax / aa));
    return q->d != 0;
}

static void quantise_symmetric(symmetric *q, const float *x, bool search)
{
    const int n = N / q->parts;
    float s[MAX_PARTS], edge = 0;
    for (int p = 0; p < q->parts; p++) {
        s[p] = q->table ? ek_search_table(x + p * n, n, q->table, search, false)
                        : ek_search_symmetric(x + p * n, n, q->bits, search, false);
        edge = fabsf(s[p]) > fabsf(edge) ? s[p] : edge;
    }
    q->d = ek_half(edge / q->lo);
    float error = choose_all(q, x, s, search);
    if (!search) return;
    symmetric again = *q;
    if (fit(&again, x) && choose_all(&again, x, s, true) < error) *q = again;
}

/* ------------------------------------------------------------------ bytes */

/* Eight scales and eight minima of 6 bits: the first four of each in the low bits of bytes 0 to 7, the others' low
 * nibbles in bytes 8 to 11 and their upper two bits above the first ones. */
static void put_six_bits(uint8_t to[12], const biased *q)
{
    for (int p = 0; p < 4; p++) {
        uint32_t s = (uint32_t)q->scale[p + 4], m = (uint32_t)q->min[p + 4];
        to[p] = (uint8_t)((uint32_t)q->scale[p] | (s >> 4) << 6);
        to[p + 4] = (uint8_t)((uint32_t)q->min[p] | (m >> 4) << 6);
        to[p + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
}

static void put_4_or_5(const float *x, int n, uint8_t *to, int bits, bool search)
{
    const int fifth = bits == 5 ? 32 : 0;
    for (int b = 0; b < n / N; b++, x += N, to += 144 + fifth) {
        biased q = {.parts = 8, .bits = bits, .top = 63};
        quantise_biased(&q, x, search);
        put_half(to, q.d);
        put_half(to + 2, q.dmin);
        put_six_bits(to + 4, &q);
        memset(to + 16, 0, (size_t)fifth);
        for (int i = 0; i < 128; i++) {
            int at = i / 32 * 64 + i % 32;
            uint32_t low = (uint32_t)q.c[at], high = (uint32_t)q.c[at + 32];
            to[16 + fifth + i] = (uint8_t)((low & 15) | (high & 15) << 4);
            if (fifth) to[16 + i % 32] |= (uint8_t)((low >> 4) << 2 * (i / 32) | (high >> 4) << (2 * (i / 32) + 1));
        }
    }
}

void ek_put_q4_k(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_4_or_5(x, n, plane[0], 4, search);
}

void ek_put_q5_k(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_4_or_5(x, n, plane[0], 5, search);
}

void ek_put_q2_k(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    for (int b = 0; b < n / N; b++, x += N, to += 84) {
        biased q = {.parts = 16, .bits = 2, .top = 15};
        quantise_biased(&q, x, search);
        for (int p = 0; p < 16; p++) to[p] = (uint8_t)((uint32_t)q.scale[p] | (uint32_t)q.min[p] << 4);
        for (int i = 0; i < 64; i++) {
            const float *c = q.c + i / 32 * 128 + i % 32;
            to[16 + i] = (uint8_t)((uint32_t)c[0] | (uint32_t)c[32] << 2 | (uint32_t)c[64] << 4 | (uint32_t)c[96] << 6);
        }
        put_half(to + 80, q.d);
        put_half(to + 82, q.dmin);
    }
}

/* Sixteen scales of 6 bits plus 32: low nibbles in bytes 0 to 7 (p and p + 8), upper two bits in bytes 8 to 11. */
static void put_q3_scales(uint8_t to[12], const symmetric *q)
{
    memset(to, 0, 12);
    for (int p = 0; p < 16; p++) {
        uint32_t s = (uint32_t)(q->scale[p] + 32);
        to[p % 8] |= (uint8_t)((s & 15) << (p < 8 ? 0 : 4));
        to[8 + p % 4] |= (uint8_t)((s >> 4) << 2 * (p / 4));
    }
}

void ek_put_q3_k(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    for (int b = 0; b < n / N; b++, x += N, to += 110) {
        symmetric q = {.parts = 16, .bits = 3, .lo = -32, .hi = 31};
        quantise_symmetric(&q, x, search);
        memset(to, 0, 96);
        for (int i = 0; i < N; i++) {
            uint32_t u = (uint32_t)(q.c[i] + 4);
            to[i % 32] |= (uint8_t)((u >> 2) << i / 32);
            to[32 + i / 128 * 32 + i % 32] |= (uint8_t)((u & 3) << 2 * (i % 128 / 32));
        }
        put_q3_scales(to + 96, &q);
        put_half(to + 108, q.d);
    }
}

void ek_put_q6_k(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    for (int b = 0; b < n / N; b++, x += N, to += 210) {
        symmetric q = {.parts = 16, .bits = 6, .lo = -128, .hi = 127};
        quantise_symmetric(&q, x, search);
        memset(to, 0, 192);
        for (int i = 0; i < N; i++) {
            uint32_t u = (uint32_t)(q.c[i] + 32);
            int half = i / 128, quarter = i % 128 / 32, l = i % 32;
            to[half * 64 + quarter % 2 * 32 + l] |= (uint8_t)((u & 15) << 4 * (quarter / 2));
            to[128 + half * 32 + l] |= (uint8_t)((u >> 4) << 2 * quarter);
        }
        for (int p = 0; p < 16; p++) to[192 + p] = (uint8_t)(int8_t)q.scale[p];
        put_half(to + 208, q.d);
    }
}

void ek_put_iq4_xs(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    for (int b = 0; b < n / N; b++, x += N, to += 136) {
        symmetric q = {.parts = 8, .lo = -32, .hi = 31, .table = ek_iq4_table};
        quantise_symmetric(&q, x, search);
        put_half(to, q.d);
        memset(to + 2, 0, 6);
        for (int p = 0; p < 8; p++) {
            uint32_t s = (uint32_t)(q.scale[p] + 32);
            to[2 + p / 4] |= (uint8_t)((s >> 4) << 2 * (p % 4));
            to[4 + p / 2] |= (uint8_t)((s & 15) << 4 * (p % 2));
            for (int i = 0; i < 16; i++) {
                const float *c = q.c + 32 * p + i;
                to[8 + 16 * p + i] = (uint8_t)((uint32_t)c[0] | (uint32_t)c[16] << 4);
            }
        }
    }
}
