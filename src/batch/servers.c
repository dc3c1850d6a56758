/* Lines on servers of this program. Each request sends the id and the seed of its reply (x-evenkeel-batch, which
 * serve/wishes.c reads). Each reply has the server's fingerprint, so that a server that was restarted with another
 * model is noticed before its reply is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "batch/batch.h"
#include "hub/client.h"
#include "hub/curl.h"
#include "serve/api/model_card.h"

enum { MAX_TRIES = 20, MAX_FINGERPRINT = 64 << 10, CONNECT_SECONDS = 10, TOTAL_SECONDS = 7200 };
static const double FIRST_PAUSE = 0.25, MAX_PAUSE = 10, MAX_RETRY_AFTER = 60, WARN_SECONDS = 30;

typedef struct server {
    const char *url;
    int active;   /* transfers */
    bool checked; /* its fingerprint equals the run's */
    bool asking;  /* for it */
    double pause, rests_until;
} server;

typedef struct transfer {
    struct transfer *next;
    struct servers *of;
    server *at;
    ek_batch_task *task; /* NULL: the request asks for the fingerprint */
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    ek_buf reply;
    char sha256[EK_FINGERPRINT]; /* the reply's sum in its header; "" without */
    double retry_after;
} transfer;

typedef struct servers {
    ek_batch_runner base;
    ek_batch_servers_opts opts;
    const ek_curl *lib;
    CURLM *multi;
    server *server;
    int n;
    transfer *transfers;
    ek_batch_task *pending, **last;
    double answered; /* ek_now() at the latest answer of any server, or at the start */
    double warned;   /* ek_now() at the latest line about silence */
    char why[512];   /* the latest failure */
} servers;

static void append(servers *s, ek_batch_task *t)
{
    t->next = NULL;
    *(s->pending ? s->last : &s->pending) = t;
    s->last = &t->next;
}

/* Puts the task in front, because it is older than the waiting tasks. */
static void again(servers *s, ek_batch_task *t)
{
    t->next = s->pending;
    if (!s->pending) s->last = &t->next;
    s->pending = t;
}

/* --- one transfer --- */

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    (void)size;
    if (!t->task && t->reply.len + n > MAX_FINGERPRINT) return 0;
    if (!ek_buf_reserve(&t->reply, n)) return 0;
    ek_buf_add(&t->reply, data, n);
    return n;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    char value[80];
    (void)size;
    ek_client_header(t->sha256, sizeof t->sha256, line, n, "x-evenkeel-fingerprint");
    if (ek_client_header(value, sizeof value, line, n, "retry-after"))
        t->retry_after = ek_client_retry_after(value, ek_unix_time());
    return n;
}

static void free_transfer(transfer *t)
{
    servers *s = t->of;
    transfer **at = &s->transfers;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    s->lib->multi_remove_handle(s->multi, t->easy);
    s->lib->easy_cleanup(t->easy);
    s->lib->slist_free_all(t->headers);
    ek_buf_fini(&t->reply);
    free(t->url);
    free(t);
}

static void add_header(transfer *t, const char *text)
{
    t->headers = t->of->lib->slist_append(t->headers, text);
}

static void add_headers(transfer *t)
{
    const servers *s = t->of;
    ek_buf line = {0};
    add_header(t, "Expect:");
    if (s->opts.key) {
        ek_buf_fmt(&line, "authorization: Bearer %s", s->opts.key);
        add_header(t, ek_buf_text(&line));
    }
    if (t->task) {
        add_header(t, "content-type: application/json");
        ek_buf_clear(&line);
        ek_buf_fmt(&line, "x-evenkeel-batch: %s seed=%llu", t->task->id, (unsigned long long)t->task->seed);
        add_header(t, ek_buf_text(&line));
    }
    ek_buf_fini(&line);
}

/* Joins "http://host:8080/" and "/v1/fingerprint" without two slashes. */
static char *join(const char *base, const char *path)
{
    ek_buf b = {0};
    ek_buf_str(&b, base);
    while (b.len > 0 && b.data[b.len - 1] == '/') b.data[--b.len] = '\0';
    ek_buf_str(&b, path);
    return b.data;
}

static void begin(servers *s, server *at, ek_batch_task *task)
{
    const ek_curl *c = s->lib;
    transfer *t = ek_alloc(sizeof *t);
    *t = (transfer){.next = s->transfers, .of = s, .at = at, .task = task, .easy = c->easy_init()};
    s->transfers = t;
    t->url = join(at->url, task ? task->line.dialect->path : "/v1/fingerprint");
    at->active++;
    at->asking |= !task;
    add_headers(t);
    c->easy_setopt(t->easy, CURLOPT_URL, t->url);
    c->easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    c->easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(t->easy, CURLOPT_PROXY, "");
    c->easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    c->easy_setopt(t->easy, CURLOPT_TIMEOUT, (long)TOTAL_SECONDS);
    c->easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    c->easy_setopt(t->easy, CURLOPT_TCP_KEEPIDLE, 30L);
    c->easy_setopt(t->easy, CURLOPT_TCP_KEEPINTVL, 10L);
    c->easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    c->easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    c->easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    if (task) {
        c->easy_setopt(t->easy, CURLOPT_POST, 1L);
        c->easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)task->line.n_body);
        c->easy_setopt(t->easy, CURLOPT_POSTFIELDS, task->line.body);
    }
    c->multi_add_handle(s->multi, t->easy);
}

/* --- the end of a transfer --- */

static void rest(servers *s, server *at, double retry_after, const char *why)
{
    at->pause = at->pause > 0 ? 2 * at->pause : FIRST_PAUSE;
    if (at->pause > MAX_PAUSE) at->pause = MAX_PAUSE;
    double pause = retry_after > at->pause ? retry_after : at->pause;
    if (pause > MAX_RETRY_AFTER) pause = MAX_RETRY_AFTER;
    at->rests_until = ek_now() + pause;
    snprintf(s->why, sizeof s->why, "%s: %s", at->url, why);
    ek_log(EK_LOG_DEBUG, "batch: %s; again in %.2g s", s->why, pause);
}

/* The fingerprint of the first server becomes the run's. */
static ek_err take_identity(servers *s, server *at, const ek_buf *text)
{
    json_t *v = NULL;
    if (ek_json_read(&v, ek_buf_text(text), text->len, 0))
        return ek_fail(EK_EINVAL, "%s/v1/fingerprint is no JSON: is it a server of this program?", at->url);
    const char *sha256 = ek_json_get_text(v, "sha256", NULL);
    const json_int_t ctx = json_integer_value(ek_json_get(v, "context"));
    ek_err err = EK_OK;
    if (!sha256 || strlen(sha256) != EK_FINGERPRINT - 1 || ctx <= 0)
        err = ek_fail(EK_EINVAL, "%s/v1/fingerprint has no sha256 or context", at->url);
    else if (s->opts.ctx > 0 && ctx != s->opts.ctx)
        err = ek_fail(EK_EINVAL, "%s: its context is %lld, --ctx asks for %d: start it with that --ctx", at->url,
                      (long long)ctx, s->opts.ctx);
    if (!err) {
        snprintf(s->base.sha256, sizeof s->base.sha256, "%s", sha256);
        ek_buf_add(&s->base.identity, text->data, text->len);
    }
    json_decref(v);
    return err;
}

static ek_err take_fingerprint(servers *s, transfer *t, long status)
{
    server *at = t->at;
    ek_batch_other other;
    at->asking = false;
    if (status != 200)
        return ek_fail(EK_EINVAL, "%s/v1/fingerprint gives status %ld: a server of this program is needed", at->url,
                       status);
    if (s->base.identity.len == 0) {
        EK_TRY(take_identity(s, at, &t->reply));
    } else if (t->reply.len != s->base.identity.len ||
               memcmp(t->reply.data, s->base.identity.data, t->reply.len) != 0) {
        ek_batch_find_other(&other, &t->reply, &s->base.identity);
        return ek_fail(EK_EINVAL, "%s: its %s is %s, in this run it is %s", at->url, other.member, other.there,
                       other.here);
    }
    at->checked = true;
    at->pause = 0;
    s->answered = ek_now();
    return EK_OK;
}

static bool is_temporary(long status)
{
    return status == 0 || status == 408 || status == 409 || status == 429 || status >= 500;
}

/* Queues the line again and lets the server rest. */
static ek_err try_again(servers *s, transfer *t, long status, const char *why)
{
    const bool busy = status == 429 || status == 503;
    ek_batch_task *task = t->task;
    rest(s, t->at, t->retry_after, why);
    t->at->checked = t->at->checked && busy; /* the server may have another model when it is back */
    t->at->asking = false;
    if (!task) return EK_OK;
    if (busy || ++task->tries < MAX_TRIES) {
        again(s, task);
        return EK_OK;
    }
    return ek_fail(EK_EIO, "it failed %d times; at last %s", MAX_TRIES, s->why);
}

static ek_err take_reply(servers *s, transfer *t, long status, ek_batch_task **out)
{
    server *at = t->at;
    ek_batch_task *task = t->task;
    if (status == 401 || status == 403)
        return ek_fail(EK_EINVAL, "%s: status %ld: it needs a key (EVENKEEL_API_KEY)", at->url, status);
    if (!*t->sha256 && status != 413 &&
        ek_batch_is_reply(status)) { /* the server was restarted, or another program answered */
        at->checked = false;
        return try_again(s, t, status, "a reply without the server's fingerprint");
    }
    if (!ek_batch_is_reply(status) || !*t->sha256)
        return ek_fail(EK_EIO, "%s: status %ld: %.200s", at->url, status, ek_buf_text(&t->reply));
    if (strcmp(t->sha256, s->base.sha256) != 0)
        return ek_fail(EK_EINVAL, "%s: it has changed: its fingerprint is %.64s, that of this run %s", at->url,
                       t->sha256, s->base.sha256);
    if (t->reply.len == 0 || t->reply.data[0] != '{' || t->reply.data[t->reply.len - 1] != '}' ||
        memchr(t->reply.data, '\n', t->reply.len))
        return try_again(s, t, 0, "its reply is no JSON in one line");
    at->pause = 0;
    s->answered = ek_now();
    task->status = (int)status;
    ek_buf_fini(&task->body);
    task->body = t->reply;
    t->reply = (ek_buf){0};
    *out = task;
    return EK_OK;
}

static ek_err end(servers *s, transfer *t, CURLcode code, ek_batch_task **out)
{
    long status = 0;
    char why[200];
    t->at->active--;
    s->lib->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    snprintf(why, sizeof why, "status %ld", status);
    if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT)
        return ek_fail(EK_EINVAL, "--url %s: %s", t->at->url, s->lib->easy_strerror(code));
    if (code) status = 0, snprintf(why, sizeof why, "%s", s->lib->easy_strerror(code));
    if (is_temporary(status)) return try_again(s, t, status, why);
    return t->task ? take_reply(s, t, status, out) : take_fingerprint(s, t, status);
}

/* --- the division of lines among servers --- */

/* The ready server with the least to do. Servers without a known fingerprint are asked for it. */
static server *choose(servers *s)
{
    server *best = NULL;
    const double now = ek_now();
    for (int i = 0; i < s->n; i++) {
        server *at = &s->server[i];
        if (now < at->rests_until) continue;
        if (!at->checked) {
            if (!at->asking) begin(s, at, NULL);
            continue;
        }
        if (at->active < s->opts.width && (!best || at->active < best->active)) best = at;
    }
    return best;
}

static ek_err step(servers *s, double seconds, ek_batch_task **out)
{
    int running, left;
    const CURLMsg *m;
    const CURLMcode bad = s->lib->multi_perform(s->multi, &running);
    if (bad) return ek_fail(EK_EIO, "libcurl: error %d", (int)bad);
    while (!*out && (m = s->lib->multi_info_read(s->multi, &left)) != NULL) {
        if (m->msg != CURLMSG_DONE) continue;
        transfer *t;
        s->lib->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        const ek_err err = end(s, t, m->data.result, out);
        if (err) *out = t->task;
        free_transfer(t);
        EK_TRY(err);
    }
    if (!*out && s->lib->multi_poll(s->multi, NULL, 0, (int)(seconds * 1000), NULL))
        return ek_fail(EK_EIO, "libcurl: it cannot wait");
    return EK_OK;
}

/* A server that computes a long reply is not silent. */
static bool is_computing(const servers *s)
{
    for (const transfer *t = s->transfers; t; t = t->next)
        if (t->task && t->at->checked) return true;
    return false;
}

/* Logs every half minute while no server answers, so that a person sees the reason. */
static void warn(servers *s)
{
    const double now = ek_now(), since = s->warned > s->answered ? s->warned : s->answered;
    if (!*s->why || now - since < WARN_SECONDS) return;
    s->warned = now;
    ek_log(EK_LOG_WARN, "no server has answered for %.0f s: %s", now - s->answered, s->why);
}

static ek_err wait_task(ek_batch_runner *r, double seconds, ek_batch_task **out)
{
    servers *s = (servers *)(void *)r;
    const double until = ek_now() + seconds;
    *out = NULL;
    do {
        for (server *at = choose(s); at && s->pending; at = choose(s)) {
            ek_batch_task *t = s->pending;
            s->pending = t->next;
            begin(s, at, t);
        }
        double left = until - ek_now();
        if (left > 0.05) left = 0.05; /* a resting server may become ready in this time */
        EK_TRY(step(s, left > 0 ? left : 0, out));
        if (is_computing(s)) continue;
        warn(s);
        if (ek_now() - s->answered > s->opts.patience)
            return ek_fail(EK_EIO, "no server has answered for %.0f s; at last %s", s->opts.patience,
                           *s->why ? s->why : "nothing was said");
    } while (!*out && ek_now() < until);
    return EK_OK;
}

static void start(ek_batch_runner *r, ek_batch_task *t)
{
    append((servers *)(void *)r, t);
}

/* --- the runner --- */

static void close_servers(ek_batch_runner *r)
{
    servers *s = (servers *)(void *)r;
    while (s->transfers) {
        ek_batch_task *t = s->transfers->task;
        free_transfer(s->transfers);
        if (t) ek_batch_task_free(t);
    }
    for (ek_batch_task *t = s->pending; t; t = s->pending) {
        s->pending = t->next;
        ek_batch_task_free(t);
    }
    if (s->multi) s->lib->multi_cleanup(s->multi);
    ek_buf_fini(&s->base.identity);
    free(s->server);
    free(s);
}

static ek_err first_fingerprint(servers *s)
{
    ek_batch_task *none = NULL;
    while (s->base.identity.len == 0) {
        if (s->opts.stop && s->opts.stop(s->opts.arg)) return ek_fail(EK_ECANCELLED, "stopped");
        EK_TRY(wait_task(&s->base, 0.1, &none));
    }
    return EK_OK;
}

ek_err ek_batch_servers_open(ek_batch_runner **out, const ek_batch_servers_opts *o)
{
    for (int i = 0; i < o->n; i++)
        if (strncmp(o->url[i], "http://", 7) != 0 && strncmp(o->url[i], "https://", 8) != 0)
            return ek_fail(EK_EINVAL, "--url %.200s: http://HOST:PORT is needed", o->url[i]);
    EK_TRY(ek_curl_load());
    servers *s = ek_alloc(sizeof *s);
    s->base = (ek_batch_runner){.width = o->n * o->width, .start = start, .wait = wait_task, .close = close_servers};
    s->opts = *o;
    s->lib = ek_curl_lib();
    s->n = o->n;
    s->server = ek_alloc((size_t)o->n * sizeof *s->server);
    for (int i = 0; i < o->n; i++) s->server[i].url = o->url[i];
    s->multi = s->lib->multi_init();
    s->answered = ek_now();
    const ek_err err = s->multi ? first_fingerprint(s) : ek_fail(EK_ENOMEM, "libcurl does not start");
    if (err) {
        close_servers(&s->base);
        return err;
    }
    *out = &s->base;
    return EK_OK;
}
