/* Folders that are written hold the model they were written from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/checkpoint.h"
#include "../support/files.h"
#include "../support/mlx.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "convert/stream.h"
#include "scene.h"
#include "tensor/checkpoint.h"

/* What bench makes in memory and what convert writes are one model, where the file can hold the values: a table of
 * per-layer inputs (T1, Q1) is drawn as float32, so only F32 does. */
static void random_weights_on_disk_are_those_in_memory(void **state)
{
    static const struct {
        const char *config, *type;
        int bits;
    } row[] = {{"Q2", "mlx4", 4}, {"Q2", "mlx8", 8}, {"Q3", "mlx4", 4}, {"Q3", "bf16", 0}, {"Q2", "bf16", 0},
               {"T7", "bf16", 0}, {"T3", "f32", 0},  {"T1", "f32", 0},  {"Q1", "f32", 0}};
    (void)state;
    char *dir = temp_dir();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ek_config *c = tiny(row[i].config);
        char what[64];
        snprintf(what, sizeof what, "%s as %s", row[i].config, row[i].type);
        write_random(dir, what, c, row[i].type);
        logits want = logits_of_random(c, row[i].bits, true);
        same_logits(what, want, logits_of(dir, what, true));
        want = logits_of_random(c, row[i].bits, false);
        same_logits(what, want, logits_of(dir, what, false));
    }
    remove_all(dir);
}

/* Every configuration, from weights that another program wrote: with a folder of BF16 as source nothing may change in
 * BF16 and F32, and nothing in a second copy. */
static void a_copy_is_the_same_model(void **state)
{
    static const char *const name[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3"};
    (void)state;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *dir = temp_dir(), from[128], *source = temp_dir();
        const ek_config *c = tiny(name[i]);
        write_hf(source, c, NULL, NULL);
        if (convert_to(dir, "bf16", (ek_convert_opts){.from = source, .type = "bf16"}, NULL) ||
            convert_to(dir, "f32", (ek_convert_opts){.from = source, .type = "f32"}, NULL))
            fail_msg("%s: %s", name[i], ek_err_text());
        snprintf(from, sizeof from, "%s/f32", dir);
        if (convert_to(dir, "again", (ek_convert_opts){.from = from, .type = "bf16"}, NULL))
            fail_msg("%s: %s", name[i], ek_err_text());
        same_logits(name[i], logits_of(source, ".", true), logits_of(dir, "bf16", true));
        same_logits(name[i], logits_of(source, ".", true), logits_of(dir, "f32", true));
        same_logits(name[i], logits_of(source, ".", false), logits_of(dir, "again", false));
        remove_all(dir);
        remove_dir(source);
    }
}

/* Sizes of single layers, which config.json says under numbers of one width. Before per_layer_config was written, such
 * a model was refused. */
static void layers_of_their_own_sizes(void **state)
{
    (void)state;
    static ek_config c;
    char *dir = temp_dir(), path[256];
    ek_buf text = {0};
    c = *tiny("T4"); /* SFSF, 3 key-value heads */
    c.n_layers = c.first_shared = 12;
    for (int i = 0; i < c.n_layers; i++) c.layer[i] = c.layer[i % 2];
    for (int i = 1; i < c.n_layers; i += 2) c.layer[i].n_kv_heads = 1;
    c.layer[2].intermediate_size = 40;
    c.layer[11].intermediate_size = 104;
    assert_int_equal(ek_config_finish(&c), EK_OK);
    write_random(dir, "own", &c, "f32");
    snprintf(path, sizeof path, "%s/own/config.json", dir);
    assert_int_equal(ek_file_read(&text, path, 1 << 20), EK_OK);
    static const char *const parts[] = {
        "\"per_layer_config\": {\"01\": {\"head_dim\": 36, \"num_key_value_heads\": 1}, ",
        "\"02\": {\"intermediate_size\": 40}, \"03\": {",
        "\"11\": {\"head_dim\": 36, \"num_key_value_heads\": 1, "
        "\"intermediate_size\": 104}}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text.data, parts[i])) fail_msg("no %s in %s", parts[i], text.data);
    same_logits("own sizes", logits_of_random(&c, 0, true), logits_of(dir, "own", true));
    ek_buf_fini(&text);
    remove_all(dir);
}

/* Shards: every tensor once, in the file that the index says, none larger than asked for unless alone. */
static void weights_are_divided_into_files(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[256];
    const ek_config *c = tiny("Q2");
    ek_convert_report report;
    ek_convert_opts o = {.invented = c, .type = "mlx4", .max_file_bytes = 200000};
    assert_int_equal(convert_to(dir, "shards", o, &report), EK_OK);
    assert_true(report.files > 2);
    snprintf(path, sizeof path, "%s/shards/model-00001-of-%05d.safetensors", dir, report.files);
    assert_true(ek_is_file(path));
    write_random(dir, "whole", c, "mlx4");
    same_logits("shards", logits_of(dir, "shards", false), logits_of(dir, "whole", false));
    remove_all(dir);
}

/* MLX of MLX: matrices that are stored in the wanted format already keep their bytes. */
static void codes_are_copied_where_the_format_stays(void **state)
{
    (void)state;
    char *dir = temp_dir(), from[128];
    write_random(dir, "one", tiny("Q2"), "mlx8");
    snprintf(from, sizeof from, "%s/one", dir);
    assert_int_equal(convert_to(dir, "two", (ek_convert_opts){.from = from, .type = "mlx8"}, NULL), EK_OK);
    same_logits("mlx8", logits_of(dir, "one", false), logits_of(dir, "two", false));
    remove_all(dir);
}

static const ek_tensor *tensor(ek_checkpoint *c, const char *name)
{
    const ek_tensor *t = ek_checkpoint_find(c, name);
    if (!t) fail_msg("%s is missing", name);
    return t;
}

/* The rule of docs/MODELS.md: what keeps more bits. Q1 has per-layer inputs, Q2 experts. */
static void some_matrices_keep_more_bits(void **state)
{
    static const struct {
        const char *config, *module;
        int bits;
    } row[] = {{"Q1", "model.layers.0.mlp.up_proj", 4},
               {"Q1", "model.layers.0.self_attn.k_proj", 6},
               {"Q1", "model.embed_tokens", 6},
               {"Q1", "model.layers.0.per_layer_projection", 8},
               {"Q1", "model.per_layer_model_projection", 8},
               {"Q1", "model.embed_tokens_per_layer", 6},
               {"Q2", "model.layers.1.router.proj", 8},
               {"Q2", "model.layers.1.experts.switch_glu.down_proj", 4}};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *dir = temp_dir(), *source = temp_dir(), name[128], path[128];
        ek_checkpoint *files;
        write_hf(source, tiny(row[i].config), NULL, NULL);
        assert_int_equal(convert_to(dir, "mlx", (ek_convert_opts){.from = source, .type = "mlx4"}, NULL), EK_OK);
        snprintf(path, sizeof path, "%s/mlx", dir);
        assert_int_equal(ek_checkpoint_open(&files, path), EK_OK);
        snprintf(name, sizeof name, "%s.weight", row[i].module);
        const ek_tensor *codes = tensor(files, name);
        snprintf(name, sizeof name, "%s.scales", row[i].module);
        const ek_tensor *scales = tensor(files, name);
        int64_t words = codes->dim[codes->n_dims - 1], groups = scales->dim[scales->n_dims - 1];
        int64_t group = strstr(row[i].module, "per_layer_projection") ? 32 : 64; /* its rows are 32 long */
        assert_int_equal(words * 32, groups * group * row[i].bits);
        ek_checkpoint_close(files);
        remove_all(dir);
        remove_dir(source);
    }
}

/* A name that something else took while the work went on: that stays, and what was written does not stay beside it. */
static void a_name_that_is_taken_meanwhile(void **state)
{
    (void)state;
    char *dir = temp_dir();
    for (int folder = 0; folder < 2; folder++) {
        ek_outdir *o;
        char path[160], part[176];
        snprintf(path, sizeof path, "%s/%s", dir, folder ? "model" : "model.gguf");
        snprintf(part, sizeof part, "%s.part", path);
        const char *name[] = {folder ? "config.json" : path};
        assert_int_equal(ek_outdir_open(&o, path, NULL, folder, true, name, 1), EK_OK);
        if (folder) put_text(dir, "model", "mine");
        else assert_int_equal(mkdir(path, 0777), 0);
        assert_int_equal(ek_outdir_commit(o), EK_EINVAL);
        assert_false(ek_is_file(part) || ek_is_dir(part));
        assert_true(folder ? ek_is_file(path) : ek_is_dir(path));
    }
    remove_all(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_weights_on_disk_are_those_in_memory),
        cmocka_unit_test(a_copy_is_the_same_model),
        cmocka_unit_test(layers_of_their_own_sizes),
        cmocka_unit_test(weights_are_divided_into_files),
        cmocka_unit_test(a_name_that_is_taken_meanwhile),
        cmocka_unit_test(codes_are_copied_where_the_format_stays),
        cmocka_unit_test(some_matrices_keep_more_bits),
    };
    ek_log_set(EK_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
