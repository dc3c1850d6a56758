/* State of connections and exchanges, shared by http.c (listening, deadlines), http_conn.c (requests) and http_reply.c
 * (replies). Inside src/serve. */
#ifndef EK_SERVE_HTTP_STATE_H
#define EK_SERVE_HTTP_STATE_H

#include "serve/http/http.h"

typedef enum ek_conn_state {
    EK_CONN_HEAD,   /* idle, or a head is arriving */
    EK_CONN_BODY,   /* a body is arriving */
    EK_CONN_REPLY,  /* a whole request is with its handler, or its reply is being sent; nothing is read */
    EK_CONN_LINGER, /* the last reply is sent; further input is read and dropped, because closing a socket with unread
                       input could destroy the reply */
    EK_CONN_DEAD    /* freed at the end of the loop's turn */
} ek_conn_state;

enum {
    EK_HTTP_SMALL_BODY = 64 << 10, /* bytes of a body that are always admitted */
    EK_HTTP_RESERVED = 64,         /* connections beyond the limit, for requests that must always be answered */
    EK_HTTP_CLIENTS = 4096         /* counters of connections by client */
};

/* The speed of a body: its bytes in the current half of a window and in the half before. */
typedef struct ek_rate {
    double begin, half, before; /* ek_now() at the start of the body, of the current half and of the half before */
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
    ek_buf in; /* received bytes that are not yet taken */
    size_t scanned;
    ek_exchange *x;    /* the current request */
    double since;      /* ek_now() of accept, of the end of the last reply, or of the start of lingering */
    double since_byte; /* ek_now() of the first byte of an incomplete request; 0: none */
    double last_byte;  /* ek_now() of the last received bytes */
    double last_sent;  /* ek_now() when the kernel last took bytes of the reply */
    bool fresh;        /* no request has been read */
    bool reserved;     /* beyond the limit of connections */
    uint64_t client;   /* identifies its address; never 0 */
    bool local;        /* its address is this machine's loopback */
    ek_rate rate;      /* of the body */
    bool probed; /* the client closed its sending side, and a byte was sent to find out whether it still listens */
} ek_conn;

/* A header of the reply. */
struct reply_header {
    char *name, *value;
};

struct ek_exchange {
    ek_http *http;
    ek_conn *conn; /* never NULL before the exchange is freed, except with a sink */
    uint64_t number;
    char *head_text; /* the head's spans point into it; names and values are NUL-terminated */
    ek_http_head head;
    char *method, *path;
    ek_body body;
    size_t body_counted;
    ek_http_chunks chunks;

    int status;
    struct reply_header *header;
    int n_headers;
    ek_buf out; /* unsent from n_sent on */
    size_t n_sent;
    ek_outgoing lent; /* sent after out; parts shrink from the front */
    ek_buf behind;    /* sent after lent */
    size_t counted;   /* bytes of `out` that are counted in the memory for unread bytes */
    bool dispatched, begun, ended, cut;
    bool hasty;   /* the client received an error because it is too slow */
    bool close;   /* the connection ends after the reply */
    bool framed;  /* the reply is sent in chunks */
    bool by_line; /* ek_exchange_by_line */
    bool no_body; /* the request is HEAD */

    const ek_sink *sink; /* of a detached exchange; conn is NULL then */
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
    ek_conn *later, **later_end; /* connections with a request in their input, for the next turn */
    ek_conn *swept;              /* the connection where the sweep continues */
    struct event *turn;
    int port, n_busy, n_conns;
    size_t body_bytes;
    uint64_t n_requests, n_responses[600]; /* by status */
    time_t dated;                          /* the second for which `date` was written */
    char date[64];
    bool loopback, draining, cuts_slow_readers;
    int n_of_client[EK_HTTP_CLIENTS];
    char chunk[64 << 10]; /* the bytes of the latest read */
};

/* http_conn.c */
void ek_conns_go_on(ek_http *s); /* takes one request of each waiting connection, while the turn has time */
ek_conn *ek_conn_open(ek_http *s, int fd);
/* Ends a connection now, in any state; calls on_gone for an unfinished reply. */
void ek_conn_kill(ek_conn *c);
/* Answers an error that was found before the handler ran, and ends the connection. */
void ek_conn_refuse(ek_conn *c, int status, const char *text);
/* Called when the reply is completely sent. */
void ek_conn_next(ek_conn *c);

/* http_crowd.c */
void ek_crowd_enter(ek_conn *c);
void ek_crowd_leave(ek_conn *c);
/* Closes a connection without a request, if there is one: among those of the client with the most connections, the
 * longest silent one. lingering: connections after their last reply count too, although the client may not have read
 * it. */
void ek_crowd_make_room(ek_http *s, bool lingering);
bool ek_crowd_is_late(const ek_conn *c, double now); /* whether its head is late, for a connection beyond the limit */
void ek_crowd_body_begins(ek_conn *c);
void ek_crowd_body_grows(ek_conn *c, size_t n);
/* Whether its large body arrives below ek_http_opts.min_body_rate. */
bool ek_crowd_is_slow(const ek_conn *c, double now);
/* Makes room for n more bytes of c's body: drops the slowest and largest body, if it is much slower or larger than c's,
 * or has stalled. */
bool ek_crowd_give_up_body(ek_conn *c, size_t n);

/* http_reply.c */
void ek_exchange_free(ek_exchange *x);
void ek_exchange_flush(ek_exchange *x); /* sends as many bytes as the socket takes */

#endif
