#include "ops/attn/arm/attn_arm.h"

#include "base/machine/cpu.h"

void ek_attn_init_arm(ek_attn_ops *ops, unsigned cpu)
{
    if (cpu & EK_CPU_DOTPROD) ek_attn_table_dotprod(ops);
    if (cpu & EK_CPU_I8MM) ek_attn_table_i8mm(ops);
}
