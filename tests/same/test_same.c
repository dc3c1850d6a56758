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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "cases.h"

typedef struct comparison {
    const scene *s;
    const char *name;
    const ek_witness *want;
    bool quiet; /* a difference is expected */
    bool differs;
    uint64_t rows; /* compared */
} comparison;

static bool compare(void *arg, const char *variant, const ek_witness *got, const int *which, int n)
{
    comparison *c = arg;
    char where[160], what[160];
    for (int i = 0; i < n; i++) {
        c->rows += (uint64_t)(got[i].n_prompt + got[i].n_reply);
        if (ek_witness_same(&c->want[which[i]], &got[i], where, sizeof where)) continue;
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
    uint64_t rows, steps, preempted;
    int failed;
} tally;

/* The cases of one scene; only: one of them, or NULL. */
static void run_scene(uint64_t seed, const char *only, tally *t)
{
    static scene s;
    static ek_witness want[MOST_ASKS];
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
        company base = {0};
        ek_err failed = cases[i].run(&s, &base, compare, &c);
        if (failed && !c.differs)
            printf("FAIL %s: %s; again: make why CASE=%s SEED=%#llx\n", cases[i].name, ek_err_text(), cases[i].name,
                   (unsigned long long)seed);
        t->failed += failed != EK_OK;
        t->rows += c.rows;
        t->steps += base.steps;
        t->preempted += base.preempted;
    }
    for (int i = 0; i < s.n; i++) ek_witness_fini(&want[i]);
    scene_close(&s);
}

/* --- in `make check`: three scenes of every shape, and sizes of published models */

#ifdef EK_SANITIZED
enum { CHECK_SCENES = 4 }; /* a sanitizer looks for other things and takes ten times as long */
#else
enum { CHECK_SCENES = N_CHECK_SCENES };
#endif

static void company_does_not_matter(void **state)
{
    (void)state;
    tally t = {0};
    for (int i = 0; i < CHECK_SCENES; i++) run_scene(check_seed(i), NULL, &t);
    printf("%llu rows of logits in %llu steps, %llu preempted\n", (unsigned long long)t.rows,
           (unsigned long long)t.steps, (unsigned long long)t.preempted);
    assert_int_equal(t.failed, 0);
    assert_true(t.rows > 10000);
    assert_true(t.preempted > 0); /* else `evicted` would prove nothing */
}

/* --- the inverse: a step whose sums depend on who is there must be caught */

/* What a fast library may do: a dot product cut into as many parts as there are rows to share
 * the cores with. Every cut is right to the last ulp or so; no two of them agree. */
static ek_err free_order(const ek_row *rows, int n_rows, int n_logits, int vocab_size, float *logits, ptrdiff_t ld)
{
    enum { DEPTH = 48 };
    float x[DEPTH];
    (void)rows;
    for (int r = 0; r < n_logits; r++)
        for (int v = 0; v < vocab_size; v++) {
            float *y = &logits[r * ld + v], sum = 0;
            for (int k = 0; k < DEPTH; k++) x[k] = *y * ((float)(ek_mix64((uint64_t)(v * DEPTH + k)) >> 40) * 0x1p-24f);
            for (int part = 0, parts = n_rows % 7 + 1; part < parts; part++) {
                float of_part = 0;
                for (int k = part * DEPTH / parts; k < (part + 1) * DEPTH / parts; k++) of_part += x[k];
                sum += of_part;
            }
            *y = sum / (DEPTH / 2);
        }
    return EK_OK;
}

static void a_free_order_is_caught(void **state)
{
    (void)state;
    static const char *const must[] = {"together", "late", "chunked", "cancelled", "crowd"};
    static scene s;
    static ek_witness want[MOST_ASKS];
    assert_int_equal(scene_open(&s, 0), EK_OK);
    company alone = {.after = free_order};
    assert_int_equal(run_alone(&s, &alone, want), EK_OK);
    for (size_t m = 0; m < sizeof must / sizeof *must; m++)
        for (int i = 0; i < n_cases; i++) {
            if (strcmp(cases[i].name, must[m]) != 0) continue;
            comparison c = {.s = &s, .name = cases[i].name, .want = want, .quiet = true};
            company base = {.after = free_order};
            cases[i].run(&s, &base, compare, &c);
            assert_true(c.differs);
        }
    for (int i = 0; i < s.n; i++) ek_witness_fini(&want[i]);
    scene_close(&s);
}

/* --- one seed again, or many */

static int run_many(uint64_t from, uint64_t n)
{
    tally t = {0};
    double start = ek_now();
    for (uint64_t seed = from; seed < from + n; seed++) {
        run_scene(seed, NULL, &t);
        ek_progress("scenes", (double)(seed - from + 1), (double)n);
    }
    printf("%llu scenes, %llu rows of logits, %llu preempted, %.0f s\n", (unsigned long long)n,
           (unsigned long long)t.rows, (unsigned long long)t.preempted, ek_now() - start);
    printf("%llu passed, %d failed\n",
           (unsigned long long)n * (unsigned long long)n_cases - (unsigned long long)t.failed, t.failed);
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
    printf("%s, seed %#llx: %s (%llu rows, %llu preempted)\n", name, (unsigned long long)seed,
           t.failed ? "differs" : "the same bits", (unsigned long long)t.rows, (unsigned long long)t.preempted);
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
        cmocka_unit_test(a_free_order_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
