/* Attention on AVX2 (4 queries by 2 vectors of 8 of the 16 registers) and AVX-512 (8 queries by 1 or 2 vectors of 16).
 * Attention in integers also on AVX-VNNI (AVX2's tiles; product and addition are one instruction) and on Zen 4 and 5
 * (AVX-512's tiles, those of eight queries by attn_int_halved_512.h). There float formats use AVX2's and AVX-512's
 * kernels. */
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
