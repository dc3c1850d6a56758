/* The kernels of convert.h for x86-64; each equals the scalar definition, but for which NaN a NaN of F16 gives. */
#ifndef EK_OPS_X86_CONVERT_X86_H
#define EK_OPS_X86_CONVERT_X86_H

#include "ops/convert.h"

void ek_convert_table_avx2(ek_convert_ops *ops);
void ek_convert_table_avx512(ek_convert_ops *ops);

#endif
