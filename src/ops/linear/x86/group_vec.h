/* Shared code of the product kernels, for any vector of ops/x86/vec_*.h, which is included before. */
#ifndef EK_OPS_X86_GROUP_VEC_H
#define EK_OPS_X86_GROUP_VEC_H

#include "ops/linear/linear_layout.h"

/* Scales and biases of a biased group, W outputs of each from the output at. */
INLINE void load_scales(const ek_linear *w, const uint8_t *group, int at, vf *s, vf *b)
{
    const uint8_t *from = group + ek_linear_code_bytes(w);
    if (w->scale_dtype == EK_BF16)
        *s = v_load_bf16((const uint16_t *)from + at), *b = v_load_bf16((const uint16_t *)from + EK_PANEL + at);
    else *s = v_load((const float *)from + at), *b = v_load((const float *)from + EK_PANEL + at);
}

#endif
