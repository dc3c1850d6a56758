/* Logits and greedy tokens of transformers (float32) on six tiny configurations: T*.json, made by
 * tools/golden/make_golden.py, whose head defines the format and the weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/divergence.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"

static const char *const names[] = {"T1", "T2", "T3", "T4", "T5", "T6"};

/* A checkpoint of hashed weights and the file's own config.json. */
static char *write_model(const json_t *golden)
{
    static ek_config c;
    char *dir = temp_dir(), *config = json_dumps(json_object_get(golden, "config"), JSON_COMPACT);
    if (ek_config_parse(&c, config, NULL)) fail_msg("%s", ek_err_text());
    write_hf(dir, &c, &(hf_opts){.f32 = true}, NULL);
    put_text(dir, "config.json", config);
    free(config);
    return dir;
}

static int32_t *ids_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    int32_t *ids = ek_alloc(sizeof *ids * (*n + 1));
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static int digit(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(all, c);
    return c && at ? (int)(at - all) : -1;
}

/* n little-endian floats from base64. */
static float *decode(const char *text, size_t n)
{
    uint8_t *out = ek_alloc(n * 4 + 3);
    size_t used = 0;
    for (; digit(text[0]) >= 0; text += 4) {
        assert_true(used < n * 4);
        uint32_t v = 0;
        for (int i = 0; i < 4; i++) v = v << 6 | (uint32_t)(digit(text[i]) < 0 ? 0 : digit(text[i]));
        for (int i = 0; i < 3 && text[i + 1] != '='; i++) out[used++] = (uint8_t)(v >> (16 - 8 * i));
    }
    assert_int_equal(used, n * 4);
    return (float *)out;
}

static double check_logits(const ek_model *m, const json_t *prompt, const char *name)
{
    size_t n, rows = (size_t)json_integer_value(json_object_get(prompt, "rows"));
    size_t vocab = (size_t)ek_model_config(m)->vocab_size;
    double tol = json_number_value(json_object_get(prompt, "tol")), worst = 0;
    int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n);
    float *want = decode(json_string_value(json_object_get(prompt, "logits")), rows * vocab);
    float *got = ek_alloc(sizeof *got * n * vocab);
    assert_true(tol > 0 && tol < 0.01 && rows >= 1 && rows <= n);
    assert_int_equal(run_tokens(m, ids, (int)n, NULL, got), EK_OK);
    for (size_t i = 0; i < rows * vocab; i++) {
        double d = fabs((double)want[i] - (double)got[(n - rows) * vocab + i]);
        if (!(d <= worst)) worst = d;
    }
    if (!(worst <= tol)) fail_msg("%s, %zu tokens: differs by %g, bound %g", name, n, worst, tol);
    free(ids), free(want), free(got);
    return worst / tol;
}

/* The reference's greedy tokens, as far as its margins make them sure. */
static void check_greedy(const ek_model *m, const json_t *prompt, const char *name)
{
    size_t n, n_greedy, sure = (size_t)json_integer_value(json_object_get(prompt, "sure"));
    int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n),
            *greedy = ids_of(json_object_get(prompt, "greedy"), &n_greedy);
    int vocab = ek_model_config(m)->vocab_size, total = (int)(n + n_greedy);
    float *row = ek_alloc(sizeof *row * (size_t)vocab);
    ek_scratch *s;
    assert_int_equal(ek_scratch_open(&s, m, 1, 1, total), EK_OK);
    test_seq q = seq_open(m, total);
    for (int pos = 0; pos < total - 1; pos++) {
        int32_t token = pos < (int)n ? ids[pos] : greedy[pos - (int)n];
        ek_row one = ek_text_row(token, pos, 0, true, ek_model_config(m)->sliding_window);
        assert_int_equal(ek_model_forward(m, s, &q.kv, &one, 1, &q.seq, 1, row, vocab), EK_OK);
        int best = 0, at = pos - (int)n + 1;
        for (int v = 1; v < vocab; v++)
            if (row[v] > row[best]) best = v;
        if (at >= 0 && at < (int)sure && best != greedy[at])
            fail_msg("%s, %zu tokens: reply token %d is %d, wanted %d", name, n, at, best, greedy[at]);
    }
    seq_close(&q);
    ek_scratch_close(s);
    free(ids), free(greedy), free(row);
}

static json_t *load(const char *name)
{
    char path[64];
    json_error_t why;
    snprintf(path, sizeof path, "tests/golden/%s.json", name);
    json_t *golden = json_load_file(path, 0, &why);
    if (!golden) fail_msg("%s: %s", path, why.text);
    assert_true(json_array_size(json_object_get(golden, "prompts")) >= 4);
    return golden;
}

static void exact_arithmetic_gives_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *golden = load(names[i]), *prompts = json_object_get(golden, "prompts");
        char *dir = write_model(golden);
        ek_model *m;
        ek_model_opts o = {.exact = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
        if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
        double worst = 0;
        for (size_t p = 0; p < json_array_size(prompts); p++) {
            worst = fmax(worst, check_logits(m, json_array_get(prompts, p), names[i]));
            check_greedy(m, json_array_get(prompts, p), names[i]);
        }
        print_message("%s: %zu prompts, %.0f%% of the bound used\n", names[i], json_array_size(prompts), 100 * worst);
        ek_model_close(m);
        remove_dir(dir);
        json_decref(golden);
    }
}

/* Kernels for float weights, keys and values in 16-bit codes and in those of the default. KL in nats; bounds are three
 * to five times what was measured, which stands beside them; they may shrink and never grow. */
static const divergence_bound near_reference[][2] = {
    /* T1: measured 1.4e-9, 8.7e-9, 1.1e-4; i12 7.7e-7, 5.4e-6, 2.2e-3 */
    {{6e-9, 4e-8, 3e-4}, {2.5e-6, 1.8e-5, 7e-3}},
    /* T2: measured 1.3e-9, 7.2e-9, 8.1e-5; i12 3.8e-7, 2.2e-6, 1.6e-3 */
    {{4e-9, 2e-8, 2e-4}, {1.2e-6, 8e-6, 5e-3}},
    /* T3: measured 5.1e-11, 3.5e-10, 4.7e-5; i12 3.6e-8, 3.4e-7, 9.4e-4 */
    {{2e-10, 1.5e-9, 1.2e-4}, {1.2e-7, 1.2e-6, 3e-3}},
    /* T4: measured 3.9e-12, 3.4e-11, 9.8e-5; i12 1.2e-9, 1.1e-8, 1.9e-3 */
    {{1.5e-11, 1.5e-10, 3e-4}, {4e-9, 4e-8, 6e-3}},
    /* T5: measured 9.2e-10, 3.5e-9, 4.9e-5; i12 6.4e-7, 4.4e-6, 1.2e-3 */
    {{4e-9, 3e-8, 1.5e-4}, {2e-6, 1.5e-5, 4e-3}},
    /* T6: measured 2.8e-10, 2.9e-9, 7.7e-5; i12 2.9e-7, 4.6e-6, 1.7e-3 */
    {{1e-9, 1e-8, 2e-4}, {1e-6, 1.5e-5, 5e-3}},
};

static void check_near(const json_t *prompts, const char *dir, const char *name, ek_kv_format kv,
                       divergence_bound bound)
{
    ek_model *m;
    ek_model_opts o = {.k_format = kv, .v_format = kv, .cpu = ek_cpu_detect()};
    if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
    size_t vocab = (size_t)ek_model_config(m)->vocab_size;
    divergence d = {0};
    for (size_t p = 0; p < json_array_size(prompts); p++) {
        const json_t *prompt = json_array_get(prompts, p);
        size_t n, rows = (size_t)json_integer_value(json_object_get(prompt, "rows"));
        int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n);
        float *want = decode(json_string_value(json_object_get(prompt, "logits")), rows * vocab);
        float *got = ek_alloc(sizeof *got * n * vocab);
        assert_int_equal(run_tokens(m, ids, (int)n, NULL, got), EK_OK);
        for (size_t r = 0; r < rows; r++) divergence_add_f32(&d, want + r * vocab, got + (n - rows + r) * vocab, vocab);
        free(ids), free(want), free(got);
    }
    char what[64];
    snprintf(what, sizeof what, "%s, --kv %s against transformers", name, ek_kv_format_name(kv));
    divergence_check(&d, what, bound);
    ek_model_close(m);
}

static void default_arithmetic_is_near_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *golden = load(names[i]), *prompts = json_object_get(golden, "prompts");
        char *dir = write_model(golden);
        check_near(prompts, dir, names[i], EK_KV_I16, near_reference[i][0]);
        check_near(prompts, dir, names[i], EK_KV_I12, near_reference[i][1]);
        remove_dir(dir);
        json_decref(golden);
    }
}

static void collect(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    (void)n_dims, (void)dim;
    json_object_set_new(arg, name, json_true());
}

/* The tests' own list of tensors is the reference's. */
static void the_tensor_list_is_the_references(void **state)
{
    (void)state;
    static ek_config c;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *golden = load(names[i]), *ours = json_object(), *theirs = json_object_get(golden, "tensors");
        assert_int_equal(ek_config_tiny(&c, names[i]), EK_OK);
        each_tensor(&c, collect, ours);
        assert_int_equal(json_object_size(ours), json_array_size(theirs));
        for (size_t t = 0; t < json_array_size(theirs); t++)
            assert_non_null(json_object_get(ours, json_string_value(json_array_get(theirs, t))));
        json_decref(ours);
        json_decref(golden);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_arithmetic_gives_the_reference),
        cmocka_unit_test(default_arithmetic_is_near_the_reference),
        cmocka_unit_test(the_tensor_list_is_the_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
