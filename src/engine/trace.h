/* Traces: requests run through an engine together, and for each its tokens and a hash of every row of
 * logits that it received. If two traces of the same request differ, the promise is broken. For
 * `selftest` and tests/same. */
#ifndef EK_ENGINE_TRACE_H
#define EK_ENGINE_TRACE_H

#include "engine/engine.h"

typedef struct ek_ask {
    const int32_t *tokens; /* borrowed */
    int n_tokens, max_tokens;
    int n_replied;          /* ek_request_opts.n_replied */
    int prompt_logits_from; /* the logits of prompt positions from here on are hashed as well */
    bool ignore_eos;
    const ek_prompt_span *span; /* borrowed */
    int n_spans;
    const ek_part *part; /* borrowed */
    int n_parts;
    ek_sampling sampling;
    int arrive; /* the step before which it is submitted */
    int cancel; /* the step before which it is cancelled; 0: never */
    uint64_t cache_salt, client;
    const ek_mask *mask; /* borrowed; its state is this run's. NULL: every token is allowed */
    bool digests;        /* of the reply the rows' digests are asked for and no rows, so that steps may begin ahead */
} ek_ask;

typedef struct ek_trace {
    ek_request_id id;
    ek_finish finish;
    int n_prompt, n_reply, max_tokens;
    int n_given;            /* tokens it began with: the prompt, and the reply that went on */
    int n_cached;           /* of the prompt */
    int n_features;         /* of the prompt's pictures and sounds: tokens whose features were there */
    int prompt_logits_from; /* positions before it have no row */
    int32_t *reply;         /* [max_tokens] */
    uint64_t *row;          /* [n_prompt + max_tokens]: hash of the logits at a position; 0: not received */
    uint64_t *digest;       /* [max_tokens]: of the row that each token was drawn from */
    bool digests;           /* of the reply there are no rows */
    size_t row_bytes;
    bool twice;        /* a position was received twice with different bits */
    bool wrong_digest; /* the digest of a row was not that of its logits */
    char text[256];    /* the sentence of a failure */
} ek_trace;

/* Fills out[0..n); the engine's thread must not have been started. An error of submit ends the
 * run. Every trace is finished afterwards; free each with ek_trace_fini. */
ek_err ek_trace_run(ek_engine *e, const ek_ask *ask, int n, ek_trace *out);
void ek_trace_fini(ek_trace *t);

/* Whether got equals want, in all that got asked for; a cancelled one must be a prefix of it. where (room bytes, at
 * least 128) gets the first difference. */
bool ek_trace_same(const ek_trace *want, const ek_trace *got, char *where, size_t room);

#endif
