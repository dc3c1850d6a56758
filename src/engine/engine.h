/* The engine: requests join and leave between steps, a step moves every live one forward.
 *
 * Threads: one engine thread owns all state behind ek_engine (ek_engine_start starts it, or
 * the caller is that thread and calls ek_engine_step). submit and cancel may be called from
 * any thread. Events are handed to the sink on the engine thread, in order per request. */
#ifndef EK_ENGINE_ENGINE_H
#define EK_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "base/histogram.h"
#include "cache/held.h"
#include "cache/store.h"
#include "engine/proposer.h"
#include "engine/sample/masks.h"
#include "engine/sample/sampler.h"
#include "model/drafter.h"
#include "model/tower/tower.h"

typedef struct ek_engine ek_engine;
typedef uint64_t ek_request_id; /* never 0 */

typedef enum ek_finish {
    EK_FINISH_NONE,
    EK_FINISH_STOP,   /* a stop id was sampled */
    EK_FINISH_LENGTH, /* max_tokens, or the context is full */
    EK_FINISH_CANCELLED,
    EK_FINISH_UNCACHED, /* less of the prompt was cached than min_cached: nothing was computed */
    EK_FINISH_ERROR
} ek_finish;

/* One event: a sampled token (stop ids included, with finish STOP in the same event), or a
 * finish without token (token -1). n_prompt, n_cached and n_tokens (of the reply, this one
 * included) are counts so far; n_cached are the prompt tokens that were not computed, but taken from the prefix cache.
 */
typedef struct ek_event {
    ek_request_id request;
    void *user;
    int32_t token;
    ek_finish finish;
    ek_err err;       /* EK_FINISH_ERROR: why */
    const char *text; /* its sentence; valid during the call */
    int n_prompt, n_cached, n_tokens;
    int n_image, n_sound; /* of the prompt: soft tokens of images and video frames, and of sounds */
    int n_features;       /* of these, those whose features were in the cache of features; the others were encoded,
                             or lie in n_cached */
    /* Of them, those that nothing was encoded for: what lies as a whole in n_cached, and features that were made for a
     * request of the same cache_salt. Others count as encoded: what other tenants have shown is not said. */
    int n_image_kept, n_sound_kept;
    int n_drafted, n_accepted; /* drafted tokens so far, and those of them that the reply has */
    const float *logits;       /* with reply_logits: the row the token was sampled from (suppressed ids not yet
                                  masked), valid during the call; NULL when token is -1 */
    uint64_t digest;           /* with reply_digest: ek_logits_digest (engine/sample/sampler.h) of that row; else 0 */
} ek_event;

/* Called on the engine thread, which waits for it. May submit and cancel; may not step, stop
 * or close. */
typedef void ek_sink_fn(void *arg, const ek_event *event);

/* A part of a prompt that is not plain text. */
typedef struct ek_prompt_span {
    int first, end; /* positions [first, end) */
    /* NULL: the tokens' own. (end - first) x hidden_size floats that stand in the tokens' place as they
     * enter the first layer, scaled already (an image, a sound). The token ids there still count as
     * history for penalties. */
    const float *embedding;
    /* In layers of a kind the whole span is visible to each of its positions, not only what is before it; the
     * window still cuts the past (Gemma 4 12B, 26B, 31B: images, in sliding layers). If any is set, the span is
     * computed in one step, whatever the chunks. */
    bool mutual[EK_KIND_COUNT];
    bool uncut; /* nor does the window cut the past within the span */
} ek_prompt_span;

/* How a prompt fared in the prefix cache. Pointers are valid during the call. */
typedef struct ek_cache_report {
    const int32_t *tokens; /* the prompt */
    int n_prompt;
    int n_found;          /* the cache knows so many of its first tokens, at least */
    int n_used;           /* and the request begins behind so many: what has to be computed is left out */
    const int32_t *other; /* where it leaves what is cached: the cached tokens of positions [other_first, + n_other),
                             n_found among them; NULL: nothing else follows there */
    int other_first, n_other;
} ek_cache_report;

/* How far the engine has read a request's tokens: of those it came with, the ones that were cached, and all that are
 * computed or cached. Any thread. */
typedef struct ek_reading {
    atomic_int cached, done;
} ek_reading;

typedef struct ek_request_opts {
    const int32_t *tokens;      /* copied */
    int n_tokens;               /* >= 1, and less than ek_engine_ctx() */
    int max_tokens;             /* >= 1; the context limit may end the request earlier */
    int n_replied;              /* of tokens, the last ones: of the reply, sampled earlier or elsewhere, less than
                                   max_tokens. They are computed like a prompt, and the reply goes on behind them; no
                                   event has them, and mask has accepted them. All counts are those of the whole reply */
    const ek_prompt_span *span; /* ascending, apart; copied, embeddings too */
    int n_spans;
    /* Pictures and sounds behind the prompt's soft tokens, as ek_parts_place leaves them; the array is copied, and the
     * engine takes a reference of each until the request ends. Not together with spans. EUNSUPPORTED where the model
     * has no tower for one, EINVAL for a soft token without a part. */
    const ek_part *part;
    int n_parts;
    ek_sampling sampling;
    const ek_mask *mask; /* copied; arg is borrowed until the last event. NULL: every token is allowed. Tokens that
                            are not are masked before everything else; logits in events and digests are not */
    bool ignore_eos;     /* the model's stop ids are ordinary tokens */
    const int32_t *stop; /* further stop ids, which always count; copied */
    int n_stop;
    ek_sink_fn *sink;
    void *arg, *user; /* user comes back in events */
    /* Called for every position of tokens from prompt_logits_from on (n_tokens: none), in order,
     * with its logits: for the command `logits`, tests and prompt logprobs. May be NULL. */
    int prompt_logits_from;
    void (*on_prompt_logits)(void *user, int pos, const float *logits);
    bool reply_logits; /* events carry the logits; else a device keeps them */
    bool reply_digest; /* events carry their digest */
    /* Whose it is: clients take turns in the wait queue, and in what room there is for waiting (base/fair_queue.h).
     * Decides when a request runs, never a bit of its answer. */
    uint64_t client;
    /* Only requests of one salt share cached prefixes: a tenant's. Never changes a bit of an answer. */
    uint64_t cache_salt;
    uint64_t cache_owner; /* whose share of the cache it uses; of one salt always the same */
    /* 0..1: of the prompt, its last token aside, this share must be cached, wherever: otherwise it ends with
     * EK_FINISH_UNCACHED as soon as that is known. 0: it runs anyway. */
    float min_cached;
    /* The last event waits until the pages of prompt and reply are where other processes can read them (a server that
     * is shared), or cannot get there, for some seconds at most. */
    bool publish;
    const char *cache_salt_text; /* what the salt is called where held pages are told of; copied; NULL: nothing */
    size_t cache_salt_len;
    /* Called once, on the engine's thread, before the first step of the request. NULL: not. */
    void (*on_cache)(void *user, const ek_cache_report *report);
    ek_reading *reading; /* kept up to date until the last event; NULL: not */
} ek_request_opts;

/* Where drafts come from. A draft is a guess at the next tokens; the model's own samples decide whether they stand, so
 * drafts change how many steps a reply takes and nothing else. */
typedef enum ek_draft_mode {
    EK_DRAFT_OFF,
    EK_DRAFT_NGRAM, /* the request's own text */
    EK_DRAFT_AUTO   /* the request's own text, and a drafter if there is one */
} ek_draft_mode;

typedef struct ek_engine_opts {
    int max_requests; /* that run at once */
    int max_queue;    /* that wait; submit beyond gives EBUSY. Where one client has taken all of it, as many again for
                         others */
    int ctx_tokens;   /* longest prompt + reply of one request: ENOMEM if the pages cannot hold
                         it; 0: the model's, or what the pages can hold */
    int chunk;        /* prompt rows per step at most; speed only */
    double max_gap;   /* seconds that a step with prompts takes at most while requests reply, as far as measured steps
                         tell; or twice as long as one without prompts, if that is longer. A step has EK_GAP_LEAST rows
                         of prompts all the same (engine/gap.h), and a span that is not cut. 0: no limit; speed only */
    double kv_bytes;  /* for pages; 0: enough for max_requests contexts or half of what is free */
    /* Pages of finished requests are kept for prompts that begin alike, in the same pool: running requests take
     * them back when they need pages. At most these bytes; INFINITY: no limit but the pool; 0: no cache. */
    double cache_bytes;
    /* Features of pictures and sounds are kept, too, for prompts that hold them again: at most these bytes of what no
     * request needs now. */
    double feature_bytes;
    double cache_audit; /* this share of hits, 0..1, is computed again in idle time and compared; see engine/cached.h */
    bool tell_held;     /* ek_engine_held says which pages the cache holds */
    /* Keeps cached pages outside of memory too, where they survive a restart; NULL: none. Copied; closed by
     * ek_engine_close, and when opening fails. What it keeps must be of this model, numerics and page layout. */
    const ek_store_backend *cache_store;
    /* What makes features, of this model; borrowed, one engine's alone. NULL: it takes text alone. */
    ek_towers *towers;
    bool load_towers; /* when it is opened; else with the first prompt that has need of them, which waits for seconds */
    ek_draft_mode draft;
    ek_drafter *drafter;         /* for AUTO; borrowed, one engine's alone; NULL: none */
    const ek_proposer *proposer; /* for AUTO, where neither text nor drafter offers anything; copied, its arg is
                                    borrowed and one engine's alone; NULL: none */
    int draft_max;               /* drafted tokens of one request per step, 1 to EK_DRAFT_MAX */
} ek_engine_opts;

ek_engine_opts ek_engine_defaults(void); /* without drafts */

ek_err ek_engine_open(ek_engine **out, ek_model *model, const ek_engine_opts *opts);
void ek_engine_close(ek_engine *e); /* cancels what is left; model stays the caller's */
const ek_model *ek_engine_model(const ek_engine *e);
int ek_engine_ctx(const ek_engine *e);          /* longest prompt + reply; less than asked for if memory is short */
int ek_engine_vocab(const ek_engine *e);        /* floats in a row of logits */
int ek_engine_room(const ek_engine *e);         /* requests that may run or wait at the same time */
int ek_engine_max_requests(const ek_engine *e); /* that run at once */
int ek_engine_chunk(const ek_engine *e);        /* prompt rows of a step at most */

/* EINVAL, ETOOLONG, EBUSY (queue full) or ESHUTDOWN at once, with the numbers; nothing is
 * queued then and the sink is never called. id may be NULL; it is set before the first event.
 * EINVAL also for a mutual span longer than a step's chunk and than the largest image. */
ek_err ek_engine_submit(ek_engine *e, const ek_request_opts *r, ek_request_id *id);
/* Takes effect before the next step; unknown or finished ids are ignored. The sink gets one
 * last event with EK_FINISH_CANCELLED unless the request had already finished. */
void ek_engine_cancel(ek_engine *e, ek_request_id id);

/* One step; false when there was nothing to do. Caller is the engine thread. A request that cannot be
 * computed ends with EK_FINISH_ERROR and is no error of the step. */
bool ek_engine_step(ek_engine *e);

/* For a sink that wakes another thread: fn is called with true in front of the events of a step's results and with
 * false behind them, so that one wake-up does for all of them. On the engine's thread; set it before the first step. */
void ek_engine_on_results(ek_engine *e, void (*fn)(void *arg, bool begin), void *arg);

ek_err ek_engine_start(ek_engine *e); /* starts the engine thread */
/* No more submits (ESHUTDOWN); drain: finishes what runs and waits, else cancels it. Joins
 * the thread if one was started, otherwise steps until done. */
void ek_engine_stop(ek_engine *e, bool drain);

/* The numbers of stats.def. Pages by kind: used by requests, kept by the prefix cache alone, and all. */
typedef struct ek_engine_stats {
#define STAT(section, ctype, field, from, of, type, name, help) ctype field;
#define STAT_PAIR(section, field, name, help)                   uint64_t field[2];
#define STAT_TIMES(section, field, first, bins, name, help)     ek_histogram field;
#include "engine/stats.def"
    int pages_used[EK_PAGE_KINDS], pages_cached[EK_PAGE_KINDS], pages_total[EK_PAGE_KINDS];
    bool shared; /* pages are shared at all */
} ek_engine_stats;
/* News of the pages that the prefix cache holds, for one reader, which must be gone before ek_engine_close; NULL
 * without tell_held or without a cache. */
ek_held_queue *ek_engine_held(const ek_engine *e);
void ek_engine_stats_read(const ek_engine *e, ek_engine_stats *out); /* any thread */

/* Of the running requests: the tokens they came with, and those of them that are computed or came from the cache.
 * Between steps, on the engine's thread. */
void ek_engine_reading(const ek_engine *e, int *done, int *all);

/* Whether the executor can compute nothing any more, and why (any thread). Running requests have then ended with an
 * error or will in the next step, and ek_engine_submit refuses new ones. */
bool ek_engine_broken(const ek_engine *e, char *why, size_t room);

#endif
