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
    bool anthropic;            /* its form, and that of its result */
    const ek_dialect *dialect; /* NULL: it is no request, and why says it */
    char *name;                /* custom_id, n_name bytes; owned; NULL: none that could be read */
    size_t n_name;
    const char *body; /* points into the line */
    size_t n_body;
    char why[256];
} ek_batch_line;

/* Reads a line without its end. Members beside the known ones are ignored. Of the body only brackets and size are
 * looked at: at most 1,000,000 values and 65,536 objects in a list, the limits of a server. */
void ek_batch_line_read(ek_batch_line *out, const char *s, size_t n);
/* A line of n bytes that is too long to be read. */
void ek_batch_line_too_long(ek_batch_line *out, uint64_t n);
void ek_batch_line_fini(ek_batch_line *l);

/* The number of the first 8 bytes of a SHA-256, by its digits: files are checked by it. */
uint64_t ek_batch_sum(const char hex[65]);
/* The id of a line's result: the first 24 digits of the SHA-256 of its bytes. */
void ek_batch_line_id(char out[EK_BATCH_ID], const char *s, size_t n);
/* The seed of a line that asks for none, below 2^53: the first 8 bytes, little-endian, of the SHA-256 of
 * "evenkeel.batch", seed as 8 bytes and the custom_id, less their 11 low bits. */
uint64_t ek_batch_line_seed(int64_t seed, const ek_batch_line *l);

/* Appends the line of the result, without its end. status and body: a reply of the dialect; not for a line without one,
 * whose error is written from why. True: it is an error. */
bool ek_batch_put(ek_buf *out, const ek_batch_line *l, const char id[EK_BATCH_ID], int status, const ek_buf *body);

#endif
