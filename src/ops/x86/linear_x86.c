#include "ops/x86/linear_x86.h"

void ek_linear_init_x86(ek_linear_ops *ops, unsigned cpu)
{
    (void)ops, (void)cpu;
}
