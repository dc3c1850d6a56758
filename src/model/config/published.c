/* The published shapes (for bench: random weights of real sizes) and the small ones of tests. */
#include <stdio.h>
#include <string.h>

#include "model/config/config.h"

typedef struct shape {
    const char *name;
    const char *kinds; /* one period of layer kinds, repeated; S sliding, F full */
    int layers, hidden, inter, heads, kv, global_kv, dim, global_dim, window, shared, per_layer, vocab;
    bool k_eq_v, wide;
    int experts, top_k, moe_inter, positions;
    double theta, global_theta, partial;
} shape;

/* Sources: transformers, convert_gemma4_weights.py and the configurations of the releases. */
static const shape published[] = {
    {"e2b", "SSSSF", 35,    1536, 6144, 8, 1, 0,      256, 512, 512, 20,
     256,   262144,  false, true, 0,    0, 0, 131072, 1e4, 1e6, 0.25},
    {"e4b", "SSSSSF", 42,    2560,  10240, 8, 2, 0,      256, 512, 512, 18,
     256,   262144,   false, false, 0,     0, 0, 131072, 1e4, 1e6, 0.25},
    {"12b", "SSSSSF", 48,   3840,  15360, 16, 8, 1,      256, 512, 1024, 0,
     0,     262144,   true, false, 0,     0,  0, 262144, 1e4, 1e6, 0.25},
    {"26b", "SSSSSF", 30,   2816,  2112, 16, 8,   2,      256, 512, 1024, 0,
     0,     262144,   true, false, 128,  8,  704, 262144, 1e4, 1e6, 0.25},
    {"31b", "SSSSSF", 60,   5376,  21504, 32, 16, 4,      256, 512, 1024, 0,
     0,     262144,   true, false, 0,     0,  0,  262144, 1e4, 1e6, 0.25},
};

/* T: for every branch a configuration that fails without it; small thetas make short prompts sensitive to rotation; T7
 * has as many experts as 26B-A4B. Q: the same with multiples of 32, which quantised weights need, Q4 of 64. */
static const shape tiny[] = {
    {"T1", "SFSSSF", 6, 64, 96, 4, 1, 0, 16, 32, 8, 3, 8, 99, false, true, 0, 0, 0, 512, 50, 500, 0.25},
    {"T2", "SSF", 3, 48, 40, 4, 2, 1, 16, 32, 4, 0, 0, 101, true, false, 6, 2, 24, 512, 50, 500, 0.25},
    {"T3", "SSSSSF", 6, 64, 96, 8, 4, 2, 8, 16, 6, 0, 0, 97, true, false, 0, 0, 0, 512, 50, 500, 0.25},
    {"T4", "SFSF", 4, 90, 52, 9, 3, 0, 20, 36, 7, 0, 0, 103, false, false, 0, 0, 0, 512, 50, 500, 0.25},
    {"T5", "SSSFSF", 6, 32, 48, 2, 2, 0, 16, 16, 3, 0, 0, 107, false, false, 0, 0, 0, 512, 50, 500, 0.5},
    {"T6", "SFSSFSSF", 8, 72, 28, 6, 3, 2, 12, 24, 5, 3, 10, 132, true, true, 5, 3, 20, 512, 50, 500, 0.25},
    {"T7", "SSF", 3, 48, 40, 4, 2, 1, 16, 32, 4, 0, 0, 101, true, false, 128, 8, 24, 512, 50, 500, 0.25},
    {"Q1", "SSSFSSSF", 8, 128, 320, 4, 2, 0, 32, 64, 24, 4, 32, 331, false, true, 0, 0, 0, 4096, 1e4, 1e6, 0.25},
    {"Q2", "SSFSSF", 6, 192, 128, 4, 2, 1, 32, 64, 40, 0, 0, 307, true, false, 8, 2, 64, 4096, 1e4, 1e6, 0.25},
    {"Q3", "SSFSSF", 6, 320, 576, 4, 2, 1, 64, 128, 70, 0, 0, 293, true, false, 0, 0, 0, 4096, 1e4, 1e6, 0.25},
    {"Q4", "SSSFSSSF", 8, 192, 320, 4, 2, 0, 32, 64, 24, 4, 64, 311, false, true, 0, 0, 0, 4096, 1e4, 1e6, 0.25},
};

/* The number of last layers that share in a shortened stack: as many as leave one owner of each kind, as in the whole
 * model, and never more than the whole model has. */
static int cut_shared(const shape *s, int layers)
{
    int period = (int)strlen(s->kinds);
    int owners = layers * (s->layers - s->shared) / s->layers; /* the same fraction of owners */
    if (s->shared == 0) return 0;
    if (owners < period) owners = period;
    return layers > owners ? layers - owners : 0;
}

/* Sets the media ids of the vocabulary that all releases share; none if c has another vocabulary. */
static void set_media(ek_config *c)
{
    const ek_media_ids ids = {
        .soft = {258880, 258884, 258881}, .begin = {255999, 255999, 256000}, .end = {258882, 258882, 258883}};
    if (c->vocab_size == 262144) c->media = ids;
}

static ek_err fill(ek_config *c, const shape *s, int layers)
{
    size_t period = strlen(s->kinds);
    *c = (ek_config){.vocab_size = s->vocab,
                     .hidden_size = s->hidden,
                     .n_layers = layers,
                     .n_heads = s->heads,
                     .max_position_embeddings = s->positions,
                     .sliding_window = s->window,
                     .per_layer_size = s->per_layer,
                     .vocab_size_per_layer = s->vocab,
                     .n_experts = s->experts,
                     .top_k_experts = s->top_k,
                     .moe_intermediate_size = s->moe_inter,
                     .rms_norm_eps = 1e-6f,
                     .final_logit_softcapping = 30,
                     .rope_theta = {s->theta, s->global_theta},
                     .rope_partial = {1, s->partial},
                     .rope_factor = {1, 1},
                     .bos = 2,
                     .stop = {1},
                     .n_stop = 1,
                     .temperature = 1,
                     .top_p = 1};
    snprintf(c->model_type, sizeof c->model_type, "gemma4_text");
    c->mutual = s->per_layer == 0;
    set_media(c);
    c->n_kv_shared_layers = layers == s->layers ? s->shared : cut_shared(s, layers);
    c->first_shared = layers - c->n_kv_shared_layers;
    for (int i = 0; i < layers; i++) {
        bool full = s->kinds[(size_t)i % period] == 'F';
        c->layer[i] = (ek_layer_config){.kind = full ? EK_FULL : EK_SLIDING,
                                        .k_eq_v = full && s->k_eq_v,
                                        .head_dim = full ? s->global_dim : s->dim,
                                        .n_kv_heads = full && s->k_eq_v && s->global_kv ? s->global_kv : s->kv,
                                        .intermediate_size = s->wide && i >= c->first_shared ? 2 * s->inter : s->inter};
    }
    return ek_config_finish(c);
}

static ek_err pick(ek_config *c, const shape *list, size_t n, const char *name, int n_layers)
{
    char all[128] = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, name) == 0) {
            if (n_layers < 0 || n_layers > list[i].layers)
                return ek_fail(EK_EINVAL, "%s has %d layers, %d cannot be taken", name, list[i].layers, n_layers);
            return fill(c, &list[i], n_layers ? n_layers : list[i].layers);
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", list[i].name);
    }
    return ek_fail(EK_ENOTFOUND, "no shape is called %.40s; there are %s", name, all);
}

ek_err ek_config_published(ek_config *c, const char *name, int n_layers)
{
    return pick(c, published, sizeof published / sizeof *published, name, n_layers);
}

ek_err ek_config_tiny(ek_config *c, const char *name)
{
    return pick(c, tiny, sizeof tiny / sizeof *tiny, name, 0);
}
