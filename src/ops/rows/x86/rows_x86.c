#include "ops/rows/x86/rows_x86.h"

#include "base/machine/cpu.h"

void ek_row_init_x86(ek_row_ops *ops, unsigned cpu)
{
    if (cpu & EK_CPU_AVX2) ek_row_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_row_table_avx512(ops);
}
