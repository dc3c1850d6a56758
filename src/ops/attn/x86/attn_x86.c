#include "ops/attn/x86/attn_x86.h"

#include "base/machine/cpu.h"

void ek_attn_init_x86(ek_attn_ops *ops, unsigned cpu)
{
    if (cpu & EK_CPU_AVX2) ek_attn_table_avx2(ops);
    if (cpu & EK_CPU_AVXVNNI) ek_attn_table_avxvnni(ops);
    if (cpu & EK_CPU_AVX512) ek_attn_table_avx512(ops);
    if (cpu & EK_CPU_ZEN4) ek_attn_table_zen4(ops);
    if (cpu & EK_CPU_AMX) ek_attn_table_amx(ops);
}
