/* The head of an HTTP/1 request, and the chunked coding of its body: bytes in, spans out.
 *
 * Strict: what two readers could understand differently is refused (two lengths or a length beside a coding, two
 * hosts, space before a colon, folded lines, bare line feeds, NUL), so that a proxy in front and this server always
 * agree where a request ends. Source: RFC 9110 and 9112. */
#ifndef EK_SERVE_HTTP_HEAD_H
#define EK_SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { EK_HTTP_MAX_FIELDS = 100, EK_HTTP_MAX_HEAD = 32 << 10 };

typedef struct ek_span {
    const char *p;
    size_t n;
} ek_span;

typedef struct ek_http_field {
    ek_span name, value; /* the value without the white space around it */
} ek_http_field;

typedef struct ek_http_head {
    ek_span method, target;
    int minor; /* HTTP/1.minor: 0 or 1 */
    ek_http_field field[EK_HTTP_MAX_FIELDS];
    int n_fields;
    bool keep_alive, chunked, expects_continue, has_length;
    uint64_t length;
    int status;      /* of a head that is refused: 400, 417, 431, 501 or 505 */
    const char *why; /* its sentence, a literal */
} ek_http_head;

/* Looks for the end of a head in buf[0, n), of which buf[0, *scanned) was looked at before (0 at first). Returns the
 * head's length, 0 if it has not ended, -1 if it can never be valid. Linear over all calls for one head. */
int ek_http_head_end(const char *buf, size_t n, size_t *scanned);
/* Reads a whole head, n bytes with its empty line. The spans point into buf. False if it is refused: status and why
 * are set. */
bool ek_http_head_read(ek_http_head *h, const char *buf, size_t n);

/* Decodes the chunked coding piece by piece. Zero-initialise. */
typedef struct ek_http_chunks {
    int state;
    uint64_t left; /* bytes of the chunk that are still to come */
    int n_size;    /* digits of its size so far */
    size_t n_line; /* bytes of an extension or of trailers so far */
} ek_http_chunks;

/* Takes bytes from buf[0, n); *data is a span of body bytes among them, which may be empty. Returns how many were
 * taken, 0 when the body has ended before buf (the bytes are the next request's), -1 for what is no chunked body. */
ptrdiff_t ek_http_chunks_take(ek_http_chunks *c, const char *buf, size_t n, ek_span *data);
bool ek_http_chunks_ended(const ek_http_chunks *c);

/* The path of a target: without scheme, host and query, percent-decoded into out, which has room for target.n + 1
 * bytes. False if it holds NUL. */
bool ek_http_path(char *out, ek_span target);
/* The value of the first parameter with this name in the query of a target, percent-decoded, "+" as a blank: at most
 * room - 1 bytes of it and NUL in out. 1; 0, and out is "", where there is none; -1, and out is "", where it is longer
 * or holds NUL: it is there, so whoever reads it refuses it. */
int ek_http_query(char *out, size_t room, ek_span target, const char *name);

enum { EK_HTTP_TRACE = 33 };
/* The trace of a header traceparent (W3C Trace Context): 32 hex digits and NUL. False, and out is "", for what is none,
 * which the standard ignores. */
bool ek_http_trace(char out[EK_HTTP_TRACE], const char *value);

/* A path below which a proxy passes requests on: /NAME, or several of them, of letters, digits and -._~ each, without a
 * slash at its end. EINVAL otherwise. */
#define EK_HTTP_MAX_PREFIX 200
ek_err ek_http_prefix_check(const char *prefix);
/* Removes prefix (NULL: none) from a path that is below it: "/llm/v1" becomes "/v1", "/llm" becomes "". */
void ek_http_strip(char *path, const char *prefix);

#endif
