/* The reserve, of a system that gives no memory and takes its time over what is given back: every thread that is
 * refused waits for the one that spends the reserve, and none ends the program. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#ifdef EK_SANITIZED
static void all_wait_for_what_is_given_back(void **state)
{
    (void)state;
    skip(); /* the allocator is the sanitizer's */
}
#else

enum { THREADS = 4, ROUNDS = 10, RESERVE = 1 << 20 };

void *__libc_malloc(size_t n);

static _Thread_local bool refusable;
static atomic_bool none_left;

void *malloc(size_t n)
{
    if (!refusable || !atomic_load(&none_left)) return __libc_malloc(n);
    errno = ENOMEM;
    return NULL;
}

/* The reserve comes back late, as from a thread that another program interrupts. */
int munmap(void *p, size_t n)
{
    if (n == RESERVE) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        atomic_store(&none_left, false);
    }
    return (int)syscall(SYS_munmap, p, n);
}

static void *take(void *arg)
{
    pthread_barrier_wait(arg);
    refusable = true;
    void *p = ek_reserve_malloc(100);
    refusable = false;
    free(p);
    return NULL;
}

static void all_wait_for_what_is_given_back(void **state)
{
    (void)state;
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_t thread[THREADS];
        pthread_barrier_t start;
        assert_true(ek_reserve_fill(RESERVE));
        assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
        atomic_store(&none_left, true);
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, take, &start), 0);
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
        pthread_barrier_destroy(&start);
        assert_true(ek_reserve_is_spent());
        assert_int_equal(ek_reserve_times_spent(), round + 1);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_wait_for_what_is_given_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
