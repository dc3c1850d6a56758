/* Names of an audio tower in GGUF files: those of llama.cpp and of Ollama, written down from their converters' tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../support/gguf.h"
#include "model/tower/source/tower_gguf.h"

static void names(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"audio_tower.subsample_conv_projection.layer0.conv.weight", "a.conv1d.0.weight", "a.conv1d.0.weight"},
        {"audio_tower.subsample_conv_projection.layer1.norm.weight", "a.conv1d.1.norm.weight",
         "a.conv1d.1.norm.weight"},
        {"audio_tower.subsample_conv_projection.input_proj_linear", "a.input_projection", "a.pre_encode.out"},
        {"audio_tower.output_proj.bias", "a.pre_encode.out.bias", "mm.a.fc.bias"},
        {"embed_audio.embedding_projection", "mm.a.input_projection", "mm.a.input_projection"},
        {"audio_tower.layers.0.feed_forward1.ffw_layer_1.linear", "a.blk.0.ffn_up", "a.blk.0.ffn_up"},
        {"audio_tower.layers.11.feed_forward2.ffw_layer_2.linear.weight", "a.blk.11.ffn_down_1.weight",
         "a.blk.11.ffn_down_1.weight"},
        {"audio_tower.layers.3.feed_forward2.ffw_layer_1.input_min", "a.blk.3.ffn_up_1.input_min",
         "a.blk.3.ffn_up_1.input_min"},
        {"audio_tower.layers.3.norm_pre_attn.weight", "a.blk.3.attn_pre_norm.weight", "a.blk.3.ln1.weight"},
        {"audio_tower.layers.3.norm_post_attn.weight", "a.blk.3.attn_post_norm.weight", "a.blk.3.ln2.weight"},
        {"audio_tower.layers.3.norm_out.weight", "a.blk.3.ln2.weight", "a.blk.3.layer_pre_norm.weight"},
        {"audio_tower.layers.3.self_attn.relative_k_proj", "a.blk.3.attn_k_rel", "a.blk.3.linear_pos"},
        {"audio_tower.layers.3.self_attn.per_dim_scale", "a.blk.3.per_dim_scale.weight",
         "a.blk.3.per_dim_scale.weight"},
        {"audio_tower.layers.3.self_attn.post.output_max", "a.blk.3.attn_out.output_max",
         "a.blk.3.attn_out.output_max"},
        {"audio_tower.layers.3.lconv1d.pre_layer_norm.weight", "a.blk.3.conv_norm.weight", "a.blk.3.conv_norm.weight"},
        {"audio_tower.layers.3.lconv1d.conv_norm.weight", "a.blk.3.norm_conv.weight", "a.blk.3.norm_conv.weight"},
        {"audio_tower.layers.3.lconv1d.depthwise_conv1d.weight", "a.blk.3.conv_dw.weight", "a.blk.3.conv_dw.weight"},
        {"audio_tower.layers.3.lconv1d.linear_start.linear", "a.blk.3.conv_pw1", "a.blk.3.conv_pw1"},
        {"vision_tower.encoder.layers.0.mlp.up_proj.linear", NULL, NULL},
        {"audio_tower.layers.3.self_attn.q_projection", NULL, NULL},
        {"audio_tower.layers..norm_out.weight", NULL, NULL},
        {"audio_tower.layers.99999999999.norm_out.weight", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int ollama = 0; ollama < 2; ollama++) {
            char got[128], small[8];
            const char *want = rows[i][1 + ollama];
            assert_int_equal(ek_tower_gguf_audio_name(got, sizeof got, rows[i][0], ollama), want != NULL);
            if (want) assert_string_equal(got, want);
            assert_false(ek_tower_gguf_audio_name(small, sizeof small, rows[i][0], ollama));
        }
}

static void add(gguf_file *f, const char *name, int n_dims, const int64_t *dim)
{
    size_t n = 4;
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    void *zeros = calloc(1, n);
    gguf_tensor(f, name, 0, n_dims, dim, zeros, n);
    free(zeros);
}

static json_t *config_of(gguf_file *f, bool *ollama)
{
    char *dir = temp_dir(), path[256];
    ek_gguf *g;
    gguf_save(f, dir, "mmproj.gguf");
    snprintf(path, sizeof path, "%s/mmproj.gguf", dir);
    if (ek_gguf_open(&g, path)) fail_msg("%s", ek_err_text());
    json_t *c = ek_tower_gguf_audio_config(g);
    *ollama = ek_tower_gguf_audio_ollama(g);
    ek_gguf_close(g);
    remove_dir(dir);
    return c;
}

static void configurations(void **state)
{
    (void)state;
    for (int ollama = 0; ollama < 2; ollama++) {
        gguf_file f = {0};
        bool is;
        gguf_u32(&f, ollama ? "gemma4.audio.block_count" : "clip.audio.block_count", 2);
        gguf_u32(&f, ollama ? "gemma4.audio.embedding_length" : "clip.audio.embedding_length", 32);
        gguf_u32(&f, ollama ? "gemma4.audio.attention.head_count" : "clip.audio.attention.head_count", 4);
        gguf_f32(&f, "clip.audio.attention.layer_norm_epsilon", 1e-5f);
        add(&f, "a.conv1d.0.weight", 4, (int64_t[]){3, 3, 1, 16});
        add(&f, "a.conv1d.1.weight", 4, (int64_t[]){3, 3, 16, 4});
        add(&f, ollama ? "mm.a.fc.weight" : "a.input_projection.weight", 2, (int64_t[]){16, 32});
        add(&f, "a.blk.0.conv_dw.weight", 2, (int64_t[]){5, 32});
        add(&f, "mm.a.input_projection.weight", 2, (int64_t[]){24, 40});
        json_t *c = config_of(&f, &is);
        char *text = json_dumps(c, JSON_SORT_KEYS | JSON_COMPACT);
        assert_int_equal(is, ollama);
        assert_string_equal(text, "{\"conv_kernel_size\":5,\"hidden_size\":32,\"model_type\":\"gemma4_audio\","
                                  "\"num_attention_heads\":4,\"num_hidden_layers\":2,\"output_proj_dims\":24,"
                                  "\"subsampling_conv_channels\":[16,4],\"use_clipped_linears\":true}");
        free(text);
        json_decref(c);
    }
    gguf_file unified = {0}, deaf = {0};
    bool is;
    add(&unified, "mm.a.input_projection.weight", 2, (int64_t[]){640, 40});
    json_t *c = config_of(&unified, &is);
    assert_int_equal(json_integer_value(json_object_get(c, "audio_embed_dim")), 640);
    assert_string_equal(json_string_value(json_object_get(c, "model_type")), "gemma4_unified_audio");
    json_decref(c);
    add(&deaf, "v.patch_embd.weight", 1, (int64_t[]){8});
    assert_null(config_of(&deaf, &is));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(configurations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
