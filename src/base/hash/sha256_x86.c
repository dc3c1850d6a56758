#include "base/hash/hash.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

static bool look(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

/* Asks the processor once, because in a virtual machine the question takes longer than a block. */
bool ek_sha256_has_x86(void)
{
    static _Atomic int known; /* 1 no, 2 yes */
    if (!known) known = 1 + look();
    return known == 2;
}

/* The instructions hold the state as a b e f and c d g h, highest lane first, and do two rounds at a time. */
__attribute__((target("sha,sse4.1"))) void ek_sha256_blocks_x86(uint32_t h[8], const uint8_t *p, size_t n)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0xb1);
    __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
    for (; n > 0; n--, p += 64) {
        __m128i w[4], abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big_endian);
        for (int i = 0; i < 16; i++) {
            __m128i *at = &w[i & 3], last = w[(i + 3) & 3];
            __m128i wk = _mm_add_epi32(*at, _mm_loadu_si128((const __m128i *)(ek_sha256_keys + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
            __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(*at, w[(i + 1) & 3]),
                                         _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
            *at = _mm_sha256msg2_epu32(next, last); /* unused in the last four turns */
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* Two texts take turns: the rounds of one block wait for each other, but not for those of the other block. */
__attribute__((target("sha,sse4.1"))) void ek_sha256_two_blocks_x86(uint32_t a[8], uint32_t b[8], const uint8_t *p,
                                                                    const uint8_t *q, size_t n)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    uint32_t *const h[2] = {a, b};
    __m128i abef[2], cdgh[2];
    for (int l = 0; l < 2; l++) {
        __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h[l]), 0xb1);
        __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h[l] + 4)), 0x1b);
        abef[l] = _mm_alignr_epi8(badc, hgfe, 8), cdgh[l] = _mm_blend_epi16(hgfe, badc, 0xf0);
    }
    for (; n > 0; n--, p += 64, q += 64) {
        __m128i w[2][4], abef_before[2] = {abef[0], abef[1]}, cdgh_before[2] = {cdgh[0], cdgh[1]};
        for (int i = 0; i < 4; i++) {
            w[0][i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big_endian);
            w[1][i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(q + 16 * i)), big_endian);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const __m128i keys = _mm_loadu_si128((const __m128i *)(ek_sha256_keys + 4 * i));
#pragma GCC unroll 2
            for (int l = 0; l < 2; l++) {
                __m128i *at = &w[l][i & 3], last = w[l][(i + 3) & 3];
                __m128i wk = _mm_add_epi32(*at, keys);
                cdgh[l] = _mm_sha256rnds2_epu32(cdgh[l], abef[l], wk);
                abef[l] = _mm_sha256rnds2_epu32(abef[l], cdgh[l], _mm_shuffle_epi32(wk, 0x0e));
                if (i >= 12) continue;
                __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(*at, w[l][(i + 1) & 3]),
                                             _mm_alignr_epi8(last, w[l][(i + 2) & 3], 4));
                *at = _mm_sha256msg2_epu32(next, last);
            }
        }
        for (int l = 0; l < 2; l++) {
            abef[l] = _mm_add_epi32(abef[l], abef_before[l]);
            cdgh[l] = _mm_add_epi32(cdgh[l], cdgh_before[l]);
        }
    }
    for (int l = 0; l < 2; l++) {
        __m128i feba = _mm_shuffle_epi32(abef[l], 0x1b), dchg = _mm_shuffle_epi32(cdgh[l], 0xb1);
        _mm_storeu_si128((__m128i *)h[l], _mm_blend_epi16(feba, dchg, 0xf0));
        _mm_storeu_si128((__m128i *)(h[l] + 4), _mm_alignr_epi8(dchg, feba, 8));
    }
}
#else
bool ek_sha256_has_x86(void)
{
    return false;
}

void ek_sha256_blocks_x86(uint32_t h[8], const uint8_t *p, size_t n)
{
    ek_sha256_blocks(h, p, n);
}

void ek_sha256_two_blocks_x86(uint32_t a[8], uint32_t b[8], const uint8_t *p, const uint8_t *q, size_t n)
{
    ek_sha256_blocks(a, p, n);
    ek_sha256_blocks(b, q, n);
}
#endif
