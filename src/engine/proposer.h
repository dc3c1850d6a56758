/* Proposals of next tokens from outside the engine, such as another machine (open/remote.h). They may be late, missing
 * or wrong: as with every draft, only tokens that the model samples are kept.
 *
 * The engine's thread calls all functions; only wait takes time. */
#ifndef EK_ENGINE_PROPOSER_H
#define EK_ENGINE_PROPOSER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sample/masks.h" /* EK_DRAFT_MAX */

/* One answer. */
typedef struct ek_proposal {
    int32_t *token; /* [EK_DRAFT_MAX], the caller's */
    int n;          /* 0: nothing came */
    double seconds; /* from question to answer; 0 if nothing came */
} ek_proposal;

typedef struct ek_proposer {
    void *arg;
    /* Asks for at most max tokens after tokens[0..n), which are copied. A request's tokens only grow, and it has one
     * question at a time. False: nothing was asked. salt: requests with different salts share nothing. */
    bool (*ask)(void *arg, uint64_t request, uint64_t salt, const int32_t *tokens, int n, int max);
    /* Takes the answer to the request's question, once; false: it has not come. */
    bool (*answer)(void *arg, uint64_t request, ek_proposal *out);
    /* Waits for any answer, at most this many seconds. */
    void (*wait)(void *arg, double seconds);
    /* The request asks nothing more, and its answer is not taken. */
    void (*forget)(void *arg, uint64_t request);
} ek_proposer;

#endif
