/* Divides a reply's events into blocks, for APIs whose streams open and close them: runs of thinking, runs of text, and
 * calls, one after the other. A text of white space alone is no block. Inside src/serve. */
#ifndef EK_SERVE_BLOCKS_H
#define EK_SERVE_BLOCKS_H

#include "serve/api/dialect.h"

/* Kinds of blocks are EK_REPLY_CONTENT, EK_REPLY_REASONING and EK_REPLY_CALL_START. */
typedef struct ek_blocks {
    int n;         /* begun so far */
    int open;      /* kind of the open block; -1: none. Set by ek_blocks_init */
    ek_buf blanks; /* white space that may begin a text */
} ek_blocks;

/* What a dialect writes for each; ctx is the caller's. */
typedef struct ek_block_writer {
    /* e: of a call its start; otherwise its kind alone counts. */
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

/* Is this part of an answer a block? The parts that are, in order, are the blocks of the stream. */
bool ek_blocks_has(const ek_answer *a, const ek_answer_part *p);
/* The last part of a kind; NULL without. While a block is open, or being closed, that is its part. */
const ek_answer_part *ek_blocks_last(const ek_answer *a, ek_reply_kind kind);

#endif
