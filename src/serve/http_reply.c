/* Replies: status line and headers, whole or in chunks. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <string.h>

#include "serve/http_conn.h"

const ek_http_head *ek_exchange_head(const ek_exchange *x)
{
    return &x->head;
}

ek_span ek_exchange_path(const ek_exchange *x)
{
    ek_span t = x->head.target;
    const char *q = memchr(t.p, '?', t.n);
    if (q) t.n = (size_t)(q - t.p);
    return t;
}

ek_span ek_exchange_body(const ek_exchange *x)
{
    return (ek_span){ek_buf_text(&x->body), x->body.len};
}

uint64_t ek_exchange_number(const ek_exchange *x)
{
    return x->number;
}

bool ek_exchange_begun(const ek_exchange *x)
{
    return x->begun;
}

void ek_exchange_on_gone(ek_exchange *x, void (*gone)(void *user), void *user)
{
    x->gone = gone;
    x->gone_user = user;
}

void ek_exchange_header(ek_exchange *x, const char *name, const char *value)
{
    ek_buf_fmt(&x->headers, "%s: %s\r\n", name, value);
}

void ek_exchange_close_after(ek_exchange *x)
{
    x->close_after = true;
}

static const char *reason(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
    }
}

/* length < 0: the length is not known yet. */
static void start(ek_exchange *x, int status, const char *type, int64_t length)
{
    struct evbuffer *out = bufferevent_get_output(x->bev);
    x->begun = true;
    if (x->http->draining) x->close_after = true;
    if (length < 0 && x->head.minor == 0) x->plain = x->close_after = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nserver: evenkeel\r\ncontent-type: %s\r\n%s", status, reason(status), type,
                        ek_buf_text(&x->headers));
    if (length >= 0) evbuffer_add_printf(out, "content-length: %lld\r\n", (long long)length);
    else if (!x->plain) evbuffer_add_printf(out, "transfer-encoding: chunked\r\n");
    if (x->close_after) evbuffer_add_printf(out, "connection: close\r\n");
    else if (x->head.minor == 0) evbuffer_add_printf(out, "connection: keep-alive\r\n");
    evbuffer_add(out, "\r\n", 2);
}

/* Ready for the connection's next request, once the output is gone. */
static void finish(ek_exchange *x)
{
    x->state = SENDING;
    x->gone = NULL;
    x->begun = x->plain = x->fresh = false;
    x->http->body_bytes -= x->body_counted;
    x->body_counted = 0;
    ek_buf_fini(&x->body);
    ek_buf_clear(&x->headers);
}

static bool wants_body(const ek_exchange *x)
{
    return !ek_span_is(x->head.method, "HEAD");
}

void ek_exchange_reply(ek_exchange *x, int status, const char *type, const char *body, size_t n)
{
    start(x, status, type, (int64_t)n);
    if (wants_body(x)) evbuffer_add(bufferevent_get_output(x->bev), body, n);
    finish(x);
}

void ek_exchange_begin(ek_exchange *x, int status, const char *type)
{
    start(x, status, type, -1);
}

void ek_exchange_send(ek_exchange *x, const char *bytes, size_t n)
{
    if (x->cut || n == 0 || !wants_body(x)) return;
    struct evbuffer *out = bufferevent_get_output(x->bev);
    if (evbuffer_get_length(out) + n > x->http->opts.max_unsent) {
        x->cut = true; /* the next sweep closes it; now its owner is in the middle of sending */
        return;
    }
    if (x->plain) {
        evbuffer_add(out, bytes, n);
        return;
    }
    evbuffer_add_printf(out, "%zx\r\n", n);
    evbuffer_add(out, bytes, n);
    evbuffer_add(out, "\r\n", 2);
}

void ek_exchange_end(ek_exchange *x)
{
    struct evbuffer *out = bufferevent_get_output(x->bev);
    if (!x->plain && !x->cut && wants_body(x)) evbuffer_add(out, "0\r\n\r\n", 5);
    finish(x);
    /* Nothing left to send: the write callback that moves the connection on must still come. */
    if (evbuffer_get_length(out) == 0) bufferevent_trigger(x->bev, EV_WRITE, BEV_OPT_DEFER_CALLBACKS);
}
