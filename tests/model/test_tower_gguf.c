/* One set of towers as transformers, llama.cpp and Ollama store it: the same bytes of rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/files.h"
#include "../support/gguf_model.h"
#include "base/machine/cpu.h"
#include "model/tower/tower.h"
#include "tower_gguf_case.h"

static const tower_case cases[] = {
    {"E", 32, 2, 2, 2, 16, 48, 16, 3, 512, 0, true, false, false, false, 0, NULL, 0},
    {"L", 36, 2, 2, 2, 12, 37, 16, 3, 512, 0, false, false, true, false, 4e4, NULL, 0},
    {"L, 2 x 2 patches of 4, one KV head", 36, 1, 2, 1, 12, 37, 4, 2, 512, 0, false, false, true, false, 9, NULL, 0},
    {"12B", 40, 0, 0, 0, 0, 0, 16, 3, 1120, 0, false, false, false, true, 0, NULL, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static ek_config config;
static tower_case current;

static void put_ollama(gguf_file *f)
{
    tower_put_gguf(f, &current, TOWER_OLLAMA, NULL);
}

static void put_mmproj(const char *dir, const char *name, const char *skip)
{
    gguf_file f = {{0}, {0}, {0}, 0, 0};
    gguf_text(&f, "general.architecture", "clip");
    tower_put_gguf(&f, &current, TOWER_LLAMA, skip);
    gguf_save(&f, dir, name);
}

static void begin(int i)
{
    assert_int_equal(ek_config_tiny(&config, "T1"), EK_OK);
    current = cases[i];
    current.hidden = config.hidden_size;
    tower_make(&current);
}

static float *rows_of(const char *path, const char *mmproj, int *n)
{
    ek_towers *t;
    ek_tower_work *w;
    ek_picture p;
    bool done = false;
    const ek_towers_opts o = {.cpu = ek_cpu_detect(), .mmproj = mmproj};
    if (ek_towers_open(&t, path, &o)) fail_msg("%s", ek_err_text());
    tower_picture(&p, &current, 100, 75, 70);
    if (ek_tower_begin_image(&w, t, &p)) fail_msg("%s: %s", current.name, ek_err_text());
    while (!done) ek_tower_advance(w, 1e12, &done);
    const float *rows = ek_tower_rows(w, n);
    *n *= current.hidden;
    float *copy = malloc(sizeof *copy * (size_t)*n);
    memcpy(copy, rows, sizeof *copy * (size_t)*n);
    ek_tower_free(w);
    ek_towers_close(t);
    ek_picture_free(&p);
    return copy;
}

static void same_file(const char *what, const float *want, int n, const char *path, const char *mmproj)
{
    int has;
    float *got = rows_of(path, mmproj, &has);
    assert_int_equal(has, n);
    for (int i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, %s: number %d is %a, not %a", current.name, what, i, (double)got[i], (double)want[i]);
    free(got);
}

static char *in(const char *dir, const char *name)
{
    static char path[2][512];
    static int at;
    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

static void the_same_bytes_from_every_layout(void **state)
{
    (void)state;
    static const tower_layout hf = {.dtype = "BF16", .prefix = "model."};
    for (int i = 0; i < N_CASES; i++) {
        begin(i);
        if (current.clips) /* one linear without bounds: four zeros in Ollama's files */
            for (int b = 0; b < 4; b++) {
                static const char *const of[] = {"input_min", "input_max", "output_min", "output_max"};
                char name[128];
                snprintf(name, sizeof name, "vision_tower.encoder.layers.1.mlp.up_proj.%s", of[b]);
                *tower_find(&current, name)->v = b % 2 ? (float)INFINITY : -(float)INFINITY;
            }
        char *dir = temp_dir(), *llama = temp_dir(), *ollama = temp_dir(), *apart = temp_dir();
        int n;
        tower_write(dir, &current, &hf);
        float *want = rows_of(dir, NULL, &n);
        write_gguf(llama, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
        put_mmproj(llama, "mmproj-model-BF16.gguf", NULL);
        write_gguf(ollama, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32, .extra = put_ollama}, NULL);
        put_mmproj(apart, "towers.gguf", NULL);
        same_file("beside the model", want, n, in(llama, "model.gguf"), NULL);
        same_file("beside it in a folder", want, n, llama, NULL);
        same_file("in the model", want, n, in(ollama, "model.gguf"), NULL);
        same_file("named", want, n, in(llama, "model.gguf"), in(apart, "towers.gguf"));
        free(want);
        tower_free(&current);
        remove_dir(dir), remove_dir(llama), remove_dir(ollama), remove_dir(apart);
    }
}

/* Of several files beside a model that with bf16 in its name is taken. */
static void bf16_is_taken_first(void **state)
{
    (void)state;
    int n, m;
    begin(1);
    char *dir = temp_dir();
    write_gguf(dir, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
    put_mmproj(dir, "mmproj-F16.gguf", NULL);
    put_mmproj(dir, "mmproj-BF16.gguf", NULL);
    float *first = rows_of(in(dir, "model.gguf"), NULL, &n);
    tower_find(&current, "vision_tower.std_bias")->v[0] += 4096;
    put_mmproj(dir, "mmproj-F16.gguf", NULL);
    float *still = rows_of(in(dir, "model.gguf"), NULL, &m);
    assert_memory_equal(first, still, sizeof *first * (size_t)n);
    ek_towers *t; /* stored replies are named by that file's contents */
    assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){0}), EK_OK);
    assert_string_equal(ek_towers_file(t), in(dir, "mmproj-BF16.gguf"));
    ek_towers_close(t);
    put_mmproj(dir, "mmproj-BF16.gguf", NULL);
    free(still);
    still = rows_of(in(dir, "model.gguf"), NULL, &m);
    assert_true(memcmp(first, still, sizeof *first * (size_t)n) != 0);
    free(first), free(still);
    tower_free(&current);
    remove_dir(dir);
}

static void a_model_alone_has_no_towers(void **state)
{
    (void)state;
    ek_towers *t;
    begin(1);
    char *dir = temp_dir();
    write_gguf(dir, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
    assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){0}), EK_OK);
    assert_int_equal(ek_towers_takes_image(t), EK_EUNSUPPORTED);
    assert_null(ek_towers_file(t));
    ek_towers_close(t);
    assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){.mmproj = in(dir, "model.gguf")}),
                     EK_EFORMAT);
    assert_non_null(strstr(ek_err_text(), "holds no towers"));
    assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){.mmproj = in(dir, "none.gguf")}),
                     EK_ENOTFOUND);
    tower_free(&current);
    remove_dir(dir);
}

static void what_is_missing_is_reported(void **state)
{
    (void)state;
    static const struct {
        int of;
        const char *skip, *says;
    } row[] = {{0, "v.blk.1.ffn_up.weight", "v.blk.1.ffn_up.weight of the towers is missing"},
               {0, "v.blk.1.ffn_up.output_max", "vision_tower.encoder.layers.1.mlp.up_proj.output_max is missing"},
               {1, "v.std_scale", "vision_tower.std_scale of the towers is missing"},
               {3, "v.patch_norm.1.bias", "embed_vision.patch_ln1.bias of the towers is missing"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_towers *t;
        begin(row[i].of);
        char *dir = temp_dir();
        write_gguf(dir, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
        put_mmproj(dir, "mmproj.gguf", row[i].skip);
        char named[300];
        snprintf(named, sizeof named, "%s", in(dir, "mmproj.gguf"));
        assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){.mmproj = named}), EK_EFORMAT);
        if (!strstr(ek_err_text(), row[i].says)) fail_msg("%s", ek_err_text());
        /* nobody asked for what was only found: text goes on */
        assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){0}), EK_OK);
        assert_int_equal(ek_towers_takes_image(t), EK_EUNSUPPORTED);
        ek_towers_close(t);
        tower_free(&current);
        remove_dir(dir);
    }
}

/* Before, the file that was first by name stopped even text. */
static void what_is_damaged_beside_a_model_is_passed_over(void **state)
{
    (void)state;
    ek_towers *t;
    begin(1);
    char *dir = temp_dir();
    write_gguf(dir, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
    put_file(dir, "a-mmproj-BF16.gguf", "GGUF", 4);
    put_file(dir, "b-mmproj-BF16.gguf", "", 0);
    assert_int_equal(symlink("nowhere", in(dir, "c-mmproj-BF16.gguf")), 0);
    for (int sees = 0; sees < 2; sees++) {
        if (sees) put_mmproj(dir, "mmproj-F16.gguf", NULL);
        assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){0}), EK_OK);
        assert_int_equal(ek_towers_takes_image(t), sees ? EK_OK : EK_EUNSUPPORTED);
        ek_towers_close(t);
    }
    assert_int_equal(ek_towers_open(&t, in(dir, "model.gguf"), &(ek_towers_opts){.mmproj = "none"}), EK_OK);
    assert_int_equal(ek_towers_takes_image(t), EK_EUNSUPPORTED);
    ek_towers_close(t);
    tower_free(&current);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_from_every_layout),
        cmocka_unit_test(bf16_is_taken_first),
        cmocka_unit_test(a_model_alone_has_no_towers),
        cmocka_unit_test(what_is_missing_is_reported),
        cmocka_unit_test(what_is_damaged_beside_a_model_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
