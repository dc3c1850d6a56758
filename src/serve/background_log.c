/* The events of background replies, and their readers. */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/background.h"
#include "serve/server_state.h"

enum {
    AHEAD = 256 << 10, /* maximum bytes in flight to a reader */
    PIECE = 32 << 10,
    HEARTBEAT_SECONDS = 10
};

struct ek_background_reader {
    ek_background_reader *next, **link;
    ek_background *of;
    ek_exchange *x;
    size_t at;    /* in the log */
    double last;  /* ek_now() of the last write */
    bool refused; /* it left too much unread and will be closed soon */
};

static void free_reader(ek_background_reader *r)
{
    *r->link = r->next;
    if (r->next) r->next->link = r->link;
    free(r);
}

static void on_gone(void *user)
{
    free_reader(user);
}

static size_t ahead(const ek_exchange *x)
{
    const size_t max = ek_exchange_max_unsent(x) / 2;
    return max < AHEAD ? max : AHEAD;
}

static void pump(void *user)
{
    ek_background_reader *r = user;
    const ek_background *b = r->of;
    while (r->at < b->log.len && !r->refused && ek_exchange_unsent(r->x) < ahead(r->x)) {
        const size_t left = b->log.len - r->at, n = left < PIECE ? left : PIECE;
        r->refused = !ek_exchange_send(r->x, b->log.data + r->at, n);
        r->at += n;
        r->last = ek_now();
    }
    if (r->refused || r->at < b->log.len || !b->ended) return;
    ek_exchange_end(r->x);
    free_reader(r);
}

static void pump_all(ek_background *b)
{
    for (ek_background_reader *r = b->readers, *next; r; r = next) {
        next = r->next;
        pump(r);
    }
}

/* --- memory --- */

static size_t size_of(const ek_background *b)
{
    return b->log.cap + (size_t)b->cap_starts * sizeof *b->starts;
}

static void free_log(ek_background *b)
{
    b->server->background_bytes -= size_of(b);
    ek_buf_fini(&b->log);
    free(b->starts);
    b->starts = NULL;
    b->n_starts = b->cap_starts = 0;
}

static void lose(ek_background *b)
{
    static const char why[] =
        "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"the events of this response made "
        "room for those of others: read the response itself\",\"param\":null,\"sequence_number\":0}\n\n";
    b->lost = true;
    free_log(b);
    while (b->readers) {
        ek_exchange_end_with(b->readers->x, why, sizeof why - 1);
        free_reader(b->readers);
    }
}

/* The response whose events go first: the oldest ended one, else the longest. */
static ek_background *largest(const ek_server *s)
{
    ek_background *found = NULL;
    for (ek_background *b = s->backgrounds; b; b = b->next) {
        if (b->lost || !b->streams) continue;
        const bool first = !found || (b->ended > 0 && !found->ended);
        const bool better = found && !first && (b->ended > 0) == (found->ended > 0) &&
                            (b->ended > 0 ? b->ended < found->ended : size_of(b) > size_of(found));
        if (first || better) found = b;
    }
    return found;
}

static void make_room(ek_server *s)
{
    ek_background *b;
    while (s->background_bytes > EK_BACKGROUND_BYTES && (b = largest(s))) lose(b);
}

/* --- writing --- */

static void note_start(ek_background *b, size_t at)
{
    if (b->n_starts == b->cap_starts) {
        b->cap_starts = b->cap_starts ? 2 * b->cap_starts : 64;
        b->starts = ek_realloc(b->starts, (size_t)b->cap_starts * sizeof *b->starts);
    }
    b->starts[b->n_starts++] = at;
}

void ek_background_log_add(ek_background *b, const char *bytes, size_t n)
{
    const size_t before = size_of(b);
    const char *p = bytes, *const end = bytes + n;
    if (b->lost) return;
    while (p < end) { /* an event's data have no line ends */
        note_start(b, b->log.len + (size_t)(p - bytes));
        p = memmem(p, (size_t)(end - p), "\n\n", 2);
        p = p ? p + 2 : end;
    }
    ek_buf_add(&b->log, bytes, n);
    b->server->background_bytes += size_of(b) - before;
    make_room(b->server);
    if (!b->lost) pump_all(b);
}

void ek_background_log_end(ek_background *b)
{
    b->ended = b->ended > 0 ? b->ended : ek_now();
    pump_all(b);
}

void ek_background_log_close(ek_background *b)
{
    while (b->readers) {
        ek_exchange_on_gone(b->readers->x, NULL, NULL);
        ek_exchange_end_with(b->readers->x, NULL, 0);
        free_reader(b->readers);
    }
    free_log(b);
}

/* --- reading --- */

void ek_background_read(ek_background *b, ek_exchange *x, int first)
{
    ek_background_reader *r = ek_alloc(sizeof *r);
    *r = (ek_background_reader){.of = b, .x = x, .at = first < b->n_starts ? b->starts[first] : b->log.len};
    r->last = ek_now();
    r->next = b->readers;
    if (r->next) r->next->link = &r->next;
    r->link = &b->readers;
    b->readers = r;
    ek_exchange_on_gone(x, on_gone, r);
    ek_exchange_on_drained(x, pump);
    ek_exchange_header(x, "cache-control", "no-cache");
    ek_exchange_header(x, "x-accel-buffering", "no"); /* keeps nginx from buffering the stream */
    ek_exchange_begin(x, 200, "text/event-stream; charset=utf-8");
    pump(r);
}

void ek_background_beat(ek_background *b)
{
    for (ek_background_reader *r = b->readers, *next; r; r = next) {
        next = r->next;
        if (r->refused || r->at < b->log.len || ek_now() - r->last < HEARTBEAT_SECONDS) continue;
        ek_buf out = {0};
        ek_dialect_responses.heartbeat(&out);
        r->refused = !ek_exchange_send(r->x, out.data, out.len);
        r->last = ek_now();
        ek_buf_fini(&out);
    }
}
