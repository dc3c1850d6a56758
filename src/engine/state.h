/* The inside of the engine, shared by the files of src/engine. Engine thread only, except
 * what stands under the lock. */
#ifndef EK_ENGINE_STATE_H
#define EK_ENGINE_STATE_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/request.h"
#include "engine/sampler.h"

/* What one request does in a step: rows [row, row + n_rows) of the plan, whose wanted logits
 * are rows [logit, logit + n_logits) of the engine's buffer. */
typedef struct ek_part {
    ek_request *req;
    int row, n_rows, logit, n_logits;
    bool samples; /* the last of its logits gives a token */
    int32_t token;
    ek_err err; /* of its rows; text is the sentence */
    char text[256];
} ek_part;

/* Who shares a step: parts in ascending request id, rows of a part in ascending position.
 * Part i is sequence i. */
typedef struct ek_plan {
    int n_parts, n_rows, n_logits;
    ek_part *part;
    ek_row *row;
    ek_seq *seq;
} ek_plan;

struct ek_engine {
    ek_backend on;
    ek_model *model; /* NULL in tests that bring their own backend */
    ek_engine_opts opts;
    ek_request_rules rules;
    int max_rows; /* of a step: chunk + max_requests */
    int max_told; /* prompt rows of a step that want logits */
    ek_pages *pages;
    ek_sampler **sampler; /* one a thread of the pool */
    int n_samplers;
    float *logits; /* max_told + max_requests rows */
    ptrdiff_t ld;
    size_t logits_bytes;

    ek_request **running; /* ascending id */
    int n_running;
    ek_request *waiting; /* ascending id */
    ek_plan plan;

    pthread_t thread;
    bool has_thread;

    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* there is something for the engine thread to look at */
    bool poked;
    bool closed; /* no more submits */
    ek_request *inbox, **inbox_end;
    ek_request *live; /* every request that is not finished */
    int n_live;
    ek_request_id last_id;
    ek_engine_stats stats;
};

/* plan.c: gives slots and pages to the waiting in order of arrival; then lists the rows of the
 * next step, preempting the youngest where pages run out. */
void ek_plan_admit(ek_engine *e);
void ek_plan_make(ek_engine *e);

/* step.c: ends a request, in whatever state, with a last event; frees it. */
void ek_engine_finish(ek_engine *e, ek_request *r, ek_finish finish, ek_err err, const char *text);
/* Takes r out of the running or the waiting. */
void ek_engine_remove(ek_engine *e, ek_request *r);
void ek_engine_wait_again(ek_engine *e, ek_request *r); /* into the waiting, by id */

#endif
