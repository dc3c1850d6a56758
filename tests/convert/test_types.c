/* Fields of what convert writes have the types that transformers 5.17 wants: its configurations are strict, and take a
 * number without a point for an integer. */
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
#include "../support/drafter.h"
#include "../support/files.h"
#include "../support/gguf_model.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "scene.h"

/* Types by a letter: i integer, f float, b true or false, s text, S list of texts, I integer or list of integers, m an
 * object with a table of its own; a second letter n: or null. */
typedef struct field {
    const char *name, *type;
} field;

/* What every configuration of transformers has: PreTrainedConfig. */
static const field common[] = {{"architectures", "S"},        {"dtype", "s"},        {"model_type", "s"},
                               {"transformers_version", "s"}, {"quantization", "m"}, {"quantization_config", "m"}};

static const field text[] = {{"vocab_size", "i"},
                             {"hidden_size", "i"},
                             {"intermediate_size", "i"},
                             {"num_hidden_layers", "i"},
                             {"num_attention_heads", "i"},
                             {"num_key_value_heads", "i"},
                             {"head_dim", "i"},
                             {"global_head_dim", "i"},
                             {"num_global_key_value_heads", "in"},
                             {"hidden_activation", "s"},
                             {"max_position_embeddings", "i"},
                             {"initializer_range", "f"},
                             {"rms_norm_eps", "f"},
                             {"use_cache", "b"},
                             {"pad_token_id", "in"},
                             {"eos_token_id", "In"},
                             {"bos_token_id", "in"},
                             {"tie_word_embeddings", "b"},
                             {"rope_parameters", "m"},
                             {"attention_bias", "b"},
                             {"attention_dropout", "f"},
                             {"sliding_window", "i"},
                             {"layer_types", "S"},
                             {"final_logit_softcapping", "fn"},
                             {"use_bidirectional_attention", "sn"},
                             {"vocab_size_per_layer_input", "i"},
                             {"hidden_size_per_layer_input", "i"},
                             {"attention_k_eq_v", "b"},
                             {"num_kv_shared_layers", "i"},
                             {"enable_moe_block", "b"},
                             {"use_double_wide_mlp", "b"},
                             {"num_experts", "in"},
                             {"top_k_experts", "in"},
                             {"moe_intermediate_size", "in"},
                             {"per_layer_config", "m"}};

static const field whole[] = {{"text_config", "m"},     {"vision_config", "m"},      {"audio_config", "m"},
                              {"boi_token_id", "in"},   {"eoi_token_id", "in"},      {"image_token_id", "in"},
                              {"video_token_id", "in"}, {"boa_token_id", "in"},      {"eoa_token_index", "in"},
                              {"audio_token_id", "in"}, {"initializer_range", "fn"}, {"tie_word_embeddings", "b"}};

static const field drafter[] = {
    {"text_config", "m"},   {"backbone_hidden_size", "i"},        {"use_ordered_embeddings", "b"},
    {"num_centroids", "i"}, {"centroid_intermediate_top_k", "i"}, {"tie_word_embeddings", "b"}};

static const field rope[] = {{"rope_type", "s"}, {"rope_theta", "f"}, {"partial_rotary_factor", "f"}, {"factor", "f"}};

static const field of_layer[] = {{"head_dim", "i"}, {"num_key_value_heads", "i"}, {"intermediate_size", "i"}};

static const field generation[] = {{"bos_token_id", "i"},    {"pad_token_id", "i"}, {"eos_token_id", "I"},
                                   {"suppress_tokens", "I"}, {"do_sample", "b"},    {"temperature", "f"},
                                   {"top_p", "f"},           {"top_k", "i"}};

static const field tokenizer[] = {{"tokenizer_class", "s"}, {"add_bos_token", "b"}, {"chat_variant", "s"},
                                  {"bos_token", "s"},       {"eos_token", "s"},     {"pad_token", "s"},
                                  {"unk_token", "s"},       {"mask_token", "s"},    {"chat_template", "s"}};

#define N(table) (int)(sizeof table / sizeof *table)

static bool is(const json_t *v, const char *type)
{
    if (type[1] == 'n' && json_is_null(v)) return true;
    const char *each = type[0] == 'S' ? "s" : "i";
    bool all = json_is_array(v);
    for (size_t i = 0; all && i < json_array_size(v); i++) all = is(json_array_get(v, i), each);
    switch (type[0]) {
    case 'i': return json_is_integer(v);
    case 'f': return json_is_real(v);
    case 'b': return json_is_boolean(v);
    case 's': return json_is_string(v);
    case 'S': return all;
    case 'I': return all || json_is_integer(v);
    case 'm': return json_is_object(v);
    default: return false;
    }
}

/* Fields of o that neither table has, or of another type. */
static void check(const char *what, const json_t *o, const field *a, int n_a, const field *b, int n_b)
{
    const char *key;
    json_t *v;
    assert_true(json_is_object(o));
    json_object_foreach((json_t *)o, key, v)
    {
        const char *type = NULL;
        for (int i = 0; i < n_a + n_b; i++) {
            const field *f = i < n_a ? &a[i] : &b[i - n_a];
            if (strcmp(f->name, key) == 0) type = f->type;
        }
        if (!type) fail_msg("%s: transformers knows no field %s", what, key);
        if (!is(v, type)) {
            char *found = json_dumps(v, JSON_ENCODE_ANY);
            fail_msg("%s: %s is %s, its type is %s", what, key, found, type);
        }
    }
}

static void check_text(const char *what, const json_t *o)
{
    const char *key;
    json_t *v;
    check(what, o, common, N(common), text, N(text));
    json_object_foreach(json_object_get(o, "rope_parameters"), key, v) check(what, v, rope, N(rope), NULL, 0);
    json_object_foreach(json_object_get(o, "per_layer_config"), key, v) check(what, v, of_layer, N(of_layer), NULL, 0);
    assert_true(json_object_size(json_object_get(o, "rope_parameters")) > 0);
}

static json_t *load(const char *dir, const char *name, const char *file)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s/%s", dir, name, file);
    json_t *o = json_load_file(path.data, 0, NULL);
    ek_buf_fini(&path);
    return o;
}

static void check_folder(const char *dir, const char *name)
{
    json_t *c = load(dir, name, "config.json"), *g = load(dir, name, "generation_config.json"),
           *t = load(dir, name, "tokenizer_config.json");
    const json_t *inner = json_object_get(c, "text_config");
    const bool drafts = strcmp(json_string_value(json_object_get(c, "model_type")), "gemma4_assistant") == 0;
    if (!inner) check_text(name, c);
    else {
        if (drafts) check(name, c, common, N(common), drafter, N(drafter));
        else check(name, c, common, N(common), whole, N(whole));
        check_text(name, inner);
    }
    if (drafts) { /* as its class demands */
        assert_int_equal(json_integer_value(json_object_get(inner, "vocab_size_per_layer_input")), 0);
        assert_int_equal(json_integer_value(json_object_get(inner, "hidden_size_per_layer_input")), 0);
        assert_true(json_is_false(json_object_get(inner, "use_double_wide_mlp")));
        assert_int_equal(json_integer_value(json_object_get(inner, "num_kv_shared_layers")),
                         json_integer_value(json_object_get(inner, "num_hidden_layers")));
    } else {
        check(name, g, generation, N(generation), NULL, 0);
        check(name, t, tokenizer, N(tokenizer), NULL, 0);
    }
    json_decref(c), json_decref(g), json_decref(t);
}

/* Before, the cap of logits was written as 30, frequencies as 10000, temperatures as 1. */
static void fields_have_the_types_of_transformers(void **state)
{
    (void)state;
    static const char *const shape[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3"};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        char *dir = temp_dir(), *hf = temp_dir(), from[256];
        const ek_config *c = tiny(shape[i]);
        write_hf(hf, c, NULL, NULL);
        write_gguf(hf, "m.gguf", c, &(gguf_opts){0}, NULL);
        snprintf(from, sizeof from, "%s/m.gguf", hf);
        write_random(dir, "random", c, "bf16");
        write_random(dir, "random-mlx", c, "mlx4");
        if (convert_to(dir, "hf", (ek_convert_opts){.from = hf, .type = "bf16"}, NULL) ||
            convert_to(dir, "hf-mlx", (ek_convert_opts){.from = hf, .type = "mlx8"}, NULL))
            fail_msg("%s", ek_err_text());
        check_folder(dir, "random"), check_folder(dir, "random-mlx");
        check_folder(dir, "hf"), check_folder(dir, "hf-mlx");
        if (convert_to(dir, "gguf", (ek_convert_opts){.from = from, .type = "f32"}, NULL))
            fail_msg("%s", ek_err_text());
        check_folder(dir, "gguf");
        remove_all(dir), remove_dir(hf);
    }
    static ek_config of;
    char *dir = temp_dir(), *hf = temp_dir();
    for (int centroids = 0; centroids < 12; centroids += 11) {
        drafter_config(&of, tiny("T6"), centroids);
        write_random(dir, centroids ? "ordered" : "dense", &of, "bf16");
        check_folder(dir, centroids ? "ordered" : "dense");
    }
    remove_all(dir), remove_dir(hf);
}

/* What the source had as a number, however it was read: 1e-6 in 32 bits is 9.99999997e-07 with nine digits. */
static void numbers_are_those_of_the_source(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[256];
    ek_buf read = {0};
    write_random(dir, "a", tiny("T1"), "bf16");
    snprintf(path, sizeof path, "%s/a/config.json", dir);
    assert_int_equal(ek_file_read(&read, path, 1 << 20), EK_OK);
    assert_non_null(strstr(read.data, "\"rms_norm_eps\": 1e-06,"));
    assert_non_null(strstr(read.data, "\"final_logit_softcapping\": 30.0,"));
    ek_buf_fini(&read);
    remove_all(dir);
}

static void floats_are_short_and_read_back(void **state)
{
    (void)state;
    static const struct {
        double x;
        const char *single, *wide;
    } row[] = {{30, "30.0", "30.0"},
               {0, "0.0", "0.0"},
               {-0.5, "-0.5", "-0.5"},
               {1e-6, "1e-06", "1e-06"},
               {0.00012, "0.00012", "0.00012"},
               {0.1, "0.1", "0.1"},
               {0.95, "0.95", "0.95"},
               {1e6, "1000000.0", "1000000.0"},
               {1e10, "10000000000.0", "10000000000.0"},
               {1e16, "1e+16", "1e+16"},
               {1.5e-9, "1.5e-09", "1.5e-09"},
               {12345.678, "12345.678", "12345.678"},
               {1 / 3.0, "0.33333334", "0.3333333333333333"},
               {1e300, NULL, "1e+300"}};
    ek_buf b = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (int wide = row[i].single ? 0 : 1; wide < 2; wide++) {
            ek_buf_clear(&b);
            if (wide) ek_buf_double(&b, row[i].x);
            else ek_buf_float(&b, (float)row[i].x);
            assert_string_equal(b.data, wide ? row[i].wide : row[i].single);
        }
    }
    uint32_t bits = 12345;
    for (int i = 0; i < 200000; i++) {
        float x;
        bits = bits * 1664525u + 1013904223u;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        ek_buf_clear(&b);
        ek_buf_float(&b, x);
        if (strtof(b.data, NULL) != x || !strpbrk(b.data, ".e")) fail_msg("%a is written as %s", (double)x, b.data);
        ek_buf_clear(&b);
        ek_buf_double(&b, (double)x / 3);
        if (strtod(b.data, NULL) != (double)x / 3) fail_msg("%a / 3 is written as %s", (double)x, b.data);
    }
    ek_buf_fini(&b);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_have_the_types_of_transformers),
        cmocka_unit_test(numbers_are_those_of_the_source),
        cmocka_unit_test(floats_are_short_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
