/* Proposals of the next tokens from outside of the engine, as from another machine (open/remote.h). They come late,
 * or never, and may be anything: the model's own samples decide whether they stand, as with every draft.
 *
 * All functions are called on the engine's thread, and none but wait takes time. */
#ifndef EK_ENGINE_PROPOSER_H
#define EK_ENGINE_PROPOSER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sample/masks.h" /* EK_DRAFT_MAX */

/* What one answer is. */
typedef struct ek_proposal {
    int32_t *token; /* [EK_DRAFT_MAX], the caller's */
    int n;          /* 0: nothing came */
    double seconds; /* from the question to the answer; 0 without */
} ek_proposal;

typedef struct ek_proposer {
    void *arg;
    /* Which tokens follow tokens[0..n)? At most max. Copies. A request's tokens only grow, and it has one question at a
     * time. false: it is not asked now. salt: requests of unlike salts share nothing. */
    bool (*ask)(void *arg, uint64_t request, uint64_t salt, const int32_t *tokens, int n, int max);
    /* Whether the request's question was answered; a question is answered once. */
    bool (*answer)(void *arg, uint64_t request, ek_proposal *out);
    /* Until any answer comes, at most so many seconds. */
    void (*wait)(void *arg, double seconds);
    /* Nothing more is asked of the request; its answer is not read. */
    void (*forget)(void *arg, uint64_t request);
} ek_proposer;

#endif
