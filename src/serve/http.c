#include "serve/http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http_conn.h"

static void free_exchange(ek_exchange *x)
{
    ek_http *s = x->http;
    *x->link = x->next;
    if (x->next) x->next->link = x->link;
    s->n_connections--;
    if (x->state == BUSY || x->state == SENDING) s->n_busy--;
    s->body_bytes -= x->body_counted;
    bufferevent_free(x->bev);
    ek_buf_fini(&x->head_bytes);
    ek_buf_fini(&x->body);
    ek_buf_fini(&x->headers);
    free(x);
}

void ek_exchange_lost(ek_exchange *x)
{
    if (x->gone) {
        void (*gone)(void *) = x->gone;
        x->gone = NULL;
        gone(x->gone_user);
    }
    free_exchange(x);
}

/* --- requests come in --- */

/* Answers below the handler. The rest of what the client sends is thrown away. */
static void refuse(ek_exchange *x, int status, const char *text)
{
    ek_buf body = {0};
    if (x->http->error) x->http->error(&body, status, text);
    x->close_after = true;
    x->head = (ek_http_head){0}; /* its spans may point into bytes that have moved */
    if (x->state != BUSY) x->http->n_busy++;
    x->state = BUSY;
    ek_exchange_reply(x, status, "application/json", ek_buf_text(&body), body.len);
    ek_buf_fini(&body);
}

static void dispatch(ek_exchange *x)
{
    x->state = BUSY;
    x->http->n_busy++;
    x->number = ++x->http->n_requests;
    x->http->handler(x->http->arg, x);
}

static void refuse_head(ek_exchange *x, int status)
{
    refuse(x, status,
           status == 431   ? "the request's headers are larger than the limit of 32 KiB or 100 lines"
           : status == 501 ? "of the transfer codings only chunked is understood"
           : status == 505 ? "HTTP/1.0 and HTTP/1.1 are spoken here"
                           : "not a well-formed HTTP request");
}

/* Returns whether more can be done with what has arrived. */
static bool read_head(ek_exchange *x, struct evbuffer *in)
{
    size_t n = evbuffer_get_length(in);
    if (n == 0) return false;
    if (x->since_byte == 0) x->since_byte = ek_now();
    if (n > MAX_HEAD) n = MAX_HEAD;
    const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    int took = ek_http_parse(&x->head, bytes, n);
    if (took == 0 && n == MAX_HEAD) took = -431;
    if (took < 0) {
        refuse_head(x, -took);
        return false;
    }
    if (took == 0) return false;

    ek_buf_clear(&x->head_bytes);
    ek_buf_add(&x->head_bytes, bytes, (size_t)took);
    evbuffer_drain(in, (size_t)took);
    ek_http_parse(&x->head, x->head_bytes.data, x->head_bytes.len); /* spans into our copy */
    x->close_after = !x->head.keep_alive || x->http->draining;
    x->chunked = (ek_chunked){0};
    if (x->head.length > x->http->opts.max_body) {
        refuse(x, 413, "the request's body is larger than the limit");
        return false;
    }
    x->state = BODY;
    if (x->head.expect_continue && x->head.minor == 1 && (x->head.chunked || x->head.length))
        evbuffer_add_printf(bufferevent_get_output(x->bev), "HTTP/1.1 100 Continue\r\n\r\n");
    return true;
}

static bool take_body(ek_exchange *x, const char *p, size_t n)
{
    ek_http *s = x->http;
    if (x->body.len + n > s->opts.max_body) {
        refuse(x, 413, "the request's body is larger than the limit");
        return false;
    }
    /* Many half-sent large bodies must not add up to all memory. */
    if (s->body_bytes + n > BODIES_AT_ONCE * s->opts.max_body) {
        refuse(x, 503, "too many large requests are arriving at once, try again later");
        return false;
    }
    ek_buf_add(&x->body, p, n);
    s->body_bytes += n;
    x->body_counted += n;
    return true;
}

static bool read_body(ek_exchange *x, struct evbuffer *in)
{
    bool done = !x->head.chunked && x->body.len == x->head.length;
    while (!done && evbuffer_get_length(in) > 0) {
        size_t n = evbuffer_get_contiguous_space(in), took;
        const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        ek_span piece;
        if (x->head.chunked) {
            int r = ek_chunked_feed(&x->chunked, p, n, &took, &piece);
            if (r < 0) {
                refuse(x, 400, "the chunked body is malformed");
                return false;
            }
            done = r == 1;
        } else {
            took = x->head.length - x->body.len;
            if (took > n) took = n;
            piece = (ek_span){p, took};
        }
        if (piece.n && !take_body(x, piece.p, piece.n)) return false;
        evbuffer_drain(in, took);
        if (!x->head.chunked) done = x->body.len == x->head.length;
    }
    if (!done) return false;
    dispatch(x);
    return true;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    ek_exchange *x = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    for (bool more = true; more;) {
        if (x->state == HEAD) more = read_head(x, in);
        else if (x->state == BODY) more = read_body(x, in);
        else more = false;
    }
    if (x->state == LINGER || (x->state == SENDING && x->close_after)) evbuffer_drain(in, evbuffer_get_length(in));
}

/* All output is with the kernel. */
static void on_drained(struct bufferevent *bev, void *arg)
{
    ek_exchange *x = arg;
    if (x->state != SENDING || evbuffer_get_length(bufferevent_get_output(bev)) > 0) return;
    x->http->n_busy--;
    x->since = ek_now();
    x->since_byte = 0;
    if (x->close_after || x->http->draining) {
        /* Closing with unread input would reset the connection and could take the reply back. */
        x->state = LINGER;
        if (x->ended || shutdown(bufferevent_getfd(bev), SHUT_WR)) {
            free_exchange(x);
            return;
        }
    } else {
        x->state = HEAD;
    }
    on_read(bev, x);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    ek_exchange *x = arg;
    (void)bev;
    if (x->state == SENDING && (what & BEV_EVENT_EOF) && !(what & BEV_EVENT_ERROR)) {
        x->close_after = x->ended = true; /* it said all it will say, and may still read */
        bufferevent_disable(x->bev, EV_READ);
        return;
    }
    ek_exchange_lost(x);
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg)
{
    ek_exchange *x = arg;
    (void)out;
    if (info->n_deleted || info->orig_size == 0) x->last_taken = ek_now();
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *addr, int len, void *arg)
{
    ek_http *s = arg;
    (void)l, (void)addr, (void)len;
    struct bufferevent *bev = NULL;
    if (s->n_connections < s->opts.max_connections) bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        close(fd);
        return;
    }
    int yes = 1, unsent = SEND_BUFFER;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* What a slow reader leaves should pile up with us, where it is counted, not in the kernel. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unsent, sizeof unsent);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    ek_exchange *x = ek_alloc(sizeof *x);
    x->http = s;
    x->bev = bev;
    x->since = x->last_taken = ek_now();
    x->fresh = true;
    x->next = s->first;
    if (x->next) x->next->link = &x->next;
    x->link = &s->first;
    s->first = x;
    s->n_connections++;
    evbuffer_add_cb(bufferevent_get_output(bev), on_output, x);
    bufferevent_setcb(bev, on_read, on_drained, on_event, x);
    bufferevent_setwatermark(bev, EV_READ, 0, READ_AHEAD);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
}

/* Out of descriptors: accepting pauses until the next sweep instead of spinning. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    (void)arg;
    evconnlistener_disable(l);
}

/* --- deadlines --- */

static void sweep_one(ek_exchange *x, double now)
{
    const ek_http_opts *o = &x->http->opts;
    bool unsent = evbuffer_get_length(bufferevent_get_output(x->bev)) > 0;
    if (x->cut || (unsent && now - x->last_taken > o->idle_timeout)) {
        ek_exchange_lost(x);
    } else if (x->state == LINGER) {
        if (now - x->since > LINGER_SECONDS) free_exchange(x);
    } else if (x->state == HEAD && x->since_byte == 0) {
        double limit = x->fresh ? o->body_timeout : o->idle_timeout;
        if (x->http->draining || now - x->since > limit) free_exchange(x);
    } else if (x->state == HEAD || x->state == BODY) {
        double grace = (double)x->body.len / LEAST_BYTES_PER_SECOND;
        if (now - x->since_byte > o->body_timeout + grace) refuse(x, 408, "the request did not arrive in time");
    }
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    ek_http *s = arg;
    (void)fd, (void)what;
    double now = ek_now();
    for (ek_exchange *x = s->first, *next; x; x = next) {
        next = x->next;
        sweep_one(x, now);
    }
    if (s->listener && !s->draining) evconnlistener_enable(s->listener);
}

/* --- open and close --- */

static ek_err listen_on(ek_http *s, const char *host, int port)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
    int bad = getaddrinfo(host, service, &hints, &list);
    if (bad) return ek_fail(EK_EIO, "cannot listen on %s: %s", host, gai_strerror(bad));
    s->listener = evconnlistener_new_bind(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC,
                                          1024, list->ai_addr, (int)list->ai_addrlen);
    int why = errno;
    freeaddrinfo(list);
    if (!s->listener) return ek_fail(EK_EIO, "cannot listen on %s port %d: %s", host, port, strerror(why));
    evconnlistener_set_error_cb(s->listener, on_accept_error);

    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&addr, &len))
        return ek_fail(EK_EIO, "cannot read the listening port: %s", strerror(errno));
    s->port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                               : ((struct sockaddr_in *)&addr)->sin_port);
    return EK_OK;
}

ek_err ek_http_open(ek_http **out, struct event_base *base, const ek_http_opts *opts, ek_handler_fn *handler, void *arg)
{
    ek_http *s = ek_alloc(sizeof *s);
    s->base = base;
    s->opts = *opts;
    s->handler = handler;
    s->arg = arg;
    s->sweep = event_new(base, -1, EV_PERSIST, on_sweep, s);
    struct timeval every = {0, 250000};
    event_add(s->sweep, &every);
    ek_err err = listen_on(s, opts->host, opts->port);
    if (err) {
        ek_http_close(s);
        return err;
    }
    *out = s;
    return EK_OK;
}

int ek_http_port(const ek_http *s)
{
    return s->port;
}

int ek_http_busy(const ek_http *s)
{
    return s->n_busy;
}

void ek_http_on_error(ek_http *s, ek_http_error_fn *fn)
{
    s->error = fn;
}

void ek_http_drain(ek_http *s)
{
    s->draining = true;
    if (s->listener) evconnlistener_free(s->listener);
    s->listener = NULL;
}

void ek_http_close(ek_http *s)
{
    if (s->listener) evconnlistener_free(s->listener);
    while (s->first) ek_exchange_lost(s->first);
    event_free(s->sweep);
    free(s);
}
