/* The forward pass and the oracle on the same weights and the same tokens. */
#ifndef EK_TESTS_MODEL_AGAINST_H
#define EK_TESTS_MODEL_AGAINST_H

#include "../support/divergence.h"
#include "../support/mlx.h"
#include "model/model.h"

typedef struct against {
    double worst;   /* the largest difference of a logit; infinite if one is NaN */
    double largest; /* the largest logit of the oracle, without its sign */
    divergence kl;
} against;

/* Writes a checkpoint of hashed weights (bf16, or quantised as mlx says), loads it with opts, and compares the
 * logits of a hashed prompt of n_tokens tokens with the oracle's in float64. Failure to load fails the test. */
against against_oracle(const ek_config *c, const mlx_opts *mlx, const ek_model_opts *opts, int n_tokens);

#endif
