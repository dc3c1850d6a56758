/* One request as the engine keeps it. */
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

/* Drafts may lose so many steps of one row per request, a little more per token of its reply, and what earlier ones
 * saved, of that at most the maximum. However guesses are chosen, a reply then takes at most the time that it takes
 * without drafts, a share EK_DRAFT_REGAIN of that and EK_DRAFT_CREDIT steps more, if rows cost what the executor says.
 */
#define EK_DRAFT_CREDIT     2.0f
#define EK_DRAFT_REGAIN     (1.0f / 64)
#define EK_DRAFT_MAX_CREDIT 8.0f

/* A picture or sound of a request; span[i] has its positions, and its rows while there are features. */
typedef struct ek_request_part {
    ek_media *media; /* one reference */
    ek_feature *feature;
    bool seen; /* it had features before, or lies within n_cached, and was counted */
} ek_request_part;

/* Its pictures and sounds, and embeddings that it came with. */
typedef struct ek_request_media {
    ek_prompt_span *span; /* owned, with the embeddings; ascending */
    int n_spans;
    ek_request_part *part; /* owned; NULL: the spans' embeddings are its own */
    int n_parts;           /* 0 or n_spans */
    int first_part;        /* those before it are computed */
    int n_tokens[2];       /* of images and frames, and of sounds */
    int n_reused[2];       /* of them, those whose features were there already */
    int n_kept[2];         /* as in ek_event */
    uint64_t encoded_at;   /* which encoding of the engine was its last one */
    int longest_piece;     /* rows of its longest span that may not be cut; 1 without */
} ek_request_media;

/* Its turn among the clients (base/fair_queue.h), and what it has had of the engine. */
typedef struct ek_request_turn {
    uint64_t client, place; /* set when it is submitted */
    uint64_t cost;          /* of its place */
    uint64_t passed;        /* the round of admissions that has passed it over */
    double waits_since, runs_since;
    int n_steps;       /* that it had rows in since it began to run */
    int max_rows;      /* of its prompt in the next step */
    int n_blocked;     /* steps in a row that had no room for its next span */
    int n_done_before; /* the maximum of n_done before it started over */
    bool admitted;     /* has run before */
} ek_request_turn;

/* What it takes from the prefix cache, and what it leaves there. */
typedef struct ek_request_cache {
    uint64_t salt, owner;
    ek_salt_name *salt_name;
    void (*on_cache)(void *user, const ek_cache_report *report);
    ek_reading *reading;    /* NULL: nobody asks */
    ek_content_id *content; /* owned; of positions [0, n_content), those after are text; NULL: all are */
    int n_content;
    int n_found;                      /* tokens that the prefix index knew when it was admitted last */
    int n_hit;                        /* of them, those it began with */
    int n_cached;                     /* n_hit when it was admitted first: what events report */
    int n_captured;                   /* whole pages that the index was given */
    bool asked_store;                 /* its prompt was looked for outside of memory, or that does not pay now */
    bool in_line;                     /* it lacks pages while those of one before it are read */
    ek_request_id wait_for;           /* a running request that computes the front of its prompt; 0: none */
    int wait_pages;                   /* until that one has so many whole pages */
    bool suspect;                     /* its step failed: nothing of it is cached */
    ek_prefix_keep keep[EK_MAX_KEEP]; /* sliding pages worth keeping */
    int n_keep;
    float min_cached;
    bool uncached; /* it had less: it ends before the next step */
    bool publish;
} ek_request_cache;

/* Proposals from outside (proposals.c): token[judged .. n) are for the positions from at + judged on, which is the next
 * one that is sampled. */
typedef struct ek_request_remote {
    float right; /* how often proposals were right, used or not: a moving average */
    bool asked;  /* a question is out, about tokens[0 .. asked_at) */
    int asked_at;
    int at, judged, n;
    int32_t token[EK_DRAFT_MAX];
} ek_request_remote;

/* Speculation. The draft of a step lies behind the tokens: tokens[n_tokens ..]. */
typedef struct ek_request_draft {
    ek_ngram ngram;      /* without memory if the engine does not draft */
    float drafter_right; /* how often the drafter's tokens were accepted: a moving average */
    int drafter_rests;   /* tokens until the drafter is tried again */
    float credit;        /* what drafts may still lose, in steps of one row */
    uint64_t last_draw;  /* the step in which the last token was sampled; 0: none */
    int last_logits;     /* and the row of logits that it was sampled from */
    int n_drafted, n_accepted;
    ek_request_remote remote;
} ek_request_draft;

typedef struct ek_request {
    ek_request_id id; /* ascending in order of arrival */
    ek_request_state state;
    atomic_bool cancelled; /* set by any thread, read before the next step */
    int32_t *tokens;       /* prompt, then reply; room for max_tokens */
    int n_prompt, n_tokens;
    int n_given;            /* tokens it came with: the prompt, and a reply that goes on */
    int max_tokens;         /* n_tokens never exceeds it */
    int n_done;             /* tokens whose keys and values are in pages: tokens[0..n_done) */
    int n_ahead;            /* rows begun behind those of the step in front (ahead.c) */
    int next_prompt_logits; /* the next position that on_prompt_logits gets; n_given: none */
    int slot;               /* while it runs: ek_seq.slot */
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
    struct ek_request *live_next, *live_prev; /* all that are not finished; under the engine's lock */
} ek_request;

/* The limits and defaults of an engine: a request is checked against them and made with them. */
typedef struct ek_request_rules {
    int vocab_size, hidden_size, ctx;
    int whole; /* rows of the longest span that a step can compute */
    const struct ek_encoder *encoder;
    const ek_media_ids *media;
    bool mutual;           /* rows of an image see each other in sliding layers */
    int max_prompt_logits; /* of them with logits */
    bool drafts;
    int n_pages[EK_PAGE_KINDS];
    const int32_t *stop;
    int n_stop;
    const ek_kv_layout *layout;
} ek_request_rules;

/* EINVAL or ETOOLONG with the numbers. */
ek_err ek_request_check(const ek_request_opts *o, const ek_request_rules *rules);
/* A waiting request with its own copy of everything in o, which was checked. */
ek_request *ek_request_new(const ek_request_opts *o, const ek_request_rules *rules);
/* Names the contents of its parts, once the encoder is loaded; until then nothing of it may be looked up. */
void ek_request_name_parts(ek_request *r, const struct ek_encoder *encoder);
void ek_request_free(ek_request *r); /* its table holds nothing */

bool ek_request_is_stop(const ek_request *r, int32_t token);

/* Tokens that are not computed yet: 1 while it replies, more with a prompt ahead. */
static inline int ek_request_rows_left(const ek_request *r)
{
    return r->n_tokens - r->n_done;
}

/* Its pages, as the executor gets them. Valid until the table changes. */
ek_seq ek_request_seq(const ek_request *r);
/* The row of position pos: its token or embedding, and its visible ranges. */
ek_row ek_request_row(const ek_request *r, int pos, int seq, bool wants_logits);
/* The largest number of rows up to n from n_done on that ends outside every span that may not be cut. */
int ek_request_cut(const ek_request *r, int n);
/* n, or the first position of the span that may not be cut and has n inside. */
int ek_request_before_span(const ek_request *r, int n);
/* Of the next n rows, those in front of the first position whose features are not there. */
int ek_request_ready(const ek_request *r, int n);
/* The minimum number of rows of the next step. */
int ek_request_piece(const ek_request *r);
/* Of the next n rows, those whose prompt logits were asked for. */
int ek_request_prompt_logits(const ek_request *r, int n);

#endif
