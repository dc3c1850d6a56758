/* Drafter models (gemma4_assistant): a few layers without keys and values of their own. They read those of the target,
 * the model that they draft for, and propose the next token. Proposals change no answer, because the target verifies
 * every token (engine/planning.h).
 *
 * One step (transformers, modeling_gemma4_assistant.py): u = the token's embedding in the target, scaled, concatenated
 * with the state; h = u pre_projection^T; the layers run, with queries rotated for one position during the whole draft;
 * the final norm gives y; the next state is y post_projection^T; the logits are those of y and the drafter's own
 * embedding: all of them, or (ordered embeddings) those of the tokens of the best centroids.
 *
 * One thread at a time. */
#ifndef EK_MODEL_DRAFTER_H
#define EK_MODEL_DRAFTER_H

#include "model/model.h"

typedef struct ek_drafter ek_drafter;

/* The position for which queries are rotated; n is the position of the first token fed. The position in training is not
 * published, and programs differ (docs/SPECULATION.md). */
typedef enum ek_rope_position { EK_ROPE_N, EK_ROPE_N_MINUS_1 } ek_rope_position;

/* Opens the drafter in dir. opts: the target's, whose KV formats count. EUNSUPPORTED if dir is not a drafter, EFORMAT
 * if it does not fit the target. The target must outlive the drafter. */
ek_err ek_drafter_open(ek_drafter **out, const char *dir, const ek_model *target, const ek_model_opts *opts);
/* A drafter with random weights, for tests. */
ek_err ek_drafter_synthetic(ek_drafter **out, const ek_config *config, uint64_t seed, const ek_model *target,
                            const ek_model_opts *opts);
void ek_drafter_close(ek_drafter *d);

void ek_drafter_set_position(ek_drafter *d, ek_rope_position position); /* EK_ROPE_N until it is called */
ek_rope_position ek_drafter_position(const ek_drafter *d);
const ek_model *ek_drafter_target(const ek_drafter *d);
ek_model *ek_drafter_model(const ek_drafter *d); /* its weights and shapes, for another device */
/* Time of a drafter's step per time of a target's step, of one row each: an estimate from the bytes that they read. */
double ek_drafter_cost(const ek_drafter *d);

/* Allocates memory for steps of at most max_rows rows over contexts of at most max_ctx tokens. Call once, before the
 * first step. */
ek_err ek_drafter_reserve(ek_drafter *d, int max_rows, int max_ctx);

/* One sequence of a step. */
typedef struct ek_drafter_row {
    const ek_seq *seq; /* the target's pages; positions [0, n) are written; of sliding layers only held pages */
    int n;             /* at least 1; the first token fed is at position n */
    int32_t token;     /* in: the token at n, then each drafted token; out: the next token */
    /* backbone_hidden_size floats. In, for the first token: the target's hidden state after the final norm at position
     * n - 1; then the state that the previous step wrote. Out: the next state. */
    float *state;
} ek_drafter_row;

/* A token's score in ordered embeddings: x times its embedding y, of n elements. The sum is made in 16 lanes, so that a
 * compiler may use vectors; then the remaining elements are added, then the lanes in order. */
float ek_drafter_score(const float *x, const float *y, int n);

/* Feeds each row its token. kv: the memory of the target's pages. logits: n rows of vocab_size floats, ld elements
 * apart, or NULL. Tokens outside the best centroids get the smallest of their logits minus 1, as in transformers.
 * EINVAL for an invalid row. */
ek_err ek_drafter_step(ek_drafter *d, const ek_kv_memory *kv, ek_drafter_row *row, int n, float *logits, ptrdiff_t ld);

#endif
