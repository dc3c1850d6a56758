/* Formats of keys and values: the place of an element of a KV head in a page, its value, and how it is written.
 * This is the definition; the loads of kernels (ops/attn/x86/attn_tile.h) equal it bit for bit.
 *
 *               K                                        V
 *  32, 16 bits  [dim][64]                                [64][dim]
 *   8 bits      [dim][64]                                [64][dim]
 *  fewer bits   planes, D = dim rounded up to a multiple of 32 (K: only to whole bytes)
 *    of 4 bits  [dim / 2][64], d even in the low         [64][D / 2], of 32 dims the first 16 in the low nibbles of
 *               nibble                                   16 bytes
 *    of 2 bits  [dim / 4][64], the lowest d in the       [64][D / 4], likewise
 *               lowest bits
 *    of 1 bit   [dim / 8][64], likewise                  [64][D / 8], likewise
 *  EK_KV_ROTATED                                         (an instruction multiplies neighbours and adds them)
 *   i12         [dim / 2][64][2]                         [64 / 2][dim][2]
 *   i8          [dim / 4][64][4], of four dims           [64 / 4][dim][4], of four tokens
 *               0, 2, 1, 3 in this order                 0, 2, 1, 3 in this order
 *  scales       EK_KV_TOKEN and EK_KV_ROTATED f32 [64];  EK_KV_TOKEN and EK_KV_ROTATED f32 [64];
 *               else f16 [G][64]                         else f16 [64][G]
 *  biases       EK_KV_AFFINE f16 [G][64]                 EK_KV_AFFINE f16 [64][G]
 *
 * in this order, G = groups of a head, the last may be short. A code of b < 8 bits has a plane for every 1 of b written
 * in binary: 6 bits are 4 + 2, 5 are 4 + 1, 3 are 2 + 1. The first plane holds the lowest bits. Vectors take planes
 * apart with shifts alone; codes packed without gaps would cross bytes. No byte belongs to two tokens.
 *
 * A chain of attention multiplies terms. The term of an element is its decoded value; for EK_KV_TOKEN it is
 * the code, and the token's scale multiplies the sum of a score's chains once and a value's weight once
 * (ops/attn/attn.h). */
#ifndef EK_OPS_KV_CODEC_H
#define EK_OPS_KV_CODEC_H

#include <math.h>
#include <stdbool.h>

#include "ops/kv/kv.h"
#include "tensor/dtype.h"

typedef enum ek_kv_rule {
    EK_KV_FLOAT,
    EK_KV_HALF,
    EK_KV_BFLOAT,
    EK_KV_TOKEN,
    EK_KV_SYMMETRIC,
    EK_KV_AFFINE,
    EK_KV_ROTATED
} ek_kv_rule;

typedef struct ek_kv_codec {
    const char *name;
    ek_kv_rule rule;
    int bits, group;
} ek_kv_codec;

/* Constant, so that a kernel of one format has no branch on it: ek_kv_codecs[f] with a constant f is folded. */
#define EK_KV_ROW(id, name, rule, bits, group) [EK_KV_##id] = {name, rule, bits, group},
static const ek_kv_codec ek_kv_codecs[EK_KV_FORMAT_COUNT] __attribute__((unused)) = {EK_KV_FORMATS(EK_KV_ROW)};
#undef EK_KV_ROW

/* Whether each token of a head has one f32 scale. */
static inline bool ek_kv_token_scaled(ek_kv_format f)
{
    return ek_kv_codecs[f].rule == EK_KV_TOKEN || ek_kv_codecs[f].rule == EK_KV_ROTATED;
}

/* Whether attention reads the format in integers. */
static inline bool ek_kv_rotated(ek_kv_format f)
{
    return ek_kv_codecs[f].rule == EK_KV_ROTATED;
}

static inline size_t ek_kv_groups(ek_kv_format f, int dim)
{
    int group = ek_kv_codecs[f].group;
    return group ? (size_t)(dim + group - 1) / (size_t)group : 0;
}

/* Planes of a code of less than 8 bits, by width: a bit of the format's bits each. */
enum { EK_KV_MAX_PLANE = 4 };

/* The padded dims of a token's values in planes: rows begin at whole bytes, and vectors read 32 dims. */
static inline size_t ek_kv_padded(int dim)
{
    return (size_t)(dim + 31) / 32 * 32;
}

static inline size_t ek_kv_k_plane(int plane, int dim)
{
    return (size_t)(dim * plane + 7) / 8 * EK_PAGE_TOKENS;
}

static inline size_t ek_kv_v_plane(int plane, int dim)
{
    return ek_kv_padded(dim) * (size_t)plane / 8 * EK_PAGE_TOKENS;
}

/* Bytes of the elements or codes of a page: scales follow, then biases. */
static inline size_t ek_kv_k_codes(ek_kv_format f, int dim)
{
    int bits = ek_kv_codecs[f].bits;
    size_t bytes = 0;
    if (bits >= 8) return (size_t)bits * (size_t)dim * EK_PAGE_TOKENS / 8;
    for (int plane = EK_KV_MAX_PLANE; plane; plane /= 2) bytes += bits & plane ? ek_kv_k_plane(plane, dim) : 0;
    return bytes;
}

static inline size_t ek_kv_v_codes(ek_kv_format f, int dim)
{
    int bits = ek_kv_codecs[f].bits;
    return (size_t)bits * (bits < 8 ? ek_kv_padded(dim) : (size_t)dim) * EK_PAGE_TOKENS / 8;
}

/* Bytes of the scales of a page's keys or values; as many of biases, if any. */
static inline size_t ek_kv_scales(ek_kv_format f, int dim)
{
    if (ek_kv_token_scaled(f)) return EK_PAGE_TOKENS * sizeof(float);
    return ek_kv_groups(f, dim) * EK_PAGE_TOKENS * sizeof(ek_f16);
}

/* EK_KV_TOKEN, EK_KV_ROTATED: the scale of a token, of its keys or of its values. */
static inline const float *ek_kv_token_scale(ek_kv_format f, const uint8_t *part, int dim, int slot)
{
    return (const float *)(part + ek_kv_k_codes(f, dim)) + slot;
}

/* The scale of the group of dim d; its bias lies ek_kv_scales bytes behind. */
static inline const ek_f16 *ek_kv_k_scale(ek_kv_format f, const uint8_t *k, int dim, int d, int slot)
{
    return (const ek_f16 *)(k + ek_kv_k_codes(f, dim)) + d / ek_kv_codecs[f].group * EK_PAGE_TOKENS + slot;
}

static inline const ek_f16 *ek_kv_v_scale(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    return (const ek_f16 *)(v + ek_kv_v_codes(f, dim)) + (size_t)slot * ek_kv_groups(f, dim) +
           (size_t)(d / ek_kv_codecs[f].group);
}

static inline const ek_f16 *ek_kv_bias(ek_kv_format f, const ek_f16 *scale, int dim)
{
    return scale + ek_kv_scales(f, dim) / sizeof *scale;
}

/* The place of a code's bits in a plane: a byte, and the lowest bit in it. */
typedef struct ek_kv_place {
    size_t byte;
    int shift;
} ek_kv_place;

static inline ek_kv_place ek_kv_k_place(int plane, int d, int slot)
{
    int per_byte = 8 / plane;
    return (ek_kv_place){(size_t)(d / per_byte * EK_PAGE_TOKENS + slot), d % per_byte * plane};
}

static inline ek_kv_place ek_kv_v_place(int plane, int dim, int slot, int d)
{
    size_t row = (size_t)slot * ek_kv_padded(dim) * (size_t)plane / 8;
    int per_byte = 8 / plane;
    if (plane == 4) return (ek_kv_place){row + (size_t)(d / 32 * 16 + d % 16), d / 16 % 2 * 4};
    return (ek_kv_place){row + (size_t)(d / per_byte), d % per_byte * plane};
}

static inline int ek_kv_k_code(ek_kv_format f, const uint8_t *k, int dim, int d, int slot)
{
    int code = 0, at = 0;
    for (int plane = EK_KV_MAX_PLANE; plane; plane /= 2) {
        if (!(ek_kv_codecs[f].bits & plane)) continue;
        const ek_kv_place p = ek_kv_k_place(plane, d, slot);
        code |= (k[p.byte] >> p.shift & ((1 << plane) - 1)) << at;
        k += ek_kv_k_plane(plane, dim), at += plane;
    }
    return code;
}

static inline int ek_kv_v_code(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    int code = 0, at = 0;
    for (int plane = EK_KV_MAX_PLANE; plane; plane /= 2) {
        if (!(ek_kv_codecs[f].bits & plane)) continue;
        const ek_kv_place p = ek_kv_v_place(plane, dim, slot, d);
        code |= (v[p.byte] >> p.shift & ((1 << plane) - 1)) << at;
        v += ek_kv_v_plane(plane, dim), at += plane;
    }
    return code;
}

/* EK_KV_ROTATED: the largest code of a format, and the offset of a code among those of its part. */
static inline int ek_kv_int_max(ek_kv_format f)
{
    return ek_kv_codecs[f].bits == 16 ? 2047 : 127;
}

static inline size_t ek_kv_int_place(ek_kv_format f, int pair, int lanes, int lane)
{
    const int together = ek_kv_codecs[f].bits == 16 ? 2 : 4, i = pair % together;
    return ((size_t)(pair / together) * (size_t)lanes + (size_t)lane) * (size_t)together +
           (size_t)(together == 4 ? i % 2 * 2 + i / 2 : i);
}

static inline size_t ek_kv_int_key_at(ek_kv_format f, int d, int slot)
{
    return ek_kv_int_place(f, d, EK_PAGE_TOKENS, slot);
}

static inline size_t ek_kv_int_value_at(ek_kv_format f, int dim, int slot, int d)
{
    return ek_kv_int_place(f, slot, dim, d);
}

static inline int ek_kv_int_key(ek_kv_format f, const uint8_t *k, int d, int slot)
{
    const size_t at = ek_kv_int_key_at(f, d, slot);
    return ek_kv_codecs[f].bits == 16 ? ((const int16_t *)k)[at] : ((const int8_t *)k)[at];
}

static inline int ek_kv_int_value(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    const size_t at = ek_kv_int_value_at(f, dim, slot, d);
    return ek_kv_codecs[f].bits == 16 ? ((const int16_t *)v)[at] : ((const int8_t *)v)[at];
}

/* An element by rule, stored as number `at` of a row of whole bytes. */
static inline float ek_kv_plain_term(const ek_kv_codec *c, const uint8_t *part, size_t at)
{
    switch (c->rule) {
    case EK_KV_FLOAT: return ((const float *)part)[at];
    case EK_KV_HALF: return ek_f16_f32(((const ek_f16 *)part)[at]);
    case EK_KV_BFLOAT: return ek_bf16_f32(((const ek_bf16 *)part)[at]);
    case EK_KV_TOKEN: return (float)((const int16_t *)part)[at];
    case EK_KV_SYMMETRIC: return (float)((const int8_t *)part)[at]; /* the code */
    case EK_KV_AFFINE:                                              /* shares bytes */
    case EK_KV_ROTATED: break;                                      /* ek_kv_int_key, ek_kv_int_value */
    }
    return 0;
}

/* The term of a key: the factor of q[d] in a chain of a score. */
static inline float ek_kv_key_term(ek_kv_format f, const uint8_t *k, int dim, int d, int slot)
{
    const ek_kv_codec *c = &ek_kv_codecs[f];
    float x = ek_kv_plain_term(c, k, (size_t)d * EK_PAGE_TOKENS + (size_t)slot);
    if (!c->group) return x;
    const ek_f16 *scale = ek_kv_k_scale(f, k, dim, d, slot);
    if (c->rule == EK_KV_SYMMETRIC) return ek_f16_f32(*scale) * x;
    int code = ek_kv_k_code(f, k, dim, d, slot);
    return fmaf(ek_f16_f32(*scale), (float)code, ek_f16_f32(*ek_kv_bias(f, scale, dim)));
}

/* The term of a value: the factor of the token's weight in a chain of an output. */
static inline float ek_kv_value_term(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    const ek_kv_codec *c = &ek_kv_codecs[f];
    float x = ek_kv_plain_term(c, v, (size_t)slot * (size_t)dim + (size_t)d);
    if (!c->group) return x;
    const ek_f16 *scale = ek_kv_v_scale(f, v, dim, slot, d);
    if (c->rule == EK_KV_SYMMETRIC) return ek_f16_f32(*scale) * x;
    int code = ek_kv_v_code(f, v, dim, slot, d);
    return fmaf(ek_f16_f32(*scale), (float)code, ek_f16_f32(*ek_kv_bias(f, scale, dim)));
}

/* The factor of the sum of a key's chains, or of a value's weight; part: the head's keys or values. */
static inline float ek_kv_term_scale(ek_kv_format f, const uint8_t *part, int dim, int slot)
{
    return ek_kv_codecs[f].rule == EK_KV_TOKEN ? *ek_kv_token_scale(f, part, dim, slot) : 1;
}

/* Writes one token of one KV head at k_at and v_at, the head's parts of a page. */
void ek_kv_store(ek_kv_format k_format, ek_kv_format v_format, int dim, uint8_t *k_at, uint8_t *v_at, int slot,
                 const float *k, const float *v);

/* The rotation R and the codes of keys, values and queries of EK_KV_ROTATED (defined in ops/attn/attn_int.h). */

/* Writes the codes of R x to code and returns their scale; x becomes R x. */
float ek_attn_encode(float *x, int dim, int max_code, int16_t *code);
/* x = R x / n, for a result. */
void ek_attn_rotate_back(float *x, int dim);

/* n, the dims of a block of R. */
static inline int ek_attn_block(int dim)
{
    return dim & -dim;
}

#endif
