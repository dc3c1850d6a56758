/* Products in bf16 (lib/product_bf16.h) on AVX2. */
#include "ops/x86/vec_avx2.h"

INLINE vi vi_shr(vi a, int n)
{
    return _mm256_srli_epi32(a, n);
}

INLINE vf v_from_int(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

INLINE vf v_from_nibble(vi a) /* the lowest of each dword, less 8 */
{
    return v_from_int(vi_sub(vi_and(a, vi_set1(15)), vi_set1(8)));
}

#include "lib/x86/product_fma.h"

void lib_product_avx2(lib_kernels *k)
{
    k->pair_row = pair_row;
    k->pair_panel = pair_panel;
}
