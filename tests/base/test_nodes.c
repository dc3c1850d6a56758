/* NUMA nodes: how they are read, which threads a pool gives them, and who runs their tasks. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../support/nodes.h"
#include "base/machine/pool.h"

enum { TASKS = 400, MAX_THREADS = 7 };

static const char *const all[] = {ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n",
                                  ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n"};

static int nodes_of(const char *const *cpus, int n, ek_nodes *out)
{
    char *root = make_nodes(cpus, n);
    ek_nodes_read(out, root);
    remove_nodes(root);
    return out->n;
}

static int my_cpus(int *first, int *last)
{
    cpu_set_t set;
    int n = 0;
    *first = *last = -1;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set)) *last = i, *first = *first < 0 ? i : *first, n++;
    return n;
}

static void lists(void **state)
{
    (void)state;
    ek_nodes s;
    char own[40], rest[40];
    int first, last, n = my_cpus(&first, &last);
    ek_nodes_read(&s, "/nowhere");
    assert_int_equal(s.n, 1);
    assert_int_equal(nodes_of(all, 1, &s), 1);
    assert_int_equal(nodes_of(all, 3, &s), 3);
    assert_int_equal(ek_nodes_cpus(&s, 2), n);
    assert_int_equal(nodes_of(all, 10, &s), EK_MAX_NODES); /* neighbours together */
    assert_int_equal(ek_nodes_cpus(&s, 0), n);
    /* memory without CPUs, and CPUs that are not for this process, have no workers */
    snprintf(own, sizeof own, "%d\n", first);
    snprintf(rest, sizeof rest, "1000-1022,1023,%d-%d\n", first, last);
    assert_int_equal(nodes_of((const char *const[]){"1000-1023\n", own, "\n", "nonsense\n", rest}, 5, &s), 2);
    assert_int_equal(ek_nodes_cpus(&s, 0), 1);
    assert_int_equal(ek_nodes_cpus(&s, 1), n);
    assert_int_equal(nodes_of((const char *const[]){"1000-1023\n", own}, 2, &s), 1);
}

typedef struct seen {
    const ek_pool *pool;
    atomic_int calls[TASKS], by_other;
    int end[EK_MAX_NODES], sleep_us;
    cpu_set_t cpus[MAX_THREADS]; /* on which each thread may run; none: it ran nothing */
} seen;

static int node_of(const ek_pool *p, int worker)
{
    int j = 0;
    while (worker >= ek_pool_node_first(p, j + 1)) j++;
    return j;
}

static void note(void *arg, int task, int worker)
{
    seen *s = arg;
    int node = node_of(s->pool, worker), owner = 0;
    while (task >= s->end[owner]) owner++;
    atomic_fetch_add(&s->calls[task], 1);
    if (node != owner) atomic_fetch_add(&s->by_other, 1);
    if (s->sleep_us) usleep((unsigned)s->sleep_us);
    else sched_getaffinity(0, sizeof s->cpus[worker], &s->cpus[worker]);
}

static void run(ek_pool *p, seen *s, bool stay)
{
    memset(s->calls, 0, sizeof s->calls);
    s->pool = p, s->by_other = 0;
    int n = s->end[ek_pool_nodes(p) - 1];
    ek_pool_run_nodes(p, note, s, s->end, stay);
    for (int i = 0; i < TASKS; i++) assert_int_equal(s->calls[i], i < n);
}

static void shares(void **state)
{
    (void)state;
    static seen s;
    for (int nodes = 2; nodes <= 3; nodes++)
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            ek_pool *p;
            char *root = make_nodes(all, nodes);
            assert_int_equal(ek_pool_open_nodes(&p, threads, root), EK_OK);
            remove_nodes(root);
            int n = ek_pool_nodes(p);
            assert_int_equal(n, threads < nodes ? threads : nodes); /* none without a thread */
            assert_int_equal(ek_pool_node_first(p, 0), 0);
            assert_int_equal(ek_pool_node_first(p, n), threads);
            for (int j = 0; j < n; j++) {
                int has = ek_pool_node_first(p, j + 1) - ek_pool_node_first(p, j);
                assert_in_range(has, threads / nodes ? threads / nodes : 1, threads / nodes + 1);
            }
            for (int round = 0; round < 60; round++) {
                for (int j = 0; j < n; j++) s.end[j] = round % 5 == 4 ? round : (j + 1) * round * 2;
                run(p, &s, round % 2);
                if (round % 2 && n > 1) assert_int_equal(s.by_other, 0);
            }
            ek_pool_close(p);
        }
}

/* A node that has nothing to do helps the other, unless the tasks have to stay. */
static void steals(void **state)
{
    (void)state;
    static seen s = {.end = {40, 40}, .sleep_us = 5000};
    ek_pool *p;
    char *root = make_nodes(all, 2);
    assert_int_equal(ek_pool_open_nodes(&p, 4, root), EK_OK);
    remove_nodes(root);
    run(p, &s, false);
    assert_true(s.by_other > 0);
    run(p, &s, true);
    assert_int_equal(s.by_other, 0);
    ek_pool_close(p);
    ek_pool *none = NULL; /* and no pool is one node */
    s = (seen){.end = {5}};
    ek_pool_run_nodes(none, note, &s, s.end, true);
    assert_int_equal(s.calls[4], 1);
}

/* On which CPUs the threads of two nodes stay, the caller among them, and that it may leave. */
static void stays(void **state)
{
    (void)state;
    static seen s = {.end = {8, 16}};
    int first, last;
    if (my_cpus(&first, &last) < 2) skip();
    char cpu[2][16];
    cpu_set_t before, after;
    ek_pool *p;
    snprintf(cpu[0], sizeof cpu[0], "%d\n", last);
    snprintf(cpu[1], sizeof cpu[1], "%d\n", first);
    char *root = make_nodes((const char *const[]){cpu[0], cpu[1]}, 2);
    sched_getaffinity(0, sizeof before, &before);
    assert_int_equal(ek_pool_open_nodes(&p, 4, root), EK_OK);
    remove_nodes(root);
    for (int round = 0; round < 3; round++) {
        memset(s.cpus, 0, sizeof s.cpus);
        run(p, &s, true);
        for (int i = 0; i < 4; i++) {
            int n = CPU_COUNT(&s.cpus[i]);
            assert_in_range(n, 0, 1);
            assert_true(n == 0 || CPU_ISSET((size_t)(i < 2 ? last : first), &s.cpus[i]));
        }
        sched_getaffinity(0, sizeof after, &after);
        assert_int_equal(CPU_COUNT(&after), 1);
        if (round < 2) ek_pool_leave(p);
        else ek_pool_close(p);
        sched_getaffinity(0, sizeof after, &after);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

/* One node: nobody is bound. */
static void one_node(void **state)
{
    (void)state;
    static seen s = {.end = {50}};
    cpu_set_t before;
    ek_pool *p;
    char *root = make_nodes(all, 1);
    sched_getaffinity(0, sizeof before, &before);
    assert_int_equal(ek_pool_open_nodes(&p, 3, root), EK_OK);
    remove_nodes(root);
    assert_int_equal(ek_pool_nodes(p), 1);
    run(p, &s, true);
    for (int i = 0; i < 3; i++) assert_true(!CPU_COUNT(&s.cpus[i]) || CPU_EQUAL(&before, &s.cpus[i]));
    ek_pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists), cmocka_unit_test(shares),   cmocka_unit_test(steals),
        cmocka_unit_test(stays), cmocka_unit_test(one_node),
    };
    return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
