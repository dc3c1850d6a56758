#include "serve/threads/workers.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fair_queue.h"
#include "serve/http/loop.h"

typedef struct line {
    ek_job *first, **end;
} line;

struct ek_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    line small, large, finished;
    ek_fair_queue turns;
    int n_large;      /* large jobs that run */
    int share;        /* jobs of one client that run, at most */
    ek_job **running; /* of each thread, or NULL */
    bool closing;

    pthread_t *thread;
    int n_threads, n_started, n_begun, max_queue; /* n_begun: under the lock */
    int n_open;                                   /* jobs added and not done; the event loop's */
    int fd;
    struct event *event;
    ek_loop *loop;
};

static void append(line *l, ek_job *j)
{
    j->next = NULL;
    *l->end = j;
    l->end = &j->next;
}

static void put_in_turn(line *l, ek_job *j)
{
    ek_job **at = &l->first;
    while (*at && (*at)->place <= j->place) at = &(*at)->next;
    j->next = *at;
    *at = j;
    if (!j->next) l->end = &j->next;
}

static ek_job *take(line *l)
{
    ek_job *j = l->first;
    if (!j) return NULL;
    l->first = j->next;
    if (!l->first) l->end = &l->first;
    return j;
}

static bool may_run(const ek_workers *w, const ek_job *j)
{
    int n = 0;
    for (int i = 0; i < w->n_threads && w->share < w->n_threads; i++)
        n += w->running[i] && w->running[i]->client == j->client;
    return n < w->share;
}

/* The first whose client has not its share of the threads. */
static ek_job *take_allowed(ek_workers *w, line *l)
{
    for (ek_job **at = &l->first; *at; at = &(*at)->next) {
        ek_job *j = *at;
        if (!may_run(w, j)) continue;
        *at = j->next;
        if (!j->next) l->end = at;
        return j;
    }
    return NULL;
}

/* The next job for this thread; the caller holds the lock. */
static ek_job *next_job(ek_workers *w)
{
    ek_job *j = take_allowed(w, &w->small);
    bool room = w->n_threads == 1 || w->n_large < w->n_threads - 1;
    if (!j && room) j = take_allowed(w, &w->large);
    if (j) ek_fair_queue_begin(&w->turns, j->place);
    return j;
}

/* A client's jobs that wait go behind by what its last one took beyond the guess. */
static void put_back(line *l, uint64_t client, uint64_t more)
{
    line all = *l;
    *l = (line){.end = &l->first};
    if (!all.first) return;
    for (ek_job *j = all.first, *next; j; j = next) {
        next = j->next;
        if (j->client == client) j->place += more;
        put_in_turn(l, j);
    }
}

static void charge(ek_workers *w, const ek_job *j, uint64_t took)
{
    if (took <= j->cost) return;
    const uint64_t more = took - j->cost;
    ek_fair_queue_charge(&w->turns, j->client, more);
    put_back(&w->small, j->client, more);
    put_back(&w->large, j->client, more);
}

/* Of this thread, in microseconds. */
static uint64_t processor_time(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void wake(const ek_workers *w)
{
    uint64_t one = 1;
    if (write(w->fd, &one, sizeof one) < 0) return; /* a full counter has woken the reader already */
}

static void *work(void *arg)
{
    ek_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    ek_job **place = &w->running[w->n_begun++];
    for (;;) {
        ek_job *j = next_job(w);
        if (!j && w->closing && !w->large.first && !w->small.first) break;
        if (!j) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        bool large = j->large;
        w->n_large += large;
        *place = j;
        pthread_mutex_unlock(&w->lock);
        const uint64_t begun = processor_time();
        j->run(j);
        const uint64_t took = processor_time() - begun + j->elsewhere;
        pthread_mutex_lock(&w->lock);
        charge(w, j, took);
        w->n_large -= large;
        *place = NULL;
        if (large || w->share < w->n_threads) pthread_cond_broadcast(&w->wake);
        append(&w->finished, j);
        wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* As many as the turn has time for. loop: NULL for all. */
static void deliver(ek_workers *w, ek_loop *loop)
{
    for (;;) {
        pthread_mutex_lock(&w->lock);
        ek_job *j = take(&w->finished);
        if (j) ek_fair_queue_leave(&w->turns, j->client);
        pthread_mutex_unlock(&w->lock);
        if (!j) return;
        w->n_open--;
        j->done(j);
        if (!ek_loop_spent(loop)) continue;
        wake(w);
        return;
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    ek_workers *w = arg;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN) return;
    deliver(w, w->loop);
}

ek_err ek_workers_open(ek_workers **out, ek_loop *loop, int n_threads, int max_queue)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return ek_fail(EK_EIO, "no event descriptor: %s", strerror(errno));
    ek_workers *w = ek_alloc(sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->small.end = &w->small.first;
    w->large.end = &w->large.first;
    w->finished.end = &w->finished.first;
    w->fd = fd;
    w->max_queue = max_queue;
    w->n_threads = w->share = n_threads;
    w->running = ek_alloc((size_t)n_threads * sizeof *w->running);
    w->thread = ek_alloc((size_t)n_threads * sizeof *w->thread);
    w->loop = loop;
    w->event = event_new(loop->base, fd, EV_READ | EV_PERSIST, on_wake, w);
    event_add(w->event, NULL);
    for (; w->n_started < n_threads; w->n_started++) {
        if (pthread_create(&w->thread[w->n_started], NULL, work, w) == 0) continue;
        ek_workers_close(w);
        return ek_fail(EK_ENOMEM, "a thread for preparing requests could not be started");
    }
    *out = w;
    return EK_OK;
}

void ek_workers_set_share(ek_workers *w, int n)
{
    pthread_mutex_lock(&w->lock);
    w->share = n;
    pthread_mutex_unlock(&w->lock);
}

void ek_workers_add_always(ek_workers *w, ek_job *job)
{
    w->n_open++;
    pthread_mutex_lock(&w->lock);
    job->place = ek_fair_queue_enter(&w->turns, job->client, job->cost);
    put_in_turn(job->large ? &w->large : &w->small, job);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

ek_err ek_workers_add(ek_workers *w, ek_job *job)
{
    pthread_mutex_lock(&w->lock);
    bool room = ek_fair_queue_has_room(&w->turns, job->client, w->max_queue + w->n_threads);
    pthread_mutex_unlock(&w->lock);
    if (!room)
        return ek_fail(EK_EBUSY, "%d requests are being prepared or wait for it, %d are allowed", w->n_open,
                       w->max_queue + w->n_threads);
    ek_workers_add_always(w, job);
    return EK_OK;
}

int ek_workers_waiting(const ek_workers *w)
{
    return w->n_open;
}

void ek_workers_close(ek_workers *w)
{
    while (w->n_open > 0) { /* a job that is done may add another */
        uint64_t count;
        struct timespec nap = {0, 1000000};
        if (read(w->fd, &count, sizeof count) < 0) nanosleep(&nap, NULL);
        deliver(w, NULL);
    }
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_started; i++) pthread_join(w->thread[i], NULL);
    event_free(w->event);
    close(w->fd);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    ek_fair_queue_fini(&w->turns);
    free(w->running);
    free(w->thread);
    free(w);
}
