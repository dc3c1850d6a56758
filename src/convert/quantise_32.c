/* GGUF's formats of 32 values per block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
 *
 * Without a search the scale is ggml's (quantize_row_*_ref): the value of largest magnitude gets the lowest code, or
 * minimum and maximum the outer ones; codes here are rounded to nearest by the scale as it is stored. With a search
 * the best of several scales around it. Q8_0 is never searched: its error is a sixteenth already. */
#include <math.h>
#include <string.h>

#include "convert/quantise.h"
#include "convert/search.h"

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

static void put_symmetric(const float *x, int n, uint8_t *to, int bits, bool search)
{
    const int bytes = bits == 4 ? 18 : 22;
    for (int b = 0; b < n / N; b++, x += N, to += bytes) {
        uint8_t u[N];
        float d = ek_search_symmetric(x, N, bits, search, u);
        put_half(to, d);
        if (bits == 5) put_fifth_bits(to + 2, u);
        put_nibbles(to + bytes - N / 2, u);
    }
}

static void put_biased(const float *x, int n, uint8_t *to, int bits, bool search)
{
    const int bytes = bits == 4 ? 20 : 24;
    for (int b = 0; b < n / N; b++, x += N, to += bytes) {
        uint8_t u[N];
        float d, m;
        ek_search_biased(x, N, bits, search, &d, &m, u);
        put_half(to, d);
        put_half(to + 2, m);
        if (bits == 5) put_fifth_bits(to + 4, u);
        put_nibbles(to + bytes - N / 2, u);
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
        float d = ek_f16_f32(ek_f32_f16(max / 127));
        put_half(to, d);
        float inverse = d > 0 ? 1 / d : 0;
        for (int i = 0; i < N; i++) to[2 + i] = (uint8_t)(int8_t)ek_nearest(x[i] * inverse, -127, 127);
    }
}
