// Products of matrices by a warp (device.h).
#include "emulate/device.h"

#if defined(__AVX2__) // a fifth of the time of all kernels would be these products'
#include <immintrin.h>

// 16 bytes of a warp's lanes l .. l + 3, word w of each, as 16-bit numbers.
static inline __m256i of_lanes(const ek_emulated_words *all, int l, int w)
{
    return _mm256_cvtepi8_epi16(
        _mm_set_epi32((int)all[l + 3][w], (int)all[l + 2][w], (int)all[l + 1][w], (int)all[l][w]));
}

// The sums of four vectors' elements.
static inline __m128i sums(const __m256i (&v)[4])
{
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

// 32 products, eight partial sums.
static inline __m256i dot_32(__m256i x0, __m256i x1, __m256i y0, __m256i y1)
{
    return _mm256_add_epi32(_mm256_madd_epi16(x0, y0), _mm256_madd_epi16(x1, y1));
}
#endif

// Lane l has of a: rows l / 4 and l / 4 + 8, inputs 4 (l % 4) and 16 + 4 (l % 4); of b: column l / 4, the same inputs;
// of d: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and that + 1.
void ek_emulated_mma(int (&d)[4], const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const ek_emulated_words *all = ek_emulated_share(~0u, mine, sizeof mine);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#if defined(__AVX2__)
    const __m256i a0[2] = {of_lanes(all, g * 4, 0), of_lanes(all, g * 4, 1)};
    const __m256i a1[2] = {of_lanes(all, g * 4, 2), of_lanes(all, g * 4, 3)};
    __m256i v[4];
    for (int c = 0; c < 2; c++) {
        const __m256i y0 = of_lanes(all, (2 * t + c) * 4, 4), y1 = of_lanes(all, (2 * t + c) * 4, 5);
        v[c] = dot_32(a0[0], a1[0], y0, y1), v[2 + c] = dot_32(a0[1], a1[1], y0, y1);
    }
    _mm_storeu_si128((__m128i *)d, _mm_add_epi32(_mm_loadu_si128((const __m128i *)d), sums(v)));
#else
    for (int i = 0; i < 4; i++) {
        const int column = 2 * t + i % 2;
        for (int q = 0; q < 4; q++)
            for (int half = 0; half < 2; half++) {
                const uint32_t x = all[g * 4 + q][half * 2 + i / 2], y = all[column * 4 + q][4 + half];
                for (int e = 0; e < 4; e++) d[i] += (int8_t)(x >> 8 * e) * (int8_t)(y >> 8 * e);
            }
    }
#endif
}

#if !defined(__AVX2__)
// 16 products, by vectors.
static int dot(const int16_t *x, const int8_t *y)
{
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += x[k] * (int16_t)y[k];
    return sum;
}
#endif

// A warp's 16 outputs of the warpgroup's 64: its product needs no other warp. Element k of column n of b lies where the
// 128-byte swizzle puts it (src/cuda/kernels/mma.cuh): 16 inputs of a column lie together.
void ek_emulated_wgmma(int *d, int columns, bool kept, const uint32_t *a, const void *b)
{
    const ek_emulated_words *all = ek_emulated_share(~0u, a, 4 * sizeof *a);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#if defined(__AVX2__)
    const __m256i a0[2] = {of_lanes(all, g * 4, 0), of_lanes(all, g * 4, 1)};
    const __m256i a1[2] = {of_lanes(all, g * 4, 2), of_lanes(all, g * 4, 3)};
    for (int i = 0; i < columns / 2; i += 4) {
        __m256i v[4], y[2];
        for (int c = 0; c < 2; c++) {
            for (int k = 0; k < 2; k++) {
                const uintptr_t at = (uintptr_t)b + (uintptr_t)(i / 4 * 1024 + (2 * t + c) * 128 + k * 16);
                y[k] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(at ^ (at >> 7 & 7) << 4)));
            }
            v[c] = dot_32(a0[0], a1[0], y[0], y[1]), v[2 + c] = dot_32(a0[1], a1[1], y[0], y[1]);
        }
        __m128i *const to = (__m128i *)(d + i), sum = sums(v);
        _mm_storeu_si128(to, kept ? _mm_add_epi32(_mm_loadu_si128(to), sum) : sum);
    }
#else
    int16_t rows[2][32]; // g, g + 8
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 32; k++) rows[half][k] = (int8_t)(all[g * 4 + k % 16 / 4][half + k / 16 * 2] >> k % 4 * 8);
    for (int i = 0; i < columns / 2; i++) {
        const int n = i / 4 * 8 + 2 * t + i % 2;
        int sum = kept ? d[i] : 0;
        for (int k = 0; k < 32; k += 16) {
            const uintptr_t at = (uintptr_t)b + (uintptr_t)(n / 8 * 1024 + n % 8 * 128 + k);
            sum += dot(&rows[i / 2 % 2][k], (const int8_t *)(at ^ (at >> 7 & 7) << 4));
        }
        d[i] = sum;
    }
#endif
}
