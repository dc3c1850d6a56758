/* State of connections and exchanges, shared by http.c (listening, deadlines), http_conn.c (requests) and http_reply.c
 * (replies). Inside src/serve. */
#ifndef EK_SERVE_HTTP_STATE_H
#define EK_SERVE_HTTP_STATE_H

#include "serve/http/http.h"
#include "serve/http/loop.h"

typedef enum ek_conn_state {
    EK_CONN_HEAD,   /* idle, or a head is arriving */
    EK_CONN_BODY,   /* a body is arriving */
    EK_CONN_REPLY,  /* a whole request is with its handler, or its reply is being sent; nothing is read */
    EK_CONN_LINGER, /* the last reply is sent: what still comes is thrown away, because closing a socket with unread
                       input could take the reply back */
    EK_CONN_DEAD    /* freed at the end of the loop's turn */
} ek_conn_state;

enum {
    EK_HTTP_SMALL_BODY = 64 << 10, /* bytes of a body that are always admitted */
    EK_HTTP_RESERVED = 64,         /* connections beyond the limit, for what must always be answered */
    EK_HTTP_CLIENTS = 4096         /* counters of connections by client */
};

/* How fast a body comes: bytes in the running half of a window and in the half before it. */
typedef struct ek_rate {
    double begin, half, before; /* ek_now(): of the body, of the halves */
    size_t n, n_before;
} ek_rate;

/* A connection, from accept to close. */
typedef struct ek_conn {
    ek_http *http;
    struct ek_conn *next, **link;
    struct ek_conn *later, **later_link; /* in ek_http.later; later_link is NULL outside */
    int fd;
    struct event *readable, *writable;
    ek_conn_state state;
    ek_buf in; /* received and not yet taken */
    size_t scanned;
    ek_exchange *x;    /* the request it carries */
    double since;      /* ek_now() when accepted, when the last reply was sent, or when lingering began */
    double since_byte; /* of the first byte of an incomplete request; 0: none */
    double last_byte;  /* when bytes came last */
    double last_sent;  /* when bytes of the reply were taken last */
    bool fresh;        /* no request was read yet */
    bool reserved;     /* beyond the limit of connections */
    uint64_t client;   /* stands for its address; never 0 */
    bool local;        /* its address is this machine's loopback */
    ek_rate rate;      /* of the body */
    bool probed;       /* asked whether a client that closed its sending side still listens */
} ek_conn;

/* A header of a reply. */
struct reply_header {
    char *name, *value;
};

struct ek_exchange {
    ek_http *http;
    ek_conn *conn; /* never NULL before the exchange is freed, unless it has a sink */
    uint64_t number;
    char *head_text; /* the spans of head point into it; names and values are NUL-terminated */
    ek_http_head head;
    char *method, *path;
    ek_body body;
    size_t body_counted;
    ek_http_chunks chunks;

    int status;
    struct reply_header *header;
    int n_headers;
    ek_buf out; /* not yet sent: from n_sent on */
    size_t n_sent;
    ek_outgoing lent; /* sent behind out; parts shrink from the front */
    ek_buf behind;    /* sent behind lent */
    size_t counted;   /* of the memory for what is unread, for out */
    bool dispatched, begun, ended, cut;
    bool hasty;   /* the client was told that it is too slow */
    bool close;   /* the connection ends after the reply */
    bool framed;  /* the reply is sent in chunks */
    bool by_line; /* ek_exchange_by_line */
    bool no_body; /* the answer to HEAD */

    const ek_sink *sink; /* of one that is detached: conn is NULL then */
    void *sink_arg;
    struct event *woken;

    void (*gone)(void *user);
    void (*drained)(void *user);
    void *gone_user;
};

struct ek_http {
    struct event_base *base;
    struct event *acceptable, *sweep, *sweep_rest;
    int listen_fd;
    ek_http_opts opts;
    ek_handler_fn *handler;
    ek_http_error_fn *error;
    void *arg;
    ek_conn *first, *dead;
    ek_conn *later, **later_end; /* those with a request in their input, for the next turn */
    ek_conn *swept;              /* where the sweep goes on */
    struct event *turn;
    int port, n_busy, n_conns;
    size_t body_bytes;
    uint64_t n_requests, n_responses[600]; /* by status */
    time_t dated;                          /* the second of date */
    char date[64];
    bool loopback, draining, cuts_slow_readers;
    int n_of_client[EK_HTTP_CLIENTS];
    char chunk[64 << 10]; /* what was read last */
};

/* http_conn.c */
void ek_conns_go_on(ek_http *s); /* one request of each connection that waits for this turn, while there is time */
ek_conn *ek_conn_open(ek_http *s, int fd);
/* Ends a connection now, in any state; on_gone is called for a reply that has not ended. */
void ek_conn_kill(ek_conn *c);
/* Answers an error that was found before the handler ran and ends the connection. */
void ek_conn_refuse(ek_conn *c, int status, const char *text);
/* The reply is completely sent. */
void ek_conn_next(ek_conn *c);

/* http_crowd.c */
void ek_crowd_enter(ek_conn *c);
void ek_crowd_leave(ek_conn *c);
/* Closes a connection that carries no request, if there is one: of the client that has most, the one that is silent
 * longest. lingering: those too whose last reply is sent, although the client may not have read it yet. */
void ek_crowd_make_room(ek_http *s, bool lingering);
bool ek_crowd_is_late(const ek_conn *c, double now); /* with its head, beyond the limit of connections */
void ek_crowd_body_begins(ek_conn *c);
void ek_crowd_body_grows(ek_conn *c, size_t n);
bool ek_crowd_is_slow(const ek_conn *c, double now); /* its large body comes below ek_http_opts.min_body_rate */
/* For n bytes more of c's body: gives up the body that is slowest and largest, if one is much more so than c's, or has
 * stalled. */
bool ek_crowd_give_up_body(ek_conn *c, size_t n);

/* http_reply.c */
void ek_exchange_free(ek_exchange *x);
void ek_exchange_wake(ek_exchange *x);  /* there is something to send, or the end of it */
void ek_exchange_flush(ek_exchange *x); /* sends what the socket takes */

#endif
