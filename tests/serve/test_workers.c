/* serve/threads/workers: of one client no more jobs run at a time than its share, and others find a thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <event2/event.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/loop.h"
#include "serve/threads/workers.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_client_leaves_threads_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
