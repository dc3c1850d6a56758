/* Replies of the chat completions API: the whole object, the chunks of a stream in the order
 * that strict clients insist on, and errors. Pure writers into a buffer. */
#ifndef EK_SERVE_CHAT_REPLY_H
#define EK_SERVE_CHAT_REPLY_H

#include "base/buf.h"
#include "base/err.h"
#include "text/reply.h"

typedef struct ek_chat_head {
    const char *id, *model, *fingerprint;
    int64_t created;    /* seconds since 1970 */
    bool include_usage; /* of a stream: every chunk then has a usage member */
} ek_chat_head;

typedef struct ek_chat_usage {
    int64_t prompt, cached, completion, reasoning;
} ek_chat_usage;

/* One data: frame each. A stream is: role; deltas; finish, for every choice; usage if asked
 * for; done. */
void ek_chat_chunk_role(ek_buf *out, const ek_chat_head *h, int choice);
/* content, reasoning and call events; others write nothing. */
void ek_chat_chunk_delta(ek_buf *out, const ek_chat_head *h, int choice, const ek_reply_event *e);
/* digest: 16 hex digits or NULL. error: NULL, or the sentence of a failure, which puts an
 * error object beside the choice so that clients raise it. */
void ek_chat_chunk_finish(ek_buf *out, const ek_chat_head *h, int choice, const char *reason, const char *digest,
                          const char *error);
void ek_chat_chunk_usage(ek_buf *out, const ek_chat_head *h, const ek_chat_usage *u);
void ek_chat_done(ek_buf *out);

typedef struct ek_chat_choice {
    const ek_answer *answer;
    const char *finish;
} ek_chat_choice;

void ek_chat_whole(ek_buf *out, const ek_chat_head *h, const ek_chat_choice *choices, int n, const ek_chat_usage *u,
                   const char *digest);

/* {"error": {message, type, param, code}}; param and code may be NULL. */
void ek_error_body(ek_buf *out, int status, const char *message, const char *param, const char *code);

#endif
