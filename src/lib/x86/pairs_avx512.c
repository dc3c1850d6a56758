/* Products in bf16 (lib/pairs.h) on AVX-512. */
#include "ops/x86/vec_avx512.h"

INLINE vi vi_shr(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

INLINE vf v_from_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

#include "lib/x86/lib_pair_fma.h"

void lib_pairs_avx512(lib_kernels *k)
{
    k->pair_row = pair_row;
    k->pair_panel = pair_panel;
}
