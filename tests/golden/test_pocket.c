/* The arithmetic of the bundled trained model against exact float arithmetic: quantised activations, keys and values
 * and the head together. pocket-ids.txt: tools/golden/make_ids.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "../support/divergence.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"

static const char model_dir[] = "models/pocket";
enum { MAX_IDS = 4096, OWN = 10 /* sequences of the kind it was trained on */, MIN_ROWS = 1500, MIN_ENGLISH = 100 };

/* The next line of ids, at most MAX_IDS; 0 at the end of the file. */
static int read_ids(FILE *f, int32_t *ids)
{
    int n = 0, c = ',';
    while (c == ',' && fscanf(f, "%d", &ids[n]) == 1) {
        assert_true(++n < MAX_IDS);
        c = fgetc(f);
    }
    return n;
}

static ek_model *open_model(const ek_model_opts *how)
{
    ek_model *m;
    ek_model_opts o = *how;
    o.cpu = ek_cpu_detect();
    if (ek_model_open(&m, model_dir, &o)) fail_msg("%s", ek_err_text());
    return m;
}

/* The last sequence is plain English, which the model never saw: its distributions are flat there, and every
 * rounding costs more than a hundred times as much (inputs in bf16 1.1e-4 instead of 7e-7). */
typedef struct texts {
    divergence own, english;
} texts;

/* Logits of the exact model at every position, made once: want[line]; NULL ends them. */
static float **exact_logits(void)
{
    static float *want[16];
    if (want[0]) return want;
    ek_model *exact = open_model(&(ek_model_opts){.exact = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32});
    FILE *f = fopen("tests/golden/pocket-ids.txt", "r");
    assert_non_null(f);
    static int32_t ids[MAX_IDS];
    size_t vocab = (size_t)ek_model_config(exact)->vocab_size;
    for (int n, line = 0; (n = read_ids(f, ids)) > 0; line++) {
        assert_true(line < 15);
        want[line] = ek_alloc(sizeof **want * (size_t)n * vocab);
        assert_int_equal(run_tokens(exact, ids, n, NULL, want[line]), EK_OK);
    }
    fclose(f);
    ek_model_close(exact);
    return want;
}

static void compare(texts *t, const ek_model *other)
{
    float **want = exact_logits();
    FILE *f = fopen("tests/golden/pocket-ids.txt", "r");
    assert_non_null(f);
    size_t vocab = (size_t)ek_model_config(other)->vocab_size;
    static int32_t ids[MAX_IDS];
    for (int n, line = 0; (n = read_ids(f, ids)) > 0; line++) {
        float *got = ek_alloc(sizeof *got * (size_t)n * vocab);
        assert_int_equal(run_tokens(other, ids, n, NULL, got), EK_OK);
        for (size_t r = 0; r < (size_t)n; r++)
            divergence_add_f32(line < OWN ? &t->own : &t->english, want[line] + r * vocab, got + r * vocab, vocab);
        free(got);
    }
    fclose(f);
    assert_true(t->own.rows >= MIN_ROWS && t->english.rows >= MIN_ENGLISH);
}

static void every_arithmetic_is_as_near_as_stated(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip(); /* minutes under a sanitizer */
#endif
    static const struct {
        const char *name;
        ek_activations activations;
        ek_kv_format kv;
        divergence_bound own, english; /* about three times what was measured */
    } way[] = {
        {"default", EK_ACTIVATIONS_AUTO, EK_KV_I12, {2.4e-5, 0.0027, 0.18}, {0.0042, 0.05, 0.28}},
        {"kv 16", EK_ACTIVATIONS_AUTO, EK_KV_I16, {2.4e-5, 0.0027, 0.18}, {0.0042, 0.05, 0.28}},
        {"kv 16, activations 16", EK_ACTIVATIONS_16, EK_KV_I16, {1.8e-9, 1.1e-7, 0.0011}, {1.5e-7, 1.5e-6, 0.0017}},
    };
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        char name[80];
        ek_model *other = open_model(
            &(ek_model_opts){.activations = way[i].activations, .k_format = way[i].kv, .v_format = way[i].kv});
        texts t = {0};
        compare(&t, other);
        snprintf(name, sizeof name, "pocket, %s against exact", way[i].name);
        divergence_check(&t.own, name, way[i].own);
        snprintf(name, sizeof name, "pocket, %s against exact, on English", way[i].name);
        divergence_check(&t.english, name, way[i].english);
        ek_model_close(other);
    }
}

/* Keys and values alone: everything else is exact. docs/KV.md has the values of all formats. */
static void every_kv_format_is_as_near_as_stated(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip(); /* minutes under a sanitizer */
#endif
    static const struct {
        const char *kv;
        int start;           /* positions in bf16 */
        double own, english; /* mean KL, about three times what was measured */
        int flips;           /* first choices with p > 0.6, in both texts */
    } way[] = {
        {"f16", 0, 1.1e-8, 4e-6, 0}, {"i12", 0, 5e-8, 2e-5, 0},       {"i8", 0, 5e-6, 0.002, 0},
        {"8", 0, 4e-6, 0.0027, 0},   {"8.128", 0, 8.2e-6, 0.0033, 0}, {"6", 0, 5.1e-5, 0.02, 0},
        {"5", 0, 2.2e-4, 0.08, 0},   {"4", 0, 0.001, 0.37, 12},       {"3", 0, 0.0043, 2, 39},
        {"8:4", 0, 3e-4, 0.1, 0},    {"4", 256, 3e-4, 1.6e-4, 0},
    };
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        ek_model_opts o = {.exact = true, .kv_start = way[i].start};
        assert_int_equal(ek_kv_format_parse(way[i].kv, &o.k_format, &o.v_format), EK_OK);
        ek_model *other = open_model(&o);
        texts t = {0};
        compare(&t, other);
        const double own = t.own.sum / t.own.rows, english = t.english.sum / t.english.rows;
        const int flips = t.own.flips + t.english.flips;
        printf(
            "measured: pocket, kv %s, first %d in bf16: mean KL %.2g of %.2g, on English %.2g of %.2g, %d flips of %d\n",
            way[i].kv, way[i].start, own, way[i].own, english, way[i].english, flips, way[i].flips);
        if (!(own <= way[i].own && english <= way[i].english && flips <= way[i].flips))
            fail_msg("--kv %s is further from exact than stated", way[i].kv);
        ek_model_close(other);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_arithmetic_is_as_near_as_stated),
                                       cmocka_unit_test(every_kv_format_is_as_near_as_stated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
