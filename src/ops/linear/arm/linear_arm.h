/* The kernels of linear.h for 64-bit Arm; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_ARM_LINEAR_ARM_H
#define EK_OPS_ARM_LINEAR_ARM_H

#include "ops/linear/linear.h"

ek_quantize_fn ek_quantize_row_neon;
ek_linear_fn ek_linear_q_dotprod, ek_linear_q_i8mm; /* Q4 and Q8 */

#endif
