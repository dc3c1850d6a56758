/* The tensors of a small Gemma 4 checkpoint: names and shapes, listed independently of the program, and
 * weights that are a function of name and index. tools/golden/make_golden.py defines the same weights. */
#ifndef EK_TESTS_SUPPORT_HASHED_H
#define EK_TESTS_SUPPORT_HASHED_H

#include "model/config/config.h"

/* 64 bits that depend on name and index only. */
uint64_t hashed_bits(const char *name, uint64_t i);

/* Element i of tensor name: in [0.5, 1.5) for norms and scales, in [-0.5, 0.5) for others; a bfloat16 value. */
float hashed_weight(const char *name, uint64_t i);

typedef void tensor_fn(void *arg, const char *name, int n_dims, const int64_t *dim);

/* Calls fn for every tensor of c, with its Hugging Face name in a text-only checkpoint; of a drafter all but
 * masked_embedding.token_ordering. */
void each_tensor(const ek_config *c, tensor_fn *fn, void *arg);

#endif
