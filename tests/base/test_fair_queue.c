/* Turns between clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/fair_queue.h"

enum { MAX = 2000 };

/* What waits; the next is the one with the lowest place, of equal ones the first. */
static struct {
    uint64_t client, place;
} queue[MAX];
static int n_queue;
static ek_fair_queue turns;

static void ask(uint64_t client, int n, uint64_t cost)
{
    for (int i = 0; i < n; i++, n_queue++) {
        queue[n_queue].client = client;
        queue[n_queue].place = ek_fair_queue_enter(&turns, client, cost);
    }
}

static uint64_t serve(void)
{
    int best = 0;
    for (int i = 1; i < n_queue; i++)
        if (queue[i].place < queue[best].place) best = i;
    uint64_t client = queue[best].client;
    ek_fair_queue_begin(&turns, queue[best].place);
    memmove(queue + best, queue + best + 1, (size_t)(n_queue - best - 1) * sizeof *queue);
    n_queue--;
    ek_fair_queue_leave(&turns, client);
    return client;
}

static int start(void **state)
{
    (void)state;
    ek_fair_queue_fini(&turns);
    n_queue = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    ek_fair_queue_fini(&turns);
    return 0;
}

static void one_waits_for_what_runs_alone(void **state)
{
    (void)state;
    ask(1, 300, 10);
    for (int i = 0; i < 40; i++) serve();
    ask(2, 1, 10);
    assert_int_equal(serve(), 2);
    for (int i = 0; i < 20; i++) { /* one after the other: it does not starve the many either */
        ask(2, 1, 10);
        assert_int_equal(serve() + serve(), 3);
    }
}

static void shares_by_cost(void **state)
{
    (void)state;
    ask(1, 300, 30);
    ask(2, 300, 10);
    int n[3] = {0};
    for (int i = 0; i < 200; i++) n[serve()]++;
    assert_in_range(n[1], 48, 52);
}

static void order_of_one(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t place = ek_fair_queue_enter(&turns, 7, (uint64_t)(i % 3));
        assert_true(i == 0 || place > last);
        last = place;
    }
}

/* Nobody pays for what is long over, nor for what was given up. */
static void a_fresh_start(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) ek_fair_queue_enter(&turns, 1, 10);
    for (int i = 0; i < 500; i++) ek_fair_queue_leave(&turns, 1);
    ask(1, 1, 10);
    ask(2, 1, 10);
    assert_int_equal(serve(), 1);
    assert_int_equal(serve(), 2);
    for (uint64_t i = 0; i < 100000; i++) { /* strangers leave nothing behind */
        uint64_t place = ek_fair_queue_enter(&turns, i, 1);
        ek_fair_queue_begin(&turns, place);
        ek_fair_queue_leave(&turns, i);
    }
    assert_true(turns.cap < 10000);
}

static void room_for_others(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_true(ek_fair_queue_has_room(&turns, 1, 10));
        ask(1, 1, 1);
    }
    assert_false(ek_fair_queue_has_room(&turns, 1, 10)); /* alone it has all */
    for (int i = 0; i < 5; i++) {
        assert_true(ek_fair_queue_has_room(&turns, 2, 10)); /* and others an equal share */
        ask(2, 1, 1);
    }
    assert_false(ek_fair_queue_has_room(&turns, 2, 10));
    for (uint64_t c = 3; turns.n < 20; c++) {
        assert_true(ek_fair_queue_has_room(&turns, c, 10));
        ask(c, 1, 1);
    }
    assert_false(ek_fair_queue_has_room(&turns, 100, 10)); /* twice as many are the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_waits_for_what_runs_alone, start, end),
        cmocka_unit_test_setup_teardown(shares_by_cost, start, end),
        cmocka_unit_test_setup_teardown(order_of_one, start, end),
        cmocka_unit_test_setup_teardown(a_fresh_start, start, end),
        cmocka_unit_test_setup_teardown(room_for_others, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
