#include "cli/bench/traffic.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench/traffic_body.h"
#include "cli/bench/traffic_reply.h"
#include "hub/curl.h"
#include "text/json/json.h"

/* --- one request --- */

static size_t keep(char *bytes, size_t size, size_t n, void *arg)
{
    ek_buf *b = arg;
    if (b->len + size * n > EK_TRAFFIC_LINE) return 0;
    ek_buf_add(b, bytes, size * n);
    return size * n;
}

typedef struct call {
    CURL *curl;
    struct curl_slist *headers;
    ek_traffic_reply reply;
    ek_buf refusal; /* the body of a reply that is not 200 */
} call;

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
    call *c = arg;
    long status = 0;
    ek_curl_lib()->easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) return keep(bytes, size, n, &c->refusal);
    ek_traffic_reply_feed(&c->reply, bytes, size * n, ek_now());
    return c->reply.error[0] ? 0 : size * n;
}

static void call_open(call *c, const ek_traffic_server *s, const char *path, double timeout)
{
    ek_buf text = {0};
    *c = (call){.curl = ek_curl_lib()->easy_init()};
    EK_ASSERT(c->curl);
    c->headers = ek_curl_lib()->slist_append(NULL, "Content-Type: application/json");
    if (s->key) {
        ek_buf_fmt(&text, "Authorization: Bearer %s", s->key);
        c->headers = ek_curl_lib()->slist_append(c->headers, ek_buf_text(&text));
        ek_buf_clear(&text);
    }
    ek_buf_fmt(&text, "%s%s", s->base, path);
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_URL, ek_buf_text(&text));
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)(timeout * 1e3));
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
    ek_curl_lib()->easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
    ek_buf_fini(&text);
}

static void call_close(call *c)
{
    ek_curl_lib()->easy_cleanup(c->curl);
    ek_curl_lib()->slist_free_all(c->headers);
    ek_traffic_reply_fini(&c->reply);
    ek_buf_fini(&c->refusal);
}

/* Fills in reply.error if anything went wrong. */
static void call_run(call *c)
{
    c->reply.begun = ek_now();
    CURLcode code = ek_curl_lib()->easy_perform(c->curl);
    long status = 0;
    ek_curl_lib()->easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    ek_traffic_reply *r = &c->reply;
    if (r->error[0]) return;
    if (status && status != 200)
        snprintf(r->error, sizeof r->error, "status %ld: %.120s", status, ek_buf_text(&c->refusal));
    else if (code) snprintf(r->error, sizeof r->error, "%.150s", ek_curl_lib()->easy_strerror(code));
}

/* --- the server --- */

static ek_err read_models(ek_traffic_server *s, const call *c)
{
    json_t *list;
    if (ek_json_read(&list, ek_buf_text(&c->refusal), c->refusal.len, 0))
        return ek_fail(EK_EFORMAT, "%s/models is not JSON", s->base);
    const char *id = ek_json_get_text(json_array_get(ek_json_get(list, "data"), 0), "id", NULL);
    if (id) s->model = ek_strdup(id);
    json_decref(list);
    return id ? EK_OK : ek_fail(EK_EFORMAT, "%s/models names no model", s->base);
}

ek_err ek_traffic_open(ek_traffic_server *s, const char *url, const char *key)
{
    *s = (ek_traffic_server){.key = key};
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    bool has_v1 = n >= 3 && !memcmp(url + n - 3, "/v1", 3);
    ek_buf base = {0};
    ek_buf_add(&base, url, n);
    ek_buf_str(&base, has_v1 ? "" : "/v1");
    s->base = base.data;
    call c;
    call_open(&c, s, "/models", 30);
    ek_curl_lib()->easy_setopt(c.curl, CURLOPT_WRITEFUNCTION, keep);
    ek_curl_lib()->easy_setopt(c.curl, CURLOPT_WRITEDATA, &c.refusal);
    call_run(&c);
    ek_err err = c.reply.error[0] ? ek_fail(EK_EIO, "%s/models: %s", s->base, c.reply.error) : read_models(s, &c);
    call_close(&c);
    return err;
}

void ek_traffic_close(ek_traffic_server *s)
{
    free(s->base);
    free(s->model);
    s->base = s->model = NULL;
}

/* --- the requests --- */

static void write_body(ek_buf *out, const ek_traffic_server *s, const ek_traffic *t, uint32_t number)
{
    ek_buf prompt = {0};
    ek_traffic_prompt(&prompt, t, number);
    ek_buf_str(out, "{\"model\":");
    ek_json_quote(out, s->model, strlen(s->model));
    ek_buf_str(out, ",\"messages\":[{\"role\":\"user\",\"content\":");
    ek_json_quote(out, ek_buf_text(&prompt), prompt.len);
    ek_buf_fmt(out,
               "}],\"max_tokens\":%d,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
               t->max_tokens);
    ek_buf_fini(&prompt);
}

/* --- the run --- */

typedef struct run {
    const ek_traffic_server *server;
    const ek_traffic *traffic;
    pthread_mutex_t lock; /* of what stands below */
    ek_traffic_result *out;
    double *first, *gap;
    int n_first, n_gap, cap_gap;
} run;

typedef struct client {
    run *run;
    int number;
} client;

static void take_reply(run *r, const ek_traffic_reply *x, bool repeated)
{
    ek_traffic_result *out = r->out;
    out->requests++;
    if (x->error[0] || !x->done) {
        if (!out->failed++)
            snprintf(out->error, sizeof out->error, "%s", x->error[0] ? x->error : "a stream ended without [DONE]");
        return;
    }
    if (x->first > 0) r->first[r->n_first++] = x->first - x->begun;
    if (r->n_gap + x->n_gaps > r->cap_gap) {
        r->cap_gap = 2 * (r->n_gap + x->n_gaps);
        r->gap = ek_realloc(r->gap, (size_t)r->cap_gap * sizeof *r->gap);
    }
    if (x->n_gaps) memcpy(r->gap + r->n_gap, x->gap, (size_t)x->n_gaps * sizeof *r->gap);
    r->n_gap += x->n_gaps;
    out->prompt_tokens += x->prompt_tokens;
    out->tokens += x->tokens ? x->tokens : x->pieces;
    out->counted &= x->tokens > 0;
    if (repeated) out->text[out->repeated++] = x->text;
}

static void *client_main(void *arg)
{
    const client *me = arg;
    run *r = me->run;
    const ek_traffic *t = r->traffic;
    double delay = ek_traffic_delay(t, me->number);
    struct timespec pause = {(time_t)delay, (long)((delay - (double)(time_t)delay) * 1e9)};
    nanosleep(&pause, NULL);
    for (int i = 0; i < t->each; i++) {
        uint32_t number = ek_traffic_number(t, me->number, i);
        ek_buf body = {0};
        call c;
        write_body(&body, r->server, t, number);
        call_open(&c, r->server, "/chat/completions", t->timeout);
        ek_curl_lib()->easy_setopt(c.curl, CURLOPT_POSTFIELDS, ek_buf_text(&body));
        call_run(&c);
        pthread_mutex_lock(&r->lock);
        take_reply(r, &c.reply, number == EK_TRAFFIC_REPEATED);
        pthread_mutex_unlock(&r->lock);
        call_close(&c);
        ek_buf_fini(&body);
    }
    return NULL;
}

/* The value that a share of the n values does not exceed; 0 without values. */
static double quantile(const double *sorted, int n, double share)
{
    if (n == 0) return 0;
    int i = (int)(share * n);
    return sorted[i < n ? i : n - 1];
}

int ek_traffic_agree(const uint64_t *text, int n)
{
    int max = 0;
    for (int i = 0; i < n; i++) {
        int alike = 0;
        for (int k = 0; k < n; k++) alike += text[k] == text[i];
        if (alike > max) max = alike;
    }
    return max;
}

static void sum_up(run *r)
{
    ek_traffic_result *out = r->out;
    qsort(r->first, (size_t)r->n_first, sizeof *r->first, ek_ascending);
    if (r->n_gap) qsort(r->gap, (size_t)r->n_gap, sizeof *r->gap, ek_ascending);
    out->first_p50 = quantile(r->first, r->n_first, 0.5), out->first_p95 = quantile(r->first, r->n_first, 0.95);
    out->gap_p50 = quantile(r->gap, r->n_gap, 0.5), out->gap_p95 = quantile(r->gap, r->n_gap, 0.95);
    out->gap_max = quantile(r->gap, r->n_gap, 1);
}

ek_err ek_traffic_run(const ek_traffic_server *s, const ek_traffic *t, ek_traffic_result *out)
{
    size_t max = (size_t)t->clients * (size_t)t->each;
    *out = (ek_traffic_result){.counted = true, .text = ek_alloc(max * sizeof *out->text)};
    run r = {.server = s, .traffic = t, .out = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    r.first = ek_alloc(max * sizeof *r.first);
    pthread_t *thread = ek_alloc((size_t)t->clients * sizeof *thread);
    client *who = ek_alloc((size_t)t->clients * sizeof *who);
    int n = 0;
    double begun = ek_now();
    for (; n < t->clients; n++) {
        who[n] = (client){&r, n};
        if (pthread_create(&thread[n], NULL, client_main, &who[n])) break;
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    out->seconds = ek_now() - begun;
    sum_up(&r);
    free(r.first), free(r.gap), free(thread), free(who);
    if (n < t->clients) return ek_fail(EK_ENOMEM, "client %d of %d could not be started", n + 1, t->clients);
    return EK_OK;
}
