#define _GNU_SOURCE
#include "base/machine/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/linux.h"
#include "base/log.h"

/* Workers spin this many times before they sleep. Operators in a step follow each other within microseconds, but a
 * wake-up by the kernel costs tens of microseconds. */
enum { SPINS = 20000 };

#define STAYS ((uint64_t)1 << 63)

/* A thread's share of a round: end << 32 | begin, with STAYS if only threads of its node may take from it; and the
 * number of tasks that the thread has finished in all rounds. Each has its own cache line, because cores may be far
 * from each other. */
typedef struct share {
    _Alignas(64) _Atomic uint64_t range;
    _Alignas(64) atomic_uint finished;
} share;

struct worker {
    ek_pool *pool;
    int number, node;
};

struct ek_pool {
    int n_threads, n_nodes;
    int first[EK_MAX_NODES + 1]; /* the first thread of each node */
    ek_nodes nodes;
    cpu_set_t everywhere; /* the CPUs of the thread that opened the pool */
    pthread_t *thread;
    struct worker *worker;
    share *share;
    ek_task_fn *fn; /* the running round's; valid while its reader holds one of the round's tasks */
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

/* Takes a task from the front of a share. Another thread takes from the back. -1: no task. Both ends are in one word. A
 * thread that takes a task keeps the round open. Nobody waits for a worker that the system has paused and that holds no
 * task. When it continues, it finds no task, or one of the next round, which is harmless. */
static int pop_task(share *s, bool back, bool foreign)
{
    uint64_t now = atomic_load_explicit(&s->range, memory_order_acquire), then;
    uint32_t begin, end;
    do {
        begin = (uint32_t)now, end = (uint32_t)((now & ~STAYS) >> 32);
        if (begin >= end || (foreign && now & STAYS)) return -1;
        then = back ? now - ((uint64_t)1 << 32) : now + 1;
    } while (!atomic_compare_exchange_weak_explicit(&s->range, &now, then, memory_order_acq_rel, memory_order_acquire));
    return (int)(back ? end - 1 : begin);
}

/* Runs the rest of one share. */
static void run_share(ek_pool *p, int whose, int number)
{
    share *own = &p->share[number];
    const bool foreign = p->worker[whose].node != p->worker[number].node;
    for (int t; (t = pop_task(&p->share[whose], whose != number, foreign)) >= 0;) {
        p->fn(p->arg, t, number);
        unsigned finished = atomic_load_explicit(&own->finished, memory_order_relaxed) + 1;
        atomic_store_explicit(&own->finished, finished, memory_order_release);
    }
}

/* The thread's own share comes first, then those of its node, then the others. */
static void run_tasks(ek_pool *p, int number)
{
    const int node = p->worker[number].node, first = p->first[node], n = p->first[node + 1] - first;
    for (int i = 0; i < n; i++) run_share(p, first + (number - first + i) % n, number);
    for (int i = 1; i < p->n_threads && n < p->n_threads; i++) {
        int whose = (number + i) % p->n_threads;
        if (p->worker[whose].node != node) run_share(p, whose, number);
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
    if (p->n_nodes > 1) ek_nodes_bind(&p->nodes, w->node);
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

/* Divides the threads among the nodes by their CPUs. A node without threads is left out. */
static void place_threads(ek_pool *p, const ek_nodes *nodes, int n_threads)
{
    int all = 0, before = 0, n = 0;
    for (int i = 0; i < nodes->n; i++) all += ek_nodes_cpus(nodes, i);
    for (int i = 0; i < nodes->n && nodes->n > 1; i++) {
        before += ek_nodes_cpus(nodes, i);
        int end = (int)(((int64_t)n_threads * before * 2 + all) / (2 * (int64_t)all));
        if (end == p->first[n]) continue;
        memcpy(p->nodes.cpus[n], nodes->cpus[i], sizeof nodes->cpus[i]);
        p->first[++n] = end;
    }
    p->n_nodes = p->nodes.n = n > 1 ? n : 1;
    p->first[p->n_nodes] = n_threads;
    for (int j = 0; j < p->n_nodes; j++)
        for (int i = p->first[j]; i < p->first[j + 1]; i++) p->worker[i] = (struct worker){p, i, j};
}

static ek_err open_on(ek_pool **out, int n_threads, const ek_nodes *nodes)
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
    place_threads(p, nodes, n_threads);
    if (sched_getaffinity(0, sizeof p->everywhere, &p->everywhere)) CPU_ZERO(&p->everywhere);
    for (int i = 1; i < n_threads; i++) {
        if (ek_thread_start(&p->thread[i], work, &p->worker[i]) != 0) {
            ek_pool_close(p);
            return ek_fail(EK_ENOMEM, "thread %d of %d could not be started", i + 1, n_threads);
        }
        p->n_threads = i + 1;
    }
    *out = p;
    return EK_OK;
}

ek_err ek_pool_open(ek_pool **out, int n_threads)
{
    return open_on(out, n_threads, &(ek_nodes){.n = 1});
}

ek_err ek_pool_open_nodes(ek_pool **out, int n_threads, const char *root)
{
    ek_nodes nodes;
    ek_nodes_read(&nodes, root);
    return open_on(out, n_threads, &nodes);
}

void ek_pool_close(ek_pool *p)
{
    if (!p) return;
    ek_pool_leave(p);
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

int ek_pool_nodes(const ek_pool *p)
{
    return p ? p->n_nodes : 1;
}

int ek_pool_node_first(const ek_pool *p, int node)
{
    return p ? p->first[node] : node;
}

/* the pool on whose first node this thread stays */
static _Thread_local const ek_pool *bound;

static void bind_caller(const ek_pool *p)
{
    if (p->n_nodes == 1 || bound == p) return;
    ek_nodes_bind(&p->nodes, 0);
    bound = p;
}

void ek_pool_leave(ek_pool *p)
{
    if (!p || bound != p) return;
    sched_setaffinity(0, sizeof p->everywhere, &p->everywhere);
    bound = NULL;
}

static unsigned finished_by_all(const ek_pool *p)
{
    unsigned sum = 0;
    for (int i = 0; i < p->n_threads; i++) sum += atomic_load_explicit(&p->share[i].finished, memory_order_acquire);
    return sum;
}

/* Gives threads [first, end) tasks [begin, end_task) in contiguous shares. */
static void share_out(ek_pool *p, int first, int end, int begin, int end_task, uint64_t stays)
{
    const uint64_t n = (uint64_t)(end_task - begin), threads = (uint64_t)(end - first);
    for (int i = first; i < end; i++) {
        uint64_t from = (uint64_t)begin + n * (uint64_t)(i - first) / threads;
        uint64_t to = (uint64_t)begin + n * (uint64_t)(i - first + 1) / threads;
        atomic_store_explicit(&p->share[i].range, stays | to << 32 | from, memory_order_release);
    }
}

/* end NULL: the tasks belong to no node. */
static void run_round(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks, const int *end, bool stay)
{
    bind_caller(p);
    p->fn = fn, p->arg = arg;
    const unsigned target = finished_by_all(p) + (unsigned)n_tasks;
    if (!end) share_out(p, 0, p->n_threads, 0, n_tasks, 0);
    for (int j = 0; end && j < p->n_nodes; j++)
        share_out(p, p->first[j], p->first[j + 1], j ? end[j - 1] : 0, end[j], stay ? STAYS : 0);
    start_round(p);
    run_tasks(p, 0);
    /* If there are more threads than cores, a worker may be waiting for this thread's core. */
    for (int i = 0; finished_by_all(p) != target; i++)
        if (i < SPINS) relax();
        else sched_yield();
}

void ek_pool_run(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks)
{
    if (p && p->n_threads > 1 && n_tasks > 1) run_round(p, fn, arg, n_tasks, NULL, false);
    else
        for (int t = 0; t < n_tasks; t++) fn(arg, t, 0);
}

void ek_pool_run_nodes(ek_pool *p, ek_task_fn *fn, void *arg, const int *end, bool stay)
{
    if (ek_pool_nodes(p) > 1) run_round(p, fn, arg, end[p->n_nodes - 1], end, stay);
    else ek_pool_run(p, fn, arg, end[0]);
}
