#include "ops/x86/vec_avx2.h"

#include "ops/rows/x86/rows_vec.h"
#include "ops/rows/x86/rows_x86.h"

void ek_row_table_avx2(ek_row_ops *ops)
{
    fill_table(ops);
}
