/* Layers that differ, in the form that transformers writes since 5.15: per_layer_config with padded numbers and no
 * global_head_dim (heterogeneity/configuration_utils.py, heterogeneous_to_dict_helper). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "base/buf.h"

static ek_config want, got; /* large */

/* The text configuration of want as config.json; saved: how the full layers are written; extra: members behind. */
static char *json_of(const char *saved, bool nested, const char *extra)
{
    ek_buf text = {0}, out = {0};
    config_fields(&text, &want);
    char *old = strstr(text.data, "\"global_head_dim\":"), *behind = strchr(old, ',') + 1;
    memmove(old, behind, strlen(behind) + 1);
    char *kv = strstr(text.data, "\"num_global_key_value_heads\":");
    if (kv) memmove(kv, strchr(kv, ',') + 1, strlen(strchr(kv, ',')));
    ek_buf_fmt(&out, "{%s%s,\"per_layer_config\":%s%s%s}", nested ? "\"model_type\":\"gemma4\",\"text_config\":{" : "",
               text.data, saved, extra, nested ? "}" : "");
    ek_buf_fini(&text);
    return out.data;
}

/* What transformers saves: the members that differ from the common value, numbers of `width` digits. */
static char *entries(int width)
{
    ek_buf b = {0};
    ek_buf_char(&b, '{');
    for (int i = 0, n = 0; i < want.n_layers; i++) {
        const ek_layer_config *l = &want.layer[i];
        const ek_layer_config *usual = l;
        for (int s = want.n_layers - 1; s >= 0; s--)
            if (want.layer[s].kind == EK_SLIDING && s < want.first_shared) usual = &want.layer[s];
        if (l->kind != EK_FULL) continue;
        ek_buf_fmt(&b, "%s\"%0*d\":{\"head_dim\":%d", n++ ? "," : "", width, i, l->head_dim);
        if (l->n_kv_heads != usual->n_kv_heads) ek_buf_fmt(&b, ",\"num_key_value_heads\":%d", l->n_kv_heads);
        ek_buf_char(&b, '}');
    }
    ek_buf_char(&b, '}');
    return b.data;
}

static void same_layers(const char *name)
{
    for (int i = 0; i < want.n_layers; i++) {
        const ek_layer_config *a = &want.layer[i], *b = &got.layer[i];
        if (a->kind != b->kind || a->owns_kv != b->owns_kv || a->donor != b->donor || a->k_eq_v != b->k_eq_v ||
            a->head_dim != b->head_dim || a->n_kv_heads != b->n_kv_heads ||
            a->intermediate_size != b->intermediate_size)
            fail_msg("%s: layer %d is another one", name, i);
    }
}

static void published_sizes_saved_again_are_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"e2b", "e4b", "12b", "26b", "31b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int width = 1; width <= 4; width++)
            for (int nested = 0; nested < 2; nested++) {
                assert_int_equal(ek_config_published(&want, names[i], 0), EK_OK);
                char *all = entries(width), *json = json_of(all, nested, "");
                if (width == 2 && !nested && i == 0) assert_non_null(strstr(json, "\"04\":{\"head_dim\":512}"));
                if (ek_config_parse(&got, json, NULL)) fail_msg("%s: %s", names[i], ek_err_text());
                same_layers(names[i]);
                free(json);
                free(all);
            }
}

static void tiny_configurations_saved_again_are_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3", "Q4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ek_config_tiny(&want, names[i]), EK_OK);
        char *all = entries(3), *json = json_of(all, i % 2, "");
        if (ek_config_parse(&got, json, NULL)) fail_msg("%s: %s", names[i], ek_err_text());
        same_layers(names[i]);
        free(json);
        free(all);
    }
    /* no layer differs: an empty map, as transformers writes it then */
    assert_int_equal(ek_config_tiny(&want, "T5"), EK_OK);
    char *json = json_of("{}", true, "");
    assert_int_equal(ek_config_parse(&got, json, NULL), EK_OK);
    same_layers("T5");
    free(json);
}

/* As transformers reads it, per_layer_config is the whole truth: the older fields beside it count no more. */
static void the_newer_form_wins(void **state)
{
    (void)state;
    assert_int_equal(ek_config_tiny(&want, "T2"), EK_OK);
    char *json = json_of("{\"02\":{\"head_dim\":32,\"num_key_value_heads\":1}}", false,
                         ",\"global_head_dim\":64,\"num_global_key_value_heads\":4");
    assert_int_equal(ek_config_parse(&got, json, NULL), EK_OK);
    same_layers("T2");
    free(json);
    json = json_of("null", false, ",\"global_head_dim\":32,\"num_global_key_value_heads\":1"); /* null: absent */
    assert_int_equal(ek_config_parse(&got, json, NULL), EK_OK);
    same_layers("T2");
    free(json);
}

/* T1 has 6 layers, SFSSSF, the last 3 share; full layers have heads of 32, of 16 the others. */
static const struct {
    const char *entries, *says; /* says NULL: taken */
} row[] = {
    {"{\"1\":{\"head_dim\":32},\"05\":{\"head_dim\":32}}", NULL},
    {"{\"00000000000000000000001\":{\"head_dim\":32},\"0005\":{\"head_dim\":32},\"3\":null,\"4\":{}}", NULL},
    /* what is as in all layers changes nothing */
    {"{\"1\":{\"head_dim\":32,\"sliding_window\":8,\"skip\":[],\"num_experts\":null,\"hidden_size\":64},"
     "\"5\":{\"head_dim\":32,\"num_key_value_heads\":1,\"intermediate_size\":96,\"skip_mlp\":false}}",
     NULL},
    {"{\"1\":{\"head_dim\":32},\"6\":{\"head_dim\":32}}",
     "per_layer_config has an entry \"6\", must be a layer from 0 to 5"},
    {"{\"01\":{},\"-1\":{}}", "an entry \"-1\", must be a layer from 0 to 5"},
    {"{\"+1\":{}}", "an entry \"+1\""},
    {"{\" 1\":{}}", "an entry \" 1\""},
    {"{\"1 \":{}}", "an entry \"1 \""},
    {"{\"0x1\":{}}", "an entry \"0x1\""},
    {"{\"1e0\":{}}", "an entry \"1e0\""},
    {"{\"1.0\":{}}", "an entry \"1.0\""},
    {"{\"\":{}}", "an entry \"\""},
    {"{\"full_attention\":{}}", "an entry \"full_attention\""},
    {"{\"99999999999999999999999999\":{}}", "an entry \"99999999999999999999999999\""},
    {"{\"18446744073709551617\":{}}", "an entry \"18446744073709551617\""},
    {"{\"\\u0661\":{}}", "must be a layer"},
    {"{\"\\u001b[2J\\u009b\":{}}", "an entry \"\\x1b[2J\\u009b\""},
    {"{\"1\":{\"head_dim\":32},\"01\":{\"head_dim\":32}}", "layer 1 twice, as \"1\" and \"01\""},
    {"{\"05\":{\"head_dim\":32},\"005\":{}}", "layer 5 twice, as \"05\" and \"005\""},
    {"{\"05\":{\"head_dim\":32},\"05\":{}}", "05"}, /* the JSON reader's own word */
    {"{\"05\":[]}", "per_layer_config.05 is a list, must be an object"},
    {"{\"05\":32}", "per_layer_config.05 is 32, must be an object"},
    {"{\"05\":{\"head_dim\":\"x\"}}", "per_layer_config.05.head_dim is \"x\", must be a whole number from 2 to 4096"},
    {"{\"05\":{\"num_key_value_heads\":0}}", "per_layer_config.05.num_key_value_heads is 0"},
    {"{\"05\":{\"intermediate_size\":0}}", "per_layer_config.05.intermediate_size is 0"},
    {"{\"05\":{\"sliding_window\":9}}", "per_layer_config.05.sliding_window differs from the other layers"},
    {"{\"05\":{\"skip\":[\"mlp\"]}}", "per_layer_config.05.skip differs"},
    {"{\"05\":{\"skip_attention\":true}}", "per_layer_config.05.skip_attention differs"},
    {"{\"05\":{\"num_attention_heads\":8}}", "per_layer_config.05.num_attention_heads differs"},
    {"{\"05\":{\"\\u009bA\":1}}", "per_layer_config.05.\\u009bA differs"},
    {"{\"05\":{\"head_dim\":32}}", "layer 5 has 1 key-value heads of 32, layer 1, of the same kind, has 1 of 16"},
};

static void numbers_and_members_are_checked(void **state)
{
    (void)state;
    assert_int_equal(ek_config_tiny(&want, "T1"), EK_OK);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int nested = 0; nested < 2; nested++) {
            char *json = json_of(row[i].entries, nested, "");
            ek_err err = ek_config_parse(&got, json, NULL);
            if (!row[i].says && err) fail_msg("%s: %s", row[i].entries, ek_err_text());
            if (!row[i].says) same_layers("T1");
            if (row[i].says && ((err != EK_EFORMAT && err != EK_EUNSUPPORTED) || !strstr(ek_err_text(), row[i].says)))
                fail_msg("%s: \"%s\", wanted \"%s\"", row[i].entries, err ? ek_err_text() : "taken", row[i].says);
            free(json);
        }
}

/* A width of single layers, doubled like the common one where layers share. */
static void widths_of_single_layers(void **state)
{
    (void)state;
    assert_int_equal(ek_config_tiny(&want, "T1"), EK_OK);
    char *json = json_of("{\"01\":{\"head_dim\":32,\"intermediate_size\":80},"
                         "\"05\":{\"head_dim\":32,\"intermediate_size\":40}}",
                         false, "");
    assert_int_equal(ek_config_parse(&got, json, NULL), EK_OK);
    static const int widths[] = {96, 80, 96, 192, 192, 80};
    for (int i = 0; i < 6; i++) assert_int_equal(got.layer[i].intermediate_size, widths[i]);
    free(json);
}

static void drafters_too(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gemma4_assistant", "gemma4_unified_assistant"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "{\"model_type\":\"%s\",\"backbone_hidden_size\":64,\"text_config\":{\"vocab_size\":99,",
                   kinds[i]);
        ek_buf_str(&b, "\"hidden_size\":24,\"intermediate_size\":32,\"num_hidden_layers\":12,\"num_attention_heads\":4,"
                       "\"num_key_value_heads\":2,\"head_dim\":16,\"sliding_window\":8,\"num_kv_shared_layers\":12,"
                       "\"hidden_size_per_layer_input\":0,\"vocab_size_per_layer_input\":0,"
                       "\"max_position_embeddings\":512,\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":50},"
                       "\"full_attention\":{\"rope_theta\":500}},\"layer_types\":[");
        for (int l = 0; l < 12; l++)
            ek_buf_fmt(&b, "%s\"%s_attention\"", l ? "," : "", l % 6 == 5 ? "full" : "sliding");
        ek_buf_str(&b, "],\"per_layer_config\":{\"05\":{\"head_dim\":32,\"num_key_value_heads\":1},"
                       "\"11\":{\"head_dim\":32,\"num_key_value_heads\":1}}}}");
        if (ek_config_parse(&got, b.data, NULL)) fail_msg("%s: %s", kinds[i], ek_err_text());
        for (int l = 0; l < 12; l++) {
            assert_int_equal(got.layer[l].head_dim, l % 6 == 5 ? 32 : 16);
            assert_int_equal(got.layer[l].n_kv_heads, l % 6 == 5 ? 1 : 2);
        }
        ek_buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sizes_saved_again_are_the_same),
        cmocka_unit_test(tiny_configurations_saved_again_are_the_same),
        cmocka_unit_test(the_newer_form_wins),
        cmocka_unit_test(numbers_and_members_are_checked),
        cmocka_unit_test(widths_of_single_layers),
        cmocka_unit_test(drafters_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
