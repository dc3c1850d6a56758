/* The kernels of rows.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_ROWS_X86_H
#define EK_OPS_X86_ROWS_X86_H

#include "ops/rows/rows.h"

void ek_row_table_avx2(ek_row_ops *ops);
void ek_row_table_avx512(ek_row_ops *ops);

#endif
