/* serve/threads/workers: of one client no more jobs run at a time than its share, and others find a thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <event2/event.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/http.h"
#include "serve/threads/threads.h"

enum { THREADS = 4, SHARE = 2, JOBS = 10, CLIENTS = 3 };

static atomic_bool let_go;
static atomic_int now[CLIENTS + 1], max[CLIENTS + 1], ended[CLIENTS + 1];

static void run(ek_job *j)
{
    const int n = atomic_fetch_add(&now[j->client], 1) + 1;
    if (n > atomic_load(&max[j->client])) atomic_store(&max[j->client], n);
    while (j->client == 1 && !atomic_load(&let_go)) usleep(1000);
    atomic_fetch_sub(&now[j->client], 1);
    atomic_fetch_add(&ended[j->client], 1);
}

static void done(ek_job *j)
{
    (void)j;
}

static void one_client_leaves_threads_to_others(void **state)
{
    (void)state;
    ek_loop loop = {.base = event_base_new()};
    ek_workers *w;
    ek_job job[CLIENTS][JOBS];
    assert_int_equal(ek_workers_open(&w, &loop, THREADS, 64), EK_OK);
    ek_workers_set_share(w, SHARE);
    for (int c = 0; c < CLIENTS; c++)
        for (int i = 0; i < JOBS; i++) {
            job[c][i] = (ek_job){.run = run, .done = done, .large = i % 2, .client = (uint64_t)c + 1, .cost = 1};
            assert_int_equal(ek_workers_add(w, &job[c][i]), EK_OK);
        }
    /* The first client's run on and on, and all of the others' come to their end. */
    for (double end = ek_now() + 10; ek_now() < end && atomic_load(&ended[2]) + atomic_load(&ended[3]) < 2 * JOBS;)
        usleep(1000);
    assert_int_equal(atomic_load(&ended[2]), JOBS);
    assert_int_equal(atomic_load(&ended[3]), JOBS);
    assert_int_equal(atomic_load(&now[1]), SHARE);
    atomic_store(&let_go, true);
    ek_workers_close(w);
    assert_int_equal(atomic_load(&ended[1]), JOBS);
    for (int c = 1; c <= CLIENTS; c++) assert_in_range(atomic_load(&max[c]), 1, SHARE);
    event_base_free(loop.base);
}

/* --- slow ones --- */

static atomic_int slow_running, max_slow_running, quick_ended;

/* As a thread that waits for a decoder: until it is let go. */
static void run_slow(ek_job *j)
{
    const int n = atomic_fetch_add(&slow_running, 1) + 1;
    (void)j;
    if (n > atomic_load(&max_slow_running)) atomic_store(&max_slow_running, n);
    while (!atomic_load(&let_go)) usleep(1000);
    atomic_fetch_sub(&slow_running, 1);
}

static void run_quick(ek_job *j)
{
    (void)j;
    atomic_fetch_add(&quick_ended, 1);
}

static void wait_for(atomic_int *n, int want)
{
    for (double end = ek_now() + 10; ek_now() < end && atomic_load(n) < want;) usleep(1000);
    assert_int_equal(atomic_load(n), want);
}

/* Slow bodies of one client take the place for large ones and half of the spare threads, a second client's one more
 * thread: bodies of a third pass all the same. */
static void slow_ones_hold_up_nobody(void **state)
{
    enum { SPARE = 4, SLOW_ONES = 8, FIRST = 1 + SPARE / 2 };
    (void)state;
    ek_loop loop = {.base = event_base_new()};
    ek_workers *w;
    ek_job job[2 * SLOW_ONES], quick[3];
    atomic_store(&let_go, false);
    assert_int_equal(ek_workers_open_spare(&w, &loop, 2, SPARE, 64), EK_OK);
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < SLOW_ONES; i++) {
            ek_job *j = &job[c * SLOW_ONES + i];
            *j = (ek_job){.run = run_slow, .done = done, .large = true, .client = (uint64_t)c + 1, .cost = 1};
            assert_int_equal(ek_workers_add(w, j), EK_OK);
        }
        wait_for(&slow_running, FIRST + c);
        quick[c] = (ek_job){.run = run_quick, .done = done, .large = true, .client = 100, .cost = 1};
        assert_int_equal(ek_workers_add(w, &quick[c]), EK_OK);
        wait_for(&quick_ended, c + 1);
    }
    quick[2] = (ek_job){.run = run_quick, .done = done, .client = 1, .cost = 1};
    assert_int_equal(ek_workers_add(w, &quick[2]), EK_OK); /* a small one has a thread of its own */
    wait_for(&quick_ended, 3);
    assert_int_equal(atomic_load(&max_slow_running), FIRST + 1);
    atomic_store(&let_go, true);
    ek_workers_close(w);
    event_base_free(loop.base);
}

/* --- small ones, of which there may be ten thousand a second --- */

enum { SMALL_ONES = 400 };

typedef struct small_ones {
    ek_loop *loop;
    ek_workers *w;
    ek_job job;
    int n;
} small_ones;

static void run_nothing(ek_job *j)
{
    (void)j;
}

static void next_small(ek_job *j)
{
    small_ones *s = (small_ones *)(void *)((char *)j - offsetof(small_ones, job));
    if (++s->n == SMALL_ONES) ek_loop_stop(s->loop);
    else ek_workers_add_always(s->w, j);
}

/* One wakes a thread, and that one the event loop: all others sleep on. */
static void a_small_job_wakes_one_thread(void **state)
{
    (void)state;
    struct rusage before, after;
    ek_loop loop = {.base = event_base_new()};
    small_ones s = {.loop = &loop, .job = {.run = run_nothing, .done = next_small, .client = 1, .cost = 1}};
    assert_int_equal(ek_workers_open_spare(&s.w, &loop, 2, 6, 64), EK_OK);
    ek_workers_add_always(s.w, &s.job);
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(ek_loop_run(&loop), 0);
    getrusage(RUSAGE_SELF, &after);
    const double each = (double)(after.ru_nvcsw - before.ru_nvcsw) / SMALL_ONES;
    printf("measured: %.1f waits of threads for each small job\n", each);
    assert_true(each < 4);
    ek_workers_close(s.w);
    event_base_free(loop.base);
}

/* --- turns --- */

static atomic_int n_order;
static uint64_t order[32];

static void run_long(ek_job *j)
{
    order[atomic_fetch_add(&n_order, 1)] = j->client;
    if (j->client == 1) j->elsewhere = 1000000; /* what its decoder took */
    usleep(2000);
}

/* One client has many bodies that take long, and look as the other's one: that one comes second at the latest, and the
 * next of it too, because time was spent for the first client. */
static void turns_are_of_time_spent(void **state)
{
    enum { MANY = 10 };
    (void)state;
    ek_loop loop = {.base = event_base_new()};
    ek_workers *w;
    ek_job job[MANY + 3];
    assert_int_equal(ek_workers_open(&w, &loop, 1, 64), EK_OK);
    for (int i = 0; i < MANY + 3; i++) {
        job[i] = (ek_job){.run = run_long, .done = done, .large = true, .client = i < MANY ? 1 : 2, .cost = 1000};
        assert_int_equal(ek_workers_add(w, &job[i]), EK_OK);
    }
    ek_workers_close(w);
    int last = 0, first = 0;
    for (int i = 0; i < MANY + 3; i++)
        if (order[i] == 2) last = i;
    while (order[first] == 1) first++;
    assert_in_range(first, 0, 2);
    assert_in_range(last, 0, 5); /* three of its own, and two of the other's before its time was known */
    event_base_free(loop.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_client_leaves_threads_to_others),
        cmocka_unit_test(slow_ones_hold_up_nobody),
        cmocka_unit_test(a_small_job_wakes_one_thread),
        cmocka_unit_test(turns_are_of_time_spent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
