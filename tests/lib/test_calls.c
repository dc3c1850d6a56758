/* Threads, a caller's pool, calls at the same moment, the caller's rounding mode, a fork; and the
 * row operators. */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
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

/* ------------------------------------------------------------------ rows */

static void test_rms_norm(void **state)
{
    (void)state;
    static const int sizes[] = {1, 7, 64, 255, 256, 257, 1536, 5376};
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++)
        for (int s = 0; s < 8; s++)
            for (int weighted = 0; weighted < 2; weighted++) {
                int n = sizes[s];
                ek_view x = ref_normals(t, 1, 3, 3, 2, 5, n), w = ref_normals(t, 2, 1, 1, n),
                        y = ref_like(&x, EK_TYPE_F32);
                MUST(ek_rms_norm(y, x, weighted ? &w : NULL, 1e-6f));
                double *want = ref_take(sizeof *want * (size_t)ref_count(&x));
                for (int64_t r = 0; r < 10; r++) {
                    double ss = 0;
                    for (int i = 0; i < n; i++) ss += ref_get(&x, r * n + i) * ref_get(&x, r * n + i);
                    for (int i = 0; i < n; i++)
                        want[r * n + i] = ref_get(&x, r * n + i) / sqrt(ss / n + 1e-6) *
                                          (weighted ? ref_get(&w, i) : 1);
                }
                ref_close(&y, want, 1e-6, 1e-7, "rms norm of %d, type %d", n, (int)t);
                ek_view turned = ek_view_swap(ref_new(t, 3, n, 5, 2), 0, 2),
                        out = ek_view_reverse(ref_like(&x, EK_TYPE_F32), 1), alone = ref_new(EK_TYPE_F32, 1, n);
                MUST(ek_copy(turned, x));
                MUST(ek_rms_norm(out, turned, weighted ? &w : NULL, 1e-6f));
                ref_same(&y, &out, "views, %d", n);
                ek_view row = ek_view_1d((char *)x.data + 7 * n * (t == EK_TYPE_F32 ? 4 : 2), t, n),
                        got = ek_view_1d((float *)y.data + 7 * n, EK_TYPE_F32, n);
                MUST(ek_rms_norm(alone, row, weighted ? &w : NULL, 1e-6f));
                ref_same(&alone, &got, "a row alone, %d", n);
                if (t == EK_TYPE_F32) {
                    MUST(ek_rms_norm(x, x, weighted ? &w : NULL, 1e-6f));
                    ref_same(&y, &x, "in place, %d", n);
                }
                ref_free_all();
            }
}

static void test_rope(void **state)
{
    (void)state;
    static const int dims[] = {64, 256, 512};
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 6; kind++) {
            enum { B = 2, H = 3, L = 7 };
            int n = dims[d], turned = kind == 1 ? n / 2 : n;
            int64_t positions[B] = {5, 30000};
            ek_rope_options o = {.theta = kind == 2 ? 1e6 : 0,
                                 .dims = kind == 1 ? turned : 0,
                                 .pairs = kind == 3 ? n / 8 : 0,
                                 .interleaved = kind == 4,
                                 .position = 1234,
                                 .positions = kind == 5 ? positions : NULL,
                                 .factor = kind == 2 ? 8 : 0};
            ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 4, B, H, L, n), y = ref_like(&x, EK_TYPE_F32);
            MUST(ek_rope(y, x, &o));
            double *want = ref_take(sizeof *want * (size_t)ref_count(&x));
            for (int64_t r = 0; r < B * H * L; r++) {
                for (int i = 0; i < n; i++) want[r * n + i] = ref_get(&x, r * n + i);
                for (int j = 0; j < (o.pairs ? o.pairs : turned / 2); j++) {
                    /* the angle in float32, as transformers has it */
                    float f = 1.0f / (float)pow(o.theta ? o.theta : 10000, (double)((float)(2 * j) / (float)turned)) /
                              (o.factor ? (float)o.factor : 1);
                    double a = (double)((float)((kind == 5 ? positions[r / (H * L)] : 1234) + r % L) * f);
                    int i0 = o.interleaved ? 2 * j : j, i1 = o.interleaved ? 2 * j + 1 : j + turned / 2;
                    double x0 = ref_get(&x, r * n + i0), x1 = ref_get(&x, r * n + i1);
                    want[r * n + i0] = x0 * cos(a) - x1 * sin(a), want[r * n + i1] = x0 * sin(a) + x1 * cos(a);
                }
            }
            /* an ulp of a frequency moves the angle by position * 6e-8 */
            ref_near(&y, want, kind == 5 ? 8e-3 : 4e-4, "rope of %d, kind %d", n, kind);
            for (int l = 0; l < L && kind != 5; l += 3) { /* a row alone, at its position */
                ek_view row = ek_view_slice(x, 2, l, l + 1), got = ek_view_slice(y, 2, l, l + 1),
                        alone = ref_like(&row, EK_TYPE_F32);
                ek_rope_options at = o;
                at.position += l;
                MUST(ek_rope(alone, row, &at));
                ref_same(&got, &alone, "rope, row %d", l);
            }
            ek_view half = ref_like(&x, EK_TYPE_BF16), rounded = ref_like(&x, EK_TYPE_BF16);
            MUST(ek_rope(half, x, &o));
            MUST(ek_copy(rounded, y));
            ref_same(&rounded, &half, "rope rounded");
            MUST(ek_rope(x, x, &o));
            ref_same(&y, &x, "rope in place");
            ref_free_all();
        }
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(ek_status_name(EK_DONE), "done");
    assert_string_equal(ek_status_name((ek_status)99), "unknown status");
    assert_non_null(strchr(ek_version(), '.'));
    assert_true(strcmp(ek_isa(), "scalar") == 0 || strncmp(ek_isa(), "avx", 3) == 0);
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_hook),  cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_rounding_mode), cmocka_unit_test(test_fork),  cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rope),          cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
