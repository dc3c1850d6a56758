#include "engine/queue.h"

#include "base/clock.h"
#include "engine/ahead.h"
#include "engine/encode.h"
#include "engine/reuse.h"

static bool is_before(const ek_request *a, const ek_request *b)
{
    return a->place < b->place || (a->place == b->place && a->id < b->id);
}

/* Into the queue, of which what stands before *at goes first; returns where it is linked. */
static ek_request **put_waiting(ek_request **at, ek_request *r)
{
    while (*at && is_before(*at, r)) at = &(*at)->next;
    r->next = *at;
    *at = r;
    return at;
}

void ek_queue_drain_inbox(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    ek_request *first = e->inbox;
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
    e->poked = false;
    pthread_mutex_unlock(&e->lock);
    ek_request **at = &e->waiting; /* a client's come in the order of their places: each behind the one before it */
    uint64_t last = 0;
    for (ek_request *r = first, *next; r; r = next) {
        next = r->next;
        if (r->place < last) at = &e->waiting;
        last = r->place;
        at = put_waiting(at, r);
        e->unnamed |= r->n_parts > 0;
    }
}

static void stop_waiting(ek_engine *e, ek_request *r)
{
    ek_request **p = &e->waiting;
    while (*p != r) p = &(*p)->next;
    *p = r->next;
    r->next = NULL;
}

void ek_queue_run(ek_engine *e, ek_request *r)
{
    stop_waiting(e, r);
    r->state = EK_RUNNING;
    r->runs_since = ek_now();
    r->n_steps = 0;
    pthread_mutex_lock(&e->lock);
    ek_fair_queue_begin(&e->queue_order, r->place);
    if (!r->admitted) ek_histogram_add(&e->stats.queue_seconds, EK_HISTOGRAM_SECONDS, r->runs_since - r->arrived);
    pthread_mutex_unlock(&e->lock);
    int at = e->n_running++; /* younger ones may run already: it waited for what another computed (reuse.h) */
    for (; at > 0 && e->running[at - 1]->id > r->id; at--) e->running[at] = e->running[at - 1];
    e->running[at] = r;
    for (r->slot = 0; e->slot[r->slot]; r->slot++) EK_ASSERT(r->slot + 1 < e->opts.max_requests);
    e->slot[r->slot] = r;
}

static void stop_running(ek_engine *e, ek_request *r)
{
    int at = 0;
    ek_ahead_leave(e, r);
    while (e->running[at] != r) at++;
    e->n_running--;
    for (; at < e->n_running; at++) e->running[at] = e->running[at + 1];
    e->slot[r->slot] = NULL;
    ek_encode_release(e, r);
    ek_reuse_give(e, r);
    ek_page_table_clear(&r->table, e->pages);
}

void ek_queue_requeue(ek_engine *e, ek_request *r)
{
    stop_running(e, r);
    put_waiting(&e->waiting, r);
    r->state = EK_WAITING;
    r->waits_since = ek_now();
    if (r->n_done > r->n_done_before) r->n_done_before = r->n_done;
    r->n_done = 0;
}

void ek_queue_remove(ek_engine *e, ek_request *r)
{
    if (r->state == EK_RUNNING) {
        stop_running(e, r);
    } else {
        stop_waiting(e, r);
    }
    pthread_mutex_lock(&e->lock);
    if (r->live_prev) r->live_prev->live_next = r->live_next;
    else e->live = r->live_next;
    if (r->live_next) r->live_next->live_prev = r->live_prev;
    e->n_live--;
    ek_fair_queue_leave(&e->queue_order, r->client);
    pthread_mutex_unlock(&e->lock);
}
