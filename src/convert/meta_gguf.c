/* Source: llama.cpp, conversion/gemma.py and gguf-py/gguf/constants.py; the keys in a table: docs/MODELS.md. */
#include <stdio.h>
#include <string.h>

#include "convert/meta.h"
#include "model/source/gguf_names.h"

/* Metadata under an architecture's name. */
typedef struct arch_meta {
    ek_gguf_meta *m;
    const char *arch;
} arch_meta;

static const char *key(const arch_meta *a, char out[64], const char *name)
{
    snprintf(out, 64, "%s.%s", a->arch, name);
    return out;
}

static void put_u32(const arch_meta *a, const char *name, int v)
{
    char full[64];
    ek_gguf_put_u32(a->m, key(a, full, name), (uint32_t)v);
}

static void put_f32(const arch_meta *a, const char *name, double v)
{
    char full[64];
    ek_gguf_put_f32(a->m, key(a, full, name), (float)v);
}

/* Writes one number if the layers agree, else one per layer. */
static void put_per_layer(const arch_meta *a, const char *name, const int32_t *v, int n)
{
    char full[64];
    bool same = true;
    for (int i = 1; i < n; i++) same &= v[i] == v[0];
    if (same) put_u32(a, name, v[0]);
    else ek_gguf_put_i32s(a->m, key(a, full, name), v, (size_t)n);
}

static const ek_layer_config *first_of(const ek_config *c, ek_layer_kind kind)
{
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kind == kind) return &c->layer[i];
    return &c->layer[0];
}

static ek_err check(const ek_config *c)
{
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i], *as = first_of(c, l->kind);
        if (l->head_dim != as->head_dim)
            return ek_fail(EK_EUNSUPPORTED, "layer %d has heads of %d, GGUF has one size for its kind: %d", i,
                           l->head_dim, as->head_dim);
    }
    return EK_OK;
}

static void put_layers(const arch_meta *a, const ek_config *c)
{
    char full[64];
    int32_t inter[EK_MAX_LAYERS] = {0}, heads[EK_MAX_LAYERS] = {0};
    bool sliding[EK_MAX_LAYERS];
    for (int i = 0; i < c->n_layers; i++) {
        inter[i] = c->layer[i].intermediate_size;
        heads[i] = c->layer[i].n_kv_heads;
        sliding[i] = c->layer[i].kind == EK_SLIDING;
    }
    put_per_layer(a, EK_GGUF_FEED_FORWARD, inter, c->n_layers);
    put_per_layer(a, EK_GGUF_KV_HEADS, heads, c->n_layers);
    ek_gguf_put_bools(a->m, key(a, full, EK_GGUF_SLIDING), sliding, (size_t)c->n_layers);
}

static void put_model(const arch_meta *a, const ek_config *c)
{
#define WRITE(key, field, min, max, absent) put_u32(a, key, c->field);
    put_u32(a, EK_GGUF_LAYERS, c->n_layers);
    EK_GGUF_SIZES(WRITE)
    if (c->n_experts) {
        put_u32(a, EK_GGUF_EXPERT_COUNT, c->n_experts);
        EK_GGUF_EXPERTS(WRITE)
    }
#undef WRITE
    put_layers(a, c);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = first_of(c, (ek_layer_kind)k);
        put_u32(a, EK_GGUF_K(k), l->head_dim);
        put_u32(a, EK_GGUF_V(k), l->head_dim);
        put_u32(a, EK_GGUF_ROTATED(k), l->head_dim);
        put_f32(a, EK_GGUF_THETA(k), c->rope_theta[l->kind]);
    }
    put_f32(a, EK_GGUF_EPSILON, (double)c->rms_norm_eps);
    if (c->final_logit_softcapping > 0) put_f32(a, EK_GGUF_SOFTCAP, (double)c->final_logit_softcapping);
}

/* llama.cpp's names for drafters. */
static void put_drafter(const arch_meta *a, const ek_config *c)
{
    char full[64];
    put_u32(a, "embedding_length_out", c->backbone_hidden_size);
    put_u32(a, "nextn_predict_layers", c->n_layers);
    ek_gguf_put_bool(a->m, key(a, full, "use_ordered_embeddings"), c->n_centroids > 0);
    if (!c->n_centroids) return;
    put_u32(a, "centroid_count", c->n_centroids);
    put_u32(a, "centroid_top_k", c->top_k_centroids);
}

ek_err ek_meta_gguf(ek_gguf_meta *m, const ek_meta_opts *o)
{
    const ek_config *c = o->config;
    EK_TRY(check(c));
    const arch_meta a = {m, c->backbone_hidden_size ? "gemma4-assistant" : "gemma4"};
    ek_gguf_put_string(m, "general.architecture", a.arch, strlen(a.arch));
    ek_gguf_put_string(m, "general.type", "model", strlen("model"));
    ek_gguf_put_string(m, "general.name", o->name, strlen(o->name));
    ek_gguf_put_u32(m, "general.file_type", (uint32_t)o->target->file_type);
    ek_gguf_put_u32(m, "general.quantization_version", 2);
    if (c->backbone_hidden_size) {
        put_model(&a, c);
        put_drafter(&a, c);
        return o->tokenizer ? ek_meta_gguf_tokenizer(m, o) : EK_OK;
    }
    if (c->top_k) ek_gguf_put_i32(m, "general.sampling.top_k", c->top_k);
    ek_gguf_put_f32(m, "general.sampling.top_p", c->top_p);
    ek_gguf_put_f32(m, "general.sampling.temp", c->temperature);
    put_model(&a, c);
    if (o->chat_template) ek_gguf_put_string(m, "tokenizer.chat_template", o->chat_template, strlen(o->chat_template));
    if (c->exact_scale) ek_gguf_put_string(m, "evenkeel.dtype", "float32", strlen("float32"));
    if (o->variant) ek_gguf_put_string(m, "evenkeel.chat_variant", o->variant, strlen(o->variant));
    return o->tokenizer ? ek_meta_gguf_tokenizer(m, o) : EK_OK;
}
