/* Resumable streams. Each event of a stream carries a state. A body with the client's merged state makes this server,
 * or another one with the same model, continue after that event.
 *
 *   {"evenkeel": {"resume": {"id": …, "created": …, "seed": …, "cached": …, "at": 2, "tokens": [9, 4], "events": 1,
 *                            "digest": "…", "logits": "…"}}}
 *
 * tokens: those since the previous event; at: the number of all tokens. events: the event's number among those of the
 * last token, so that a stream can continue after every event. id, created, seed and cached stand in the first event. A
 * client merges the objects, later members over earlier ones, and appends tokens.
 *
 * The digest is a chain over everything that decides the reply (ek_resume_begin), the seed and the tokens. It detects
 * lost or changed parts and is no secret. A made-up state harms only its client's own reply. */
#ifndef EK_SERVE_RESUME_H
#define EK_SERVE_RESUME_H

#include <jansson.h>

#include "chat/turn.h"

enum { EK_RESUME_ID = 64 };

/* The state in a body. Zero-initialise; ek_resume_fini when done. */
typedef struct ek_resume {
    bool on;       /* the stream's events carry states */
    bool wished;   /* a header, not the body, asks for states: on if possible */
    ek_ids tokens; /* the reply's tokens so far; empty: the reply begins */
    int events;    /* events of the last token that the client has */
    char id[EK_RESUME_ID];
    int64_t created;
    int cached, cached_media[2]; /* cached prompt tokens when the reply began: all; of images and of sounds */
    bool has_seed, has_logits;
    uint64_t seed, digest, logits;
    uint64_t begin;   /* ek_resume_begin, known with the prompt */
    uint64_t before;  /* a resumed reply: the chain before its last token */
    ek_bounds bounds; /* a resumed reply: has accepted all tokens except the last */
} ek_resume;

/* v: true, false, or an object as above with all tokens. EINVAL with a sentence that begins with the field. Takes
 * memory only for tokens of 0 to n_vocab - 1, fewer than ctx_tokens. */
ek_err ek_resume_read(ek_resume *r, const json_t *v, int n_vocab, int ctx_tokens);
void ek_resume_fini(ek_resume *r);

/* The chain before a reply's seed: path, numerics (identity), prompt and every option that decides its tokens. form:
 * the grammar's source (chat/bounds.h), or "". */
uint64_t ek_resume_begin(const char *path, const char *identity, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                         const char *form);
/* Adds the seed; 0 for a reply that draws nothing. */
uint64_t ek_resume_seed(uint64_t begin, const ek_sampling *s);
uint64_t ek_resume_token(uint64_t chain, int32_t token);
/* Checks that r's tokens can follow prompt, and their digest, form and limits. On success makes r->before and
 * r->bounds, which borrow o's grammar and m. o->sampling has the reply's seed. EINVAL, ETOOLONG, ECANCELLED. */
ek_err ek_resume_check(ek_resume *r, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                       int n_vocab, int ctx_tokens);

/* The resumed part for the turn; n 0: the reply begins. Borrowed from r, except the bounds, which the turn takes over.
 */
ek_turn_resumed ek_resume_turn(ek_resume *r);

/* --- in a stream --- */

typedef struct ek_resume_marks {
    bool on;
    const char *id;
    int64_t created;
    const uint64_t *seed; /* the drawn seed, or NULL */
    uint64_t chain;
    ek_ids fresh; /* tokens that are in no event yet */
    int at, events;
    int skip;    /* events of token `at` that the client has */
    bool begun;  /* the first event was written */
    bool has;    /* the client has the next token */
    size_t from; /* offset of the current event */
} ek_resume_marks;

/* Starts at the beginning of the reply, or before the last token of r. */
void ek_resume_marks_init(ek_resume_marks *m, const ek_resume *r, const ek_sampling *s);
void ek_resume_marks_fini(ek_resume_marks *m);
/* The next token of the reply; following events belong to it. */
void ek_resume_marks_token(ek_resume_marks *m, int32_t token);

/* Called before and after each event is appended to out. end removes an event that the client has. */
void ek_resume_event_begin(ek_resume_marks *m, const ek_buf *out);
void ek_resume_event_end(ek_resume_marks *m, ek_buf *out);
/* Appends "resume":{…} as a member of the current event. r: the reply so far; logits: the digest so far, or NULL. */
void ek_resume_event_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits);
/* Appends the object alone: with the first event's members unless m has begun, and with the tokens in fresh, which it
 * empties. */
void ek_resume_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits);

#endif
