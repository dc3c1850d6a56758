/* Between formats: what a file holds are the values that the next conversion starts from, whatever the two are. */
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
#include "../support/drafter.h"
#include "../support/files.h"
#include "../support/gguf_model.h"
#include "../support/minifloat.h"
#include "../support/same_model.h"
#include "base/alloc.h"
#include "base/log.h"
#include "scene.h"

static const char *path(const char *dir, const char *name)
{
    static char of[4][300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(of[turn], sizeof of[turn], "%s/%s", dir, name);
    return of[turn];
}

static void to(const char *dir, const char *name, const char *from, const char *type)
{
    if (convert_to(dir, name, (ek_convert_opts){.from = from, .type = type}, NULL))
        fail_msg("%s as %s: %s", from, type, ek_err_text());
}

/* Each format widened to F32 has its values, and so has a second copy in it that was made of its own file. */
static void every_format_is_what_it_widens_to(void **state)
{
    static const char *const type[] = {"bf16", "f16",  "q8_0", "q6_k",   "q5_k",   "q5_1",  "q5_0",
                                       "q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "mxfp4", "q3_k",
                                       "q2_k", "mlx8", "mlx6", "mlx5",   "mlx4",   "mlx3"};
    static const char *const config[] = {"Q1", "Q2"};
    (void)state;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        char *dir = temp_dir(), *source = temp_dir();
        const bool folder = !strncmp(type[i], "mlx", 3);
        write_hf(source, tiny(config[i % 2]), NULL, NULL);
        const char *one = folder ? "one" : "one.gguf", *two = folder ? "two" : "two.gguf";
        to(dir, one, source, type[i]);
        to(dir, "wide", path(dir, one), "f32");
        to(dir, "wide.gguf", path(dir, one), "f32");
        to(dir, two, path(dir, one), type[i]);
        same_model(path(dir, one), path(dir, "wide"), NULL);
        same_model(path(dir, one), path(dir, "wide.gguf"), NULL);
        same_model(path(dir, one), path(dir, two), NULL);
        remove_all(dir), remove_dir(source);
    }
}

/* Formats that are read and not written. Names of types alone do not tell where their bytes lie: MXFP4 of safetensors
 * is not that of GGUF. */
static void formats_that_are_only_read(void **state)
{
    static const mini_opts from[] = {{MINI_NVFP4_CT, "", true, 0.25f, 0},  {MINI_NVFP4_MODELOPT, "", false, 0.25f, 0},
                                     {MINI_MXFP4, "U8", false, 1, 0},      {MINI_MXFP8, "U8", true, 1, 0},
                                     {MINI_FP8_TILES, "F32", false, 1, 0}, {MINI_FP8_ROW, "BF16", false, 1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char *dir = temp_dir(), *source = temp_dir(), *values = temp_dir();
        write_minifloat(source, values, tiny(from[i].single_experts ? "Q2" : "Q1"), &from[i]);
        to(dir, "wide", source, "f32");
        same_model(values, path(dir, "wide"), NULL);
        same_model(source, path(dir, "wide"), NULL);
        to(dir, "a.gguf", source, "mxfp4"); /* of the codes and of the values: the same */
        to(dir, "b.gguf", path(dir, "wide"), "mxfp4");
        same_model(path(dir, "a.gguf"), path(dir, "b.gguf"), NULL);
        remove_all(dir), remove_dir(source), remove_dir(values);
    }
    char *dir = temp_dir(), *gguf = temp_dir();
    write_gguf(gguf, "n.gguf", tiny("Q1"), &(gguf_opts){.type = GGUF_NVFP4, .gain = 0.25f}, NULL);
    to(dir, "wide", path(gguf, "n.gguf"), "f32");
    same_model(path(gguf, "n.gguf"), path(dir, "wide"), NULL);
    remove_all(dir), remove_dir(gguf);
}

/* Drafters, with a dense head and with tokens in the order of centroids: from and to all containers. */
static void drafters(void **state)
{
    (void)state;
    static ek_config target, c;
    int32_t *order, *ids;
    for (int centroids = 0; centroids <= 11; centroids += 11) {
        char *dir = temp_dir(), *gguf = temp_dir(), *hf = temp_dir();
        assert_int_equal(ek_config_tiny(&target, "T1"), EK_OK);
        const int vocab = target.vocab_size;
        order = ek_alloc(sizeof *order * (size_t)vocab), ids = ek_alloc(sizeof *ids * (size_t)vocab);
        for (int i = 0; i < vocab; i++) order[i] = i * 5 % vocab;
        drafter_config(&c, &target, centroids);
        write_gguf(gguf, "d.gguf", &c, &(gguf_opts){.scheme = GGUF_IK, .order = order}, hf);
        static const char *const into[][2] = {{"f32", "f32"},   {"f32.gguf", "f32"},   {"bf16.gguf", "bf16"},
                                              {"mlx8", "mlx8"}, {"q8_0.gguf", "q8_0"}, {"q4_0.gguf", "q4_0"},
                                              {"bf16", "bf16"}};
        for (size_t i = 0; i < sizeof into / sizeof *into; i++) {
            to(dir, into[i][0], i % 2 ? hf : path(gguf, "d.gguf"), into[i][1]);
            if (i < 2) same_model(hf, path(dir, into[i][0]), ids);
            to(dir, "wide", path(dir, into[i][0]), "f32");
            same_model(path(dir, into[i][0]), path(dir, "wide"), ids);
            for (int j = 0; centroids && j < vocab; j++) assert_int_equal(ids[j], order[j]);
            remove_all(strdup(path(dir, "wide")));
        }
        free(order), free(ids);
        remove_all(dir), remove_dir(gguf), remove_dir(hf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_format_is_what_it_widens_to),
                                       cmocka_unit_test(formats_that_are_only_read), cmocka_unit_test(drafters)};
    ek_log_set(EK_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
