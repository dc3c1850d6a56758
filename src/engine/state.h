/* The state of the engine, shared by the files of src/engine. Engine thread only, except
 * the members under the lock. */
#ifndef EK_ENGINE_STATE_H
#define EK_ENGINE_STATE_H

#include <pthread.h>

#include "base/fair_queue.h"
#include "engine/executor.h"
#include "engine/gap.h"
#include "engine/media/encoder.h"
#include "engine/request.h"

/* What one request does in a step: rows [row, row + n_rows) of the plan, of which those that want logits
 * give rows [logits, logits + n_logits) of the executor's buffer, and draws [draw, draw + n_draws). The last n_draft
 * of its rows are drafted tokens, of which the step accepts the first n_accepted. */
typedef struct ek_scheduled {
    ek_request *req; /* NULL: it left, and nobody reads what its row gives (ahead.h) */
    int row, n_rows, logits, n_logits, draw, n_draws, n_draft, n_accepted;
    int n_proposed; /* by a drafter: n_draft before a mask cut it, or 0 */
    bool remote;    /* the draft came from outside */
    ek_err err;     /* of its rows; text is the sentence */
    char text[256];
} ek_scheduled;

/* The plan of a step: requests in ascending id, rows of a request in ascending position. Request i is
 * sequence i. */
typedef struct ek_plan {
    int n_scheduled, n_rows, n_logits, n_draws;
    ek_scheduled *scheduled;
    ek_row *row;
    ek_seq *seq;
    ek_draw *draw;
    bool *shown;       /* [n_logits] */
    bool *digested;    /* [n_logits] */
    uint64_t *allowed; /* a row of ek_mask_words per draw */
    ek_masks *masks;
    int *follows;     /* [n_rows] of a step ahead */
    bool draws_later; /* of a step ahead: some draws need the tokens in front (ek_executor.draw) */
    ek_draft *draft;
    int32_t (*draft_token)[EK_DRAFT_MAX]; /* a drafter's tokens, per scheduled request */
} ek_plan;

/* Rows of prompts that a request may have in a step (turns.h). */
typedef struct ek_share {
    uint64_t client;
    int left, max;     /* of its prompt: to compute, at most in the step */
    int64_t of_client; /* left in all prompts of its client but the step's oldest one */
} ek_share;

/* A prefix that is computed again, or is to be: n > 0. */
typedef struct ek_audit {
    int32_t *tokens; /* NULL: no audits */
    int n;
    uint64_t salt, hits;
    ek_page_table table;
    uint8_t *bytes[EK_KIND_COUNT][2];
} ek_audit;

/* What is being encoded. */
typedef struct ek_encoding {
    ek_feature *feature; /* NULL: nothing */
    ek_media *media;     /* one reference */
    double since;        /* ek_now() */
} ek_encoding;

/* What steps take. */
typedef struct ek_timing {
    ek_gap gap;
    double ended;   /* when the last step did, by its clock */
    double encoded; /* seconds that encoding has had of the next step's time */
} ek_timing;

struct ek_engine {
    ek_executor on;
    ek_model *model; /* NULL in tests that bring their own executor */
    ek_engine_opts opts;
    ek_request_rules rules;
    ek_executor_sizes sizes; /* max_rows: chunk + max_requests + max_draft_rows; max_logits: prompt
                                logits or drafts + max_requests */
    int max_draft_rows;      /* of a step; 0: no drafts */
    ek_pages *pages;
    ek_prefix *prefix; /* NULL: no cache */
    ek_audit audit;
    ek_features features;
    ek_encoding encoding;
    ek_pace pace;                            /* of its slices; and whether reading pages pays */
    ek_timing timing;                        /* of its steps */
    struct {                                 /* of the proposer (proposals.c) */
        ek_proposer proposer;                /* what opts.proposer points to */
        double latency;                      /* seconds from a question to its answer: a moving average; 0: not known */
        uint64_t questions, answers, waited; /* of these, those with tokens; microseconds */
    } remote;
    uint64_t n_encodings;       /* begun */
    bool unnamed;               /* a request of the wait queue may have parts that were not named yet */
    ek_store *store;            /* its pages on disk; NULL: none */
    ek_request_id load_for;     /* the request whose pages are being read; 0: none */
    double load_since;          /* when the last one came */
    bool any_uncached;          /* of the wait queue */
    struct ek_leaving *leaving; /* requests whose last event waits (shelf.h) */
    double load_before;         /* seconds that its loads before this one took (shelf.c, go_back) */
    double lost, lost_at;       /* seconds that reading took beyond computing, at that time */
    double rest_said;           /* when the log said so */
    bool rests;                 /* nothing is read until some of it has faded */
    double forget_by;           /* until then a wrong page waits for a slot to be forgotten by */
    int load_taken;             /* pages of it so far */
    int load_low;               /* sliding pages from here on were asked for; */
    int load_span;              /* that many at last */
    int n_ready[EK_PAGE_KINDS]; /* pages of which memory is ready, or about to be */
    uint8_t *load_want[EK_KIND_COUNT];

    ek_request **running; /* ascending id */
    int n_running;
    ek_request **slot;   /* the running request of each slot, or NULL */
    ek_request *waiting; /* in the order of their turns: ascending place, then id */
    ek_plan plan;
    ek_plan ahead;       /* of the step behind it, if n_scheduled > 0: begun */
    uint64_t n_steps;    /* begun */
    uint64_t admissions; /* rounds of admitting (plan.h) */
    double turn_seconds; /* that a request runs before it gives way to a client that runs none */
    bool new_was_last;   /* what was admitted last had not run before */
    bool turn_due;       /* in the last round one waited for another to give way */
    ek_share *share;     /* [max_requests] */

    void (*on_results)(void *arg, bool begin); /* or NULL */
    void *on_results_arg;

    pthread_t thread;
    bool has_thread;

    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the engine thread has work */
    bool poked;
    bool closed;      /* no more submits */
    char broken[256]; /* why the executor can compute nothing any more; "": it can. Written by the engine's thread */
    ek_request *inbox, **inbox_end;
    ek_fair_queue queue_order; /* of all requests that are not finished */
    ek_request *live;          /* every request that is not finished */
    int n_live;
    ek_request_id last_id;
    ek_engine_stats stats;
};

/* Notes a broken executor, if it is. */
void ek_engine_note_broken(ek_engine *e);
/* Seconds by the clock that steps are timed by. */
double ek_engine_now(const ek_engine *e);
/* Whether a running request waits for its next token; not who starts over, after a longer wait. */
bool ek_engine_replies(const ek_engine *e);
/* Rows of prompts that a step may have: the chunk, or beside replies (`replying`) what max_gap allows, of which `spent`
 * seconds have gone by. */
int ek_engine_prompt_rows(const ek_engine *e, bool replying, double spent);
/* Of a step's `chunk` rows of prompts those of the oldest prompt, where the others have so many left: what they leave,
 * at least half. A short prompt then does not stand behind a long one to its end, which takes at most twice as long for
 * it.
 */
int ek_engine_oldest_share(int chunk, int64_t others);
/* Divides a step's `chunk` rows of prompts: at least half for the oldest prompt, or what the others leave; the rest
 * goes to the clients, those whose prompts have the fewest rows left first, so that who asks for little is not behind
 * who asks for much. Of few rows, where the others want more than half, all go to the oldest first in one step and to
 * the others first in the next (`turn`, which counts steps): a prompt costs a step some time for itself, whatever its
 * rows are. share[0..n): of requests in ascending id, left 0 where there is no prompt; fills in max. */
void ek_engine_divide(ek_share *share, int n, int chunk, uint64_t turn);
/* The rows of allowed tokens of the draws of s, which are draw[first] and those behind it, or NULL: there are none. Of
 * a draft the part is left that is allowed. all[i]: of draw i every token is. They are made from ek_masks_begin on. */
const uint64_t *ek_engine_ask_mask(ek_engine *e, ek_scheduled *s, int first, bool all[EK_DRAFT_MAX + 1]);

#endif
