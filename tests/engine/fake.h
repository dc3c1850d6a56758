/* A model without floats: the state of a row is a hash of exactly the tokens it can read in
 * its pages, and its logits are a function of that hash. A lost, stale, foreign or misplaced
 * key gives other logits, so every mistake of bookkeeping shows; and the right answer can be
 * computed without engine, pages or steps. */
#ifndef TESTS_ENGINE_FAKE_H
#define TESTS_ENGINE_FAKE_H

#include "engine/executor.h"
#include "engine/sample/sampler.h"

enum { FAKE_VOCAB = 97, FAKE_STOP = 5, FAKE_FAILS = 96, FAKE_NAN = 95, FAKE_HIDDEN = 3 };

typedef struct fake {
    ek_config config;
    ek_kv_layout layout;
    int steps, max_rows, max_logits; /* observed */
    ek_executor_sizes sizes;         /* given to open */
    uint64_t rows;                   /* computed */
    int opened, closed;              /* times */
    ek_draft_mode draft;             /* of engines that asks.h opens; after fake_init: off */
    int draft_max;
    float row_cost, draft_cost;
    const int32_t *text; /* the token at each position, whatever the pages hold; NULL: they decide */
    double time;         /* of a made-up clock: of a step base_seconds, and row_seconds for each of its rows */
    double base_seconds, row_seconds;
    int nan_at;                                         /* rows at this position give NaN; 0: none */
    ek_err (*guess)(void *arg, ek_draft *draft, int n); /* the executor's drafter; NULL: none */
    struct beside *beside;         /* engines that asks.h opens compute beside the host by it; NULL: they do not */
    int start_pages;               /* of each start kind; 0: enough for all requests */
    uint64_t *page[EK_PAGE_KINDS]; /* [n_pages][64] */
    float *logits;                 /* [max_logits][FAKE_VOCAB] */
    ek_sampler *sampler;
} fake;

/* has_full, has_sliding: which kinds of layers own keys. */
void fake_init(fake *f, int window, bool has_full, bool has_sliding);
/* The first n_start entries of page tables are pages of the start kinds. */
void fake_set_start(fake *f, int n_start, int start_pages);
/* Pages of each kind; a prompt with token FAKE_FAILS makes its rows fail, FAKE_NAN gives NaN. Logits that the
 * engine did not ask for are NaN. */
ek_executor fake_executor(fake *f, int full_pages, int sliding_pages);

/* The made-up clock (ek_executor.now). */
double fake_now(void *f);

/* What a request is made of, for the answers below. */
typedef struct fake_prompt {
    const int32_t *tokens; /* the reply may follow */
    int n_prompt;
    const ek_prompt_span *span;
    int n_spans;
    bool masked; /* of the reply's tokens only those count that fake_allows */
} fake_prompt;

/* What the slot of position pos holds in pages of a kind, for tokens that are all plain text; before: the value of
 * pos - 1. */
uint64_t fake_value(const fake *f, ek_layer_kind kind, int32_t token, int pos, uint64_t before);
/* A grammar: whether token may follow last, the reply's latest token (-1: none yet). */
bool fake_allows(int32_t last, int32_t token);

/* The logits at position pos of the tokens. */
void fake_logits(const fake *f, const fake_prompt *p, int pos, float *logits);
/* The reply that a request must get: at most max tokens into out, ends early at stop ids unless
 * ignore_eos; returns their number. */
int fake_reply(const fake *f, const fake_prompt *p, const ek_sampling *o, bool ignore_eos, int max, int ctx,
               int32_t *out);

#endif
