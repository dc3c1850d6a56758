/* The configuration of towers in GGUF. Their metadata (clip.* of llama.cpp, gemma4.* of Ollama) have fewer fields than
 * config.json; the others follow from shapes, or are the same in every model. */
#include <stdio.h>
#include <string.h>

#include "model/tower/source/tower_gguf.h"

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
