/* Attention, AVX-512: 8 queries by 1 or 2 vectors of 16. */
#include "ops/x86/vec_avx512.h"

enum { QUERIES = 8, TILE_VECS = 16 };
#define FUSED 1

#include "ops/attn/x86/attn_decode_avx512.h"
#include "ops/attn/x86/attn_tile.h"
#include "ops/attn/x86/attn_x86.h"

void ek_attn_table_avx512(ek_attn_ops *ops)
{
    fill_table(ops);
}
