#define _GNU_SOURCE
#include "base/reserve.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

enum { TRIES = 100 };

static _Atomic(void *) kept;
static size_t kept_bytes; /* set before other threads may allocate */
static _Atomic size_t n_spent;
static pthread_mutex_t giving = PTHREAD_MUTEX_INITIALIZER;

bool ek_reserve_fill(size_t bytes)
{
    if (atomic_load(&kept)) return true;
    kept_bytes = bytes;
    /* in use from the start: a control group's limit would otherwise show when it is too late */
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

/* True if another attempt may succeed. Who comes while another thread gives the reserve back waits until it is given:
 * that thread may be asleep for longer than any number of attempts. */
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
    sched_yield(); /* others may free some of what they took */
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
