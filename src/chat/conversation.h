/* A conversation, independent of any API: messages by role, each a list of blocks. The dialects of
 * the server and `run` build it; a prompt is rendered from it. It owns its contents. Zero-initialise; free with
 * ek_conversation_fini.
 *
 * No locks: one thread writes; several may read while nobody writes. */
#ifndef EK_CHAT_CONVERSATION_H
#define EK_CHAT_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "text/template/chat.h"
#include "text/reply/reply.h"

typedef enum ek_role { EK_ROLE_SYSTEM, EK_ROLE_DEVELOPER, EK_ROLE_USER, EK_ROLE_ASSISTANT, EK_ROLE_TOOL } ek_role;

typedef enum ek_block_kind {
    EK_BLOCK_TEXT,
    EK_BLOCK_REASONING,
    EK_BLOCK_CALL,   /* a tool call */
    EK_BLOCK_RESULT, /* a tool's result as a JSON value, in the message of the call; results as text are
                        messages of EK_ROLE_TOOL */
    EK_BLOCK_MEDIA,  /* a placeholder */
    EK_BLOCK_TOOL    /* a tool that may be called from here on, whose declaration stands here */
} ek_block_kind;

typedef struct ek_block {
    ek_block_kind kind;
    ek_buf text;         /* TEXT, REASONING: UTF-8, NUL allowed */
    ek_buf id, name;     /* CALL: its id (empty: none) and function. RESULT: name, empty if unknown */
    json_t *value;       /* CALL: the arguments, a JSON object, or a JSON text that is none. RESULT: any value, NULL for
                            undefined. TOOL: the declaration as the template takes it */
    ek_media_kind media; /* MEDIA */
    bool cut;            /* CALL: it was cut off while it was written; without a result it was never made */
} ek_block;

typedef struct ek_message {
    ek_role role;
    bool parts;           /* the content was a list of parts: the template writes a list differently
                             from a text (it strips each part by itself) */
    ek_buf call_id, name; /* TOOL: id of the call it answers, and the function; empty if unknown */
    ek_block *blocks;     /* in order */
    int n_blocks, cap_blocks;
} ek_message;

typedef struct ek_conversation {
    ek_message *messages;
    int n_messages, cap_messages;
} ek_conversation;

/* Appends an empty message; the pointer is valid until the next one is added. */
ek_message *ek_conversation_add(ek_conversation *c, ek_role role);
/* Appends an empty block; the pointer is valid until the next one is added. */
ek_block *ek_message_add(ek_message *m, ek_block_kind kind);
/* Appends a block of kind TEXT or REASONING. */
void ek_message_text(ek_message *m, ek_block_kind kind, const char *text, size_t n);
/* Appends the answer a as a message of the assistant: reasoning, text, calls. The id of call i is
 * ek_call_id("call_", request, i). */
void ek_conversation_answer(ek_conversation *c, const ek_answer *a, const char *request);
/* About how many bytes of text a prompt of c and tools has; rather more than less. */
size_t ek_conversation_bytes(const ek_conversation *c, const json_t *tools);
/* Removes every message from index n_messages on. */
void ek_conversation_cut(ek_conversation *c, int n_messages);
void ek_conversation_fini(ek_conversation *c);

#endif
