/* Names of a Gemma 4 model's weights and settings in GGUF files: one table each, for readers and writers. Sources:
 * llama.cpp, gguf-py/gguf/tensor_mapping.py and constants.py, conversion/gemma.py. */
#ifndef EK_MODEL_SOURCE_GGUF_NAMES_H
#define EK_MODEL_SOURCE_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "model/config/config.h"

/* Writes the first of a weight's GGUF names to full (room bytes). name: the model's ("layers.3.layer_scalar"). False:
 * the weight has none. */
bool ek_gguf_weight_name(const char *name, char *full, size_t room);

/* Keys, below the architecture's name, of whole numbers: key, field of ek_config, min, max, default for a missing key
 * (EK_GGUF_NEEDED: the key is required). */
enum { EK_GGUF_NEEDED = -1 };
#define EK_GGUF_SIZES(X)                                                            \
    X("context_length", max_position_embeddings, 1, EK_MAX_CONTEXT, EK_GGUF_NEEDED) \
    X("embedding_length", hidden_size, 1, EK_MAX_WIDTH, EK_GGUF_NEEDED)             \
    X("embedding_length_per_layer_input", per_layer_size, 0, 1 << 16, 0)            \
    X("attention.head_count", n_heads, 1, 4096, EK_GGUF_NEEDED)                     \
    X("attention.sliding_window", sliding_window, 0, EK_MAX_CONTEXT, 0)             \
    X("attention.shared_kv_layers", n_kv_shared_layers, 0, c->n_layers, 0)
/* The same for models with experts. */
#define EK_GGUF_EXPERTS(X)                                                 \
    X("expert_used_count", top_k_experts, 1, c->n_experts, EK_GGUF_NEEDED) \
    X("expert_feed_forward_length", moe_intermediate_size, 1, EK_MAX_WIDTH, EK_GGUF_NEEDED)

/* The other keys: per layer, per kind of layer, or not whole numbers. */
#define EK_GGUF_LAYERS        "block_count"
#define EK_GGUF_EXPERT_COUNT  "expert_count"
#define EK_GGUF_KV_HEADS      "attention.head_count_kv"
#define EK_GGUF_FEED_FORWARD  "feed_forward_length"
#define EK_GGUF_SLIDING       "attention.sliding_window_pattern"
#define EK_GGUF_EPSILON       "attention.layer_norm_rms_epsilon"
#define EK_GGUF_SOFTCAP       "final_logit_softcapping"
#define EK_GGUF_K(kind)       ((kind) == EK_FULL ? "attention.key_length" : "attention.key_length_swa")
#define EK_GGUF_V(kind)       ((kind) == EK_FULL ? "attention.value_length" : "attention.value_length_swa")
#define EK_GGUF_ROTATED(kind) ((kind) == EK_FULL ? "rope.dimension_count" : "rope.dimension_count_swa")
#define EK_GGUF_THETA(kind)   ((kind) == EK_FULL ? "rope.freq_base" : "rope.freq_base_swa")

#endif
