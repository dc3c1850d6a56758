#include "engine/weights.h"

#include "base/cpu.h"
#include "ops/math.h"
#include "ops/tree.h"

float ek_weight_sum_c(const float *z, int n, float top)
{
    ek_tree tree = {.count = 0};
    for (int at = 0; at < n; at += 256) {
        float lane[16] = {0};
        for (int i = at; i < n && i < at + 256; i++) lane[i % 16] += ek_exp(z[i] - top);
        for (int apart = 8; apart > 0; apart /= 2)
            for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
        ek_tree_push(&tree, lane[0]);
    }
    return ek_tree_sum(&tree);
}

ek_weight_sum_fn *ek_weight_sum_for(unsigned cpu)
{
    ek_weight_sum_fn *fn = ek_weight_sum_c;
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) fn = ek_weight_sum_avx2;
    if (cpu & EK_CPU_AVX512) fn = ek_weight_sum_avx512;
#endif
    (void)cpu;
    return fn;
}
