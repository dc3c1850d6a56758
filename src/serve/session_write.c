/* From the engine's news to bytes for the client.
 *
 * A token's part of the reply is written at once. A part that may be large (a whole reply with log-probabilities, those
 * of the prompt, the end of a stream that repeats everything) is counted, then written by a worker, while the session's
 * further news wait. A part larger than the buffer of a stream is sent alone, once everything before it is read; news
 * wait likewise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "serve/http/http.h"
#include "serve/receipts.h"
#include "serve/routes.h"
#include "serve/session_state.h"
#include "serve/store/response_store.h"

enum {
    LARGE = 64 << 10, /* bytes; a worker writes more */
    VERY_LARGE = 4 << 20,
    COUNTED_AT_ONCE = 64 << 10, /* bytes by which counts of results grow */
    REPLAYED_AT_ONCE = 500      /* tokens; a worker replays more */
};

/* --- sizes --- */

/* The size of a whole reply's text, without the parts that were counted with the request. */
static size_t results_size(const ek_session *s)
{
    size_t size = 0, per_token = EK_PER_LOGPROB * (size_t)(s->req.turn.n_top + 2);
    for (int i = 0; i < s->reply.n; i++) {
        const ek_turn_result *r = s->results[i];
        const ek_answer *a = &r->answer;
        size += 512 + 2 * (a->content.len + a->reasoning.len) + per_token * (size_t)r->n_logprobs;
        for (int k = 0; k < a->n_calls; k++) size += 256 + 2 * a->calls[k].args.len;
    }
    return size;
}

/* Bytes counted per choice for the prompt's log-probabilities in the reply. */
static size_t prompt_size(const ek_session *s, const ek_turn_result *r)
{
    return s->req.turn.prompt_logprobs ? EK_PER_LOGPROB * (size_t)(s->req.turn.n_top + 2) * (size_t)r->n_prompt : 0;
}

static ek_receipt_of receipt_of(const ek_session *s)
{
    return (ek_receipt_of){.req = &s->req,
                           .api = s->dialect->path,
                           .prompt = &s->prompt,
                           .results = s->results,
                           .key = s->receipt_key,
                           .id = s->id,
                           .seed_from = s->seed_from};
}

/* A piece of a reply: the news of a token, or the end of a choice. */
typedef struct piece {
    ek_session_choice *c;
    const ek_turn_news *news; /* NULL: the end */
    size_t size;              /* maximum size */
    size_t counted;           /* the part of it that s->held has counted */
} piece;

static piece piece_of(ek_session_choice *c, const ek_turn_news *news)
{
    const ek_session *s = c->session;
    enum { REPEATED = 5 }; /* copies of each text at the end of a stream */
    piece p = {.c = c, .news = news};
    if (news) {
        if (news->token >= 0 && !c->replayed && s->req.resume.tokens.len > REPLAYED_AT_ONCE) p.size = LARGE + 1;
        if (s->req.stream && !c->begun && news->token >= 0)
            p.counted = prompt_size(s, s->results[c->index]) + s->req.own_bytes / (size_t)s->reply.n;
    } else if (!s->req.stream && s->reply.n_open == 0) {
        p.counted = s->req.own_bytes;
        for (int i = 0; i < s->reply.n; i++) p.counted += prompt_size(s, s->results[i]);
        p.size = results_size(s);
    } else if (s->req.stream && s->dialect->repeats) {
        p.counted = s->req.own_bytes;
        p.size = REPEATED * results_size(s);
    }
    if (!news && s->receipt_key && s->reply.n_open == 0) {
        const ek_receipt_of of = receipt_of(s);
        if (ek_receipts_waits(s->server)) p.size += LARGE + 1; /* on a worker, because it waits for a disk */
        p.size += 3 * ek_receipts_bytes(&of); /* three copies: in the reply, alone, and while it is made */
    }
    p.size += p.counted;
    return p;
}

/* --- writing, on both threads --- */

static void begin(ek_session_choice *c)
{
    ek_session *s = c->session;
    ek_session_end_progress(s);
    if (!c->begun && s->dialect->begin)
        s->dialect->begin(&s->out, &s->reply, c->index); /* the prompt's counts are known now */
    c->begun = true;
}

void ek_session_on_reply(void *arg, const ek_reply_event *e)
{
    ek_session_choice *c = arg;
    ek_session *s = c->session;
    if (!s->req.stream || ek_api_summarizes(&s->req)) return;
    begin(c);
    s->dialect->event(&s->out, &s->reply, c->index, e);
}

static void write_digest(ek_session *s)
{
    snprintf(s->digest, sizeof s->digest, "%016llx", (unsigned long long)ek_api_reply_digest(&s->reply));
    if (s->req.turn.digest) s->reply.digest = s->digest;
}

/* False: there is no receipt, and therefore no reply. A reply that was not computed, because too little was cached,
 * needs none. */
static bool write_receipt(ek_session *s)
{
    const ek_receipt_of of = receipt_of(s);
    for (int i = 0; i < s->reply.n; i++)
        if (s->results[i]->end == EK_END_UNCACHED) s->receipt_key = NULL;
    if (!s->receipt_key) return true;
    if (ek_receipts_write(s->server, &s->receipt, &of)) {
        snprintf(s->receipt_failed, sizeof s->receipt_failed, "the reply's receipt: %.200s", ek_err_text());
        return false;
    }
    s->reply.receipt = s->receipt.data;
    return true;
}

static void note_times(ek_session *s)
{
    double now = ek_now(), first = s->first_token > 0 ? s->first_token : now;
    s->reply.times = (ek_api_times){s->prepared - s->opened, first - s->prepared, now - first};
}

/* Passes the reply before this turn through the dialect, without writing it. */
static void replay(ek_session_choice *c)
{
    ek_session *s = c->session;
    const size_t from = s->out.len;
    c->replayed = true;
    s->reply.marks = NULL; /* the marks already include these tokens */
    while (ek_turn_replay(c->turn)) {
        if (s->req.stream) begin(c);
        s->out.len = from;
    }
    if (s->req.stream && s->dialect->step) s->dialect->step(&s->out, &s->reply);
    s->reply.marks = s->marks.on ? &s->marks : NULL;
    s->out.len = from;
    if (s->out.data) s->out.data[from] = '\0';
}

static void write_token(ek_session_choice *c, const ek_turn_news *news)
{
    ek_session *s = c->session;
    if (news->token >= 0) {
        if (!c->replayed) replay(c);
        if (s->marks.on) ek_resume_marks_token(&s->marks, news->token);
    }
    ek_turn_feed(c->turn, news);
    const ek_turn_result *r = s->results[c->index];
    const bool anew = r->n_tokens == 0 && r->end == EK_END_NONE; /* the stored reply was wrong */
    const bool shown = s->req.stream && !ek_api_summarizes(&s->req);
    if (shown && news->token >= 0 && r->end != EK_END_ERROR && !anew) begin(c);
}

static void write_end(const piece *p)
{
    ek_session *s = p->c->session;
    if (s->reply.n_open == 0) {
        write_digest(s);
        note_times(s);
        if (!write_receipt(s)) return;
    }
    if (s->req.stream && s->dialect->finish) s->dialect->finish(&s->out, &s->reply, p->c->index);
    if (s->reply.n_open == 0) s->dialect->end(&s->out, &s->reply);
}

static void write_piece(const piece *p)
{
    if (p->news) write_token(p->c, p->news);
    else write_end(p);
}

/* --- one piece after the other --- */

static void run_piece(const piece *p);

static void on_step(evutil_socket_t fd, short what, void *arg)
{
    ek_session *s = arg;
    (void)fd, (void)what;
    if (!s->x || s->done || s->writing || s->full) return; /* the next piece writes it */
    s->dialect->step(&s->out, &s->reply);
    ek_session_flush(s);
}

/* Flushes the tokens of a step, which come in one turn of the loop. In a stream that may be resumed, and for a stored
 * reply, each token has its own event. */
static void flush_token(ek_session *s)
{
    if (s->dialect->step && !s->marks.on && !s->storing) {
        if (!s->step) s->step = event_new(s->server->base, -1, 0, on_step, s);
        ek_loop_again(s->step);
        if (s->out.len == 0) return;
    } else if (s->dialect->step) {
        s->dialect->step(&s->out, &s->reply);
    }
    ek_session_flush(s);
}

/* A finished summary replaces its conversation once its request has ended, and its turn is closed then; a looping
 * summary's request still runs. */
static void after_summary(ek_session *s)
{
    if (!s->x || s->preparing || s->done || s->n_opened == 0 || !ek_api_summarizes(&s->req)) return;
    const ek_turn_end end = s->results[0]->end;
    if (end == EK_END_NONE || end == EK_END_UNCACHED || ek_turn_live(s->choices[0].turn)) return;
    ek_session_read_again(s);
}

static void after_token(ek_session_choice *c)
{
    ek_session *s = c->session;
    const ek_turn_result *r = s->results[c->index];
    if (r->end == EK_END_ERROR && r->err == EK_EINVAL && s->req.resume.tokens.len > 0) {
        ek_session_failed(s, c->index, r->err, r->error, EK_OUTCOME_REFUSED);
    } else if (r->end == EK_END_ERROR) {
        ek_log(EK_LOG_ERROR, "event=failure id=%s%s reason=\"%s\"", s->id, s->traced, r->error);
        ek_session_failed(s, c->index, r->err, r->error, EK_OUTCOME_FAILED);
    } else if (r->end == EK_END_CANCELLED) {
        ek_session_failed(s, c->index, EK_ESHUTDOWN, "the server is shutting down", EK_OUTCOME_FAILED);
    } else if (r->end == EK_END_UNCACHED && s->wishes.if_available && !ek_exchange_begun(s->x)) {
        ek_reply_error(s->x, s->dialect, 412, NULL, NULL,
                       "prefer: if-available: %d of the prompt's %d tokens are cached here", r->n_cached, r->n_prompt);
        ek_session_leave_client(s, EK_OUTCOME_REFUSED);
    } else if (r->end != EK_END_NONE && r->end != EK_END_UNCACHED && ek_api_summarizes(&s->req)) {
        after_summary(s);
    } else if (r->end != EK_END_NONE) {
        s->reply.n_open--;
        piece end = piece_of(c, NULL);
        run_piece(&end);
    } else if (s->req.stream && !ek_api_summarizes(&s->req)) {
        flush_token(s);
    }
}

static void after_piece(const piece *p)
{
    ek_session *s = p->c->session;
    if (p->news) {
        after_token(p->c);
        return;
    }
    if (*s->receipt_failed) {
        ek_session_failed(s, p->c->index, EK_EINTERNAL, s->receipt_failed, EK_OUTCOME_FAILED);
        return;
    }
    s->done = s->reply.n_open == 0;
    s->reply.receipt = NULL;
    if (s->done && s->receipt.len > 0) ek_receipts_keep(s->server, s->salt, s->id, &s->receipt);
    if (s->req.stream) ek_session_flush(s);
    else if (s->done) ek_session_send_whole(s);
}

/* A piece that a worker writes. */
typedef struct write_job {
    ek_job job;
    piece piece;
    ek_turn_news news; /* of a token, without its text */
} write_job;

static void run_job(ek_job *j)
{
    write_piece(&((write_job *)j)->piece);
}

static void job_done(ek_job *j)
{
    write_job *w = (write_job *)j;
    ek_session *s = w->piece.c->session;
    s->writing = false;
    for (int i = 0; i < s->n_opened && s->server->n_signals > 1; i++) ek_turn_cancel(s->choices[i].turn);
    if (s->x) after_piece(&w->piece);
    else ek_session_leave_client(s, EK_OUTCOME_GONE); /* it went meanwhile */
    if (s->forgotten) (void)ek_response_store_delete(s->server->responses, s->salt, s->id);
    free(w);
    ek_session_go_on(s);
}

/* Counts the bytes that the piece adds, and makes room for it. */
static ek_err take_room(ek_session *s, const piece *p)
{
    size_t more = p->size - p->counted;
    EK_TRY(ek_request_memory_take(&s->server->memory, s->held, more));
    if (!ek_buf_reserve(&s->out, p->size)) {
        ek_request_memory_give(&s->server->memory, more);
        return ek_fail(EK_ENOMEM, "the system has no memory for a reply of %zu bytes now, try again later", p->size);
    }
    s->counted += more;
    s->promised += p->counted;
    return EK_OK;
}

static void give_up(ek_session *s, const piece *p, ek_err err)
{
    char text[512];
    snprintf(text, sizeof text, "%s", ek_err_text());
    ek_session_failed(s, p->c->index, err, text, EK_OUTCOME_FAILED);
    if (p->news) ek_turn_feed(p->c->turn, p->news);
}

static void run_piece(const piece *p)
{
    ek_session *s = p->c->session;
    if (p->size <= LARGE || !s->server->workers) {
        write_piece(p);
        after_piece(p);
        return;
    }
    ek_err err = take_room(s, p);
    if (err) {
        give_up(s, p, err);
        return;
    }
    write_job *w = ek_alloc(sizeof *w);
    *w = (write_job){
        .job = {.run = run_job, .done = job_done, .large = p->size > VERY_LARGE, .client = s->client, .cost = p->size},
        .piece = *p};
    if (p->news) {
        w->news = *p->news;
        w->piece.news = &w->news;
    }
    s->writing = true;
    ek_workers_add_always(s->server->workers, &w->job);
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
        ek_exemplars_add(&m->traces.first_token, EK_HISTOGRAM_SECONDS, now - s->opened, s->wishes.trace);
    }
    if (c->last_token > 0) ek_histogram_add(&m->token_gap, EK_HISTOGRAM_SECONDS, now - c->last_token);
    c->last_token = now;
}

/* Counts the results of a long reply with log-probabilities, which are large before a byte of them is written. */
static ek_err count_growth(ek_session *s)
{
    s->grown += s->req.turn.logprobs ? sizeof(ek_turn_logprobs) : 8;
    if (s->receipt_key) s->grown += 4 + sizeof(ek_hash);
    if (s->outcome != EK_REPLY_UNASKED) s->grown += s->req.turn.logprobs ? sizeof(ek_logprobs) : 12; /* to be stored */
    if (s->grown < COUNTED_AT_ONCE) return EK_OK;
    EK_TRY(ek_request_memory_take(&s->server->memory, s->held, s->grown));
    s->held += s->grown;
    s->grown = 0;
    return EK_OK;
}

static void take_news(const ek_turn_news *news)
{
    ek_session_choice *c = news->user;
    ek_session *s = c->session;
    if (!s->x || s->done || s->results[c->index]->end != EK_END_NONE) {
        ek_turn_feed(c->turn, news);
        after_summary(s);
        return;
    }
    piece p = piece_of(c, news);
    ek_err err = EK_OK;
    if (news->token >= 0) {
        note_token(c);
        err = count_growth(s);
    }
    if (err) give_up(s, &p, err);
    else run_piece(&p);
}

/* Tokens from the store of replies come first, one of each choice in turn, like steps. */
static bool has_stored(const ek_session *s)
{
    for (int i = 0; s->outcome >= EK_REPLY_PART && i < s->n_opened; i++)
        if (ek_turn_has_stored(s->choices[i].turn)) return true;
    return false;
}

/* Stored tokens are taken when all choices are submitted. Until then the engine's news of the first ones wait, because
 * their tokens stand behind the stored ones. */
static bool waits_for_choices(const ek_session *s)
{
    return s->x && s->n_submitted < s->req.n && has_stored(s);
}

/* A batch's replies do not show the effect of caches. */
static void hide_caches(ek_turn_news *news)
{
    news->n_cached = news->n_images_kept = news->n_sounds_kept = 0;
}

static ek_turn_news take_stored(ek_session *s)
{
    ek_turn_news news;
    while (!ek_turn_next_stored(s->choices[s->next_stored].turn, &news))
        s->next_stored = (s->next_stored + 1) % s->n_opened;
    s->next_stored = (s->next_stored + 1) % s->n_opened;
    if (*s->wishes.batch) hide_caches(&news);
    return news;
}

static bool has_later(const ek_session *s)
{
    return s->n_taken < s->n_later || has_stored(s);
}

static void on_go_on(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    ek_session_go_on(arg);
}

/* False: too many bytes wait for a client that does not read. */
static bool keep_for_later(ek_session *s, const ek_turn_news *news)
{
    if (s->n_taken == s->n_later) s->n_taken = s->n_later = 0;
    if (s->n_later == s->cap_later) {
        s->cap_later = s->cap_later ? 2 * s->cap_later : 16;
        s->later = ek_realloc(s->later, s->cap_later * sizeof *s->later);
    }
    ek_turn_news *copy = &s->later[s->n_later++];
    *copy = *news;
    if (news->text) copy->text = ek_strdup(news->text);
    return !s->full || s->writing || !s->x || (s->n_later - s->n_taken) * sizeof *news <= ek_exchange_max_unsent(s->x);
}

void ek_session_go_on(ek_session *s)
{
    while (has_later(s) && !s->writing && (!s->full || !s->x) && !waits_for_choices(s)) {
        if (s->x && ek_loop_spent(&s->server->loop)) {
            if (!s->go_on) s->go_on = event_new(s->server->base, -1, 0, on_go_on, s);
            ek_loop_again(s->go_on);
            return;
        }
        s->storing = has_stored(s);
        ek_turn_news news = s->storing ? take_stored(s) : s->later[s->n_taken++];
        take_news(&news);
        s->storing = false;
        free((char *)(uintptr_t)news.text);
    }
    ek_session_free_when_done(s);
}

/* A reply that another request computes has news, or continues here. */
static void awake(ek_session_choice *c)
{
    char text[512];
    const ek_err err = ek_turn_awake(c->turn);
    if (!err) {
        after_summary(c->session);
        ek_session_go_on(c->session);
        return;
    }
    snprintf(text, sizeof text, "%s", ek_err_text());
    const ek_turn_news news = {.user = c, .token = -1, .finish = EK_FINISH_ERROR, .err = err, .text = text};
    ek_session_news(&news);
}

void ek_session_news(const ek_turn_news *from)
{
    ek_session *s = ((ek_session_choice *)from->user)->session;
    if (from->wakes) {
        awake(from->user);
        return;
    }
    ek_turn_news plain = *from;
    const ek_turn_news *news = *s->wishes.batch ? &plain : from;
    hide_caches(&plain);
    bool waits = s->writing || (s->full && s->x) || has_later(s);
    if (!waits) take_news(news);
    else if (!keep_for_later(s, news)) ek_session_cut(s, "the client does not read, and its reply goes on");
    if (!has_later(s)) ek_session_free_when_done(s);
    else if (!s->x) ek_session_go_on(s);
}

void ek_session_on_drained(void *user)
{
    ek_session *s = user;
    if (!s->full || s->writing) return;
    s->full = false;
    ek_session_flush(s);
    ek_session_go_on(s);
}
