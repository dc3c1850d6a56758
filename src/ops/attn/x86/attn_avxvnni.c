/* Attention in integers, AVX-VNNI: the tiles of AVX2, whose products and their addition are one instruction. Formats of
 * floats stay with AVX2. */
#include "ops/x86/vec_avx2.h"

enum { QUERIES = 4, TILE_VECS = 8 };
#define FUSED 0

#include "ops/attn/x86/attn_decode_avx2.h"
#include "ops/attn/x86/attn_tile.h"
#include "ops/attn/x86/attn_x86.h"

#define ROTATED(id, name, rule, bits, group)                                                   \
    ops->scores[EK_KV_##id] = (rule) == EK_KV_ROTATED ? scores_##id : ops->scores[EK_KV_##id]; \
    ops->values[EK_KV_##id] = (rule) == EK_KV_ROTATED ? values_##id : ops->values[EK_KV_##id];

void ek_attn_table_avxvnni(ek_attn_ops *ops)
{
    EK_KV_FORMATS(ROTATED)
}
