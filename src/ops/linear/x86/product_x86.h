/* The kernels of product.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_PRODUCT_X86_H
#define EK_OPS_X86_PRODUCT_X86_H

#include "ops/linear/product.h"

void ek_product_table_avx2(ek_product_ops *ops);
void ek_product_table_avx512(ek_product_ops *ops);

#endif
