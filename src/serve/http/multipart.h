/* multipart/form-data (RFC 7578): a form with files, as clients send it. Pure: bytes in, spans out. Inside src/serve.
 *
 * The boundary is read from the body's first line, "--BOUNDARY", or from the first such line that a part follows. Time
 * is linear in the bytes, and nothing is allocated. */
#ifndef EK_SERVE_MULTIPART_H
#define EK_SERVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

enum {
    EK_FORM_MAX_PARTS = 64,
    EK_FORM_MAX_HEAD = 8192,   /* bytes of a part before its data */
    EK_FORM_MAX_BOUNDARY = 200 /* RFC 2046 has 70; longer ones are seen */
};

typedef struct ek_form {
    const char *at, *end; /* what is left, behind a boundary */
    const char *boundary; /* "\r\n--BOUNDARY" is what ends a part: this is "--BOUNDARY" */
    size_t n_boundary;
    int n_parts; /* so far */
    bool done;
} ek_form;

/* A part. Spans point into the body; name and file name as they stand between their quotes: escapes stay. */
typedef struct ek_form_part {
    const char *name;
    size_t n_name;
    const char *file_name; /* NULL: no file */
    size_t n_file_name;
    const char *data;
    size_t n;
} ek_form_part;

/* Each returns NULL, or why it is no form, a clause: "the body …". */
const char *ek_form_begin(ek_form *f, const char *body, size_t n);
/* The next part, while !f->done; it sets that with the last one. */
const char *ek_form_next(ek_form *f, ek_form_part *out);

bool ek_form_is(const ek_form_part *p, const char *name);

#endif
