#include "ops/attn/attn_near.h"

#include <math.h>

#include "base/machine/cpu.h"
#include "ops/math.h"
#include "ops/tree.h"

static float score(const float *q, const float *k, const float *rel, int n)
{
    float lane[EK_LANES] = {0};
    for (int d = 0; d < n; d++) lane[d % EK_LANES] = fmaf(q[d], k[d], lane[d % EK_LANES]);
    for (int d = 0; d < n; d++) lane[d % EK_LANES] = fmaf(q[d], rel[d], lane[d % EK_LANES]);
    return ek_add_lanes(lane);
}

static void weigh(float *s, int n, float cap)
{
    float max = -INFINITY, total = 0;
    for (int j = 0; j < n; j++) {
        s[j] = cap * ek_tanh(s[j] / cap);
        max = s[j] > max ? s[j] : max;
    }
    for (int j = 0; j < n; j++) {
        s[j] = ek_exp(s[j] - max);
        total += s[j];
    }
    for (int j = 0; j < n; j++) s[j] /= total;
}

static void near_scalar(const ek_near *a, float *o, const float *q, const float *k, const float *v, ptrdiff_t ld,
                        int pos)
{
    const int lo = pos < a->span ? 0 : pos - a->span + 1, n = pos - lo + 1, width = a->heads * a->head_dim;
    for (int h = 0; h < a->heads; h++) {
        const int at = h * a->head_dim;
        float s[EK_NEAR_MAX_SPAN];
        for (int j = 0; j < n; j++)
            s[j] = score(q + at, k + (lo + j) * ld + at, a->rel + (ptrdiff_t)(n - 1 - j) * width + at, a->head_dim);
        weigh(s, n, a->cap);
        for (int d = at; d < at + a->head_dim; d++) {
            float sum = 0;
            for (int j = 0; j < n; j++) sum = fmaf(s[j], v[(lo + j) * ld + d], sum);
            o[d] = sum;
        }
    }
}

ek_near_fn *ek_near_choose(unsigned cpu)
{
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX512) return ek_near_avx512;
    if (cpu & EK_CPU_AVX2) return ek_near_avx2;
#else
    (void)cpu;
#endif
    return near_scalar;
}
