/* What an engine says of requests, and places for pages outside of it, for tests of what it keeps there. */
#ifndef EK_TESTS_ENGINE_HEARD_H
#define EK_TESTS_ENGINE_HEARD_H

#include <stdatomic.h>

#include "asks.h"

/* What the engine says of a request, whatever it is. */
typedef struct heard {
    int tokens, n_cached, events;
    int32_t first;
    ek_finish finish;
} heard;

/* A request for max greedy tokens behind n, of which h hears. */
ek_request_opts ask_for(const int32_t *tokens, int n, int max, heard *h);
void fill(int32_t *token, int n, uint64_t seed);
/* Steps until e has continued the first n_prompt tokens of text by n greedy ones, which are text's next. */
void continue_text(ek_engine *e, const int32_t *text, int n_prompt, int n);

/* An engine over b (NULL: none), whose share `audit` of hits is computed again. */
ek_engine *open_with(fake *f, const ek_store_backend *b, int requests, double audit);

/* A place that a test can hold shut, and that has nothing. */
typedef struct gate {
    atomic_bool shut;
    atomic_int writes, reads;
    ek_store_counts counts;
} gate;

ek_store_backend gate_of(gate *g);

#endif
