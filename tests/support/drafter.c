#include "drafter.h"

#include <string.h>

static const ek_layer_config *owner(const ek_config *c, ek_layer_kind kind)
{
    int last = -1;
    for (int i = 0; i < c->first_shared; i++)
        if (c->layer[i].kind == kind) last = i;
    EK_ASSERT(last >= 0);
    return &c->layer[last];
}

void drafter_config(ek_config *c, const ek_config *target, int centroids)
{
    *c = (ek_config){.vocab_size = target->vocab_size,
                     .hidden_size = 24,
                     .n_layers = 4,
                     .n_heads = target->n_heads,
                     .max_position_embeddings = target->max_position_embeddings,
                     .sliding_window = target->sliding_window,
                     .n_kv_shared_layers = 4,
                     .rms_norm_eps = 1e-6f,
                     .backbone_hidden_size = target->hidden_size,
                     .n_centroids = centroids,
                     .top_k_centroids = centroids ? 3 : 0};
    strcpy(c->model_type, "gemma4_assistant");
    memcpy(c->rope_theta, target->rope_theta, sizeof c->rope_theta);
    memcpy(c->rope_partial, target->rope_partial, sizeof c->rope_partial);
    memcpy(c->rope_factor, target->rope_factor, sizeof c->rope_factor);
    for (int i = 0; i < 4; i++) {
        c->layer[i] = *owner(target, i < 3 ? EK_SLIDING : EK_FULL);
        c->layer[i].intermediate_size = 32;
    }
    EK_ASSERT(ek_config_finish(c) == EK_OK);
}
