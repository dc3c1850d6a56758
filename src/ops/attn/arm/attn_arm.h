/* The kernels of attention for 64-bit Arm; each equals the scalar definition bit for bit. Attention in integers only:
 * of the other formats the definition itself computes. */
#ifndef EK_OPS_ARM_ATTN_ARM_H
#define EK_OPS_ARM_ATTN_ARM_H

#include "ops/attn/attn_kernels.h"

/* Each overwrites the slots that it has kernels for. */
void ek_attn_table_dotprod(ek_attn_ops *ops);
void ek_attn_table_i8mm(ek_attn_ops *ops);

#endif
