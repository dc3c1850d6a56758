/* Names of the vision tower's tensors: those of transformers (modeling_gemma4.py), and those in GGUF files, which are
 * the same in llama.cpp and Ollama. And the configuration of towers: their metadata (clip.* of llama.cpp, gemma4.* of
 * Ollama) have fewer fields than config.json; the others follow from shapes, or are the same in every model. */
#include <stdio.h>
#include <string.h>

#include "model/tower/source/tower_gguf.h"

/* ------------------------------------------------------------------ names */

typedef struct pair {
    const char *ours, *theirs;
} pair;

/* Names without their ending (".weight", ".bias", ".input_min", …). Longer ones first. */
static const pair fixed[] = {
    {"vision_tower.patch_embedder.input_proj", "v.patch_embd"},
    {"vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight"},
    {"vision_tower.std_bias", "v.std_bias"},
    {"vision_tower.std_scale", "v.std_scale"},
    {"embed_vision.multimodal_embedder.embedding_projection", "mm.input_projection"},
    {"embed_vision.embedding_projection", "mm.input_projection"},
    {"embed_vision.patch_dense", "v.patch_embd"},
    {"embed_vision.patch_ln1", "v.patch_norm.1"},
    {"embed_vision.patch_ln2", "v.patch_norm.2"},
    {"embed_vision.pos_norm", "v.patch_norm.3"},
    {"embed_vision.pos_embedding", "v.position_embd.weight"},
};

static const pair vision_layer[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_out"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"input_layernorm", "ln1"},
    {"post_attention_layernorm", "attn_post_norm"},
    {"pre_feedforward_layernorm", "ln2"},
    {"post_feedforward_layernorm", "ffn_post_norm"},
};

/* The rest of name after `ours`: "" or from a dot on; NULL: the name is a different one. */
static const char *rest(const char *name, const char *ours)
{
    const size_t n = strlen(ours);
    return strncmp(name, ours, n) == 0 && (name[n] == 0 || name[n] == '.') ? name + n : NULL;
}

static bool translate(char *out, size_t room, const char *start, const char *name, const pair *of, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *tail = rest(name, of[i].ours), *linear = tail ? rest(tail, ".linear") : NULL;
        if (!tail) continue;
        snprintf(out, room, "%s%s%s", start, of[i].theirs, linear ? linear : tail);
        return true;
    }
    return false;
}

bool ek_tower_gguf_name(char *out, size_t room, const char *name, bool ollama)
{
    char start[32];
    int layer, at = 0;
    if (ek_tower_gguf_audio_name(out, room, name, ollama)) return true;
    if (sscanf(name, "vision_tower.encoder.layers.%d.%n", &layer, &at) == 1 && at) {
        snprintf(start, sizeof start, "v.blk.%d.", layer);
        return translate(out, room, start, name + at, vision_layer, sizeof vision_layer / sizeof *vision_layer);
    }
    return translate(out, room, "", name, fixed, sizeof fixed / sizeof *fixed);
}

/* ------------------------------------------------------------------ configuration */

/* "clip.vision.KEY" or "gemma4.vision.KEY". */
static const ek_gguf_value *value(const ek_gguf *g, const char *sense, const char *key)
{
    static const char *const owner[] = {"clip", "gemma4"};
    const ek_gguf_value *v = NULL;
    char full[128];
    for (size_t i = 0; !v && i < sizeof owner / sizeof *owner; i++) {
        snprintf(full, sizeof full, "%s.%s.%s", owner[i], sense, key);
        v = ek_gguf_find(g, full);
    }
    return v && !v->is_array ? v : NULL;
}

static void copy_int(json_t *to, const char *name, const ek_gguf *g, const char *sense, const char *key)
{
    int64_t n;
    const ek_gguf_value *v = value(g, sense, key);
    if (v && ek_gguf_int(v, 0, &n)) json_object_set_new(to, name, json_integer(n));
}

static void set_int(json_t *to, const char *name, int64_t n)
{
    json_object_set_new(to, name, json_integer(n));
}

/* A dimension, innermost first; 0: there is no tensor. */
static int64_t dim(const ek_gguf *g, const char *tensor, int d)
{
    const ek_gguf_tensor *t = ek_gguf_tensor_find(g, tensor);
    return t ? t->dim[d] : 0;
}

static void copy_eps(json_t *to, const ek_gguf *g)
{
    double eps;
    const ek_gguf_value *v = value(g, "vision", "attention.layer_norm_epsilon");
    if (v && ek_gguf_float(v, 0, &eps)) json_object_set_new(to, "rms_norm_eps", json_real(eps));
}

static json_t *vision(const ek_tower_gguf *s)
{
    const ek_gguf *g = s->g;
    json_t *c = json_object();
    const int64_t head = dim(g, "v.blk.0.attn_q_norm.weight", 0);
    copy_eps(c, g);
    copy_int(c, "patch_size", g, "vision", "patch_size");
    copy_int(c, "pooling_kernel_size", g, "vision", "projector.scale_factor");
    if (s->unified) {
        set_int(c, "mm_embed_dim", dim(g, "v.patch_embd.weight", 1));
        set_int(c, "mm_posemb_size", dim(g, "v.position_embd.weight", 1));
        return c;
    }
    copy_int(c, "hidden_size", g, "vision", "embedding_length");
    copy_int(c, "num_hidden_layers", g, "vision", "block_count");
    copy_int(c, "num_attention_heads", g, "vision", "attention.head_count");
    copy_int(c, "intermediate_size", g, "vision", "feed_forward_length");
    set_int(c, "head_dim", head);
    set_int(c, "num_key_value_heads", head > 0 ? dim(g, "v.blk.0.attn_k.weight", 1) / head : 0);
    set_int(c, "position_embedding_size", dim(g, "v.position_embd.weight", 1));
    const bool clips = ek_gguf_tensor_find(g, "v.clamp_data") || ek_gguf_tensor_find(g, "v.blk.0.attn_q.input_min");
    json_object_set_new(c, "use_clipped_linears", json_boolean(clips));
    json_object_set_new(c, "standardize", json_boolean(ek_gguf_tensor_find(g, "v.std_bias") != NULL));
    return c;
}

void ek_tower_gguf_config(ek_tower_gguf *s)
{
    if (ek_gguf_tensor_find(s->g, "mm.input_projection.weight"))
        json_object_set_new(s->source.config, "vision_config", vision(s));
    json_t *audio = ek_tower_gguf_audio_config(s->g);
    if (audio) json_object_set_new(s->source.config, "audio_config", audio);
}
