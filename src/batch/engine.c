/* Lines on an engine in this process. Two threads make their prompts; this thread steps the engine and writes the
 * replies. It works like a server (serve/session.h), with the same dialects and without sockets. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "batch/runner.h"
#include "media/locked/helper.h"
#include "serve/api/model_card.h"

enum { THREADS = 2 };

typedef struct job job;

typedef struct choice {
    job *job;
    ek_turn *turn;
} choice;

struct job {
    struct engine *engine;
    ek_batch_task *task;
    job *next;
    ek_err err; /* the error of its preparation, and the sentence */
    char why[1024];
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_api_reply reply;
    char id[64];
    choice *choices;
    const ek_turn_result **results;
    int n_opened, n_submitted, n_live;
};

typedef struct list {
    job *first, **last;
} list;

typedef struct engine {
    ek_batch_runner base;
    ek_opened *m;
    ek_api_limits limits;
    pthread_t thread[THREADS];
    int n_threads;
    pthread_mutex_t lock; /* guards the next five */
    pthread_cond_t asked, ready;
    list to_prepare, prepared;
    int n_preparing;
    bool closing;
    atomic_bool dropped;
    list waiting, ended; /* waiting: for room in the engine; ended: with all their news */
    list running;        /* in no order; needed at close */
} engine;

static void append(list *l, job *j)
{
    j->next = NULL;
    *(l->first ? l->last : &l->first) = j;
    l->last = &j->next;
}

static void push(list *l, job *j)
{
    j->next = l->first;
    l->first = j;
}

static job *take_first(list *l)
{
    job *j = l->first;
    if (j) l->first = j->next;
    return j;
}

void ek_batch_task_free(ek_batch_task *t)
{
    ek_batch_line_fini(&t->line);
    ek_buf_fini(&t->text);
    ek_buf_fini(&t->body);
    free(t);
}

bool ek_batch_is_reply(long status)
{
    return status == 200 || status == 400 || status == 404 || status == 413;
}

/* --- prompts, on separate threads --- */

static void prepare(job *j)
{
    engine *e = j->engine;
    const ek_batch_line *l = &j->task->line;
    ek_helper_allow(EK_REQUEST_CPU_MS * 1000);
    ek_wanted_until(&e->dropped);
    j->err = ek_api_prepare(&j->req, &j->prompt, l->dialect, &e->m->chat, l->body, l->n_body, &e->limits);
    ek_wanted_until(NULL);
    if (j->err) snprintf(j->why, sizeof j->why, "%s", ek_err_text());
}

static void *run_thread(void *arg)
{
    engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->closing) {
        job *j = take_first(&e->to_prepare);
        if (!j) {
            pthread_cond_wait(&e->asked, &e->lock);
            continue;
        }
        e->n_preparing++;
        pthread_mutex_unlock(&e->lock);
        prepare(j);
        pthread_mutex_lock(&e->lock);
        e->n_preparing--;
        append(&e->prepared, j);
        pthread_cond_signal(&e->ready);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The next job with a prompt. Waits for it until that time (0: does not wait). */
static job *take_prepared(engine *e, double until)
{
    pthread_mutex_lock(&e->lock);
    while (!e->prepared.first && (e->to_prepare.first || e->n_preparing > 0)) {
        if (ek_now() >= until) break;
        ek_wait_until(&e->ready, &e->lock, until);
    }
    job *j = take_first(&e->prepared);
    pthread_mutex_unlock(&e->lock);
    return j;
}

static void start(ek_batch_runner *r, ek_batch_task *t)
{
    engine *e = (engine *)(void *)r;
    job *j = ek_alloc(sizeof *j);
    j->engine = e;
    j->task = t;
    pthread_mutex_lock(&e->lock);
    append(&e->to_prepare, j);
    pthread_cond_signal(&e->asked);
    pthread_mutex_unlock(&e->lock);
}

/* --- turns --- */

static void ignore(void *arg, const ek_reply_event *event)
{
    (void)arg, (void)event;
}

static void unlink_running(engine *e, const job *j)
{
    job **at = &e->running.first;
    while (*at && *at != j) at = &(*at)->next;
    if (*at) *at = j->next;
}

/* Called inside a step, on this thread. Counts of caches are set to 0, because they differ from run to run. */
static void on_news(void *arg, const ek_turn_news *news)
{
    choice *c = news->user;
    ek_turn_news plain = *news;
    (void)arg;
    plain.n_cached = plain.n_images_kept = plain.n_sounds_kept = 0;
    ek_turn_feed(c->turn, &plain);
    if (ek_turn_live(c->turn) || --c->job->n_live > 0 || c->job->n_submitted < c->job->reply.n) return;
    unlink_running(c->job->engine, c->job);
    append(&c->job->engine->ended, c->job);
}

static void set_up(job *j)
{
    ek_api_request *r = &j->req;
    const ek_batch_task *t = j->task;
    const bool draws = !r->has_seed && r->turn.sampling.temperature >= EK_MIN_TEMPERATURE;
    if (!r->has_seed) r->turn.sampling.seed = t->seed;
    snprintf(j->id, sizeof j->id, "%s%s", t->line.dialect->id_prefix, t->id);
    j->choices = ek_alloc((size_t)r->n * sizeof *j->choices);
    j->results = ek_alloc((size_t)r->n * sizeof *j->results);
    j->reply = (ek_api_reply){.id = j->id,
                              .model = r->model && *r->model ? r->model : EK_BATCH_MODEL,
                              .fingerprint = ek_model_numerics_id(j->engine->m->model),
                              .n = r->n,
                              .n_prompts = 1 + r->n_more,
                              .seed = draws ? &r->turn.sampling.seed : NULL,
                              .choices = j->results,
                              .own = r->own,
                              .tokenizer = j->engine->m->chat.tokenizer,
                              .turn = &r->turn};
}

static ek_err open_turn(job *j, int i)
{
    ek_turn_opts opts = j->req.turn;
    choice *c = &j->choices[i];
    *c = (choice){.job = j};
    opts.choice = i % (j->req.n / (1 + j->req.n_more));
    EK_TRY(ek_turn_open(&c->turn, &j->engine->m->chat, ek_api_prompt_of(&j->req, &j->prompt, i), &opts, ignore, c));
    j->results[i] = ek_turn_result_of(c->turn);
    j->n_opened++;
    return EK_OK;
}

/* EBUSY: the engine has no room yet for the other choices. */
static ek_err submit(job *j)
{
    while (j->n_opened < j->reply.n) EK_TRY(open_turn(j, j->n_opened));
    while (j->n_submitted < j->reply.n) {
        choice *c = &j->choices[j->n_submitted];
        EK_TRY(ek_turn_submit(c->turn, j->engine->m->engine, ek_api_prompt_of(&j->req, &j->prompt, j->n_submitted),
                              on_news, NULL, c));
        j->n_submitted++;
        j->n_live++;
    }
    return EK_OK;
}

/* --- the reply --- */

static void free_job(job *j)
{
    for (int i = 0; i < j->n_opened; i++) ek_turn_close(j->choices[i].turn);
    free(j->choices);
    free(j->results);
    ek_turn_prompt_fini(&j->prompt);
    ek_api_request_fini(&j->req);
    free(j);
}

/* An error with a status of the request is the request's reply. Any other error ends the run. */
static ek_err put_error(job *j, ek_err err, const char *text, const char *param, const char *code)
{
    const int status = ek_err_http(err);
    ek_batch_task *t = j->task;
    if (!ek_batch_is_reply(status)) return ek_fail(err, "%s", text);
    t->status = status;
    t->line.dialect->error(&t->body, status, text, param, code);
    return EK_OK;
}

static ek_err put_reply(job *j)
{
    char digest[20];
    for (int i = 0; i < j->reply.n; i++) {
        const ek_turn_result *r = j->results[i];
        if (r->end == EK_END_ERROR) return put_error(j, r->err, r->error, NULL, NULL);
        if (r->end == EK_END_NONE || r->end == EK_END_CANCELLED) return ek_fail(EK_EINTERNAL, "a reply was cancelled");
    }
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)ek_api_reply_digest(&j->reply));
    if (j->req.turn.digest) j->reply.digest = digest;
    j->task->status = 200;
    j->task->line.dialect->end(&j->task->body, &j->reply);
    return EK_OK;
}

typedef enum begun { RUNS, WAITS, REPLIED } begun;

/* Hands a prepared job to the engine, unless its reply is an error. */
static ek_err begin(job *j, begun *how)
{
    engine *e = j->engine;
    const char *param = j->err == EK_ENOMEM ? NULL : j->req.param;
    char text[1024];
    ek_err err = j->err;
    if (!err && !j->choices) set_up(j);
    if (!err) {
        err = submit(j);
        *how = err ? WAITS : RUNS;
        if (err == EK_EBUSY) append(&e->waiting, j);
        else if (!err || j->n_submitted > 0) push(&e->running, j);
        if (!err || err == EK_EBUSY) return EK_OK;
        if (j->n_submitted > 0) return err; /* only a later choice failed: not the request's fault */
        param = err == EK_ETOOLONG || err == EK_EINVAL ? j->task->line.dialect->prompt_param : NULL;
        snprintf(text, sizeof text, "%s", ek_err_text());
    } else {
        snprintf(text, sizeof text, "%s", j->why);
    }
    *how = REPLIED;
    return put_error(j, err, text, param, j->req.code ? j->req.code : ek_api_error_code(err, param));
}

/* A line that waits for room comes first, because it is older than the prepared ones. */
static ek_err begin_some(engine *e, double until, ek_batch_task **out)
{
    begun how = RUNS;
    for (;;) {
        job *j = e->waiting.first ? take_first(&e->waiting) : take_prepared(e, until);
        if (!j) return EK_OK;
        const ek_err err = begin(j, &how);
        if (!err && how == WAITS) return EK_OK;
        until = 0;
        if (!err && how == RUNS) continue;
        if (j->n_submitted > 0) return err;
        *out = j->task;
        free_job(j);
        return err;
    }
}

static ek_err wait_task(ek_batch_runner *r, double seconds, ek_batch_task **out)
{
    engine *e = (engine *)(void *)r;
    const double until = ek_now() + seconds;
    *out = NULL;
    do {
        EK_TRY(begin_some(e, e->running.first || e->ended.first ? 0 : until, out));
        if (*out) return EK_OK;
        job *j = take_first(&e->ended);
        if (j) {
            const ek_err err = put_reply(j);
            *out = j->task;
            free_job(j);
            return err;
        }
        ek_engine_step(e->m->engine);
    } while (ek_now() < until);
    return EK_OK;
}

/* --- the runner --- */

static void cancel_all(engine *e)
{
    const job *of[] = {e->running.first, e->waiting.first};
    for (int k = 0; k < 2; k++)
        for (const job *j = of[k]; j; j = j->next)
            for (int i = 0; i < j->n_submitted; i++) ek_turn_cancel(j->choices[i].turn);
    while (ek_engine_step(e->m->engine)) {
    }
}

static void free_list(list *l)
{
    for (job *j = take_first(l); j; j = take_first(l)) {
        ek_batch_task_free(j->task);
        free_job(j);
    }
}

static void close_engine(ek_batch_runner *r)
{
    engine *e = (engine *)(void *)r;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    atomic_store(&e->dropped, true);
    pthread_cond_broadcast(&e->asked);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_threads; i++) pthread_join(e->thread[i], NULL);
    cancel_all(e);
    list *all[] = {&e->to_prepare, &e->prepared, &e->waiting, &e->ended, &e->running};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_list(all[i]);
    pthread_cond_destroy(&e->asked);
    pthread_cond_destroy(&e->ready);
    pthread_mutex_destroy(&e->lock);
    ek_buf_fini(&e->base.identity);
    free(e);
}

static ek_api_limits limits_of(const ek_opened *m)
{
    const ek_config *c = ek_model_config(m->model);
    ek_api_limits l = {.defaults = ek_sampling_greedy(),
                       .n_vocab = c->vocab_size,
                       .ctx_tokens = ek_engine_ctx(m->engine),
                       .media = &m->chat.media,
                       .identity = ek_model_numerics_id(m->model)};
    l.defaults.temperature = c->temperature;
    l.defaults.top_p = c->top_p;
    l.defaults.top_k = c->top_k;
    ek_api_limits_batch(&l);
    return l;
}

ek_err ek_batch_engine_open(ek_batch_runner **out, ek_opened *m, int width)
{
    const char *digest;
    EK_TRY(ek_opened_digest(&digest, m));
    engine *e = ek_alloc(sizeof *e);
    e->base = (ek_batch_runner){.width = width, .start = start, .wait = wait_task, .close = close_engine};
    e->m = m;
    e->limits = limits_of(m);
    ek_fingerprint_write(&e->base.identity, e->base.sha256, digest, ek_model_numerics_id(m->model),
                         ek_engine_ctx(m->engine), ek_model_config(m->model));
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->asked, NULL);
    pthread_cond_init(&e->ready, NULL);
    for (; e->n_threads < THREADS; e->n_threads++)
        if (pthread_create(&e->thread[e->n_threads], NULL, run_thread, e)) {
            close_engine(&e->base);
            return ek_fail(EK_EIO, "no thread for prompts");
        }
    *out = &e->base;
    return EK_OK;
}
