/* Loads of keys and values by format, for any vector of ops/x86/vec_*.h: W elements per load, as ops/kv/kv_codec.h
 * defines them. The format is a constant wherever these are inlined. Formats with groups are decoded in tiles
 * (attn_groups.h). loads() is false for a rule or a code width without a load; such formats have no kernel. */
#ifndef EK_OPS_X86_ATTN_KV_H
#define EK_OPS_X86_ATTN_KV_H

#include <stdbool.h>

#include "ops/kv/kv_codec.h"

enum { COLS_MAX = 8 };

/* Whether the functions below know the format f. */
INLINE bool loads(const ek_kv_format f)
{
    const ek_kv_codec c = ek_kv_codecs[f];
    switch (c.rule) {
    case EK_KV_FLOAT:
    case EK_KV_HALF:
    case EK_KV_BFLOAT: return true;
    case EK_KV_TOKEN: return c.bits == 16;
    case EK_KV_SYMMETRIC: return c.bits == 8 && c.group % 32 == 0;
    case EK_KV_AFFINE: return c.bits >= 2 && c.bits <= 6 && c.group % 32 == 0;
    case EK_KV_ROTATED: return true; /* attn_int_tile.h */
    }
    return false;
}

/* Whether a load of 16 bits is more than a load and a shift or a mask. */
INLINE bool converts(const ek_kv_format f)
{
    return ek_kv_codecs[f].rule == EK_KV_HALF || ek_kv_codecs[f].rule == EK_KV_TOKEN;
}

/* --- keys: a lane is a key */

/* Terms of dim pair + half for keys [slot, slot + cols W), pair even. bf16 comes in pairs of even and odd lanes, which
 * in_order sorts after the computation; cols is even then. */
INLINE void load_keys(const ek_kv_format f, int cols, const uint8_t *k, int pair, int half, int slot, vf *x)
{
    const size_t at = (size_t)(pair + half) * EK_PAGE_TOKENS + (size_t)slot;
    for (int c = 0; c < cols; c++) {
        const size_t i = at + (size_t)(c * W);
        switch (ek_kv_codecs[f].rule) {
        case EK_KV_FLOAT: x[c] = v_load((const float *)k + i); break;
        case EK_KV_HALF: x[c] = v_from_f16((const uint16_t *)k + i); break;
        case EK_KV_BFLOAT:
            if (c % 2 == 0) v_load_bf16_pair((const uint16_t *)k + i, x + c);
            break;
        case EK_KV_TOKEN: x[c] = v_from_i16((const int16_t *)k + i); break;
        case EK_KV_SYMMETRIC:
        case EK_KV_AFFINE:
        case EK_KV_ROTATED: break;
        }
    }
}

/* --- values: a lane is a dim */

/* Terms of dims [d, d + cols W) of one token; a single vector may hold n < W of them. d is a multiple of cols W.
 * Lanes past the end of a row hold anything. */
INLINE void load_values(const ek_kv_format f, int cols, int n, const uint8_t *v, int dim, int slot, int d, vf *x)
{
    const size_t at = (size_t)slot * (size_t)dim + (size_t)d;
    const bool part = cols == 1;
    for (int c = 0; c < cols; c++) {
        const size_t i = at + (size_t)(c * W);
        switch (ek_kv_codecs[f].rule) {
        case EK_KV_FLOAT: x[c] = part ? v_load_part((const float *)v + i, n) : v_load((const float *)v + i); break;
        case EK_KV_HALF:
            x[c] = part ? v_from_f16_part((const uint16_t *)v + i, n) : v_from_f16((const uint16_t *)v + i);
            break;
        case EK_KV_BFLOAT:
            if (part) x[c] = v_load_bf16_part((const uint16_t *)v + i, n);
            else if (c % 2 == 0) v_load_bf16_pair((const uint16_t *)v + i, x + c);
            break;
        case EK_KV_TOKEN:
            x[c] = part ? v_from_i16_part((const int16_t *)v + i, n) : v_from_i16((const int16_t *)v + i);
            break;
        case EK_KV_SYMMETRIC:
        case EK_KV_AFFINE:
        case EK_KV_ROTATED: break;
        }
    }
}

/* --- after the chains */

/* Puts sums of terms that were loaded in pairs back in order. */
INLINE void in_order(const ek_kv_format f, int cols, vf *x)
{
    for (int c = 0; c < cols && ek_kv_codecs[f].rule == EK_KV_BFLOAT; c += 2) v_in_order(x + c);
}

/* Sums of chains, or weights, of W tokens from slot: times the tokens' scales. */
INLINE vf scale_tokens(const ek_kv_format f, vf x, const uint8_t *part, int dim, int slot)
{
    return ek_kv_codecs[f].rule == EK_KV_TOKEN ? v_mul(x, v_load(ek_kv_token_scale(f, part, dim, slot))) : x;
}

#endif
