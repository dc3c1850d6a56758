/* Whether two checkpoints are one model. */
#ifndef EK_TESTS_SUPPORT_SAME_MODEL_H
#define EK_TESTS_SUPPORT_SAME_MODEL_H

#include "model/config/config.h"

/* Fails the test where two configurations describe different models. */
void same_config(const ek_config *a, const ek_config *b);
/* Fails it where the checkpoints at two paths differ in their configuration or in the value of a weight. ids: room for
 * the token ordering that b has, of a drafter with centroids; else NULL. */
void same_model(const char *a, const char *b, int32_t *ids);

#endif
