/* The default arithmetic of the bundled trained model against exact float arithmetic: quantised activations,
 * limbs, 16-bit keys and values and the head together. pocket-ids.txt: tools/golden/make_ids.py. */
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
#include "base/cpu.h"
#include "base/log.h"

static const char model_dir[] = "models/pocket";
enum { MAX_IDS = 4096, MIN_ROWS = 1500 };

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

static ek_model *open_model(bool exact, ek_kv_format kv)
{
    ek_model *m;
    ek_model_opts o = {.exact = exact, .k_format = kv, .v_format = kv, .cpu = ek_cpu_detect()};
    if (ek_model_open(&m, model_dir, &o)) fail_msg("%s", ek_err_text());
    return m;
}

static void default_arithmetic_is_near_exact(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip(); /* minutes under a sanitizer */
#endif
    FILE *f = fopen("tests/golden/pocket-ids.txt", "r");
    assert_non_null(f);
    ek_model *exact = open_model(true, EK_KV_F32), *normal = open_model(false, EK_KV_I16);
    size_t vocab = (size_t)ek_model_config(exact)->vocab_size;
    static int32_t ids[MAX_IDS];
    divergence d = {0};
    for (int n; (n = read_ids(f, ids)) > 0;) {
        float *want = ek_alloc(sizeof *want * (size_t)n * vocab), *got = ek_alloc(sizeof *got * (size_t)n * vocab);
        assert_int_equal(run_tokens(exact, ids, n, NULL, want), EK_OK);
        assert_int_equal(run_tokens(normal, ids, n, NULL, got), EK_OK);
        for (size_t r = 0; r < (size_t)n; r++) divergence_add_f32(&d, want + r * vocab, got + r * vocab, vocab);
        free(want), free(got);
    }
    fclose(f);
    ek_model_close(exact);
    ek_model_close(normal);
    assert_true(d.rows >= MIN_ROWS);
    /* measured: 3.0e-5, 0.00099, 0.029 */
    divergence_check(&d, "pocket, default against exact", (divergence_bound){5e-5, 0.01, 0.035});
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(default_arithmetic_is_near_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
