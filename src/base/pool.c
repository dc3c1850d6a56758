#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"

/* Workers spin this many times before they sleep: ops inside a step follow each other
 * within microseconds, a wake-up through the kernel costs tens of them. */
enum { SPINS = 20000 };

/* A thread's share of a round, end << 32 | begin, and how many tasks the thread has finished in all rounds, each on a
 * cache line of its own: cores may be far from each other. */
typedef struct share {
    _Alignas(64) _Atomic uint64_t range;
    _Alignas(64) atomic_uint finished;
} share;

struct worker {
    ek_pool *pool;
    int number;
};

struct ek_pool {
    int n_threads;
    pthread_t *thread;
    struct worker *worker;
    share *share;
    ek_task_fn *fn; /* of the running round: valid for whoever holds one of its tasks */
    void *arg;
    _Alignas(64) atomic_uint round; /* raised by the caller to start a round */
    atomic_bool quit;
    atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Takes a task from the front of a share or, for another thread, from its back; -1 if it is empty.
 * Both ends lie in one word: who takes a task holds the round open with it. A worker that the system
 * has put aside and that holds no task is never waited for; a late one finds none, or one of the
 * next round, which is as good. */
static int pop_task(share *s, bool back)
{
    uint64_t now = atomic_load_explicit(&s->range, memory_order_acquire), then;
    uint32_t begin, end;
    do {
        begin = (uint32_t)now, end = (uint32_t)(now >> 32);
        if (begin >= end) return -1;
        then = back ? (uint64_t)(end - 1) << 32 | begin : now + 1;
    } while (!atomic_compare_exchange_weak_explicit(&s->range, &now, then, memory_order_acq_rel, memory_order_acquire));
    return (int)(back ? end - 1 : begin);
}

static void run_tasks(ek_pool *p, int number)
{
    unsigned finished = atomic_load_explicit(&p->share[number].finished, memory_order_relaxed);
    for (int i = 0; i < p->n_threads; i++) {
        int whose = (number + i) % p->n_threads;
        for (int t; (t = pop_task(&p->share[whose], i > 0)) >= 0;) {
            p->fn(p->arg, t, number);
            finished++;
            atomic_store_explicit(&p->share[number].finished, finished, memory_order_release);
        }
    }
}

static void wait_round(ek_pool *p, unsigned last)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->round, memory_order_acquire) != last) return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->round) == last) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    ek_pool *p = w->pool;
    for (unsigned last = 0;;) {
        wait_round(p, last);
        last = atomic_load(&p->round);
        if (atomic_load(&p->quit)) return NULL;
        run_tasks(p, w->number);
    }
}

static void start_round(ek_pool *p)
{
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->asleep) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

ek_err ek_pool_open(ek_pool **out, int n_threads)
{
    if (n_threads < 1 || n_threads > 1024)
        return ek_fail(EK_EINVAL, "%d threads asked for, 1 to 1024 are possible", n_threads);
    ek_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return ek_fail(EK_ENOMEM, "no memory for a thread pool");
    *p = (ek_pool){.n_threads = 1};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->thread = ek_alloc(sizeof *p->thread * (size_t)n_threads);
    p->worker = ek_alloc(sizeof *p->worker * (size_t)n_threads);
    p->share = aligned_alloc(64, sizeof *p->share * (size_t)n_threads);
    if (!p->share) {
        ek_pool_close(p);
        return ek_fail(EK_ENOMEM, "no memory for a thread pool");
    }
    for (int i = 0; i < n_threads; i++) atomic_init(&p->share[i].range, 0), atomic_init(&p->share[i].finished, 0);
    for (int i = 1; i < n_threads; i++) {
        p->worker[i] = (struct worker){p, i};
        if (pthread_create(&p->thread[i], NULL, work, &p->worker[i]) != 0) {
            ek_pool_close(p);
            return ek_fail(EK_ENOMEM, "thread %d of %d could not be started", i + 1, n_threads);
        }
        p->n_threads = i + 1;
    }
    *out = p;
    return EK_OK;
}

void ek_pool_close(ek_pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, true);
    start_round(p);
    for (int i = 1; i < p->n_threads; i++) pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->thread);
    free(p->worker);
    free(p->share);
    free(p);
}

int ek_pool_threads(const ek_pool *p)
{
    return p ? p->n_threads : 1;
}

static unsigned finished_by_all(const ek_pool *p)
{
    unsigned sum = 0;
    for (int i = 0; i < p->n_threads; i++) sum += atomic_load_explicit(&p->share[i].finished, memory_order_acquire);
    return sum;
}

void ek_pool_run(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks)
{
    if (!p || p->n_threads == 1 || n_tasks <= 1) {
        for (int t = 0; t < n_tasks; t++) fn(arg, t, 0);
        return;
    }
    p->fn = fn, p->arg = arg;
    const unsigned target = finished_by_all(p) + (unsigned)n_tasks;
    for (int i = 0; i < p->n_threads; i++) {
        uint64_t begin = (uint64_t)n_tasks * (uint64_t)i / (uint64_t)p->n_threads;
        uint64_t end = (uint64_t)n_tasks * (uint64_t)(i + 1) / (uint64_t)p->n_threads;
        atomic_store_explicit(&p->share[i].range, end << 32 | begin, memory_order_release);
    }
    start_round(p);
    run_tasks(p, 0);
    /* More threads than cores: a worker may be waiting for this one's core. */
    for (int i = 0; finished_by_all(p) != target; i++)
        if (i < SPINS) relax();
        else sched_yield();
}
