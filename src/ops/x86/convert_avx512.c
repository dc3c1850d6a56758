#include "ops/x86/vec_avx512.h"

#include "ops/x86/convert_vec.h"
#include "ops/x86/convert_x86.h"

void ek_convert_table_avx512(ek_convert_ops *ops)
{
    *ops = (ek_convert_ops){widen, narrow};
}
