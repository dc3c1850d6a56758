/* A line of a batch: one request in OpenAI's form {custom_id, method, url, body} or Anthropic's {custom_id, params},
 * and the line of its result. Pure: bytes in, bytes out. */
#ifndef EK_BATCH_LINE_H
#define EK_BATCH_LINE_H

#include "serve/api/dialect.h"

enum {
    EK_BATCH_LINE_MAX = 32 << 20, /* bytes; a longer line becomes an error */
    EK_BATCH_NAME_MAX = 512,      /* bytes of a custom_id */
    EK_BATCH_ID = 25              /* digits of an id and NUL */
};

typedef struct ek_batch_line {
    bool anthropic;            /* request and result have Anthropic's form */
    const ek_dialect *dialect; /* NULL: no valid request, for the reason in why */
    char *name;                /* custom_id, n_name bytes; owned; NULL: none was readable */
    size_t n_name;
    const char *body; /* points into the line */
    size_t n_body;
    char why[256];
} ek_batch_line;

/* Reads a line without its newline. Unknown members are ignored. Of the body only brackets and size are checked: at
 * most 1,000,000 values and 65,536 objects in a list, the limits of a server. */
void ek_batch_line_read(ek_batch_line *out, const char *s, size_t n);
/* The result for a line of n bytes, too long to be read. */
void ek_batch_line_too_long(ek_batch_line *out, uint64_t n);
void ek_batch_line_fini(ek_batch_line *l);

/* The first 8 bytes of a SHA-256, given as digits, as a number, for checks of files. */
uint64_t ek_batch_sum(const char hex[65]);
/* The id of a line's result: the first 24 digits of the SHA-256 of its bytes. */
void ek_batch_line_id(char out[EK_BATCH_ID], const char *s, size_t n);
/* The seed, below 2^53, of a line without one: the first 8 bytes, little-endian, of the SHA-256 of "evenkeel.batch",
 * seed as 8 bytes and the custom_id, without their 11 low bits. */
uint64_t ek_batch_line_seed(int64_t seed, const ek_batch_line *l);

/* Appends the result's line without newline, from a dialect's reply: status and body. For a line without a dialect, the
 * error is written from why. True: the result is an error. */
bool ek_batch_put(ek_buf *out, const ek_batch_line *l, const char id[EK_BATCH_ID], int status, const ek_buf *body);

#endif
