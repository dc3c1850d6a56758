/* Attention over rows (ops/attn/attn_rows.h) on AVX2 and AVX-512. */
#include "ops/x86/isa.h"

enum { TILE_QUERIES = W == 8 ? 4 : 8 };

#include "ops/attn/x86/attn_rows_fma.h"
#include "ops/attn/x86/attn_rows_vec.h"
#include "ops/attn/x86/attn_x86.h"

#ifdef EK_ISA_avx2
INLINE void load_keys(vi *r, const uint8_t *const *key, size_t at, int left, const bool wide)
{
    const int step = wide ? 8 : 16, size = wide ? 4 : 2;
    UNROLL for (int j = 0; j < 8; j++)
    {
        const uint8_t *from = key[j] + at;
        if (left >= step) {
            r[j] = _mm256_loadu_si256((const __m256i *)from);
            continue;
        }
        uint8_t part[32] = {0};
        memcpy(part, from, (size_t)left * (size_t)size);
        r[j] = _mm256_loadu_si256((const __m256i *)part);
    }
    vi_transpose(r);
}

INLINE vf pair_part(ek_dtype t, __m256i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    __m256i half = high ? _mm256_srli_epi32(x, 16) : vi_and(x, vi_set1(0xffff));
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(half));
}
#else
INLINE void load_keys(vi *r, const uint8_t *const *key, size_t at, int left, const bool wide)
{
    if (left >= (wide ? 16 : 32)) {
        UNROLL for (int j = 0; j < 16; j++) r[j] = _mm512_loadu_si512(key[j] + at);
    } else {
        UNROLL for (int j = 0; j < 16; j++)
            r[j] = wide ? _mm512_maskz_loadu_epi32((__mmask16)((1u << left) - 1), key[j] + at)
                        : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), key[j] + at);
    }
    vi_transpose(r);
}

INLINE vf pair_part(ek_dtype t, __m512i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high ? _mm512_srli_epi32(x, 16) : x));
}
#endif

void EK_OF_ISA(ek_attn_rows_table)(ek_attn_rows_ops *ops)
{
    ops->scores = scores;
    ops->values = values;
    ops->scores_bf16 = scores_bf16;
    ops->round_bf16 = round_bf16;
    ops->values_bf16 = values_bf16;
}
