/* Checkpoints in every layout that is read, and what is said about damaged ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/err_name.h"
#include "../support/mlx.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "tensor/dtype.h"
#include "base/machine/cpu.h"
#include "base/log.h"

enum { TOKENS = 9 };

static ek_config config; /* large */

static ek_config *tiny(const char *name)
{
    assert_int_equal(ek_config_tiny(&config, name), EK_OK);
    return &config;
}

static void same_logits(const char *what, const char *a, const char *b, int vocab)
{
    float *x = logits_of_folder(a, true, TOKENS), *y = logits_of_folder(b, true, TOKENS);
    for (int i = 0; i < TOKENS * vocab; i++)
        if (ek_f32_bits(x[i]) != ek_f32_bits(y[i]))
            fail_msg("%s: logit %d of position %d is %a and %a", what, i % vocab, i / vocab, (double)x[i],
                     (double)y[i]);
    free(x), free(y);
}

/* What a text model may leave aside. */
static void add_ignored(st_file *f)
{
    static const float x[8];
    static const int64_t eight[] = {8};
    static const char *const name[] = {"model.vision_tower.encoder.weight",
                                       "model.audio_tower.x.input_max",
                                       "model.embed_vision.embedding_projection.weight",
                                       "model.embed_audio.w",
                                       "model.vision_embedder.patch.weight",
                                       "vision_tower.patch.weight",
                                       "model.language_model.layers.3.self_attn.k_proj.weight",
                                       "model.language_model.layers.3.self_attn.v_proj.weight",
                                       "model.language_model.layers.5.self_attn.k_norm.weight"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) st_add(f, name[i], "F32", 1, eight, x, sizeof x);
}

static void test_hugging_face_layouts(void **state)
{
    (void)state;
    char *plain = temp_dir(), *other = temp_dir();
    ek_config *c = tiny("T1");
    write_hf(plain, c, NULL, NULL);
    write_hf(other, c, &(hf_opts){.prefix = "model.language_model."}, add_ignored);
    same_logits("with towers", plain, other, c->vocab_size);
    write_hf(other, c, &(hf_opts){.prefix = "language_model.model."}, NULL);
    same_logits("MLX prefix", plain, other, c->vocab_size);
    write_hf(other, c, &(hf_opts){.f32 = true}, NULL);
    same_logits("F32", plain, other, c->vocab_size);
    remove_dir(other);
    other = temp_dir();
    write_hf(other, c, &(hf_opts){.shards = 3}, NULL);
    same_logits("three files", plain, other, c->vocab_size);
    remove_dir(plain);
    remove_dir(other);
}

/* Codes that are widened are the weights they stand for, in every width, group and vintage. */
static void test_mlx_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        mlx_opts o;
    } vintage[] = {
        {"Q1", {4, 64, "model.", "BF16", NULL, 0, 0, false, NULL}},
        {"Q1", {4, 64, "model.", "BF16", "per_layer_model_projection", 0, 0, false, NULL}},
        {"Q1", {4, 32, "language_model.model.", "BF16", "mlp.", 8, 64, false, NULL}},
        {"Q1", {2, 128, "model.", "F16", NULL, 0, 0, false, NULL}},
        {"Q1", {3, 32, "model.", "F32", "embed_tokens", 6, 64, true, NULL}},
        {"Q2", {4, 64, "language_model.model.", "BF16", "router.proj", 8, 64, false, NULL}},
        {"Q2", {5, 32, "model.", "BF16", "switch_glu.up_proj", 6, 64, false, NULL}},
        {"Q2", {8, 64, "model.", "F16", "switch_glu", 0, 0, false, NULL}},
        {"Q3", {6, 64, "model.", "BF16", "self_attn", 3, 32, true, NULL}},
        {"Q3", {5, 64, "model.", "F32", NULL, 0, 0, false, NULL}},
    };
    for (size_t i = 0; i < sizeof vintage / sizeof *vintage; i++) {
        char *mlx = temp_dir(), *hf = temp_dir(), what[32];
        ek_config *c = tiny(vintage[i].config);
        snprintf(what, sizeof what, "MLX vintage %zu", i);
        write_mlx(mlx, hf, c, &vintage[i].o);
        same_logits(what, mlx, hf, c->vocab_size);
        remove_dir(mlx), remove_dir(hf);
    }
}

/* Integer arithmetic is near the exact one: the codes of each matrix went where they belong. */
static void test_quantised_arithmetic_is_near(void **state)
{
    (void)state;
    static const mlx_opts o = {8, 64, "model.", "BF16", "router.proj", 8, 32, false, NULL};
    static const char *const names[] = {"Q1", "Q2", "Q3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *mlx = temp_dir(), *hf = temp_dir();
        ek_config *c = tiny(names[i]);
        write_mlx(mlx, hf, c, &o);
        float *want = logits_of_folder(hf, true, TOKENS), *got = ek_alloc(sizeof *got * (size_t)c->vocab_size),
              worst = 0;
        ek_model *m;
        ek_model_opts opts = {.k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
        assert_int_equal(ek_model_open(&m, mlx, &opts), EK_OK);
        assert_non_null(strstr(ek_model_numerics_id(m), "q8.64"));
        assert_non_null(strstr(ek_model_numerics_id(m), " a=auto "));
        assert_int_equal(run_tokens(m, (const int32_t[]){5}, 1, NULL, got), EK_OK);
        for (int v = 0; v < c->vocab_size; v++) worst = fmaxf(worst, fabsf(got[v] - want[v]));
        print_message("%s: one token, integer against exact: %.3g\n", names[i], (double)worst);
        assert_true(worst > 0 && worst < 0.5f);
        ek_model_close(m);
        free(want), free(got);
        remove_dir(mlx), remove_dir(hf);
    }
}

static void expect(const char *dir, ek_err want, const char *says)
{
    ek_model *m;
    ek_err err = open_folder(&m, dir, true);
    if (err != want || !strstr(ek_err_text(), says))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
}

static void add_bias(st_file *f)
{
    static const float x[8];
    st_add(f, "model.layers.0.mlp.gate_proj.bias", "F32", 1, (const int64_t[]){8}, x, sizeof x);
}

static void add_layer(st_file *f)
{
    static const float x[8];
    st_add(f, "model.layers.6.self_attn.k_proj.weight", "F32", 1, (const int64_t[]){8}, x, sizeof x);
}

static void add_scales(st_file *f)
{
    static const float x[8];
    st_add(f, "model.layers.0.mlp.gate_proj.scales", "F32", 1, (const int64_t[]){8}, x, sizeof x);
}

static void add_integers(st_file *f)
{
    static const uint32_t x[96 * 64];
    st_add(f, "model.layers.0.mlp.gate_proj.weight", "U32", 2, (const int64_t[]){96, 64}, x, sizeof x);
}

/* --weights 8 beside matrices that are quantised already: both formats are named, though one is part of the other. */
static void test_formats_are_named(void **state)
{
    (void)state;
    static const mlx_opts o = {8, 64, "model.", "BF16", "embed_tokens", 0, 0, false, NULL};
    ek_model_opts opts = {.quantise = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
    char *dir = temp_dir(), *hf = temp_dir();
    ek_model *m;
    write_mlx(dir, hf, tiny("Q1"), &o);
    assert_int_equal(ek_model_open(&m, dir, &opts), EK_OK);
    if (!strstr(ek_model_numerics_id(m), " w=bf16@q8.64+q8.64+")) fail_msg("%s", ek_model_numerics_id(m));
    ek_model_close(m);
    remove_dir(dir), remove_dir(hf);
}

static void test_missing_and_unknown_tensors(void **state)
{
    (void)state;
    static void (*const nothing)(st_file *) = NULL;
    const struct {
        const char *skip;
        void (*extra)(st_file *);
        const char *says;
    } wrong[] = {
        {"model.embed_tokens.weight", nothing, "tensor model.embed_tokens.weight is missing"},
        {"model.norm.weight", nothing, "tensor model.norm.weight is missing"},
        {"model.layers.5.mlp.up_proj.weight", nothing, "tensor model.layers.5.mlp.up_proj.weight is missing"},
        {"model.layers.2.self_attn.k_proj.weight", nothing, "model.layers.2.self_attn.k_proj.weight is missing"},
        {"model.layers.0.layer_scalar", nothing, "tensor model.layers.0.layer_scalar is missing"},
        {"model.embed_tokens_per_layer.weight", nothing, "embed_tokens_per_layer.weight is missing"},
        {NULL, add_bias, "tensor model.layers.0.mlp.gate_proj.bias is no part of the model"},
        {NULL, add_layer, "tensor model.layers.6.self_attn.k_proj.weight is no part of the model"},
        {NULL, add_scales, "tensor model.layers.0.mlp.gate_proj.biases is missing"},
        {"model.layers.0.mlp.gate_proj.weight", add_integers, "has type U32, without .scales it must be"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = temp_dir();
        write_hf(dir, tiny("T1"), &(hf_opts){.skip = wrong[i].skip}, wrong[i].extra);
        expect(dir, EK_EFORMAT, wrong[i].says);
        assert_non_null(strstr(ek_err_text(), "model.safetensors"));
        remove_dir(dir);
    }
}

/* Replaces the first occurrence of a text in DIR/config.json. */
static void edit_config(const char *dir, const char *from, const char *to)
{
    char path[256];
    ek_buf text = {0}, out = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "rb");
    for (int ch; (ch = fgetc(f)) != EOF;) ek_buf_char(&text, (char)ch);
    fclose(f);
    char *at = strstr(text.data, from);
    assert_non_null(at);
    ek_buf_add(&out, text.data, (size_t)(at - text.data));
    ek_buf_str(&out, to);
    ek_buf_str(&out, at + strlen(from));
    put_text(dir, "config.json", out.data);
    ek_buf_fini(&text);
    ek_buf_fini(&out);
}

static void test_shapes_against_the_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } wrong[] = {
        {"\"intermediate_size\":96", "\"intermediate_size\":98", "has shape [96, 64], config.json needs [98, 64]"},
        {"\"vocab_size\":99", "\"vocab_size\":98",
         "embed_tokens.weight has shape [99, 64], config.json needs [98, 64]"},
        {"\"head_dim\":16", "\"head_dim\":20", "q_proj.weight has shape [64, 64], config.json needs [80, 64]"},
        {"\"num_kv_shared_layers\":3", "\"num_kv_shared_layers\":2", "layers.3.self_attn.k_proj.weight is missing"},
        {"\"hidden_size_per_layer_input\":8", "\"hidden_size_per_layer_input\":0",
         "embed_tokens_per_layer.weight is no part"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = temp_dir();
        write_hf(dir, tiny("T1"), NULL, NULL);
        edit_config(dir, wrong[i].from, wrong[i].to);
        expect(dir, EK_EFORMAT, wrong[i].says);
        remove_dir(dir);
    }
}

static void test_quantised_tensors_against_the_configuration(void **state)
{
    (void)state;
    static const mlx_opts o = {4, 64, "model.", "BF16", "mlp.down_proj", 8, 64, false, NULL};
    static const struct {
        const char *from, *to, *says;
        ek_err err;
    } wrong[] = {
        {"\"bits\":4", "\"bits\":8", "embed_tokens.weight has shape [331, 16], config.json needs [331, 32]",
         EK_EFORMAT},
        {"\"group_size\":64", "\"group_size\":32", "embed_tokens.scales has shape [331, 2], config.json needs [331, 4]",
         EK_EFORMAT},
        {"\"group_size\":64", "\"group_size\":128",
         "embed_tokens.scales has shape [331, 2], config.json needs [331, 1]", EK_EFORMAT},
        {"\"bits\":8", "\"bits\":4", "mlp.down_proj.weight has shape [128, 80], config.json needs [128, 40]",
         EK_EFORMAT},
        {"\"quantization\":", "\"unread\":", "has .scales, but config.json gives no quantization bits", EK_EFORMAT},
        {"\"bits\":4", "\"bits\":4,\"mode\":\"mxfp8\"",
         "quantization mode mxfp8 of the file has 8 bits in groups of 32", EK_EFORMAT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = temp_dir(), *hf = temp_dir();
        write_mlx(dir, hf, tiny("Q1"), &o);
        edit_config(dir, wrong[i].from, wrong[i].to);
        expect(dir, wrong[i].err, wrong[i].says);
        remove_dir(dir), remove_dir(hf);
    }
}

static void test_damaged_files(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[256];
    ek_buf all = {0};
    expect("/nonexistent-folder", EK_ENOTFOUND, "/nonexistent-folder: there is no such file or folder");
    expect(dir, EK_ENOTFOUND, "config.json");
    write_hf(dir, tiny("T5"), NULL, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "rb");
    for (int ch; (ch = fgetc(f)) != EOF;) ek_buf_char(&all, (char)ch);
    fclose(f);
    size_t header = 0;
    memcpy(&header, all.data, 8);
    const size_t cut[] = {0, 5, 8, 100, header, header + 8, all.len - 1, all.len / 2};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        put_file(dir, "model.safetensors", all.data, cut[i]);
        expect(dir, EK_EFORMAT, "model.safetensors");
    }
    put_file(dir, "model.safetensors", all.data, all.len);
    ek_model *m;
    assert_int_equal(open_folder(&m, dir, true), EK_OK);
    ek_model_close(m);
    expect(path, EK_EUNSUPPORTED, "is a file; a model is a GGUF file or a folder");
    put_text(dir, "config.json", "{");
    expect(dir, EK_EFORMAT, "config.json");
    ek_buf_fini(&all);
    remove_dir(dir);
}

static void test_memory_is_refused_before_it_is_taken(void **state)
{
    (void)state;
    ek_model *m;
    ek_model_opts o = {.cpu = ek_cpu_detect(), .memory_limit = 1e6};
    assert_int_equal(ek_config_published(&config, "31b", 0), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &config, 8, 1, &o), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "GB, 0.00 GB can be taken"));
    o.memory_limit = 1e12;
    o.k_format = EK_KV_Q8, o.v_format = (ek_kv_format)EK_KV_Q4;
    tiny("T1");
    config.layer[0].head_dim = config.layer[2].head_dim = config.layer[3].head_dim = config.layer[4].head_dim = 6;
    assert_int_equal(ek_model_synthetic(&m, &config, 0, 1, &o), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "no attention kernel for sliding layers"));
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hugging_face_layouts),
        cmocka_unit_test(test_mlx_layouts),
        cmocka_unit_test(test_quantised_arithmetic_is_near),
        cmocka_unit_test(test_formats_are_named),
        cmocka_unit_test(test_missing_and_unknown_tensors),
        cmocka_unit_test(test_shapes_against_the_configuration),
        cmocka_unit_test(test_quantised_tensors_against_the_configuration),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_memory_is_refused_before_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
