/* Traces: requests that run through an engine together, and for each its tokens and a hash of every received row of
 * logits. If two traces of the same request differ, the promise is broken. For `selftest` and tests/same. */
#ifndef EK_ENGINE_TRACE_H
#define EK_ENGINE_TRACE_H

#include "engine/engine.h"

typedef struct ek_ask {
    const int32_t *tokens; /* borrowed */
    int n_tokens, max_tokens;
    int n_replied;          /* ek_request_opts.n_replied */
    int prompt_logits_from; /* logits of prompt positions from here on are hashed too */
    bool ignore_eos;
    const ek_prompt_span *span; /* borrowed */
    int n_spans;
    const ek_part *part; /* borrowed */
    int n_parts;
    ek_sampling sampling;
    int arrive; /* it is submitted before this step */
    int cancel; /* it is cancelled before this step; 0: never */
    uint64_t cache_salt, client;
    const ek_mask *mask; /* borrowed; its state belongs to this run. NULL: every token is allowed */
    bool digests;        /* only digests of the reply's rows are requested, so that steps may begin ahead */
} ek_ask;

typedef struct ek_trace {
    ek_request_id id;
    ek_finish finish;
    int n_prompt, n_reply, max_tokens;
    int n_given;            /* given tokens: the prompt, and the continued reply */
    int n_cached;           /* prompt tokens */
    int n_features;         /* prompt tokens of pictures and sounds whose features existed */
    int prompt_logits_from; /* earlier positions have no row */
    int32_t *reply;         /* [max_tokens] */
    uint64_t *row;          /* [n_prompt + max_tokens]: hash of the logits at a position; 0: not received */
    uint64_t *digest;       /* [max_tokens]: digest of the row that each token was drawn from */
    bool digests;           /* the reply has no rows */
    size_t row_bytes;
    bool twice;        /* a position arrived twice with different bits */
    bool wrong_digest; /* a row's digest differed from that of its logits */
    char text[256];    /* the sentence of an error */
} ek_trace;

/* Runs ask[0..n) and fills out[0..n); the engine's thread must not run. An error of submit ends the run. Free each
 * trace with ek_trace_fini in any case. */
ek_err ek_trace_run(ek_engine *e, const ek_ask *ask, int n, ek_trace *out);
void ek_trace_fini(ek_trace *t);

/* Whether everything that `got` requested equals `want`; if `got` was cancelled, it must be a beginning of `want`.
 * where (room bytes, at least 128) gets the first difference. */
bool ek_trace_same(const ek_trace *want, const ek_trace *got, char *where, size_t room);

#endif
