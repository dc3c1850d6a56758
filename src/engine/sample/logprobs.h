/* Log-probabilities of a token: the log-softmax over the whole vocabulary of the model's own logits (soft-capped;
 * before temperature, penalties, bias and masks). A pure function of the row of logits. */
#ifndef EK_ENGINE_LOGPROBS_H
#define EK_ENGINE_LOGPROBS_H

#include <stdint.h>

enum { EK_LOGPROBS_MAX = 20 };

typedef struct ek_logprob {
    int32_t token;
    float logprob;
} ek_logprob;

typedef struct ek_logprobs {
    ek_logprob self; /* of the sampled token or the prompt's token */
    int n_top;
    ek_logprob top[EK_LOGPROBS_MAX]; /* the most likely tokens, descending; equal ones by ascending id */
} ek_logprobs;

/* logits: n_vocab finite or -inf values, not all -inf; 0 <= token < n_vocab; n_top <= EK_LOGPROBS_MAX and n_vocab. The
 * sum of exp(x - max) is in double, in order of ids. */
void ek_logprobs_of(ek_logprobs *out, const float *logits, int n_vocab, int32_t token, int n_top);

#endif
