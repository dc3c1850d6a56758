/* Runs requests through an engine in a company of one's choice and writes down what came of
 * each: its tokens, and a hash of every row of logits it was shown. Two witnesses of the same
 * requests are equal, or the promise is broken. For `selftest` and tests/same. */
#ifndef EK_ENGINE_WITNESS_H
#define EK_ENGINE_WITNESS_H

#include "engine/engine.h"

typedef struct ek_ask {
    const int32_t *tokens; /* borrowed */
    int n_tokens, max_tokens;
    int told_from; /* the logits of prompt positions from here on are hashed as well */
    bool ignore_eos;
    ek_sampling sampling;
    int arrive; /* the step before which it is submitted */
    int cancel; /* the step before which it is cancelled; 0: never */
} ek_ask;

typedef struct ek_witness {
    ek_request_id id;
    ek_finish finish;
    int n_prompt, n_reply, most;
    int32_t *reply; /* [most] */
    uint64_t *row;  /* [n_prompt + most]: hash of the logits at a position; 0: not shown */
    size_t row_bytes;
    bool twice;     /* a position was shown twice with different bits */
    char text[256]; /* the sentence of a failure */
} ek_witness;

/* Fills out[0..n); the engine's thread must not have been started. An error of submit ends the
 * run. Every witness is finished afterwards; free each with ek_witness_fini. */
ek_err ek_witness_run(ek_engine *e, const ek_ask *ask, int n, ek_witness *out);
void ek_witness_fini(ek_witness *w);

/* Whether got is what want is. A cancelled one must be the beginning of it. where (at least
 * 128 bytes) says the first difference. */
bool ek_witness_same(const ek_witness *want, const ek_witness *got, char *where, size_t room);

#endif
