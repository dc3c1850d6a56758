/* GGUF files that are written hold the model they were written from. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/files.h"
#include "base/file.h"
#include "base/log.h"
#include "scene.h"

static void convert_or_fail(const char *dir, const char *name, const char *from_dir, const char *from, const char *type,
                            double max_file_bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", from_dir, from);
    ek_convert_opts o = {.from = path, .type = type, .max_file_bytes = max_file_bytes};
    if (convert_to(dir, name, o, NULL)) fail_msg("%s as %s: %s", path, type, ek_err_text());
}

/* BF16 to GGUF and back, and F32: the same values, so the same bits, for every branch of the decoder. */
static void values_that_fit_give_the_same_logits(void **state)
{
    static const char *const name[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3"};
    (void)state;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *dir = temp_dir(), *source = temp_dir();
        write_hf(source, tiny(name[i]), NULL, NULL);
        convert_or_fail(dir, "bf16.gguf", source, ".", "bf16", 0);
        convert_or_fail(dir, "f32.gguf", source, ".", "f32", 0);
        convert_or_fail(dir, "back", dir, "bf16.gguf", "bf16", 0);
        same_logits(name[i], logits_of(source, ".", true), logits_of(dir, "bf16.gguf", true));
        same_logits(name[i], logits_of(source, ".", true), logits_of(dir, "f32.gguf", true));
        same_logits(name[i], logits_of(source, ".", false), logits_of(dir, "bf16.gguf", false));
        same_logits(name[i], logits_of(source, ".", true), logits_of(dir, "back", true));
        remove_all(dir);
        remove_dir(source);
    }
}

/* Whether the embedding's scale is a root in bf16 or in float32 stands in config.json and in no type of weights: every
 * container carries it on. */
static void the_scale_of_the_embedding_stays(void **state)
{
    static const char *const name[] = {"T1", "T4"};
    (void)state;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        logits of[2];
        for (int exact = 0; exact < 2; exact++) {
            char *dir = temp_dir(), *source = temp_dir();
            static ek_config c;
            c = *tiny(name[i]);
            c.exact_scale = exact, c.rms_norm_eps = 0.5f;
            write_hf(source, &c, NULL, NULL);
            static const char *const to[][3] = {{"f32", "", "f32"},
                                                {"bf16", "", "bf16"},
                                                {"f32.gguf", "", "f32"},
                                                {"bf16.gguf", "f32", "bf16"},
                                                {"back", "f32.gguf", "bf16"}};
            for (size_t k = 0; k < sizeof to / sizeof *to; k++) {
                convert_or_fail(dir, to[k][0], to[k][1][0] ? dir : source, to[k][1][0] ? to[k][1] : ".", to[k][2], 0);
                same_logits(to[k][0], logits_of(source, ".", true), logits_of(dir, to[k][0], true));
            }
            of[exact] = logits_of(source, ".", true);
            remove_all(dir);
            remove_dir(source);
        }
        assert_memory_not_equal(of[0].x, of[1].x, sizeof *of[0].x * (size_t)of[0].vocab);
        free(of[0].x), free(of[1].x);
    }
}

/* Q3's layers, with sizes that blocks of 256 divide. */
static const ek_config *wide(void)
{
    static ek_config c;
    c = *tiny("Q3");
    c.hidden_size = 256;
    for (int i = 0; i < c.n_layers; i++) c.layer[i].intermediate_size = 512;
    return &c;
}

/* A quantised file, and a folder of F32 with the values that its codes stand for. */
static void codes_and_their_values_give_the_same_logits(void **state)
{
    static const char *const type[] = {"q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",   "q2_k", "q3_k",
                                       "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"};
    (void)state;
    char *dir = temp_dir(), *source = temp_dir(), name[64], copy[64], values[64];
    write_hf(source, wide(), NULL, NULL);
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        snprintf(name, sizeof name, "%s.gguf", type[i]);
        snprintf(copy, sizeof copy, "%s-copy.gguf", type[i]);
        snprintf(values, sizeof values, "%s-f32", type[i]);
        convert_or_fail(dir, name, source, ".", type[i], 0);
        convert_or_fail(dir, values, dir, name, "f32", 0);
        convert_or_fail(dir, copy, dir, name, type[i], 0);
        same_logits(type[i], logits_of(dir, name, true), logits_of(dir, values, true));
        same_logits(type[i], logits_of(dir, name, true), logits_of(dir, copy, true));
    }
    remove_all(dir);
    remove_dir(source);
}

static void a_model_may_be_split(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[256];
    const ek_config *c = wide();
    ek_convert_report report;
    ek_convert_opts o = {.invented = c, .type = "q8_0", .max_file_bytes = 500000};
    if (convert_to(dir, "parts.gguf", o, &report)) fail_msg("%s", ek_err_text());
    assert_true(report.files > 2);
    snprintf(path, sizeof path, "%s/parts.gguf", dir);
    assert_false(ek_is_file(path));
    write_random(dir, "whole.gguf", c, "q8_0");
    snprintf(path, sizeof path, "parts-00001-of-%05d.gguf", report.files);
    same_logits("parts", logits_of(dir, path, true), logits_of(dir, "whole.gguf", true));
    remove_all(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_fit_give_the_same_logits),
        cmocka_unit_test(the_scale_of_the_embedding_stays),
        cmocka_unit_test(codes_and_their_values_give_the_same_logits),
        cmocka_unit_test(a_model_may_be_split),
    };
    ek_log_set(EK_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
