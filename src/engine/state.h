/* The state of the engine, shared by the files of src/engine. Engine thread only, except the members under the lock. */
#ifndef EK_ENGINE_STATE_H
#define EK_ENGINE_STATE_H

#include <pthread.h>

#include "base/fair_queue.h"
#include "engine/executor.h"
#include "engine/gap.h"
#include "engine/media/encoder.h"
#include "engine/request.h"

/* The part of one request in a step: rows [row, row + n_rows) of the plan; rows [logits, logits + n_logits) of the
 * executor's buffer, for rows with logits; draws [draw, draw + n_draws). The last n_draft rows are drafted tokens, and
 * the step accepts the first n_accepted of these. */
typedef struct ek_scheduled {
    ek_request *req; /* NULL: the request left, and its rows' results are not read (ahead.c) */
    int row, n_rows, logits, n_logits, draw, n_draws, n_draft, n_accepted;
    int n_proposed; /* tokens proposed by a drafter, before a mask shortened n_draft; or 0 */
    bool remote;    /* the draft came from another server */
    ek_err err;     /* the error of its rows; text is its sentence */
    char text[256];
} ek_scheduled;

/* The plan of a step: requests in ascending id, rows of a request in ascending position. Request i is sequence i. */
typedef struct ek_plan {
    int n_scheduled, n_rows, n_logits, n_draws;
    ek_scheduled *scheduled;
    ek_row *row;
    ek_seq *seq;
    ek_draw *draw;
    bool *shown;       /* [n_logits] */
    bool *digested;    /* [n_logits] */
    uint64_t *allowed; /* one row of ek_mask_words per draw */
    ek_masks *masks;
    int *follows;     /* [n_rows], only for a step ahead */
    bool draws_later; /* step ahead: some draws need the current step's tokens (ek_executor.draw) */
    ek_draft *draft;
    int32_t (*draft_token)[EK_DRAFT_MAX]; /* a drafter's tokens, per scheduled request */
} ek_plan;

/* The prompt rows that a request may have in a step (state.c). */
typedef struct ek_share {
    uint64_t client;
    int left, max;     /* left: uncomputed rows of its prompt; max: its maximum rows in the step */
    int64_t of_client; /* uncomputed rows of all its client's prompts, except the step's oldest prompt */
} ek_share;

/* A prefix that is or will be recomputed: n > 0. */
typedef struct ek_audit {
    int32_t *tokens; /* NULL: no audits */
    int n;
    uint64_t salt, hits;
    ek_page_table table;
    uint8_t *bytes[EK_KIND_COUNT][2];
} ek_audit;

/* The encoding in progress. */
typedef struct ek_encoding {
    ek_feature *feature; /* NULL: none */
    ek_media *media;     /* one reference */
    double since;        /* ek_now() */
} ek_encoding;

/* Measured times of steps. */
typedef struct ek_timing {
    ek_gap gap;
    double ended;         /* time of the latest step's end, by its clock */
    double encoded;       /* seconds of the next step's time that encoding has used */
    double alone, beside; /* seconds per row of prompts in long steps without replies, and beside them; 0: unknown */
    int n_replies;        /* of the latest step without prompts */
    double company;       /* the latest time at which several requests ran */
} ek_timing;

struct ek_engine {
    ek_executor on;
    ek_model *model; /* NULL in tests with their own executor */
    ek_engine_opts opts;
    ek_request_rules rules;
    /* max_rows: chunk + max_requests + max_draft_rows; max_logits: prompt logits or drafts + max_requests. */
    ek_executor_sizes sizes;
    int max_draft_rows; /* maximum draft rows per step; 0: no drafts */
    ek_pages *pages;
    ek_prefix *prefix; /* NULL: no cache */
    ek_audit audit;
    ek_features features;
    ek_encoding encoding;
    ek_pace pace;             /* the pace of slices of encoding, and of reading pages */
    ek_timing timing;         /* of steps */
    struct {                  /* drafts from outside (proposals.c) */
        ek_proposer proposer; /* a copy of *opts.proposer */
        double latency;       /* moving average of the seconds from a question to its answer; 0: unknown */
        uint64_t questions, answers, waited; /* questions; answers with tokens; microseconds of waiting */
    } remote;
    uint64_t n_encodings;       /* begun encodings */
    bool unnamed;               /* the wait queue may have a request with unnamed parts */
    ek_store *store;            /* its pages on disk; NULL: none */
    ek_request_id load_for;     /* the request whose pages are being read; 0: none */
    double load_since;          /* arrival time of the latest page */
    bool any_uncached;          /* in the wait queue */
    struct ek_leaving *leaving; /* requests whose last event waits (shelf.c) */
    double load_before;         /* seconds that earlier loads of this request took (shelf.c, go_back) */
    double lost, lost_at;       /* seconds that reading took longer than computing, at that time */
    double rest_said;           /* time of the latest log line about it */
    bool rests;                 /* nothing is read until a part of the loss has faded */
    double forget_by;           /* the time until which a wrong page waits for a slot to be deleted */
    int load_taken;             /* pages of this load that arrived */
    int load_low;               /* sliding pages from here on were requested */
    int load_span;              /* number of the latest request for sliding pages */
    int n_ready[EK_PAGE_KINDS]; /* pages whose memory is ready, or soon */
    uint8_t *load_want[EK_KIND_COUNT];

    ek_request **running; /* ascending id */
    int n_running;
    ek_request **slot;   /* the running request of each slot, or NULL */
    ek_request *waiting; /* in the order of turns: ascending turn, then id */
    ek_plan plan;
    ek_plan ahead;       /* the begun step after the plan; none if n_scheduled is 0 */
    uint64_t n_steps;    /* begun steps */
    uint64_t admissions; /* rounds of admission */
    double turn_seconds; /* seconds that a request runs before it gives way to a client that runs none */
    bool new_was_last;   /* the latest admitted request had not run before */
    bool turn_due;       /* a request waited in the latest round for another to give way */
    ek_share *share;     /* [max_requests] */

    void (*on_results)(void *arg, bool begin); /* may be NULL */
    void *on_results_arg;

    pthread_t thread;
    bool has_thread;

    /* Guarded by lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* signals work for the engine's thread */
    bool poked;
    bool closed;      /* no more submits */
    char broken[256]; /* why the executor can no longer compute; "": it can. Written by the engine's thread */
    ek_request *inbox, **inbox_end;
    ek_fair_queue queue_order; /* of all unfinished requests */
    ek_request *live;          /* all unfinished requests */
    int n_live;
    ek_request_id last_id;
    ek_engine_stats stats;
};

/* A plan as the executor's step, without masks. */
ek_step ek_plan_step(const ek_plan *p);
/* Adds the draw of the token at position n_tokens, from the row of logits that was planned last. A draft has several
 * such draws; the history of each assumes that the draft is right so far. */
void ek_plan_add_draw(ek_plan *p, const ek_request *r, int n_tokens, const uint64_t *allowed);

/* Records that the executor is broken, if it is. */
void ek_engine_note_broken(ek_engine *e);
/* Adds 1 to a counter of e->stats, for which it takes the lock. */
void ek_engine_count(ek_engine *e, uint64_t *counter);
/* Seconds of the clock that times steps. */
double ek_engine_now(const ek_engine *e);
/* Whether a running request waits for its next token; requests that start over after a longer wait do not count. */
bool ek_engine_replies(const ek_engine *e);
/* The number of prompt rows in a step: the chunk, or besides replies (`replying`) the number that max_gap allows after
 * `spent` seconds. */
int ek_engine_prompt_rows(const ek_engine *e, bool replying, double spent);
/* Divides a step's `chunk` prompt rows: at least half for the oldest prompt, or the rows that the others leave. The
 * rest goes to the clients, in ascending order of their prompts' remaining rows, so that small requests are not behind
 * large ones. Few rows, of which the others want more than half, go to the oldest first in one step and to the others
 * first in the next (`turn` counts steps), because a prompt costs a step some time whatever its rows. share[0..n):
 * requests in ascending id, left 0 without a prompt; the function sets max. */
void ek_engine_divide(ek_share *share, int n, int chunk, uint64_t turn);
/* The rows of allowed tokens for the draws of s, which are draw[first] and later, or NULL: no mask. The draft is
 * shortened to its allowed part. all[i]: draw i allows every token. The rows are made from ek_masks_begin on. */
const uint64_t *ek_engine_ask_mask(ek_engine *e, ek_scheduled *s, int first, bool all[EK_DRAFT_MAX + 1]);

#endif
