/* config.json and its companions. Source: transformers, configuration_gemma4.py; mlx-lm, utils.py (quantization). */
#include <string.h>

#include "convert/meta.h"

static const ek_layer_config *layer_of(const ek_config *c, ek_layer_kind kind)
{
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kind == kind) return &c->layer[i];
    return NULL;
}

/* transformers accepts only floats in some fields, and reads 30 as an integer. */
static void add_number(ek_buf *b, const char *key, double x)
{
    ek_buf_fmt(b, ", \"%s\": ", key);
    ek_buf_double(b, x);
}

static void add_float(ek_buf *b, const char *key, float x)
{
    ek_buf_fmt(b, ", \"%s\": ", key);
    ek_buf_float(b, x);
}

static void add_rope(ek_buf *b, const ek_config *c)
{
    static const char *const name[] = {[EK_SLIDING] = "sliding_attention", [EK_FULL] = "full_attention"};
    ek_buf_str(b, ", \"rope_parameters\": {");
    for (int k = 0, n = 0; k < EK_KIND_COUNT; k++) {
        if (!layer_of(c, (ek_layer_kind)k)) continue;
        bool whole = c->rope_partial[k] == 1 && c->rope_factor[k] == 1;
        ek_buf_fmt(b, "%s\"%s\": {\"rope_type\": \"%s\"", n++ ? ", " : "", name[k], whole ? "default" : "proportional");
        add_number(b, "rope_theta", c->rope_theta[k]);
        if (!whole) add_number(b, "partial_rotary_factor", c->rope_partial[k]);
        if (c->rope_factor[k] != 1) add_number(b, "factor", c->rope_factor[k]);
        ek_buf_str(b, "}");
    }
    ek_buf_str(b, "}");
}

static void add_kinds(ek_buf *b, const ek_config *c)
{
    ek_buf_str(b, ", \"layer_types\": [");
    for (int i = 0; i < c->n_layers; i++)
        ek_buf_fmt(b, "%s\"%s_attention\"", i ? ", " : "", c->layer[i].kind == EK_FULL ? "full" : "sliding");
    ek_buf_str(b, "]");
}

static void add_ids(ek_buf *b, const char *key, const int32_t *id, int n)
{
    ek_buf_fmt(b, ", \"%s\": [", key);
    for (int i = 0; i < n; i++) ek_buf_fmt(b, "%s%d", i ? ", " : "", id[i]);
    ek_buf_str(b, "]");
}

/* The sizes of most layers: the sliding layers' heads, and the first layer's width. wide: the layers that share keys
 * and values are twice as wide. */
typedef struct common {
    int head_dim, n_kv_heads, inter;
    bool wide;
} common;

static common common_of(const ek_config *c)
{
    const ek_layer_config *l = layer_of(c, EK_SLIDING) ? layer_of(c, EK_SLIDING) : layer_of(c, EK_FULL);
    common usual = {l->head_dim, l->n_kv_heads, c->layer[0].intermediate_size, c->n_kv_shared_layers > 0};
    for (int i = c->first_shared; i < c->n_layers; i++)
        usual.wide = usual.wide && c->layer[i].intermediate_size == 2 * usual.inter;
    return usual;
}

/* config.json has only one field for whether values are keys in the full layers, so the layers must agree. */
static ek_err check(const ek_config *c)
{
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        if (l->owns_kv && l->k_eq_v != layer_of(c, l->kind)->k_eq_v)
            return ek_fail(EK_EUNSUPPORTED, "layer %d has other heads than the first of its kind", i);
    }
    return EK_OK;
}

/* Writes the members that layer i needs in config.json's per_layer_config, separated by commas. */
static void add_own(ek_buf *b, const ek_config *c, const common *usual, int i)
{
    const ek_layer_config *l = &c->layer[i];
    int n = 0;
    if (l->head_dim != usual->head_dim) ek_buf_fmt(b, "%s\"head_dim\": %d", n++ ? ", " : "", l->head_dim);
    if (l->n_kv_heads != usual->n_kv_heads)
        ek_buf_fmt(b, "%s\"num_key_value_heads\": %d", n++ ? ", " : "", l->n_kv_heads);
    if (l->intermediate_size != usual->inter && !(usual->wide && i >= c->first_shared))
        ek_buf_fmt(b, "%s\"intermediate_size\": %d", n++ ? ", " : "", l->intermediate_size);
}

/* Writes values that differ per layer, under the layers' numbers. The numbers have one width, with leading zeros, as in
 * transformers since 5.15. Other readers use global_head_dim and num_global_key_value_heads beside these values. */
static void add_own_layers(ek_buf *b, const ek_config *c)
{
    const common usual = common_of(c);
    ek_buf own = {0};
    int last = 0, width = 1, n = 0;
    for (int i = 0; i < c->n_layers; i++) {
        ek_buf_clear(&own);
        add_own(&own, c, &usual, i);
        if (own.len) last = i;
    }
    while (last >= 10) last /= 10, width++;
    ek_buf_str(b, ", \"per_layer_config\": {");
    for (int i = 0; i < c->n_layers; i++) {
        ek_buf_clear(&own);
        add_own(&own, c, &usual, i);
        if (own.len) ek_buf_fmt(b, "%s\"%0*d\": {%s}", n++ ? ", " : "", width, i, own.data);
    }
    ek_buf_str(b, "}");
    ek_buf_fini(&own);
}

static void add_sizes(ek_buf *b, const ek_config *c)
{
    const ek_layer_config *full = layer_of(c, EK_FULL) ? layer_of(c, EK_FULL) : layer_of(c, EK_SLIDING);
    const common usual = common_of(c);
    ek_buf_fmt(b, ", \"vocab_size\": %d, \"vocab_size_per_layer_input\": %d, \"hidden_size\": %d", c->vocab_size,
               c->backbone_hidden_size ? 0 : c->vocab_size_per_layer, c->hidden_size);
    ek_buf_fmt(b, ", \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d", usual.inter,
               c->n_layers, c->n_heads);
    ek_buf_fmt(b, ", \"num_key_value_heads\": %d, \"head_dim\": %d, \"global_head_dim\": %d", usual.n_kv_heads,
               usual.head_dim, full->head_dim);
    if (full->k_eq_v) ek_buf_fmt(b, ", \"num_global_key_value_heads\": %d", full->n_kv_heads);
    ek_buf_fmt(b, ", \"attention_k_eq_v\": %s, \"use_double_wide_mlp\": %s, \"enable_moe_block\": %s",
               full->k_eq_v ? "true" : "false", usual.wide ? "true" : "false", c->n_experts ? "true" : "false");
    if (c->n_experts)
        ek_buf_fmt(b, ", \"num_experts\": %d, \"top_k_experts\": %d, \"moe_intermediate_size\": %d", c->n_experts,
                   c->top_k_experts, c->moe_intermediate_size);
    add_own_layers(b, c);
    ek_buf_fmt(b, ", \"sliding_window\": %d, \"num_kv_shared_layers\": %d, \"hidden_size_per_layer_input\": %d",
               c->sliding_window, c->n_kv_shared_layers, c->per_layer_size);
    ek_buf_fmt(b, ", \"max_position_embeddings\": %d", c->max_position_embeddings);
    add_float(b, "rms_norm_eps", c->rms_norm_eps);
    if (c->final_logit_softcapping > 0) add_float(b, "final_logit_softcapping", c->final_logit_softcapping);
    ek_buf_str(b, ", \"hidden_activation\": \"gelu_pytorch_tanh\", \"attention_bias\": false");
}

static void add_text(ek_buf *b, const ek_config *c)
{
    ek_buf_str(b, "\"model_type\": \"gemma4_text\"");
    add_sizes(b, c);
    add_kinds(b, c);
    add_rope(b, c);
    ek_buf_fmt(b, ", \"tie_word_embeddings\": %s, \"bos_token_id\": %d, \"pad_token_id\": %d",
               c->own_head ? "false" : "true", c->bos, c->pad);
    add_ids(b, "eos_token_id", c->stop, c->n_stop);
}

/* Writes MLX's format of most modules, and the formats of the other modules. A matrix that is not quantised is
 * false. */
static void add_quantization(ek_buf *b, const ek_layout *l, const ek_target *usual)
{
    ek_buf_fmt(b, "{\"group_size\": %d, \"bits\": %d", usual->group, usual->bits);
    for (int i = 0; i < l->n; i++) {
        const ek_out *t = &l->out[i];
        char module[208];
        if (t->part[0]->vector || t->target == usual) continue;
        ek_layout_module(t, module, sizeof module);
        if (t->target->bits)
            ek_buf_fmt(b, ", \"%s\": {\"group_size\": %d, \"bits\": %d}", module, t->target->group, t->target->bits);
        else ek_buf_fmt(b, ", \"%s\": false", module);
    }
    ek_buf_str(b, "}");
}

static void add_drafter(ek_buf *b, const ek_config *c)
{
    ek_buf_fmt(b,
               "\"model_type\": \"gemma4_assistant\", \"backbone_hidden_size\": %d, \"use_ordered_embeddings\": %s, ",
               c->backbone_hidden_size, c->n_centroids ? "true" : "false");
    if (c->n_centroids)
        ek_buf_fmt(b, "\"num_centroids\": %d, \"centroid_intermediate_top_k\": %d, ", c->n_centroids,
                   c->top_k_centroids);
    ek_buf_str(b, "\"text_config\": {");
}

ek_err ek_meta_config(ek_buf *out, const ek_meta_opts *o, const ek_layout *l)
{
    EK_TRY(check(o->config));
    /* The element type in which the model runs decides the embedding's scale, not the type of its stored weights. */
    const char *dtype = o->config->exact_scale                ? "float32"
                        : strcmp(o->target->name, "f16") == 0 ? "float16"
                                                              : "bfloat16";
    const bool drafter = o->config->backbone_hidden_size > 0;
    ek_buf_fmt(out, "{\"architectures\": [\"Gemma4%s\"], \"dtype\": \"%s\", ",
               drafter     ? "AssistantForCausalLM"
               : o->nested ? "ForConditionalGeneration"
                           : "ForCausalLM",
               dtype);
    if (drafter) add_drafter(out, o->config);
    else if (o->nested) ek_buf_str(out, "\"model_type\": \"gemma4\", \"text_config\": {");
    add_text(out, o->config);
    if (drafter || o->nested) ek_buf_fmt(out, "}, \"tie_word_embeddings\": %s", o->config->own_head ? "false" : "true");
    for (int i = 0; o->target->bits && i < 2; i++) { /* mlx-lm writes the member under both names */
        ek_buf_str(out, i ? ", \"quantization_config\": " : ", \"quantization\": ");
        add_quantization(out, l, o->target);
    }
    ek_buf_str(out, "}\n");
    return EK_OK;
}

void ek_meta_generation(ek_buf *out, const ek_config *c)
{
    ek_buf_fmt(out, "{\"bos_token_id\": %d, \"pad_token_id\": %d", c->bos, c->pad);
    add_ids(out, "eos_token_id", c->stop, c->n_stop);
    if (c->n_suppress) add_ids(out, "suppress_tokens", c->suppress, c->n_suppress);
    ek_buf_str(out, ", \"do_sample\": true");
    add_float(out, "temperature", c->temperature);
    add_float(out, "top_p", c->top_p);
    if (c->top_k) ek_buf_fmt(out, ", \"top_k\": %d", c->top_k);
    ek_buf_str(out, "}\n");
}

void ek_meta_tokenizer_config(ek_buf *out, const char *variant)
{
    ek_buf_str(out, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"add_bos_token\": false, ");
    if (variant) ek_buf_fmt(out, "\"chat_variant\": \"%s\", ", variant);
    ek_buf_str(out, "\"bos_token\": \"<bos>\", \"eos_token\": \"<eos>\", \"pad_token\": \"<pad>\", "
                    "\"unk_token\": \"<unk>\", \"mask_token\": \"<mask>\"}\n");
}
