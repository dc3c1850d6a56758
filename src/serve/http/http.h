/* HTTP/1.1 on the event loop of libevent: limits, deadlines, and replies with back-pressure. Why no library:
 * docs/log/2026-11-22-http.md.
 *
 * All functions and callbacks run on the thread of the event loop. A handler sees only whole requests; it answers now
 * or later. A slow or silent client holds its own socket and memory up to the limits below, until a deadline passes or
 * other clients need its place. A client that has closed its sending side gets its answer. A client that is gone is
 * noticed within half a second. */
#ifndef EK_SERVE_HTTP_H
#define EK_SERVE_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/histogram.h"
#include "serve/http/http_head.h"

struct event;
struct event_base;
struct sockaddr_storage;

/* --- the turns of the event loop: a budget of CPU time for each turn, and a histogram of their durations ---
 *
 * A turn stops when its budget is spent. Its remaining work waits for the next turn, after everything that has arrived
 * meanwhile. Work that cannot be divided runs on other threads (serve/threads). Time is CPU time of the thread, because
 * waiting and pre-emption are not the loop's doing. Event loop's thread only. */

typedef struct ek_loop {
    struct event_base *base;
    double begin;      /* start of this turn, in seconds of the thread's CPU time */
    double not_before; /* a time of ek_now() before which the turn cannot have spent its budget */
    double max;        /* the longest turn so far, in seconds */
    ek_histogram turns;
    bool stopping;
} ek_loop;

/* Runs turns until ek_loop_stop. Returns -1 with errno if the loop fails. */
int ek_loop_run(ek_loop *l);
void ek_loop_stop(ek_loop *l);
/* Whether this turn has used its budget. If so, the turn ends after the callback that asked. The callback leaves the
 * rest of its work: libevent's active events stay active, but a list of the caller's own needs a wake-up
 * (ek_loop_again). A NULL or stopped loop has no budget. */
bool ek_loop_spent(ek_loop *l);

/* Calls the timer's callback in the next turn. */
void ek_loop_again(struct event *timer);

/* --- memory that all requests may hold together ---
 *
 * It is counted before it is taken, so that a request is refused while the server can still answer. Any thread. */

typedef struct ek_request_memory {
    size_t total; /* bytes; set once */
    _Atomic size_t used;
} ek_request_memory;

/* Sets the program's reserve aside: it serves small amounts, which are not counted, if the system refuses them
 * (base/alloc.h). The libraries that requests use allocate from it too. Once, before they allocate. ENOMEM. */
ek_err ek_request_memory_open(void);
/* EK_OK while the reserve is there or can be filled again; else ENOMEM, and no new request should begin. */
ek_err ek_request_memory_check(void);

/* A total that leaves room for everything else: an eighth of the available memory, 64 MiB to 2 GiB. */
size_t ek_request_memory_default(void);
/* Counts bytes that are about to be taken. held: bytes counted for the same request before. ETOOLARGE where both
 * together are more than the total; ENOMEM where others hold too much now, or the system or a control group would not
 * give them: nothing was counted then. */
ek_err ek_request_memory_take(ek_request_memory *m, size_t held, size_t bytes);
void ek_request_memory_give(ek_request_memory *m, size_t bytes);

/* --- bodies and addresses --- */

/* The bytes of a request's body while they arrive. A large body is mapped: growing it moves pages instead of copying
 * bytes, which would stop the event loop, and freed memory returns to the system at once. Lack of memory is an ordinary
 * error here and does not end the program. */

/* Zero-initialise. Owned by one thread at a time. */
typedef struct ek_body {
    char *data; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    bool mapped;
} ek_body;

void ek_body_fini(ek_body *b);              /* empty again */
const char *ek_body_text(const ek_body *b); /* never NULL */

/* An address that is bound before the server serves, and does not listen yet. The system refuses clients meanwhile, as
 * if nothing ran; another program that wants the port fails at once. */

typedef struct ek_bound {
    int fd, port;
    bool loopback; /* only this machine can reach it */
} ek_bound;

/* port 0: any free one. The caller closes it unless a server took it over (ek_http_opts). EIO with the reason. */
ek_err ek_bound_open(ek_bound *out, const char *host, int port);
void ek_bound_close(ek_bound *b);
bool ek_bound_is_loopback(const struct sockaddr_storage *addr); /* of IPv4 or IPv6 */

typedef struct ek_http ek_http;
typedef struct ek_exchange ek_exchange; /* a request and its reply */
/* Called when a head has arrived and announces a body. False: the body is not read; the handler gets the request at
 * once and must refuse it; the connection ends after the reply. */
typedef bool ek_takes_body_fn(void *arg, const ek_exchange *x);

typedef struct ek_http_opts {
    const char *host;
    int port;                /* 0: any free port */
    const ek_bound *bound;   /* bound here; the server takes it over if ek_http_open succeeds. NULL: the server binds */
    int max_connections;     /* one more replaces an idle connection, or is answered with 503 */
    const char *path_prefix; /* prefix that is removed from paths (ek_http_prefix_check), borrowed; NULL: none */
    size_t max_body;         /* maximum bytes per request body */
    size_t body_memory;   /* maximum bytes of all bodies that arrive or wait to be read, except small ones; 0: 8 times
                             max_body */
    size_t max_unsent;    /* maximum bytes of a reply that are not sent yet because the client does not read */
    double min_body_rate; /* minimum bytes per second of a body beyond 64 KiB, over rate_window; 0: no minimum */
    double rate_window;   /* seconds; the rate covers this time or down to half of it; 0: 5 */
    double body_timeout;  /* maximum seconds from the first byte of a request to its last */
    double idle_timeout;  /* maximum seconds without a request, or without the client reading */
    ek_takes_body_fn *takes_body; /* NULL: always true */
    ek_takes_body_fn *always;     /* true for requests that are answered beyond max_connections; NULL: none */
    ek_request_memory *memory;    /* memory for the unread bytes of streams beyond 64 KiB each; NULL: not counted */
    ek_loop *loop;                /* ends turns when their time is spent; NULL: base runs by itself */
} ek_http_opts;

/* Called with a whole request. Must lead to exactly one reply, in this call or later. */
typedef void ek_handler_fn(void *arg, ek_exchange *x);
/* Writes the body of an error found before the handler runs (limits, malformed heads), in the error format of the path;
 * the path is "" if the head was not readable. */
typedef void ek_http_error_fn(void *arg, ek_buf *out, const char *path, int status, const char *text);

/* Listens. base is borrowed. EIO with the reason. */
ek_err ek_http_open(ek_http **out, struct event_base *base, const ek_http_opts *opts, ek_handler_fn *handler,
                    ek_http_error_fn *error, void *arg);
int ek_http_port(const ek_http *s);
bool ek_http_is_loopback(const ek_http *s); /* only this machine can reach it */
/* Stops accepting connections. Idle connections close at once, the others after their reply. */
void ek_http_drain(ek_http *s);
int ek_http_busy(const ek_http *s); /* exchanges whose reply is not completely sent */
int ek_http_connections(const ek_http *s);
uint64_t ek_http_responses(const ek_http *s, int status); /* replies with this status that have begun */
size_t ek_http_body_bytes(const ek_http *s);              /* bytes of all bodies that arrive or wait to be read */
/* From now on a reply without progress for a second is cut off, for a shutdown that cannot wait for slow readers. */
void ek_http_cut_slow_readers(ek_http *s);
void ek_http_close(ek_http *s); /* closes everything; calls on_gone for open exchanges */

/* The request; borrowed, valid until the end of the reply. */
const char *ek_exchange_method(const ek_exchange *x);
/* Percent-decoded, without query and prefix; "" if it is the prefix. */
const char *ek_exchange_path(const ek_exchange *x);
ek_span ek_exchange_target(const ek_exchange *x); /* as received */
/* A parameter of the query; see ek_http_query. */
int ek_exchange_query(const ek_exchange *x, const char *name, char *out, size_t room);
const char *ek_exchange_prefix(const ek_exchange *x);                   /* the server's path_prefix; "": none */
const char *ek_exchange_find(const ek_exchange *x, const char *header); /* NULL without */
/* The i-th of that name, from 0; NULL: none. */
const char *ek_exchange_find_nth(const ek_exchange *x, const char *header, int i);
ek_span ek_exchange_body(const ek_exchange *x);
/* Hands the body over to the caller. Its bytes count against the server's limit until ek_http_body_freed. */
ek_body ek_exchange_take_body(ek_exchange *x);
void ek_http_body_freed(ek_http *s, size_t n);
/* Returns a taken body, for a request that is read again; its bytes are still counted. */
void ek_exchange_return_body(ek_exchange *x, ek_body *body);
uint64_t ek_exchange_client(const ek_exchange *x); /* identifies the address (IPv6: the /64); never 0 */
/* Whether the client's address is this machine's and no proxy is in between. */
bool ek_exchange_is_local(const ek_exchange *x);
uint64_t ek_exchange_number(const ek_exchange *x); /* counts from 1 in this process */

/* gone is called once if the client leaves or is cut off before the end of the reply; the exchange is freed after the
 * call. It is not called after the end. NULL: no callback. */
void ek_exchange_on_gone(ek_exchange *x, void (*gone)(void *user), void *user);

/* Headers of the reply, to be set before it begins; values without line ends. Header names of the server are lower
 * case. */
const char *ek_exchange_header_of(const ek_exchange *x, const char *name); /* an added header; NULL: none */
void ek_exchange_header(ek_exchange *x, const char *name, const char *value);

/* Sends a whole reply: begins and ends it. Copies the body, which should be small because its memory is not counted. */
void ek_exchange_reply(ek_exchange *x, int status, const char *type, const char *body, size_t n);

/* Bytes that are sent without a copy: spans in order, which must not change until release(arg) is called, once, when
 * they are sent or no longer needed. release may be NULL. */
typedef struct ek_outgoing {
    ek_span part[3]; /* unused ones are empty */
    ek_span *list;   /* n more parts that follow, owned by arg; they are changed */
    int n;
    void (*release)(void *arg);
    void *arg;
} ek_outgoing;
/* Sends a whole reply without a copy of the body. For HEAD the body is released at once. */
void ek_exchange_reply_from(ek_exchange *x, int status, const char *type, const ek_outgoing *body);

/* A reply in pieces. ek_exchange_send copies. It sends nothing and returns false if the client would have more than
 * max_unsent unread bytes, or without memory. The caller then ends the reply (ek_exchange_end_with); otherwise the
 * client is disconnected later, with a call of on_gone. */
void ek_exchange_begin(ek_exchange *x, int status, const char *type);
bool ek_exchange_send(ek_exchange *x, const char *bytes, size_t n);
/* Each piece is one line and is written by itself; call before the reply begins. */
void ek_exchange_by_line(ek_exchange *x);
/* Sends a piece of any size without a copy. Only while nothing is unsent. */
void ek_exchange_send_from(ek_exchange *x, const ek_outgoing *bytes);
void ek_exchange_end(ek_exchange *x); /* the caller must not use the exchange afterwards */
/* Ends the reply with some last bytes, however much is unread. A client that then reads nothing for 5 seconds is cut
 * off. */
void ek_exchange_end_with(ek_exchange *x, const char *bytes, size_t n);
/* Until the end, calls drained with the user of on_gone whenever the kernel has taken all bytes. */
void ek_exchange_on_drained(ek_exchange *x, void (*drained)(void *user));
size_t ek_exchange_unsent(const ek_exchange *x);
size_t ek_exchange_max_unsent(const ek_exchange *x);
bool ek_exchange_begun(const ek_exchange *x);

/* --- replies that no client waits for --- */

/* Receives the bytes of such a reply. The functions must not end the exchange or free the sender. */
typedef struct ek_sink {
    void (*take)(void *arg, const char *bytes, size_t n); /* bytes of a stream; borrowed */
    void (*ended)(void *arg);                             /* the last call; the exchange is freed after this turn */
} ek_sink;

/* Makes a second exchange for the request of x, which stays with its client. A stream that begins on it goes to the
 * sink, takes no stream memory and is never slow. A reply in one piece ends it without passing its bytes on. It counts
 * in ek_http_busy. */
ek_exchange *ek_exchange_detach(const ek_exchange *x, const ek_sink *sink, void *arg);
/* The reply is no longer wanted: calls on_gone and frees the exchange. */
void ek_exchange_drop(ek_exchange *x);

#endif
