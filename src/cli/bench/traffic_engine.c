/* The requests of a traffic straight into an engine: what it does with this mix where nobody asks for it over HTTP. A
 * sink submits its client's next request, as a client that waits for its reply would. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/bench/traffic.h"
#include "cli/bench/traffic_body.h"

enum { SALT = 1 }; /* of its own: what a server has cached of the same prompts is not known here */

typedef struct run {
    ek_engine *engine;
    const ek_traffic *traffic;
    pthread_mutex_t lock; /* of what stands below */
    pthread_cond_t done;
    int running; /* clients that still have requests */
    ek_traffic_result *out;
} run;

typedef struct client {
    run *run;
    ek_turn_prompt *prompt; /* traffic->each */
    int number, next;
} client;

static void on_event(void *arg, const ek_event *e);

/* False: the client has no more requests. */
static bool ask(client *c)
{
    const ek_traffic *t = c->run->traffic;
    if (c->next == t->each) return false;
    const ek_ids *ids = &c->prompt[c->next++].ids;
    const ek_request_opts r = {.tokens = ids->data,
                               .n_tokens = (int)ids->len,
                               .max_tokens = t->max_tokens,
                               .sampling = ek_sampling_greedy(),
                               .sink = on_event,
                               .arg = c,
                               .prompt_logits_from = (int)ids->len,
                               .client = (uint64_t)c->number,
                               .cache_salt = SALT};
    const ek_err err = ek_engine_submit(c->run->engine, &r, NULL);
    pthread_mutex_lock(&c->run->lock);
    ek_traffic_result *out = c->run->out;
    out->requests++, out->prompt_tokens += (int64_t)ids->len;
    if (err && !out->failed++) snprintf(out->error, sizeof out->error, "%.190s", ek_err_text());
    pthread_mutex_unlock(&c->run->lock);
    return !err;
}

static void leave(run *r)
{
    pthread_mutex_lock(&r->lock);
    if (--r->running == 0) pthread_cond_signal(&r->done);
    pthread_mutex_unlock(&r->lock);
}

static void on_event(void *arg, const ek_event *e)
{
    client *c = arg;
    run *r = c->run;
    if (e->finish == EK_FINISH_NONE) return;
    pthread_mutex_lock(&r->lock);
    r->out->tokens += e->n_tokens;
    if (e->finish == EK_FINISH_ERROR && !r->out->failed++)
        snprintf(r->out->error, sizeof r->out->error, "%.190s", e->text);
    pthread_mutex_unlock(&r->lock);
    if (!ask(c)) leave(r);
}

static ek_err make_prompts(client *c, const ek_traffic *t, const ek_chat_model *m, const ek_engine *e)
{
    const ek_prompt_opts opts = {.add_generation_prompt = true, .ctx_tokens = ek_engine_ctx(e)};
    ek_err err = EK_OK;
    for (int i = 0; i < t->each && !err; i++) {
        ek_conversation talk = {0};
        ek_buf text = {0};
        ek_traffic_prompt(&text, t, ek_traffic_number(t, c->number, i));
        ek_message_text(ek_conversation_add(&talk, EK_ROLE_USER), EK_BLOCK_TEXT, ek_buf_text(&text), text.len);
        err = ek_turn_prompt_make(&c->prompt[i], m, &talk, NULL, &opts);
        ek_conversation_fini(&talk);
        ek_buf_fini(&text);
    }
    return err;
}

static int by_delay(const void *a, const void *b)
{
    const client *x = *(client *const *)a, *y = *(client *const *)b;
    const double u = ek_traffic_delay(x->run->traffic, x->number), v = ek_traffic_delay(y->run->traffic, y->number);
    return (u > v) - (u < v);
}

static void run_all(run *r, client **order)
{
    const double begun = ek_now();
    for (int i = 0; i < r->traffic->clients; i++) {
        const double rest = begun + ek_traffic_delay(r->traffic, order[i]->number) - ek_now();
        if (rest > 0) nanosleep(&(struct timespec){(time_t)rest, (long)((rest - (double)(time_t)rest) * 1e9)}, NULL);
        if (!ask(order[i])) leave(r);
    }
    pthread_mutex_lock(&r->lock);
    while (r->running > 0) pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
    r->out->seconds = ek_now() - begun;
}

ek_err ek_traffic_run_engine(ek_engine *e, const ek_chat_model *m, const ek_traffic *t, ek_traffic_result *out)
{
    const size_t n = (size_t)t->clients, each = (size_t)t->each;
    *out = (ek_traffic_result){.counted = true};
    run r = {.engine = e, .traffic = t, .out = out, .running = t->clients};
    pthread_mutex_init(&r.lock, NULL), pthread_cond_init(&r.done, NULL);
    client *who = ek_alloc(n * sizeof *who), **order = ek_alloc(n * sizeof(client *));
    ek_turn_prompt *prompt = ek_alloc(n * each * sizeof *prompt);
    ek_err err = EK_OK;
    for (size_t i = 0; i < n && !err; i++) {
        who[i] = (client){.run = &r, .prompt = prompt + i * each, .number = (int)i};
        order[i] = &who[i];
        err = make_prompts(&who[i], t, m, e);
    }
    if (!err) {
        qsort(order, n, sizeof(client *), by_delay);
        run_all(&r, order);
    }
    for (size_t i = 0; i < n * each; i++) ek_turn_prompt_fini(&prompt[i]);
    pthread_mutex_destroy(&r.lock), pthread_cond_destroy(&r.done);
    free(prompt), free(order), free(who);
    return err;
}
