/* The loops of peak.h on AVX2, AVX-VNNI, AVX-512 and AMX. There are 12 sums, more than latency times throughput, so
 * that the multipliers never wait. The sums are separate variables and each instruction is written out. A compiler
 * would otherwise keep an array of sums in memory, or compute a product only once. */
#include <immintrin.h>
#include <stdint.h>

#include "base/machine/peak.h"

#define EACH(X)   X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ZERO(i)   __typeof__(total) s##i = total;
#define GATHER(i) total += s##i;
/* total is zero before. The sums' meaning does not matter. */
#define MULTIPLY(STEP)                         \
    EACH(ZERO)                                 \
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) { \
        EACH(STEP)                             \
    }                                          \
    EACH(GATHER)

#if defined(EK_ISA_avx2)
/* PMADDUBSW needs an addition for the sum of its products. */

int64_t ek_peak_int8_avx2(void)
{
#define STEP(i)                                                           \
    __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(p) : "x"(a), "x"(b)); \
    __asm__ volatile("vpaddw %1, %0, %0" : "+x"(s##i) : "x"(p));
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), p, total = _mm256_setzero_si256();
    MULTIPLY(STEP)
    return _mm256_extract_epi16(total, 0);
#undef STEP
}

int64_t ek_peak_f32_avx2(void)
{
#define STEP(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(s##i) : "x"(a), "x"(b));
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0x1p-20f), total = _mm256_setzero_ps();
    MULTIPLY(STEP)
    return (int64_t)_mm256_cvtss_f32(total);
}

#elif defined(EK_ISA_avxvnni)
int64_t ek_peak_int8_avxvnni(void)
{
#define STEP(i) __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s##i) : "x"(a), "x"(b));
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), total = _mm256_setzero_si256();
    MULTIPLY(STEP)
    return _mm256_extract_epi32(total, 0);
}

#elif defined(EK_ISA_avx512)
int64_t ek_peak_int8_avx512(void)
{
#define STEP(i) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), total = _mm512_setzero_si512();
    MULTIPLY(STEP)
    return _mm512_reduce_add_epi32(total);
#undef STEP
}

int64_t ek_peak_f32_avx512(void)
{
#define STEP(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0x1p-20f), total = _mm512_setzero_ps();
    MULTIPLY(STEP)
    return (int64_t)_mm512_reduce_add_ps(total);
}

/* One stream. Lines are fetched 64 lines ahead. */
int64_t ek_peak_read_avx512(const void *chunk)
{
    const char *p = chunk;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < EK_PEAK_CHUNK; i += 256) {
        for (size_t line = 0; line < 256; line += 64) _mm_prefetch(p + i + 4096 + line, _MM_HINT_T0);
        a = _mm512_or_si512(a, _mm512_load_si512(p + i));
        b = _mm512_or_si512(b, _mm512_load_si512(p + i + 64));
        c = _mm512_or_si512(c, _mm512_load_si512(p + i + 128));
        d = _mm512_or_si512(d, _mm512_load_si512(p + i + 192));
    }
    return _mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}

#else
/* Six sums of 16 x 16 outputs and two tiles of inputs: one product every 16 cycles, without loads. */
int64_t ek_peak_int8_amx(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    int32_t sum[256];
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int r = 0; r < EK_PEAK_ROUNDS / EK_PEAK_TILE_ROUNDS; r++) {
        _tile_dpbssd(0, 6, 7);
        _tile_dpbssd(1, 6, 7);
        _tile_dpbssd(2, 6, 7);
        _tile_dpbssd(3, 6, 7);
        _tile_dpbssd(4, 6, 7);
        _tile_dpbssd(5, 6, 7);
    }
    _tile_stored(0, sum, 64);
    _tile_release();
    return sum[0];
}
#endif
