/* What config.json says of single layers: their kinds, heads and widths. Parts of ek_config_parse. */
#ifndef EK_MODEL_CONFIG_LAYERS_H
#define EK_MODEL_CONFIG_LAYERS_H

#include "model/config/config.h"
#include "model/config/setting.h"

/* layer_types to layer[].kind; n_layers stands. */
ek_err ek_config_kinds(ek_config *c, const ek_settings *p);

/* layer[].head_dim, n_kv_heads, intermediate_size and k_eq_v; kinds and first_shared stand. Takes both forms of
 * writing full layers: global_head_dim with num_global_key_value_heads, and per_layer_config. */
ek_err ek_config_layers(ek_config *c, const ek_settings *p);

#endif
