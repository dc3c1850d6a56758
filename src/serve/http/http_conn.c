/* A connection: turns bytes into requests. */
#define _GNU_SOURCE /* mremap */
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "serve/http/http_state.h"

enum {
    SEND_BUFFER = 128 << 10, /* the kernel's */
    READS_PER_TURN = 4,      /* reads of ek_http.chunk bytes per turn; then other connections have their turn */
};

/* --- pipelined requests --- */

/* A connection that has sent more than one request gets one answered per turn, and none is read from it meanwhile. */
static void wait_for_turn(ek_conn *c)
{
    ek_http *s = c->http;
    if (!s->later) ek_loop_again(s->turn);
    c->later = NULL;
    c->later_link = s->later_end;
    *s->later_end = c;
    s->later_end = &c->later;
}

static void stop_waiting(ek_conn *c)
{
    ek_http *s = c->http;
    if (!c->later_link) return;
    *c->later_link = c->later;
    if (c->later) c->later->later_link = c->later_link;
    else s->later_end = c->later_link;
    c->later_link = NULL;
}

/* --- the end of a connection --- */

void ek_conn_kill(ek_conn *c)
{
    ek_http *s = c->http;
    if (c->state == EK_CONN_DEAD) return;
    c->state = EK_CONN_DEAD;
    stop_waiting(c);
    ek_crowd_leave(c);
    if (s->swept == c) s->swept = c->next;
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    c->next = s->dead; /* callers may still look at it */
    s->dead = c;
    s->n_conns--;
    event_free(c->readable);
    event_free(c->writable);
    close(c->fd);
    ek_exchange *x = c->x;
    c->x = NULL;
    if (!x) return;
    if (x->gone) x->gone(x->gone_user);
    ek_exchange_free(x);
}

static void linger(ek_conn *c)
{
    c->state = EK_CONN_LINGER;
    c->since = c->last_byte = ek_now();
    ek_buf_fini(&c->in);
    shutdown(c->fd, SHUT_WR);
    event_add(c->readable, NULL);
}

/* --- bodies --- */

enum { MAPPED = 256 << 10 }; /* bytes of a body from which on it is mapped */

static bool grow(ek_body *b, size_t need)
{
    size_t cap = b->cap ? b->cap : 1024;
    while (cap < need) cap *= 2;
    char *data;
    if (b->mapped) {
        data = mremap(b->data, b->cap, cap, MREMAP_MAYMOVE);
        if (data == MAP_FAILED) return false;
    } else if (cap >= MAPPED) {
        data = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return false;
        if (b->len) memcpy(data, b->data, b->len);
        free(b->data);
        b->mapped = true;
    } else {
        data = realloc(b->data, cap);
        if (!data) return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

/* False: no memory; b is as before. */
static bool add_to_body(ek_body *b, const char *bytes, size_t n)
{
    if (b->len + n + 1 > b->cap && !grow(b, b->len + n + 1)) return false;
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

void ek_body_fini(ek_body *b)
{
    if (b->mapped) munmap(b->data, b->cap);
    else free(b->data);
    *b = (ek_body){0};
}

const char *ek_body_text(const ek_body *b)
{
    return b->data ? b->data : "";
}

/* False if the request is refused. */
static bool add_body(ek_conn *c, const char *p, size_t n)
{
    ek_http *s = c->http;
    ek_exchange *x = c->x;
    ek_crowd_body_grows(c, n);
    if (x->body.len + n > s->opts.max_body) {
        ek_conn_refuse(c, 413, "the request's body is larger than the limit");
        return false;
    }
    while (x->body.len + n > EK_HTTP_SMALL_BODY && s->body_bytes + n > s->opts.body_memory)
        if (!ek_crowd_give_up_body(c, n)) {
            ek_conn_refuse(c, 503, "too many large requests are arriving at once, try again later");
            return false;
        }
    if (!add_to_body(&x->body, p, n)) {
        ek_conn_refuse(c, 503, "the system has no memory for the request's body now, try again later");
        return false;
    }
    x->body_counted += n;
    s->body_bytes += n;
    return true;
}

static void dispatch(ek_conn *c)
{
    ek_exchange *x = c->x;
    c->state = EK_CONN_REPLY;
    c->fresh = false;
    c->since_byte = 0;
    c->last_sent = ek_now();
    c->http->n_busy++;
    x->dispatched = true;
    event_del(c->readable);
    c->http->handler(c->http->arg, x);
}

/* Takes body bytes from p[0, n) and dispatches the request when they were the last. Returns how many were taken; the
 * connection may be in any state afterwards. */
static size_t take_body(ek_conn *c, const char *p, size_t n)
{
    ek_exchange *x = c->x;
    size_t took = 0;
    while (took < n && x->head.chunked && !ek_http_chunks_ended(&x->chunks)) {
        ek_span data;
        ptrdiff_t k = ek_http_chunks_take(&x->chunks, p + took, n - took, &data);
        if (k < 0) {
            ek_conn_refuse(c, 400, "the body is not in the chunked coding that its head announces");
            return n;
        }
        took += (size_t)k;
        if (data.n && !add_body(c, data.p, data.n)) return n;
    }
    if (!x->head.chunked) {
        took = x->head.length - x->body.len < n ? (size_t)(x->head.length - x->body.len) : n;
        if (took && !add_body(c, p, took)) return n;
    }
    if (x->head.chunked ? ek_http_chunks_ended(&x->chunks) : x->body.len == x->head.length) dispatch(c);
    return took;
}

/* --- heads --- */

static ek_exchange *open_exchange(ek_conn *c, const char *text, size_t n)
{
    ek_exchange *x = ek_alloc(sizeof *x);
    x->http = c->http;
    x->conn = c;
    x->number = ++c->http->n_requests;
    x->head_text = ek_alloc(n + 1);
    if (n) memcpy(x->head_text, text, n);
    c->x = x;
    return x;
}

static char *copy_span(ek_span s)
{
    char *copy = ek_alloc(s.n + 1);
    if (s.n) memcpy(copy, s.p, s.n);
    return copy;
}

void ek_conn_refuse(ek_conn *c, int status, const char *text)
{
    ek_exchange *x = c->x ? c->x : open_exchange(c, NULL, 0);
    ek_http *s = c->http;
    ek_buf b = {0};
    s->error(s->arg, &b, x->path ? x->path : "", status, text);
    if (c->state != EK_CONN_REPLY) event_del(c->readable);
    c->state = EK_CONN_REPLY;
    c->since_byte = 0;
    c->last_sent = ek_now();
    s->body_bytes -= x->body_counted;
    x->body_counted = 0;
    ek_body_fini(&x->body);
    s->n_busy++;
    x->dispatched = x->close = true;
    if (status == 503) ek_exchange_header(x, "retry-after", "5");
    ek_exchange_reply(x, status, "application/json", ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
}

/* Begins a request: its head is complete, n bytes at the front of c->in, which are taken. */
static void begin_request(ek_conn *c, size_t n)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    ek_exchange *x = open_exchange(c, c->in.data, n);
    memmove(c->in.data, c->in.data + n, c->in.len - n);
    c->in.len -= n;
    c->scanned = 0;
    ek_http_head *h = &x->head;
    if (!ek_http_head_read(h, x->head_text, n)) {
        ek_conn_refuse(c, h->status, h->why);
        return;
    }
    for (int i = 0; i < h->n_fields; i++) {
        x->head_text[h->field[i].name.p + h->field[i].name.n - x->head_text] = '\0';
        x->head_text[h->field[i].value.p + h->field[i].value.n - x->head_text] = '\0';
    }
    x->method = copy_span(h->method);
    x->path = ek_alloc(h->target.n + 2);
    x->no_body = !strcmp(x->method, "HEAD");
    x->close = !h->keep_alive || c->reserved;
    c->state = EK_CONN_BODY;
    ek_crowd_body_begins(c);
    const bool path_is_good = ek_http_path(x->path, h->target);
    if (path_is_good) ek_http_strip(x->path, c->http->opts.path_prefix);
    if (!path_is_good) {
        x->path[0] = '\0';
        ek_conn_refuse(c, 400, "the target has NUL in it");
    } else if (c->reserved && !(c->http->opts.always && c->http->opts.always(c->http->arg, x))) {
        ek_conn_refuse(c, 503, "too many connections are open, try again later");
    } else if (h->length > c->http->opts.max_body) {
        ek_conn_refuse(c, 413, "the request's body is larger than the limit");
    } else if (!h->chunked && h->length == 0) {
        dispatch(c);
    } else if (c->http->opts.takes_body && !c->http->opts.takes_body(c->http->arg, x)) {
        x->close = true; /* the rest of the request must not be read as another request */
        dispatch(c);
    } else if (h->expects_continue && c->in.len == 0) {
        if (send(c->fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL) < 0) ek_conn_kill(c);
    }
}

/* Empty lines before a request are skipped, as RFC 9112 asks. */
static void skip_empty_lines(ek_conn *c)
{
    size_t k = 0;
    while (c->in.len - k >= 2 && c->in.data[k] == '\r' && c->in.data[k + 1] == '\n') k += 2;
    if (k == 0) return;
    memmove(c->in.data, c->in.data + k, c->in.len - k);
    c->in.len -= k;
    c->scanned = 0;
}

/* Processes as much of c->in as possible. */
static void process(ek_conn *c)
{
    while (c->in.len > 0) {
        if (c->state == EK_CONN_HEAD) {
            skip_empty_lines(c);
            int n = ek_http_head_end(ek_buf_text(&c->in), c->in.len, &c->scanned);
            if (n < 0) ek_conn_refuse(c, 400, "the head has NUL, or a line that does not end with CR LF");
            else if (n > EK_HTTP_MAX_HEAD || (n == 0 && c->in.len > EK_HTTP_MAX_HEAD))
                ek_conn_refuse(c, 431, "the head is larger than 32 KiB");
            else if (n > 0) begin_request(c, (size_t)n);
            else return;
        } else if (c->state == EK_CONN_BODY) {
            size_t took = take_body(c, c->in.data, c->in.len);
            if (c->state == EK_CONN_DEAD) return;
            memmove(c->in.data, c->in.data + took, c->in.len - took);
            c->in.len -= took;
        } else {
            return;
        }
    }
}

void ek_conn_next(ek_conn *c)
{
    ek_exchange *x = c->x;
    bool close = x->close || c->http->draining;
    c->x = NULL;
    ek_exchange_free(x);
    if (close) {
        linger(c);
        return;
    }
    c->state = EK_CONN_HEAD;
    c->probed = false;
    c->since = ek_now();
    if (c->in.len == 0) {
        event_add(c->readable, NULL);
        return;
    }
    c->since_byte = c->since;
    wait_for_turn(c);
}

void ek_conns_go_on(ek_http *s)
{
    ek_conn *last = NULL; /* later ones wait for the next turn */
    for (ek_conn *c = s->later; c; c = c->later) last = c;
    for (ek_conn *c; (c = s->later) != NULL;) {
        stop_waiting(c);
        process(c);
        if (c->state == EK_CONN_HEAD || c->state == EK_CONN_BODY) event_add(c->readable, NULL);
        if (c == last || ek_loop_spent(s->opts.loop)) break;
    }
    if (s->later) ek_loop_again(s->turn);
}

/* --- events --- */

static void take(ek_conn *c, const char *p, size_t n)
{
    c->last_byte = ek_now();
    if (c->state == EK_CONN_LINGER) return;
    if (c->state == EK_CONN_HEAD && c->since_byte == 0) c->since_byte = c->last_byte;
    if (c->state == EK_CONN_BODY && c->in.len == 0) { /* usually a large body does not go through c->in */
        size_t took = take_body(c, p, n);
        p += took;
        n -= took;
    }
    if (n == 0 || c->state == EK_CONN_DEAD || c->state == EK_CONN_LINGER) return;
    ek_buf_add(&c->in, p, n);
    process(c);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    ek_conn *c = arg;
    ek_http *s = c->http;
    (void)what;
    for (int i = 0; i < READS_PER_TURN; i++) {
        ssize_t n = recv(fd, s->chunk, sizeof s->chunk, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) { /* an incomplete request cannot be answered; a complete one is not read here */
            ek_conn_kill(c);
            return;
        }
        take(c, s->chunk, (size_t)n);
        bool more = c->state == EK_CONN_HEAD || c->state == EK_CONN_BODY || c->state == EK_CONN_LINGER;
        if (!more || (size_t)n < sizeof s->chunk || ek_loop_spent(s->opts.loop)) break;
    }
    ek_loop_spent(s->opts.loop);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    ek_conn *c = arg;
    (void)fd, (void)what;
    if (c->state == EK_CONN_REPLY && c->x->begun) ek_exchange_flush(c->x);
    ek_loop_spent(c->http->opts.loop);
}

ek_conn *ek_conn_open(ek_http *s, int fd)
{
    int yes = 1, unsent = SEND_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* unread output should stay in this process, where it is counted, not in the kernel */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unsent, sizeof unsent);
    ek_conn *c = ek_alloc(sizeof *c);
    c->http = s;
    c->fd = fd;
    c->since = c->last_byte = ek_now();
    c->fresh = true;
    ek_crowd_enter(c);
    c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    c->writable = event_new(s->base, fd, EV_WRITE, on_writable, c);
    EK_ASSERT(c->readable && c->writable);
    event_add(c->readable, NULL);
    c->next = s->first;
    if (c->next) c->next->link = &c->next;
    c->link = &s->first;
    s->first = c;
    s->n_conns++;
    return c;
}
