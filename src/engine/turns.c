#include "engine/turns.h"

#include "base/clock.h"
#include "engine/encode.h"
#include "engine/queue.h"

enum { MIN_STEPS = 4 }; /* that a request computes before it gives way */
#define PATIENCE 1.0    /* seconds after which it gives way in any case to a client that holds less */
#define MIN_PART 0.1    /* of a turn */
#define LATE     4      /* turns */

static int running_of(const ek_engine *e, uint64_t client)
{
    int n = 0;
    for (int i = 0; i < e->n_running; i++) n += e->running[i]->client == client;
    return n;
}

/* One that gave way waits as long as a turn takes before it takes another's. */
static bool waits_its_turn(const ek_engine *e, const ek_request *r, double now)
{
    return r->admitted && e->n_running == e->opts.max_requests && now - r->waits_since < e->turn_seconds;
}

/* Clients of which a request gave way and waits. */
typedef struct gave {
    uint64_t client[64];
    int n;
} gave;

/* Whether r is all that its client asks for here, and has not run. Noted in the order of places. */
static bool is_new(gave *g, const ek_request *r)
{
    for (int i = 0; i < g->n; i++)
        if (g->client[i] == r->client) return false;
    if (!r->admitted) return true;
    if (g->n < (int)(sizeof g->client / sizeof *g->client)) g->client[g->n++] = r->client;
    return false;
}

/* Of clients that run none those come first that have not had a turn, but for every second time where one has waited
 * for several turns. */
ek_request *ek_turns_next(ek_engine *e)
{
    ek_request *best = NULL, *late = NULL, *fresh = NULL;
    int fewest = 0, n = 0;
    uint64_t counted = 0;
    bool any = false;
    gave g = {.n = 0};
    const double now = e->waiting ? ek_now() : 0;
    for (ek_request *r = e->waiting; r; r = r->next) {
        if (r->passed == e->admissions) continue;
        if (!any || r->client != counted) n = running_of(e, r->client);
        any = true, counted = r->client;
        if (n == 0 && is_new(&g, r) && !fresh) fresh = r;
        if (n == 0 && waits_its_turn(e, r, now)) continue;
        if (n == 0 && r->admitted && !late && now - r->waits_since > LATE * e->turn_seconds) late = r;
        if (best && n >= fewest) continue;
        best = r, fewest = n;
    }
    return late && (e->new_was_last || !fresh) ? late : fresh ? fresh : best;
}

/* It has computed nothing since it began, and nothing is being encoded for it. */
static bool is_idle(const ek_engine *e, const ek_request *r)
{
    return r->n_done == r->n_hit && !ek_encode_is_for(e, r);
}

static bool has_progressed(const ek_request *r)
{
    return r->n_steps >= MIN_STEPS && r->n_done > r->n_done_before;
}

/* How long one has run that gives way to w, whose client runs none: a request that never ran waits for less, the less
 * the more clients there are. */
static double turn_for(ek_engine *e, const ek_request *w)
{
    if (w->admitted) return e->turn_seconds;
    pthread_mutex_lock(&e->lock);
    const int clients = ek_fair_queue_clients(&e->queue_order);
    pthread_mutex_unlock(&e->lock);
    const double part = (double)e->opts.max_requests / clients;
    return e->turn_seconds * (part < MIN_PART ? MIN_PART : part < 1 ? part : 1);
}

ek_request *ek_turns_victim(ek_engine *e, const ek_request *w)
{
    const int own = running_of(e, w->client);
    const double now = ek_now();
    ek_request *best = NULL;
    int max = 0;
    for (int i = 0; i < e->n_running; i++) {
        const int n = e->running[i]->client == w->client ? 0 : running_of(e, e->running[i]->client);
        max = n > max ? n : max;
    }
    if (max == 0 || (max < own + 2 && own > 0)) return NULL;
    e->turn_due = true;
    const bool more = max >= own + 2;
    const double turn = more ? 0 : turn_for(e, w);
    for (int i = 0; i < e->n_running; i++) {
        ek_request *v = e->running[i];
        if (v->passed == e->admissions) continue; /* admitted just now */
        if (v->client == w->client || running_of(e, v->client) < max) continue;
        const bool may = is_idle(e, v) || has_progressed(v) || (more && now - w->waits_since > PATIENCE);
        if (!may || (!more && now - v->runs_since < turn)) continue;
        if (!best || more || v->runs_since < best->runs_since) best = v;
    }
    return best;
}

void ek_turns_yield(ek_engine *e, ek_request *r)
{
    const uint64_t served = (uint64_t)(r->n_done - r->n_hit);
    pthread_mutex_lock(&e->lock);
    r->place = ek_fair_queue_again(&e->queue_order, r->client, r->place, served < r->cost ? served : r->cost);
    e->stats.preempted++;
    pthread_mutex_unlock(&e->lock);
    ek_queue_requeue(e, r);
    r->passed = e->admissions;
}

ek_request *ek_turns_youngest(const ek_engine *e, int from)
{
    ek_request *best = NULL;
    for (int i = from, max = 0; i < e->n_running; i++) {
        const int n = running_of(e, e->running[i]->client);
        if (n >= max) best = e->running[i], max = n;
    }
    return best;
}
