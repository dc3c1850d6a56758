/* The rotation R and the codes of keys, values and queries in the formats of the rule EK_KV_ROTATED.
 * ops/attn/attn_int.h defines them, with the attention that reads them. */
#ifndef EK_OPS_KV_ROTATE_H
#define EK_OPS_KV_ROTATE_H

#include "ops/kv/kv_codec.h"

/* Writes the codes of R x to code and returns their scale; x becomes R x. */
float ek_attn_encode(float *x, int dim, int max_code, int16_t *code);
/* x = R x / n, for a result. */
void ek_attn_rotate_back(float *x, int dim);

/* n, the dims of a block of R. */
static inline int ek_attn_block(int dim)
{
    return dim & -dim;
}

#endif
