/* Divides a reply's events into consecutive blocks, for APIs whose streams open and close them: runs of thinking, runs
 * of text, and calls. White space alone is no block. Inside src/serve. */
#ifndef EK_SERVE_BLOCKS_H
#define EK_SERVE_BLOCKS_H

#include "serve/api/dialect.h"

/* Kinds of blocks are EK_REPLY_CONTENT, EK_REPLY_REASONING and EK_REPLY_CALL_START. */
typedef struct ek_blocks {
    int n;         /* begun so far */
    int open;      /* kind of the open block; -1: none. Set by ek_blocks_init */
    ek_buf blanks; /* white space that may begin a text */
} ek_blocks;

/* A dialect's writers; ctx is the caller's. */
typedef struct ek_block_writer {
    /* e: the start of a call; otherwise only its kind matters. */
    void (*open)(void *ctx, const ek_reply_event *e);
    /* A piece of the open block: text, or a call's arguments. */
    void (*piece)(void *ctx, const char *s, size_t n);
    /* The open call ends unfinished; closing would make its arguments a JSON object. close follows. */
    void (*cut)(void *ctx, const char *closing, size_t n);
    void (*close)(void *ctx); /* blocks->open is still set */
} ek_block_writer;

void ek_blocks_init(ek_blocks *b);
void ek_blocks_fini(ek_blocks *b);
void ek_blocks_event(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, void *ctx);
void ek_blocks_end(ek_blocks *b, const ek_block_writer *w, void *ctx); /* closes the open one */

/* Whether this part of an answer is a block. These parts, in order, are the stream's blocks. */
bool ek_blocks_has(const ek_answer *a, const ek_answer_part *p);
/* The last part of a kind, or NULL. It is the part of an open or closing block. */
const ek_answer_part *ek_blocks_last(const ek_answer *a, ek_reply_kind kind);

#endif
