/* The promise: a request gets the same bits alone and in any company.
 *
 *   test_same                      what `make check` runs
 *   test_same --seeds N [--from S] N scenes, every case of each  (make same SEEDS=N)
 *   test_same CASE SEED            one case of one scene          (make why CASE=… SEED=…)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "cases.h"
#include "model/pass.h"

typedef struct comparison {
    const scene *s;
    const char *name;
    const ek_trace *want;
    bool quiet; /* a difference is expected */
    bool differs;
    uint64_t rows; /* compared */
} comparison;

static bool compare(void *arg, const char *variant, const ek_trace *got, const int *which, int n)
{
    comparison *c = arg;
    char where[160], what[160];
    for (int i = 0; i < n; i++) {
        c->rows += (uint64_t)(got[i].n_prompt + got[i].n_reply);
        if (ek_trace_same(&c->want[which[i]], &got[i], where, sizeof where)) continue;
        c->differs = true;
        if (c->quiet) return false;
        scene_describe(c->s, what, sizeof what);
        printf("FAIL %s (%s), request %d: %s [%s]; again: make why CASE=%s SEED=%#llx\n", c->name, variant, which[i],
               where, what, c->name, (unsigned long long)c->s->seed);
        return false;
    }
    return true;
}

typedef struct tally {
    uint64_t scenes, rows, steps, preempted, hits, waits, followed, drafted, accepted, masked_drafts, masked_accepted,
        drawn_late;
    uint64_t encoded, reused, yielded;
    int failed;
} tally;

/* The cases of one scene; only: one of them, or NULL. */
static void run_scene(uint64_t seed, const char *only, tally *t)
{
    static scene s;
    static ek_trace want[MAX_ASKS];
    t->scenes++;
    ek_err err = scene_open(&s, seed);
    company alone = {0};
    if (!err) err = run_alone(&s, &alone, want);
    if (err) {
        printf("FAIL alone: %s; again: make why CASE=alone SEED=%#llx\n", ek_err_text(), (unsigned long long)seed);
        t->failed++;
    }
    for (int i = 0; i < n_cases && !err; i++) {
        if (only && strcmp(only, cases[i].name) != 0) continue;
        comparison c = {.s = &s, .name = cases[i].name, .want = want};
        company base = {.want = want};
        ek_err failed = cases[i].run(&s, &base, compare, &c);
        if (failed && !c.differs)
            printf("FAIL %s: %s; again: make why CASE=%s SEED=%#llx\n", cases[i].name, ek_err_text(), cases[i].name,
                   (unsigned long long)seed);
        t->failed += failed != EK_OK;
        t->rows += c.rows;
        t->steps += base.steps;
        t->preempted += base.preempted;
        t->yielded += base.yielded;
        t->hits += base.hits;
        t->waits += base.waits;
        t->encoded += base.encoded;
        t->reused += base.reused;
        t->followed += base.followed;
        t->drafted += base.drafted;
        t->accepted += base.accepted;
        t->masked_drafts += base.masked_drafts;
        t->masked_accepted += base.masked_accepted;
        t->drawn_late += base.drawn_late;
    }
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

/* --- in `make check`: three scenes of every shape, and sizes of published models */

#ifdef EK_SANITIZED
enum { CHECK_SCENES = 4 }; /* a sanitizer looks for other things and takes ten times as long */
#else
enum { CHECK_SCENES = N_CHECK_SCENES };
#endif

#ifdef EK_SANITIZED
enum { CHECK_SPANS = 2 };
#else
enum { CHECK_SPANS = 9 };
#endif

#define DEFAULT_SCENE (WHOLE_CODES | 60) /* Q1, 4 bits, keys and values i12 */

static void company_does_not_matter_to_spans(void **state)
{
    (void)state;
    tally t = {0};
    for (uint64_t seed = 0; seed < CHECK_SPANS; seed++) run_scene((seed * 4 + 1) | SCENE_SPANS, NULL, &t);
    run_scene(DEFAULT_SCENE | SCENE_SPANS, NULL, &t);
    assert_int_equal(t.failed, 0);
    assert_true(t.rows > 1000 && t.preempted > 0);
}

static void company_does_not_matter_to_pictures(void **state)
{
    (void)state;
    tally t = {0};
    for (uint64_t seed = 0; seed < (CHECK_SPANS + 1) / 2; seed++) run_scene((seed * 5 + 2) | SCENE_MEDIA, NULL, &t);
    run_scene(DEFAULT_SCENE | SCENE_MEDIA, NULL, &t);
    printf("%llu rows of logits, %llu images and sounds encoded, features of %llu tokens were there\n",
           (unsigned long long)t.rows, (unsigned long long)t.encoded, (unsigned long long)t.reused);
    assert_int_equal(t.failed, 0);
    assert_true(t.rows > 1000 && t.preempted > 0 && t.hits > 0);
    assert_true(t.encoded > 100 && t.reused > 100);
}

static void company_does_not_matter(void **state)
{
    (void)state;
    tally t = {0};
    for (int i = 0; i < CHECK_SCENES; i++) run_scene(check_seed(i), NULL, &t);
    printf("%llu rows of logits in %llu steps, %llu preempted, %llu began with cached pages, "
           "%llu steps begun ahead, %llu of %llu drafted tokens accepted\n",
           (unsigned long long)t.rows, (unsigned long long)t.steps, (unsigned long long)t.preempted,
           (unsigned long long)t.hits, (unsigned long long)t.followed, (unsigned long long)t.accepted,
           (unsigned long long)t.drafted);
    assert_int_equal(t.failed, 0);
    assert_true(t.rows > 10000);
    assert_true(t.preempted > 0);                                  /* else `evicted` would prove nothing */
    assert_true(t.yielded > (uint64_t)CHECK_SCENES);               /* nor `turns` */
    assert_true(t.hits > (uint64_t)CHECK_SCENES * 20);             /* nor `cached` */
    assert_true(t.waits > (uint64_t)CHECK_SCENES);                 /* nor its bursts */
    assert_true(t.followed > 1000);                                /* and `ahead` */
    assert_true(t.accepted > 100 && t.drafted > t.accepted + 100); /* and `drafted` */
    assert_true(t.masked_accepted > 100 && t.masked_drafts > t.masked_accepted + 100); /* and `masked` */
    assert_true(t.drawn_late > (uint64_t)CHECK_SCENES * 10);                           /* and `structured` */
}

/* --- the inverse: kernels whose sums depend on who is there must be caught */

/* What a fast library may do: cut a sum into as many parts as suit the rows that share the step. Every cut is
 * right to the last ulp or so; no two of them agree. */
static int parts;

static void count_company(const ek_step *step)
{
    parts = 1 + step->n_rows % 7;
}

static float free_sum(const float *x, const float *y, int n)
{
    float sum = 0;
    for (int p = 0; p < parts; p++) {
        float part = 0;
        for (int k = p * n / parts; k < (p + 1) * n / parts; k++) part = fmaf(x[k], y[k], part);
        sum += part;
    }
    return sum;
}

static void free_norm(float *y, const float *x, const float *w, int n, float eps)
{
    float r = 1.0f / sqrtf(free_sum(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = w ? x[i] * r * w[i] : x[i] * r;
}

static void free_product(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    float row[4096];
    EK_ASSERT(w->k <= 4096);
    for (int n = p0 * EK_PANEL; n < p1 * EK_PANEL && n < w->n; n++) {
        ek_linear_row(w, n, row);
        for (int r = r0; r < r1; r++) y[(r - r0) * ldy + n] = free_sum(x->x + ek_acts_row(x, r) * x->ldx, row, w->k);
    }
}

static void spoil_norm(ek_model *m)
{
    m->rows.rms_norm = free_norm;
}

/* One matrix of one layer is enough. */
static void spoil_product(ek_model *m)
{
    EK_ASSERT(m->w.layer[0].down.group == 0);
    m->w.layer[0].down.run = free_product;
}

static void must_be_caught(void (*spoil)(ek_model *m))
{
    static const char *const must[] = {"together", "late", "chunked", "cancelled", "uneven", "crowd"};
    static scene s;
    static ek_trace want[MAX_ASKS];
    assert_int_equal(scene_open(&s, 0), EK_OK); /* T1, bf16 weights */
    spoil(s.model);
    company alone = {.before = count_company};
    assert_int_equal(run_alone(&s, &alone, want), EK_OK);
    for (size_t m = 0; m < sizeof must / sizeof *must; m++)
        for (int i = 0; i < n_cases; i++) {
            if (strcmp(cases[i].name, must[m]) != 0) continue;
            comparison c = {.s = &s, .name = cases[i].name, .want = want, .quiet = true};
            company base = {.before = count_company, .spoil = spoil};
            cases[i].run(&s, &base, compare, &c);
            assert_true(c.differs);
        }
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

static void a_free_order_is_caught(void **state)
{
    (void)state;
    must_be_caught(spoil_norm);
    must_be_caught(spoil_product);
}

/* --- one seed again, or many */

static int run_many(uint64_t from, uint64_t n)
{
    tally t = {0};
    double start = ek_now();
    for (uint64_t seed = from; seed < from + n; seed++) {
        run_scene(seed, NULL, &t);
        if (seed % 3 == 0) run_scene(seed | SCENE_SPANS, NULL, &t);
        if (seed % 3 == 1) run_scene(seed | SCENE_MEDIA, NULL, &t);
        ek_progress("scenes", (double)(seed - from + 1), (double)n);
    }
    printf("%llu scenes, %llu rows of logits, %llu preempted, %.0f s\n", (unsigned long long)t.scenes,
           (unsigned long long)t.rows, (unsigned long long)t.preempted, ek_now() - start);
    printf("%llu passed, %d failed\n",
           (unsigned long long)t.scenes * (unsigned long long)n_cases - (unsigned long long)t.failed, t.failed);
    return t.failed > 0;
}

static int run_one(const char *name, uint64_t seed)
{
    tally t = {0};
    int known = !strcmp(name, "alone");
    for (int i = 0; i < n_cases; i++) known |= !strcmp(name, cases[i].name);
    if (!known) {
        fprintf(stderr, "no case '%s'; there are", name);
        for (int i = 0; i < n_cases; i++) fprintf(stderr, " %s", cases[i].name);
        fputc('\n', stderr);
        return 2;
    }
    run_scene(seed, name, &t);
    printf("%s, seed %#llx: %s (%llu rows, %llu preempted, %llu steps ahead)\n", name, (unsigned long long)seed,
           t.failed ? "differs" : "the same bits", (unsigned long long)t.rows, (unsigned long long)t.preempted,
           (unsigned long long)t.followed);
    return t.failed > 0;
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc >= 3 && !strcmp(argv[1], "--seeds"))
        return run_many(argc >= 5 && !strcmp(argv[3], "--from") ? strtoull(argv[4], NULL, 0) : 0,
                        strtoull(argv[2], NULL, 0));
    if (argc == 3) return run_one(argv[1], strtoull(argv[2], NULL, 0));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_does_not_matter),
        cmocka_unit_test(company_does_not_matter_to_spans),
        cmocka_unit_test(company_does_not_matter_to_pictures),
        cmocka_unit_test(a_free_order_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
