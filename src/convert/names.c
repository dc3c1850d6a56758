/* Sources: transformers, modeling_gemma4.py; mlx-lm, gemma4_text.py; llama.cpp, conversion/gemma.py. */
#include "convert/layout.h"

#include "model/source/source.h"

#include <stdio.h>
#include <string.h>

/* Model and GGUF, both without the layer. */
static const char *const gguf_model[][2] = {
    {"embed_tokens", "token_embd.weight"},
    {"lm_head", "output.weight"},
    {"norm.weight", "output_norm.weight"},
    {"embed_tokens_per_layer", "per_layer_token_embd.weight"},
    {"per_layer_model_projection", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"rope_freqs.weight", "rope_freqs.weight"},
    {"pre_projection", "nextn.pre_projection.weight"},
    {"post_projection", "nextn.post_projection.weight"},
    {"masked_embedding.centroids", "nextn.centroids.weight"},
    {"masked_embedding.token_ordering", "nextn.token_ordering.weight"},
};

static const char *const gguf_layer[][2] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj", "attn_q.weight"},
    {"self_attn.k_proj", "attn_k.weight"},
    {"self_attn.v_proj", "attn_v.weight"},
    {"self_attn.o_proj", "attn_output.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj", "ffn_gate.weight"},
    {"mlp.up_proj", "ffn_up.weight"},
    {"mlp.down_proj", "ffn_down.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
    {"router.proj", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"per_layer_input_gate", "inp_gate.weight"},
    {"per_layer_projection", "proj.weight"},
    {"post_per_layer_input_norm.weight", "post_norm.weight"},
    {"layer_scalar", "layer_output_scale.weight"},
};

static const char *find(const char *const table[][2], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i][0], name) == 0) return table[i][1];
    return NULL;
}

/* An item's name without what tells its part of a tensor: ".tail", and an expert's number. */
static void base_name(char *out, size_t room, const ek_item *it)
{
    snprintf(out, room, "%s", it->name);
    char *dot = strrchr(out, '.');
    if (dot && (strcmp(dot, ".tail") == 0 || (dot[1] >= '0' && dot[1] <= '9'))) *dot = 0;
}

static ek_err gguf_name(char *out, size_t room, const char *name)
{
    int layer = -1, at = 0;
    const char *is;
    if (sscanf(name, "layers.%d.%n", &layer, &at) == 1 && at > 0) {
        is = find(gguf_layer, sizeof gguf_layer / sizeof *gguf_layer, name + at);
        if (is) snprintf(out, room, "blk.%d.%s", layer, is);
    } else {
        is = find(gguf_model, sizeof gguf_model / sizeof *gguf_model, name);
        if (is) snprintf(out, room, "%s", is);
    }
    return is ? EK_OK : ek_fail(EK_EUNSUPPORTED, "%s has no name in GGUF", name);
}

/* mlx-lm splits the experts' projections and puts them one level down. */
static void mlx_expert(char *out, size_t room, const char *name, const ek_item *it)
{
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    int n = (int)(strrchr(name, '.') - name);
    snprintf(out, room, "%.*s.switch_glu.%s", n, name, proj[it->role - EK_ROLE_EXPERT_GATE]);
}

ek_err ek_name_of(char *out, size_t room, ek_convert_form form, bool nested, const ek_item *it)
{
    char name[144], inner[160];
    base_name(name, sizeof name, it);
    if (form == EK_FORM_GGUF) return gguf_name(out, room, name);
    bool expert = it->matrix && it->role >= EK_ROLE_EXPERT_GATE && it->role <= EK_ROLE_EXPERT_DOWN;
    if (form == EK_FORM_MLX && expert) mlx_expert(inner, sizeof inner, name, it);
    else snprintf(inner, sizeof inner, "%s", name);
    if (strcmp(name, "lm_head") == 0) { /* beside the model; mlx-lm has it in its language_model */
        snprintf(out, room, "%s%s", nested && form == EK_FORM_MLX ? "language_model." : "", name);
        return EK_OK;
    }
    if (ek_source_stands_beside(name)) {
        snprintf(out, room, "%s", name);
        return EK_OK;
    }
    const char *prefix = !nested ? "model." : form == EK_FORM_MLX ? "language_model.model." : "model.language_model.";
    snprintf(out, room, "%s%s", prefix, inner);
    return EK_OK;
}
