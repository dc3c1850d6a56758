/* The passes with SSE2, which every x86-64 processor has, and with AVX2. Products of 16 bits are added in pairs; no sum
 * of bytes and weights can overflow. */
#ifdef __x86_64__
#include "media/resize_pass.h"

#include <immintrin.h>
#include <string.h>

/* --- along a row --- */

/* A row is spread out for its sums: each pixel stands beside the next one, r r g g b b as 16 bits and two zeros. The
 * pairs that begin at an even pixel come first, then those that begin at an odd one. Zeros follow the last pixel. */
static size_t pairs_room(int n)
{
    return ek_resize_along_room(n) / 2 / sizeof(__m128i);
}

static void pair_of(__m128i *to, const uint8_t *rgb)
{
    const __m128i v = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)rgb), _mm_setzero_si128());
    const __m128i beside = _mm_unpacklo_epi16(v, _mm_srli_si128(v, 6));
    _mm_storeu_si128(to, _mm_and_si128(beside, _mm_set_epi32(0, -1, -1, -1)));
}

/* Spreads pixels from x on; x is even. No read goes beyond the row. */
static void spread_from(__m128i *even, __m128i *odd, const uint8_t *from, int x, int n)
{
    for (; x + 4 <= n; x += 2) {
        pair_of(even + x / 2, from + 3 * x);
        pair_of(odd + x / 2, from + 3 * x + 3);
    }
    for (; x < n + 12; x += 2) {
        uint8_t three[12] = {0};
        if (x < n) memcpy(three, from + 3 * (size_t)x, 3 * (size_t)(n - x < 3 ? n - x : 3));
        pair_of(even + x / 2, three);
        pair_of(odd + x / 2, three + 3);
    }
}

static void put(uint8_t *to, __m128i sum, __m128i precision)
{
    const __m128i s = _mm_sra_epi32(sum, precision), words = _mm_packs_epi32(s, s);
    const int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    to[0] = (uint8_t)rgb, to[1] = (uint8_t)(rgb >> 8), to[2] = (uint8_t)(rgb >> 16);
}

static __m128i sums_of(const __m128i *px, const uint32_t *weight, int n)
{
    __m128i sum = _mm_setzero_si128();
    for (int j = 0; j < n; j += 2) {
        const __m128i w = _mm_set1_epi32((int)weight[j / 2]);
        sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_loadu_si128(px + j / 2), w));
    }
    return sum;
}

void ek_resize_along_sse2(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room)
{
    const __m128i half = _mm_set1_epi32(1 << p->precision >> 1), precision = _mm_cvtsi32_si128(p->precision);
    __m128i *even = room, *odd = even + pairs_room(p->in);
    spread_from(even, odd, from, 0, p->in);
    for (int i = 0; i < p->out; i++, to += 3) {
        const ek_resize_tap *t = &p->tap[i];
        const __m128i *px = (t->first % 2 ? odd : even) + t->first / 2;
        __m128i sum = _mm_add_epi32(half, sums_of(px, p->low + t->at / 2, t->n));
        if (p->wide) sum = _mm_add_epi32(sum, _mm_slli_epi32(sums_of(px, p->high + t->at / 2, t->n), 8));
        put(to, sum, precision);
    }
}

/* Sixteen bytes, of which five pixels are used, give two even and two odd pairs. */
__attribute__((target("avx2"))) static void spread_avx2(__m128i *even, __m128i *odd, const uint8_t *from, int n)
{
    const __m256i at_even = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                                             -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i at_odd = _mm256_setr_epi8(3, -1, 6, -1, 4, -1, 7, -1, 5, -1, 8, -1, -1, -1, -1, -1, 9, -1, 12, -1, 10,
                                            -1, 13, -1, 11, -1, 14, -1, -1, -1, -1, -1);
    int x = 0;
    for (; x + 6 <= n; x += 4) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + 3 * x));
        const __m256i two = _mm256_broadcastsi128_si256(bytes);
        _mm256_storeu_si256((__m256i *)(even + x / 2), _mm256_shuffle_epi8(two, at_even));
        _mm256_storeu_si256((__m256i *)(odd + x / 2), _mm256_shuffle_epi8(two, at_odd));
    }
    spread_from(even, odd, from, x, n);
}

/* Sums over four weights and four pixels at a time. */
__attribute__((target("avx2"))) static __m128i sums_avx2(const __m128i *px, const uint32_t *weight, int n)
{
    const __m256i each = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    __m256i sum = _mm256_setzero_si256();
    for (int j = 0; j < n; j += 4) {
        const __m128i two = _mm_loadl_epi64((const __m128i *)(const void *)(weight + j / 2));
        const __m256i w = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(two), each);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)(px + j / 2)), w));
    }
    return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

__attribute__((target("avx2"))) void ek_resize_along_avx2(uint8_t *to, const uint8_t *from, const ek_resize_pass *p,
                                                          void *room)
{
    const __m128i half = _mm_set1_epi32(1 << p->precision >> 1), precision = _mm_cvtsi32_si128(p->precision);
    __m128i *even = room, *odd = even + pairs_room(p->in);
    spread_avx2(even, odd, from, p->in);
    for (int i = 0; i < p->out; i++, to += 3) {
        const ek_resize_tap *t = &p->tap[i];
        const __m128i *px = (t->first % 2 ? odd : even) + t->first / 2;
        __m128i sum = _mm_add_epi32(half, sums_avx2(px, p->low + t->at / 2, t->n));
        if (p->wide) sum = _mm_add_epi32(sum, _mm_slli_epi32(sums_avx2(px, p->high + t->at / 2, t->n), 8));
        put(to, sum, precision);
    }
}

/* --- over rows --- */

/* The two rows of pair j, from sample x on. If the last row has no second one, the second weight is 0. */
static const uint8_t *row_of(const uint8_t *const *rows, const ek_resize_tap *t, int j, size_t x)
{
    return rows[j < t->n ? j : t->n - 1] + x;
}

/* Adds four sums of adjacent samples in a, and four of those in b. */
static void add_two(__m128i sum[2], const uint8_t *a, const uint8_t *b, uint32_t weight)
{
    const __m128i zero = _mm_setzero_si128(), w = _mm_set1_epi32((int)weight);
    const __m128i v = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)a),
                                        _mm_loadl_epi64((const __m128i *)(const void *)b));
    sum[0] = _mm_add_epi32(sum[0], _mm_madd_epi16(_mm_unpacklo_epi8(v, zero), w));
    sum[1] = _mm_add_epi32(sum[1], _mm_madd_epi16(_mm_unpackhi_epi8(v, zero), w));
}

void ek_resize_over_sse2(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i)
{
    const ek_resize_tap *t = &p->tap[i];
    const __m128i half = _mm_set1_epi32(1 << p->precision >> 1), precision = _mm_cvtsi32_si128(p->precision);
    const uint32_t *low = p->low + t->at / 2, *high = p->high + t->at / 2;
    size_t x = 0;
    for (; x + 8 <= n; x += 8) {
        __m128i l[2] = {half, half}, h[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
        for (int j = 0; j < t->n; j += 2) {
            const uint8_t *a = row_of(rows, t, j, x), *b = row_of(rows, t, j + 1, x);
            add_two(l, a, b, low[j / 2]);
            if (p->wide) add_two(h, a, b, high[j / 2]);
        }
        for (int k = 0; k < 2; k++) l[k] = _mm_sra_epi32(_mm_add_epi32(l[k], _mm_slli_epi32(h[k], 8)), precision);
        const __m128i words = _mm_packs_epi32(l[0], l[1]);
        _mm_storel_epi64((__m128i *)(void *)(to + x), _mm_packus_epi16(words, words));
    }
    ek_resize_over_from(to, rows, x, n, p, i);
}

__attribute__((target("avx2"))) static void add_two_avx2(__m256i sum[2], const uint8_t *a, const uint8_t *b,
                                                         uint32_t weight)
{
    const __m256i w = _mm256_set1_epi32((int)weight);
    const __m128i va = _mm_loadu_si128((const __m128i *)(const void *)a);
    const __m128i vb = _mm_loadu_si128((const __m128i *)(const void *)b);
    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(va, vb)), w));
    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(va, vb)), w));
}

__attribute__((target("avx2"))) void ek_resize_over_avx2(uint8_t *to, const uint8_t *const *rows, size_t n,
                                                         const ek_resize_pass *p, int i)
{
    const ek_resize_tap *t = &p->tap[i];
    const __m256i half = _mm256_set1_epi32(1 << p->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(p->precision);
    const uint32_t *low = p->low + t->at / 2, *high = p->high + t->at / 2;
    size_t x = 0;
    for (; x + 16 <= n; x += 16) {
        __m256i l[2] = {half, half}, h[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int j = 0; j < t->n; j += 2) {
            const uint8_t *a = row_of(rows, t, j, x), *b = row_of(rows, t, j + 1, x);
            add_two_avx2(l, a, b, low[j / 2]);
            if (p->wide) add_two_avx2(h, a, b, high[j / 2]);
        }
        for (int k = 0; k < 2; k++)
            l[k] = _mm256_sra_epi32(_mm256_add_epi32(l[k], _mm256_slli_epi32(h[k], 8)), precision);
        /* Eight sums each, put in order because packing works in halves. */
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(l[0], l[1]), 0xd8);
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)(to + x), _mm256_castsi256_si128(bytes));
    }
    ek_resize_over_from(to, rows, x, n, p, i);
}
#endif
