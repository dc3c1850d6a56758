/* Checkpoints of 4-bit and 8-bit floats: NVFP4, MXFP4, MXFP8 and fp8 as compressed-tensors, modelopt, transformers and
 * MLX lay them out. Their values are those of their own formulas, the same values give the same bits, and damaged ones
 * one line. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "../support/minifloat.h"
#include "../support/mlx.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "tensor/dtype.h"

enum { TOKENS = 7 };
static ek_config config;

static void same(const char *what, const float *x, const float *y)
{
    for (int k = 0; k < TOKENS * config.vocab_size; k++)
        if (ek_f32_bits(x[k]) != ek_f32_bits(y[k]))
            fail_msg("%s: logit %d is %a and %a", what, k, (double)x[k], (double)y[k]);
}

static const mini_opts layouts[] = {
    {MINI_NVFP4_CT, "", false, 0.25f, 0},
    {MINI_NVFP4_CT, "", true, 0.25f, 0},
    {MINI_NVFP4_MODELOPT, "", false, 0.0371f, 0},
    {MINI_NVFP4_MODELOPT, "", true, 0.125f, 0},
    {MINI_MXFP4, "U8", false, 1, 0},
    {MINI_MXFP4, "F8_E8M0", true, 1, 0},
    {MINI_MXFP8, "U8", false, 1, 0},
    {MINI_MXFP8_E5M2, "F8_E8M0", true, 1, 0},
    {MINI_FP8_TENSOR, "F32", false, 1, 0},
    {MINI_FP8_TENSOR, "BF16", true, 1, 0},
    {MINI_FP8_ROW, "BF16", false, 1, 0},
    {MINI_FP8_ROW, "F16", true, 1, 0},
    {MINI_FP8_GROUP, "F32", false, 1, 0},
    {MINI_FP8_TILES, "F32", false, 1, 0},
    {MINI_FP8_TILES, "BF16", true, 1, 0},
    {MINI_FP8_E5M2, "F32", false, 1, 0},
};

static void values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char *dir = temp_dir(), *hf = temp_dir(), what[32];
        snprintf(what, sizeof what, "layout %zu", i);
        assert_int_equal(ek_config_tiny(&config, layouts[i].single_experts ? "Q2" : "Q1"), EK_OK);
        write_minifloat(dir, hf, &config, &layouts[i]);
        float *x = logits_of_folder(dir, true, TOKENS), *y = logits_of_folder(hf, true, TOKENS),
              *z = logits_of_folder(dir, false, TOKENS);
        bool moved = false;
        same(what, x, y);
        for (int k = 0; k < TOKENS * config.vocab_size; k++) moved |= x[k] != z[k];
        assert_int_equal(moved, layouts[i].layout <= MINI_MXFP4); /* products in integers round elsewhere */
        free(x), free(y), free(z);
        remove_dir(dir), remove_dir(hf);
    }
}

/* One set of codes in two layouts, by the kernels that a user gets. */
static void layouts_of_the_same_values(void **state)
{
    (void)state;
    static const mini_opts two[][2] = {
        {{MINI_NVFP4_CT, "", false, 0.25f, 0}, {MINI_NVFP4_MODELOPT, "", false, 0.25f, 0}},
        {{MINI_MXFP4, "U8", true, 1, 0}, {MINI_MXFP4, "F8_E8M0", true, 1, 0}},
        {{MINI_FP8_ROW, "BF16", false, 1, 0}, {MINI_FP8_ROW, "BF16", true, 1, 0}},
    };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        float *x[2];
        for (int j = 0; j < 2; j++) {
            char *dir = temp_dir(), *hf = temp_dir();
            assert_int_equal(ek_config_tiny(&config, "Q1"), EK_OK);
            write_minifloat(dir, hf, &config, &two[i][j]);
            x[j] = logits_of_folder(dir, false, TOKENS);
            remove_dir(dir), remove_dir(hf);
        }
        same("two layouts", x[0], x[1]);
        free(x[0]), free(x[1]);
    }
}

/* Modes of MLX, some modules in another width or as floats, experts in stacks. */
static void mlx_modes(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        mlx_opts o;
    } mode[] = {
        {"Q1", {4, 32, "language_model.model.", "BF16", NULL, 0, 0, false, "mxfp4"}},
        {"Q1", {8, 32, "model.", "BF16", "mlp", 4, 64, false, "mxfp8"}},
        {"Q1", {4, 16, "model.", "BF16", "embed_tokens", 6, 64, true, "nvfp4"}},
        {"Q2", {4, 32, "language_model.model.", "BF16", "router.proj", 8, 64, false, "mxfp4"}},
        {"Q2", {8, 32, "model.", "F16", "switch_glu.up_proj", 0, 0, false, "mxfp8"}},
        {"Q2", {4, 16, "model.", "BF16", "router.proj", 8, 64, false, "nvfp4"}},
        {"Q3", {4, 16, "model.", "BF16", "self_attn", 8, 32, false, "nvfp4"}},
    };
    for (size_t i = 0; i < sizeof mode / sizeof *mode; i++) {
        char *mlx = temp_dir(), *hf = temp_dir(), what[32];
        snprintf(what, sizeof what, "mode %zu", i);
        assert_int_equal(ek_config_tiny(&config, mode[i].config), EK_OK);
        write_mlx(mlx, hf, &config, &mode[i].o);
        float *x = logits_of_folder(mlx, true, TOKENS), *y = logits_of_folder(hf, true, TOKENS);
        same(what, x, y);
        free(x), free(y);
        remove_dir(mlx), remove_dir(hf);
    }
}

/* Replaces the first `from` in a file by `to` of the same length. */
static void patch(const char *dir, const char *file, const char *from, const char *to)
{
    char path[300];
    ek_buf b = {0};
    snprintf(path, sizeof path, "%s/%s", dir, file);
    assert_int_equal(ek_file_read(&b, path, 64 << 20), EK_OK);
    char *at = b.data, *end = b.data + b.len - strlen(from);
    while (at < end && memcmp(at, from, strlen(from))) at++;
    assert_true(at < end);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
    ek_buf_fini(&b);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        mini_opts o;
        const char *from, *to, *says;
        ek_err err;
    } wrong[] = {
        {{MINI_NVFP4_CT, "", false, 0.25f, 1}, NULL, NULL, "has a nvfp4 scale that is no number", EK_EFORMAT},
        {{MINI_MXFP4, "U8", false, 1, 1}, NULL, NULL, "has a mxfp4 scale that is no number", EK_EFORMAT},
        {{MINI_NVFP4_CT, "", false, 1e-35f, 0}, NULL, NULL, "which is no scale of weights", EK_EFORMAT},
        {{MINI_NVFP4_CT, "", false, -1, 0}, NULL, NULL, "is -1, which is no scale of weights", EK_EFORMAT},
        {{MINI_NVFP4_CT, "", false, 1, 0},
         "up_proj.weight_global_scale",
         "up_proj.weight_global_scalf",
         "up_proj.weight_global_scale or .weight_scale_2 beside it",
         EK_EFORMAT},
        {{MINI_NVFP4_MODELOPT, "", false, 1, 0},
         "up_proj.weight_scale\"",
         "up_proj.weight_skale\"",
         "up_proj.weight has type U8 and no .weight_scale beside it",
         EK_EFORMAT},
        {{MINI_FP8_ROW, "F32", false, 1, 0},
         "up_proj.weight_scale\"",
         "up_proj.weight_skale\"",
         "up_proj.weight has type F8_E4M3 and no .weight_scale beside it",
         EK_EFORMAT},
        {{MINI_MXFP8, "I8", false, 1, 0}, NULL, NULL, "fp8 has scales of F32, F16, BF16, F8_E8M0 or U8", EK_EFORMAT},
        {{MINI_MXFP4, "I8", false, 1, 0}, NULL, NULL, "4-bit floats have scales of F8_E4M3, F8_E8M0 or U8", EK_EFORMAT},
        {{MINI_MXFP4, "F8_E4M3", false, 1, 0}, NULL, NULL, "has shape [", EK_EFORMAT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = temp_dir(), *hf = temp_dir();
        ek_model *m;
        assert_int_equal(ek_config_tiny(&config, "Q1"), EK_OK);
        write_minifloat(dir, hf, &config, &wrong[i].o);
        if (wrong[i].from) patch(dir, "model.safetensors", wrong[i].from, wrong[i].to);
        ek_err err = open_folder(&m, dir, false);
        if (err != wrong[i].err || !strstr(ek_err_text(), wrong[i].says))
            fail_msg("case %zu: error %d, %s", i, (int)err, ek_err_text());
        assert_non_null(strstr(ek_err_text(), "proj"));
        assert_null(strchr(ek_err_text(), '\n'));
        remove_dir(dir), remove_dir(hf);
    }
    char *mlx = temp_dir(), *hf = temp_dir(); /* bytes for scales beside another width */
    ek_model *m;
    write_mlx(mlx, hf, &config, &(mlx_opts){4, 32, "model.", "BF16", NULL, 0, 0, false, "mxfp4"});
    patch(mlx, "config.json", "\"bits\":4,\"mode\":\"mxfp4\"", "\"bits\":8               ");
    assert_int_equal(open_folder(&m, mlx, false), EK_EFORMAT);
    remove_dir(mlx), remove_dir(hf);
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(layouts_of_the_same_values),
                                       cmocka_unit_test(mlx_modes), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
