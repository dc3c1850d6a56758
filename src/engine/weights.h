/* The sum of exp(z[i] - top) over a row: what top-p without top-k compares with.
 *
 * Row sum of ops/rows.h: blocks of 256 from index 0; lane l of 16 takes elements l, l + 16, …
 * in ascending order, lanes are added 8, 4, 2, 1 apart, blocks by T. z[i] <= top, -inf allowed
 * (its term is +0). Every ISA gives the bits of the scalar definition, ek_weight_sum_c. */
#ifndef EK_ENGINE_WEIGHTS_H
#define EK_ENGINE_WEIGHTS_H

typedef float ek_weight_sum_fn(const float *z, int n, float top);

ek_weight_sum_fn ek_weight_sum_c;
#if defined(__x86_64__)
ek_weight_sum_fn ek_weight_sum_avx2, ek_weight_sum_avx512;
#endif
ek_weight_sum_fn *ek_weight_sum_for(unsigned cpu);

#endif
