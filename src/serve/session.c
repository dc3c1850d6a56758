/* A session outlives its client until the engine has posted the last news of each choice, because news point to
 * choices. */
#include "serve/session.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "serve/journal.h"
#include "serve/prepare.h"
#include "serve/reply.h"

enum { HEARTBEAT_SECONDS = 10, MAX_MODEL_NAME = 256 };

typedef struct choice {
    ek_session *session;
    int index;
    bool begun;        /* its part of a stream */
    double last_token; /* ek_now() */
    ek_turn *turn;
} choice;

struct ek_session {
    ek_server *server;
    ek_exchange *x; /* NULL once the reply is out or the client is gone */
    ek_session *next, **link;
    const ek_dialect *dialect;
    ek_preparation *preparing; /* until the prompt is made; nothing below is valid before */
    ek_api_request req;
    size_t held; /* of the server's request memory */
    uint64_t salt;
    ek_api_reply reply;
    char id[64], digest[20];
    choice *choices;
    const ek_turn_result **results;
    int n_opened; /* choices that have a turn */
    int n_submitted;
    ek_turn_prompt prompt; /* until all are submitted */
    struct event *more;    /* submits the rest */
    ek_buf out;
    double opened, prepared, first_token, last_sent; /* ek_now(); 0: not yet */
};

static void free_session(ek_session *s)
{
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    for (int i = 0; i < s->n_opened; i++) {
        ek_journal_turn(s->server->journal, s->id, s->dialect->path, i, s->choices[i].turn);
        ek_turn_close(s->choices[i].turn);
    }
    free(s->choices);
    free(s->results);
    ek_buf_fini(&s->out);
    ek_turn_prompt_fini(&s->prompt);
    if (s->more) event_free(s->more);
    ek_prepare_release(s->server, &s->req, s->held);
    free(s);
}

static void free_when_done(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++)
        if (ek_turn_live(s->choices[i].turn)) return;
    if (!s->x) free_session(s);
}

static void abandon(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++) ek_turn_abandon(s->choices[i].turn);
}

/* The reply is out, or nobody wants it any more. */
static void leave_client(ek_session *s, ek_outcome how)
{
    ek_metrics *m = &s->server->metrics;
    ek_api_usage u = ek_api_usage_of(&s->reply);
    double whole = ek_now() - s->opened;
    m->outcome[how]++;
    m->cached_tokens += (uint64_t)u.cached;
    if (how == EK_OUTCOME_DONE) ek_histogram_add(&m->whole, EK_HISTOGRAM_SECONDS, whole);
    ek_log(EK_LOG_INFO,
           "event=request id=%s outcome=%s stream=%d n=%d prompt_tokens=%lld cached_tokens=%lld reply_tokens=%lld "
           "prepare_s=%.3f first_token_s=%.3f total_s=%.3f",
           s->id, ek_outcome_name(how), s->req.stream, s->reply.n, (long long)u.prompt, (long long)u.cached,
           (long long)u.completion, s->prepared - s->opened, s->first_token > 0 ? s->first_token - s->opened : -1,
           whole);
    for (int i = 0; i < s->reply.n; i++)
        if (s->results[i]->n_malformed > 0)
            ek_log(EK_LOG_INFO, "event=malformed_calls id=%s calls=%d", s->id, s->results[i]->n_malformed);
    s->x = NULL;
    abandon(s);
}

static void on_gone(void *user)
{
    ek_session *s = user;
    if (s->preparing) {
        s->server->metrics.outcome[EK_OUTCOME_GONE]++;
        ek_log(EK_LOG_INFO, "event=request id=%s outcome=client_gone", s->id);
        ek_prepare_drop(s->preparing);
        s->x = NULL;
        free_session(s);
        return;
    }
    leave_client(s, EK_OUTCOME_GONE);
    free_when_done(s);
}

/* --- out to the client --- */

static void flush(ek_session *s)
{
    if (s->out.len == 0) return;
    if (!ek_exchange_begun(s->x)) {
        ek_exchange_header(s->x, "cache-control", "no-cache");
        ek_exchange_header(s->x, "x-accel-buffering", "no"); /* nginx would hold the stream back */
        ek_exchange_begin(s->x, 200, "text/event-stream; charset=utf-8");
    }
    ek_exchange_send(s->x, s->out.data, s->out.len);
    ek_buf_clear(&s->out);
    s->last_sent = ek_now();
}

/* With the first token, when the counts of the prompt are known. */
static void begin(choice *c)
{
    ek_session *s = c->session;
    if (!c->begun) s->dialect->begin(&s->out, &s->reply, c->index);
    c->begun = true;
}

static void on_reply(void *arg, const ek_reply_event *e)
{
    choice *c = arg;
    ek_session *s = c->session;
    if (!s->req.stream) return;
    begin(c);
    s->dialect->event(&s->out, &s->reply, c->index, e);
}

static void write_digest(ek_session *s)
{
    uint64_t h = s->results[0]->digest;
    if (s->reply.n > 1) {
        h = 0;
        for (int i = 0; i < s->reply.n; i++) h = ek_hash64(h, &s->results[i]->digest, sizeof h);
    }
    snprintf(s->digest, sizeof s->digest, "%016llx", (unsigned long long)h);
    if (s->req.turn.digest) s->reply.digest = s->digest;
}

static void reply_done(ek_session *s)
{
    s->dialect->end(&s->out, &s->reply);
    if (s->req.stream) {
        flush(s);
        ek_exchange_end(s->x);
    } else {
        if (s->reply.digest) ek_exchange_header(s->x, "x-evenkeel-digest", s->reply.digest);
        ek_reply_json(s->x, 200, &s->out);
    }
    leave_client(s, EK_OUTCOME_DONE);
}

/* The failure of one choice ends the whole reply: with a status while that is possible. */
static void reply_failed(ek_session *s, int index, ek_err err, const char *text, ek_outcome how)
{
    if (ek_exchange_begun(s->x)) {
        s->dialect->failed(&s->out, &s->reply, index, text);
        flush(s);
        ek_exchange_end(s->x);
    } else {
        int status = ek_err_http(err);
        ek_reply_error(s->x, s->dialect, status >= 400 && status != 499 ? status : 500, text, NULL, NULL);
    }
    leave_client(s, how);
}

/* Ends a session whose reply has not begun: with text, or the last error's sentence. */
static void refuse(ek_session *s, ek_err err, const char *text, const char *param)
{
    ek_exchange *x = s->x;
    s->x = NULL;
    ek_exchange_on_gone(x, NULL, NULL);
    s->server->metrics.outcome[err == EK_ETIMEOUT ? EK_OUTCOME_TIMEOUT : EK_OUTCOME_REFUSED]++;
    if (text) ek_fail(err, "%s", text);
    ek_reply_failure(x, s->dialect, err, param);
    abandon(s);
    free_when_done(s);
}

/* --- in from the engine --- */

static void note_token(choice *c)
{
    ek_session *s = c->session;
    ek_metrics *m = &s->server->metrics;
    double now = ek_now();
    if (s->first_token == 0) {
        s->first_token = now;
        ek_histogram_add(&m->first_token, EK_HISTOGRAM_SECONDS, now - s->opened);
    }
    if (c->last_token > 0) ek_histogram_add(&m->token_gap, EK_HISTOGRAM_SECONDS, now - c->last_token);
    c->last_token = now;
}

static void handle_news(choice *c, const ek_turn_news *news)
{
    ek_session *s = c->session;
    const ek_turn_result *r = s->results[c->index];
    if (news->token >= 0) note_token(c);
    ek_turn_feed(c->turn, news);
    if (s->req.stream && news->token >= 0) begin(c);
    if (r->end == EK_END_ERROR) {
        ek_log(EK_LOG_ERROR, "event=failure id=%s reason=\"%s\"", s->id, r->error);
        reply_failed(s, c->index, r->err, r->error, EK_OUTCOME_FAILED);
    } else if (r->end == EK_END_CANCELLED) {
        reply_failed(s, c->index, EK_ESHUTDOWN, "the server is shutting down", EK_OUTCOME_FAILED);
    } else if (r->end != EK_END_NONE) {
        if (--s->reply.n_open == 0) write_digest(s);
        if (s->req.stream) s->dialect->finish(&s->out, &s->reply, c->index);
        if (s->reply.n_open == 0) reply_done(s);
        else if (s->req.stream) flush(s);
    } else if (s->req.stream) {
        flush(s);
    }
}

void ek_session_news(const ek_turn_news *news)
{
    choice *c = news->user;
    ek_session *s = c->session;
    if (s->x && s->results[c->index]->end == EK_END_NONE) handle_news(c, news);
    else ek_turn_feed(c->turn, news);
    free_when_done(s);
}

/* True if its time was over and its reply has ended. */
static bool check_deadline(ek_session *s)
{
    double limit = s->server->limits.request_timeout;
    if (limit <= 0 || !s->x || ek_now() - s->opened <= limit) return false;
    char text[100];
    snprintf(text, sizeof text, "the request took longer than %.0f seconds (--request-timeout)", limit);
    if (s->preparing) {
        ek_prepare_drop(s->preparing);
        refuse(s, EK_ETIMEOUT, text, NULL);
    } else {
        reply_failed(s, 0, EK_ETIMEOUT, text, EK_OUTCOME_TIMEOUT);
        free_when_done(s);
    }
    return true;
}

void ek_sessions_tick(ek_server *server)
{
    for (ek_session *s = server->sessions, *next; s; s = next) {
        next = s->next;
        if (check_deadline(s) || s->preparing || !s->x || !s->req.stream) continue;
        if (ek_now() - s->last_sent < HEARTBEAT_SECONDS) continue;
        s->dialect->heartbeat(&s->out); /* dead clients are noticed, too */
        flush(s);
    }
}

void ek_sessions_cancel(ek_server *server)
{
    for (ek_session *s = server->sessions, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < s->n_opened; i++) ek_turn_cancel(s->choices[i].turn);
        if (!s->preparing) continue;
        ek_prepare_drop(s->preparing);
        refuse(s, EK_ESHUTDOWN, "the server is shutting down", NULL);
    }
}

/* --- opening --- */

static void on_more(evutil_socket_t fd, short what, void *arg);

static ek_err open_turns(ek_session *s)
{
    ek_turn_opts opts = s->req.turn;
    opts.record = ek_journal_mode(s->server->journal);
    opts.digest |= opts.record != EK_RECORD_NONE;
    for (int i = 0; i < s->req.n; i++) {
        choice *c = &s->choices[i];
        *c = (choice){.session = s, .index = i};
        opts.choice = i % (s->req.n / (1 + s->req.n_more));
        EK_TRY(ek_turn_open(&c->turn, &s->server->chat, ek_api_prompt_of(&s->req, &s->prompt, i), &opts, on_reply, c));
        s->results[i] = ek_turn_result_of(c->turn);
        s->n_opened++;
    }
    return EK_OK;
}

/* Submits choices for at most a few milliseconds: each copies the prompt, which for many choices and a long prompt
 * would stop the event loop. The rest follows in its next turns. */
static ek_err submit_turns(ek_session *s)
{
    static const double MAX_SECONDS = 1e-3;
    double begin = ek_thread_time();
    while (s->n_submitted < s->req.n) {
        int i = s->n_submitted++;
        choice *c = &s->choices[i];
        EK_TRY(ek_turn_submit(c->turn, s->server->engine, ek_api_prompt_of(&s->req, &s->prompt, i), ek_mailbox_post,
                              s->server->mailbox, c));
        if (s->n_submitted == s->req.n || ek_thread_time() - begin < MAX_SECONDS) continue;
        struct timeval now = {0, 0};
        if (!s->more) s->more = event_new(s->server->base, -1, 0, on_more, s);
        event_add(s->more, &now);
        return EK_OK;
    }
    ek_turn_prompt_fini(&s->prompt);
    return EK_OK;
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
    ek_session *s = arg;
    (void)fd, (void)what;
    if (!s->x) return; /* those that were submitted end it */
    int i = s->n_submitted;
    ek_err err = submit_turns(s);
    if (!err) return;
    char text[512];
    snprintf(text, sizeof text, "%s", ek_err_text());
    reply_failed(s, i, err, text, EK_OUTCOME_FAILED);
    free_when_done(s);
}

/* Fills in what follows from a body that was read. */
static void set_up(ek_session *s, ek_prepared *p)
{
    ek_server *server = s->server;
    uint64_t number = ek_exchange_number(s->x);
    ek_api_request *req = &s->req;
    bool draws = !p->req.has_seed &&
                 p->req.turn.sampling.temperature >= 1e-5f; /* a greedy reply has no use for a seed */
    *req = p->req;
    req->turn.tools = req->tools;
    if (s->salt) req->turn.cache_salt = ek_hash64(s->salt, &req->turn.cache_salt, sizeof req->turn.cache_salt);
    s->held = p->held;
    s->choices = ek_alloc((size_t)req->n * sizeof *s->choices);
    s->results = ek_alloc((size_t)req->n * sizeof *s->results);
    if (!req->has_seed) req->turn.sampling.seed = ek_mix64(server->nonce + number) >> 11; /* exact as a double */
    s->reply = (ek_api_reply){.id = s->id,
                              .model = req->model && *req->model ? req->model : server->model_name,
                              .fingerprint = server->fingerprint,
                              .created = ek_unix_time(),
                              .stream = req->stream,
                              .n = req->n,
                              .n_open = req->n,
                              .n_prompts = 1 + req->n_more,
                              .seed = draws ? &s->req.turn.sampling.seed : NULL,
                              .choices = s->results,
                              .own = req->own,
                              .tokenizer = server->chat.tokenizer,
                              .turn = &s->req.turn};
}

/* The whole reply of a path that generates nothing. */
static void answer(ek_session *s, ek_buf *body)
{
    ek_exchange *x = s->x;
    s->x = NULL;
    ek_exchange_on_gone(x, NULL, NULL);
    ek_reply_json(x, 200, body);
    s->server->metrics.outcome[EK_OUTCOME_DONE]++;
    ek_log(EK_LOG_INFO, "event=request id=%s outcome=done total_s=%.3f", s->id, ek_now() - s->opened);
}

static void on_prepared(void *user, ek_prepared *p)
{
    ek_session *s = user;
    int room = ek_engine_room(s->server->engine);
    s->preparing = NULL;
    s->prepared = ek_now();
    ek_histogram_add(&s->server->metrics.prepare, EK_HISTOGRAM_SECONDS, s->prepared - s->opened);
    ek_err err = p->err;
    const char *param = p->req.param;
    if (err) {
        ek_fail(err, "%s", p->text);
    } else if (p->req.model && strlen(p->req.model) > MAX_MODEL_NAME) { /* every chunk repeats it */
        err = ek_fail(EK_EINVAL, "model: the name has %zu bytes, at most %d are allowed", strlen(p->req.model),
                      MAX_MODEL_NAME);
        param = "model";
    } else if (p->req.n > room) {
        err = ek_fail(EK_EINVAL, "n: %d replies are asked for, %d requests may run or wait here", p->req.n, room);
        param = "n";
    }
    if (err) {
        ek_prepare_release(s->server, &p->req, p->held);
    } else if (s->dialect->answer) {
        answer(s, &p->req.answer);
        ek_prepare_release(s->server, &p->req, p->held);
    } else {
        set_up(s, p);
        s->prompt = p->prompt;
        p->prompt = (ek_turn_prompt){0};
        err = open_turns(s);
        if (!err) err = submit_turns(s);
        if (err) param = err == EK_ETOOLONG || err == EK_EINVAL ? s->dialect->prompt_param : NULL;
    }
    ek_turn_prompt_fini(&p->prompt);
    if (err) refuse(s, err, NULL, param);
    else if (s->dialect->answer) free_session(s);
}

ek_api_limits ek_session_limits(const ek_server *server)
{
    const ek_config *config = server->config;
    ek_api_limits l = {.defaults = ek_sampling_greedy(),
                       .n_vocab = config->vocab_size,
                       .ctx_tokens = ek_engine_ctx(server->engine),
                       .responses = server->responses};
    l.defaults.temperature = config->temperature;
    l.defaults.top_p = config->top_p;
    l.defaults.top_k = config->top_k;
    return l;
}

static void link_session(ek_session *s)
{
    ek_server *server = s->server;
    s->next = server->sessions;
    if (s->next) s->next->link = &s->next;
    s->link = &server->sessions;
    server->sessions = s;
}

void ek_session_open(ek_server *server, ek_exchange *x, const ek_dialect *d, uint64_t salt)
{
    ek_session *s = ek_alloc(sizeof *s);
    uint64_t number = ek_exchange_number(x);
    s->server = server;
    s->x = x;
    s->dialect = d;
    s->salt = salt;
    s->opened = s->last_sent = ek_now();
    snprintf(s->id, sizeof s->id, "%s%016llx%08llx", d->id_prefix, (unsigned long long)ek_mix64(server->nonce ^ number),
             (unsigned long long)(number & 0xffffffff));
    link_session(s);
    ek_exchange_on_gone(x, on_gone, s);
    ek_err err = ek_prepare_start(&s->preparing, server, x, d, on_prepared, s);
    if (err) refuse(s, err, NULL, NULL);
}
