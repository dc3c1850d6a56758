/* Where an element of a KV head's keys and values lies in a page, and what it is worth.
 *
 *          K                                        V
 *  F32     [dim][64]                                [64][dim]
 *  F16     [dim][64]                                [64][dim]
 *  BF16    [dim][64]                                [64][dim]
 *  I16     codes i16 [dim][64], scale f32 [64]      codes i16 [64][dim], scale f32 [64]
 *  Q8      codes i8 [dim][64], scale [G][64]        codes i8 [64][dim], scale [64][G]
 *  Q4      codes [dim / 2][64], d even in the low   codes [64][G][16], the first 16 dims of a
 *          nibble; scale, bias [G][64]              group in the low nibbles; scale, bias [64][G]
 *
 * G = groups of 32 dims, the last may be short; their scale and bias are f16. I16: s * c, but attention
 * sums codes and multiplies by s once (ops/attn.h). Q8: s * c, exact in f32;
 * Q4: fma(s, c, b), c in 0..15. No byte belongs to two tokens. */
#ifndef EK_OPS_KV_LAYOUT_H
#define EK_OPS_KV_LAYOUT_H

#include <math.h>

#include "ops/kv.h"
#include "tensor/dtype.h"

enum { EK_KV_GROUP = 32, EK_KV_GROUP_BYTES = EK_KV_GROUP / 2 };

static inline size_t ek_kv_groups(int dim)
{
    return (size_t)(dim + EK_KV_GROUP - 1) / EK_KV_GROUP;
}

/* Bytes of the codes: scales follow, then (Q4) biases. */
static inline size_t ek_kv_k_codes(ek_kv_format f, int dim)
{
    static const size_t eighths[EK_KV_FORMAT_COUNT] = {
        [EK_KV_F32] = 32, [EK_KV_F16] = 16, [EK_KV_BF16] = 16, [EK_KV_I16] = 16, [EK_KV_Q8] = 8, [EK_KV_Q4] = 4};
    return eighths[f] * (size_t)dim * EK_PAGE_TOKENS / 8;
}

static inline size_t ek_kv_v_codes(ek_kv_format f, int dim)
{
    if (f == EK_KV_Q4) return ek_kv_groups(dim) * EK_KV_GROUP_BYTES * EK_PAGE_TOKENS;
    return ek_kv_k_codes(f, dim);
}

/* Bytes of the scales, and of the biases, of a page. */
static inline size_t ek_kv_scales(int dim)
{
    return ek_kv_groups(dim) * EK_PAGE_TOKENS * sizeof(ek_f16);
}

/* I16: the scale of a token, of its keys or of its values. */
static inline const float *ek_kv_token_scale(const uint8_t *part, int dim, int slot)
{
    return (const float *)(part + ek_kv_k_codes(EK_KV_I16, dim)) + slot;
}

static inline float ek_kv_key(ek_kv_format f, const uint8_t *k, int dim, int d, int slot)
{
    size_t at = (size_t)d * EK_PAGE_TOKENS + (size_t)slot;
    if (f == EK_KV_F32) return ((const float *)k)[at];
    if (f == EK_KV_F16) return ek_f16_f32(((const ek_f16 *)k)[at]);
    if (f == EK_KV_BF16) return ek_bf16_f32(((const ek_bf16 *)k)[at]);
    if (f == EK_KV_I16) return *ek_kv_token_scale(k, dim, slot) * (float)((const int16_t *)k)[at];
    const ek_f16 *scale = (const ek_f16 *)(k + ek_kv_k_codes(f, dim)) + d / EK_KV_GROUP * EK_PAGE_TOKENS + slot;
    if (f == EK_KV_Q8) return ek_f16_f32(*scale) * (float)((const int8_t *)k)[at];
    const ek_f16 *bias = scale + ek_kv_scales(dim) / sizeof *bias;
    int code = k[d / 2 * EK_PAGE_TOKENS + slot] >> 4 * (d % 2) & 15;
    return fmaf(ek_f16_f32(*scale), (float)code, ek_f16_f32(*bias));
}

static inline float ek_kv_value(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    size_t at = (size_t)slot * (size_t)dim + (size_t)d;
    if (f == EK_KV_F32) return ((const float *)v)[at];
    if (f == EK_KV_F16) return ek_f16_f32(((const ek_f16 *)v)[at]);
    if (f == EK_KV_BF16) return ek_bf16_f32(((const ek_bf16 *)v)[at]);
    if (f == EK_KV_I16) return *ek_kv_token_scale(v, dim, slot) * (float)((const int16_t *)v)[at];
    size_t group = (size_t)slot * ek_kv_groups(dim) + (size_t)d / EK_KV_GROUP;
    const ek_f16 *scale = (const ek_f16 *)(v + ek_kv_v_codes(f, dim)) + group;
    if (f == EK_KV_Q8) return ek_f16_f32(*scale) * (float)((const int8_t *)v)[at];
    const ek_f16 *bias = scale + ek_kv_scales(dim) / sizeof *bias;
    int in = d % EK_KV_GROUP;
    int code = v[group * EK_KV_GROUP_BYTES + (size_t)in % 16] >> in / 16 * 4 & 15;
    return fmaf(ek_f16_f32(*scale), (float)code, ek_f16_f32(*bias));
}

/* Writes one token of one KV head at k and v, the head's parts of a page. */
void ek_kv_store(ek_kv_format k_format, ek_kv_format v_format, int dim, uint8_t *k_at, uint8_t *v_at, int slot,
                 const float *k, const float *v);

#endif
