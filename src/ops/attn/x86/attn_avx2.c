/* Attention, AVX2: 4 queries by 2 vectors of 8 of the 16 registers. */
#include "ops/x86/vec_avx2.h"

enum { QUERIES = 4, TILE_VECS = 8 };
#define FUSED 0

#include "ops/attn/x86/attn_decode_avx2.h"
#include "ops/attn/x86/attn_tile.h"
#include "ops/attn/x86/attn_x86.h"

void ek_attn_table_avx2(ek_attn_ops *ops)
{
    fill_table(ops);
}
