/* The queue of events from the engine's threads to the program's. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "capi/state.h"

typedef struct capi_event {
    evenkeel_event out; /* first, because its address is used to free the event */
    struct capi_event *next;
    char bytes[]; /* its texts */
} capi_event;

ek_status evenkeel_queue_open(evenkeel_queue **out, evenkeel *engine)
{
    *out = NULL;
    const ek_err err = capi_check_process(engine);
    if (err) return capi_status(err);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return capi_status(ek_fail(EK_EIO, "the system has no descriptor for a queue"));
    evenkeel_queue *q = ek_alloc(sizeof *q);
    *q = (evenkeel_queue){.engine = engine, .fd = fd};
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    pthread_mutex_lock(&engine->lock);
    q->next = engine->queues;
    if (q->next) q->next->prev = q;
    engine->queues = q;
    pthread_mutex_unlock(&engine->lock);
    *out = q;
    return EK_DONE;
}

/* Cancels the queue's requests and removes the queue from the engine. */
static void detach(evenkeel_queue *q)
{
    evenkeel *e = q->engine;
    pthread_mutex_lock(&e->lock);
    for (capi_request *r = e->requests; r; r = r->next)
        if (r->queue == q) r->cancel(r);
    if (q->prev) q->prev->next = q->next;
    else e->queues = q->next;
    if (q->next) q->next->prev = q->prev;
    pthread_mutex_unlock(&e->lock);
}

void evenkeel_queue_close(evenkeel_queue *q)
{
    if (!q || capi_check_process(q->engine)) return;
    detach(q);
    pthread_mutex_lock(&q->lock);
    while (q->n_live > 0) pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    for (capi_event *e = q->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    close(q->fd);
    free(q);
}

/* --- in --- */

static const char *keep(char **at, const char *text, size_t n)
{
    char *to = *at;
    if (n > 0) memcpy(to, text, n);
    to[n] = '\0';
    *at += n + 1;
    return to;
}

static capi_event *copy(const capi_request *r, const evenkeel_event *e)
{
    const size_t n_name = e->name ? strlen(e->name) : 0, n_id = e->call_id ? strlen(e->call_id) : 0;
    const size_t n_state = e->state ? strlen(e->state) : 0;
    capi_event *c = ek_alloc(sizeof *c + e->n + n_name + n_id + n_state + 4);
    char *at = c->bytes;
    c->out = *e;
    c->out.request = r->id;
    c->out.user = r->user;
    c->out.text = keep(&at, e->text, e->n);
    c->out.name = keep(&at, e->name, n_name);
    c->out.call_id = keep(&at, e->call_id, n_id);
    c->out.state = keep(&at, e->state, n_state);
    return c;
}

static void append(evenkeel_queue *q, capi_event *c)
{
    const uint64_t one = 1;
    if (!q->first && write(q->fd, &one, sizeof one) < 0) return; /* the write cannot fail, because the counter is 0 */
    *q->last = c;
    q->last = &c->next;
    pthread_cond_broadcast(&q->changed);
}

void capi_post(const capi_request *r, const evenkeel_event *e)
{
    evenkeel_queue *q = r->queue;
    capi_event *c = copy(r, e);
    pthread_mutex_lock(&q->lock);
    append(q, c);
    pthread_mutex_unlock(&q->lock);
}

void capi_begin(capi_request *r)
{
    evenkeel *e = r->engine;
    pthread_mutex_lock(&e->lock);
    r->id = ++e->last_id;
    r->next = e->requests;
    if (r->next) r->next->prev = r;
    e->requests = r;
    pthread_mutex_lock(&r->queue->lock);
    r->queue->n_live++;
    r->queue->n_pending++;
    pthread_mutex_unlock(&r->queue->lock);
    pthread_mutex_unlock(&e->lock);
}

static void leave(capi_request *r)
{
    evenkeel *e = r->engine;
    pthread_mutex_lock(&e->lock);
    if (r->prev) r->prev->next = r->next;
    else e->requests = r->next;
    if (r->next) r->next->prev = r->prev;
    pthread_mutex_unlock(&e->lock);
}

void capi_take_back(capi_request *r)
{
    evenkeel_queue *q = r->queue;
    leave(r);
    pthread_mutex_lock(&q->lock);
    q->n_live--;
    q->n_pending--;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

void capi_end(capi_request *r, const evenkeel_event *e)
{
    evenkeel_queue *q = r->queue;
    capi_event *c = copy(r, e);
    leave(r);
    pthread_mutex_lock(&q->lock);
    append(q, c);
    q->n_live--;
    pthread_mutex_unlock(&q->lock); /* from here on the queue may no longer exist */
}

/* --- out --- */

/* The caller holds the lock. */
static capi_event *take_first(evenkeel_queue *q)
{
    uint64_t counted;
    capi_event *c = q->first;
    q->first = c->next;
    if (!q->first) {
        q->last = &q->first;
        if (read(q->fd, &counted, sizeof counted) < 0) return c; /* it was 1 */
    }
    if (c->out.kind == EVENKEEL_END && --q->n_pending == 0) pthread_cond_broadcast(&q->changed);
    return c;
}

evenkeel_event *evenkeel_next(evenkeel_queue *q, double seconds)
{
    if (capi_check_process(q->engine)) return NULL;
    const double until = seconds < 0 || isnan(seconds) ? INFINITY : ek_now() + seconds;
    pthread_mutex_lock(&q->lock);
    while (!q->first && q->n_pending > 0) {
        if (isinf(until)) pthread_cond_wait(&q->changed, &q->lock);
        else if (ek_now() >= until) break;
        else ek_wait_until(&q->changed, &q->lock, until);
    }
    capi_event *c = q->first ? take_first(q) : NULL;
    pthread_mutex_unlock(&q->lock);
    return c ? &c->out : NULL;
}

void evenkeel_event_free(evenkeel_event *e)
{
    free(e);
}

size_t evenkeel_pending(evenkeel_queue *q)
{
    if (capi_check_process(q->engine)) return 0;
    pthread_mutex_lock(&q->lock);
    const size_t n = q->n_pending;
    pthread_mutex_unlock(&q->lock);
    return n;
}

int evenkeel_fd(const evenkeel_queue *q)
{
    return q->fd;
}
