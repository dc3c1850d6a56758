/* Products in bf16 (lib/product_bf16.h) on AVX-512. */
#include "ops/x86/vec_avx512.h"

INLINE vi vi_shr(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

INLINE vf v_from_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

INLINE vf v_from_nibble(vi a) /* the lowest of each dword, less 8 */
{
    return _mm512_permutexvar_ps(
        a, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)); /* reads 4 bits */
}

#include "lib/x86/product_fma.h"

void lib_product_avx512(lib_kernels *k)
{
    k->pair_row = pair_row;
    k->pair_panel = pair_panel;
}
