/* From a row of logits to a token: a pure function of the row, the request's own tokens and its options. There is no
 * stream of random numbers: noise is keyed by (seed, position of the sampled token, token id), so batching, preemption
 * and resumption cannot shift a draw. Definition: docs/NUMERICS.md 7. */
#ifndef EK_ENGINE_SAMPLER_H
#define EK_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Lower temperatures are greedy, because the division would leave the range of float32. */
#define EK_MIN_TEMPERATURE 1e-5f

/* The purpose is part of the key of the noise: two purposes never share noise. */
enum { EK_NOISE_SAMPLE = 0 };

typedef struct ek_logit_bias {
    int32_t token;
    float bias; /* -1000..1000, added to the logit before penalties; -inf masks */
} ek_logit_bias;

typedef struct ek_sampling {
    float temperature;                         /* below 1e-5: greedy */
    int top_k;                                 /* 0: off */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    float repetition_penalty;                  /* 1: off; over prompt and reply */
    float presence_penalty, frequency_penalty; /* 0: off; over the reply */
    uint64_t seed;
    const ek_logit_bias *bias; /* ek_engine_submit copies it */
    int n_bias;
} ek_sampling;

ek_sampling ek_sampling_greedy(void);

/* Working memory of one sampling thread; a draw allocates nothing. */
typedef struct ek_sampler ek_sampler;
void ek_sampler_open(ek_sampler **out, unsigned cpu, int vocab_size, const int32_t *suppress, int n_suppress);
void ek_sampler_close(ek_sampler *s);

/* Checks the range of every option; EINVAL names the option, its value and the range. */
ek_err ek_sampling_check(const ek_sampling *o, int vocab_size);

/* Whether draws depend on earlier tokens. */
static inline bool ek_sampling_has_penalties(const ek_sampling *o)
{
    return o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
}

/* The token at position n_tokens, after tokens[0..n_tokens); the first n_prompt of these are the prompt. logits:
 * vocab_size, finite. allowed: a row of ek_mask, or NULL for all. -1 if every token is masked. */
int32_t ek_sample(ek_sampler *s, const float *logits, const uint64_t *allowed, const ek_sampling *o,
                  const int32_t *tokens, int n_prompt, int n_tokens);

/* A digest of every bit of a row of logits: the sum modulo 2^64 over tokens i of ek_mix64(i * 2^32 + the bits of
 * logits[i]), in any order. Rows that differ in one logit have different digests; other different rows agree with
 * probability 2^-64. */
uint64_t ek_logits_digest(const float *logits, int vocab_size);

/* Whether all numbers are finite. */
bool ek_logits_finite(const float *logits, int vocab_size);

/* Log-probabilities of a token: the log-softmax over the whole vocabulary of the model's own logits (soft-capped;
 * before temperature, penalties, bias and masks). */
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
