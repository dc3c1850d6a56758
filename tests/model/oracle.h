/* An independent float64 decoder, written for clarity: the reference of the forward pass. From the formulas of
 * transformers' modeling_gemma4.py. */
#ifndef EK_TESTS_MODEL_ORACLE_H
#define EK_TESTS_MODEL_ORACLE_H

#include "model/config.h"

/* The values of a tensor (Hugging Face name of a text-only checkpoint), borrowed; valid until oracle_forward returns.
 */
typedef const double *oracle_weights(void *arg, const char *name);

/* Writes logits[n][vocab_size], the logits of every position of a sequence of n tokens. */
void oracle_forward(const ek_config *c, oracle_weights *weights, void *arg, const int32_t *ids, int n, double *logits);

#endif
