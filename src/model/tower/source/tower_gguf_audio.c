#include "model/tower/source/tower_gguf.h"

#include <stdio.h>
#include <string.h>

/* Names of modules. The rest of the name (".weight", ".bias", ".input_min") is the same, except that ".linear" is left
 * out. ollama NULL: as theirs. */
typedef struct row {
    const char *ours, *theirs, *ollama;
} row;

static const row whole[] = {
    {"audio_tower.subsample_conv_projection.layer0.conv", "a.conv1d.0", NULL},
    {"audio_tower.subsample_conv_projection.layer1.conv", "a.conv1d.1", NULL},
    {"audio_tower.subsample_conv_projection.layer0.norm", "a.conv1d.0.norm", NULL},
    {"audio_tower.subsample_conv_projection.layer1.norm", "a.conv1d.1.norm", NULL},
    {"audio_tower.subsample_conv_projection.input_proj_linear", "a.input_projection", "a.pre_encode.out"},
    {"audio_tower.output_proj", "a.pre_encode.out", "mm.a.fc"},
    {"embed_audio.embedding_projection", "mm.a.input_projection", NULL},
};

static const row layer[] = {
    {"feed_forward1.pre_layer_norm", "ffn_norm", NULL},
    {"feed_forward1.post_layer_norm", "ffn_post_norm", NULL},
    {"feed_forward1.ffw_layer_1", "ffn_up", NULL},
    {"feed_forward1.ffw_layer_2", "ffn_down", NULL},
    {"feed_forward2.pre_layer_norm", "ffn_norm_1", NULL},
    {"feed_forward2.post_layer_norm", "ffn_post_norm_1", NULL},
    {"feed_forward2.ffw_layer_1", "ffn_up_1", NULL},
    {"feed_forward2.ffw_layer_2", "ffn_down_1", NULL},
    {"norm_pre_attn", "attn_pre_norm", "ln1"},
    {"norm_post_attn", "attn_post_norm", "ln2"},
    {"norm_out", "ln2", "layer_pre_norm"},
    {"self_attn.q_proj", "attn_q", NULL},
    {"self_attn.k_proj", "attn_k", NULL},
    {"self_attn.v_proj", "attn_v", NULL},
    {"self_attn.post", "attn_out", NULL},
    {"self_attn.relative_k_proj", "attn_k_rel", "linear_pos"},
    {"self_attn.per_dim_scale", "per_dim_scale.weight", NULL},
    {"lconv1d.pre_layer_norm", "conv_norm", NULL},
    {"lconv1d.conv_norm", "norm_conv", NULL},
    {"lconv1d.linear_start", "conv_pw1", NULL},
    {"lconv1d.linear_end", "conv_pw2", NULL},
    {"lconv1d.depthwise_conv1d", "conv_dw", NULL},
};

/* stem: beginning of the file's name, "a.blk.3." or empty */
static bool translate(char *out, size_t room, const row *rows, size_t n_rows, const char *stem, const char *name,
                      bool ollama)
{
    for (size_t i = 0; i < n_rows; i++) {
        const size_t n = strlen(rows[i].ours);
        if (strncmp(name, rows[i].ours, n) != 0 || (name[n] && name[n] != '.')) continue;
        const char *rest = name + n;
        if (strncmp(rest, ".linear", 7) == 0 && (!rest[7] || rest[7] == '.')) rest += 7;
        const int length = snprintf(out, room, "%s%s%s", stem,
                                    ollama && rows[i].ollama ? rows[i].ollama : rows[i].theirs, rest);
        return length >= 0 && (size_t)length < room;
    }
    return false;
}

bool ek_tower_gguf_audio_name(char *out, size_t room, const char *name, bool ollama)
{
    static const char layers[] = "audio_tower.layers.";
    const size_t n = sizeof layers - 1, digits = strncmp(name, layers, n) == 0 ? strspn(name + n, "0123456789") : 0;
    char stem[32];
    if (digits == 0 || digits > 4 || name[n + digits] != '.')
        return translate(out, room, whole, sizeof whole / sizeof *whole, "", name, ollama);
    snprintf(stem, sizeof stem, "a.blk.%.*s.", (int)digits, name + n);
    return translate(out, room, layer, sizeof layer / sizeof *layer, stem, name + n + digits + 1, ollama);
}

bool ek_tower_gguf_audio_ollama(const ek_gguf *g)
{
    return !ek_gguf_tensor_find(g, "a.input_projection.weight") && ek_gguf_tensor_find(g, "mm.a.fc.weight") != NULL;
}

static void set_int(json_t *config, const char *key, const ek_gguf *g, const char *name)
{
    static const char *const prefix[] = {"clip.audio.", "gemma4.audio."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        char full[80];
        int64_t v;
        snprintf(full, sizeof full, "%s%s", prefix[i], name);
        const ek_gguf_value *found = ek_gguf_find(g, full);
        if (!found || found->is_array || !ek_gguf_int(found, 0, &v)) continue;
        json_object_set_new(config, key, json_integer(v));
        return;
    }
}

/* A dimension of a tensor, counted from the innermost. */
static int64_t dim(const ek_gguf *g, const char *name, int d)
{
    const ek_gguf_tensor *t = ek_gguf_tensor_find(g, name);
    return t ? t->dim[d] : 0;
}

json_t *ek_tower_gguf_audio_config(const ek_gguf *g)
{
    static const char output[] = "mm.a.input_projection.weight";
    const bool tower = ek_gguf_tensor_find(g, "a.conv1d.0.weight") != NULL;
    if (!tower && !ek_gguf_tensor_find(g, output)) return NULL;
    json_t *c = json_object();
    json_object_set_new(c, "model_type", json_string(tower ? "gemma4_audio" : "gemma4_unified_audio"));
    if (!tower) {
        json_object_set_new(c, "audio_embed_dim", json_integer(dim(g, output, 0)));
        return c;
    }
    set_int(c, "hidden_size", g, "embedding_length");
    set_int(c, "num_hidden_layers", g, "block_count");
    set_int(c, "num_attention_heads", g, "attention.head_count");
    json_object_set_new(
        c, "subsampling_conv_channels",
        json_pack("[I, I]", (json_int_t)dim(g, "a.conv1d.0.weight", 3), (json_int_t)dim(g, "a.conv1d.1.weight", 3)));
    json_object_set_new(c, "conv_kernel_size", json_integer(dim(g, "a.blk.0.conv_dw.weight", 0)));
    json_object_set_new(c, "output_proj_dims", json_integer(dim(g, output, 0)));
    json_object_set_new(c, "use_clipped_linears", json_true());
    return c;
}
