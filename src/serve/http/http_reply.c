/* A handler's view of the request, and replies: whole, or in pieces with back-pressure. */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/http/http_state.h"
#include "serve/http/http.h"

enum {
    SENT_PER_TURN = 256 << 10, /* bytes per turn to one reader, however fast; then others have their turn */
    UNCOUNTED = 64 << 10,      /* bytes of a stream that do not count as request memory */
    FRAMING = 32               /* of a chunk */
};

/* --- the request --- */

const char *ek_exchange_method(const ek_exchange *x)
{
    return x->method;
}

const char *ek_exchange_path(const ek_exchange *x)
{
    return x->path;
}

const char *ek_exchange_prefix(const ek_exchange *x)
{
    const char *prefix = x->http->opts.path_prefix;
    return prefix ? prefix : "";
}

ek_span ek_exchange_target(const ek_exchange *x)
{
    return x->head.target;
}

int ek_exchange_query(const ek_exchange *x, const char *name, char *out, size_t room)
{
    return ek_http_query(out, room, x->head.target, name);
}

const char *ek_exchange_find_nth(const ek_exchange *x, const char *header, int i)
{
    for (int k = 0; k < x->head.n_fields; k++)
        if (!strcasecmp(x->head.field[k].name.p, header) && i-- == 0) return x->head.field[k].value.p;
    return NULL;
}

const char *ek_exchange_find(const ek_exchange *x, const char *header)
{
    return ek_exchange_find_nth(x, header, 0);
}

ek_span ek_exchange_body(const ek_exchange *x)
{
    return (ek_span){ek_body_text(&x->body), x->body.len};
}

ek_body ek_exchange_take_body(ek_exchange *x)
{
    ek_body body = x->body;
    x->body = (ek_body){0};
    x->body_counted = 0;
    return body;
}

void ek_exchange_return_body(ek_exchange *x, ek_body *body)
{
    x->body = *body;
    x->body_counted = body->len;
    *body = (ek_body){0};
}

void ek_http_body_freed(ek_http *s, size_t n)
{
    s->body_bytes -= n;
}

uint64_t ek_exchange_client(const ek_exchange *x)
{
    return x->conn->client;
}

bool ek_exchange_is_local(const ek_exchange *x)
{
    static const char *const proxies[] = {"forwarded", "x-forwarded-for", "x-real-ip", "via"};
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++)
        if (ek_exchange_find(x, proxies[i])) return false;
    return x->conn->local;
}

uint64_t ek_exchange_number(const ek_exchange *x)
{
    return x->number;
}

bool ek_exchange_begun(const ek_exchange *x)
{
    return x->begun;
}

void ek_exchange_on_drained(ek_exchange *x, void (*drained)(void *user))
{
    x->drained = drained;
}

size_t ek_exchange_max_unsent(const ek_exchange *x)
{
    return x->http->opts.max_unsent;
}

void ek_exchange_on_gone(ek_exchange *x, void (*gone)(void *user), void *user)
{
    x->gone = gone;
    x->gone_user = user;
}

static void release_lent(ek_exchange *x)
{
    ek_outgoing lent = x->lent;
    x->lent = (ek_outgoing){0};
    if (lent.release) lent.release(lent.arg);
}

static void give_memory(ek_exchange *x)
{
    if (x->counted) ek_request_memory_give(x->http->opts.memory, x->counted);
    x->counted = 0;
}

void ek_exchange_free(ek_exchange *x)
{
    ek_http *s = x->http;
    release_lent(x);
    give_memory(x);
    ek_buf_fini(&x->behind);
    if (x->dispatched) s->n_busy--;
    if (x->woken) event_free(x->woken);
    s->body_bytes -= x->body_counted;
    for (int i = 0; i < x->n_headers; i++) {
        free(x->header[i].name);
        free(x->header[i].value);
    }
    free(x->header);
    free(x->head_text);
    free(x->method);
    free(x->path);
    ek_body_fini(&x->body);
    ek_buf_fini(&x->out);
    free(x);
}

/* --- the reply --- */

void ek_exchange_header(ek_exchange *x, const char *name, const char *value)
{
    x->header = ek_realloc(x->header, (size_t)(x->n_headers + 1) * sizeof *x->header);
    x->header[x->n_headers].name = ek_strdup(name);
    x->header[x->n_headers++].value = ek_strdup(value);
}

const char *ek_exchange_header_of(const ek_exchange *x, const char *name)
{
    for (int i = 0; i < x->n_headers; i++)
        if (!strcmp(x->header[i].name, name)) return x->header[i].value;
    return NULL;
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {204, "No Content"},
                   {304, "Not Modified"},
                   {308, "Permanent Redirect"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {412, "Precondition Failed"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {505, "HTTP Version Not Supported"},
                   {529, "Overloaded"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return status < 400 ? "OK" : "Error";
}

/* Of this second; in the locale C, which this program never leaves. */
static const char *date_of(ek_http *s)
{
    const time_t now = time(NULL);
    struct tm tm;
    if (now == s->dated) return s->date;
    gmtime_r(&now, &tm);
    strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    s->dated = now;
    return s->date;
}

static void put_line(ek_buf *out, const char *name, const char *value)
{
    ek_buf_str(out, name);
    ek_buf_str(out, ": ");
    ek_buf_str(out, value);
    ek_buf_str(out, "\r\n");
}

static void put_head(ek_exchange *x, int status, const char *type)
{
    x->begun = true;
    x->status = status;
    x->http->n_responses[status]++;
    x->close |= x->http->draining;
    ek_buf_fmt(&x->out, "HTTP/1.1 %d %s\r\n", status, reason(status));
    put_line(&x->out, "date", date_of(x->http));
    put_line(&x->out, "server", "evenkeel");
    if (type) put_line(&x->out, "content-type", type);
    for (int i = 0; i < x->n_headers; i++) put_line(&x->out, x->header[i].name, x->header[i].value);
    if (x->close) ek_buf_str(&x->out, "connection: close\r\n");
    else if (x->head.minor == 0) ek_buf_str(&x->out, "connection: keep-alive\r\n");
}

static void put_whole_head(ek_exchange *x, int status, const char *type, size_t n)
{
    put_head(x, status, type);
    if (status == 204) ek_buf_str(&x->out, "\r\n");
    else ek_buf_fmt(&x->out, "content-length: %zu\r\n\r\n", n);
}

/* There are bytes to send, or the end of the reply. Wakes later in this turn of the loop, so that all output of a turn
 * is sent together and nothing is freed while its owner uses it. */
static void wake(ek_exchange *x)
{
    if (x->sink) ek_loop_again(x->woken);
    else event_active(x->conn->writable, EV_WRITE, 0);
}

static void end_whole(ek_exchange *x)
{
    x->ended = true;
    x->gone = NULL;
    if (x->sink) x->sink->ended(x->sink_arg);
    wake(x);
}

void ek_exchange_reply(ek_exchange *x, int status, const char *type, const char *body, size_t n)
{
    if (!x->sink) put_whole_head(x, status, type, n);
    if (!x->sink && !x->no_body && status != 204) ek_buf_add(&x->out, body, n);
    end_whole(x);
}

static size_t bytes_of(const ek_outgoing *b)
{
    size_t n = b->part[0].n + b->part[1].n + b->part[2].n;
    for (int i = 0; i < b->n; i++) n += b->list[i].n;
    return n;
}

void ek_exchange_reply_from(ek_exchange *x, int status, const char *type, const ek_outgoing *body)
{
    x->lent = *body;
    if (!x->sink) put_whole_head(x, status, type, bytes_of(body));
    if (x->sink || x->no_body) release_lent(x);
    end_whole(x);
}

void ek_exchange_begin(ek_exchange *x, int status, const char *type)
{
    x->framed = x->head.minor == 1;
    if (!x->framed) x->close = true; /* the reply ends with the connection */
    put_head(x, status, type);
    ek_buf_str(&x->out, x->framed ? "transfer-encoding: chunked\r\n\r\n" : "\r\n");
    wake(x);
}

/* Sent bytes at the front are dropped once they are the larger part. */
static void compact(ek_exchange *x)
{
    size_t left = x->out.len - x->n_sent;
    if (x->n_sent < left || x->n_sent == 0) return;
    memmove(x->out.data, x->out.data + x->n_sent, left);
    x->out.len = left;
    x->n_sent = 0;
}

/* Counts the memory for n more bytes in x->out, before they are added. */
static bool has_memory(ek_exchange *x, size_t n)
{
    ek_request_memory *m = x->http->opts.memory;
    size_t cap = x->out.cap ? x->out.cap : 64, need = x->out.len + n + FRAMING;
    while (cap < need) cap *= 2; /* as ek_buf grows */
    if (!m || cap <= UNCOUNTED || cap <= x->counted) return true;
    if (ek_request_memory_take(m, x->counted, cap - x->counted)) return false;
    x->counted = cap;
    return true;
}

/* Appends a piece behind everything that was sent before. */
static void put_piece(ek_exchange *x, const char *bytes, size_t n)
{
    ek_buf *to = bytes_of(&x->lent) > 0 ? &x->behind : &x->out;
    if (x->framed) ek_buf_fmt(to, "%zx\r\n", n);
    ek_buf_add(to, bytes, n);
    if (x->framed) ek_buf_str(to, "\r\n");
    wake(x);
}

void ek_exchange_by_line(ek_exchange *x)
{
    x->by_line = true;
}

bool ek_exchange_send(ek_exchange *x, const char *bytes, size_t n)
{
    if (x->no_body || n == 0) return true;
    if (x->sink) {
        x->sink->take(x->sink_arg, bytes, n);
        return true;
    }
    compact(x);
    x->cut = x->cut || ek_exchange_unsent(x) + n > x->http->opts.max_unsent || !has_memory(x, n);
    if (!x->cut) put_piece(x, bytes, n);
    return !x->cut; /* the sweep ends it, or its owner, who is sending now */
}

void ek_exchange_send_from(ek_exchange *x, const ek_outgoing *bytes)
{
    EK_ASSERT(ek_exchange_unsent(x) == 0 && !bytes->part[1].n && !bytes->part[2].n && !bytes->n);
    x->lent = *bytes;
    if (x->sink) x->sink->take(x->sink_arg, bytes->part[0].p, bytes->part[0].n);
    if (x->no_body || x->sink) release_lent(x);
    if (x->framed) ek_buf_fmt(&x->out, "%zx\r\n", bytes->part[0].n);
    if (x->framed) x->lent.part[1] = (ek_span){"\r\n", 2};
    wake(x);
}

void ek_exchange_end(ek_exchange *x)
{
    ek_buf *to = bytes_of(&x->lent) > 0 ? &x->behind : &x->out;
    if (x->framed && !x->no_body && !x->cut) ek_buf_str(to, "0\r\n\r\n");
    end_whole(x);
}

void ek_exchange_end_with(ek_exchange *x, const char *bytes, size_t n)
{
    x->cut = false;
    x->hasty = x->close = true;
    if (x->sink && n > 0) x->sink->take(x->sink_arg, bytes, n);
    else if (n > 0 && !x->no_body) put_piece(x, bytes, n);
    ek_exchange_end(x);
}

/* --- out --- */

size_t ek_exchange_unsent(const ek_exchange *x)
{
    return x->out.len - x->n_sent + bytes_of(&x->lent) + x->behind.len;
}

/* The number of bytes to the end of the line that is being sent, framing included; without a line end all bytes. */
static size_t line_end(const ek_exchange *x)
{
    const char *s = x->out.data + x->n_sent, *const end = x->out.data + x->out.len, *p = s;
    const char *const frame = x->framed ? "\n\r\n" : "\n";
    const size_t n = strlen(frame);
    while (p && (size_t)(end - p) >= n && memcmp(p, frame, n) != 0) p = memchr(p + 1, '\n', (size_t)(end - p) - 1);
    return p && (size_t)(end - p) >= n ? (size_t)(p - s) + n : (size_t)(end - s);
}

/* Sends at most max bytes. Returns as send does. */
static ssize_t send_some(const ek_exchange *x, size_t max)
{
    const size_t line = x->by_line && x->out.len > x->n_sent ? line_end(x) : max;
    if (line < max) max = line;
    const ek_span out = {x->out.data + x->n_sent, x->out.len - x->n_sent};
    struct iovec v[16];
    size_t n = 0;
    for (int i = 0; i < 4 + x->lent.n && n < sizeof v / sizeof *v && max > 0; i++) {
        const ek_span *p = i == 0 ? &out : i < 4 ? &x->lent.part[i - 1] : &x->lent.list[i - 4];
        size_t k = p->n < max ? p->n : max;
        if (k == 0) continue;
        v[n++] = (struct iovec){(void *)(uintptr_t)p->p, k};
        max -= k;
    }
    struct msghdr m = {.msg_iov = v, .msg_iovlen = n};
    return sendmsg(x->conn->fd, &m, MSG_NOSIGNAL);
}

static void note_sent(ek_exchange *x, size_t n)
{
    size_t k = x->out.len - x->n_sent < n ? x->out.len - x->n_sent : n;
    x->n_sent += k;
    n -= k;
    for (int i = 0; i < 3 + x->lent.n && n > 0; i++) {
        ek_span *p = i < 3 ? &x->lent.part[i] : &x->lent.list[i - 3];
        k = p->n < n ? p->n : n;
        p->p += k;
        p->n -= k;
        n -= k;
    }
}

/* A borrowed piece is sent; the bytes behind it follow. */
static void next_part(ek_exchange *x)
{
    release_lent(x);
    ek_buf_fini(&x->out);
    x->out = x->behind;
    x->behind = (ek_buf){0};
    x->n_sent = 0;
}

void ek_exchange_flush(ek_exchange *x)
{
    ek_conn *c = x->conn;
    size_t room = SENT_PER_TURN;
    while (ek_exchange_unsent(x) > 0) {
        ssize_t n = room ? send_some(x, room) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && errno == EAGAIN)) {
            event_add(c->writable, NULL);
            return;
        }
        if (n < 0) {
            ek_conn_kill(c);
            return;
        }
        note_sent(x, (size_t)n);
        if (x->behind.len > 0 && ek_exchange_unsent(x) == x->behind.len) next_part(x);
        room -= (size_t)n;
        c->last_sent = ek_now();
    }
    release_lent(x);
    if (x->out.cap > UNCOUNTED) ek_buf_fini(&x->out);
    give_memory(x);
    ek_buf_clear(&x->out);
    x->n_sent = 0;
    if (x->ended && !x->cut) ek_conn_next(c);
    else if (!x->ended && x->drained) x->drained(x->gone_user);
}

/* --- exchanges without a connection: the reply goes to a sink --- */

/* Wakes the owner like a connection would: not within the call that sent. */
static void on_woken(evutil_socket_t fd, short what, void *arg)
{
    ek_exchange *x = arg;
    (void)fd, (void)what;
    if (x->ended) ek_exchange_free(x);
    else if (x->drained) x->drained(x->gone_user);
}

ek_exchange *ek_exchange_detach(const ek_exchange *from, const ek_sink *sink, void *arg)
{
    ek_exchange *x = ek_alloc(sizeof *x);
    x->http = from->http;
    x->number = from->number;
    x->method = ek_strdup(from->method);
    x->path = ek_strdup(from->path);
    x->sink = sink;
    x->sink_arg = arg;
    x->woken = event_new(from->http->base, -1, 0, on_woken, x);
    x->dispatched = x->begun = true;
    x->http->n_busy++;
    return x;
}

void ek_exchange_drop(ek_exchange *x)
{
    void (*gone)(void *user) = x->gone;
    x->gone = NULL;
    if (gone) gone(x->gone_user);
    ek_exchange_free(x);
}
