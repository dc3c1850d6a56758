/* GGUF's formats of 32 values per block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
 *
 * Without a search the scale is ggml's (quantize_row_*_ref): the value of largest magnitude gets the lowest code, or
 * minimum and maximum get the outer codes; codes are rounded to nearest for the stored scale. With a search it is the
 * best of several scales around that one. Q8_0 is never searched: its error is a sixteenth of Q4_0's. */
#include <math.h>
#include <string.h>

#include "convert/target.h"

enum { N = 32 };

static void put_half(uint8_t *to, float x)
{
    ek_f16 h = ek_f32_f16(x);
    memcpy(to, &h, sizeof h);
}

/* Codes 0 to 15 as ggml packs them: value i beside value i + 16. */
static void put_nibbles(uint8_t *to, const uint8_t *u)
{
    for (int i = 0; i < N / 2; i++) to[i] = (uint8_t)((u[i] & 15) | (u[i + N / 2] & 15) << 4);
}

static void put_fifth_bits(uint8_t *to, const uint8_t *u)
{
    uint32_t high = 0;
    for (int i = 0; i < N; i++) high |= (uint32_t)(u[i] >> 4 & 1) << i;
    memcpy(to, &high, sizeof high);
}

static void put_codes(uint8_t *to, int bits, const float *c, float zero)
{
    uint8_t u[N];
    for (int i = 0; i < N; i++) u[i] = (uint8_t)(c[i] + zero);
    if (bits == 5) put_fifth_bits(to, u), to += 4;
    put_nibbles(to, u);
}

static void put_symmetric(const float *x, int n, uint8_t *to, int bits, bool search)
{
    float c[N];
    for (int b = 0; b < n / N; b++, x += N, to += bits == 4 ? 18 : 22) {
        float d = ek_search_symmetric(x, N, bits, search, true);
        ek_try_symmetric(x, N, d, bits, c);
        put_half(to, d);
        put_codes(to + 2, bits, c, (float)(1 << (bits - 1)));
    }
}

static void put_biased(const float *x, int n, uint8_t *to, int bits, bool search)
{
    float c[N], d, m;
    for (int b = 0; b < n / N; b++, x += N, to += bits == 4 ? 20 : 24) {
        ek_search_biased(x, N, bits, search, true, false, &d, &m);
        ek_try_biased(x, N, d, m, bits, c);
        put_half(to, d);
        put_half(to + 2, m);
        put_codes(to + 4, bits, c, 0);
    }
}

void ek_put_q4_0(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_symmetric(x, n, plane[0], 4, search);
}

void ek_put_q5_0(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_symmetric(x, n, plane[0], 5, search);
}

void ek_put_q4_1(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_biased(x, n, plane[0], 4, search);
}

void ek_put_q5_1(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    put_biased(x, n, plane[0], 5, search);
}

void ek_put_q8_0(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    (void)search;
    for (int b = 0; b < n / N; b++, x += N, to += 2 + N) {
        float max = 0;
        for (int i = 0; i < N; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        float d = ek_half(max / 127), inverse = d > 0 ? 1 / d : 0;
        put_half(to, d);
        for (int i = 0; i < N; i++) to[2 + i] = (uint8_t)(int8_t)ek_nearest(x[i] * inverse, -127, 127);
    }
}

const float ek_iq4_table[EK_TABLE_CODES] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void ek_put_iq4_nl(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    uint8_t *to = plane[0];
    float c[N];
    for (int b = 0; b < n / N; b++, x += N, to += 18) {
        float d = ek_search_table(x, N, ek_iq4_table, search, true);
        ek_try_table(x, N, d, ek_iq4_table, c);
        put_half(to, d);
        put_codes(to + 2, 4, c, 0);
    }
}

/* 2^(e - 128), the scale of E2M1's doubled values; subnormal below e = 2. */
static float power(int e)
{
    return e < 2 ? ek_bits_f32(0x00200000u << e) : ek_bits_f32((uint32_t)(e - 1) << 23);
}

/* The exponent is ggml's, floor(log2(max)) - 2. With a search, the next exponent is tried, too, and the one with the
 * smaller error is taken. The first exponent clips values above 6/4 of a power of two. */
void ek_put_mxfp4(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    static const float table[EK_TABLE_CODES] = {-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12};
    uint8_t *to = plane[0], u[N];
    float c[N], other[N];
    for (int b = 0; b < n / N; b++, x += N, to += 1 + N / 2) {
        float max = 0;
        for (int i = 0; i < N; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        int e = (int)(ek_f32_bits(max) >> 23) - 2;
        e = e < 0 ? 0 : e > 254 ? 254 : e;
        float error = ek_try_table(x, N, power(e), table, c);
        if (search && e < 254 && ek_try_table(x, N, power(e + 1), table, other) < error) {
            e++;
            memcpy(c, other, sizeof c);
        }
        to[0] = (uint8_t)e;
        for (int i = 0; i < N; i++) u[i] = (uint8_t)(c[i] < 8 ? 15 - c[i] : c[i] - 8); /* codes 8 to 15 are negative */
        put_nibbles(to + 1, u);
    }
}
