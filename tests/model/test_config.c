/* config.json in the forms it is found in, and what is said about wrong ones. */
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
#include "base/buf.h"
#include "model/model.h"
#include "model/source/module.h"

static ek_config c; /* large */

/* The fields of a tiny configuration, with one replaced: `"key":` in change finds it. */
static char *changed(const char *name, const char *key, const char *value)
{
    static ek_config from;
    ek_buf b = {0}, out = {0};
    assert_int_equal(ek_config_tiny(&from, name), EK_OK);
    config_fields(&b, &from);
    ek_buf_char(&out, '{');
    const char *at = key ? strstr(b.data, key) : NULL;
    if (key && !at) {
        ek_buf_fmt(&out, "%s%s,%s", key, value, b.data);
    } else if (key) {
        const char *end = at + strlen(key);
        for (int deep = 0; *end && (deep || !strchr(",]}", *end)); end++)
            deep += (*end == '[' || *end == '{') - (*end == ']' || *end == '}');
        ek_buf_add(&out, b.data, (size_t)(at - b.data));
        if (value) ek_buf_fmt(&out, "%s%s%s", key, value, end);
        else ek_buf_str(&out, *end ? end + 1 : end);
        if (!value && !*end) out.data[--out.len] = '\0';
    } else {
        ek_buf_str(&out, b.data);
    }
    ek_buf_char(&out, '}');
    ek_buf_fini(&b);
    return out.data;
}

static void accepted(const char *json, const char *generation)
{
    if (ek_config_parse(&c, json, generation)) fail_msg("%s\n%s", ek_err_text(), json);
}

static void test_tiny_configurations_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3", "Q4"};
    static ek_config want;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *json = changed(names[i], NULL, NULL);
        assert_int_equal(ek_config_tiny(&want, names[i]), EK_OK);
        accepted(json, NULL);
        for (int l = 0; l < want.n_layers; l++) {
            assert_int_equal(c.layer[l].kind, want.layer[l].kind);
            assert_int_equal(c.layer[l].owns_kv, want.layer[l].owns_kv);
            assert_int_equal(c.layer[l].donor, want.layer[l].donor);
            assert_int_equal(c.layer[l].k_eq_v, want.layer[l].k_eq_v);
            assert_int_equal(c.layer[l].head_dim, want.layer[l].head_dim);
            assert_int_equal(c.layer[l].n_kv_heads, want.layer[l].n_kv_heads);
            assert_int_equal(c.layer[l].intermediate_size, want.layer[l].intermediate_size);
        }
        assert_int_equal(c.n_experts, want.n_experts);
        assert_int_equal(c.per_layer_size, want.per_layer_size);
        assert_true(c.rope_partial[EK_FULL] == want.rope_partial[EK_FULL]);
        free(json);
    }
}

static void test_donors_are_the_last_owners_of_their_kind(void **state)
{
    (void)state;
    char *json = changed("T1", NULL, NULL); /* SFSSSF, 3 shared */
    accepted(json, NULL);
    assert_int_equal(c.first_shared, 3);
    assert_int_equal(c.layer[3].donor, 2);
    assert_int_equal(c.layer[4].donor, 2);
    assert_int_equal(c.layer[5].donor, 1);
    free(json);
}

static void test_nested_null_and_per_layer_forms(void **state)
{
    (void)state;
    char *json = changed("T3", NULL, NULL), wrapped[4096];
    snprintf(wrapped, sizeof wrapped, "{\"model_type\":\"gemma4\",\"eos_token_id\":[1,96],\"text_config\":%s}", json);
    accepted(wrapped,
             "{\"eos_token_id\":[1,50],\"suppress_tokens\":[7,8],\"temperature\":0.5,\"top_k\":64,\"top_p\":0.95}");
    assert_string_equal(c.model_type, "gemma4");
    assert_int_equal(c.n_stop, 3);
    assert_int_equal(c.stop[0] + c.stop[1] + c.stop[2], 1 + 96 + 50);
    assert_int_equal(c.n_suppress, 2);
    assert_true(c.temperature == 0.5f && c.top_k == 64);
    free(json);

    json = changed("T5", "\"num_global_key_value_heads\":", "null");
    accepted(json, NULL);
    assert_int_equal(c.layer[3].n_kv_heads, 2);
    free(json);

    /* later files: per_layer_config in place of global_head_dim */
    json = changed(
        "T5", "\"global_head_dim\":",
        "null,\"per_layer_config\":{\"3\":{\"head_dim\":24},\"5\":{\"head_dim\":24,\"num_key_value_heads\":1}}");
    assert_int_equal(ek_config_parse(&c, json, NULL), EK_EFORMAT); /* two full layers that differ */
    free(json);
    json = changed("T5", "\"global_head_dim\":",
                   "null,\"per_layer_config\":{\"3\":{\"head_dim\":24,\"num_key_value_heads\":1},"
                   "\"5\":{\"head_dim\":24,\"num_key_value_heads\":1}}");
    accepted(json, NULL);
    assert_int_equal(c.layer[5].head_dim, 24);
    assert_int_equal(c.layer[5].n_kv_heads, 1);
    assert_int_equal(c.layer[0].head_dim, 16);
    free(json);

    json = changed("T5", "\"final_logit_softcapping\":", "null");
    accepted(json, NULL);
    assert_true(c.final_logit_softcapping == 0);
    free(json);
}

static const struct {
    const char *key, *value, *says;
} bad[] = {
    {"\"vocab_size\":", "0", "vocab_size is 0, must be a whole number from 1 to 16777216"},
    {"\"vocab_size\":", "99999999999", "vocab_size is 99999999999"},
    {"\"vocab_size\":", "\"many\"", "vocab_size is \"many\""},
    {"\"vocab_size\":", "99.5", "vocab_size is 99.5"},
    {"\"hidden_size\":", NULL, "hidden_size is missing"},
    {"\"num_hidden_layers\":", "7", "layer_types has 6 entries, num_hidden_layers is 7"},
    {"\"num_hidden_layers\":", "100000", "num_hidden_layers is 100000"},
    {"\"num_kv_shared_layers\":", "6", "num_kv_shared_layers is 6"},
    {"\"num_kv_shared_layers\":", "5", "layer 1 shares keys and values, but none of the first 1 layers"},
    {"\"num_key_value_heads\":", "3", "4 heads of layer 0 cannot share 3 key-value heads evenly"},
    {"\"head_dim\":", "15", "head_dim of layer 0 is 15, must be even"},
    {"\"global_head_dim\":", "null", "global_head_dim is missing, and so is per_layer_config"},
    {"\"sliding_window\":", "null", "sliding_window is missing"},
    {"\"sliding_window\":", "-4", "sliding_window is -4"},
    {"\"layer_types\":", "[\"sliding_attention\",1,2,3,4,5]", "layer_types[1] is no string"},
    {"\"layer_types\":", "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]", "layer_types[0] is a"},
    {"\"layer_types\":", "7", "layer_types is 7, must be a list"},
    {"\"rope_parameters\":", "{}", "rope_parameters has no sliding_attention"},
    {"\"rope_theta\":", "0", "rope_theta is 0"},
    {"\"rope_theta\":", "\"x\"", "rope_theta is \"x\""},
    {"\"rope_type\":", "\"yarn\"", "rope_type is yarn"},
    {"\"rms_norm_eps\":", "-1", "rms_norm_eps is -1"},
    {"\"vocab_size_per_layer_input\":", "50", "vocab_size_per_layer_input is 50, vocab_size is 99"},
    {"\"model_type\":", "\"llama\"", "model_type is llama"},
    {"\"model_type\":", "\"gemma4_assistant\"", "backbone_hidden_size is missing"},
    {"\"model_type\":", "null", "model_type is missing"},
    {"\"hidden_activation\":", "\"silu\"", "hidden_activation is silu"},
    {"\"use_bidirectional_attention\":", "\"all\"", "use_bidirectional_attention is all, \"vision\" can be run"},
    {"\"attention_bias\":", "true", "attention_bias is true"},
    {"\"enable_moe_block\":", "true", "num_experts is missing"},
    {"\"enable_moe_block\":", "true,\"num_experts\":4,\"top_k_experts\":5", "top_k_experts is 5"},
    {"\"eos_token_id\":", "[1,99]", "eos_token_id is 99"},
    {"\"eos_token_id\":", "\"end\"", "eos_token_id is \"end\""},
    {"\"use_double_wide_mlp\":", "1", "use_double_wide_mlp is 1, must be true or false"},
    {"\"per_layer_config\":", "{\"1\":{\"head_dim\":-2}}", "per_layer_config.1.head_dim is -2"},
    /* another type than the field has */
    {"\"model_type\":", "5", "config.json: model_type is 5, must be a string"},
    {"\"text_config\":", "5", "config.json: text_config is 5, must be an object"},
    {"\"hidden_activation\":", "-1", "config.json: hidden_activation is -1, must be a string"},
    {"\"attention_bias\":", "\"x\"", "config.json: attention_bias is \"x\", must be true or false"},
    {"\"tie_word_embeddings\":", "\"x\"", "config.json: tie_word_embeddings is \"x\", must be true or false"},
    {"\"use_bidirectional_attention\":", "true",
     "use_bidirectional_attention is true, must be null, false or a string"},
    {"\"enable_moe_block\":", "\"yes\"", "enable_moe_block is \"yes\", must be true or false"},
    {"\"attention_k_eq_v\":", "[]", "attention_k_eq_v is a list, must be true or false"},
    {"\"layer_types\":", "{}", "layer_types is an object, must be a list"},
    {"\"layer_types\":", "null", "layer_types is missing"},
    {"\"rope_parameters\":", "[]", "rope_parameters is a list, must be an object"},
    {"\"rope_parameters\":", "{\"sliding_attention\":5}", "rope_parameters.sliding_attention is 5, must be an object"},
    {"\"rope_type\":", "7", "rope_parameters.sliding_attention.rope_type is 7, must be a string"},
    {"\"per_layer_config\":", "5", "config.json: per_layer_config is 5, must be an object"},
    {"\"per_layer_config\":", "{\"2\":[]}", "config.json: per_layer_config.2 is a list, must be an object"},
    {"\"eos_token_id\":", "{}", "eos_token_id is an object, must be a whole number"},
    {"\"eos_token_id\":", "[1,true]", "eos_token_id is true, must be a whole number"},
    {"\"bos_token_id\":", "\"<bos>\"", "bos_token_id is \"<bos>\", must be a whole number"},
    {"\"final_logit_softcapping\":", "true", "final_logit_softcapping is true, must be a number"},
    {"\"dtype\":", "16", "config.json: dtype is 16, must be a string"},
    {"\"torch_dtype\":", "[]", "config.json: torch_dtype is a list, must be a string"},
    {"\"rms_norm_eps\":", "\"1e-6\"", "rms_norm_eps is \"1e-6\", must be a number"},
};

static void test_wrong_values_are_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *json = changed("T1", bad[i].key, bad[i].value);
        ek_err err = ek_config_parse(&c, json, NULL);
        if ((err != EK_EFORMAT && err != EK_EUNSUPPORTED) || !strstr(ek_err_text(), bad[i].says))
            fail_msg("%s%s: %s \"%s\", wanted \"%s\"", bad[i].key, bad[i].value ? bad[i].value : "", err_name(err),
                     ek_err_text(), bad[i].says);
        free(json);
    }
    static const char *const no_object[] = {"", "7", "[]", "{", "{\"a\":1,\"a\":2}", "nul", "{}"};
    for (size_t i = 0; i < sizeof no_object / sizeof *no_object; i++)
        assert_int_equal(ek_config_parse(&c, no_object[i], NULL), EK_EFORMAT);
    static const struct {
        const char *json, *says;
    } generation[] = {
        {"{\"temperature\":-1}", "temperature is -1, must be a number from 0 to 1000"},
        {"{\"temperature\":\"hot\"}", "temperature is \"hot\", must be a number"},
        {"{\"top_p\":2}", "top_p is 2, must be a number from 0 to 1"},
        {"{\"top_k\":1.5}", "top_k is 1.5, must be a whole number"},
        {"{\"eos_token_id\":[\"x\"]}", "eos_token_id is \"x\", must be a whole number from 0 to 98"},
        {"{\"suppress_tokens\":[-5]}", "suppress_tokens is -5, must be a whole number from 0 to 98"},
        {"{\"suppress_tokens\":true}", "suppress_tokens is true, must be a whole number"},
        {"{", "line 1"},
        {"[]", "is not a JSON object"},
        {"{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]}",
         "eos_token_id has more than 32 ids"},
    };
    char *json = changed("T1", NULL, NULL);
    for (size_t i = 0; i < sizeof generation / sizeof *generation; i++) {
        assert_int_equal(ek_config_parse(&c, json, generation[i].json), EK_EFORMAT);
        if (!strstr(ek_err_text(), generation[i].says) || strncmp(ek_err_text(), "generation_config.json: ", 24))
            fail_msg("\"%s\", wanted \"%s\"", ek_err_text(), generation[i].says);
    }
    free(json);
}

/* The numbers of the releases, from their configurations. */
static const char drafter[] =
    "{\"model_type\":\"gemma4_assistant\",\"backbone_hidden_size\":64,\"use_ordered_embeddings\":true,\"n"
    "um_centroids\":11,\"centroid_intermediate_top_k\":3,\"text_config\":{\"vocab_size\":99,\"hidden_size"
    "\":24,\"intermediate_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_hea"
    "ds\":1,\"head_dim\":16,\"global_head_dim\":32,\"sliding_window\":8,\"num_kv_shared_layers\":2,\"hidd"
    "en_size_per_layer_input\":0,\"vocab_size_per_layer_input\":0,\"max_position_embeddings\":512,\"rope_"
    "parameters\":{\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":50},\"full_attention\""
    ":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,\"rope_theta\":500}},\"layer_types\""
    ":[\"sliding_attention\",\"full_attention\"],\"model_type\":\"gemma4_text\"}}";

/* Of drafters: a piece of the text above, what stands in its place, and what the error says. */
static const struct {
    const char *piece, *other, *says;
} bad_drafter[] = {
    {"\"backbone_hidden_size\":64", "\"backbone_hidden_size\":0", "backbone_hidden_size is 0"},
    {"\"num_kv_shared_layers\":2", "\"num_kv_shared_layers\":1", "num_kv_shared_layers is 1, a drafter of 2 layers"},
    {"\"hidden_size_per_layer_input\":0,\"vocab_size_per_layer_input\":0", "\"hidden_size_per_layer_input\":8",
     "hidden_size_per_layer_input is 8, a drafter has none"},
    {"\"num_centroids\":11", "\"num_centroids\":10", "99 tokens cannot be split over 10 centroids evenly"},
    {"\"num_centroids\":11,", "", "num_centroids is missing"},
    {"\"centroid_intermediate_top_k\":3", "\"centroid_intermediate_top_k\":12", "centroid_intermediate_top_k is 12"},
    {"\"use_ordered_embeddings\":true", "\"use_ordered_embeddings\":1",
     "use_ordered_embeddings is 1, must be true or false"},
};

static void test_drafters(void **state)
{
    (void)state;
    assert_int_equal(ek_config_parse(&c, drafter, NULL), EK_OK);
    assert_int_equal(c.backbone_hidden_size, 64);
    assert_int_equal(c.n_centroids, 11);
    assert_int_equal(c.top_k_centroids, 3);
    for (int i = 0; i < c.n_layers; i++) assert_false(c.layer[i].owns_kv);
    for (size_t i = 0; i < sizeof bad_drafter / sizeof *bad_drafter; i++) {
        const char *at = strstr(drafter, bad_drafter[i].piece);
        char *json = malloc(sizeof drafter + 64);
        assert_non_null(at);
        sprintf(json, "%.*s%s%s", (int)(at - drafter), drafter, bad_drafter[i].other,
                at + strlen(bad_drafter[i].piece));
        assert_int_not_equal(ek_config_parse(&c, json, NULL), EK_OK);
        if (!strstr(ek_err_text(), bad_drafter[i].says)) fail_msg("%s: %s", bad_drafter[i].says, ek_err_text());
        free(json);
    }
}

static void test_published_shapes(void **state)
{
    (void)state;
    assert_int_equal(ek_config_published(&c, "e2b", 0), EK_OK);
    assert_int_equal(c.first_shared, 15);
    assert_int_equal(c.layer[15].donor, 13);
    assert_int_equal(c.layer[19].donor, 14);
    assert_int_equal(c.layer[14].intermediate_size, 6144);
    assert_int_equal(c.layer[15].intermediate_size, 12288);
    assert_int_equal(ek_config_published(&c, "31b", 0), EK_OK);
    assert_int_equal(c.layer[59].n_kv_heads, 4);
    assert_int_equal(c.layer[58].n_kv_heads, 16);
    static const char *const names[] = {"e2b", "e4b", "12b", "26b", "31b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ek_config_published(&c, names[i], 0), EK_OK);
        assert_int_equal(c.layer[c.n_layers - 1].kind, EK_FULL);
        for (int n = 1, all = c.n_layers; n <= all; n++) {
            assert_int_equal(ek_config_published(&c, names[i], n), EK_OK);
            assert_int_equal(c.n_layers, n);
            int owners[EK_KIND_COUNT] = {0}, period = i == 0 ? 5 : 6;
            for (int l = 0; l < n; l++) {
                assert_int_equal(c.layer[c.layer[l].donor].kind, c.layer[l].kind);
                owners[c.layer[l].kind] += c.layer[l].owns_kv;
            }
            assert_true(owners[EK_SLIDING] > 0);
            assert_int_equal(owners[EK_FULL] > 0, n >= period);
        }
        assert_int_equal(ek_config_published(&c, names[i], 999), EK_EINVAL);
    }
    assert_int_equal(ek_config_published(&c, "70b", 0), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "e2b, e4b, 12b, 26b, 31b"));
}

static void test_quantization_section(void **state)
{
    (void)state;
    ek_quant q;
    int bits, group;
    assert_int_equal(ek_quant_parse(&q, "{\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\","
                                        "\"language_model.model.layers.0.router.proj\":{\"group_size\":32,\"bits\":8},"
                                        "\"model.per_layer_model_projection\":false,\"embed_tokens\":true}}"),
                     EK_OK);
    ek_quant_find(&q, "layers.0.router.proj", &bits, &group);
    assert_true(bits == 8 && group == 32);
    ek_quant_find(&q, "per_layer_model_projection", &bits, &group);
    assert_int_equal(bits, 0);
    ek_quant_find(&q, "layers.1.router.proj", &bits, &group);
    assert_true(bits == 4 && group == 64);
    ek_quant_fini(&q);
    assert_int_equal(ek_quant_parse(&q, "{}"), EK_OK);
    assert_false(q.any);
    assert_int_equal(
        ek_quant_parse(&q, "{\"quantization_config\":{\"quant_method\":null,\"bits\":4,\"group_size\":32}}"),
        EK_OK); /* a method of null is none */
    assert_true(q.method == EK_QUANT_MLX && q.bits == 4);
    ek_quant_fini(&q);
    assert_int_equal(ek_quant_parse(&q, "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                                        "\"checkpoint_format\":null}}"),
                     EK_OK);
    ek_quant_fini(&q);
    static const struct {
        const char *json;
        ek_err err;
        const char *says;
    } wrong[] = {
        {"{\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp5\"}}", EK_EUNSUPPORTED, "mxfp5"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"a.b\":{\"mode\":\"nvfp3\"}}}", EK_EUNSUPPORTED,
         "a.b is nvfp3"},
        {"{\"quantization_config\":{\"quant_method\":\"hqq\"}}", EK_EUNSUPPORTED, "hqq"},
        {"{\"quantization\":{\"bits\":7,\"group_size\":64}}", EK_EFORMAT, "bits of the file"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":48}}", EK_EFORMAT, "group_size of the file"},
        {"{\"quantization\":{\"bits\":\"4\"}}", EK_EFORMAT, "quantization bits of the file is \"4\", must be 2, 3"},
        {"{\"quantization\":[]}", EK_EFORMAT, "quantization is a list, must be an object"},
        {"{\"quantization_config\":5}", EK_EFORMAT, "quantization_config is 5, must be an object"},
        {"{\"quantization_config\":{\"quant_method\":5}}", EK_EFORMAT,
         "quantization_config.quant_method is 5, must be a string"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\"}}", EK_EFORMAT,
         "quantization_config.bits is missing; GPTQ"},
        {"{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":null}}", EK_EFORMAT, "bits is missing; AWQ"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":\"4\"}}", EK_EFORMAT,
         "quantization_config.bits is \"4\", must be a whole number"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}", EK_EUNSUPPORTED,
         "GPTQ with bits 3; 4 and 8"},
        {"{\"quantization_config\":{\"quant_method\":\"awq\",\"w_bit\":8}}", EK_EUNSUPPORTED,
         "AWQ with bits 8; 4 can be read"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":1}}", EK_EFORMAT,
         "checkpoint_format is 1, must be a string"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"transform_config\":1}}", EK_EFORMAT,
         "transform_config is 1, must be an object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ek_quant_parse(&q, wrong[i].json), wrong[i].err);
        if (!strstr(ek_err_text(), wrong[i].says)) fail_msg("\"%s\", wanted \"%s\"", ek_err_text(), wrong[i].says);
    }
}

/* Sizes of the model cards, in thousands of millions: with embeddings and all experts; those of the two small models
 * count vision and audio, too. */
static void test_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double billions, within;
    } cards[] = {
        {"e2b", 5.1, 0.1}, {"e4b", 8.0, 0.07}, {"12b", 11.9, 0.005}, {"26b", 25.2, 0.005}, {"31b", 30.7, 0.005}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        assert_int_equal(ek_config_published(&c, cards[i].name, 0), EK_OK);
        double got = (double)ek_model_parameters(&c) / 1e9;
        printf("measured: %s has %.3f thousand million parameters\n", cards[i].name, got);
        if (!(fabs(got / cards[i].billions - 1) < cards[i].within))
            fail_msg("%s: %g, not %g", cards[i].name, got, cards[i].billions);
    }
}

static void test_ids_of_pictures_and_sounds(void **state)
{
    (void)state;
    char *json = changed("T1", "\"boi_token_id\":",
                         "90,\"eoi_token_id\":91,\"image_token_id\":92,\"video_token_id\":93,\"boa_token_id\":94,"
                         "\"eoa_token_index\":95,\"audio_token_id\":99,\"use_bidirectional_attention\":\"vision\"");
    accepted(json, NULL);
    free(json);
    const ek_media_ids want = {.soft = {92, 93, 0}, .begin = {90, 90, 94}, .end = {91, 91, 95}}; /* 99 is no token */
    assert_memory_equal(&c.media, &want, sizeof want);
    assert_true(c.mutual);
    json = changed("T1", "\"use_bidirectional_attention\":", "null");
    accepted(json, NULL);
    free(json);
    assert_false(c.mutual);
    assert_int_equal(c.media.soft[EK_PART_IMAGE], 0);
    assert_int_equal(ek_config_published(&c, "26b", 6), EK_OK);
    assert_true(c.mutual);
    assert_int_equal(c.media.soft[EK_PART_FRAME], 258884);
    assert_int_equal(ek_config_published(&c, "e4b", 6), EK_OK);
    assert_false(c.mutual);
}

/* The roots of the published sizes as transformers' bf16 runs, mlx-lm and Google's own code have them. */
static void test_scales_of_embeddings(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float hidden;
    } published[] = {{"e2b", 39.25f}, {"e4b", 50.5f}, {"12b", 62}, {"26b", 53}, {"31b", 73.5f}};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_int_equal(ek_config_published(&c, published[i].name, 0), EK_OK);
        assert_true(ek_config_embed_scale(&c, c.hidden_size) == published[i].hidden);
        if (c.per_layer_size) assert_true(ek_config_embed_scale(&c, c.per_layer_size) == 16);
    }
    assert_true(ek_config_embed_scale(&c, 10) == 3.15625f);

    static const struct {
        const char *top, *text; /* what stands in the file and in its text_config */
        bool exact;
    } file[] = {
        {"", "", false},
        {"\"dtype\":\"bfloat16\",", "", false},
        {"\"dtype\":\"float16\",", "", false},
        {"\"dtype\":null,", "", false},
        {"\"dtype\":\"float32\",", "", true},
        {"\"torch_dtype\":\"float32\",", "", true},
        {"\"dtype\":null,\"torch_dtype\":\"float32\",", "", true},
        {"\"dtype\":\"bfloat16\",\"torch_dtype\":\"float32\",", "", false},
        {"", "\"dtype\":\"float32\",", true},
        {"", "\"torch_dtype\":\"float32\",", true},
        {"\"torch_dtype\":\"bfloat16\",", "\"dtype\":\"float32\",", false},
        {"\"dtype\":\"float32\",", "\"dtype\":\"bfloat16\",", true},
    };
    char *json = changed("T6", NULL, NULL), whole[4096];
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        snprintf(whole, sizeof whole, "{\"model_type\":\"gemma4\",%s\"text_config\":{%s%s}", file[i].top, file[i].text,
                 json + 1);
        accepted(whole, NULL);
        const float hidden = ek_config_embed_scale(&c, c.hidden_size),
                    layer = ek_config_embed_scale(&c, c.per_layer_size);
        if (hidden != (file[i].exact ? sqrtf(72) : 8.5f) || layer != (file[i].exact ? sqrtf(10) : 3.15625f))
            fail_msg("%s, in text_config %s: %g and %g", file[i].top, file[i].text, (double)hidden, (double)layer);
    }
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_configurations_come_back),
        cmocka_unit_test(test_donors_are_the_last_owners_of_their_kind),
        cmocka_unit_test(test_nested_null_and_per_layer_forms),
        cmocka_unit_test(test_wrong_values_are_reported),
        cmocka_unit_test(test_drafters),
        cmocka_unit_test(test_published_shapes),
        cmocka_unit_test(test_scales_of_embeddings),
        cmocka_unit_test(test_ids_of_pictures_and_sounds),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_quantization_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
