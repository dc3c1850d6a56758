#include "ops/x86/vec_avx2.h"

#include "ops/attn/x86/attn_near_vec.h"

void ek_near_avx2(const ek_near *a, float *o, const float *q, const float *k, const float *v, ptrdiff_t ld, int pos)
{
    near_body(a, o, q, k, v, ld, pos);
}
