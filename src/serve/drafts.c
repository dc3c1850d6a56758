/* POST /v1/drafts: this server's model proposes tokens after those of a request on another server, which verifies each
 * of them (text/draft_message.h, open/remote.h). A worker reads a question and gives it to the engine as a greedy
 * request of a few tokens; the tokens that it shares with the previous question are in the prefix cache. There are no
 * log and journal lines, because the other server asks once per step. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "serve/routes.h"
#include "text/draft_message.h"

/* --- sessions --- */

typedef struct session {
    char name[33]; /* "": nobody's */
    uint64_t owner, used;
    int32_t *tokens;
    int n, room;
} session;

struct ek_draft_sessions {
    pthread_mutex_t lock;
    int max_tokens;
    uint64_t clock;
    session at[EK_DRAFT_SESSIONS];
};

ek_draft_sessions *ek_draft_sessions_open(int max_tokens)
{
    ek_draft_sessions *s = ek_alloc(sizeof *s);
    s->max_tokens = max_tokens;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void ek_draft_sessions_close(ek_draft_sessions *s)
{
    if (!s) return;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) free(s->at[i].tokens);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int count(const ek_draft_sessions *s, uint64_t owner)
{
    int n = 0;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) n += *s->at[i].name && s->at[i].owner == owner;
    return n;
}

/* An entry for a new session: a free one, or the least recently used of the owner with the most. */
static session *make_free(ek_draft_sessions *s, uint64_t owner)
{
    session *oldest = NULL;
    int max = 0;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        session *a = &s->at[i];
        if (!*a->name) return a;
        const int n = count(s, a->owner) + (a->owner == owner);
        if (n > max || (n == max && a->used < oldest->used)) oldest = a, max = n;
    }
    return oldest;
}

/* The owner's session of that name. NULL: there is none, and `begins` is false. */
static session *find(ek_draft_sessions *s, uint64_t owner, const char *name, bool begins)
{
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        session *a = &s->at[i];
        if (a->owner == owner && !strcmp(a->name, name)) return a;
    }
    if (!begins) return NULL;
    session *a = make_free(s, owner);
    a->n = 0;
    a->owner = owner;
    snprintf(a->name, sizeof a->name, "%s", name);
    return a;
}

/* Half as much again as is needed, because replies grow by a few tokens at a time. */
static void make_room(const ek_draft_sessions *s, session *a, int n)
{
    if (n <= a->room) return;
    a->room = n + n / 2 + 64 < s->max_tokens ? n + n / 2 + 64 : s->max_tokens;
    int32_t *tokens = ek_alloc((size_t)a->room * sizeof *tokens);
    if (a->n) memcpy(tokens, a->tokens, (size_t)a->n * sizeof *tokens);
    free(a->tokens);
    a->tokens = tokens;
}

bool ek_draft_sessions_put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, const int32_t *tokens,
                           int n, int32_t **out, int *n_out)
{
    EK_ASSERT(from >= 0 && n >= 1 && from <= s->max_tokens - n);
    pthread_mutex_lock(&s->lock);
    session *a = find(s, owner, name, from == 0);
    const bool good = a && a->n >= from;
    if (good) {
        make_room(s, a, from + n);
        memcpy(a->tokens + from, tokens, (size_t)n * sizeof *tokens);
        a->n = *n_out = from + n;
        a->used = ++s->clock;
        *out = ek_alloc((size_t)a->n * sizeof **out);
        memcpy(*out, a->tokens, (size_t)a->n * sizeof **out);
    }
    pthread_mutex_unlock(&s->lock);
    return good;
}

/* --- questions --- */

enum {
    PER_TOKEN = 12, /* maximum bytes of a token in the body, with comma and white space; bytes of everything else */
    AROUND = 1 << 10,
    UNKNOWN_SESSION = 409,
    TOO_LONG = 413
};

typedef struct question {
    ek_job job;
    ek_server *server;
    ek_exchange *x; /* NULL: the client is gone */
    ek_body body;
    size_t n_body, counted; /* bytes of the body; bytes counted in the request memory */
    uint64_t owner, client;
    int32_t *tokens;  /* tokens of the body; then all tokens */
    bool read, ended; /* the worker has finished; the engine has sent the last event, or has none to send */
    int status;       /* status of a refusal that has no ek_err; 0: none */
    ek_err err;
    char why[256];
    ek_request_id id;
    int n_out;
    int32_t out[EK_DRAFT_MESSAGE_MAX];
} question;

static void free_question(question *q)
{
    ek_request_memory_give(&q->server->memory, q->counted);
    ek_http_body_freed(q->server->http, q->n_body);
    ek_body_fini(&q->body);
    free(q->tokens);
    free(q);
}

static void reply(question *q)
{
    const ek_dialect *form = ek_route_form(q->server, q->x);
    if (q->status) {
        ek_reply_error(q->x, form, q->status, NULL, q->status == UNKNOWN_SESSION ? "unknown_session" : NULL, "%s",
                       q->why);
        return;
    }
    if (q->err) {
        ek_fail(q->err, "%s", q->why);
        ek_reply_failure(q->x, form, q->err, NULL, NULL);
        return;
    }
    ek_buf b = {0};
    ek_draft_answer_write(&b, q->out, q->n_out);
    q->server->metrics.drafts++;
    ek_reply_json(q->x, 200, &b);
}

/* Called when both the worker and the engine have finished with it. */
static void finish(question *q)
{
    if (!q->read || !q->ended) return;
    if (q->x) {
        ek_exchange_on_gone(q->x, NULL, NULL);
        reply(q);
    }
    free_question(q);
}

/* --- on the engine's thread --- */

static void on_event(void *arg, const ek_event *e)
{
    question *q = arg;
    if (e->token >= 0 && q->n_out < EK_DRAFT_MESSAGE_MAX) q->out[q->n_out++] = e->token;
    if (e->finish == EK_FINISH_NONE) return;
    if (e->finish == EK_FINISH_ERROR) {
        q->err = e->err;
        snprintf(q->why, sizeof q->why, "%s", e->text);
    }
    const ek_turn_news news = {.user = q, .token = -1, .finish = e->finish};
    ek_mailbox_post(q->server->drafts.mailbox, &news);
}

/* --- on a worker's --- */

static ek_err submit(question *q, const ek_draft_question *asked, int n)
{
    const uint64_t whose[2] = {q->owner, strtoull(asked->salt, NULL, 16)};
    const ek_request_opts r = {.tokens = q->tokens,
                               .n_tokens = n,
                               .max_tokens = asked->max,
                               .sampling = ek_sampling_greedy(),
                               .prompt_logits_from = n,
                               .sink = on_event,
                               .arg = q,
                               .user = q,
                               .client = q->client,
                               .cache_owner = q->owner,
                               .cache_salt = ek_hash64(1, whose, sizeof whose)};
    return ek_engine_submit(q->server->engine, &r, &q->id);
}

static ek_err ask(question *q)
{
    const ek_server *s = q->server;
    const int max = ek_engine_ctx(s->engine) - 1;
    const size_t room = q->n_body / 2 + 1 < (size_t)max ? q->n_body / 2 + 1 : (size_t)max;
    ek_draft_question asked = {.tokens = q->tokens = ek_alloc(room * sizeof *q->tokens)};
    EK_TRY(ek_draft_question_read(&asked, ek_body_text(&q->body), q->n_body, (int)room, s->config->vocab_size));
    ek_body_fini(&q->body);
    if (strcmp(s->drafts.vocabulary, asked.vocabulary) != 0)
        return ek_fail(EK_EINVAL, "vocabulary: this model's is %s, not %s", s->drafts.vocabulary, asked.vocabulary);
    if (asked.from > max - asked.n)
        return ek_fail(EK_ETOOLONG, "%d tokens behind %d, the context holds %d", asked.n, asked.from, max);
    int32_t *all;
    int n;
    if (!ek_draft_sessions_put(s->drafts.sessions, q->owner, asked.session, asked.from, asked.tokens, asked.n, &all,
                               &n)) {
        q->status = UNKNOWN_SESSION;
        return ek_fail(EK_EINVAL, "session: it has no %d tokens here: send all, with from 0", asked.from);
    }
    free(q->tokens);
    q->tokens = all;
    return submit(q, &asked, n);
}

static void run(ek_job *j)
{
    question *q = (question *)(void *)j;
    const ek_err err = ask(q);
    if (!err) return; /* the engine may have answered already, so the worker may not touch q any more */
    q->ended = true;
    q->err = err;
    if (err == EK_ETOOLONG) q->status = TOO_LONG;
    snprintf(q->why, sizeof q->why, "%s", ek_err_text());
}

/* --- on the event loop's --- */

static void on_gone(void *user)
{
    question *q = user;
    q->x = NULL;
    if (q->read) ek_engine_cancel(q->server->engine, q->id);
}

static void done(ek_job *j)
{
    question *q = (question *)(void *)j;
    q->read = true;
    if (!q->x && !q->ended) ek_engine_cancel(q->server->engine, q->id);
    finish(q);
}

void ek_drafts_news(const ek_turn_news *news)
{
    question *q = news->user;
    q->ended = true;
    finish(q);
}

void ek_drafts_route(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    const size_t n = ek_exchange_body(x).n, ctx = (size_t)ek_engine_ctx(s->engine);
    const ek_dialect *form = ek_route_form(s, x);
    if (s->no_engine) {
        ek_route_missing(s, x, "nothing is computed here (--no-engine)");
        return;
    }
    if (n > ctx * PER_TOKEN + AROUND) {
        ek_reply_error(x, form, TOO_LONG, NULL, NULL, "more tokens than the context holds");
        return;
    }
    const size_t tokens = 3 * ctx * sizeof(int32_t); /* tokens of the body, of the session and of the engine */
    if (ek_request_memory_take(&s->memory, 0, tokens)) {
        ek_reply_failure(x, form, EK_ENOMEM, NULL, NULL);
        return;
    }
    question *q = ek_alloc(sizeof *q);
    *q = (question){.server = s, .x = x, .n_body = n, .counted = tokens, .owner = ek_route_owner(s, x)};
    q->client = q->owner ? q->owner : ek_exchange_client(x);
    q->body = ek_exchange_take_body(x);
    q->job = (ek_job){.run = run, .done = done, .client = q->client, .cost = 50 + n / 64, .large = n > 256 << 10};
    ek_exchange_on_gone(x, on_gone, q);
    if (!ek_workers_add(s->workers, &q->job)) return;
    q->err = EK_EBUSY;
    snprintf(q->why, sizeof q->why, "%s", ek_err_text());
    q->read = q->ended = true;
    finish(q);
}
