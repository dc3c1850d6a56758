#include "media/resize_pass.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static uint8_t clip(int32_t sum, int precision)
{
    sum >>= precision;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static uint32_t halves(int32_t a, int32_t b)
{
    return (uint16_t)a | (uint32_t)(uint16_t)b << 16;
}

void ek_resize_pairs(ek_resize_pass *p)
{
    p->wide = 0;
    for (int i = 0; i < p->out; i++)
        for (int j = 0; j < p->tap[i].n; j++) {
            const int32_t w = p->weight[p->tap[i].at + (size_t)j];
            if (w != (int16_t)w) p->wide = 1;
        }
    for (int i = 0; i < p->out; i++) {
        const ek_resize_tap *t = &p->tap[i];
        for (int j = 0; j < t->n; j += 2) {
            const int32_t a = p->weight[t->at + (size_t)j], b = j + 1 < t->n ? p->weight[t->at + (size_t)j + 1] : 0;
            ek_resize_pair *pair = &p->pair[(t->at + (size_t)j) / 2];
            if (p->wide) *pair = (ek_resize_pair){halves(a & 255, b & 255), halves(a >> 8, b >> 8)};
            else *pair = (ek_resize_pair){halves(a, b), 0};
        }
    }
}

void ek_resize_along_c(uint8_t *to, const uint8_t *from, const ek_resize_pass *p)
{
    for (int i = 0; i < p->out; i++, to += 3) {
        const ek_resize_tap *t = &p->tap[i];
        const int32_t *w = p->weight + t->at;
        const uint8_t *px = from + 3 * (size_t)t->first;
        int32_t half = 1 << p->precision >> 1, r = half, g = half, b = half;
        for (int j = 0; j < t->n; j++, px += 3) {
            r += w[j] * px[0];
            g += w[j] * px[1];
            b += w[j] * px[2];
        }
        to[0] = clip(r, p->precision), to[1] = clip(g, p->precision), to[2] = clip(b, p->precision);
    }
}

static void over_from(uint8_t *to, const uint8_t *const *rows, size_t from, size_t n, const ek_resize_pass *p, int i)
{
    const ek_resize_tap *t = &p->tap[i];
    for (size_t x = from; x < n; x++) {
        int32_t sum = 1 << p->precision >> 1;
        for (int j = 0; j < t->n; j++) sum += p->weight[t->at + (size_t)j] * rows[j][x];
        to[x] = clip(sum, p->precision);
    }
}

void ek_resize_over_c(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i)
{
    over_from(to, rows, 0, n, p, i);
}

#ifdef __SSE2__
/* The products of 16 bits are added in pairs, which no sum of bytes and weights can overflow. */

static __m128i weights_of(uint32_t pair)
{
    return _mm_set1_epi32((int)pair);
}

/* Four sums, cut to bytes: the lowest three or four of the result. */
static __m128i bytes_of(__m128i sum, __m128i precision)
{
    const __m128i s = _mm_sra_epi32(sum, precision), words = _mm_packs_epi32(s, s);
    return _mm_packus_epi16(words, words);
}

size_t ek_resize_along_room(int n)
{
    return ((size_t)n + 1) * sizeof(__m128i);
}

/* Each pixel beside the next one: r r g g b b as 16 bits, two more that do not count. Behind the last one is a 0 pixel,
 * which only a weight of 0 reads. */
static void spread(__m128i *to, const uint8_t *from, int n)
{
    const __m128i zero = _mm_setzero_si128();
    int x = 0;
    for (; x + 2 < n; x++) {
        const __m128i v = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)(from + 3 * x)), zero);
        _mm_storeu_si128(to + x, _mm_unpacklo_epi16(v, _mm_srli_si128(v, 6)));
    }
    for (; x < n; x++) {
        uint8_t two[8] = {0};
        memcpy(two, from + 3 * (size_t)x, x + 1 < n ? 6 : 3);
        const __m128i v = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)two), zero);
        _mm_storeu_si128(to + x, _mm_unpacklo_epi16(v, _mm_srli_si128(v, 6)));
    }
    _mm_storeu_si128(to + n, zero);
}

void ek_resize_along(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room)
{
    const __m128i half = _mm_set1_epi32(1 << p->precision >> 1), precision = _mm_cvtsi32_si128(p->precision);
    __m128i *px = room;
    spread(px, from, p->in);
    for (int i = 0; i < p->out; i++, to += 3) {
        const ek_resize_tap *t = &p->tap[i];
        const ek_resize_pair *w = p->pair + t->at / 2;
        const __m128i *v = px + t->first;
        __m128i low = half, high = _mm_setzero_si128();
        for (int j = 0; j < t->n; j += 2, w++) {
            const __m128i at = _mm_loadu_si128(v + j);
            low = _mm_add_epi32(low, _mm_madd_epi16(at, weights_of(w->low)));
            if (p->wide) high = _mm_add_epi32(high, _mm_madd_epi16(at, weights_of(w->high)));
        }
        if (p->wide) low = _mm_add_epi32(low, _mm_slli_epi32(high, 8));
        const int rgb = _mm_cvtsi128_si32(bytes_of(low, precision));
        to[0] = (uint8_t)rgb, to[1] = (uint8_t)(rgb >> 8), to[2] = (uint8_t)(rgb >> 16);
    }
}

/* Eight samples of two rows beside each other, then four sums of each. */
static void add_two(__m128i sum[2], const uint8_t *a, const uint8_t *b, __m128i w)
{
    const __m128i zero = _mm_setzero_si128();
    const __m128i v = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)a),
                                        _mm_loadl_epi64((const __m128i *)(const void *)b));
    sum[0] = _mm_add_epi32(sum[0], _mm_madd_epi16(_mm_unpacklo_epi8(v, zero), w));
    sum[1] = _mm_add_epi32(sum[1], _mm_madd_epi16(_mm_unpackhi_epi8(v, zero), w));
}

void ek_resize_over(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i)
{
    const ek_resize_tap *t = &p->tap[i];
    const ek_resize_pair *pair = p->pair + t->at / 2;
    const __m128i half = _mm_set1_epi32(1 << p->precision >> 1), precision = _mm_cvtsi32_si128(p->precision);
    size_t x = 0;
    for (; x + 8 <= n; x += 8) {
        __m128i low[2] = {half, half}, high[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
        for (int j = 0; j < t->n; j += 2) {
            const uint8_t *a = rows[j] + x, *b = j + 1 < t->n ? rows[j + 1] + x : a; /* its weight is 0 */
            add_two(low, a, b, weights_of(pair[j / 2].low));
            if (p->wide) add_two(high, a, b, weights_of(pair[j / 2].high));
        }
        for (int k = 0; k < 2; k++) low[k] = _mm_sra_epi32(_mm_add_epi32(low[k], _mm_slli_epi32(high[k], 8)), precision);
        const __m128i words = _mm_packs_epi32(low[0], low[1]);
        _mm_storel_epi64((__m128i *)(void *)(to + x), _mm_packus_epi16(words, words));
    }
    over_from(to, rows, x, n, p, i);
}
#else
size_t ek_resize_along_room(int n)
{
    (void)n;
    return 1;
}

void ek_resize_along(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room)
{
    (void)room;
    ek_resize_along_c(to, from, p);
}

void ek_resize_over(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i)
{
    ek_resize_over_c(to, rows, n, p, i);
}
#endif
