/* Attention on AVX2 (4 queries by 2 vectors of 8 of the 16 registers) and AVX-512 (8 queries by 1 or 2 vectors of 16);
 * in integers also on AVX-VNNI, the tiles of AVX2, whose products and their addition are one instruction, and on a Zen
 * 4 or 5, the tiles of AVX-512, those of 8 queries by attn_int_halved_512.h. Formats of floats stay with AVX2 and
 * AVX-512 there. */
#include "ops/x86/isa.h"

enum { QUERIES = W == 8 ? 4 : 8, TILE_VECS = W };

#if defined(EK_ISA_avx2) || defined(EK_ISA_avxvnni)
#define FUSED 0
#include "ops/attn/x86/attn_decode_avx2.h"
#else
#define FUSED 1
#ifdef EK_ISA_zen4_avx512
#define HALVED 1
#endif
#include "ops/attn/x86/attn_decode_avx512.h"
#endif

#include "ops/attn/x86/attn_tile.h"
#include "ops/attn/x86/attn_x86.h"

#define ROTATED(id, name, rule, bits, group)                                                   \
    ops->scores[EK_KV_##id] = (rule) == EK_KV_ROTATED ? scores_##id : ops->scores[EK_KV_##id]; \
    ops->values[EK_KV_##id] = (rule) == EK_KV_ROTATED ? values_##id : ops->values[EK_KV_##id];

void EK_OF_ISA(ek_attn_table)(ek_attn_ops *ops)
{
#if defined(EK_ISA_avxvnni)
    EK_KV_FORMATS(ROTATED)
#elif defined(EK_ISA_zen4_avx512)
    EK_KV_FORMATS(ROTATED)
    ops->encode = int_encode;
#else
    fill_table(ops);
#endif
}
