#include "engine/sample/logprobs.h"

#include <math.h>

#include "ops/math.h"

/* Keeps top descending; a later equal value goes behind, so that the lower id stays first. */
static void insert(ek_logprobs *out, int n_top, int32_t token, float x)
{
    if (out->n_top == n_top) {
        if (n_top == 0 || x <= out->top[n_top - 1].logprob) return;
        out->n_top--;
    }
    int i = out->n_top++;
    for (; i > 0 && out->top[i - 1].logprob < x; i--) out->top[i] = out->top[i - 1];
    out->top[i] = (ek_logprob){token, x};
}

void ek_logprobs_of(ek_logprobs *out, const float *logits, int n_vocab, int32_t token, int n_top)
{
    float max = -INFINITY;
    double sum = 0;
    out->n_top = 0;
    for (int i = 0; i < n_vocab; i++) {
        if (logits[i] > max) max = logits[i];
        insert(out, n_top, i, logits[i]);
    }
    for (int i = 0; i < n_vocab; i++) sum += (double)ek_exp(logits[i] - max);
    double zero = (double)max + ek_ln64(sum);
    out->self = (ek_logprob){token, (float)((double)logits[token] - zero)};
    for (int i = 0; i < out->n_top; i++) out->top[i].logprob = (float)((double)out->top[i].logprob - zero);
}
