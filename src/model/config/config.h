/* A Gemma 4 text configuration, parsed and checked. */
#ifndef EK_MODEL_CONFIG_H
#define EK_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "media/part/part.h"
#include "ops/kv/kv.h"

enum {
    EK_MAX_LAYERS = 256,
    EK_MAX_STOP = 32,
    EK_MAX_WIDTH = 1 << 20, /* of a row: hidden and intermediate sizes, number of heads times head size */
    EK_MAX_VOCAB = 1 << 24,
    EK_MAX_CONTEXT = 1 << 28
};

typedef struct ek_layer_config {
    ek_layer_kind kind;
    bool owns_kv; /* false: the layer reads the keys and values of donor */
    int donor;    /* the layer whose K/V this layer reads; itself if owns_kv */
    bool k_eq_v;  /* no v_proj: values are k_proj's output */
    int head_dim, n_kv_heads, intermediate_size;
} ek_layer_config;

typedef struct ek_config {
    char model_type[64];
    int vocab_size, hidden_size, n_layers, n_heads, max_position_embeddings;
    int sliding_window;
    int per_layer_size; /* hidden_size_per_layer_input; 0: none */
    int vocab_size_per_layer;
    int n_kv_shared_layers, first_shared;                /* layers [first_shared, n_layers) own no K/V */
    int n_experts, top_k_experts, moe_intermediate_size; /* 0: no experts */
    /* Drafters (gemma4_assistant) only, otherwise 0: the hidden size of the target, whose keys and values all their
     * layers read; ordered embeddings (0: a dense head). */
    int backbone_hidden_size, n_centroids, top_k_centroids;
    float rms_norm_eps;
    float final_logit_softcapping; /* 0: none */
    bool exact_scale;              /* the model runs in float32: ek_config_embed_scale does not round */
    double rope_theta[EK_KIND_COUNT], rope_partial[EK_KIND_COUNT], rope_factor[EK_KIND_COUNT];
    ek_layer_config layer[EK_MAX_LAYERS];
    int32_t bos, pad;
    ek_media_ids media;
    /* The head is a matrix besides the embedding. After parsing: as in config.json; after binding: as in the weights.
     */
    bool own_head;
    bool mutual;               /* use_bidirectional_attention: rows of an image see each other in sliding layers */
    int32_t stop[EK_MAX_STOP]; /* union of config.json and generation_config.json */
    int n_stop;
    int32_t suppress[EK_MAX_STOP]; /* suppress_tokens */
    int n_suppress;
    float temperature, top_p; /* defaults of generation_config.json; 1 and 1 without it */
    int top_k;                /* 0: off */
} ek_config;

/* Parses config.json and generation_config.json (NULL: none). Every number is checked against the engine's limits;
 * errors name file, key and value. */
ek_err ek_config_parse(ek_config *c, const char *config_json, const char *generation_json);

/* Derives owns_kv and donor from kinds and first_shared, and checks the rules between fields; errors do not name the
 * file. For code that fills a configuration itself; ek_config_parse calls it. */
ek_err ek_config_finish(ek_config *c);

/* The factor of an embedding row: sqrt(size), rounded to bf16 as in training, unless exact_scale. size is hidden_size
 * or per_layer_size, of the model that owns the table. */
float ek_config_embed_scale(const ek_config *c, int size);

/* The published shapes "e2b", "e4b", "12b", "26b", "31b", truncated to the first n_layers if n_layers > 0. With at
 * least one period of kinds (5 layers of e2b, 6 of the others) each kind has a layer that owns its keys and values;
 * fewer layers are all sliding, like the model's first ones. ENOTFOUND lists the names. */
ek_err ek_config_published(ek_config *c, const char *name, int n_layers);

/* Small configurations for tests. "T1" to "T7" together reach every branch of the decoder (per-layer inputs, shared
 * keys and values, experts, K = V, odd sizes, windows that wrap). "Q1" to "Q3" do the same with sizes for quantised
 * weights. */
ek_err ek_config_tiny(ek_config *c, const char *name);

#endif
