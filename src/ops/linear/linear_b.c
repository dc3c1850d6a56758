/* The scalar definition of Form B, in the order of the contract (ops/linear/linear_b.h). */
#include "ops/linear/linear_b.h"

#include "base/machine/cpu.h"
#include <math.h>

#include "ops/bf16_step.h"
#include "ops/tree.h"

/* x gets x' in f32, in the order of k. */
static void row(void *to, float *sum, const float *from, int k, int group)
{
    float *x = to;
    for (int i = 0; i < k; i++) x[i] = ek_bf16_f32(ek_f32_bf16(from[i]));
    for (int g = 0; g < k / group; g++, x += group) {
        float lane[EK_LANES] = {0};
        for (int i = 0; i < group; i += 2) {
            float *to_lane = &lane[i / 2 % EK_LANES];
            *to_lane = ek_bf16_pair(*to_lane, x[i], 1, x[i + 1], 1);
        }
        sum[g] = ek_add_lanes(lane);
    }
}

static float code(const ek_linear *w, const uint8_t *group, int o, int k)
{
    return (float)ek_linear_code(w, group, o, k);
}

static float sum_group(const float *x, const ek_linear *w, const uint8_t *group, int o)
{
    float a = 0;
    for (int k = 0; k < w->group; k += 4)
        for (int i = k; i < k + 2; i++)
            a = ek_bf16_pair(a, x[i], code(w, group, o, i), x[i + 2], code(w, group, o, i + 2));
    return a;
}

static float output(const float *x, const float *sum, const ek_linear *w, const uint8_t *group, int o)
{
    const int groups = w->k / w->group, block = EK_KBLOCK / w->group;
    ek_tree t = {.count = 0};
    for (int g = 0; g < groups;) {
        float a = 0;
        for (int end = g + block < groups ? g + block : groups; g < end; g++, group += ek_linear_group_bytes(w)) {
            float s = ek_linear_scale(w, group, o), b = ek_linear_scale(w, group, EK_PANEL + o);
            a = fmaf(s, sum_group(x + g * w->group, w, group, o), a);
            a = fmaf(fmaf(s, (float)w->zero, b), sum[g], a);
        }
        ek_tree_push(&t, a);
    }
    return ek_tree_sum(&t);
}

static void panel(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, int n, const ek_linear *w, int p, bool fetch)
{
    (void)fetch;
    for (int r = 0; r < n; r++)
        for (int o = 0; o < EK_PANEL; o++)
            y[r * ldy + o] = output((const float *)(x->x + (r0 + r) * x->ldx), x->sum + (r0 + r) * x->lds, w,
                                    w->data + (size_t)p * w->panel_bytes, o);
}

void ek_linear_b_init(ek_linear_b_ops *ops, unsigned cpu)
{
    *ops = (ek_linear_b_ops){row, panel};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_linear_b_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_linear_b_table_avx512(ops);
    if (cpu & EK_CPU_BF16) ek_linear_b_table_bf16(ops);
#else
    (void)cpu;
#endif
}
