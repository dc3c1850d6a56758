#include "serve/threads/threads.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fair_queue.h"
#include "base/linux.h"
#include "serve/http/http.h"

#define SLOW 0.1 /* seconds after which a job no longer counts against the places of others */

enum { LOOK = 30 /* ms between two checks whether a job has become slow */ };

/* A thread's job, or NULL, and its start. */
typedef struct running {
    ek_job *job;
    double begun;
} running;

typedef struct line {
    ek_job *first, **end;
} line;

struct ek_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    line small, large, finished;
    ek_fair_queue turns;
    int n_large;          /* number of running large jobs */
    int n_running, share; /* share: maximum running jobs of one client */
    int n_watching;       /* number of threads that wait for a job to become slow */
    running *running;     /* of each thread */
    bool closing;

    pthread_t *thread;
    int n_threads, n_spare, n_started, n_begun, max_queue; /* n_begun: under the lock */
    int n_open;                                            /* jobs added and not finished; event loop only */
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

/* The number of running jobs of a client. */
static int running_of(const ek_workers *w, uint64_t client, bool large)
{
    int n = 0;
    for (int i = 0; i < w->n_threads + w->n_spare; i++) {
        const ek_job *j = w->running[i].job;
        n += j && j->client == client && (j->large || !large);
    }
    return n;
}

/* The number of large jobs that have run for long, at most the number of spare threads. */
static int slow(const ek_workers *w)
{
    const double now = w->n_spare > 0 && w->n_large > 0 ? ek_now() : 0;
    int n = 0;
    for (int i = 0; i < w->n_threads + w->n_spare && now > 0; i++) {
        const running *r = &w->running[i];
        n += r->job && r->job->large && now - r->begun > SLOW;
    }
    return n < w->n_spare ? n : w->n_spare;
}

/* Whether the job has a place. Slow jobs do not take places, but half of the spare threads are reserved for clients
 * without a running large job. */
static bool has_place(const ek_workers *w, const ek_job *j, int n_slow)
{
    const int places = w->n_threads == 1 ? 1 : w->n_threads - 1, half = w->n_spare / 2;
    if (!j->large || w->n_large < places) return true;
    if (w->n_large - n_slow >= places) return false;
    return w->n_large - (n_slow < half ? n_slow : half) < places || running_of(w, j->client, true) == 0;
}

/* Takes the first job that has a place and whose client runs fewer jobs than its share. */
static ek_job *take_allowed(ek_workers *w, line *l, int n_slow)
{
    for (ek_job **at = &l->first; *at; at = &(*at)->next) {
        ek_job *j = *at;
        if (w->share < w->n_threads && running_of(w, j->client, false) >= w->share) continue;
        if (!has_place(w, j, n_slow)) continue;
        *at = j->next;
        if (!j->next) l->end = at;
        return j;
    }
    return NULL;
}

/* The next job for this thread; the caller holds the lock. */
static ek_job *next_job(ek_workers *w)
{
    const int n_slow = slow(w);
    if (w->n_running - n_slow >= w->n_threads) return NULL;
    ek_job *j = take_allowed(w, &w->small, n_slow);
    if (!j) j = take_allowed(w, &w->large, n_slow);
    if (j) ek_fair_queue_begin(&w->turns, j->place);
    return j;
}

/* Whether another thread is needed: to take a waiting job, or to watch until one can be taken. A thread that ends a job
 * takes the next one itself, because waking others each time takes longer than a small job. */
static bool wants_thread(const ek_workers *w)
{
    if (!w->small.first && !w->large.first) return false;
    if (w->n_running - slow(w) < w->n_threads) return true;
    return w->n_spare > 0 && w->n_large > 0 && w->n_watching == 0;
}

/* Waits for work; only for a while if a waiting job may get the place of a slow one. */
static void wait_for_work(ek_workers *w)
{
    struct timespec until;
    if (w->n_spare == 0 || w->n_large == 0 || (!w->large.first && !w->small.first)) {
        pthread_cond_wait(&w->wake, &w->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    w->n_watching++;
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
    w->n_watching--;
}

/* Moves a client's waiting jobs back by the time that its latest job took beyond the estimate. */
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

/* The processor time of this thread in microseconds. */
static uint64_t processor_time(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void wake(const ek_workers *w)
{
    uint64_t one = 1;
    if (write(w->fd, &one, sizeof one) < 0) return; /* EAGAIN: the counter is full, so the reader was woken already */
}

static void *work(void *arg)
{
    ek_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    running *place = &w->running[w->n_begun++];
    for (bool owes = false;;) { /* the event loop is woken for finished jobs without the lock, which it needs then */
        ek_job *j = next_job(w);
        if (!j && owes) {
            pthread_mutex_unlock(&w->lock);
            wake(w);
            owes = false;
            pthread_mutex_lock(&w->lock);
            continue;
        }
        if (!j && w->closing && !w->large.first && !w->small.first) break;
        if (!j) {
            wait_for_work(w);
            continue;
        }
        bool large = j->large;
        w->n_large += large;
        w->n_running++;
        *place = (running){j, w->n_spare > 0 ? ek_now() : 0};
        const bool wants = wants_thread(w);
        pthread_mutex_unlock(&w->lock);
        if (wants) pthread_cond_signal(&w->wake); /* without the lock, which the other thread needs at once */
        if (owes) wake(w);
        const uint64_t begun = processor_time();
        j->run(j);
        const uint64_t took = processor_time() - begun + j->elsewhere;
        pthread_mutex_lock(&w->lock);
        charge(w, j, took);
        w->n_large -= large;
        w->n_running--;
        *place = (running){0};
        owes = !w->finished.first; /* otherwise the event loop was woken and takes all of them */
        append(&w->finished, j);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Delivers as many as the turn has time for. loop: NULL delivers all. */
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
    return ek_workers_open_spare(out, loop, n_threads, 0, max_queue);
}

ek_err ek_workers_open_spare(ek_workers **out, ek_loop *loop, int n_threads, int n_spare, int max_queue)
{
    const int n = n_threads + n_spare;
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
    w->n_spare = n_spare;
    w->running = ek_alloc((size_t)n * sizeof *w->running);
    w->thread = ek_alloc((size_t)n * sizeof *w->thread);
    w->loop = loop;
    w->event = event_new(loop->base, fd, EV_READ | EV_PERSIST, on_wake, w);
    event_add(w->event, NULL);
    for (; w->n_started < n; w->n_started++) {
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
    const bool wants = wants_thread(w);
    pthread_mutex_unlock(&w->lock);
    if (wants) pthread_cond_signal(&w->wake);
}

void ek_workers_clean(ek_workers *w, ek_job *job, bool large)
{
    if (w && large) {
        ek_workers_add_always(w, job);
        return;
    }
    job->run(job);
    job->done(job);
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
    while (w->n_open > 0) { /* a finished job may add another one */
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
