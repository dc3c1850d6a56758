#define _GNU_SOURCE
#include "base/alloc.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/linux.h"
#include "base/log.h"

void *ek_alloc(size_t n)
{
    return ek_reserve_calloc(n ? n : 1);
}

void *ek_realloc(void *p, size_t n)
{
    return ek_reserve_realloc(p, n);
}

char *ek_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(ek_alloc(n), s, n);
}

enum { HUGE_PAGE = 2 << 20 };

static uint8_t *map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Maps n bytes at a multiple of a huge page. */
static uint8_t *map_aligned(size_t n)
{
    const size_t page = 4096, whole = (n + page - 1) / page * page;
    uint8_t *p = map(whole + HUGE_PAGE);
    if (!p) return map(n);
    const size_t before = -(uintptr_t)p % HUGE_PAGE;
    if (before) munmap(p, before);
    munmap(p + before + whole, HUGE_PAGE - before);
    return p + before;
}

void *ek_alloc_big(size_t n)
{
    void *p = n < HUGE_PAGE ? map(n ? n : 1) : map_aligned(n);
    if (!p) {
        ek_fail(EK_ENOMEM, "the system refused %zu bytes", n);
        return NULL;
    }
    /* Huge pages save most TLB misses of a stream of weights. If the system refuses them, nothing is lost. */
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

void ek_free_big(void *p, size_t n)
{
    if (p) munmap(p, n ? n : 1);
}

enum { TRIES = 100 };

static _Atomic(void *) kept;
static size_t kept_bytes; /* set before other threads may allocate */
static _Atomic size_t n_spent;
static pthread_mutex_t giving = PTHREAD_MUTEX_INITIALIZER;

bool ek_reserve_fill(size_t bytes)
{
    if (atomic_load(&kept)) return true;
    kept_bytes = bytes;
    /* taken at the start, because a control group's limit would otherwise show only in an emergency */
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
         *none = NULL;
    if (p == MAP_FAILED) return false;
    if (!atomic_compare_exchange_strong(&kept, &none, p)) munmap(p, bytes);
    return true;
}

bool ek_reserve_is_spent(void)
{
    return kept_bytes > 0 && !atomic_load(&kept);
}

size_t ek_reserve_times_spent(void)
{
    return atomic_load(&n_spent);
}

/* True if another attempt may succeed. While a thread gives the reserve back, other threads wait, because that thread
 * may sleep for longer than any number of attempts takes. */
static bool spend(int tries)
{
    pthread_mutex_lock(&giving);
    void *p = atomic_exchange(&kept, NULL);
    if (p) {
        munmap(p, kept_bytes);
        atomic_fetch_add(&n_spent, 1);
    }
    pthread_mutex_unlock(&giving);
    if (p) return true;
    if (kept_bytes == 0 || tries >= TRIES) return false;
    sched_yield(); /* other threads may free memory */
    return true;
}

static void *must(void *p, size_t n)
{
    if (p || n == 0) return p;
    char words[80];
    ek_log_last_words(words, (size_t)snprintf(words, sizeof words, "evenkeel: no memory for %zu bytes\n", n));
    _exit(1);
}

void *ek_reserve_malloc(size_t n)
{
    void *p = malloc(n);
    for (int i = 0; !p && n > 0 && spend(i); i++) p = malloc(n);
    return must(p, n);
}

void *ek_reserve_calloc(size_t n)
{
    void *p = calloc(1, n);
    for (int i = 0; !p && n > 0 && spend(i); i++) p = calloc(1, n);
    return must(p, n);
}

void *ek_reserve_realloc(void *old, size_t n)
{
    void *p = realloc(old, n);
    for (int i = 0; !p && n > 0 && spend(i); i++) p = realloc(old, n);
    return must(p, n);
}
