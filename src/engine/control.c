/* The interface of an open engine for other threads: submitting, cancelling, starting and stopping its thread, and
 * reading its counters. */
#include <stdio.h>

#include "base/log.h"
#include "engine/state.h"

const ek_model *ek_engine_model(const ek_engine *e)
{
    return e->model;
}

int ek_engine_ctx(const ek_engine *e)
{
    return e->rules.ctx;
}

int ek_engine_vocab(const ek_engine *e)
{
    return e->rules.vocab_size;
}

int ek_engine_room(const ek_engine *e)
{
    return e->opts.max_requests + e->opts.max_queue;
}

int ek_engine_max_requests(const ek_engine *e)
{
    return e->opts.max_requests;
}

int ek_engine_chunk(const ek_engine *e)
{
    return e->opts.chunk;
}

ek_held_queue *ek_engine_held(const ek_engine *e)
{
    return e->prefix ? ek_prefix_held(e->prefix) : NULL;
}

void ek_engine_reading(const ek_engine *e, int *done, int *all)
{
    *done = *all = 0;
    for (int i = 0; i < e->n_running; i++) {
        const ek_request *r = e->running[i];
        *all += r->n_given;
        *done += r->n_done < r->n_given ? r->n_done : r->n_given;
    }
}

bool ek_engine_broken(const ek_engine *e, char *why, size_t room)
{
    ek_engine *open = (ek_engine *)(uintptr_t)e; /* only to take the lock */
    pthread_mutex_lock(&open->lock);
    const bool is = e->broken[0] != 0;
    if (is) snprintf(why, room, "%s", e->broken);
    pthread_mutex_unlock(&open->lock);
    return is;
}

/* The cost of r in tokens: the prompt's, and the reply's up to a bound, because most replies end before their limit. */
static uint64_t cost_of(const ek_request *r)
{
    enum { REPLY = 1024 };
    int reply = r->max_tokens - r->n_prompt;
    return (uint64_t)r->n_prompt + (uint64_t)(reply < REPLY ? reply : REPLY);
}

/* The caller holds the lock. */
static ek_err enter(ek_engine *e, ek_request *r)
{
    if (e->broken[0]) return ek_fail(EK_ESHUTDOWN, "no new requests: %s", e->broken);
    if (e->closed) return ek_fail(EK_ESHUTDOWN, "no new requests: shutting down");
    int room = ek_engine_room(e);
    if (!ek_fair_queue_has_room(&e->queue_order, r->turn.client, room))
        return ek_fail(EK_EBUSY, "%d requests are running or waiting, %d are allowed", e->n_live, room);
    r->id = ++e->last_id;
    r->turn.cost = cost_of(r);
    r->turn.place = ek_fair_queue_enter(&e->queue_order, r->turn.client, r->turn.cost);
    *e->inbox_end = r;
    e->inbox_end = &r->next;
    r->live_next = e->live;
    if (e->live) e->live->live_prev = r;
    e->live = r;
    e->n_live++;
    e->stats.requests++;
    e->poked = true;
    pthread_cond_signal(&e->wake);
    return EK_OK;
}

ek_err ek_engine_submit(ek_engine *e, const ek_request_opts *o, ek_request_id *id)
{
    EK_TRY(ek_request_check(o, &e->rules));
    ek_request *r = ek_request_new(o, &e->rules);
    pthread_mutex_lock(&e->lock);
    ek_err err = enter(e, r);
    if (err == EK_OK && id) *id = r->id; /* written before the first event can come */
    pthread_mutex_unlock(&e->lock);
    if (err != EK_OK) ek_request_free(r);
    return err;
}

void ek_engine_cancel(ek_engine *e, ek_request_id id)
{
    pthread_mutex_lock(&e->lock);
    for (ek_request *r = e->live; r; r = r->live_next)
        if (r->id == id) {
            atomic_store(&r->cancelled, true);
            e->poked = true;
            pthread_cond_signal(&e->wake);
        }
    pthread_mutex_unlock(&e->lock);
}

void ek_engine_on_results(ek_engine *e, void (*fn)(void *arg, bool begin), void *arg)
{
    e->on_results = fn, e->on_results_arg = arg;
}

/* Waits until there is something to do; false when the engine is closed and empty. */
static bool wait_for_work(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->poked && !e->closed) pthread_cond_wait(&e->wake, &e->lock);
    bool more = !e->closed || e->n_live > 0;
    pthread_mutex_unlock(&e->lock);
    return more;
}

static void *engine_thread(void *arg)
{
    ek_engine *e = arg;
    for (bool worked = true; worked || wait_for_work(e);) worked = ek_engine_step(e);
    return NULL;
}

ek_err ek_engine_start(ek_engine *e)
{
    EK_ASSERT(!e->has_thread);
    if (ek_thread_start(&e->thread, engine_thread, e) != 0)
        return ek_fail(EK_ENOMEM, "the engine's thread could not be started");
    e->has_thread = true;
    return EK_OK;
}

void ek_engine_stop(ek_engine *e, bool drain)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    for (ek_request *r = e->live; r && !drain; r = r->live_next) atomic_store(&r->cancelled, true);
    pthread_cond_signal(&e->wake);
    bool any = e->n_live > 0 || (!e->has_thread && e->leaving);
    pthread_mutex_unlock(&e->lock);
    if (e->has_thread) {
        pthread_join(e->thread, NULL);
        e->has_thread = false;
        return;
    }
    while (any) any = ek_engine_step(e);
}

/* Counters of a shared server change while the engine rests, so they are read here. */
#define READ_COUNTED(ctype, field, of)
#define READ_HERE(ctype, field, of)
#define READ_DISK(ctype, field, of)
#define READ_HOST(ctype, field, of)
#define READ_READ(ctype, field, of) out->field = of;
#define READ_SHARED(ctype, field, of) \
    if (shared) out->field = atomic_load(&shared->of);

void ek_engine_stats_read(const ek_engine *e, ek_engine_stats *out)
{
    ek_engine *open = (ek_engine *)(uintptr_t)e; /* only to take the lock */
    pthread_mutex_lock(&open->lock);
    *out = e->stats;
    const ek_shared_counts *shared = e->store ? ek_store_shared_counts_of(e->store) : NULL;
    out->shared = shared != NULL;
#define STAT(section, ctype, field, from, of, type, name, help) READ_##from(ctype, field, of)
#include "engine/stats.def"
    pthread_mutex_unlock(&open->lock);
}
