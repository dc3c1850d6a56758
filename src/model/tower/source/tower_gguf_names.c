/* Names of the vision tower's tensors: those of transformers (modeling_gemma4.py), and those in GGUF files, which are
 * the same in llama.cpp and Ollama. */
#include <stdio.h>
#include <string.h>

#include "model/tower/source/tower_gguf.h"

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
