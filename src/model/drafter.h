/* Drafter models (gemma4_assistant): some layers without keys and values of their own, which read those of the model
 * that they draft for, its target, and propose the token that follows. What they propose changes no answer: the target
 * verifies every token (engine/planning.h).
 *
 * One step (transformers, modeling_gemma4_assistant.py): u = embedding of the token in the target, scaled, and the
 * state, side by side; h = u pre_projection^T; the layers, whose queries are rotated for a position that stays the same
 * for the whole draft; the final norm gives y; the next state is y post_projection^T; the logits are those of y and the
 * drafter's own embedding, all of them or (ordered embeddings) those of the tokens of the best centroids.
 *
 * One thread at a time. */
#ifndef EK_MODEL_DRAFTER_H
#define EK_MODEL_DRAFTER_H

#include "model/model.h"

typedef struct ek_drafter ek_drafter;

/* The position that queries are rotated for, n being that of the first token fed: what drafters were trained with is
 * not published, and programs differ (docs/SPECULATION.md). */
typedef enum ek_rope_position { EK_ROPE_N, EK_ROPE_N_MINUS_1 } ek_rope_position;

/* opts: as for the target, whose KV formats count. EUNSUPPORTED if dir is no drafter, EFORMAT if it is not for target,
 * which outlives it. */
ek_err ek_drafter_open(ek_drafter **out, const char *dir, const ek_model *target, const ek_model_opts *opts);
/* Random weights, for tests. */
ek_err ek_drafter_synthetic(ek_drafter **out, const ek_config *config, uint64_t seed, const ek_model *target,
                            const ek_model_opts *opts);
void ek_drafter_close(ek_drafter *d);

void ek_drafter_set_position(ek_drafter *d, ek_rope_position position); /* first: EK_ROPE_N */
ek_rope_position ek_drafter_position(const ek_drafter *d);
const ek_model *ek_drafter_target(const ek_drafter *d);
ek_model *ek_drafter_model(const ek_drafter *d); /* its own weights and shapes, for another device */
/* The time of a step per time of a step of the target, of one row each: an estimate from the bytes they read. */
double ek_drafter_cost(const ek_drafter *d);

/* Memory for steps of at most max_rows rows over contexts of at most max_ctx tokens. Once, before the first step. */
ek_err ek_drafter_reserve(ek_drafter *d, int max_rows, int max_ctx);

/* One sequence in a step. */
typedef struct ek_drafter_row {
    const ek_seq *seq; /* the target's pages; positions [0, n) are written, in sliding layers only held pages */
    int n;             /* 1 or more; the first token fed is at position n */
    int32_t token;     /* in: the token at n, then those drafted; out: the next one */
    float *state;      /* backbone_hidden_size floats. In: for the first token the target's hidden state behind the
                          final norm at position n - 1, then what the step before left here; out: the next state */
} ek_drafter_row;

/* Feeds each row its token. kv: the memory of the target's pages. logits: n rows of vocab_size floats, ld elements
 * apart, or NULL: not wanted. Tokens outside the best centroids get the smallest of theirs minus 1, as in
 * transformers. EINVAL for a row that cannot be. */
ek_err ek_drafter_step(ek_drafter *d, const ek_kv_memory *kv, ek_drafter_row *row, int n, float *logits, ptrdiff_t ld);

#endif
