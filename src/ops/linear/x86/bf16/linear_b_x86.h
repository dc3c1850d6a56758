/* The kernels of linear_b.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_LINEAR_B_X86_H
#define EK_OPS_X86_LINEAR_B_X86_H

#include "ops/linear/linear_b.h"

void ek_linear_b_table_avx2(ek_linear_b_ops *ops);
void ek_linear_b_table_avx512(ek_linear_b_ops *ops);
void ek_linear_b_table_bf16(ek_linear_b_ops *ops); /* EK_CPU_BF16: by VDPBF16PS */

#endif
