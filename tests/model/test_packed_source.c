/* Checkpoints of compressed-tensors, GPTQ and AWQ: the values that their own formulas give, and what is said about
 * those that cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/packed.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "../support/files.h"
#include "tensor/dtype.h"

enum { TOKENS = 7 };
static ek_config config;

static const packed_opts packings[] = {
    {EK_PACK_BITS, 4, 32, "BF16", false, false, false, false}, /* Google's w4a16 */
    {EK_PACK_BITS, 4, 64, "F16", true, false, true, false},
    {EK_PACK_BITS, 4, 0, "F32", true, false, false, false},
    {EK_PACK_BITS, 8, 0, "BF16", false, true, false, false},
    {EK_PACK_BITS, 8, 32, "F32", true, true, false, false},
    {EK_PACK_BYTES, 8, 0, "BF16", false, true, false, false},
    {EK_PACK_BYTES, 8, 64, "F16", false, false, false, false},
    {EK_PACK_BYTES, 8, -1, "F32", false, false, false, false},
    {EK_PACK_GPTQ, 4, 32, "F16", true, false, true, false},
    {EK_PACK_GPTQ, 8, 64, "BF16", true, true, false, false},
    {EK_PACK_GPTQ, 4, 0, "F16", true, false, true, false},
    {EK_PACK_GPTQ2, 4, 64, "F16", true, false, false, false},
    {EK_PACK_GPTQ2, 8, 32, "F32", true, false, false, false},
    {EK_PACK_AWQ, 4, 32, "F16", true, true, false, false},
    {EK_PACK_AWQ, 4, 0, "BF16", true, false, false, false},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        for (int moe = 0; moe < 2; moe++) {
            char *dir = temp_dir(), *hf = temp_dir();
            if (packings[i].single_experts != (bool)moe) {
                remove_dir(dir), remove_dir(hf);
                continue;
            }
            assert_int_equal(ek_config_tiny(&config, moe ? "Q2" : "Q1"), EK_OK);
            write_packed(dir, hf, &config, &packings[i]);
            float *x = logits_of_folder(dir, true, TOKENS), *y = logits_of_folder(hf, true, TOKENS),
                  *z = logits_of_folder(dir, false, TOKENS);
            bool moved = false;
            for (int k = 0; k < TOKENS * config.vocab_size; k++) {
                if (ek_f32_bits(x[k]) != ek_f32_bits(y[k]))
                    fail_msg("packing %zu, experts %d: logit %d is %a and %a", i, moe, k, (double)x[k], (double)y[k]);
                moved |= x[k] != z[k];
            }
            assert_true(moved); /* packed, not widened: products in integers round elsewhere */
            free(x), free(y), free(z);
            remove_dir(dir), remove_dir(hf);
        }
}

static void edit(const char *dir, const char *from, const char *to)
{
    char path[300], text[20000];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *at = strstr(text, from);
    assert_non_null(at);
    ek_buf b = {0};
    ek_buf_add(&b, text, (size_t)(at - text));
    ek_buf_str(&b, to);
    ek_buf_str(&b, at + strlen(from));
    put_text(dir, "config.json", b.data);
    ek_buf_fini(&b);
}

/* Config.json says nothing of a head; one that differs from the embedding is used, packed as the other matrices. */
static void a_packed_head_of_its_own_is_used(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        if (packings[i].single_experts) continue;
        char *dir = temp_dir(), *hf = temp_dir(), *tied = temp_dir(), *tied_hf = temp_dir();
        assert_int_equal(ek_config_tiny(&config, "Q1"), EK_OK);
        write_packed(tied, tied_hf, &config, &packings[i]);
        config.own_head = true;
        write_packed(dir, hf, &config, &packings[i]);
        float *x = logits_of_folder(dir, true, TOKENS), *y = logits_of_folder(hf, true, TOKENS),
              *z = logits_of_folder(tied, true, TOKENS);
        const size_t n = (size_t)TOKENS * (size_t)config.vocab_size;
        if (memcmp(x, y, n * sizeof *x)) fail_msg("packing %zu: not the logits of the values", i);
        if (!memcmp(x, z, n * sizeof *x)) fail_msg("packing %zu: the embedding's logits", i);
        free(x), free(y), free(z);
        remove_dir(dir), remove_dir(hf), remove_dir(tied), remove_dir(tied_hf);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        packed_opts o;
        const char *from, *to, *says;
        ek_err err;
    } wrong[] = {
        {{EK_PACK_GPTQ, 4, 32, "F16", true, false, false, true},
         NULL,
         NULL,
         ".g_idx orders inputs by size",
         EK_EUNSUPPORTED},
        {{EK_PACK_BITS, 4, 32, "BF16", false, false, false, true},
         NULL,
         NULL,
         ".weight_g_idx orders inputs by size",
         EK_EUNSUPPORTED},
        {{EK_PACK_BITS, 4, 16, "BF16", false, false, false, false},
         NULL,
         NULL,
         "groups of 16 weights; 32, 64 and 128 are possible",
         EK_EUNSUPPORTED},
        {{EK_PACK_AWQ, 4, 32, "F16", true, false, false, false},
         "\"gemm\"",
         "\"marlin\"",
         "AWQ's version marlin",
         EK_EUNSUPPORTED},
        {{EK_PACK_GPTQ, 4, 32, "F16", true, false, false, false},
         "\"bits\":4",
         "\"bits\":3",
         "GPTQ with bits 3",
         EK_EUNSUPPORTED},
        {{EK_PACK_GPTQ, 4, 32, "F16", true, false, false, false},
         "\"bits\":4",
         "\"bits\":8",
         "has shape [",
         EK_EFORMAT},
        {{EK_PACK_GPTQ, 4, 32, "F16", true, false, false, false},
         "\"gptq\"",
         "\"compressed-tensors\"",
         "is GPTQ's or AWQ's, but config.json names neither",
         EK_EFORMAT},
        {{EK_PACK_BITS, 4, 32, "BF16", false, false, false, false},
         "pack-quantized",
         "marlin-24",
         "compressed-tensors' format marlin-24",
         EK_EUNSUPPORTED},
        {{EK_PACK_BITS, 4, 32, "BF16", false, false, false, false},
         "\"pack-quantized\"",
         "\"pack-quantized\",\"transform_config\":{\"config_groups\":{\"R4\":{\"type\":\"hadamard\"}}}",
         "with a transform_config",
         EK_EUNSUPPORTED},
        {{EK_PACK_BITS, 4, 32, "BF16", false, false, false, false},
         "\"compressed-tensors\"",
         "\"hqq\"",
         "weights quantised by hqq cannot be read",
         EK_EUNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = temp_dir(), *hf = temp_dir();
        ek_model *m;
        assert_int_equal(ek_config_tiny(&config, "Q1"), EK_OK);
        write_packed(dir, hf, &config, &wrong[i].o);
        if (wrong[i].from) edit(dir, wrong[i].from, wrong[i].to);
        ek_err err = open_folder(&m, dir, false);
        if (err != wrong[i].err || !strstr(ek_err_text(), wrong[i].says))
            fail_msg("case %zu: error %d, %s", i, (int)err, ek_err_text());
        assert_null(strchr(ek_err_text(), '\n'));
        remove_dir(dir), remove_dir(hf);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(a_packed_head_of_its_own_is_used),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
