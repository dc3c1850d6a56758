/* Conversions (ops/convert.h) on AVX2 and AVX-512; each equals the scalar definition, except that an F16 NaN may give
 * another NaN. */
#include "ops/x86/isa.h"

#include "ops/convert.h"

/* W elements at any address. */
INLINE vf v_load_dtype(const void *from, ek_dtype t)
{
    if (t == EK_F32) return v_load(from);
    return t == EK_BF16 ? v_load_bf16(from) : v_from_f16(from);
}

static void widen(float *to, const void *from, ek_dtype t, int64_t n)
{
    const uint8_t *at = from;
    int64_t i = 0;
    if (t == EK_F32) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (; i + W <= n; i += W) v_store(to + i, v_load_dtype(at + 2 * i, t));
    for (; i < n; i++) to[i] = ek_load_float(at + 2 * i, t);
}

static void narrow_f16(uint8_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) ek_store_float(to + 2 * i, EK_F16, from[i]);
}

static void narrow(void *to, ek_dtype t, const float *from, int64_t n)
{
    if (t == EK_F32) memcpy(to, from, (size_t)n * sizeof *from);
    else if (t == EK_BF16) ek_narrow_bf16(to, from, n);
    else narrow_f16(to, from, n);
}

void EK_OF_ISA(ek_convert_table)(ek_convert_ops *ops)
{
    *ops = (ek_convert_ops){widen, narrow};
}
