/* multipart/form-data (RFC 7578): a form with files. Pure: bytes in, spans out. Inside src/serve.
 *
 * The boundary is the body's first line, "--BOUNDARY", or the first such line that a part follows. Time is linear in
 * the bytes; nothing is allocated. */
#ifndef EK_SERVE_MULTIPART_H
#define EK_SERVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

enum {
    EK_FORM_MAX_PARTS = 64,
    EK_FORM_MAX_HEAD = 8192,   /* maximum bytes of a part before its data */
    EK_FORM_MAX_BOUNDARY = 200 /* RFC 2046 allows 70; some clients send longer ones */
};

typedef struct ek_form {
    const char *at, *end; /* unread bytes, after a boundary */
    const char *boundary; /* "--BOUNDARY"; "\r\n--BOUNDARY" ends a part */
    size_t n_boundary;
    int n_parts; /* so far */
    bool done;
} ek_form;

/* A part. Spans point into the body; name and file_name are the bytes between the quotes, with their escapes. */
typedef struct ek_form_part {
    const char *name;
    size_t n_name;
    const char *file_name; /* NULL: no file */
    size_t n_file_name;
    const char *data;
    size_t n;
} ek_form_part;

/* Both functions return NULL, or the reason why the body is no form, a clause: "the body …". */
const char *ek_form_begin(ek_form *f, const char *body, size_t n);
/* Reads the next part, while !f->done; sets done with the last part. */
const char *ek_form_next(ek_form *f, ek_form_part *out);

bool ek_form_is(const ek_form_part *p, const char *name);

#endif
