/* A request put to the engine over the fake model, with the reply it must get and what came. */
#ifndef TESTS_ENGINE_ASKS_H
#define TESTS_ENGINE_ASKS_H

#include "engine/state.h"
#include "fake.h"

enum { MOST_PROMPT = 700, MOST_REPLY = 120, MOST_REQUESTS = 24 };

typedef struct ask {
    int32_t prompt[MOST_PROMPT];
    int n_prompt, most, told_from;
    ek_sampling sampling;
    ek_logit_bias bias;
    bool ignore_eos, broken; /* broken: its rows fail */
    int32_t want[MOST_REPLY];
    int n_want;
    /* what came */
    ek_request_id id;
    int32_t got[MOST_REPLY];
    int n_got, n_told, n_events_after;
    ek_finish finish;
    bool cancel;
    const fake *f;
    char text[256];
} ask;

extern ask asks[MOST_REQUESTS];

/* A request grown from a seed, with the reply that its tokens alone decide. */
void grow(ask *a, const fake *f, uint64_t seed, int most_prompt);
/* Events and prompt logits go to a, which checks each of them at once. */
ek_request_opts opts_of(ask *a);
/* After the last event: what came is what had to come. */
void check(const ask *a);

ek_engine *open_engine(fake *f, int full_pages, int sliding_pages, int requests, int chunk);
void submit(ek_engine *e, ask *a);
void step_until_idle(ek_engine *e);

#endif
