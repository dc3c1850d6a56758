
#include "base/clock.h"
#include "engine/planning.h"
#include "engine/cached.h"

static bool is_before(const ek_request *a, const ek_request *b)
{
    return a->turn.place < b->turn.place || (a->turn.place == b->turn.place && a->id < b->id);
}

/* Inserts r in turn order into the queue from *at on; returns the link to r. */
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
    ek_request **at = &e->waiting; /* a client's requests keep their order of arrival */
    uint64_t last = 0;
    for (ek_request *r = first, *next; r; r = next) {
        next = r->next;
        if (r->turn.place < last) at = &e->waiting;
        last = r->turn.place;
        at = put_waiting(at, r);
        e->unnamed |= r->media.n_parts > 0;
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
    r->turn.runs_since = ek_now();
    r->turn.n_steps = 0;
    pthread_mutex_lock(&e->lock);
    ek_fair_queue_begin(&e->queue_order, r->turn.place);
    if (!r->turn.admitted)
        ek_histogram_add(&e->stats.queue_seconds, EK_HISTOGRAM_SECONDS, r->turn.runs_since - r->arrived);
    pthread_mutex_unlock(&e->lock);
    int at = e->n_running++; /* younger ones may run already, because this one waited (reuse.c) */
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
    r->turn.waits_since = ek_now();
    if (r->n_done > r->turn.n_done_before) r->turn.n_done_before = r->n_done;
    r->n_done = 0;
}

void ek_queue_remove(ek_engine *e, ek_request *r)
{
    if (r->state == EK_RUNNING) {
        stop_running(e, r);
    } else {
        stop_waiting(e, r);
    }
    ek_proposals_forget(e, r);
    pthread_mutex_lock(&e->lock);
    if (r->live_prev) r->live_prev->live_next = r->live_next;
    else e->live = r->live_next;
    if (r->live_next) r->live_next->live_prev = r->live_prev;
    e->n_live--;
    ek_fair_queue_leave(&e->queue_order, r->turn.client);
    pthread_mutex_unlock(&e->lock);
}

enum { MIN_STEPS = 4 }; /* steps that a request computes before it gives way */
#define PATIENCE 1.0    /* seconds after which it always gives way to a client with fewer requests */
#define MIN_PART 0.1    /* of a turn */
#define LATE     4      /* turns */

static int running_of(const ek_engine *e, uint64_t client)
{
    int n = 0;
    for (int i = 0; i < e->n_running; i++) n += e->running[i]->turn.client == client;
    return n;
}

/* Whether r gave way so recently that it may not yet take another request's turn. */
static bool waits_its_turn(const ek_engine *e, const ek_request *r, double now)
{
    return r->turn.admitted && e->n_running == e->opts.max_requests && now - r->turn.waits_since < e->turn_seconds;
}

/* Clients with a request that gave way and waits. */
typedef struct gave {
    uint64_t client[64];
    int n;
} gave;

/* Whether r is its client's only request here and has never run. Called for all requests in turn order. */
static bool is_new(gave *g, const ek_request *r)
{
    for (int i = 0; i < g->n; i++)
        if (g->client[i] == r->turn.client) return false;
    if (!r->turn.admitted) return true;
    if (g->n < (int)(sizeof g->client / sizeof *g->client)) g->client[g->n++] = r->turn.client;
    return false;
}

/* The next request: among clients without a running one, those that never had a turn come first, except that every
 * second time a client that has waited for several turns does. */
ek_request *ek_turns_next(ek_engine *e)
{
    ek_request *best = NULL, *late = NULL, *fresh = NULL;
    int fewest = 0, n = 0;
    uint64_t counted = 0;
    bool any = false;
    gave g = {.n = 0};
    const double now = e->waiting ? ek_now() : 0;
    for (ek_request *r = e->waiting; r; r = r->next) {
        if (r->turn.passed == e->admissions) continue;
        if (!any || r->turn.client != counted) n = running_of(e, r->turn.client);
        any = true, counted = r->turn.client;
        if (n == 0 && is_new(&g, r) && !fresh) fresh = r;
        if (n == 0 && waits_its_turn(e, r, now)) continue;
        if (n == 0 && r->turn.admitted && !late && now - r->turn.waits_since > LATE * e->turn_seconds) late = r;
        if (best && n >= fewest) continue;
        best = r, fewest = n;
    }
    return late && (e->new_was_last || !fresh) ? late : fresh ? fresh : best;
}

/* Whether r has computed nothing since it began, and nothing is being encoded for it. */
static bool is_idle(const ek_engine *e, const ek_request *r)
{
    return r->n_done == r->cache.n_hit && !ek_encode_is_for(e, r);
}

static bool has_progressed(const ek_request *r)
{
    return r->turn.n_steps >= MIN_STEPS && r->n_done > r->turn.n_done_before;
}

/* The seconds after which a running request gives way to w, whose client runs none. A request that never ran waits for
 * a shorter time, the shorter the more clients there are. */
static double turn_for(ek_engine *e, const ek_request *w)
{
    if (w->turn.admitted) return e->turn_seconds;
    pthread_mutex_lock(&e->lock);
    const int clients = ek_fair_queue_clients(&e->queue_order);
    pthread_mutex_unlock(&e->lock);
    const double part = (double)e->opts.max_requests / clients;
    return e->turn_seconds * (part < MIN_PART ? MIN_PART : part < 1 ? part : 1);
}

ek_request *ek_turns_victim(ek_engine *e, const ek_request *w)
{
    const int own = running_of(e, w->turn.client);
    const double now = ek_now();
    ek_request *best = NULL;
    int max = 0;
    for (int i = 0; i < e->n_running; i++) {
        const int n = e->running[i]->turn.client == w->turn.client ? 0 : running_of(e, e->running[i]->turn.client);
        max = n > max ? n : max;
    }
    if (max == 0 || (max < own + 2 && own > 0)) return NULL;
    e->turn_due = true;
    const bool more = max >= own + 2;
    const double turn = more ? 0 : turn_for(e, w);
    for (int i = 0; i < e->n_running; i++) {
        ek_request *v = e->running[i];
        if (v->turn.passed == e->admissions) continue; /* admitted just now */
        if (v->turn.client == w->turn.client || running_of(e, v->turn.client) < max) continue;
        const bool may = is_idle(e, v) || has_progressed(v) || (more && now - w->turn.waits_since > PATIENCE);
        if (!may || (!more && now - v->turn.runs_since < turn)) continue;
        if (!best || more || v->turn.runs_since < best->turn.runs_since) best = v;
    }
    return best;
}

void ek_turns_yield(ek_engine *e, ek_request *r)
{
    const uint64_t served = (uint64_t)(r->n_done - r->cache.n_hit);
    pthread_mutex_lock(&e->lock);
    r->turn.place = ek_fair_queue_again(&e->queue_order, r->turn.client, r->turn.place,
                                        served < r->turn.cost ? served : r->turn.cost);
    e->stats.preempted++;
    pthread_mutex_unlock(&e->lock);
    ek_queue_requeue(e, r);
    r->turn.passed = e->admissions;
}

ek_request *ek_turns_youngest(const ek_engine *e, int from)
{
    ek_request *best = NULL;
    for (int i = from, max = 0; i < e->n_running; i++) {
        const int n = running_of(e, e->running[i]->turn.client);
        if (n >= max) best = e->running[i], max = n;
    }
    return best;
}
