#include "cache/shared/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef EK_HAVE_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "base/alloc.h"
#include "base/buf.h"
#include "base/plain.h"

bool ek_redis_built(void)
{
#ifdef EK_HAVE_HIREDIS
    return true;
#else
    return false;
#endif
}

#ifdef EK_HAVE_HIREDIS
enum { CHUNK = 128 << 10, SMALL = 16 << 10 };

struct ek_redis {
    ek_link *link;
    redisReader *reader;
    ek_reply *last;
    uint8_t *chunk;
    ek_buf out;
};

/* --- what hiredis makes replies with: one ek_reply each, and none for what holds others --- */

static void *make(ek_reply_kind kind, const char *text, size_t n, long long number)
{
    ek_reply *r = ek_alloc(sizeof *r);
    *r = (ek_reply){.kind = kind, .number = number, .n = n};
    r->text = malloc(n + 1); /* as large as a page: it may fail, which is an error of the connection */
    if (!r->text) {
        free(r);
        return NULL;
    }
    if (n) memcpy(r->text, text, n);
    r->text[n] = '\0';
    return r;
}

static void *make_string(const redisReadTask *task, char *text, size_t n)
{
    ek_reply_kind kind = task->type == REDIS_REPLY_ERROR    ? EK_REPLY_ERROR
                         : task->type == REDIS_REPLY_STATUS ? EK_REPLY_STATUS
                                                            : EK_REPLY_BYTES;
    return make(kind, text, n, 0);
}

static void *make_number(const redisReadTask *task, long long v)
{
    (void)task;
    return make(EK_REPLY_NUMBER, NULL, 0, v);
}

static void *make_none(const redisReadTask *task)
{
    (void)task;
    return make(EK_REPLY_NONE, NULL, 0, 0);
}

static void free_reply(void *reply)
{
    ek_reply *r = reply;
    if (r) free(r->text);
    free(r);
}

static redisReplyObjectFunctions makers = {
    .createString = make_string, .createInteger = make_number, .createNil = make_none, .freeObject = free_reply};

/* --- replies --- */

static ek_err out_of_form(const char *why)
{
    char shown[EK_PLAIN_NAME];
    return ek_fail(EK_EFORMAT, "not a reply of Redis: %s", ek_plain_name(shown, why));
}

/* Bytes that were received and belong to no reply yet. */
static size_t held(const redisReader *r)
{
    return r->len - r->pos;
}

/* A list would be built of lists, and a reply of a newer protocol of what has no maker here. Only at a reply's first
 * byte: the reader is never asked before it has one. */
static bool begins_well(const redisReader *r)
{
    return r->ridx != -1 || (r->buf[r->pos] && strchr("+-:$", r->buf[r->pos]));
}

ek_err ek_redis_read(ek_redis *r, ek_reply *out, size_t max_bytes, double deadline)
{
    free_reply(r->last);
    r->last = NULL;
    for (;;) {
        void *reply = NULL;
        size_t got;
        if (held(r->reader) > 0) {
            if (!begins_well(r->reader)) return out_of_form("a list, or no reply at all");
            if (redisReaderGetReply(r->reader, &reply) != REDIS_OK) return out_of_form(r->reader->errstr);
        }
        if (reply) {
            r->last = reply;
            *out = *r->last;
            return EK_OK;
        }
        if (held(r->reader) > max_bytes + SMALL + CHUNK)
            return ek_fail(EK_EFORMAT, "a reply of more than %zu bytes", max_bytes);
        EK_TRY(ek_link_receive(r->link, r->chunk, CHUNK, &got, deadline));
        if (redisReaderFeed(r->reader, (const char *)r->chunk, got) != REDIS_OK) return out_of_form(r->reader->errstr);
    }
}

char *ek_redis_keep(ek_redis *r)
{
    char *text = r->last ? r->last->text : NULL;
    if (r->last) r->last->text = NULL;
    return text;
}

/* --- commands --- */

ek_err ek_redis_send(ek_redis *r, const ek_redis_arg *arg, int n, double deadline)
{
    ek_buf_clear(&r->out);
    ek_buf_fmt(&r->out, "*%d\r\n", n);
    for (int i = 0; i < n; i++) {
        ek_buf_fmt(&r->out, "$%zu\r\n", arg[i].n);
        if (arg[i].n <= SMALL) { /* large ones go out as they lie */
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

/* A command of texts whose reply is OK or the like. An error of the server: EIO, with its words. */
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
    r->reader = redisReaderCreateWithFunctions(&makers);
    if (!err && !r->reader) err = ek_fail(EK_ENOMEM, "no memory for replies");
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
    free_reply(r->last);
    if (r->reader) redisReaderFree(r->reader);
    ek_link_close(r->link);
    ek_buf_fini(&r->out);
    free(r->chunk);
    free(r);
}
#else
static ek_err missing(void)
{
    return ek_fail(EK_EUNSUPPORTED, "this build has no hiredis: libhiredis-dev was not installed when it was built");
}

ek_err ek_redis_open(ek_redis **out, const ek_link_opts *o, double deadline)
{
    (void)out, (void)o, (void)deadline;
    return missing();
}

void ek_redis_close(ek_redis *r)
{
    (void)r;
}

ek_err ek_redis_send(ek_redis *r, const ek_redis_arg *arg, int n, double deadline)
{
    (void)r, (void)arg, (void)n, (void)deadline;
    return missing();
}

ek_err ek_redis_read(ek_redis *r, ek_reply *out, size_t max_bytes, double deadline)
{
    (void)r, (void)out, (void)max_bytes, (void)deadline;
    return missing();
}

char *ek_redis_keep(ek_redis *r)
{
    (void)r;
    return NULL;
}
#endif
