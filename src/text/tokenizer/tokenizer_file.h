/* Streaming JSON reader for tokenizer.json, which is too big to parse into a tree (Gemma 4: 262144 pieces and half
 * a million merges). Errors: EPARSE with the byte offset, and those of ek_json_read where a value is parsed. Inside
 * src/text. */
#ifndef EK_TEXT_TOKENIZER_FILE_H
#define EK_TEXT_TOKENIZER_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_cursor {
    const char *text;
    size_t n, at;
} ek_cursor;

ek_err ek_cursor_fail(const ek_cursor *c, const char *what); /* EPARSE with the byte */
int ek_cursor_peek(ek_cursor *c);                            /* the next byte after white space; -1 at the end */
ek_err ek_cursor_expect(ek_cursor *c, char expected);
/* Appends the string's value to out. */
ek_err ek_cursor_string(ek_cursor *c, ek_buf *out);
ek_err ek_cursor_int(ek_cursor *c, int64_t *out);
/* Skips the next value without building it; *from and *n are its extent. */
ek_err ek_cursor_skip(ek_cursor *c, const char **from, size_t *n);
ek_err ek_cursor_tree(ek_cursor *c, json_t **out); /* the next value as a tree */
/* Steps through an object or array: call after the opening bracket was read. *more is false once close was read.
 * *first is true before the first member, and is cleared here. */
ek_err ek_cursor_next(ek_cursor *c, char close, bool *first, bool *more);

#endif
