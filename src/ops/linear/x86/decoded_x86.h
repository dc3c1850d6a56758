/* The kernels of product.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_DECODED_X86_H
#define EK_OPS_X86_DECODED_X86_H

#include "ops/linear/decoded.h"

void ek_decoded_table_avx2(ek_decoded_ops *ops);
void ek_decoded_table_avx512(ek_decoded_ops *ops);

#endif
