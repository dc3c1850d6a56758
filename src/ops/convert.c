#include "ops/convert.h"

#include "base/machine/cpu.h"

static void widen(float *to, const void *from, ek_dtype t, int64_t n)
{
    const size_t size = t == EK_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i++) to[i] = ek_load_float((const uint8_t *)from + (size_t)i * size, t);
}

static void narrow(void *to, ek_dtype t, const float *from, int64_t n)
{
    const size_t size = t == EK_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i++) ek_store_float((uint8_t *)to + (size_t)i * size, t, from[i]);
}

void ek_convert_init(ek_convert_ops *ops, unsigned cpu)
{
    *ops = (ek_convert_ops){widen, narrow};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_convert_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_convert_table_avx512(ops);
#else
    (void)cpu;
#endif
}
