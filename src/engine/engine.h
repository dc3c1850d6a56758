/* The engine: requests join and leave between steps; a step moves every running request forward.
 *
 * Threads: one engine thread owns all state behind ek_engine. ek_engine_start starts it, or the caller is that thread
 * and calls ek_engine_step. Any thread may call submit and cancel. The engine thread hands events to the sink, in order
 * per request. */
#ifndef EK_ENGINE_ENGINE_H
#define EK_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "base/histogram.h"
#include "cache/held.h"
#include "cache/store.h"
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

/* One event: a sampled token (stop ids included, with finish STOP in the same event), or a finish without token
 * (token -1). Counts are those so far: n_prompt, n_cached (prompt tokens taken from the prefix cache), and n_tokens (of
 * the reply, this one included). */
typedef struct ek_event {
    ek_request_id request;
    void *user;
    int32_t token;
    ek_finish finish;
    ek_err err;       /* EK_FINISH_ERROR: why */
    const char *text; /* the error's sentence; valid during the call */
    int n_prompt, n_cached, n_tokens;
    int n_image, n_sound; /* soft tokens of images and video frames, and of sounds, in the prompt */
    int n_features;       /* soft tokens whose features were cached; others were encoded, or lie in n_cached */
    /* Soft tokens that needed no encoding: those of contents that lie whole in n_cached, and those whose features a
     * request with the same cache_salt made. Features of other tenants count as encoded, so nobody sees what others
     * have sent. */
    int n_image_kept, n_sound_kept;
    int n_drafted, n_accepted; /* drafted tokens so far; the accepted ones among them */
    const float *logits;       /* with reply_logits: the token's row of logits before masking, valid during the call;
                                  NULL if token is -1 */
    uint64_t digest;           /* with reply_digest: ek_logits_digest (engine/sample/sampler.h) of that row; else 0 */
} ek_event;

/* Receives events on the engine thread, which waits for it. May submit and cancel; may not step, stop or close. */
typedef void ek_sink_fn(void *arg, const ek_event *event);

/* A part of a prompt that is not plain text. */
typedef struct ek_prompt_span {
    int first, end; /* positions [first, end) */
    /* (end - first) x hidden_size floats of an image or sound, already scaled, that enter the first layer in place of
     * the tokens' embeddings; NULL: the tokens' own. The token ids still count as history for penalties. */
    const float *embedding;
    /* Per kind of layers: each position of the span sees the whole span, not only earlier positions; the window still
     * limits the past (Gemma 4 12B, 26B, 31B: images, in sliding layers). If any is set, one step computes the whole
     * span, whatever the chunk. */
    bool mutual[EK_KIND_COUNT];
    bool uncut; /* the window does not limit the past within the span either */
} ek_prompt_span;

/* The result of a prompt's lookup in the prefix cache. Pointers are valid during the call. */
typedef struct ek_cache_report {
    const int32_t *tokens; /* the prompt */
    int n_prompt;
    int n_found;          /* at least this many first tokens are cached */
    int n_used;           /* this many are used; the request computes the rest */
    const int32_t *other; /* the cached tokens around the first difference: positions [other_first, + n_other), n_found
                             among them; NULL: there is none */
    int other_first, n_other;
} ek_cache_report;

/* The reading of a request's prompt: cached tokens, and all that are computed or cached. Any thread. */
typedef struct ek_reading {
    atomic_int cached, done;
} ek_reading;

typedef struct ek_request_opts {
    const int32_t *tokens; /* copied */
    int n_tokens;          /* >= 1, and less than ek_engine_ctx() */
    int max_tokens;        /* >= 1; the context limit may end the request earlier */
    int n_replied; /* this many last tokens belong to the reply, sampled earlier or elsewhere; less than max_tokens.
                      They are computed like a prompt and have no events; mask has accepted them already. Counts are
                      those of the whole reply */
    const ek_prompt_span *span; /* ascending, without overlap; copied, embeddings too */
    int n_spans;
    /* Pictures and sounds of the prompt's soft tokens, from ek_parts_place. The array is copied, and the engine holds a
     * reference of each until the request ends. Not together with spans. EUNSUPPORTED if the model lacks a tower,
     * EINVAL for a soft token without a part. */
    const ek_part *part;
    int n_parts;
    ek_sampling sampling;
    const ek_mask *mask; /* copied; arg is borrowed until the last event. NULL: every token is allowed. The mask comes
                            before all other changes of logits; logits in events and digests are unmasked */
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
    /* The client: clients take turns in the wait queue and share its places (base/fair_queue.h). Decides when a request
     * runs, never a bit of its answer. */
    uint64_t client;
    /* Only requests with the same salt (of one tenant) share cached prefixes. Never changes a bit of an answer. */
    uint64_t cache_salt;
    uint64_t cache_owner; /* the owner whose pages in the cache count; always the same for one salt */
    /* 0..1: this fraction of the prompt, without its last token, must be cached somewhere. Otherwise the request ends
     * with EK_FINISH_UNCACHED. 0: it runs anyway. */
    float min_cached;
    /* The last event waits, a few seconds at most, until the shared server has the pages of prompt and reply, or
     * refused them. */
    bool publish;
    const char *cache_salt_text; /* the salt's name in reports of held pages; copied; NULL: none */
    size_t cache_salt_len;
    /* Called once, on the engine's thread, before the request's first step. May be NULL. */
    void (*on_cache)(void *user, const ek_cache_report *report);
    ek_reading *reading; /* updated until the last event; may be NULL */
} ek_request_opts;

/* Proposals of next tokens from outside the engine, such as another machine (open/remote.h). They may be late, missing
 * or wrong: as with every draft, only tokens that the model samples are kept.
 *
 * The engine's thread calls all functions; only wait takes time. */
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

/* Sources of drafts. A draft is a guess at the next tokens. Only tokens that the model samples itself are kept, so
 * drafts change the number of steps and nothing else. */
typedef enum ek_draft_mode {
    EK_DRAFT_OFF,
    EK_DRAFT_NGRAM, /* the request's own text */
    EK_DRAFT_AUTO   /* the request's own text, and a drafter if there is one */
} ek_draft_mode;

typedef struct ek_engine_opts {
    int max_requests; /* maximum running requests */
    int max_queue;  /* maximum waiting requests; submit then gives EBUSY. If one client fills the queue, the others have
                       as many further places */
    int ctx_tokens; /* maximum prompt + reply of one request: ENOMEM if the pages cannot hold it; 0: the model's limit,
                       or as many as the pages hold */
    int chunk;      /* maximum prompt rows per step; speed only */
    double max_gap; /* maximum seconds of a step with prompts while requests reply, by measured steps, but at least
                       twice a step without prompts. A step always has EK_GAP_LEAST prompt rows (engine/gap.h), or a
                       whole mutual span. 0: no limit; speed only */
    double kv_bytes; /* memory for pages; 0: enough for max_requests contexts, or half of the free memory */
    /* Maximum bytes of finished requests' pages that are kept in the same pool, for prompts with the same beginning;
     * running requests take them when they need pages. INFINITY: the whole pool; 0: no cache. */
    double cache_bytes;
    /* Maximum bytes of kept features of pictures and sounds that no running request needs. */
    double feature_bytes;
    double cache_audit; /* this fraction of hits, 0..1, is recomputed in idle time and compared (engine/cached.h) */
    bool tell_held;     /* ek_engine_held reports the pages that the cache holds */
    /* Also keeps cached pages outside the pool; NULL: none. Copied; closed by ek_engine_close, and when opening fails.
     * Its pages must belong to this model, numerics and page layout. */
    const ek_store_backend *cache_store;
    /* The model's towers; borrowed, used by one engine only. NULL: text only. */
    ek_towers *towers;
    bool load_towers; /* load them when the engine is opened; else the first prompt that needs them waits for seconds */
    ek_draft_mode draft;
    ek_drafter *drafter;         /* for AUTO; borrowed, used by one engine only; NULL: none */
    const ek_proposer *proposer; /* for AUTO, if neither the text nor the drafter has a draft; copied, its arg is
                                    borrowed and used by one engine only; NULL: none */
    int draft_max;               /* maximum drafted tokens per request and step, 1 to EK_DRAFT_MAX */
} ek_engine_opts;

ek_engine_opts ek_engine_defaults(void); /* without drafts */

ek_err ek_engine_open(ek_engine **out, ek_model *model, const ek_engine_opts *opts);
void ek_engine_close(ek_engine *e); /* cancels all requests; the caller still owns the model */
const ek_model *ek_engine_model(const ek_engine *e);
int ek_engine_ctx(const ek_engine *e);          /* maximum prompt + reply; less than requested if memory is short */
int ek_engine_vocab(const ek_engine *e);        /* floats in a row of logits */
int ek_engine_room(const ek_engine *e);         /* maximum running and waiting requests together */
int ek_engine_max_requests(const ek_engine *e); /* maximum running requests */
int ek_engine_chunk(const ek_engine *e);        /* maximum prompt rows per step */

/* EINVAL, ETOOLONG, EBUSY (queue full) or ESHUTDOWN at once, with the numbers; then nothing is queued and the sink is
 * never called. id may be NULL; it is set before the first event. EINVAL also for a mutual span longer than both a
 * step's chunk and the largest image. */
ek_err ek_engine_submit(ek_engine *e, const ek_request_opts *r, ek_request_id *id);
/* Cancels a request before the next step; unknown and finished ids are ignored. The sink gets a last event with
 * EK_FINISH_CANCELLED. */
void ek_engine_cancel(ek_engine *e, ek_request_id id);

/* Makes one step; false: there was nothing to do. The caller is the engine thread. A request that cannot be computed
 * ends with EK_FINISH_ERROR; the step itself does not fail. */
bool ek_engine_step(ek_engine *e);

/* For sinks that wake another thread: fn is called with true before the events of a step and with false after them, so
 * that one wake-up suffices. On the engine's thread; set it before the first step. */
void ek_engine_on_results(ek_engine *e, void (*fn)(void *arg, bool begin), void *arg);

ek_err ek_engine_start(ek_engine *e); /* starts the engine thread */
/* Refuses further submits (ESHUTDOWN). drain: finishes running and waiting requests, else cancels them. Joins the
 * thread if one was started, otherwise makes the remaining steps. */
void ek_engine_stop(ek_engine *e, bool drain);

/* The numbers of stats.def. Pages by kind: used by requests, held by the prefix cache alone, and in total. */
typedef struct ek_engine_stats {
#define STAT(section, ctype, field, from, of, type, name, help) ctype field;
#define STAT_PAIR(section, field, name, help)                   uint64_t field[2];
#define STAT_TIMES(section, field, first, bins, name, help)     ek_histogram field;
#include "engine/stats.def"
    int pages_used[EK_PAGE_KINDS], pages_cached[EK_PAGE_KINDS], pages_total[EK_PAGE_KINDS];
    bool shared; /* there is a shared server */
} ek_engine_stats;
/* Reports of the pages that the prefix cache holds, for one reader, which must end before ek_engine_close. NULL without
 * tell_held or without a cache. */
ek_held_queue *ek_engine_held(const ek_engine *e);
void ek_engine_stats_read(const ek_engine *e, ek_engine_stats *out); /* any thread */

/* Of the running requests: *all prompt tokens, and *done of them computed or cached. Call it between steps, on the
 * engine's thread. */
void ek_engine_reading(const ek_engine *e, int *done, int *all);

/* Whether the executor can no longer compute, and the reason (any thread). Running requests end with an error in the
 * next step at the latest, and ek_engine_submit refuses new ones. */
bool ek_engine_broken(const ek_engine *e, char *why, size_t room);

#endif
