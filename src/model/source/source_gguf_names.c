/* Names of a Gemma 4 model's weights in GGUF files. Sources: llama.cpp, gguf-py/gguf/tensor_mapping.py; drafters'
 * projections have three different names. */
#include <stdio.h>
#include <string.h>

#include "model/source/source_gguf.h"

typedef struct pair {
    const char *ours, *theirs[3];
} pair;

static const pair of_model[] = {
    {"embed_tokens", {"token_embd.weight"}},
    {"lm_head", {"output.weight"}},
    {"norm.weight", {"output_norm.weight"}},
    {"embed_tokens_per_layer", {"per_layer_token_embd.weight"}},
    {"per_layer_model_projection", {"per_layer_model_proj.weight"}},
    {"per_layer_projection_norm.weight", {"per_layer_proj_norm.weight"}},
    {"rope_freqs.weight", {"rope_freqs.weight"}},
    {"pre_projection", {"nextn.pre_projection.weight", "mtp_pre_proj.weight", "mtp.pre_projection.weight"}},
    {"post_projection", {"nextn.post_projection.weight", "mtp_post_proj.weight", "mtp.post_projection.weight"}},
    {"masked_embedding.centroids", {"nextn.centroids.weight", "mtp_centroids.weight", "mtp.centroids.weight"}},
    {"masked_embedding.token_ordering",
     {"nextn.token_ordering.weight", "mtp_token_ordering.weight", "mtp.token_ordering.weight"}},
};

static const pair of_layer[] = {
    {"input_layernorm.weight", {"attn_norm.weight"}},
    {"self_attn.q_proj", {"attn_q.weight"}},
    {"self_attn.k_proj", {"attn_k.weight"}},
    {"self_attn.v_proj", {"attn_v.weight"}},
    {"self_attn.o_proj", {"attn_output.weight"}},
    {"self_attn.q_norm.weight", {"attn_q_norm.weight"}},
    {"self_attn.k_norm.weight", {"attn_k_norm.weight"}},
    {"post_attention_layernorm.weight", {"post_attention_norm.weight"}},
    {"pre_feedforward_layernorm.weight", {"ffn_norm.weight"}},
    {"mlp.gate_proj", {"ffn_gate.weight"}},
    {"mlp.up_proj", {"ffn_up.weight"}},
    {"mlp.down_proj", {"ffn_down.weight"}},
    {"post_feedforward_layernorm.weight", {"post_ffw_norm.weight"}},
    {"post_feedforward_layernorm_1.weight", {"post_ffw_norm_1.weight"}},
    {"pre_feedforward_layernorm_2.weight", {"pre_ffw_norm_2.weight"}},
    {"post_feedforward_layernorm_2.weight", {"post_ffw_norm_2.weight"}},
    {"router.proj", {"ffn_gate_inp.weight"}},
    {"router.scale", {"ffn_gate_inp.scale"}},
    {"router.per_expert_scale", {"ffn_down_exps.scale"}},
    {"experts.gate_up_proj", {"ffn_gate_up_exps.weight"}},
    {"experts.gate_proj", {"ffn_gate_exps.weight"}},
    {"experts.up_proj", {"ffn_up_exps.weight"}},
    {"experts.down_proj", {"ffn_down_exps.weight"}},
    {"per_layer_input_gate", {"inp_gate.weight"}},
    {"per_layer_projection", {"proj.weight"}},
    {"post_per_layer_input_norm.weight", {"post_norm.weight"}},
    {"layer_scalar", {"layer_output_scale.weight"}},
};

static const pair *find_pair(const pair *list, size_t n, const char *ours)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].ours, ours) == 0) return &list[i];
    return NULL;
}

/* *layer: -1 for a weight outside of layers. */
static const pair *pair_of(const char *name, int *layer)
{
    int at = 0;
    if (sscanf(name, "layers.%d.%n", layer, &at) == 1 && at)
        return find_pair(of_layer, sizeof of_layer / sizeof *of_layer, name + at);
    *layer = -1;
    return find_pair(of_model, sizeof of_model / sizeof *of_model, name);
}

static void put_name(char *full, size_t room, int layer, const char *theirs)
{
    if (layer >= 0) snprintf(full, room, "blk.%d.%s", layer, theirs);
    else snprintf(full, room, "%s", theirs);
}

bool ek_gguf_weight_name(const char *name, char *full, size_t room)
{
    int layer;
    const pair *p = pair_of(name, &layer);
    if (p) put_name(full, room, layer, p->theirs[0]);
    return p;
}

const ek_gguf_tensor *ek_gguf_weight_find(const ek_gguf *g, const char *name, char *full, size_t room)
{
    int layer;
    const pair *p = pair_of(name, &layer);
    EK_ASSERT(p);
    for (int i = 2; i >= 0; i--) { /* the first of its full names ends the list */
        if (!p->theirs[i]) continue;
        put_name(full, room, layer, p->theirs[i]);
        const ek_gguf_tensor *t = ek_gguf_tensor_find(g, full);
        if (t) return t;
    }
    return NULL;
}

void ek_gguf_note_media(ek_media_ids *ids, const char *s, size_t n, int32_t id)
{
    const struct {
        const char *text;
        int32_t *id, *same;
    } marks[] = {{"<|image|>", &ids->soft[EK_PART_IMAGE], NULL},
                 {"<|video|>", &ids->soft[EK_PART_FRAME], NULL},
                 {"<|audio|>", &ids->soft[EK_PART_SOUND], NULL},
                 {"<|image>", &ids->begin[EK_PART_IMAGE], &ids->begin[EK_PART_FRAME]},
                 {"<image|>", &ids->end[EK_PART_IMAGE], &ids->end[EK_PART_FRAME]},
                 {"<|audio>", &ids->begin[EK_PART_SOUND], NULL},
                 {"<audio|>", &ids->end[EK_PART_SOUND], NULL}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n == strlen(marks[i].text) && memcmp(s, marks[i].text, n) == 0) {
            *marks[i].id = id;
            if (marks[i].same) *marks[i].same = id;
        }
}
