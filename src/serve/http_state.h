/* State of connections and exchanges, shared by http.c (requests), http_reply.c (replies) and http_conn.c (both).
 * Inside src/serve. */
#ifndef EK_SERVE_HTTP_STATE_H
#define EK_SERVE_HTTP_STATE_H

#include <microhttpd.h>

#include "serve/http.h"

/* A connection, from accept to close. */
typedef struct ek_conn {
    ek_http *http;
    struct MHD_Connection *mhd;
    struct ek_conn *next, **link;
    int fd;
    ek_exchange *x;        /* the request it carries, from the end of its head on */
    double since;          /* ek_now() when accepted, or when the last reply was sent */
    double since_byte;     /* ek_now() of the first byte of an incomplete request; 0: none */
    uint64_t bytes_before; /* received up to `since` */
    bool fresh;            /* no request was read yet */
} ek_conn;

/* A header of a reply. */
struct reply_header {
    char *name, *value;
};

struct ek_exchange {
    ek_http *http;
    ek_conn *conn;
    uint64_t number;
    char *method, *path;
    ek_buf body;
    size_t body_counted;
    const char *refusal; /* an error found while the body still arrives */
    int refusal_status;

    struct MHD_Response *response; /* complete, or fed from out */
    int status;
    struct reply_header *header;
    int n_headers;
    ek_buf out; /* streamed and not yet taken by the library: from n_sent on */
    size_t n_sent;
    bool dispatched, begun, queued, ended, suspended, cut;

    void (*gone)(void *user);
    void *gone_user;
};

struct ek_http {
    struct event_base *base;
    struct MHD_Daemon *daemon;
    struct event *ready, *again, *sweep;
    ek_http_opts opts;
    ek_handler_fn *handler;
    ek_http_error_fn *error;
    void *arg;
    ek_conn *first;
    int port, n_busy;
    size_t body_bytes; /* of all bodies that are arriving or being answered */
    uint64_t n_requests;
    bool draining;
};

/* Resumes a connection that waits for its handler or for more output. */
void ek_http_wake(ek_exchange *x);
/* Ends a connection in any state; the library then reports it to its exchange. */
void ek_http_kill(ek_conn *c);
void ek_exchange_free(ek_exchange *x);
/* Hands the reply to the library, once. */
enum MHD_Result ek_exchange_queue(ek_exchange *x);

#endif
