/* Streams that continue: each event of a stream says what a client has to send back so that this server, or another one
 * with the same model, goes on behind it; and a body says where its reply goes on.
 *
 *   {"evenkeel": {"resume": {"id": …, "created": …, "seed": …, "cached": …, "at": 2, "tokens": [9, 4], "events": 1,
 *                            "digest": "…", "logits": "…"}}}
 *
 * tokens are those since the event before; at counts all of the reply. events: which of the events that the last token
 * caused this is, so that a stream goes on behind every event, also where a token makes several. The first four stand
 * in the first event. A client merges what it gets, one object over the other, but for tokens, which it appends.
 *
 * The digest chains what decides on the reply (ek_resume_begin), the seed and the tokens: it finds what was lost or
 * changed on the way, and is no secret. What a client makes up harms its own reply alone. */
#ifndef EK_SERVE_RESUME_H
#define EK_SERVE_RESUME_H

#include <jansson.h>

#include "chat/turn.h"

enum { EK_RESUME_ID = 64 };

/* What a body says. Zero-initialise; ek_resume_fini when done. */
typedef struct ek_resume {
    bool on;       /* the stream's events say how it goes on */
    bool wished;   /* by a header alone: on where it can be */
    ek_ids tokens; /* of the reply so far; empty: it begins */
    int events;    /* that the last one caused and the client has */
    char id[EK_RESUME_ID];
    int64_t created;
    int cached, cached_media[2]; /* of the prompt, when the reply began: tokens; of images, of sounds */
    bool has_seed, has_logits;
    uint64_t seed, digest, logits;
    uint64_t begin;   /* ek_resume_begin, once the prompt is made */
    uint64_t before;  /* of a reply that goes on: the chain in front of its last token */
    ek_bounds bounds; /* likewise: accepted the tokens before the last one */
} ek_resume;

/* v: true, false, or an object as above with all tokens. EINVAL with a sentence that begins with the field. Takes
 * memory only for tokens of 0 to n_vocab - 1, fewer than ctx_tokens. */
ek_err ek_resume_read(ek_resume *r, const json_t *v, int n_vocab, int ctx_tokens);
void ek_resume_fini(ek_resume *r);

/* The chain in front of a reply's seed: path, numerics (identity), prompt and every option that decides on its tokens.
 * form: what the grammar was made of (chat/bounds.h), or "". */
uint64_t ek_resume_begin(const char *path, const char *identity, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                         const char *form);
/* With the seed: 0 for a reply that draws nothing. */
uint64_t ek_resume_seed(uint64_t begin, const ek_sampling *s);
uint64_t ek_resume_token(uint64_t chain, int32_t token);
/* Whether tokens can go on behind prompt, and all that the body says of them: digest, form, the limits of the reply. On
 * success r->before and bounds are made; grammar and m are borrowed by them. s: with the seed of the reply. EINVAL,
 * ETOOLONG, ECANCELLED. */
ek_err ek_resume_check(ek_resume *r, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                       int n_vocab, int ctx_tokens);

/* Where its turn goes on; n 0: it begins. Borrowed from r, whose bounds the turn takes over. */
ek_turn_resumed ek_resume_turn(ek_resume *r);

/* --- in a stream --- */

typedef struct ek_resume_marks {
    bool on;
    const char *id;
    int64_t created;
    const uint64_t *seed; /* that was drawn, or NULL */
    uint64_t chain;
    ek_ids fresh; /* tokens that no event has had */
    int at, events;
    int skip;    /* events of the token `at` that the client has */
    bool begun;  /* the first event is out */
    bool has;    /* the client has the next token */
    size_t from; /* of the event that is being written */
} ek_resume_marks;

/* At the beginning of the reply, or behind all but the last token of r. */
void ek_resume_marks_init(ek_resume_marks *m, const ek_resume *r, const ek_sampling *s);
void ek_resume_marks_fini(ek_resume_marks *m);
/* The next token of the reply; the events that follow are of it. */
void ek_resume_marks_token(ek_resume_marks *m, int32_t token);

/* Around an event that is appended to out, whatever it is. end removes one that the client has. */
void ek_resume_event_begin(ek_resume_marks *m, const ek_buf *out);
void ek_resume_event_end(ek_resume_marks *m, ek_buf *out);
/* Appends "resume":{…}, a member of the event that has begun. r: of the reply so far; logits: the digest so far, or
 * NULL. */
void ek_resume_event_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits);
/* That object alone: with what only the first one has unless m has begun, and the tokens in fresh, which it empties. */
void ek_resume_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits);

#endif
