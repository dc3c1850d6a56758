/* What the engine runs on. ek_engine_open takes the model's forward pass; tests put their own
 * in its place, or wrap it, and set the pages that a budget would have found. */
#ifndef EK_ENGINE_BACKEND_H
#define EK_ENGINE_BACKEND_H

#include "engine/engine.h"

typedef struct ek_backend {
    const ek_config *config; /* vocab_size, max_position_embeddings, stop, suppress */
    const ek_kv_layout *layout;
    unsigned cpu;  /* for argmax and weights: speed only */
    ek_pool *pool; /* for sampling; NULL: the engine thread alone */
    void *arg;
    /* Called once with the largest step there will be; may be NULL. */
    ek_err (*open)(void *arg, int max_rows, int max_logits, int max_ctx);
    /* As ek_model_forward. */
    ek_err (*forward)(void *arg, const ek_row *rows, int n_rows, const ek_seq *seqs, int n_seqs, float *logits,
                      ptrdiff_t ld);
    void (*close)(void *arg);   /* may be NULL */
    int n_pages[EK_KIND_COUNT]; /* exactly these if any is set; the context shrinks to fit */
    bool poison;                /* fill pages with NaN whenever they change hands */
} ek_backend;

/* The forward pass of a model with scratch of its own; the engine's close frees it. */
ek_backend ek_backend_model(ek_model *m);

/* ek_engine_open on any backend. b is copied; what it points to is borrowed. b->close is
 * called by ek_engine_close, and when this fails. */
ek_err ek_engine_open_on(ek_engine **out, const ek_backend *b, const ek_engine_opts *opts);

#endif
