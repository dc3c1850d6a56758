#include "cache/shared/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"

/* CHUNK: buffer of received bytes; a large reply is received directly into its target. */
enum { CHUNK = 16 << 10, AT_ONCE = 4 << 10, SMALL = 16 << 10 };

struct ek_redis {
    ek_link *link;
    ek_reply last; /* its text belongs to it */
    uint8_t *chunk;
    size_t first, end; /* bytes [first, end) of chunk were received and not read */
    ek_buf out;
};

/* --- replies --- */

static ek_err out_of_form(const char *why)
{
    char shown[EK_PLAIN_NAME];
    return ek_fail(EK_EFORMAT, "not a reply of Redis: %s", ek_plain_name(shown, why));
}

/* Receives at least one more byte into the chunk, which has room. */
static ek_err receive(ek_redis *r, double deadline)
{
    size_t got;
    if (r->first == r->end) r->first = r->end = 0;
    if (r->end + AT_ONCE > CHUNK) {
        memmove(r->chunk, r->chunk + r->first, r->end - r->first);
        r->end -= r->first, r->first = 0;
    }
    size_t room = CHUNK - r->end < AT_ONCE ? CHUNK - r->end : AT_ONCE;
    if (room == 0) return out_of_form("a line without an end");
    EK_TRY(ek_link_receive(r->link, r->chunk + r->end, room, &got, deadline));
    r->end += got;
    return EK_OK;
}

/* Finds the first line of the next reply: its bytes, line end included. */
static ek_err next_line(ek_redis *r, size_t *n, double deadline)
{
    for (size_t from = 0;;) {
        const uint8_t *at = r->chunk + r->first;
        const size_t held = r->end - r->first;
        const uint8_t *end = held > from ? memchr(at + from, '\n', held - from) : NULL;
        if (end && end > at && end[-1] == '\r') {
            *n = (size_t)(end - at) + 1;
            return EK_OK;
        }
        if (end) return out_of_form("a line feed alone");
        from = held;
        EK_TRY(receive(r, deadline));
    }
}

/* The bytes that follow the line $N, line end included; -1: none follow. */
static ek_err bytes_behind(const char *line, size_t n, long long *bytes)
{
    enum { MAX_DIGITS = 12 };
    *bytes = -1;
    if (*line != '$' || (n == 5 && memcmp(line, "$-1", 3) == 0)) return EK_OK;
    if (n < 4 || n > 3 + MAX_DIGITS) return out_of_form("a length that is none");
    *bytes = 0;
    for (size_t i = 1; i < n - 2; i++) {
        if (line[i] < '0' || line[i] > '9') return out_of_form("a length that is none");
        *bytes = 10 * *bytes + (line[i] - '0');
    }
    return EK_OK;
}

/* Takes n bytes of the next reply, from the chunk or the connection, into `into`; NULL: drops them. */
static ek_err take(ek_redis *r, uint8_t *into, size_t n, double deadline)
{
    while (n > 0) {
        size_t got = r->end - r->first;
        if (got > 0) {
            if (got > n) got = n;
            if (into) memcpy(into, r->chunk + r->first, got);
            r->first += got;
        } else if (into) {
            EK_TRY(ek_link_receive(r->link, into, n, &got, deadline));
        } else {
            EK_TRY(receive(r, deadline));
        }
        if (into) into += got;
        n -= got;
    }
    return EK_OK;
}

/* Allocates the reply's text with a NUL behind it. It may be as large as a page, so the allocation may fail, which is
 * an error of the connection. */
static ek_err make(ek_redis *r, ek_reply_kind kind, size_t n)
{
    r->last = (ek_reply){.kind = kind, .text = malloc(n + 1), .n = n};
    if (!r->last.text) return ek_fail(EK_ENOMEM, "no memory for a reply of %zu bytes", n);
    r->last.text[n] = '\0';
    return EK_OK;
}

/* Reads the digits of ":-12" as a server writes them: no sign but a minus, no leading zero, at most 64 bits. */
static ek_err read_number(long long *out, const char *at, size_t n)
{
    const bool minus = n > 1 && *at == '-';
    if (minus) at++, n--;
    unsigned long long v = 0;
    const unsigned long long max = minus ? 1ull << 63 : (1ull << 63) - 1;
    if (n == 0 || (n > 1 && *at == '0') || (minus && *at == '0')) return out_of_form("a number that is none");
    for (size_t i = 0; i < n; i++) {
        const unsigned digit = (unsigned)(uint8_t)at[i] - '0';
        if (digit > 9 || v > (max - digit) / 10) return out_of_form("a number that is none");
        v = 10 * v + digit;
    }
    *out = minus ? (long long)(0 - v) : (long long)v;
    return EK_OK;
}

/* Takes a reply that is one line of n bytes, line end included; replies of bytes are others. */
static ek_err take_line(ek_redis *r, ek_reply *out, size_t n)
{
    const char *at = (const char *)r->chunk + r->first;
    const ek_reply_kind kind = *at == '+'   ? EK_REPLY_STATUS
                               : *at == '-' ? EK_REPLY_ERROR
                               : *at == ':' ? EK_REPLY_NUMBER
                                            : EK_REPLY_NONE;
    const bool has_text = kind == EK_REPLY_STATUS || kind == EK_REPLY_ERROR;
    EK_TRY(make(r, kind, has_text ? n - 3 : 0));
    if (has_text) memcpy(r->last.text, at + 1, n - 3);
    if (kind == EK_REPLY_NUMBER) EK_TRY(read_number(&r->last.number, at + 1, n - 3));
    r->first += n;
    *out = r->last;
    return EK_OK;
}

/* Takes the line end behind bytes. */
static ek_err take_end(ek_redis *r, double deadline)
{
    uint8_t end[2];
    EK_TRY(take(r, end, sizeof end, deadline));
    return end[0] == '\r' && end[1] == '\n' ? EK_OK : out_of_form("bytes without an end");
}

static void drop_last(ek_redis *r)
{
    free(r->last.text);
    r->last = (ek_reply){0};
}

/* Reads the head of the next reply. No command here gets a list, or a reply of a newer protocol. */
static ek_err begin_reply(ek_redis *r, size_t *line, long long *bytes, size_t max_bytes, double deadline)
{
    drop_last(r);
    EK_TRY(next_line(r, line, deadline));
    const char *at = (const char *)r->chunk + r->first;
    if (!*at || !strchr("+-:$", *at)) return out_of_form("a list, or no reply at all");
    EK_TRY(bytes_behind(at, *line, bytes));
    if (*bytes > (long long)max_bytes) return ek_fail(EK_EFORMAT, "a reply of more than %zu bytes", max_bytes);
    return EK_OK;
}

ek_err ek_redis_read(ek_redis *r, ek_reply *out, size_t max_bytes, double deadline)
{
    size_t line;
    long long bytes;
    EK_TRY(begin_reply(r, &line, &bytes, max_bytes + SMALL, deadline));
    if (bytes < 0) return take_line(r, out, line);
    r->first += line;
    EK_TRY(make(r, EK_REPLY_BYTES, (size_t)bytes));
    EK_TRY(take(r, (uint8_t *)r->last.text, (size_t)bytes, deadline));
    EK_TRY(take_end(r, deadline));
    *out = r->last;
    return EK_OK;
}

ek_err ek_redis_read_into(ek_redis *r, ek_reply *out, uint8_t *into, size_t room, double deadline)
{
    size_t line;
    long long bytes;
    EK_TRY(begin_reply(r, &line, &bytes, room + EK_REDIS_SKIPPED, deadline));
    if (bytes < 0) return take_line(r, out, line);
    r->first += line;
    EK_TRY(take(r, (size_t)bytes > room ? NULL : into, (size_t)bytes, deadline));
    EK_TRY(take_end(r, deadline));
    *out = (ek_reply){.kind = EK_REPLY_BYTES, .n = (size_t)bytes};
    return EK_OK;
}

char *ek_redis_keep(ek_redis *r)
{
    char *text = r->last.text;
    r->last.text = NULL;
    return text;
}

/* --- commands --- */

ek_err ek_redis_send(ek_redis *r, const ek_redis_arg *arg, int n, double deadline)
{
    ek_buf_clear(&r->out);
    ek_buf_fmt(&r->out, "*%d\r\n", n);
    for (int i = 0; i < n; i++) {
        ek_buf_fmt(&r->out, "$%zu\r\n", arg[i].n);
        if (arg[i].n <= SMALL) { /* large arguments are sent from their own memory */
            ek_buf_add(&r->out, arg[i].bytes, arg[i].n);
        } else {
            EK_TRY(ek_link_send(r->link, r->out.data, r->out.len, deadline));
            EK_TRY(ek_link_send(r->link, arg[i].bytes, arg[i].n, deadline));
            ek_buf_clear(&r->out);
        }
        ek_buf_str(&r->out, "\r\n");
    }
    return ek_link_send(r->link, r->out.data, r->out.len, deadline);
}

static ek_redis_arg text_arg(const char *text)
{
    return (ek_redis_arg){text, strlen(text)};
}

/* A command of texts with a reply such as OK. An error from the server is EIO with its message. */
static ek_err ask(ek_redis *r, const char *const *word, int n, double deadline)
{
    ek_redis_arg arg[4];
    ek_reply reply;
    char shown[EK_PLAIN_NAME];
    for (int i = 0; i < n; i++) arg[i] = text_arg(word[i]);
    EK_TRY(ek_redis_send(r, arg, n, deadline));
    EK_TRY(ek_redis_read(r, &reply, SMALL, deadline));
    if (reply.kind == EK_REPLY_STATUS) return EK_OK;
    return ek_fail(EK_EIO, "the server answers %s to %s", ek_plain_name(shown, reply.text), word[0]);
}

static ek_err greet(ek_redis *r, const ek_shared_url *url, double deadline)
{
    char db[16];
    snprintf(db, sizeof db, "%d", url->db);
    const char *const user[] = {"AUTH", url->user, url->password}, *const password[] = {"AUTH", url->password};
    const char *const choose[] = {"SELECT", db}, *const ping[] = {"PING"};
    if (url->user) EK_TRY(ask(r, user, 3, deadline));
    else if (url->password) EK_TRY(ask(r, password, 2, deadline));
    if (url->db > 0) EK_TRY(ask(r, choose, 2, deadline));
    return ask(r, ping, 1, deadline);
}

ek_err ek_redis_open(ek_redis **out, const ek_link_opts *o, double deadline)
{
    ek_redis *r = ek_alloc(sizeof *r);
    ek_err err = ek_link_open(&r->link, o, deadline);
    r->chunk = ek_alloc(CHUNK);
    if (!err) err = greet(r, o->url, deadline);
    if (err) {
        ek_redis_close(r);
        return err;
    }
    *out = r;
    return EK_OK;
}

void ek_redis_close(ek_redis *r)
{
    if (!r) return;
    drop_last(r);
    ek_link_close(r->link);
    ek_buf_fini(&r->out);
    free(r->chunk);
    free(r);
}
