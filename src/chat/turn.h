/* A turn: one reply of the model, from the prompt's tokens through the engine to text, reasoning and tool calls, with
 * finish reason and digest. The server has one turn per choice, `run` one per answer.
 *
 * Threads: the engine's thread gets each token and posts it as news (ek_turn_news). Everything else belongs to the
 * thread that owns the turn, which passes the news to ek_turn_feed. Both may be the same thread. The owner keeps the
 * turn open while ek_turn_live. */
#ifndef EK_CHAT_TURN_H
#define EK_CHAT_TURN_H

#include "base/buf.h"
#include "base/hash/rng.h"
#include "chat/bounds.h"
#include "chat/loops.h"
#include "chat/prompt.h"
#include "engine/engine.h"
#include "engine/sample/sampler.h"
#include "receipts/tree.h"
#include "replies/replies.h"
#include "text/grammar/grammar.h"
#include "text/reply/reply.h"

#include <stdint.h>

/* --- a turn's record of its request, from which the request can be run again; for the server's journal --- */

typedef enum ek_record_mode {
    EK_RECORD_NONE,
    EK_RECORD_FACTS, /* counts, hash and options; no text */
    EK_RECORD_TOKENS /* also the tokens of prompt and reply, unless the prompt has pictures or sounds */
} ek_record_mode;

/* Zero-initialise; ek_record_fini when done. */
typedef struct ek_record {
    ek_record_mode mode;
    int n_prompt;
    uint64_t prompt_hash; /* of ek_prompt_hash, followed by each part's digest */
    int n_parts;          /* pictures and sounds; their bytes are not kept, so with any no tokens are kept either */
    int n_stored;         /* tokens of the reply that came from the store of replies */
    ek_ids prompt, reply; /* EK_RECORD_TOKENS: all of them; otherwise empty */
    ek_sampling sampling; /* the engine's: this turn's own seed; the record owns the bias */
    bool ignore_eos;
    bool forced;      /* a mask (chat/bounds.h), made of the next three fields, also restricted the tokens */
    bool thinking;    /* the prompt has thinking on */
    int max_thinking; /* 0: no limit */
    char *form;       /* EK_RECORD_TOKENS: the grammar's source (chat/bounds.h); owned; NULL: no grammar, or unknown */
    bool same_form;   /* the form equals that of the request's first reply, whose record holds it; form is NULL, or was
                         taken from that record */
    bool has_bounds;  /* EK_RECORD_TOKENS: the three fields are known, so the mask can be made again */
} ek_record;

/* The version of the definition below; lines of a journal name it. */
enum { EK_DIGEST_VERSION = 2 };

/* The digest of a reply chains the digests (ek_logits_digest) of its tokens' rows of logits. h: the chain so far, 0 at
 * first. */
uint64_t ek_digest_row(uint64_t h, uint64_t row);
uint64_t ek_prompt_hash(const int32_t *tokens, int n_tokens);
/* Copies the parts that r->mode asks for from a request about to be submitted. r: zeroed except mode. */
void ek_record_begin(ek_record *r, const ek_request_opts *request);
/* The same for the request's mask. form: NULL without a grammar, or with same_form. */
void ek_record_bounds(ek_record *r, const char *form, bool same_form, bool thinking, int max_thinking);
void ek_record_token(ek_record *r, int32_t token); /* the next one of the reply */
void ek_record_fini(ek_record *r);

/* --- the turn --- */

typedef struct ek_turn ek_turn;

/* A reply that began in another turn, maybe in another process, and continues in this one. Its tokens except the last
 * are read with the prompt; the last one is sampled again and has to be the same. */
typedef struct ek_turn_resumed {
    const int32_t *tokens;                      /* of the reply so far; copied */
    int n;                                      /* 1 and up */
    int n_cached, n_images_kept, n_sounds_kept; /* the first turn's counts, which results repeat */
    const uint64_t *digest; /* the first turn's ek_turn_result.digest, for comparison (opts.digest); NULL: unknown */
    ek_bounds *bounds;      /* the reply's bounds, which accepted all tokens except the last; taken over; or NULL */
} ek_turn_resumed;

/* A turn's use of the store of replies. */
typedef struct ek_turn_stored {
    ek_replies *replies;       /* NULL: no store; borrowed until ek_turn_close */
    ek_reply_key key, content; /* of ek_turn_key, with and without owner and salt */
    uint64_t owner;
    ek_reply_record *found; /* the stored reply; NULL: none. The turn takes a reference */
    bool looked_up;         /* found is the result of a lookup */
    bool keep;              /* sampled tokens go to the store */
    int ctx_tokens;         /* ek_engine_ctx */
    const char *ask;        /* the request, for cassettes (replies/ask.h); copied; NULL: it is not kept */
    size_t n_ask;
} ek_turn_stored;

typedef struct ek_turn_opts {
    const json_t *tools;       /* borrowed until ek_turn_close; as in the prompt, or NULL */
    bool tools_active;         /* calls are parsed: tools are given and not switched off */
    bool one_call;             /* the turn ends after its first call */
    const ek_grammar *grammar; /* the reply's grammar, made with the model's vocab; borrowed until ek_turn_close. NULL:
                                  any reply */
    const char *form;          /* for the record: the grammar's source (chat/bounds.h), or NULL; borrowed likewise */
    bool same_form;            /* for the record: the form is that of the request's first turn; form is NULL then */
    int max_thinking;          /* maximum tokens of thoughts, header included; 0: no limit (chat/bounds.h) */
    bool ignore_eos;
    bool digest;                    /* hash the logits of every token */
    bool receipt;                   /* keep the reply's tokens and the roots of their rows (receipts/tree.h) */
    ek_record_mode record;          /* contents of ek_turn_take_record */
    bool plain;                     /* a continued text: all of it is content, special tokens or not */
    bool show_special;              /* plain: writes special tokens as their text; otherwise leaves them out */
    bool logprobs, prompt_logprobs; /* of content tokens; of all prompt tokens */
    int n_top;                      /* with either: number of most likely tokens, 0 .. EK_LOGPROBS_MAX */
    int max_tokens;                 /* maximum tokens of the reply, 0 and up; the context may end it earlier */
    uint64_t client;                /* ek_request_opts.client */
    uint64_t cache_owner;           /* ek_request_opts.cache_owner */
    uint64_t cache_salt;            /* only turns of one salt share cached prefixes */
    float min_cached;               /* ek_request_opts.min_cached */
    bool publish;                   /* ek_request_opts.publish */
    const char *cache_salt_text;    /* ek_request_opts; borrowed as the bias below */
    size_t cache_salt_len;
    int choice;                      /* index among several replies to one prompt; 0 draws with the seed itself */
    ek_sampling sampling;            /* bias: borrowed until ek_turn_submit returns, or with stored until
                                        ek_turn_close, because the turn may be submitted again */
    const ek_turn_resumed *resumed;  /* NULL: the reply begins; borrowed until ek_turn_open returns */
    const ek_turn_stored *stored;    /* NULL: nothing; not with resumed; borrowed until ek_turn_open returns */
    const ek_past_calls *past_calls; /* of the conversation; NULL: none. Borrowed until ek_turn_close */
    bool stop_loops;                 /* a loop ends the turn (chat/loops.h) */
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
    EK_END_LOOP,     /* stop_loops: the reply repeated itself */
    EK_END_UNCACHED, /* less of the prompt was cached than min_cached: nothing was computed */
    EK_END_CANCELLED,
    EK_END_ERROR
} ek_turn_end;

/* The log-probabilities of a content token. */
typedef struct ek_turn_logprobs {
    ek_logprobs at;
    size_t from; /* offset of its first byte in the content. If the token follows a stop string or is held back, the
                    offset is the content's end or later */
} ek_turn_logprobs;

/* The reply so far. */
typedef struct ek_turn_result {
    ek_turn_end end;
    int stop_string;                  /* EK_END_STOP_STRING: its index */
    ek_err err;                       /* EK_END_ERROR: its code */
    char *error;                      /* EK_END_ERROR: its sentence; otherwise NULL */
    ek_answer answer;                 /* the sum of the sink's events */
    int n_prompt, n_cached;           /* prompt tokens; cached ones among them */
    int n_images, n_sounds;           /* prompt tokens of pictures (frames of videos included) and of sounds */
    int n_images_kept, n_sounds_kept; /* the part of these that needed no encoding (ek_event) */
    int n_tokens;                     /* of the reply, stop tokens included */
    int n_reasoning;                  /* reasoning tokens among n_tokens */
    ek_loop_kind loop;                /* the first loop */
    int loop_at, loop_period;         /* n_tokens when it was found; the period of repeated tokens */
    int n_malformed;                  /* malformed calls, returned as text */
    ek_turn_logprobs *logprobs;       /* of the content's tokens, in order, if asked for */
    int n_logprobs;
    const ek_logprobs *prompt_logprobs; /* n_prompt log-probabilities, known with the reply's first token; the first
                                           token has none (its n_top is -1). NULL unless asked for */
    uint64_t digest;                    /* of the logits of the n_tokens; 0 unless asked for */
    ek_ids tokens;                      /* the n_tokens; empty unless asked for */
    ek_buf roots;                       /* ek_hash, the root of each token's row; empty unless asked for */
} ek_turn_result;

/* Opens a turn. ek_turn_feed calls sink with content, reasoning and calls as they come. Content has only text that is
 * certain to be visible, without stop strings. m and the turn's tools are borrowed until ek_turn_close. EINVAL for stop
 * strings beyond the limits of text/reply/reply.h. */
ek_err ek_turn_open(ek_turn **out, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *opts,
                    ek_reply_sink_fn *sink, void *arg);
/* Not while ek_turn_live. NULL is allowed. */
void ek_turn_close(ek_turn *t);

/* An event of the engine about a turn: a token, an end, or both. */
typedef struct ek_turn_news {
    void *user;    /* as given to ek_turn_submit */
    bool wakes;    /* pass it to ek_turn_awake; the other fields mean nothing */
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

/* The content key of a reply to prompt (replies/ask.h). form: the grammar's source; NULL: there is no grammar. ask (may
 * be NULL) gets the request (replies/ask.h). Any thread. */
void ek_turn_key(ek_reply_key *out, ek_buf *ask, const char *identity, const ek_chat_model *m,
                 const ek_turn_prompt *prompt, const ek_turn_opts *opts, const char *form);
/* ek_replies_nearest of the same request. */
void ek_turn_nearest(ek_buf *out, const ek_replies *r, const ek_chat_model *m, const ek_turn_prompt *prompt,
                     const ek_turn_opts *opts, const char *form);
/* The seed of choice i of several replies to one prompt. */
static inline uint64_t ek_choice_seed(uint64_t seed, int i)
{
    return i > 0 ? ek_mix64(seed + 0x9e3779b97f4a7c15u * (uint64_t)i) : seed;
}
/* The sampling options of the engine's request, with this turn's additional bias and its choice's seed. bias has room
 * for n_bias + 1. */
ek_sampling ek_turn_sampling(const ek_chat_model *m, const ek_turn_opts *opts, ek_logit_bias *bias);
/* The stored reply, borrowed until ek_turn_close; NULL: there was none. */
ek_reply_record *ek_turn_stored_record(const ek_turn *t);
/* The stored part of the reply: all (the engine is not used), a part, or nothing. Known from ek_turn_open on; in
 * ek_turn_submit a miss becomes a part if another turn computes the reply. */
ek_reply_outcome ek_turn_outcome(const ek_turn *t);
/* The next stored token as news for ek_turn_feed; false: none is left, and the engine's news follow. Call it after
 * ek_turn_submit and before the engine's news. */
bool ek_turn_next_stored(ek_turn *t, ek_turn_news *news);
bool ek_turn_has_stored(const ek_turn *t);
int ek_turn_stored_tokens(const ek_turn *t); /* stored tokens given so far */

/* Submits the turn to the engine, which copies prompt; call it once per turn. If the store has the whole reply, the
 * engine is not used. If another turn computes the same reply, this one gets that turn's tokens; cancelling one does
 * not harm the other. Errors are those of ek_engine_submit; the turn is then not live. */
ek_err ek_turn_submit(ek_turn *t, ek_engine *e, const ek_turn_prompt *prompt, ek_turn_post_fn *post, void *arg,
                      void *user);
/* For news with `wakes`, when another turn computes the reply: either there are tokens for ek_turn_next_stored, or that
 * turn has ended and this one computes the rest. Errors as of ek_turn_submit; then nothing follows. */
ek_err ek_turn_awake(ek_turn *t);
/* The reading of the prompt: cached tokens, and all that are computed or cached. */
void ek_turn_reading(ek_turn *t, int *cached, int *done);
/* Whether the engine will still post news. */
bool ek_turn_live(const ek_turn *t);
/* Processes news in the order in which they were posted. After the end of the turn they only clear ek_turn_live. A turn
 * that ends before its request (by a stop string or with one_call) cancels the request. If the model contradicts a
 * stored reply that is read again, the reply is dropped and the turn submits its request anew; its outcome is then a
 * miss. */
void ek_turn_feed(ek_turn *t, const ek_turn_news *news);
/* Processes the next earlier token of a resumed reply; false: none is left. Call it when the first news with a token
 * have come and before they are processed; otherwise ek_turn_feed does it. The turn ends with EINVAL if the reply ends
 * among the earlier tokens. */
bool ek_turn_replay(ek_turn *t);
/* Asks the engine to end the request. The end comes as news; tokens until then belong to the answer. */
void ek_turn_cancel(ek_turn *t);
/* Ends the turn at once with EK_END_CANCELLED, unless it has ended; for clients that have left. */
void ek_turn_abandon(ek_turn *t);

/* Borrowed; valid until ek_turn_close. */
const ek_turn_result *ek_turn_result_of(const ek_turn *t);
/* The record that opts.record requested; the caller owns it and frees it by ek_record_fini. Mode NONE before
 * ek_turn_submit. */
ek_record ek_turn_take_record(ek_turn *t);

/* Appends the line of `--verbose=cache`, without a newline: the counts, and if an earlier prompt continued differently,
 * the position, the message (the n-th of the prompt, from 1), both tokens and the text around them in prompt and cache.
 */
void ek_cache_note(ek_buf *out, const ek_chat_model *m, const ek_cache_report *r);

#endif
