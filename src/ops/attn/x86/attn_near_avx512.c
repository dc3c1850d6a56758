#include "ops/x86/vec_avx512.h"

#include "ops/attn/x86/attn_near_vec.h"

void ek_near_avx512(const ek_near *a, float *o, const float *q, const float *k, const float *v, ptrdiff_t ld, int pos)
{
    near_body(a, o, q, k, v, ld, pos);
}
