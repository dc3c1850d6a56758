/* A turn: one reply of the model, from the prompt's tokens through the engine to text, reasoning and tool calls,
 * with its finish reason and its digest. The server has one turn per choice, `run` one per answer.
 *
 * Threads: the engine's thread gets each token and posts it as news (ek_turn_news); everything else belongs to the
 * thread that owns the turn, which passes the news to ek_turn_feed. Both may be the same thread. The owner has to
 * keep the turn open while ek_turn_live. */
#ifndef EK_CHAT_TURN_H
#define EK_CHAT_TURN_H

#include "base/buf.h"
#include "base/hash/rng.h"
#include "chat/bounds.h"
#include "chat/loops.h"
#include "chat/prompt.h"
#include "chat/record.h"
#include "engine/engine.h"
#include "engine/sample/logprobs.h"
#include "receipts/tree.h"
#include "replies/replies.h"
#include "text/grammar/grammar.h"
#include "text/reply/reply.h"

#include <stdint.h>

typedef struct ek_turn ek_turn;

/* A reply that began in another turn, maybe of another process, and goes on in this one as if it had never stopped. The
 * tokens before the last one are read with the prompt; the last one is sampled again, and has to be the same. */
typedef struct ek_turn_resumed {
    const int32_t *tokens;                      /* of the reply so far; copied */
    int n;                                      /* 1 and up */
    int n_cached, n_images_kept, n_sounds_kept; /* what the first turn took from caches: results say it */
    const uint64_t *digest; /* what ek_turn_result.digest was then, to be compared (opts.digest); NULL: unknown */
    ek_bounds *bounds;      /* NULL, or those of the reply, which accepted the tokens before the last one: taken over */
} ek_turn_resumed;

/* What a turn has to do with the store of replies. */
typedef struct ek_turn_stored {
    ek_replies *replies;       /* NULL: nothing; borrowed until ek_turn_close */
    ek_reply_key key, content; /* of ek_turn_key, with and without owner and salt */
    uint64_t owner;
    ek_reply_record *found; /* what the store has; NULL: nothing. The turn takes a reference */
    bool looked_up;         /* found says whether it has something */
    bool keep;              /* what is sampled goes to the store */
    int ctx_tokens;         /* ek_engine_ctx */
    const char *ask;        /* for a cassette, what is asked; copied; NULL: it is not kept */
    size_t n_ask;
} ek_turn_stored;

typedef struct ek_turn_opts {
    const json_t *tools;       /* borrowed until ek_turn_close; as in the prompt, or NULL */
    bool tools_active;         /* calls are parsed: tools are given and not switched off */
    bool one_call;             /* the turn ends after its first call */
    const ek_grammar *grammar; /* what the reply must be, made with the model's vocab; borrowed until ek_turn_close.
                                  NULL: anything */
    const char *form; /* for the record: what the grammar was made of (chat/bounds.h), or NULL; borrowed likewise */
    bool same_form;   /* for the record: the form is known from the request's first turn; form is NULL then */
    int max_thinking; /* maximum tokens of thoughts, their markers' header included; 0: no limit (chat/bounds.h) */
    bool ignore_eos;
    bool digest;                    /* hash the logits of every token */
    bool receipt;                   /* keep the reply's tokens and the roots of their rows (receipts/tree.h) */
    ek_record_mode record;          /* what is kept for ek_turn_take_record */
    bool plain;                     /* a continued text: all of it is content, whatever special tokens stand in it */
    bool show_special;              /* plain: special tokens are written as their text; otherwise they are left out */
    bool logprobs, prompt_logprobs; /* of content tokens; of all prompt tokens */
    int n_top;                      /* with either: how many of the most likely tokens, 0 .. EK_LOGPROBS_MAX */
    int max_tokens;                 /* maximum tokens of the reply, 0 and up; the context may end it earlier */
    uint64_t client;                /* ek_request_opts.client */
    uint64_t cache_owner;           /* ek_request_opts.cache_owner */
    uint64_t cache_salt;            /* only turns of one salt share cached prefixes */
    float min_cached;               /* ek_request_opts.min_cached */
    bool publish;                   /* ek_request_opts.publish */
    const char *cache_salt_text;    /* ek_request_opts; borrowed as the bias below */
    size_t cache_salt_len;
    int choice;                      /* which of several replies to one prompt: 0 draws with the seed itself */
    ek_sampling sampling;            /* bias: borrowed until ek_turn_submit returns, with stored until
                                        ek_turn_close: it may be submitted again */
    const ek_turn_resumed *resumed;  /* NULL: the reply begins; borrowed until ek_turn_open returns */
    const ek_turn_stored *stored;    /* NULL: nothing; not with resumed; borrowed until ek_turn_open returns */
    const ek_past_calls *past_calls; /* of the conversation; NULL: none. Borrowed until ek_turn_close */
    bool stop_loops;                 /* the turn ends where it loops (chat/loops.h) */
    const char *stop[EK_STOP_MAX];   /* stop strings, for visible text; borrowed until ek_turn_open returns */
    size_t stop_len[EK_STOP_MAX];
    int n_stop;
} ek_turn_opts;

typedef enum ek_turn_end {
    EK_END_NONE,        /* the turn has not ended */
    EK_END_STOP,        /* the model ended its turn */
    EK_END_CALLS,       /* the model ended its turn with at least one call */
    EK_END_STOP_STRING, /* a stop string was found */
    EK_END_MAX_TOKENS,
    EK_END_CONTEXT,  /* the context is full */
    EK_END_LOOP,     /* stop_loops: it repeated itself */
    EK_END_UNCACHED, /* less of the prompt was cached than min_cached: nothing was computed */
    EK_END_CANCELLED,
    EK_END_ERROR
} ek_turn_end;

/* The log-probabilities of a content token. */
typedef struct ek_turn_logprobs {
    ek_logprobs at;
    size_t from; /* its first byte in the content, if that is visible: a token that lies behind a stop string, or is
                    held back, begins at or behind the content's end */
} ek_turn_logprobs;

/* The reply so far. */
typedef struct ek_turn_result {
    ek_turn_end end;
    int stop_string;                  /* EK_END_STOP_STRING: its index */
    ek_err err;                       /* EK_END_ERROR: its code */
    char *error;                      /* EK_END_ERROR: its sentence; otherwise NULL */
    ek_answer answer;                 /* the sum of the sink's events */
    int n_prompt, n_cached;           /* prompt tokens; of these, taken from a cache */
    int n_images, n_sounds;           /* of n_prompt: tokens of pictures, frames of videos included, and of sounds */
    int n_images_kept, n_sounds_kept; /* of these, those that nothing was encoded for: ek_event */
    int n_tokens;                     /* of the reply, stop tokens included */
    int n_reasoning;                  /* of n_tokens: reasoning */
    ek_loop_kind loop;                /* the first that was found */
    int loop_at, loop_period;         /* of n_tokens, when it was; of tokens: their period */
    int n_malformed;                  /* malformed calls, returned as text */
    ek_turn_logprobs *logprobs;       /* of the content's tokens, in order, if asked for */
    int n_logprobs;
    const ek_logprobs *prompt_logprobs; /* n_prompt, from the first token of the reply on; the first has none (its
                                           n_top is -1). NULL unless asked for */
    uint64_t digest;                    /* of the logits that the n_tokens were taken from; 0 unless asked for */
    ek_ids tokens;                      /* the n_tokens, and the root of the row of each; empty unless asked for */
    ek_buf roots;                       /* ek_hash */
} ek_turn_result;

/* Opens a turn. ek_turn_feed calls sink with content (only text that is certain to be visible; stop strings are
 * removed), reasoning and calls as they come. m and the turn's tools are borrowed until ek_turn_close. EINVAL for stop
 * strings beyond the limits of text/reply/reply.h. */
ek_err ek_turn_open(ek_turn **out, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *opts,
                    ek_reply_sink_fn *sink, void *arg);
/* Not while ek_turn_live. NULL is fine. */
void ek_turn_close(ek_turn *t);

/* An event of the engine about a turn: a token, an end, or both. */
typedef struct ek_turn_news {
    void *user;    /* as given to ek_turn_submit */
    bool wakes;    /* for ek_turn_awake, and nothing else */
    int32_t token; /* -1: none */
    ek_finish finish;
    ek_err err;       /* EK_FINISH_ERROR: its code */
    const char *text; /* EK_FINISH_ERROR: its sentence, valid during the call; otherwise NULL */
    int n_prompt, n_cached, n_images_kept, n_sounds_kept;
    uint64_t digest;      /* of the logits so far, if asked for */
    ek_hash root;         /* of the token's row, if asked for */
    ek_logprobs logprobs; /* of the token, if asked for */
} ek_turn_news;

/* Called on the engine's thread, inside a step. */
typedef void ek_turn_post_fn(void *arg, const ek_turn_news *news);

/* The content key of a reply to prompt (replies/key.h). form: the text that the grammar was made of; NULL: there is no
 * grammar. ask: gets what was asked (replies/ask.h), unless it is NULL. Any thread. */
void ek_turn_key(ek_reply_key *out, ek_buf *ask, const char *identity, const ek_chat_model *m,
                 const ek_turn_prompt *prompt, const ek_turn_opts *opts, const char *form);
/* ek_replies_nearest of that. */
void ek_turn_nearest(ek_buf *out, const ek_replies *r, const ek_chat_model *m, const ek_turn_prompt *prompt,
                     const ek_turn_opts *opts, const char *form);
/* The seed that choice i of several replies to one prompt draws with. */
static inline uint64_t ek_choice_seed(uint64_t seed, int i)
{
    return i > 0 ? ek_mix64(seed + 0x9e3779b97f4a7c15u * (uint64_t)i) : seed;
}
/* The options of the engine's request: with the bias that this turn adds, and the seed of its choice. bias: room for
 * n_bias + 1. */
ek_sampling ek_turn_sampling(const ek_chat_model *m, const ek_turn_opts *opts, ek_logit_bias *bias);
/* What the store had, borrowed until ek_turn_close; NULL: nothing. */
ek_reply_record *ek_turn_stored_record(const ek_turn *t);
/* How much of the reply the store has: all (the engine is not asked), a part, or nothing. From ek_turn_open on; a miss
 * becomes a part in ek_turn_submit where another turn computes the reply. */
ek_reply_outcome ek_turn_outcome(const ek_turn *t);
/* The news of the next token that the store has, for ek_turn_feed; false: there is none, the engine's follow. After
 * ek_turn_submit, before the engine's. */
bool ek_turn_next_stored(ek_turn *t, ek_turn_news *news);
bool ek_turn_has_stored(const ek_turn *t);
int ek_turn_stored_tokens(const ek_turn *t); /* that it has given so far */

/* Hands the turn to the engine, which copies prompt, unless the store has the whole reply, or another turn of the store
 * computes the same one: its tokens are this one's then, and cancelling it harms nobody else. Once per turn. Errors as
 * of ek_engine_submit; the turn is then not live. */
ek_err ek_turn_submit(ek_turn *t, ek_engine *e, const ek_turn_prompt *prompt, ek_turn_post_fn *post, void *arg,
                      void *user);
/* News that wake are of a turn whose reply another one computes: there are tokens for ek_turn_next_stored, or that one
 * has ended, and this one computes the rest. Errors as of ek_turn_submit: nothing follows then. */
ek_err ek_turn_awake(ek_turn *t);
/* How far the engine has read the prompt: tokens that were cached, and all that are computed or cached. */
void ek_turn_reading(ek_turn *t, int *cached, int *done);
/* Whether the engine will still post news. */
bool ek_turn_live(const ek_turn *t);
/* Processes news, in the order in which they were posted. After the end of the turn they only clear
 * ek_turn_live. A turn that ends before its request (a stop string, the first call was enough) cancels
 * the request. A stored reply that is read again, and is not what the model gives, is dropped, and the turn submits its
 * request anew: its outcome is a miss then. */
void ek_turn_feed(ek_turn *t, const ek_turn_news *news);
/* Processes the next token of a reply that goes on, from before this turn; false when none is left. Once news with a
 * token came, and before they are processed; ek_turn_feed does it for an owner that does not. The turn ends with EINVAL
 * where the reply ended among them. */
bool ek_turn_replay(ek_turn *t);
/* Asks the engine to end the request; the end comes as news, and the tokens until then are the answer. */
void ek_turn_cancel(ek_turn *t);
/* Ends the turn at once with EK_END_CANCELLED, unless it has ended; for a client that is gone. */
void ek_turn_abandon(ek_turn *t);

/* Borrowed; valid until ek_turn_close. */
const ek_turn_result *ek_turn_result_of(const ek_turn *t);
/* What opts.record asked for, for ek_record_fini; the turn keeps none of it. Mode NONE before ek_turn_submit. */
ek_record ek_turn_take_record(ek_turn *t);

/* The line of `--verbose=cache`: how much of a prompt came from the prefix cache, and where and by what it left what is
 * cached. */

/* Appends, without a newline: counts, and if an earlier prompt went on differently: position, message (the n-th turn
 * of the prompt, from 1), both tokens and the text around the place, in the prompt and in the cache. */
void ek_cache_note(ek_buf *out, const ek_chat_model *m, const ek_cache_report *r);

#endif
