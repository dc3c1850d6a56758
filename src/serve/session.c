/* A session outlives its client until the engine has posted the last news of each choice, because news point to
 * choices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "serve/reply.h"
#include "serve/session_state.h"

enum { HEARTBEAT_SECONDS = 10 };

void ek_session_free(ek_session *s)
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

void ek_session_free_when_done(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++)
        if (ek_turn_live(s->choices[i].turn)) return;
    if (!s->x) ek_session_free(s);
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

void ek_session_on_gone(void *user)
{
    ek_session *s = user;
    if (s->preparing) {
        s->server->metrics.outcome[EK_OUTCOME_GONE]++;
        ek_log(EK_LOG_INFO, "event=request id=%s outcome=client_gone", s->id);
        ek_prepare_drop(s->preparing);
        s->x = NULL;
        ek_session_free(s);
        return;
    }
    leave_client(s, EK_OUTCOME_GONE);
    ek_session_free_when_done(s);
}

/* --- out to the client --- */

/* What was left out of schemas; the log has all of it. */
static void put_ignored(ek_session *s)
{
    enum { MOST = 1000 };
    const char *all = ek_grammar_ignored(s->req.grammar);
    size_t n = strnlen(all, MOST + 1);
    if (n == 0) return;
    ek_buf value = {0};
    ek_buf_add(&value, all, n < MOST ? n : MOST);
    if (n > MOST) ek_buf_str(&value, "...");
    ek_exchange_header(s->x, "x-evenkeel-ignored-keywords", value.data);
    ek_buf_fini(&value);
}

static void flush(ek_session *s)
{
    if (s->out.len == 0) return;
    if (!ek_exchange_begun(s->x)) {
        ek_exchange_header(s->x, "cache-control", "no-cache");
        ek_exchange_header(s->x, "x-accel-buffering", "no"); /* nginx would hold the stream back */
        put_ignored(s);
        ek_exchange_begin(s->x, 200, "text/event-stream; charset=utf-8");
    }
    ek_exchange_send(s->x, s->out.data, s->out.len);
    ek_buf_clear(&s->out);
    s->last_sent = ek_now();
}

/* With the first token, when the counts of the prompt are known. */
static void begin(ek_session_choice *c)
{
    ek_session *s = c->session;
    if (!c->begun) s->dialect->begin(&s->out, &s->reply, c->index);
    c->begun = true;
}

void ek_session_on_reply(void *arg, const ek_reply_event *e)
{
    ek_session_choice *c = arg;
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
        put_ignored(s);
        ek_reply_json(s->x, 200, &s->out);
    }
    leave_client(s, EK_OUTCOME_DONE);
}

void ek_session_failed(ek_session *s, int index, ek_err err, const char *text, ek_outcome how)
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

void ek_session_refuse(ek_session *s, ek_err err, const char *text, const char *param)
{
    ek_exchange *x = s->x;
    s->x = NULL;
    ek_exchange_on_gone(x, NULL, NULL);
    s->server->metrics.outcome[err == EK_ETIMEOUT ? EK_OUTCOME_TIMEOUT : EK_OUTCOME_REFUSED]++;
    if (text) ek_fail(err, "%s", text);
    ek_reply_failure(x, s->dialect, err, param);
    abandon(s);
    ek_session_free_when_done(s);
}

/* --- in from the engine --- */

static void note_token(ek_session_choice *c)
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

static void handle_news(ek_session_choice *c, const ek_turn_news *news)
{
    ek_session *s = c->session;
    const ek_turn_result *r = s->results[c->index];
    if (news->token >= 0) note_token(c);
    ek_turn_feed(c->turn, news);
    if (s->req.stream && news->token >= 0) begin(c);
    if (r->end == EK_END_ERROR) {
        ek_log(EK_LOG_ERROR, "event=failure id=%s reason=\"%s\"", s->id, r->error);
        ek_session_failed(s, c->index, r->err, r->error, EK_OUTCOME_FAILED);
    } else if (r->end == EK_END_CANCELLED) {
        ek_session_failed(s, c->index, EK_ESHUTDOWN, "the server is shutting down", EK_OUTCOME_FAILED);
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
    ek_session_choice *c = news->user;
    ek_session *s = c->session;
    if (s->x && s->results[c->index]->end == EK_END_NONE) handle_news(c, news);
    else ek_turn_feed(c->turn, news);
    ek_session_free_when_done(s);
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
        ek_session_refuse(s, EK_ETIMEOUT, text, NULL);
    } else {
        ek_session_failed(s, 0, EK_ETIMEOUT, text, EK_OUTCOME_TIMEOUT);
        ek_session_free_when_done(s);
    }
    return true;
}

void ek_sessions_tick(ek_server *server)
{
    for (ek_session *s = server->sessions, *next; s; s = next) {
        next = s->next;
        if (ek_loop_spent(&server->loop)) return; /* the next tick goes on: what was done is not due again */
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
        ek_session_refuse(s, EK_ESHUTDOWN, "the server is shutting down", NULL);
    }
}
