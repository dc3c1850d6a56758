/* Questions for drafts, and their answers, between two servers (POST /v1/drafts): JSON, read by a strict reader that
 * builds no tree and allocates no memory.
 *
 *   {"vocabulary":"<16 hex digits>","session":"<1 to 32>","salt":"<1 to 16>","from":120,"max":8,"tokens":[5,17]}
 *   {"object":"draft","tokens":[9,2]}
 *
 * A question asks what follows all tokens of its session: the first `from` earlier ones, then `tokens`. Neither side
 * trusts the other: every number is checked here. Pure; any thread. */
#ifndef EK_TEXT_DRAFT_MESSAGE_H
#define EK_TEXT_DRAFT_MESSAGE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    EK_DRAFT_MESSAGE_MAX = 64,      /* tokens of an answer */
    EK_DRAFT_ANSWER_BYTES = 4 << 10 /* maximum bytes of an answer, white space included */
};

typedef struct ek_draft_question {
    char vocabulary[17];        /* lower-case hex digits; "" without */
    char session[33], salt[17]; /* the same */
    int from, max;              /* 0 and up; 1 to EK_DRAFT_MESSAGE_MAX */
    int32_t *tokens;            /* the caller's; ids below n_vocab */
    int n;                      /* 1 and up */
} ek_draft_question;

/* Reads n bytes into q, whose tokens have room for max_tokens. EPARSE with the position of the first wrong byte; EINVAL
 * for a missing member; ETOOLONG for more tokens. */
ek_err ek_draft_question_read(ek_draft_question *q, const char *text, size_t n, int max_tokens, int n_vocab);
void ek_draft_question_write(ek_buf *out, const ek_draft_question *q);

/* Reads an answer's tokens, all below n_vocab; returns their number, or -1 if it is no answer. */
int ek_draft_answer_read(int32_t out[EK_DRAFT_MESSAGE_MAX], const char *text, size_t n, int n_vocab);
void ek_draft_answer_write(ek_buf *out, const int32_t *tokens, int n);

#endif
