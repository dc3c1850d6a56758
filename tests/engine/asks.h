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
    ek_part part[MAX_SPANS]; /* then the spans are what the engine is to make of these */
    int n_parts;
    int32_t own_stop; /* of the request; 0: none */
    ek_sampling sampling;
    ek_logit_bias bias;
    bool ignore_eos, broken; /* broken: its rows fail */
    uint64_t salt;
    bool masked; /* by fake_allows */
    ek_mask mask;
    int32_t accepted; /* what the mask knows of the reply: its latest token, -1 at first */
    int32_t want[MAX_REPLY];
    int n_want;
    /* received */
    ek_request_id id;
    int32_t got[MAX_REPLY];
    int n_got, n_prompt_logits, n_cached;
    int n_image, n_sound, n_features, n_kept;
    ek_finish finish;
    bool cancel;
    ek_engine *engine; /* set by submit */
    int cancel_at;     /* the sink cancels it when it has so many tokens; 0: never */
    int n_drafted, n_accepted;
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
/* Called by open_engine on what it is about to open; NULL: not. */
extern void (*change_opts)(ek_executor *x, ek_engine_opts *o);
void submit(ek_engine *e, ask *a);
/* A drafter that knows the right replies (ask.want) and gives them, or something else: drafts of random length,
 * right up to a random token. Some of the wrong ones cannot be computed, give NaN or are stop ids. */
ek_err guess_at_random(void *arg, ek_draft *draft, int n);
/* The engine that the next drafts are for. */
extern const ek_engine *guess_for;
void step_until_idle(ek_engine *e);

/* Every invariant of pages, tables and the prefix index, between two steps: who holds what, what is idle, and that
 * each cached page of plain text holds what its tokens and all before them make. */
void check_cache(const ek_engine *e, const fake *f);

/* Steps until e is idle; the cache is checked meanwhile. */
void run_and_check(ek_engine *e, const fake *f);
/* A greedy request for max_tokens tokens; what the arrays hold is its prompt. */
void ask_greedy(ask *a, const fake *f, int n_prompt, int max_tokens);
/* Runs one request and checks its answer. Returns the positions that were cached. */
int ask_alone(ek_engine *e, ask *a);
/* n tokens of a prompt that follows from seed. */
void ask_fill(int32_t *token, int n, uint64_t seed);

#endif
