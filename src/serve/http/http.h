/* HTTP/1.1 on the event loop of libevent: limits, deadlines, and replies with back-pressure. Why no library:
 * docs/log/2026-11-22-http.md.
 *
 * One thread, the one that runs the event loop, calls and is called by everything here. A
 * handler sees only whole requests; it answers now or later. A slow or silent client holds
 * its own socket and memory up to the limits below, until a deadline ends it, or others need what it holds. A client
 * that has closed its sending side gets its answer; one that is gone is noticed within half a second. */
#ifndef EK_SERVE_HTTP_H
#define EK_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "serve/http/http_head.h"

struct event_base;
struct ek_loop;
struct ek_request_memory;
struct sockaddr_storage;

/* The bytes of a request's body while they arrive. Large ones are mapped: growing moves pages instead of copying
 * bytes, which would stop the event loop, and what is freed goes back to the system at once. Being out of memory is an
 * answer here, not the end of the program. */

/* Zero-initialise. Owned by one thread at a time. */
typedef struct ek_body {
    char *data; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    bool mapped;
} ek_body;

bool ek_body_add(ek_body *b, const char *bytes, size_t n); /* false: no memory; b is as before */
void ek_body_fini(ek_body *b);                             /* empty again */
const char *ek_body_text(const ek_body *b);                /* never NULL */

/* An address that is ours before anybody is served: bound, not listening. Who connects is refused by the system, as
 * where nothing runs; another program that wants the port is told at once. */

typedef struct ek_bound {
    int fd, port;
    bool loopback; /* only this machine can reach it */
} ek_bound;

/* port 0: any free one. Close it unless a server took it (ek_http_opts). EIO with the reason. */
ek_err ek_bound_open(ek_bound *out, const char *host, int port);
ek_err ek_bound_listen(const ek_bound *b, const char *host); /* EIO with the reason */
void ek_bound_close(ek_bound *b);
bool ek_bound_is_loopback(const struct sockaddr_storage *addr); /* of IPv4 or IPv6 */

typedef struct ek_http ek_http;
typedef struct ek_exchange ek_exchange; /* one request and its reply */
/* Asked when a head has come and a body is announced. False: the handler gets the request without it, at once, and must
 * refuse it; the connection ends behind the reply. */
typedef bool ek_takes_body_fn(void *arg, const ek_exchange *x);

typedef struct ek_http_opts {
    const char *host;
    int port;              /* 0: any free port */
    const ek_bound *bound; /* of that address, which is the server's once ek_http_open succeeds; NULL: bound there */
    int max_connections;   /* one more takes the place of one that carries no request, or is answered with 503 */
    const char
        *path_prefix;   /* paths below it are served without it; as ek_http_prefix_check has it, borrowed. NULL: none */
    size_t max_body;    /* maximum bytes per request body */
    size_t body_memory; /* maximum bytes of all bodies that are arriving or wait to be read, but for small ones;
                           0: 8 times max_body */
    size_t max_unsent;  /* maximum bytes per reply that the client has not read */
    double min_body_rate;         /* bytes per second lately, of bodies beyond 64 KiB; 0: any */
    double rate_window;           /* seconds that this is measured over, or half as many; 0: 5 */
    double body_timeout;          /* seconds for a whole request to arrive */
    double idle_timeout;          /* seconds without a request, or without the client reading */
    ek_takes_body_fn *takes_body; /* NULL: of every request */
    ek_takes_body_fn *always;     /* requests that are answered beyond max_connections too; NULL: none */
    struct ek_request_memory
        *memory;          /* that streams take for what is unread, beyond 64 KiB each; NULL: none is counted */
    struct ek_loop *loop; /* whose turns end when their time is spent; NULL: base runs by itself */
} ek_http_opts;

/* Called with a whole request. Must lead to exactly one reply, in this call or later. */
typedef void ek_handler_fn(void *arg, ek_exchange *x);
/* Writes the body of an error that is found before the handler runs (limits, malformed heads), in the error format of
 * the path, which is "" where the head could not be read. */
typedef void ek_http_error_fn(void *arg, ek_buf *out, const char *path, int status, const char *text);

/* Listens. base is borrowed. EIO with the reason. */
ek_err ek_http_open(ek_http **out, struct event_base *base, const ek_http_opts *opts, ek_handler_fn *handler,
                    ek_http_error_fn *error, void *arg);
int ek_http_port(const ek_http *s);
bool ek_http_is_loopback(const ek_http *s); /* only this machine can reach it */
/* Stops accepting; idle connections close, the others after their reply. */
void ek_http_drain(ek_http *s);
int ek_http_busy(const ek_http *s); /* exchanges whose reply is not completely sent */
int ek_http_connections(const ek_http *s);
uint64_t ek_http_responses(const ek_http *s, int status); /* begun so far with this status */
size_t ek_http_body_bytes(const ek_http *s);              /* of all bodies that are arriving or wait to be read */
/* From now on a reply that makes no progress for a second is cut off: for a shutdown that cannot wait for readers. */
void ek_http_cut_slow_readers(ek_http *s);
void ek_http_close(ek_http *s); /* closes everything; on_gone is called for open exchanges */

/* The request; borrowed, valid until the reply's end. */
const char *ek_exchange_method(const ek_exchange *x);
const char *ek_exchange_path(const ek_exchange *x); /* percent-decoded, without the query
                                                       and the prefix: "" where it is the prefix */
ek_span ek_exchange_target(const ek_exchange *x);   /* as it came */
/* A parameter of the query, as ek_http_query has it. */
int ek_exchange_query(const ek_exchange *x, const char *name, char *out, size_t room);
const char *ek_exchange_prefix(const ek_exchange *x);                   /* the server's path_prefix, "" without */
const char *ek_exchange_find(const ek_exchange *x, const char *header); /* NULL without */
const char *ek_exchange_find_nth(const ek_exchange *x, const char *header, int i); /* of that name, from 0 on; NULL */
ek_span ek_exchange_body(const ek_exchange *x);
/* Hands the body over. Its bytes count against the server's limit until ek_http_body_freed. */
ek_body ek_exchange_take_body(ek_exchange *x);
void ek_http_body_freed(ek_http *s, size_t n);
/* Gives a body back that was taken, of a request that is read again: its bytes are still counted. */
void ek_exchange_return_body(ek_exchange *x, ek_body *body);
uint64_t ek_exchange_client(const ek_exchange *x); /* stands for its address, of IPv6 the /64; never 0 */
bool ek_exchange_is_local(const ek_exchange *x);   /* from this machine, by its address and not through a proxy */
uint64_t ek_exchange_number(const ek_exchange *x); /* counts from 1 in this process */

/* Called once if the client goes away, or is cut off, before the reply's end: the exchange is
 * gone after the call. Not called after the end. NULL: no callback. */
void ek_exchange_on_gone(ek_exchange *x, void (*gone)(void *user), void *user);

/* A header of the reply, before it begins; no line ends in the value. Names of the server's own are lower case. */
const char *ek_exchange_header_of(const ek_exchange *x, const char *name); /* one that was added; NULL without */
void ek_exchange_header(ek_exchange *x, const char *name, const char *value);

/* A whole reply: begins and ends it. Copies the body, for which nobody has to count memory: a small one. */
void ek_exchange_reply(ek_exchange *x, int status, const char *type, const char *body, size_t n);

/* Bytes on their way to a client from where they lie: spans, one after the other, that stay as they are until
 * release(arg), which is called once, when they are sent or nobody wants them any more. release may be NULL. */
typedef struct ek_outgoing {
    ek_span part[3]; /* unused ones are empty */
    void (*release)(void *arg);
    void *arg;
} ek_outgoing;
/* The same without a copy; of HEAD the bytes are let go at once. */
void ek_exchange_reply_from(ek_exchange *x, int status, const char *type, const ek_outgoing *body);

/* A reply in pieces. send copies; it takes nothing and returns false when the client would have more than max_unsent
 * unread, or when there is no memory for it. Whoever goes on then ends the reply (ek_exchange_end_with); else the
 * client is disconnected, and on_gone called, later. */
void ek_exchange_begin(ek_exchange *x, int status, const char *type);
bool ek_exchange_send(ek_exchange *x, const char *bytes, size_t n);
void ek_exchange_by_line(ek_exchange *x); /* pieces are lines, and each is written by itself; before it begins */
/* A piece of any size, without a copy. Only where nothing is unsent. */
void ek_exchange_send_from(ek_exchange *x, const ek_outgoing *bytes);
void ek_exchange_end(ek_exchange *x); /* the caller must not use the exchange any more */
/* The same with some last bytes, whatever is unread. A client that then reads nothing for 5 seconds is cut off. */
void ek_exchange_end_with(ek_exchange *x, const char *bytes, size_t n);
/* Called with the user of on_gone whenever all that was sent is with the kernel, until the end. */
void ek_exchange_on_drained(ek_exchange *x, void (*drained)(void *user));
size_t ek_exchange_unsent(const ek_exchange *x);
size_t ek_exchange_max_unsent(const ek_exchange *x);
bool ek_exchange_begun(const ek_exchange *x);

/* --- replies that no client waits for --- */

/* Where the bytes of such a reply go. Neither may end the exchange or free what sends. */
typedef struct ek_sink {
    void (*take)(void *arg, const char *bytes, size_t n); /* of a stream; borrowed */
    void (*ended)(void *arg);                             /* the last call: the exchange is gone after this turn */
} ek_sink;

/* A second exchange for the request of x, which stays with its client: a reply goes to the sink, where it has begun,
 * takes no memory of streams and is never slow. A reply in one piece ends it without its bytes. It counts among
 * ek_http_busy. */
ek_exchange *ek_exchange_detach(const ek_exchange *x, const ek_sink *sink, void *arg);
/* Nobody wants it any more: on_gone is called, and the exchange is gone. */
void ek_exchange_drop(ek_exchange *x);

#endif
