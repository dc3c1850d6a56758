/* Row operators on one thread, in each instruction set: the best of many short rounds, because
 * these operators finish in microseconds. Usage: bench_rows */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "ops/rows/rows.h"

enum { VOCAB = 262144, ROUNDS = 200 };

typedef struct bench {
    const char *name;
    int n;
    double values; /* float32 read and written per element */
} bench;

static const bench benches[] = {
    {"rms_norm", 1536, 3}, {"rms_norm", 5376, 3},  {"add", 1536, 3},     {"gelu_mul", 6144, 3},
    {"rope", 256, 3},      {"soft_cap", VOCAB, 2}, {"argmax", VOCAB, 1}, {"axpy", 2816, 3},
};

static volatile int sink;

static void once(const ek_row_ops *ops, int which, float *x, float *y, float *z)
{
    int n = benches[which].n;
    switch (which) {
    case 0:
    case 1: ops->rms_norm(y, x, z, n, 1e-6f); break;
    case 2: ops->add(y, x, n); break;
    case 3: ops->gelu_mul(y, x, z, n); break;
    case 4: ops->rope(y, x, z, n / 2, n / 2); break;
    case 5: ops->soft_cap(y, 30.0f, n); break;
    case 6: sink = ops->argmax(x, n); break;
    default: ops->axpy(y, 0.5f, x, n);
    }
}

int main(void)
{
    float *x = ek_alloc_big(sizeof *x * VOCAB), *y = ek_alloc_big(sizeof *y * VOCAB),
          *z = ek_alloc_big(sizeof *z * VOCAB);
    printf("%s, one thread, microseconds\n%-16s", ek_cpu_model(), "");
    for (const char *const *isa = ek_cpu_isas(); *isa; isa++) printf("%10s", *isa);
    printf("\n");
    for (int b = 0; b < (int)(sizeof benches / sizeof *benches); b++) {
        printf("%-9s%7d", benches[b].name, benches[b].n);
        double best = 0;
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
            unsigned cpu = 0;
            ek_row_ops ops;
            if (ek_cpu_mask(*isa, &cpu) != EK_OK) return 1;
            ek_row_init(&ops, cpu);
            best = 1;
            for (int i = 0; i < VOCAB; i++)
                x[i] = y[i] = 8 * (float)(int32_t)ek_mix64((uint64_t)i) * 0x1p-31f, z[i] = 0.5f;
            for (int round = 0; round < ROUNDS; round++) {
                int repeat = benches[b].n < 10000 ? 20 : 1;
                double start = ek_now();
                for (int i = 0; i < repeat; i++) once(&ops, b, x, y, z);
                double seconds = (ek_now() - start) / repeat;
                best = seconds < best ? seconds : best;
            }
            printf("%10.2f", 1e6 * best);
        }
        printf("   %6.1f GB/s\n", benches[b].values * 4 * benches[b].n / best / 1e9);
    }
    return 0;
}
