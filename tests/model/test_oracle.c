/* The forward pass against an independent float64 program, in exact mode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/log.h"
#include "oracle.h"
#include "../support/checkpoint.h"
#include "../support/pages.h"

enum { TOKENS = 37 };

/* Tensors as float64, made when first asked for. */
typedef struct store {
    struct {
        char name[160];
        double *value;
    } one[512];
    int n;
    const ek_config *c;
} store;

static void keep(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    store *s = arg;
    size_t n = 1;
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    double *v = ek_alloc(sizeof *v * n);
    for (size_t i = 0; i < n; i++) v[i] = (double)hashed_weight(name, i);
    assert_true(s->n < 512);
    snprintf(s->one[s->n].name, sizeof s->one[s->n].name, "%s", name);
    s->one[s->n++].value = v;
}

static const double *look_up(void *arg, const char *name)
{
    store *s = arg;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->one[i].name, name) == 0) return s->one[i].value;
    fail_msg("the oracle asked for %s", name);
    return NULL;
}

static double worst_difference(const ek_config *c, double *largest)
{
    char *dir = temp_dir();
    size_t n = (size_t)TOKENS * (size_t)c->vocab_size;
    float *got = ek_alloc(sizeof *got * n);
    double *want = ek_alloc(sizeof *want * n), worst = 0;
    store *s = ek_alloc(sizeof *s);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)(hashed_bits("prompt", (uint64_t)i) % (uint64_t)c->vocab_size);

    write_hf(dir, c, NULL, NULL);
    ek_model *m;
    ek_model_opts o = {.exact = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
    if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
    assert_int_equal(run_tokens(m, ids, TOKENS, NULL, got), EK_OK);
    ek_model_close(m);

    each_tensor(c, keep, s);
    oracle_forward(c, look_up, s, ids, TOKENS, want);
    *largest = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(want[i] - (double)got[i]);
        if (!(d <= worst)) worst = d;
        if (fabs(want[i]) > *largest) *largest = fabs(want[i]);
    }
    for (int i = 0; i < s->n; i++) free(s->one[i].value);
    free(s), free(want), free(got);
    remove_dir(dir);
    return worst;
}

static void check(const char *name, float eps, double tol)
{
    ek_config *c = ek_alloc(sizeof *c);
    double largest;
    assert_int_equal(ek_config_tiny(c, name), EK_OK);
    if (eps > 0) c->rms_norm_eps = eps;
    double worst = worst_difference(c, &largest);
    print_message("%s eps %g: largest difference %.2g, largest logit %.3g\n", name, (double)c->rms_norm_eps, worst,
                  largest);
    assert_true(largest > 0.5);
    if (!(worst <= tol)) fail_msg("%s: differs by %g, bound %g", name, worst, tol);
    free(c);
}

/* Every deliberate mistake of a list (norms as 1 + w, no value norm, wrong donor, window off by
 * one, router input, gate and up swapped, …) moves a logit by more than 2e-3. */
static void test_matches_oracle(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T2", "T3", "T4", "T5", "T6"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) check(name[i], 0, 1e-4);
}

/* Scales in front of a norm are hidden by it, but for eps: the router's renormalisation, the
 * factors of the per-layer inputs. A large eps shows them. */
static void test_matches_oracle_with_large_eps(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T2", "T6"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) check(name[i], 0.5f, 1e-4);
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches_oracle),
                                       cmocka_unit_test(test_matches_oracle_with_large_eps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
