#include "ops/x86/vec_avx2.h"

#include "ops/x86/convert_vec.h"
#include "ops/x86/convert_x86.h"

void ek_convert_table_avx2(ek_convert_ops *ops)
{
    *ops = (ek_convert_ops){widen, narrow};
}
