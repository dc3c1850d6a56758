/* Form B of linear layers (ops/linear/linear_b.h) on AVX-512. */
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

#include "ops/linear/x86/bf16/linear_b_fma.h"
#include "ops/linear/x86/bf16/linear_b_x86.h"

void ek_linear_b_table_avx512(ek_linear_b_ops *ops)
{
    *ops = (ek_linear_b_ops){row_b, panel_b};
}
