/* A request to an engine over the fake model, with the expected reply and the received one. */
#ifndef TESTS_ENGINE_ASKS_H
#define TESTS_ENGINE_ASKS_H

#include "engine/state.h"
#include "fake.h"

enum { MAX_PROMPT = 700, MAX_REPLY = 120, MAX_REQUESTS = 24, MAX_SPANS = 4 };

typedef struct ask {
    int32_t prompt[MAX_PROMPT];
    int n_prompt, max_tokens, prompt_logits_from;
    ek_prompt_span span[MAX_SPANS];
    int n_spans;
    int32_t own_stop; /* of the request; 0: none */
    ek_sampling sampling;
    ek_logit_bias bias;
    bool ignore_eos, broken; /* broken: its rows fail */
    uint64_t salt;
    int32_t want[MAX_REPLY];
    int n_want;
    /* received */
    ek_request_id id;
    int32_t got[MAX_REPLY];
    int n_got, n_prompt_logits, n_cached;
    ek_finish finish;
    bool cancel;
    const fake *f;
    char text[256];
} ask;

extern ask asks[MAX_REQUESTS];

/* A request grown from a seed, with the reply that its tokens alone decide. */
void grow(ask *a, const fake *f, uint64_t seed, int max_prompt);
/* Cuts random spans out of the prompt, some with embeddings, some that may not be cut (longest: rows of these). */
void grow_spans(ask *a, uint64_t seed, int longest);
/* Computes the expected reply again, after the prompt or the options were changed. */
void set_want(ask *a, int ctx);
/* Events and prompt logits go to a, which checks each of them at once. */
ek_request_opts opts_of(ask *a);
/* After the last event: the received reply is the expected one. */
void check(const ask *a);

ek_engine *open_engine(fake *f, int full_pages, int sliding_pages, int requests, int chunk);
void submit(ek_engine *e, ask *a);
void step_until_idle(ek_engine *e);

/* Every invariant of pages, tables and the prefix index, between two steps: who holds what, what is idle, and that
 * each cached page of plain text holds what its tokens and all before them make. */
void check_cache(const ek_engine *e, const fake *f);

#endif
