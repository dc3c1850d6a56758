/* Form B of linear layers (ops/linear/linear_b.h) on AVX2. */
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

#include "ops/linear/x86/bf16/linear_b_fma.h"
#include "ops/linear/x86/bf16/linear_b_x86.h"

void ek_linear_b_table_avx2(ek_linear_b_ops *ops)
{
    *ops = (ek_linear_b_ops){row_b, panel_b};
}
