/* HTTP/1.1 requests as bytes: the head (RFC 9112) and chunked bodies. Pure: no socket, no
 * allocation. Strict where two readers could disagree about where a request ends (lengths,
 * transfer codings, line ends), because that is how requests are smuggled. */
#ifndef EK_SERVE_HTTP_PARSE_H
#define EK_SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EK_HTTP_MAX_HEADERS = 100 };

typedef struct ek_span {
    const char *p;
    size_t n;
} ek_span;

typedef struct ek_http_head {
    ek_span method, target;     /* "POST", "/v1/models?x=1" */
    ek_span name[EK_HTTP_MAX_HEADERS], value[EK_HTTP_MAX_HEADERS];
    int n_headers;
    int minor;                  /* HTTP/1.minor, 0 or 1 */
    bool keep_alive;            /* after the reply */
    bool chunked;               /* else the body has length bytes */
    bool expect_continue;
    uint64_t length;            /* Content-Length; 0 without */
} ek_http_head;

/* Reads one head from buf. Returns the bytes it took, 0 if more are needed, or minus the
 * status (400, 431, 501, 505) if it can never become valid. The spans point into buf and live
 * as long as it does. Where the bytes are cut never changes the answer. */
int ek_http_parse(ek_http_head *h, const char *buf, size_t n);

/* The value of a header, compared without case; p NULL if there is none. */
ek_span ek_http_find(const ek_http_head *h, const char *name);
bool ek_span_is(ek_span s, const char *text);      /* exact */
bool ek_span_is_nocase(ek_span s, const char *text); /* ASCII letters without case */

/* The state of a chunked body. Zero-initialise. */
typedef struct ek_chunked {
    int state;
    uint64_t left; /* bytes of the chunk still to come */
    int digits, line; /* of the size line so far */
} ek_chunked;

/* Eats bytes of in. *took is how many; a piece of body found is *piece (n 0: none this time).
 * Call until all is taken. Returns 1 at the end of the body, 0 for more, -1 if malformed. */
int ek_chunked_feed(ek_chunked *c, const char *in, size_t n, size_t *took, ek_span *piece);

#endif
