/* The attention kernels for 64-bit Arm; each equals the scalar definition bit for bit. Only attention in integers has
 * kernels; the definition computes the other formats. */
#ifndef EK_OPS_ARM_ATTN_ARM_H
#define EK_OPS_ARM_ATTN_ARM_H

#include "ops/attn/attn_kernels.h"

/* Each overwrites the slots that it has kernels for. */
void ek_attn_table_dotprod(ek_attn_ops *ops);
void ek_attn_table_i8mm(ek_attn_ops *ops);

#endif
