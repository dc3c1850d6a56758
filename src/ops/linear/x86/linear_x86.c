#include "ops/linear/x86/linear_x86.h"

#include "base/machine/cpu.h"

void ek_linear_init_x86(ek_linear_ops *ops, unsigned cpu)
{
    if (!(cpu & EK_CPU_AVX2)) return;
    *ops = (ek_linear_ops){ek_quantize_row_avx2,
                           {ek_linear_f32_avx2, ek_linear_f16_avx2, ek_linear_bf16_avx2, ek_linear_q4_avx2,
                            ek_linear_q8_avx2, ek_linear_planes_avx2}};
    if (cpu & EK_CPU_AVXVNNI) {
        ops->run[EK_W_Q4] = ek_linear_q4_avxvnni;
        ops->run[EK_W_Q8] = ek_linear_q8_avxvnni;
        ops->run[EK_W_PLANES] = ek_linear_planes_avxvnni;
    }
    if (!(cpu & EK_CPU_AVX512)) return;
    *ops = (ek_linear_ops){ek_quantize_row_avx512,
                           {ek_linear_f32_avx512, ek_linear_f16_avx512, ek_linear_bf16_avx512, ek_linear_q4_avx512,
                            ek_linear_q8_avx512, ek_linear_planes_avx512}};
    if (cpu & EK_CPU_ZEN4) {
        ops->run[EK_W_Q4] = ek_linear_q4_avx512_zen4;
        ops->run[EK_W_Q8] = ek_linear_q8_avx512_zen4;
        ops->run[EK_W_PLANES] = ek_linear_planes_avx512_zen4;
    }
    if (!(cpu & EK_CPU_AMX)) return;
    ops->run[EK_W_Q4] = ek_linear_q4_amx;
    ops->run[EK_W_Q8] = ek_linear_q8_amx;
    ops->run[EK_W_PLANES] = ek_linear_planes_amx;
}
