/* Source: llama.cpp, conversion/gemma.py and gguf-py/gguf/constants.py; the keys in a table: docs/MODELS.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "convert/meta.h"

static const char *key(char out[64], const char *name)
{
    snprintf(out, 64, "gemma4.%s", name);
    return out;
}

static void put_u32(ek_gguf_meta *m, const char *name, int v)
{
    char full[64];
    ek_gguf_put_u32(m, key(full, name), (uint32_t)v);
}

static void put_f32(ek_gguf_meta *m, const char *name, double v)
{
    char full[64];
    ek_gguf_put_f32(m, key(full, name), (float)v);
}

/* One number if the layers agree, else one per layer. */
static void put_per_layer(ek_gguf_meta *m, const char *name, const int32_t *v, int n)
{
    char full[64];
    bool same = true;
    for (int i = 1; i < n; i++) same &= v[i] == v[0];
    if (same) put_u32(m, name, v[0]);
    else ek_gguf_put_i32s(m, key(full, name), v, (size_t)n);
}

static const ek_layer_config *first_of(const ek_config *c, ek_layer_kind kind)
{
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kind == kind) return &c->layer[i];
    return &c->layer[0];
}

static ek_err check(const ek_config *c)
{
    if (c->backbone_hidden_size) return ek_fail(EK_EUNSUPPORTED, "a drafter cannot be converted");
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i], *as = first_of(c, l->kind);
        if (l->head_dim != as->head_dim)
            return ek_fail(EK_EUNSUPPORTED, "layer %d has heads of %d, GGUF has one size for its kind: %d", i,
                           l->head_dim, as->head_dim);
    }
    return EK_OK;
}

static void put_layers(ek_gguf_meta *m, const ek_config *c)
{
    char full[64];
    int32_t inter[EK_MAX_LAYERS] = {0}, heads[EK_MAX_LAYERS] = {0};
    bool sliding[EK_MAX_LAYERS];
    for (int i = 0; i < c->n_layers; i++) {
        inter[i] = c->layer[i].intermediate_size;
        heads[i] = c->layer[i].n_kv_heads;
        sliding[i] = c->layer[i].kind == EK_SLIDING;
    }
    put_per_layer(m, "feed_forward_length", inter, c->n_layers);
    put_per_layer(m, "attention.head_count_kv", heads, c->n_layers);
    ek_gguf_put_bools(m, key(full, "attention.sliding_window_pattern"), sliding, (size_t)c->n_layers);
}

static void put_model(ek_gguf_meta *m, const ek_config *c)
{
    const ek_layer_config *full = first_of(c, EK_FULL), *slide = first_of(c, EK_SLIDING);
    double theta = c->rope_theta[full->kind], theta_swa = c->rope_theta[slide->kind];
    put_u32(m, "block_count", c->n_layers);
    put_u32(m, "context_length", c->max_position_embeddings);
    put_u32(m, "embedding_length", c->hidden_size);
    put_u32(m, "embedding_length_per_layer_input", c->per_layer_size);
    put_u32(m, "attention.head_count", c->n_heads);
    put_layers(m, c);
    put_u32(m, "attention.key_length", full->head_dim);
    put_u32(m, "attention.value_length", full->head_dim);
    put_u32(m, "attention.key_length_swa", slide->head_dim);
    put_u32(m, "attention.value_length_swa", slide->head_dim);
    put_u32(m, "rope.dimension_count", full->head_dim);
    put_u32(m, "rope.dimension_count_swa", slide->head_dim);
    put_f32(m, "rope.freq_base", theta);
    put_f32(m, "rope.freq_base_swa", theta_swa);
    put_f32(m, "attention.layer_norm_rms_epsilon", (double)c->rms_norm_eps);
    put_u32(m, "attention.sliding_window", c->sliding_window);
    put_u32(m, "attention.shared_kv_layers", c->n_kv_shared_layers);
    if (c->final_logit_softcapping > 0) put_f32(m, "final_logit_softcapping", (double)c->final_logit_softcapping);
    if (!c->n_experts) return;
    put_u32(m, "expert_count", c->n_experts);
    put_u32(m, "expert_used_count", c->top_k_experts);
    put_u32(m, "expert_feed_forward_length", c->moe_intermediate_size);
}

ek_err ek_meta_gguf(ek_gguf_meta *m, const ek_meta_opts *o)
{
    const ek_config *c = o->config;
    EK_TRY(check(c));
    ek_gguf_put_string(m, "general.architecture", "gemma4", strlen("gemma4"));
    ek_gguf_put_string(m, "general.type", "model", strlen("model"));
    ek_gguf_put_string(m, "general.name", o->name, strlen(o->name));
    ek_gguf_put_u32(m, "general.file_type", (uint32_t)o->target->file_type);
    ek_gguf_put_u32(m, "general.quantization_version", 2);
    if (c->top_k) ek_gguf_put_i32(m, "general.sampling.top_k", c->top_k);
    ek_gguf_put_f32(m, "general.sampling.top_p", c->top_p);
    ek_gguf_put_f32(m, "general.sampling.temp", c->temperature);
    put_model(m, c);
    if (o->chat_template) ek_gguf_put_string(m, "tokenizer.chat_template", o->chat_template, strlen(o->chat_template));
    if (o->variant) ek_gguf_put_string(m, "evenkeel.chat_variant", o->variant, strlen(o->variant));
    return o->tokenizer ? ek_meta_gguf_tokenizer(m, o) : EK_OK;
}
