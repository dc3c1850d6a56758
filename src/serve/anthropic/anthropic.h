/* What the files of Anthropic's dialect share. Inside src/serve. */
#ifndef EK_SERVE_ANTHROPIC_H
#define EK_SERVE_ANTHROPIC_H

#include "serve/api/blocks.h"
#include "serve/store/response_store.h"

#define EK_ANTHROPIC_ID "msg_" /* what ids of replies begin with */

/* Of a request, for its reply: ek_api_request.own. */
typedef struct ek_anthropic {
    bool compacting;    /* the reply is a block of type compaction */
    bool omit_thinking; /* thinking.display "omitted": blocks of thinking carry their text only in the signature */
    ek_blocks blocks;   /* of the stream so far */
    bool managed;       /* the request has context_management, */
    const struct ek_context *context; /* which is that of the request; NULL: nothing is asked for */
    ek_api_summary *summary;          /* that stands for the conversation; NULL: none */
    /* Of a thread: where its reply is kept, NULL without; the request's messages as a JSON list; what they continue. */
    ek_response_store *store;
    uint64_t owner;
    ek_buf input;
    char *previous;
} ek_anthropic;

/* *whole: the body, or of one that continues a thread the body that has the whole conversation; a new reference, also
 * after a failure. EINVAL; ENOTFOUND with r->param "thread.previous_message_id"; what limits->count says. */
ek_err ek_anthropic_thread(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t **whole);
/* Keeps a reply that has ended, where its request is of a thread. */
void ek_anthropic_thread_keep(const ek_api_reply *r);

/* `system` and `messages` as r->conversation. Of the results of tools and the text in one message, the results come
 * first: that is where the chat template looks for them. EINVAL "messages[I]: …" with r->param. */
ek_err ek_anthropic_messages(ek_api_request *r, const json_t *body, const ek_api_limits *limits);

/* context_management, of a body whose conversation was read; compacts: a summary may be asked for. And the member of a
 * reply that says what was done. */
ek_err ek_anthropic_context(ek_api_request *r, const json_t *body, const ek_api_limits *limits, bool compacts);
void ek_anthropic_put_edits(ek_buf *out, const ek_anthropic *own);
/* Whether the reply is a summary, and nothing else. */
bool ek_anthropic_compacts(const ek_anthropic *own);

/* One element of `tools` as the template takes it, a new reference into *tool, which is NULL. EINVAL with r->param. */
ek_err ek_anthropic_tool(ek_api_request *r, const json_t *t, json_t **tool);

/* ek_dialect.refused: with the token that lets Claude Code drop the block. */
ek_err ek_anthropic_refused(ek_err err, ek_part_kind kind);

/* The list of the blocks of a reply that has ended. */
void ek_anthropic_put_content(ek_buf *out, const ek_api_reply *r);
/* The writers of a reply, as in ek_dialect. */
void ek_anthropic_begin(ek_buf *out, const ek_api_reply *r, int choice);
void ek_anthropic_event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e);
void ek_anthropic_finish(ek_buf *out, const ek_api_reply *r, int choice);
void ek_anthropic_end(ek_buf *out, const ek_api_reply *r);
void ek_anthropic_failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text);
void ek_anthropic_heartbeat(ek_buf *out);
void ek_anthropic_ping(ek_buf *out, const ek_api_progress *p); /* while the prompt is read */
void ek_anthropic_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

#endif
