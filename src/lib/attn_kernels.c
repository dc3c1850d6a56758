#include "lib/attn_kernels.h"

#include "base/cpu.h"
#include "lib/attn_plain.h"
#include "lib/bf16.h"

static void scores(const lib_score_block *b)
{
    plain_scores(b);
}

static void values(const lib_value_run *r)
{
    plain_values(r);
}

static void scores_bf16(const lib_score_block *b)
{
    plain_scores_bf16(b);
}

static void round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    plain_round_bf16(e, p, from, to, l);
}

static void values_bf16(const lib_value_run *r)
{
    plain_values_bf16(r);
}

void lib_attn_init(lib_attn_ops *ops, unsigned cpu)
{
    ek_attn_ops attn;
    ek_attn_init(&attn, cpu);
    *ops = (lib_attn_ops){.scores = scores,
                          .weights = attn.weights,
                          .values = values,
                          .combine = attn.combine,
                          .scores_bf16 = scores_bf16,
                          .round_bf16 = round_bf16,
                          .values_bf16 = values_bf16};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) lib_attn_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) lib_attn_table_avx512(ops);
    if (cpu & EK_CPU_BF16) lib_attn_table_bf16(ops);
#endif
}
