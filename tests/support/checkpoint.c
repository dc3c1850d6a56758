#include "checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hashed.h"
#include "tensor/dtype.h"
#include "base/alloc.h"

static void config_kinds(ek_buf *b, const ek_config *c)
{
    ek_buf_str(b, "\"layer_types\":[");
    for (int i = 0; i < c->n_layers; i++)
        ek_buf_fmt(b, "%s\"%s_attention\"", i ? "," : "", c->layer[i].kind == EK_FULL ? "full" : "sliding");
    ek_buf_str(b, "]");
}

/* The text configuration as JSON, without the braces. */
void config_fields(ek_buf *b, const ek_config *c)
{
    const ek_layer_config *slide = &c->layer[0], *full = slide;
    for (int i = 0; i < c->n_layers; i++) {
        if (c->layer[i].kind == EK_FULL) full = &c->layer[i];
        if (c->layer[i].kind == EK_SLIDING && i < c->first_shared) slide = &c->layer[i];
    }
    bool wide = c->layer[c->n_layers - 1].intermediate_size != c->layer[0].intermediate_size;
    ek_buf_fmt(b, "\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,",
               c->vocab_size, c->hidden_size, c->layer[0].intermediate_size, c->n_layers);
    ek_buf_fmt(b, "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,\"global_head_dim\":%d,",
               c->n_heads, slide->n_kv_heads, slide->head_dim, full->head_dim);
    ek_buf_fmt(b, "\"sliding_window\":%d,\"num_kv_shared_layers\":%d,\"hidden_size_per_layer_input\":%d,",
               c->sliding_window, c->n_kv_shared_layers, c->per_layer_size);
    ek_buf_fmt(b, "\"vocab_size_per_layer_input\":%d,\"max_position_embeddings\":%d,\"rms_norm_eps\":%.9g,",
               c->vocab_size_per_layer, c->max_position_embeddings, (double)c->rms_norm_eps);
    if (full->k_eq_v) ek_buf_fmt(b, "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":%d,", full->n_kv_heads);
    if (wide) ek_buf_str(b, "\"use_double_wide_mlp\":true,");
    if (c->n_experts)
        ek_buf_fmt(b,
                   "\"enable_moe_block\":true,\"num_experts\":%d,\"top_k_experts\":%d,"
                   "\"moe_intermediate_size\":%d,",
                   c->n_experts, c->top_k_experts, c->moe_intermediate_size);
    if (c->final_logit_softcapping > 0)
        ek_buf_fmt(b, "\"final_logit_softcapping\":%.9g,", (double)c->final_logit_softcapping);
    ek_buf_fmt(b,
               "\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":%.17g},"
               "\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":%.17g,"
               "\"rope_theta\":%.17g}},",
               c->rope_theta[EK_SLIDING], c->rope_partial[EK_FULL], c->rope_theta[EK_FULL]);
    config_kinds(b, c);
    if (c->exact_scale) ek_buf_str(b, ",\"dtype\":\"float32\"");
    ek_buf_str(b, ",\"eos_token_id\":[1],\"model_type\":\"gemma4_text\"");
}

typedef struct hf_writer {
    const hf_opts *o;
    st_file file[4];
    ek_buf map;
    int n;
} hf_writer;

static void hf_tensor(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    hf_writer *w = arg;
    char full[192];
    size_t n = 1;
    if (w->o->skip && strcmp(name, w->o->skip) == 0) return;
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    bool wide = w->o->f32 || (w->o->f32_one && strcmp(name, w->o->f32_one) == 0);
    float *values = ek_alloc(n * 4);
    ek_bf16 *half = ek_alloc(n * 2);
    for (size_t i = 0; i < n; i++) {
        values[i] = hashed_weight(name, i);
        half[i] = ek_f32_bf16(values[i]);
    }
    bool inside = strncmp(name, "model.", strlen("model.")) == 0;
    if (inside) snprintf(full, sizeof full, "%s%s", w->o->prefix ? w->o->prefix : "model.", name + strlen("model."));
    else snprintf(full, sizeof full, "%s", name);
    int shard = w->o->shards > 1 ? w->n++ % w->o->shards : 0;
    st_add(&w->file[shard], full, wide ? "F32" : "BF16", n_dims, dim, wide ? (void *)values : (void *)half,
           n * (wide ? 4 : 2));
    ek_buf_fmt(&w->map, "%s\"%s\":\"model-%d.safetensors\"", w->map.len ? "," : "", full, shard);
    free(values);
    free(half);
}

static void drafter_fields(ek_buf *b, const ek_config *c)
{
    ek_buf_fmt(b, "{\"model_type\":\"gemma4_assistant\",\"backbone_hidden_size\":%d,", c->backbone_hidden_size);
    ek_buf_fmt(b, "\"use_ordered_embeddings\":%s,\"num_centroids\":%d,\"centroid_intermediate_top_k\":%d,",
               c->n_centroids ? "true" : "false", c->n_centroids ? c->n_centroids : 2048,
               c->n_centroids ? c->top_k_centroids : 32);
    ek_buf_str(b, "\"text_config\":{");
}

/* Writes config.json and the weights of c into dir. extra adds tensors (its arg is the first file). */
void write_hf(const char *dir, const ek_config *c, const hf_opts *o, void (*extra)(st_file *))
{
    static const hf_opts plain;
    hf_writer w = {.o = o ? o : &plain};
    ek_buf text = {0};
    each_tensor(c, hf_tensor, &w);
    if (extra) extra(&w.file[0]);
    if (w.o->shards > 1) {
        for (int s = 0; s < w.o->shards; s++) {
            char name[32];
            snprintf(name, sizeof name, "model-%d.safetensors", s);
            st_save(&w.file[s], dir, name);
        }
        ek_buf_fmt(&text, "{\"metadata\":{},\"weight_map\":{%s}}", ek_buf_text(&w.map));
        put_text(dir, "model.safetensors.index.json", text.data);
        ek_buf_clear(&text);
    } else {
        st_save(&w.file[0], dir, "model.safetensors");
    }
    bool wrapped = w.o->prefix && strcmp(w.o->prefix, "model.") != 0;
    if (c->backbone_hidden_size) drafter_fields(&text, c);
    else ek_buf_str(&text, wrapped ? "{\"model_type\":\"gemma4\",\"text_config\":{" : "{");
    config_fields(&text, c);
    ek_buf_str(&text, wrapped || c->backbone_hidden_size ? "}}" : "}");
    put_text(dir, "config.json", text.data);
    ek_buf_fini(&text);
    ek_buf_fini(&w.map);
}
