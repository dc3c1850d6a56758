/* A connection and the request it carries; shared by http.c and http_reply.c only. */
#ifndef EK_SERVE_HTTP_CONN_H
#define EK_SERVE_HTTP_CONN_H

#include "serve/http.h"

enum {
    MAX_HEAD = 32 << 10,
    READ_AHEAD = 64 << 10,           /* unread input kept while a request is answered */
    SEND_BUFFER = 128 << 10,         /* the kernel's */
    BODIES_AT_ONCE = 8,              /* times max_body: all bodies together */
    LEAST_BYTES_PER_SECOND = 64 << 10, /* a body that comes this fast is not cut off */
    LINGER_SECONDS = 5
};

typedef enum {
    HEAD,    /* between requests, or part of a head is here */
    BODY,
    BUSY,    /* with the handler */
    SENDING, /* the reply is complete, not all of it is sent */
    LINGER   /* closed by us; what still comes is thrown away */
} conn_state;

struct bufferevent;

struct ek_exchange {
    ek_http *http;
    struct bufferevent *bev;
    ek_exchange *next, **link;
    conn_state state;
    bool fresh;       /* no request was read yet */
    bool close_after, begun, cut, ended, plain; /* plain: the reply's end is the connection's */
    double since;      /* this state of silence began */
    double since_byte; /* first byte of this request; 0 while there is none */
    double last_taken; /* the reader last took bytes */
    uint64_t number;

    ek_buf head_bytes, body, headers; /* headers of the reply */
    size_t body_counted;
    ek_http_head head;
    ek_chunked chunked;

    void (*gone)(void *user);
    void *gone_user;
};

struct ek_http {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *sweep;
    ek_http_opts opts;
    ek_handler_fn *handler;
    void *arg;
    ek_http_error_fn *error;
    ek_exchange *first;
    int port, n_connections, n_busy;
    size_t body_bytes;
    uint64_t n_requests;
    bool draining;
};

void ek_exchange_lost(ek_exchange *x); /* tells its owner and frees it */

#endif
