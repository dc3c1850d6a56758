/* The request as the handler sees it, and replies: whole, or in pieces with back-pressure. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/http_state.h"

const char *ek_exchange_method(const ek_exchange *x)
{
    return x->method;
}

const char *ek_exchange_path(const ek_exchange *x)
{
    return x->path;
}

const char *ek_exchange_find(const ek_exchange *x, const char *header)
{
    return MHD_lookup_connection_value(x->conn->mhd, MHD_HEADER_KIND, header);
}

ek_span ek_exchange_body(const ek_exchange *x)
{
    return (ek_span){ek_buf_text(&x->body), x->body.len};
}

ek_buf ek_exchange_take_body(ek_exchange *x)
{
    ek_buf body = x->body;
    x->body = (ek_buf){0};
    x->body_counted = 0;
    return body;
}

void ek_http_body_freed(ek_http *s, size_t n)
{
    s->body_bytes -= n;
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
    x->header = ek_realloc(x->header, (size_t)(x->n_headers + 1) * sizeof *x->header);
    x->header[x->n_headers].name = ek_strdup(name);
    x->header[x->n_headers++].value = ek_strdup(value);
}

/* The library asks for more of a streamed reply. */
static ssize_t read_out(void *arg, uint64_t pos, char *buf, size_t room)
{
    ek_exchange *x = arg;
    (void)pos;
    if (x->cut) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = x->out.len - x->n_sent;
    if (n == 0 && x->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        x->suspended = true;
        MHD_suspend_connection(x->conn->mhd);
        return 0;
    }
    if (n > room) n = room;
    memcpy(buf, x->out.data + x->n_sent, n);
    x->n_sent += n;
    if (x->n_sent == x->out.len) {
        ek_buf_clear(&x->out);
        x->n_sent = 0;
    }
    return (ssize_t)n;
}

static void add_headers(ek_exchange *x, const char *type)
{
    MHD_add_response_header(x->response, "content-type", type);
    MHD_add_response_header(x->response, "server", "evenkeel");
    if (x->http->draining) MHD_add_response_header(x->response, "connection", "close");
    for (int i = 0; i < x->n_headers; i++) MHD_add_response_header(x->response, x->header[i].name, x->header[i].value);
}

/* Now if the connection waits for it, else when the handler returns to the library. */
static void queue_soon(ek_exchange *x)
{
    if (!x->suspended) return;
    ek_exchange_queue(x);
    ek_http_wake(x);
}

void ek_exchange_reply(ek_exchange *x, int status, const char *type, const char *body, size_t n)
{
    x->begun = x->ended = true;
    x->gone = NULL;
    x->status = status;
    x->response = MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    EK_ASSERT(x->response);
    add_headers(x, type);
    queue_soon(x);
}

void ek_exchange_begin(ek_exchange *x, int status, const char *type)
{
    enum { BLOCK = 16 << 10 };
    x->begun = true;
    x->status = status;
    x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_out, x, NULL);
    EK_ASSERT(x->response);
    add_headers(x, type);
    queue_soon(x);
}

/* Taken bytes at the front are dropped once they are the larger part. */
static void compact(ek_exchange *x)
{
    size_t left = x->out.len - x->n_sent;
    if (x->n_sent < left || x->n_sent == 0) return;
    memmove(x->out.data, x->out.data + x->n_sent, left);
    x->out.len = left;
    x->n_sent = 0;
}

void ek_exchange_send(ek_exchange *x, const char *bytes, size_t n)
{
    if (x->cut) return;
    compact(x);
    if (x->out.len - x->n_sent + n > x->http->opts.max_unsent) {
        x->cut = true; /* the sweep ends it; now its owner is in the middle of sending */
        return;
    }
    ek_buf_add(&x->out, bytes, n);
    ek_http_wake(x);
}

void ek_exchange_end(ek_exchange *x)
{
    x->ended = true;
    x->gone = NULL;
    ek_http_wake(x);
}
