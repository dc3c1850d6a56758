/* A conversation, independent of any API: messages by role, each a list of blocks. The server's dialects and `run`
 * build it; a prompt is rendered from it. It owns its contents. Zero-initialise; free with ek_conversation_fini.
 *
 * Not synchronised: one thread writes; several may read while no thread writes. */
#ifndef EK_CHAT_CONVERSATION_H
#define EK_CHAT_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "media/part/part.h"
#include "text/template/chat.h"
#include "text/reply/reply.h"

typedef enum ek_role { EK_ROLE_SYSTEM, EK_ROLE_DEVELOPER, EK_ROLE_USER, EK_ROLE_ASSISTANT, EK_ROLE_TOOL } ek_role;

typedef enum ek_block_kind {
    EK_BLOCK_TEXT,
    EK_BLOCK_REASONING,
    EK_BLOCK_CALL, /* a tool call */
    /* A tool's result as a JSON value, in the message of the call; results as text are messages of EK_ROLE_TOOL. */
    EK_BLOCK_RESULT,
    EK_BLOCK_MEDIA, /* a picture, a sound, or a video as its frames */
    EK_BLOCK_TOOL   /* a tool that may be called from here on, with its declaration */
} ek_block_kind;

/* A picture or sound of a conversation, as received. */
typedef struct ek_media_file {
    ek_buf bytes;        /* of the file; for a video file, the first frame has them */
    ek_media *made;      /* NULL, or the decoded input: the frames of a video file; one reference */
    int number;          /* unique in the conversation; from 0, below ek_conversation.n_files */
    int budget;          /* soft tokens of a picture, ek_budget_known; 0: the prompt's default of its kind */
    double seconds;      /* of a frame: seconds since the video's beginning */
    ek_image_info image; /* of a picture: the result of ek_image_probe, if it was called; else zero */
} ek_media_file;

typedef struct ek_block {
    ek_block_kind kind;
    ek_buf text;     /* TEXT, REASONING: UTF-8, NUL allowed */
    ek_buf id, name; /* CALL: its id ("": none) and function. RESULT: its name, "" if unknown */
    /* CALL: the arguments, a JSON object, or a JSON string that is no object. RESULT: any value, NULL for undefined.
     * TOOL: the declaration in the template's form. */
    json_t *value;
    ek_part_kind media;   /* MEDIA: its kind */
    ek_media_file *files; /* MEDIA: one file, or a video's frames in order; owned. None: a bare placeholder */
    int n_files;
    bool cut; /* CALL: truncated while it was written; without a result it was never made */
} ek_block;

typedef struct ek_message {
    ek_role role;
    /* The content was a list of parts. The template writes a list differently from a text: it strips each part by
     * itself. */
    bool parts;
    ek_buf call_id, name; /* TOOL: id of the answered call, and the function; "" if unknown */
    ek_block *blocks;     /* in order */
    int n_blocks, cap_blocks;
} ek_message;

typedef struct ek_conversation {
    ek_message *messages;
    int n_messages, cap_messages;
    int n_files;                      /* number of given file numbers */
    int n_images, n_sounds, n_frames; /* present files of each kind */
} ek_conversation;

/* Appends an empty message; the pointer is valid until the next call. */
ek_message *ek_conversation_add(ek_conversation *c, ek_role role);
/* Appends an empty block; the pointer is valid until the next call. */
ek_block *ek_message_add(ek_message *m, ek_block_kind kind);
/* Appends a block of kind TEXT or REASONING. */
void ek_message_text(ek_message *m, ek_block_kind kind, const char *text, size_t n);
/* Appends a block of kind MEDIA with n_files empty files to m, which is or will be a message of c. The pointer is valid
 * until the next block is added. */
ek_block *ek_conversation_media(ek_conversation *c, ek_message *m, ek_part_kind kind, int n_files);
/* Appends *m, which is emptied, to c. */
void ek_conversation_take(ek_conversation *c, ek_message *m);
/* Exchanges message i of c with one outside all conversations. */
void ek_conversation_exchange(ek_conversation *c, int i, ek_message *other);
/* Frees a message outside all conversations. */
void ek_message_fini(ek_message *m);
/* Appends the answer a as a message of the assistant: reasoning, text, calls. The id of call i is
 * ek_call_id("call_", request, i). */
void ek_conversation_answer(ek_conversation *c, const ek_answer *a, const char *request);
/* An estimate of the bytes of text in a prompt of c and tools, rather too high than too low. Files do not count. */
size_t ek_conversation_bytes(const ek_conversation *c, const json_t *tools);
/* Removes every message from index n_messages on. */
void ek_conversation_cut(ek_conversation *c, int n_messages);
void ek_conversation_fini(ek_conversation *c);

#endif
