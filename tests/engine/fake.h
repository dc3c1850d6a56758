/* A model without floats: what a row "knows" is a hash of exactly the tokens it can read in
 * its pages, and its logits are a function of that hash. A lost, stale, foreign or misplaced
 * key gives other logits, so every mistake of bookkeeping shows; and the right answer can be
 * computed without engine, pages or steps. */
#ifndef TESTS_ENGINE_FAKE_H
#define TESTS_ENGINE_FAKE_H

#include "engine/backend.h"
#include "engine/sampler.h"

enum { FAKE_VOCAB = 97, FAKE_STOP = 5, FAKE_FAILS = 96, FAKE_NAN = 95 };

typedef struct fake {
    ek_config config;
    ek_kv_layout layout;
    int steps, most_rows, most_logits; /* seen */
} fake;

/* has_full, has_sliding: which kinds of layers own keys. */
void fake_init(fake *f, int window, bool has_full, bool has_sliding);
/* Pages of each kind; a prompt with token FAKE_FAILS makes its rows fail, FAKE_NAN gives NaN. */
ek_backend fake_backend(fake *f, int full_pages, int sliding_pages);

/* The logits after tokens[0..n). */
void fake_logits(const fake *f, const int32_t *tokens, int n, float *logits);
/* The reply that a request must get: n_reply tokens into out, ends early at stop ids unless
 * ignore_eos; returns their number. */
int fake_reply(const fake *f, const int32_t *prompt, int n_prompt, const ek_sampling *o, bool ignore_eos, int most,
               int ctx, int32_t *out);

#endif
