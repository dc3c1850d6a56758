/* The decoder once more, in float64 and without a thought for speed: what the program is
 * compared with. Written from the formulas of transformers' modeling_gemma4.py. */
#ifndef EK_TESTS_MODEL_ORACLE_H
#define EK_TESTS_MODEL_ORACLE_H

#include "model/config.h"

/* The values of a tensor (Hugging Face name of a text-only checkpoint), for ever borrowed. */
typedef const double *oracle_weights(void *arg, const char *name);

/* logits[n][vocab_size] of a whole sequence. */
void oracle_forward(const ek_config *c, oracle_weights *weights, void *arg, const int32_t *ids, int n, double *logits);

#endif
