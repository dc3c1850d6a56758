#include "cuda/product/format.h"

#include <stdio.h>

enum { MAX_LEAVES = 128 }; /* of a panel in shared memory */

bool ek_cuda_affine_64(const ek_cuda_linear *l)
{
    return l->units && l->group == 64 && l->a_group == 64 && l->biased && !l->f32_scales && !l->f16_scales;
}

bool ek_cuda_half_32(const ek_cuda_linear *l)
{
    return l->units && l->group == 32 && l->a_group == 32 && l->f16_scales && !l->biased && l->k % 64 == 0;
}

bool ek_cuda_own_scales(const ek_cuda_linear *l)
{
    if (!l->units || l->group != l->a_group || l->k > MAX_LEAVES * EK_KBLOCK_Q) return false;
    if (l->group == 16) return l->bits == 8 && l->f32_scales && !l->biased;
    /* what no type has: 4 bits without biases but in f16 */
    return l->group == 32 && (l->biased || l->f16_scales || l->bits == 8);
}

ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l)
{
    const char *const scales = l->f16_scales ? "h" : l->f32_scales ? "f" : "b";
    ek_cuda_kind k;
    if (ek_cuda_affine_64(l)) snprintf(k.name, sizeof k.name, "q%d", l->bits);
    else snprintf(k.name, sizeof k.name, "q%d%s%s_%d", l->bits, scales, l->biased ? "m" : "", l->group);
    return k;
}
