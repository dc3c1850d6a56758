#include "ops/linear/arm/linear_arm.h"

#include "base/machine/cpu.h"

void ek_linear_init_arm(ek_linear_ops *ops, unsigned cpu)
{
    if (!(cpu & EK_CPU_DOTPROD)) return;
    ops->quantize_row = ek_quantize_row_neon;
    ops->run[EK_W_Q4] = ops->run[EK_W_Q8] = cpu & EK_CPU_I8MM ? ek_linear_q_i8mm : ek_linear_q_dotprod;
}
