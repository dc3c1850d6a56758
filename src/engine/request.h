/* A request in the engine. */
#ifndef EK_ENGINE_REQUEST_H
#define EK_ENGINE_REQUEST_H

#include <stdatomic.h>

#include "cache/prefix.h"
#include "engine/engine.h"
#include "engine/media/features.h"
#include "engine/sample/ngram.h"

/* Waiting: no page, no slot; runs from its first token. Running: has a slot and
 * the pages of its first n_done tokens. A finished request is freed at once. */
typedef enum ek_request_state { EK_WAITING, EK_RUNNING } ek_request_state;

enum { EK_MAX_KEEP = 16 };

/* A request's drafts may lose EK_DRAFT_CREDIT steps of one row, EK_DRAFT_REGAIN steps per token of its reply, and the
 * steps that earlier drafts saved, up to EK_DRAFT_MAX_CREDIT. Whatever is guessed, a reply then takes at most its time
 * without drafts, plus the fraction EK_DRAFT_REGAIN of it and EK_DRAFT_CREDIT steps, if rows cost as much as the
 * executor says. */
#define EK_DRAFT_CREDIT     2.0f
#define EK_DRAFT_REGAIN     (1.0f / 64)
#define EK_DRAFT_MAX_CREDIT 8.0f

/* A picture or sound of a request. span[i] has its positions, and its rows while features exist. */
typedef struct ek_request_part {
    ek_media *media; /* one reference */
    ek_feature *feature;
    bool seen; /* counted as reused: it had features already, or lies within n_cached */
} ek_request_part;

/* A request's pictures, sounds and given embeddings. */
typedef struct ek_request_media {
    ek_prompt_span *span; /* owned, with the embeddings; ascending */
    int n_spans;
    ek_request_part *part; /* owned; NULL: the spans' embeddings are its own */
    int n_parts;           /* 0 or n_spans */
    int first_part;        /* parts before it are computed */
    int n_tokens[2];       /* tokens of images and frames, and of sounds */
    int n_reused[2];       /* tokens among them whose features existed already */
    int n_kept[2];         /* as in ek_event */
    uint64_t encoded_at;   /* number of the engine's encoding that was its last one */
    int longest_piece;     /* rows of the longest span that may not be cut; 1 without */
} ek_request_media;

/* A request's turn among the clients (base/fair_queue.h), and its use of the engine. */
typedef struct ek_request_turn {
    uint64_t client, place; /* set at submission */
    uint64_t cost;          /* of the place */
    uint64_t passed;        /* the round of admissions that passed it over */
    double waits_since, runs_since;
    int n_steps;       /* steps with rows of the request since it began to run */
    int max_rows;      /* maximum prompt rows in the next step */
    int n_blocked;     /* consecutive steps without room for its next span */
    int n_done_before; /* the maximum of n_done before it started over */
    bool admitted;     /* has run before */
    bool held, looked; /* hold.c: leaves its last rows; has left them once, for requests that might come */
    double held_since; /* by the engine's clock */
} ek_request_turn;

/* A request's use of the prefix cache. */
typedef struct ek_request_cache {
    uint64_t salt, owner;
    ek_salt_name *salt_name;
    void (*on_cache)(void *user, const ek_cache_report *report);
    ek_reading *reading;    /* NULL: nobody asks */
    ek_content_id *content; /* owned; of positions [0, n_content); later positions are text; NULL: all are text */
    int n_content;
    int n_found;                      /* tokens known to the index at the latest admission */
    int n_hit;                        /* tokens among them that it began with */
    int n_cached;                     /* n_hit at the first admission, which events report */
    int n_captured;                   /* whole pages given to the index */
    bool asked_store;                 /* the store was asked for its prompt, or asking would take too long now */
    bool in_line;                     /* it lacks pages while an earlier request's pages are read */
    ek_request_id wait_for;           /* a running request that computes its prompt's beginning; 0: none */
    int wait_pages;                   /* it waits until that request has this many whole pages */
    bool suspect;                     /* its step failed, so none of its pages is cached */
    ek_prefix_keep keep[EK_MAX_KEEP]; /* sliding pages worth keeping */
    int n_keep;
    bool passed; /* the index knows that its prompt is read, and that it will not resume where it began */
    float min_cached;
    bool uncached; /* less than min_cached was cached: it ends before the next step */
    bool publish;
} ek_request_cache;

/* Proposals from outside (proposals.c). token[judged .. n) belong to the positions from at + judged on, the next one to
 * be sampled. */
typedef struct ek_request_remote {
    float right; /* moving average of proposals that were right, used or not */
    bool asked;  /* a question about tokens[0 .. asked_at) is open */
    int asked_at;
    int at, judged, n;
    int32_t token[EK_DRAFT_MAX];
} ek_request_remote;

/* Speculation. The draft of a step lies behind the tokens: tokens[n_tokens ..]. */
typedef struct ek_request_draft {
    ek_ngram ngram;      /* without memory if the engine does not draft */
    float drafter_right; /* moving average of the drafter's accepted tokens */
    int drafter_rests;   /* tokens until the drafter is tried again */
    float credit;        /* steps of one row that drafts may still lose */
    uint64_t last_draw;  /* the step that sampled the last token; 0: none */
    int last_logits;     /* that token's row of logits */
    int n_drafted, n_accepted;
    ek_request_remote remote;
} ek_request_draft;

typedef struct ek_request {
    ek_request_id id; /* ascending in order of arrival */
    ek_request_state state;
    atomic_bool cancelled; /* set by any thread, read before the next step */
    int32_t *tokens;       /* prompt, then reply; room for max_tokens */
    int n_prompt, n_tokens;
    int n_given;            /* given tokens: the prompt, and the beginning of a resumed reply */
    int max_tokens;         /* n_tokens never exceeds it */
    int n_done;             /* tokens whose keys and values are in pages: tokens[0..n_done) */
    int n_ahead;            /* rows in the step ahead (ahead.c) */
    int next_prompt_logits; /* the next position for on_prompt_logits; n_given: none */
    int slot;               /* ek_seq.slot while it runs */
    ek_page_table table;
    int hidden_size, window;
    ek_sampling sampling; /* bias is owned */
    int32_t *stop;        /* owned; the model's stop ids are among them unless ignored */
    int n_stop;
    ek_mask mask; /* look is NULL without */
    ek_sink_fn *sink;
    void *arg, *user;
    void (*on_prompt_logits)(void *user, int pos, const float *logits);
    bool reply_logits, reply_digest;
    double arrived; /* ek_now() */
    ek_request_media media;
    ek_request_turn turn;
    ek_request_cache cache;
    ek_request_draft draft;
    struct ek_request *next;                  /* in the inbox or the wait queue */
    struct ek_request *live_next, *live_prev; /* all unfinished requests; under the engine's lock */
} ek_request;

/* An engine's limits and defaults for checking and making requests. */
typedef struct ek_request_rules {
    int vocab_size, hidden_size, ctx;
    int whole; /* rows of the longest span that a step can compute */
    const struct ek_encoder *encoder;
    const ek_media_ids *media;
    bool mutual;           /* rows of an image see each other in sliding layers */
    int max_prompt_logits; /* maximum rows of such a span with logits */
    bool drafts;
    int n_pages[EK_PAGE_KINDS];
    const int32_t *stop;
    int n_stop;
    const ek_kv_layout *layout;
} ek_request_rules;

/* EINVAL or ETOOLONG with the numbers. */
ek_err ek_request_check(const ek_request_opts *o, const ek_request_rules *rules);
/* Makes a waiting request with its own copy of everything in o, which was checked. */
ek_request *ek_request_new(const ek_request_opts *o, const ek_request_rules *rules);
/* Names the contents of r's parts after the encoder was loaded; before, r must not be looked up. */
void ek_request_name_parts(ek_request *r, const struct ek_encoder *encoder);
void ek_request_free(ek_request *r); /* its table holds nothing */

bool ek_request_is_stop(const ek_request *r, int32_t token);

/* The number of tokens that are not computed yet: 1 while it replies, more during its prompt. */
static inline int ek_request_rows_left(const ek_request *r)
{
    return r->n_tokens - r->n_done;
}

/* A table's pages for the executor, and r's. Valid until the table changes. */
ek_seq ek_table_seq(const ek_page_table *t, int slot);
ek_seq ek_request_seq(const ek_request *r);
/* The row of position pos: its token or embedding, and its visible ranges. */
ek_row ek_request_row(const ek_request *r, int pos, int seq, bool wants_logits);
/* The largest number of rows up to n from n_done on that ends outside every span that may not be cut. */
int ek_request_cut(const ek_request *r, int n);
/* n, or the beginning of the uncuttable span around n. */
int ek_request_before_span(const ek_request *r, int n);
/* The number of rows, at most n, before the first position without features. */
int ek_request_ready(const ek_request *r, int n);
/* The minimum number of rows in the next step. */
int ek_request_piece(const ek_request *r);
/* The number of rows with requested prompt logits among the next n. */
int ek_request_prompt_logits(const ek_request *r, int n);

#endif
