/* Anthropic's dialect from inside. Inside src/serve. */
#ifndef EK_SERVE_ANTHROPIC_H
#define EK_SERVE_ANTHROPIC_H

#include "serve/api/dialect.h"
#include "serve/store/response_store.h"

#define EK_ANTHROPIC_ID "msg_" /* the prefix of replies' ids */

/* A request's data for its reply: ek_api_request.own. */
typedef struct ek_anthropic {
    bool compacting;    /* the reply is a block of type compaction */
    bool omit_thinking; /* thinking.display "omitted": thinking blocks have their text only in the signature */
    ek_blocks blocks;   /* of the stream so far */
    bool managed;       /* the request has context_management */
    const struct ek_context *context; /* the request's; NULL: none */
    ek_api_summary *summary;          /* replaces the conversation; NULL: none */
    /* For a thread: the store of its reply (NULL: no thread), the request's messages as a JSON list, and the continued
     * id. */
    ek_response_store *store;
    uint64_t owner;
    ek_buf input;
    char *previous;
} ek_anthropic;

/* *whole: the body, or if it continues a thread, a body with the whole conversation; a new reference, also after a
 * failure. EINVAL; ENOTFOUND with r->param "thread.previous_message_id"; errors of limits->count. */
ek_err ek_anthropic_thread(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t **whole);
/* Keeps an ended reply if its request belongs to a thread. */
void ek_anthropic_thread_keep(const ek_api_reply *r);

/* Reads `system` and `messages` into r->conversation. If a message has tool results and text, the results come first,
 * where the chat template expects them. EINVAL "messages[I]: …" with r->param. */
ek_err ek_anthropic_messages(ek_api_request *r, const json_t *body, const ek_api_limits *limits);

/* Reads context_management after the conversation; compacts: a summary may be requested. ek_anthropic_put_edits appends
 * the reply's member about applied edits. */
ek_err ek_anthropic_context(ek_api_request *r, const json_t *body, const ek_api_limits *limits, bool compacts);
void ek_anthropic_put_edits(ek_buf *out, const ek_anthropic *own);
/* Whether the reply is a summary alone. */
bool ek_anthropic_compacts(const ek_anthropic *own);

/* Converts an element of `tools` to the template's form: a new reference in *tool, which is NULL before. EINVAL with
 * r->param. */
ek_err ek_anthropic_tool(ek_api_request *r, const json_t *t, json_t **tool);

/* ek_dialect.refused: adds the token that makes Claude Code drop the block. */
ek_err ek_anthropic_refused(ek_err err, ek_part_kind kind);

/* Appends the list of an ended reply's blocks. */
void ek_anthropic_put_content(ek_buf *out, const ek_api_reply *r);
/* As in ek_dialect. */
ek_err ek_anthropic_read(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
void ek_anthropic_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

#endif
