/* A session lives on after its client until the engine has posted the last news of each choice, because news point to
 * choices. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "serve/routes.h"
#include "serve/session_state.h"

enum { HEARTBEAT_SECONDS = 10 };

/* Clears everything that belongs to the request. */
static void forget_request(ek_session *s)
{
    s->choices = NULL, s->results = NULL;
    s->held = s->promised = s->grown = 0;
    s->n_opened = s->n_submitted = s->next_stored = 0;
    s->outcome = EK_REPLY_UNASKED;
    s->first_token = 0;
    s->read = -1;
}

/* Frees the data of a request whose turns have ended. Any thread. */
static void end_request(ek_session *s)
{
    ek_turn **turns = ek_alloc((size_t)s->n_opened * sizeof(ek_turn *));
    for (int i = 0; i < s->n_opened; i++) turns[i] = s->choices[i].turn;
    ek_journal_turns(s->server->journal, s->id, s->dialect->path, s->wishes.trace, turns, s->n_opened);
    for (int i = 0; i < s->n_opened; i++) ek_turn_close(turns[i]);
    free(turns);
    free(s->choices);
    free(s->results);
    ek_buf_fini(&s->receipt);
    ek_resume_marks_fini(&s->marks);
    ek_turn_prompt_fini(&s->prompt);
    ek_stored_fini(&s->stored);
    ek_api_request_fini(&s->req);
    ek_request_memory_give(&s->server->memory, s->held);
    forget_request(s);
}

static void run_end(ek_job *j)
{
    end_request((ek_session *)(void *)((char *)j - offsetof(ek_session, freeing)));
}

static void freed(ek_job *j)
{
    free((char *)j - offsetof(ek_session, freeing));
}

enum { LARGE = 1 << 20 };

void ek_session_leave_request(ek_session *s)
{
    ek_session *old = ek_alloc(sizeof *old);
    *old = (ek_session){.server = s->server,
                        .dialect = s->dialect,
                        .req = s->req,
                        .held = s->held,
                        .wishes = s->wishes,
                        .marks = s->marks,
                        .receipt = s->receipt,
                        .choices = s->choices,
                        .results = s->results,
                        .n_opened = s->n_opened,
                        .prompt = s->prompt,
                        .stored = s->stored};
    memcpy(old->id, s->id, sizeof old->id);
    s->req = (ek_api_request){0};
    s->marks = (ek_resume_marks){0};
    s->receipt = (ek_buf){0};
    s->prompt = (ek_turn_prompt){0};
    s->stored = (ek_stored){0};
    forget_request(s);
    old->freeing = (ek_job){.run = run_end, .done = freed};
    ek_workers_clean(s->server->workers, &old->freeing, old->held >= LARGE);
}

static void free_parts(ek_job *j)
{
    ek_session *s = (ek_session *)(void *)((char *)j - offsetof(ek_session, freeing));
    end_request(s);
    ek_body_fini(&s->body);
    ek_buf_fini(&s->out);
    free(s->later);
    ek_request_memory_give(&s->server->memory, s->counted);
}

/* A worker frees sessions with much memory: many replies with log-probabilities, large trees of tools. */
void ek_session_free(ek_session *s)
{
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    if (s->more) event_free(s->more);
    if (s->go_on) event_free(s->go_on);
    if (s->step) event_free(s->step);
    ek_http_body_freed(s->server->http, s->body.len);
    s->freeing = (ek_job){.run = free_parts, .done = freed};
    ek_workers_clean(s->server->workers, &s->freeing, s->held + s->counted >= LARGE);
}

void ek_session_free_when_done(ek_session *s)
{
    if (s->x || s->writing || s->n_taken < s->n_later) return;
    for (int i = 0; i < s->n_opened; i++)
        if (ek_turn_live(s->choices[i].turn)) return;
    ek_session_free(s);
}

static void abandon(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++) ek_turn_abandon(s->choices[i].turn);
}

static void note_stored(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++)
        if (ek_turn_outcome(s->choices[i].turn) != EK_REPLY_UNASKED)
            ek_replies_note(s->server->replies, ek_turn_outcome(s->choices[i].turn),
                            ek_turn_stored_tokens(s->choices[i].turn));
}

static void note_loops(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++) {
        const ek_turn_result *r = s->results[i];
        if (r->loop == EK_LOOP_NONE) continue;
        s->server->metrics.loops++;
        ek_log(EK_LOG_INFO, "event=loop id=%s%s choice=%d kind=%s period=%d at_token=%d of=%d stopped=%d", s->id,
               s->traced, i, r->loop == EK_LOOP_OF_CALLS ? "call" : "tokens", r->loop_period, r->loop_at, r->n_tokens,
               r->end == EK_END_LOOP);
    }
}

/* Warns, at most once a minute, that a replica for replies computed a prompt itself, which is slow and otherwise hard
 * to notice. */
static void note_computed(ek_session *s, const ek_api_usage *u)
{
    static const double EVERY = 60;
    ek_server *server = s->server;
    const int64_t computed = u->prompt - u->cached, due = EK_PAGE_TOKENS + (int64_t)server->config->sliding_window;
    if (!server->decode || s->reply.n != 1 || s->outcome >= EK_REPLY_PART || computed <= due) return;
    server->metrics.decode_computed++;
    if (server->decode_warned > 0 && ek_now() - server->decode_warned < EVERY) return;
    server->decode_warned = ek_now();
    ek_log(EK_LOG_WARN,
           "--role decode computed %lld of %lld prompt tokens: their pages were not at --cache-shared (id %s); is the "
           "replica that prepares of the same model and --kv, and asked first?",
           (long long)computed, (long long)u->prompt, s->id);
}

void ek_session_leave_client(ek_session *s, ek_outcome how)
{
    static const char *const outcomes[] = {"-", "miss", "part", "hit"};
    ek_metrics *m = &s->server->metrics;
    bool opened = s->n_opened == s->reply.n; /* the client may leave before all turns are open */
    ek_api_usage u = opened ? ek_api_usage_of(&s->reply) : (ek_api_usage){0};
    double whole = ek_now() - s->opened;
    m->outcome[how]++;
    note_stored(s);
    if (s->req.resume.tokens.len == 0) m->cached_tokens += (uint64_t)u.cached; /* else the client has it */
    if (how == EK_OUTCOME_DONE && s->req.resume.tokens.len == 0) note_computed(s, &u);
    if (how == EK_OUTCOME_DONE) ek_histogram_add(&m->whole, EK_HISTOGRAM_SECONDS, whole);
    if (how == EK_OUTCOME_DONE) ek_exemplars_add(&m->traces.whole, EK_HISTOGRAM_SECONDS, whole, s->wishes.trace);
    ek_log(
        EK_LOG_INFO,
        "event=request id=%s%s outcome=%s stream=%d n=%d prompt_tokens=%lld cached_tokens=%lld reply_tokens=%lld stored=%s "
        "prepare_s=%.3f first_token_s=%.3f total_s=%.3f",
        s->id, s->traced, ek_outcome_name(how), s->req.stream, s->reply.n, (long long)u.prompt, (long long)u.cached,
        (long long)u.completion, outcomes[s->outcome], s->prepared - s->opened,
        s->first_token > 0 ? s->first_token - s->opened : -1, whole);
    note_loops(s);
    for (int i = 0; i < s->n_opened; i++)
        if (s->results[i]->n_malformed > 0)
            ek_log(EK_LOG_INFO, "event=malformed_calls id=%s calls=%d", s->id, s->results[i]->n_malformed);
    s->x = NULL;
    abandon(s);
}

static void drop_preparation(ek_session *s)
{
    ek_prepare_drop(s->preparing);
    s->preparing = NULL;
}

void ek_session_on_gone(void *user)
{
    ek_session *s = user;
    if (s->preparing) {
        s->server->metrics.outcome[EK_OUTCOME_GONE]++;
        ek_log(EK_LOG_INFO, "event=request id=%s%s outcome=client_gone", s->id, s->traced);
        drop_preparation(s);
        s->x = NULL;
        abandon(s);
        ek_session_free_when_done(s);
        return;
    }
    if (s->writing) {
        s->x = NULL; /* the worker's end does the rest */
        return;
    }
    ek_session_leave_client(s, EK_OUTCOME_GONE);
    ek_session_go_on(s);
}

/* --- errors --- */

void ek_session_end_with(ek_session *s, int index, const char *text)
{
    if (s->full) ek_buf_clear(&s->out);
    s->reply.marks = NULL;
    s->dialect->failed(&s->out, &s->reply, index, text);
    ek_exchange_end_with(s->x, s->out.data, s->out.len);
    ek_buf_clear(&s->out);
}

void ek_session_failed(ek_session *s, int index, ek_err err, const char *text, ek_outcome how)
{
    if (ek_exchange_begun(s->x)) {
        ek_session_end_with(s, index, text);
    } else {
        int status = ek_err_http(err);
        if (s->missing) status = EK_STATUS_NOT_STORED;
        ek_reply_error(s->x, s->dialect, status >= 400 && status != 499 ? status : 500, NULL, NULL, "%s", text);
    }
    ek_session_leave_client(s, how);
}

void ek_session_refuse(ek_session *s, ek_err err, const char *text, const char *param, const char *code)
{
    ek_exchange *x = s->x;
    if (ek_exchange_begun(x)) { /* of a request that is read again, or runs in the background */
        ek_buf why = {0};
        ek_buf_str(&why, text ? text : ek_err_text());
        ek_session_failed(s, 0, err, why.data, err == EK_ETIMEOUT ? EK_OUTCOME_TIMEOUT : EK_OUTCOME_FAILED);
        ek_buf_fini(&why);
        ek_session_free_when_done(s);
        return;
    }
    s->x = NULL;
    ek_exchange_on_gone(x, NULL, NULL);
    s->server->metrics.outcome[err == EK_ETIMEOUT ? EK_OUTCOME_TIMEOUT : EK_OUTCOME_REFUSED]++;
    if (text) ek_fail(err, "%s", text);
    if (s->missing) ek_reply_error(x, s->dialect, EK_STATUS_NOT_STORED, NULL, "reply_not_stored", "%s", ek_err_text());
    else ek_reply_failure(x, s->dialect, err, param, code);
    abandon(s);
    ek_session_free_when_done(s);
}

/* --- all sessions --- */

/* True if its time is over and its reply has ended. */
static bool check_deadline(ek_session *s)
{
    double limit = s->server->limits.request_timeout;
    if (limit <= 0 || !s->x || s->writing || ek_now() - s->opened <= limit) return false;
    char text[100];
    snprintf(text, sizeof text, "the request took longer than %.0f seconds (--request-timeout)", limit);
    if (s->preparing) {
        drop_preparation(s);
        ek_session_refuse(s, EK_ETIMEOUT, text, NULL, NULL);
    } else {
        ek_session_failed(s, 0, EK_ETIMEOUT, text, EK_OUTCOME_TIMEOUT);
        ek_session_go_on(s);
    }
    return true;
}

static bool beat(ek_session *s)
{
    bool streams = !s->preparing && s->x && s->req.stream && !s->req.background && !s->writing && !s->full;
    if (s->wishes.if_available && s->first_token == 0) return false; /* the status is not known yet */
    if (!streams) return false;
    const bool due = ek_now() - s->last_sent >= HEARTBEAT_SECONDS, reads = s->first_token == 0;
    if (!(reads && ek_session_put_progress(s, due))) {
        if (!due) return false;
        s->dialect->heartbeat(&s->out); /* also notices dead clients */
    }
    ek_session_flush(s);
    return true;
}

/* If a turn lacks time, the next tick continues; finished work is not due again. */
void ek_sessions_tick(ek_server *server)
{
    for (ek_session *s = server->sessions, *next; s; s = next) {
        next = s->next;
        if ((check_deadline(s) || beat(s)) && ek_loop_spent(&server->loop)) return;
    }
}

void ek_sessions_cancel(ek_server *server)
{
    for (ek_session *s = server->sessions, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < s->n_opened && !s->writing; i++) ek_turn_cancel(s->choices[i].turn);
        if (!s->preparing) continue;
        drop_preparation(s);
        ek_session_refuse(s, EK_ESHUTDOWN, "the server is shutting down", NULL, NULL);
    }
}
