/* Background replies: their list, states and cancellation. Their events: background_log.c. */
#include "serve/background.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/routes.h"
#include "serve/session_state.h"
#include "serve/store/response_store.h"

/* --- the state of a running one --- */

/* The object of a queued response, and the position of its status. */
struct ek_background_text {
    int n_refs;
    ek_buf all;
    size_t from, n;
};

static void let_text_go(void *arg)
{
    ek_background_text *t = arg;
    if (--t->n_refs > 0) return;
    ek_buf_fini(&t->all);
    free(t);
}

static ek_background_text *make_text(ek_session *s)
{
    static const char word[] = "\"queued\"";
    ek_background_text *t = ek_alloc(sizeof *t);
    t->n_refs = 1;
    s->dialect->queued(&t->all, &s->reply, false);
    const char *at = strstr(t->all.data, word); /* only ids and times come before it, and these have no quotes */
    EK_ASSERT(at);
    t->from = (size_t)(at - t->all.data), t->n = sizeof word - 1;
    return t;
}

/* Whether it has begun and not ended; it also continues while its request is read again after a summary. */
static bool runs(ek_background *b)
{
    const ek_session *s = b->session;
    int cached = 0, read = 0;
    if (s->n_submitted > 0) ek_turn_reading(s->choices[0].turn, &cached, &read);
    b->begun |= s->first_token > 0 || read > 0;
    return b->begun;
}

static void reply_state(ek_background *b, ek_exchange *x)
{
    static const char queued[] = "\"queued\"", progress[] = "\"in_progress\"";
    ek_background_text *t = b->text;
    const bool in_progress = runs(b);
    const size_t end = t->from + t->n;
    const ek_outgoing body = {
        .part = {{t->all.data, t->from},
                 {in_progress ? progress : queued, (in_progress ? sizeof progress : sizeof queued) - 1},
                 {t->all.data + end, t->all.len - end}},
        .release = let_text_go,
        .arg = t};
    t->n_refs++;
    ek_exchange_reply_from(x, 200, "application/json", &body);
}

/* --- the list --- */

static ek_background *find(const ek_server *s, uint64_t owner, const char *id)
{
    ek_background *b = s->backgrounds;
    while (b && (b->owner != owner || strcmp(b->id, id) != 0)) b = b->next;
    return b;
}

void ek_background_free(ek_background *b)
{
    ek_background_log_close(b);
    *b->link = b->next;
    if (b->next) b->next->link = b->link;
    b->server->n_backgrounds--;
    if (b->text) let_text_go(b->text);
    free(b);
}

/* It has ended: only its events remain. */
static void end(ek_background *b)
{
    b->session = NULL;
    b->x = NULL;
    b->ended = ek_now();
    let_text_go(b->text);
    b->text = NULL;
    ek_background_log_end(b);
    if (!b->streams) ek_background_free(b);
}

/* Drops one that nobody waits for any more. */
static void drop(ek_background *b)
{
    ek_exchange *x = b->x;
    if (b->session->writing) b->session->forgotten = true;
    end(b);
    ek_exchange_drop(x);
}

/* Stores it as cancelled; `all` is the object that later requests get, also after a restart. */
static void cancel(ek_background *b, ek_buf *all)
{
    b->session->dialect->cancelled(all, &b->session->reply);
    drop(b);
}

/* The server stops. A reply whose end is being written counts as complete. */
static void stop(ek_background *b)
{
    ek_buf all = {0};
    if (b->session->writing) drop(b);
    else cancel(b, &all);
    ek_buf_fini(&all);
}

static ek_background *oldest_ended(const ek_server *s)
{
    ek_background *found = NULL;
    for (ek_background *b = s->backgrounds; b; b = b->next)
        if (b->ended > 0 && !b->readers && (!found || b->ended < found->ended)) found = b;
    return found;
}

ek_err ek_background_room(ek_server *s)
{
    ek_background *b = s->n_backgrounds >= EK_BACKGROUND_MAX ? oldest_ended(s) : NULL;
    if (b) ek_background_free(b);
    if (s->n_backgrounds < EK_BACKGROUND_MAX) return EK_OK;
    return ek_fail(EK_EBUSY, "background: %d responses are made in the background, and no more are taken now",
                   s->n_backgrounds);
}

/* --- the beginning --- */

static void take(void *arg, const char *bytes, size_t n)
{
    ek_background *b = arg;
    if (b->streams) ek_background_log_add(b, bytes, n);
}

static void ended(void *arg)
{
    end(arg);
}

void ek_background_begin(ek_session *s)
{
    static const ek_sink sink = {take, ended};
    ek_server *server = s->server;
    ek_exchange *x = s->x;
    ek_background *b = ek_alloc(sizeof *b);
    *b = (ek_background){
        .server = server, .session = s, .owner = s->salt, .streams = s->req.stream, .text = make_text(s)};
    snprintf(b->id, sizeof b->id, "%s", s->id);
    b->next = server->backgrounds;
    if (b->next) b->next->link = &b->next;
    b->link = &server->backgrounds;
    server->backgrounds = b;
    server->n_backgrounds++;
    ek_session_put_ignored(s);
    ek_exchange_on_gone(x, NULL, NULL);
    ek_exchange_on_drained(x, NULL);
    s->x = b->x = ek_exchange_detach(x, &sink, b);
    ek_exchange_on_gone(s->x, ek_session_on_gone, s);
    ek_exchange_on_drained(s->x, ek_session_on_drained);
    if (!b->streams) {
        reply_state(b, x);
        return;
    }
    ek_buf first = {0};
    s->dialect->queued(&first, &s->reply, true);
    ek_background_log_add(b, first.data, first.len);
    ek_buf_fini(&first);
    ek_background_read(b, x, 0);
}

/* --- requests about them --- */

static void refuse(ek_exchange *x, ek_err err, const char *param)
{
    ek_reply_failure(x, &ek_dialect_responses, err, param, NULL);
}

static bool is_true(const char *word)
{
    return !strcmp(word, "true") || !strcmp(word, "1");
}

/* Reads the number of the first requested event. */
static ek_err read_start(const ek_exchange *x, int n_events, int *first)
{
    char text[32], *rest = text;
    *first = 0;
    if (!ek_exchange_query(x, "starting_after", text, sizeof text)) return EK_OK;
    const long v = strtol(text, &rest, 10);
    if (rest == text || *rest || v < 0)
        return ek_fail(EK_EINVAL, "starting_after: the sequence_number of an event is needed");
    if (v >= n_events)
        return ek_fail(EK_EINVAL, "starting_after: there is no event %ld yet, the latest is %d", v, n_events - 1);
    *first = (int)v + 1;
    return EK_OK;
}

static ek_err stream(ek_background *b, ek_exchange *x)
{
    int first;
    if (!b->streams)
        return ek_fail(EK_EINVAL, "stream: the response was made without \"stream\": true, so it has no events");
    if (b->lost) return ek_fail(EK_EINVAL, "stream: the events of this response made room for those of others");
    EK_TRY(read_start(x, b->n_starts, &first));
    ek_background_read(b, x, first);
    return EK_OK;
}

bool ek_background_get(ek_server *s, ek_exchange *x, const char *id, bool input)
{
    char word[8];
    const uint64_t owner = ek_route_owner(s, x);
    const bool streams = !input && ek_exchange_query(x, "stream", word, sizeof word) > 0 && is_true(word);
    ek_background *b = find(s, owner, id);
    if (b && streams) {
        const ek_err err = stream(b, x);
        if (err) refuse(x, err, err == EK_EINVAL && b->streams && !b->lost ? "starting_after" : "stream");
        return true;
    }
    if (b && !b->ended) {
        if (input)
            refuse(x, ek_fail(EK_ENOTFOUND, "the response %.80s is being made: its items are stored with it", id),
                   "id");
        else reply_state(b, x);
        return true;
    }
    if (!streams || !ek_response_store_knows(s->responses, owner, id, NULL)) return false;
    refuse(x,
           ek_fail(EK_EINVAL,
                   "stream: events are kept of responses made with background and stream, for %d seconds after the end",
                   EK_BACKGROUND_SECONDS),
           "stream");
    return true;
}

/* A stored response that has ended stays unchanged. */
static void cancel_ended(ek_server *s, ek_exchange *x, const char *id)
{
    bool background;
    if (ek_response_store_knows(s->responses, ek_route_owner(s, x), id, &background) && !background)
        refuse(x, ek_fail(EK_EINVAL, "the response %.80s was not made in the background", id), "id");
    else ek_responses_get(s, x, id);
}

void ek_background_cancel(ek_server *s, ek_exchange *x, const char *rest)
{
    char id[128];
    const size_t n = strlen(rest), tail = strlen("/cancel");
    snprintf(id, sizeof id, "%.*s", (int)(n - tail), rest);
    ek_background *b = find(s, ek_route_owner(s, x), id);
    if (!b || b->ended) {
        cancel_ended(s, x, id);
        return;
    }
    if (b->session->writing) { /* its end is being written, so it completes before it could be stopped */
        reply_state(b, x);
        return;
    }
    ek_buf all = {0};
    cancel(b, &all);
    const ek_outgoing body = ek_outgoing_own(s, &all, 0);
    ek_exchange_reply_from(x, 200, "application/json", &body);
}

bool ek_background_delete(ek_server *s, uint64_t owner, const char *id)
{
    ek_background *b = find(s, owner, id);
    if (!b) return false;
    const bool running = !b->ended, streams = b->streams;
    if (running) drop(b);
    if (!running || streams) ek_background_free(b);
    return running;
}

void ek_background_tick(ek_server *s)
{
    for (ek_background *b = s->backgrounds, *next; b; b = next) {
        next = b->next;
        if (b->ended > 0 && !b->readers && ek_now() - b->ended > EK_BACKGROUND_SECONDS) ek_background_free(b);
        else if (s->n_signals && !b->ended && !b->readers && !b->session->writing) stop(b);
        else ek_background_beat(b);
    }
}

void ek_background_close(ek_server *s)
{
    while (s->backgrounds) {
        ek_background *b = s->backgrounds;
        const bool streams = b->streams || b->ended > 0;
        if (!b->ended) stop(b);
        if (streams) ek_background_free(b);
    }
}
