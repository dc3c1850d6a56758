/* Threads and working memory. There is one lock. Its holder uses the pool and the memory that is kept with it. A call
 * that finds the lock taken works alone with its own memory. */
#define _GNU_SOURCE
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/machine/cpu.h"
#include "base/machine/pool.h"
#include "lib/lib.h"
#include "ops/bf16_step.h"

enum { FIRST_BLOCK = 1 << 20, MAX_KEPT = 64 << 20 /* bytes of working memory kept between calls */ };

struct block {
    struct block *next;
    size_t size, used;
};

typedef struct lib_blocks {
    struct block *first;
} lib_blocks;

enum { BLOCK_HEAD = 64 };

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    int n_threads; /* 0: as many threads as cores */
    int n_cores;   /* kept, because reading a quota's files takes longer than a small call */
    bool hooked;
    ek_pool_hook hook;
    ek_pool *pool; /* opened by the first call with several tasks */
    lib_blocks memory;
    atomic_uint cpu;
    bool sound; /* the machine passed its check of arithmetic */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* A forked child has none of the threads, and the lock may be in any state. */
static void after_fork(void)
{
    pthread_mutex_init(&state.lock, NULL);
    state.pool = NULL;
    state.memory.first = NULL;
}

static void start(void)
{
    pthread_atfork(NULL, NULL, after_fork);
    fenv_t was;
    fegetenv(&was);
    fesetenv(FE_DFL_ENV);
    state.sound = ek_cpu_float_check() == EK_OK;
    unsigned cpu = ek_cpu_detect();
#if defined(__x86_64__)
    if (cpu & EK_CPU_BF16 && !ek_bf16_sound()) cpu &= ~EK_CPU_BF16;
#endif
    fesetenv(&was);
    atomic_store(&state.cpu, cpu);
    state.n_cores = ek_cpu_count();
}

void lib_force_cpu(unsigned cpu)
{
    pthread_once(&state.once, start);
    atomic_store(&state.cpu, cpu);
}

unsigned lib_cpu(void)
{
    pthread_once(&state.once, start);
    return atomic_load(&state.cpu);
}

static int threads(void)
{
    return state.hooked ? state.hook.threads : state.n_threads ? state.n_threads : state.n_cores;
}

/* ------------------------------------------------------------------ memory */

static void free_blocks(lib_blocks *m)
{
    for (struct block *b = m->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    m->first = NULL;
}

static struct block *add_block(lib_blocks *m, size_t room)
{
    size_t size = room > FIRST_BLOCK ? room : FIRST_BLOCK;
    if (size > SIZE_MAX / 2) return NULL;
    struct block *b = aligned_alloc(64, BLOCK_HEAD + (size + 63) / 64 * 64);
    if (!b) return NULL;
    *b = (struct block){.next = m->first, .size = (size + 63) / 64 * 64};
    return m->first = b;
}

/* Leaves one block that would have held all of the call's memory, so that the next such call needs no other block. */
static void settle(lib_blocks *m)
{
    struct block *b = m->first;
    if (!b) return;
    b->used = 0;
    if (!b->next && b->size <= MAX_KEPT) return;
    size_t total = 0;
    for (; b; b = b->next) total += b->size;
    free_blocks(m);
    if (total <= MAX_KEPT) add_block(m, total);
}

void *lib_take(lib_call *c, size_t n)
{
    struct block *b = c->memory->first;
    if (n > SIZE_MAX / 4) goto none;
    n = (n + 63) / 64 * 64;
    if (!b || b->size - b->used < n) b = add_block(c->memory, n);
    if (!b) goto none;
    void *p = (char *)b + BLOCK_HEAD + b->used;
    b->used += n;
    return p;
none:
    ek_fail(EK_ENOMEM, "no memory for %zu bytes of working space", n);
    return NULL;
}

void *lib_take_array(lib_call *c, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) n = SIZE_MAX;
    return lib_take(c, n);
}

/* ------------------------------------------------------------------ calls */

static ek_err no_machine(void)
{
    fenv_t was;
    fegetenv(&was);
    fesetenv(FE_DFL_ENV);
    ek_err e = ek_cpu_float_check();
    fesetenv(&was);
    return ek_fail_in(e == EK_OK ? EK_EINTERNAL : e, "this machine cannot keep the promise");
}

ek_err lib_enter(lib_call *c)
{
    pthread_once(&state.once, start);
    if (!state.sound) return no_machine();
    *c = (lib_call){.cpu = atomic_load(&state.cpu), .n_workers = 1};
    if (pthread_mutex_trylock(&state.lock) == 0) {
        c->memory = &state.memory;
        c->n_workers = threads();
        return EK_OK;
    }
    c->alone = true;
    c->memory = c->own = calloc(1, sizeof *c->own);
    return c->own ? EK_OK : ek_fail(EK_ENOMEM, "no memory for a call");
}

void lib_leave(lib_call *c)
{
    if (!c->memory) return;
    if (c->alone) {
        free_blocks(c->own);
        free(c->own);
    } else {
        settle(&state.memory);
        pthread_mutex_unlock(&state.lock);
    }
}

typedef struct batch {
    lib_task *fn;
    void *arg;
    int64_t n_tasks;
    int n_parts, n_slots;
    atomic_bool *busy; /* per worker slot */
} batch;

/* Runs one part of the tasks. The parts are as equal as possible; there are at most 2^30. */
static void run_part(const batch *r, int part, int worker)
{
    fenv_t was;
    fegetenv(&was);
    fesetenv(FE_DFL_ENV);
    int64_t per = r->n_tasks / r->n_parts, rest = r->n_tasks % r->n_parts;
    int64_t from = part * per + (part < rest ? part : rest), to = from + per + (part < rest);
    for (int64_t t = from; t < to; t++) r->fn(r->arg, t, worker);
    fesetenv(&was);
}

static void run_own(void *arg, int part, int worker)
{
    run_part(arg, part, worker);
}

/* A caller's pool does not number its threads, so a task takes a free slot of working memory. */
static void run_hooked(void *arg, int part)
{
    const batch *r = arg;
    for (int slot = 0;; slot = (slot + 1) % r->n_slots) {
        if (!atomic_exchange_explicit(&r->busy[slot], true, memory_order_acquire)) {
            run_part(r, part, slot);
            atomic_store_explicit(&r->busy[slot], false, memory_order_release);
            return;
        }
        if (slot == r->n_slots - 1) sched_yield();
    }
}

void lib_run(lib_call *c, lib_task *fn, void *arg, int64_t n_tasks)
{
    if (n_tasks < 1) return;
    batch r = {fn, arg, n_tasks, n_tasks < 1 << 30 ? (int)n_tasks : 1 << 30, c->n_workers, NULL};
    if (c->n_workers > 1 && n_tasks > 1) {
        if (state.hooked) {
            r.busy = lib_take_array(c, (size_t)r.n_slots, sizeof *r.busy);
            if (r.busy) {
                for (int i = 0; i < r.n_slots; i++) atomic_init(&r.busy[i], false);
                state.hook.run(state.hook.context, run_hooked, &r, r.n_parts);
                return;
            }
        } else if (state.pool || ek_pool_open(&state.pool, c->n_workers) == EK_OK) {
            ek_pool_run(state.pool, run_own, &r, r.n_parts);
            return;
        }
    }
    r.n_parts = 1; /* alone, or nothing can be shared */
    run_part(&r, 0, 0);
}

/* ------------------------------------------------------------------ public */

static void drop_pool(void)
{
    ek_pool_close(state.pool);
    state.pool = NULL;
}

ek_status ek_set_threads(int n_threads)
{
    if (n_threads < 0 || n_threads > 1024)
        return lib_status(
            ek_fail(EK_EINVAL, "%d threads asked for, 1 to 1024 are possible and 0 for all cores", n_threads));
    pthread_once(&state.once, start);
    pthread_mutex_lock(&state.lock);
    drop_pool();
    state.n_threads = n_threads;
    if (n_threads == 0) state.n_cores = ek_cpu_count();
    pthread_mutex_unlock(&state.lock);
    return EK_DONE;
}

int ek_get_threads(void)
{
    pthread_once(&state.once, start);
    pthread_mutex_lock(&state.lock);
    int n = threads();
    pthread_mutex_unlock(&state.lock);
    return n;
}

ek_status ek_set_pool(const ek_pool_hook *hook)
{
    if (hook && (!hook->run || hook->threads < 1 || hook->threads > 1024))
        return lib_status(ek_fail(EK_EINVAL, "a pool of %d threads %s a run function; 1 to 1024 are possible",
                                  hook->threads, hook->run ? "with" : "without"));
    pthread_mutex_lock(&state.lock);
    drop_pool();
    state.hooked = hook != NULL;
    if (hook) state.hook = *hook;
    pthread_mutex_unlock(&state.lock);
    return EK_DONE;
}

const char *ek_isa(void)
{
    return ek_cpu_isa(lib_cpu());
}

const char *ek_version(void)
{
    return EK_VERSION;
}

const char *ek_last_error(void)
{
    return ek_err_text();
}

const char *ek_status_name(ek_status status)
{
    static const char *const name[] = {"done",        "bad argument", "not supported", "no memory",
                                       "bad machine", "not found",    "bad file",      "too long",
                                       "busy",        "closing",      "failed"};
    return (unsigned)status < sizeof name / sizeof *name ? name[status] : "unknown status";
}

ek_status lib_status(ek_err e)
{
    switch (e) {
    case EK_OK: return EK_DONE;
    case EK_ENOMEM: return EK_NO_MEMORY;
    case EK_EUNSUPPORTED: return EK_NOT_SUPPORTED;
    case EK_EINTERNAL: return EK_BAD_MACHINE;
    default: return EK_BAD_ARGUMENT;
    }
}

/* A shared object may be unloaded, so its threads have to end before. */
__attribute__((destructor)) static void stop(void)
{
    if (pthread_mutex_trylock(&state.lock) != 0) return;
    drop_pool();
    free_blocks(&state.memory);
    pthread_mutex_unlock(&state.lock);
}
