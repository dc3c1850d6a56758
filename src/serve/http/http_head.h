/* The head of an HTTP/1 request, and the chunked coding of its body: bytes in, spans out.
 *
 * Parsing is strict: input that two readers could understand differently is refused (two lengths or a length beside a
 * coding, two hosts, space before a colon, folded lines, bare line feeds, NUL), so that a proxy in front and this
 * server always agree where a request ends. Source: RFC 9110 and 9112. */
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
    ek_span name, value; /* the value without surrounding white space */
} ek_http_field;

typedef struct ek_http_head {
    ek_span method, target;
    int minor; /* HTTP/1.minor: 0 or 1 */
    ek_http_field field[EK_HTTP_MAX_FIELDS];
    int n_fields;
    bool keep_alive, chunked, expects_continue, has_length;
    uint64_t length;
    int status;      /* of a refused head: 400, 417, 431, 501 or 505 */
    const char *why; /* its sentence, a literal */
} ek_http_head;

/* Looks for the end of a head in buf[0, n); earlier calls have looked at buf[0, *scanned) (0 at first). Returns the
 * head's length, 0 if it has not ended, -1 if it can never be valid. Linear over all calls for one head. */
int ek_http_head_end(const char *buf, size_t n, size_t *scanned);
/* Reads a whole head, n bytes with its empty line. The spans point into buf. False if it is refused: status and why are
 * set. */
bool ek_http_head_read(ek_http_head *h, const char *buf, size_t n);

/* Decodes the chunked coding piece by piece. Zero-initialise. */
typedef struct ek_http_chunks {
    int state;
    uint64_t left; /* missing bytes of the chunk */
    int n_size;    /* hex digits of its size so far */
    size_t n_line; /* bytes of an extension or of trailers so far */
} ek_http_chunks;

/* Takes bytes from buf[0, n); *data is the span of body bytes among them, possibly empty. Returns the number of taken
 * bytes, 0 if the body ended before buf (the bytes belong to the next request), -1 for a malformed body. */
ptrdiff_t ek_http_chunks_take(ek_http_chunks *c, const char *buf, size_t n, ek_span *data);
bool ek_http_chunks_ended(const ek_http_chunks *c);

/* The path of a target, without scheme, host and query, percent-decoded into out, which has room for target.n + 1
 * bytes. False if the path holds NUL. */
bool ek_http_path(char *out, ek_span target);
/* Writes the value of the query's first parameter of this name, percent-decoded, "+" as a blank, with NUL: room - 1
 * bytes at most. Returns 1. Without the parameter: 0 and "". If the value is too long or holds NUL: -1 and "", so that
 * the caller can refuse it. */
int ek_http_query(char *out, size_t room, ek_span target, const char *name);

enum { EK_HTTP_TRACE = 33 };
/* The trace of a traceparent header (W3C Trace Context): 32 hex digits and NUL. False and "" for an invalid header,
 * which the standard tells to ignore. */
bool ek_http_trace(char out[EK_HTTP_TRACE], const char *value);

/* Checks a path prefix under which a proxy passes requests on: one or more of /NAME, of letters, digits and -._~,
 * without a slash at the end. EINVAL otherwise. */
#define EK_HTTP_MAX_PREFIX 200
ek_err ek_http_prefix_check(const char *prefix);
/* Removes prefix (NULL: none) from a path below it: "/llm/v1" becomes "/v1", "/llm" becomes "". */
void ek_http_strip(char *path, const char *prefix);

#endif
