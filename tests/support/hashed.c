#include "hashed.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "tensor/dtype.h"

uint64_t hashed_bits(const char *name, uint64_t i)
{
    return ek_mix64(ek_fnv1a64(name) ^ (i * 0x9e3779b97f4a7c15u));
}

/* Around 1 for norms and scales, around 0 for the rest; a bfloat16 value. */
float hashed_weight(const char *name, uint64_t i)
{
    size_t n = strlen(name);
    float u = (float)(hashed_bits(name, i) >> 40) * 0x1p-24f;
    bool unit = strstr(name, "norm") || (n >= 12 && strcmp(name + n - 12, "layer_scalar") == 0) ||
                (n >= 12 && strcmp(name + n - 12, "router.scale") == 0) ||
                (n >= 16 && strcmp(name + n - 16, "per_expert_scale") == 0);
    return ek_bf16_f32(ek_f32_bf16(unit ? 0.5f + u : u - 0.5f));
}

typedef struct tensor_list {
    tensor_fn *fn;
    void *arg;
    char prefix[64];
} tensor_list;

static void one_tensor(const tensor_list *t, const char *name, int64_t a, int64_t b, int64_t c)
{
    char full[160];
    int64_t dim[] = {a, b, c};
    snprintf(full, sizeof full, "%s%s", t->prefix, name);
    t->fn(t->arg, full, 1 + (b > 0) + (c > 0), dim);
}

static void layer_tensors(const ek_config *c, int i, tensor_list t)
{
    const ek_layer_config *l = &c->layer[i];
    int64_t h = c->hidden_size, q = c->n_heads * l->head_dim, kv = l->n_kv_heads * l->head_dim;
    snprintf(t.prefix, sizeof t.prefix, "model.layers.%d.", i);
    one_tensor(&t, "self_attn.q_proj.weight", q, h, 0);
    one_tensor(&t, "self_attn.q_norm.weight", l->head_dim, 0, 0);
    if (i < c->first_shared) {
        one_tensor(&t, "self_attn.k_proj.weight", kv, h, 0);
        one_tensor(&t, "self_attn.k_norm.weight", l->head_dim, 0, 0);
        if (!l->k_eq_v) one_tensor(&t, "self_attn.v_proj.weight", kv, h, 0);
    }
    one_tensor(&t, "self_attn.o_proj.weight", h, q, 0);
    one_tensor(&t, "mlp.gate_proj.weight", l->intermediate_size, h, 0);
    one_tensor(&t, "mlp.up_proj.weight", l->intermediate_size, h, 0);
    one_tensor(&t, "mlp.down_proj.weight", h, l->intermediate_size, 0);
    one_tensor(&t, "input_layernorm.weight", h, 0, 0);
    one_tensor(&t, "post_attention_layernorm.weight", h, 0, 0);
    one_tensor(&t, "pre_feedforward_layernorm.weight", h, 0, 0);
    one_tensor(&t, "post_feedforward_layernorm.weight", h, 0, 0);
    if (c->n_experts) {
        int64_t e = c->n_experts, m = c->moe_intermediate_size;
        one_tensor(&t, "router.proj.weight", e, h, 0);
        one_tensor(&t, "router.scale", h, 0, 0);
        one_tensor(&t, "router.per_expert_scale", e, 0, 0);
        one_tensor(&t, "experts.gate_up_proj", e, 2 * m, h);
        one_tensor(&t, "experts.down_proj", e, h, m);
        one_tensor(&t, "post_feedforward_layernorm_1.weight", h, 0, 0);
        one_tensor(&t, "pre_feedforward_layernorm_2.weight", h, 0, 0);
        one_tensor(&t, "post_feedforward_layernorm_2.weight", h, 0, 0);
    }
    if (c->per_layer_size) {
        one_tensor(&t, "per_layer_input_gate.weight", c->per_layer_size, h, 0);
        one_tensor(&t, "per_layer_projection.weight", h, c->per_layer_size, 0);
        one_tensor(&t, "post_per_layer_input_norm.weight", h, 0, 0);
    }
    one_tensor(&t, "layer_scalar", 1, 0, 0);
}

/* Every tensor with its Hugging Face name in a text-only checkpoint. */
void each_tensor(const ek_config *c, tensor_fn *fn, void *arg)
{
    tensor_list t = {fn, arg, "model."};
    int64_t p = c->per_layer_size, all = p * c->n_layers;
    one_tensor(&t, "embed_tokens.weight", c->vocab_size, c->hidden_size, 0);
    if (p) {
        one_tensor(&t, "embed_tokens_per_layer.weight", c->vocab_size, all, 0);
        one_tensor(&t, "per_layer_model_projection.weight", all, c->hidden_size, 0);
        one_tensor(&t, "per_layer_projection_norm.weight", p, 0, 0);
    }
    for (int i = 0; i < c->n_layers; i++) layer_tensors(c, i, t);
    one_tensor(&t, "norm.weight", c->hidden_size, 0, 0);
    if (!c->backbone_hidden_size) return;
    *t.prefix = '\0';
    one_tensor(&t, "pre_projection.weight", c->hidden_size, 2 * c->backbone_hidden_size, 0);
    one_tensor(&t, "post_projection.weight", c->backbone_hidden_size, c->hidden_size, 0);
    if (c->n_centroids) one_tensor(&t, "masked_embedding.centroids.weight", c->n_centroids, c->hidden_size, 0);
}
