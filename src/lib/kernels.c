#include "lib/kernels.h"

#include <pthread.h>

#include "base/machine/cpu.h"

enum {
    FLAGS = EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16 | EK_CPU_AMX | EK_CPU_AVXVNNI | EK_CPU_ZEN4 | EK_CPU_DOTPROD |
            EK_CPU_I8MM
};
static lib_kernels table[FLAGS + 1];

/* Only flags that this machine has: the functions that fill in kernels are compiled for their instruction set too. */
static void fill_table(void)
{
    const unsigned here = ek_cpu_detect();
    for (unsigned cpu = 0; cpu <= FLAGS; cpu++) {
        lib_kernels *k = &table[cpu];
        if (cpu & ~here) continue;
        ek_convert_init(&k->convert, cpu);
        ek_decoded_init(&k->product, cpu);
        ek_linear_init(&k->linear, cpu);
        ek_linear_b_init(&k->linear_b, cpu);
        ek_row_init(&k->rows, cpu);
        ek_attn_rows_init(&k->attn, cpu);
    }
}

const lib_kernels *lib_kernels_of(unsigned cpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table[cpu & FLAGS];
}
