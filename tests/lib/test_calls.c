/* Threads, a caller's pool, calls at the same moment, the caller's rounding mode, a fork. */
/* tier: all */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "ref.h"

/* A bit of everything, into y. */
typedef struct mix {
    ek_view x, w, q, k, v, y, o, n;
    ek_qview qw;
} mix;

static mix mix_new(void)
{
    mix m = {.x = ref_normals(EK_TYPE_F32, 1, 1, 2, 5, 512),
             .w = ref_normals(EK_TYPE_F32, 2, 1, 2, 300, 512),
             .q = ref_normals(EK_TYPE_F32, 3, 1, 4, 1, 4, 3, 64),
             .k = ref_normals(EK_TYPE_BF16, 4, 1, 4, 1, 2, 1500, 64),
             .v = ref_normals(EK_TYPE_BF16, 5, 1, 4, 1, 2, 1500, 64)};
    m.qw = ref_quantised(EK_AFFINE, 4, 64, &m.w);
    m.y = ref_new(EK_TYPE_F32, 2, 5, 300), m.o = ref_new(EK_TYPE_F32, 4, 1, 4, 3, 64),
    m.n = ref_new(EK_TYPE_F32, 2, 5, 512);
    return m;
}

static mix outputs(const mix *m)
{
    mix c = *m;
    c.y = ref_like(&m->y, EK_TYPE_F32), c.o = ref_like(&m->o, EK_TYPE_F32), c.n = ref_like(&m->n, EK_TYPE_F32);
    return c;
}

static ek_status run(mix *m)
{
    ek_status s = ek_quantized_matmul(m->y, m->x, &m->qw, true, EK_EXACT);
    if (s == EK_DONE) s = ek_sdpa(m->o, m->q, m->k, m->v, &(ek_sdpa_options){.causal = true});
    if (s == EK_DONE) s = ek_rms_norm(m->n, m->x, NULL, 1e-6f);
    return s;
}

static void same(const mix *a, const mix *b, const char *what)
{
    ref_same(&a->y, &b->y, "product, %s", what);
    ref_same(&a->o, &b->o, "attention, %s", what);
    ref_same(&a->n, &b->n, "norm, %s", what);
}

static void test_threads(void **state)
{
    (void)state;
    mix m = mix_new();
    MUST(ek_set_threads(1));
    MUST(run(&m));
    for (int n = 0; n <= 16; n = n * 2 + 1) {
        mix c = outputs(&m);
        MUST(ek_set_threads(n));
        assert_true(n == 0 ? ek_get_threads() >= 1 : ek_get_threads() == n);
        MUST(run(&c));
        same(&m, &c, "threads");
    }
    assert_int_equal(ek_set_threads(-1), EK_BAD_ARGUMENT);
    assert_int_equal(ek_set_threads(1025), EK_BAD_ARGUMENT);
    assert_non_null(strstr(ek_last_error(), "1025"));
    MUST(ek_set_threads(0));
    ref_free_all();
}

/* The number of cores is read by the first call and by ek_set_threads, not by every call: a quota's files take 78 us.
 */
static void test_cores(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    MUST(ek_set_threads(0));
    const int cores = ek_get_threads();
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ek_get_threads(), cores);
    MUST(ek_set_threads(0));
    assert_int_equal(ek_get_threads(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    MUST(ek_set_threads(0));
    assert_int_equal(ek_get_threads(), cores);
}

/* ------------------------------------------------------------------ a caller's pool */

typedef struct backwards {
    atomic_int tasks, rounds;
    int threads;
} backwards;

typedef struct slice {
    ek_pool_task *task;
    void *arg;
    int from, to;
} slice;

static void *run_slice(void *arg)
{
    slice *s = arg;
    for (int i = s->to - 1; i >= s->from; i--) s->task(s->arg, i);
    return NULL;
}

static void run_backwards(void *context, ek_pool_task *task, void *arg, int n_tasks)
{
    backwards *b = context;
    pthread_t t[4];
    slice s[4];
    atomic_fetch_add(&b->tasks, n_tasks);
    atomic_fetch_add(&b->rounds, 1);
    for (int i = 0; i < b->threads; i++) {
        s[i] = (slice){task, arg, n_tasks * i / b->threads, n_tasks * (i + 1) / b->threads};
        if (pthread_create(&t[i], NULL, run_slice, &s[i])) abort();
    }
    for (int i = 0; i < b->threads; i++) pthread_join(t[i], NULL);
}

static void test_hook(void **state)
{
    (void)state;
    mix m = mix_new(), c = outputs(&m);
    MUST(run(&m));
    backwards b = {.threads = 3};
    MUST(ek_set_pool(&(ek_pool_hook){&b, 3, run_backwards}));
    assert_int_equal(ek_get_threads(), 3);
    MUST(run(&c));
    same(&m, &c, "a caller's pool");
    assert_true(b.rounds >= 3 && b.tasks > b.rounds);
    assert_int_equal(ek_set_pool(&(ek_pool_hook){&b, 0, run_backwards}), EK_BAD_ARGUMENT);
    assert_int_equal(ek_set_pool(&(ek_pool_hook){&b, 2, NULL}), EK_BAD_ARGUMENT);
    MUST(ek_set_pool(NULL));
    int rounds = b.rounds;
    MUST(run(&c));
    assert_int_equal(rounds, b.rounds);
    ref_free_all();
}

/* ------------------------------------------------------------------ at the same moment */

typedef struct caller {
    mix m;
    const mix *want;
    pthread_t thread;
    bool failed;
    int number;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    for (int i = 0; i < 40; i++) {
        memset(c->m.y.data, 0, 5 * 300 * 4);
        if (run(&c->m) != EK_DONE || memcmp(c->m.y.data, c->want->y.data, 5 * 300 * 4) ||
            memcmp(c->m.o.data, c->want->o.data, 4 * 3 * 64 * 4) || memcmp(c->m.n.data, c->want->n.data, 5 * 512 * 4))
            c->failed = true;
        if (c->number == 0 && ek_set_threads(1 + i % 4) != EK_DONE) c->failed = true;
        char want[32]; /* each thread has its own sentence */
        snprintf(want, sizeof want, "%d", 2000 + c->number);
        if (ek_set_threads(2000 + c->number) != EK_BAD_ARGUMENT || !strstr(ek_last_error(), want)) c->failed = true;
    }
    return NULL;
}

static void test_concurrent(void **state)
{
    (void)state;
    enum { CALLERS = 6 };
    mix m = mix_new();
    MUST(run(&m));
    caller c[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        c[i] = (caller){.m = outputs(&m), .want = &m, .number = i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(c[i].thread, NULL);
    for (int i = 0; i < CALLERS; i++) assert_false(c[i].failed);
    MUST(ek_set_threads(0));
    ref_free_all();
}

/* A caller that rounds upwards and flushes denormals gets the same bits, and its own mode back. */
static void test_rounding_mode(void **state)
{
    (void)state;
    mix m = mix_new(), c = outputs(&m);
    for (int i = 0; i < 512; i++) ref_set(&m.x, i, ldexp(ref_get(&m.x, i), -128)); /* denormals */
    MUST(run(&m));
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    unsigned was = _mm_getcsr();
    _mm_setcsr(was | 0x8040);
#endif
    ek_status s = run(&c);
    assert_int_equal(fegetround(), FE_UPWARD);
#if defined(__x86_64__)
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040);
    _mm_setcsr(was);
#endif
    fesetround(FE_TONEAREST);
    assert_int_equal(s, EK_DONE);
    same(&m, &c, "another rounding mode");
    ref_free_all();
}

static void test_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* that sanitizer ends a child that starts threads */
#endif
    mix m = mix_new(), c = outputs(&m);
    MUST(ek_set_threads(3));
    MUST(run(&m));
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool ok = run(&c) == EK_DONE && memcmp(c.y.data, m.y.data, 5 * 300 * 4) == 0 &&
                  memcmp(c.o.data, m.o.data, 4 * 3 * 64 * 4) == 0;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    MUST(ek_set_threads(0));
    ref_free_all();
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(ek_status_name(EK_DONE), "done");
    assert_string_equal(ek_status_name((ek_status)99), "unknown status");
    assert_non_null(strchr(ek_version(), '.'));
    static const char *const isas[] = {"scalar", "avx2", "avxvnni", "avx512", "amx", "dotprod", "i8mm"};
    bool known = false;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) known = known || strcmp(ek_isa(), isas[i]) == 0;
    assert_true(known);
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_cores),         cmocka_unit_test(test_hook),
        cmocka_unit_test(test_concurrent), cmocka_unit_test(test_rounding_mode), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
