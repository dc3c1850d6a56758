/* An independent float64 decoder, written for clarity: the reference of the forward pass. From the formulas of
 * transformers' modeling_gemma4.py. */
#ifndef EK_TESTS_MODEL_ORACLE_H
#define EK_TESTS_MODEL_ORACLE_H

#include "model/config/config.h"

/* The values of a tensor (Hugging Face name of a text-only checkpoint), borrowed; valid until oracle_forward returns.
 */
typedef const double *oracle_weights(void *arg, const char *name);

/* Writes logits[n][vocab_size], the logits of every position of a sequence of n tokens. */
void oracle_forward(const ek_config *c, oracle_weights *weights, void *arg, const int32_t *ids, int n, double *logits);

/* A draft of k tokens behind ids by a drafter d of c: the drafts' logits to logits[k][vocab_size], the tokens to
 * out[k]. The first token fed, the most likely one behind ids, goes to *bonus. ordering: the drafter's
 * masked_embedding.token_ordering, or NULL. back: rotated for position n - back. From transformers'
 * modeling_gemma4_assistant.py. */
typedef struct oracle_drafter {
    const ek_config *c;
    oracle_weights *weights;
    void *arg;
    const int32_t *ordering;
    int back;
} oracle_drafter;
void oracle_draft(const ek_config *c, oracle_weights *weights, void *arg, const oracle_drafter *d, const int32_t *ids,
                  int n, int k, int32_t *bonus, int32_t *out, double *logits);

#endif
