/* Attention in integers, AVX-512 of a Zen 4 or 5: the tiles of AVX-512, those of 8 queries by attn_int_halved_512.h.
 * Formats of floats stay with AVX-512. */
#include "ops/x86/vec_avx512.h"

enum { QUERIES = 8, TILE_VECS = 16 };
#define FUSED  1
#define HALVED 1

#include "ops/attn/x86/attn_decode_avx512.h"
#include "ops/attn/x86/attn_tile.h"
#include "ops/attn/x86/attn_x86.h"

#define ROTATED(id, name, rule, bits, group)                                                   \
    ops->scores[EK_KV_##id] = (rule) == EK_KV_ROTATED ? scores_##id : ops->scores[EK_KV_##id]; \
    ops->values[EK_KV_##id] = (rule) == EK_KV_ROTATED ? values_##id : ops->values[EK_KV_##id];

void ek_attn_table_zen4(ek_attn_ops *ops)
{
    EK_KV_FORMATS(ROTATED)
    ops->encode = int_encode;
}
