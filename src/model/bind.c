/* Which tensors a Gemma 4 text model has, what they are called, and what else may lie beside
 * them. Names: transformers, modeling_gemma4.py; experts also as mlx-lm splits them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "model/weights.h"

typedef enum size {
    NONE,
    ONE,
    HIDDEN,
    VOCAB,
    VOCAB_P,
    QUERY,
    KEY,
    HEAD,
    INTER,
    P,
    ALL_P,
    HEAD_P,
    TAIL_P,
    EXPERTS,
    MOE,
    MOE_2
} size;

typedef enum form { MATRIX, VECTOR, EXPERT, TABLE } form;

enum { ALWAYS = 0, OWNS = 1, HAS_V = 2, HAS_MOE = 4, HAS_P = 8 };

typedef struct rule {
    const char *name;  /* of the module; of the whole tensor for vectors and fused experts */
    const char *split; /* the module as mlx-lm calls it, where that differs */
    form form;
    unsigned when;
    size total, from, n, k; /* the tensor has total x k; rows [from, from + n) of it are taken */
    size_t at;
} rule;

#define W(field) offsetof(ek_weights, field)
#define L(field) offsetof(ek_layer_weights, field)

static const rule model_rules[] = {
    {"embed_tokens", 0, MATRIX, ALWAYS, VOCAB, NONE, VOCAB, HIDDEN, W(embed)},
    {"norm.weight", 0, VECTOR, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, W(norm)},
    {"embed_tokens_per_layer", 0, TABLE, HAS_P, VOCAB_P, NONE, VOCAB_P, ALL_P, W(per_layer_embed)},
    {"per_layer_model_projection", 0, MATRIX, HAS_P, ALL_P, NONE, HEAD_P, HIDDEN, W(per_layer_head)},
    {"per_layer_model_projection", 0, MATRIX, HAS_P, ALL_P, HEAD_P, TAIL_P, HIDDEN, W(per_layer_tail)},
    {"per_layer_projection_norm.weight", 0, VECTOR, HAS_P, P, NONE, ONE, P, W(per_layer_norm)},
};

static const rule layer_rules[] = {
    {"input_layernorm.weight", 0, VECTOR, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(input_norm)},
    {"self_attn.q_proj", 0, MATRIX, ALWAYS, QUERY, NONE, QUERY, HIDDEN, L(q)},
    {"self_attn.k_proj", 0, MATRIX, OWNS, KEY, NONE, KEY, HIDDEN, L(k)},
    {"self_attn.v_proj", 0, MATRIX, OWNS | HAS_V, KEY, NONE, KEY, HIDDEN, L(v)},
    {"self_attn.o_proj", 0, MATRIX, ALWAYS, HIDDEN, NONE, HIDDEN, QUERY, L(o)},
    {"self_attn.q_norm.weight", 0, VECTOR, ALWAYS, HEAD, NONE, ONE, HEAD, L(q_norm)},
    {"self_attn.k_norm.weight", 0, VECTOR, OWNS, HEAD, NONE, ONE, HEAD, L(k_norm)},
    {"post_attention_layernorm.weight", 0, VECTOR, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(post_attention_norm)},
    {"pre_feedforward_layernorm.weight", 0, VECTOR, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(pre_mlp_norm)},
    {"mlp.gate_proj", 0, MATRIX, ALWAYS, INTER, NONE, INTER, HIDDEN, L(gate)},
    {"mlp.up_proj", 0, MATRIX, ALWAYS, INTER, NONE, INTER, HIDDEN, L(up)},
    {"mlp.down_proj", 0, MATRIX, ALWAYS, HIDDEN, NONE, HIDDEN, INTER, L(down)},
    {"post_feedforward_layernorm.weight", 0, VECTOR, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm)},
    {"post_feedforward_layernorm_1.weight", 0, VECTOR, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm_1)},
    {"pre_feedforward_layernorm_2.weight", 0, VECTOR, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(pre_mlp_norm_2)},
    {"post_feedforward_layernorm_2.weight", 0, VECTOR, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm_2)},
    {"router.proj", 0, MATRIX, HAS_MOE, EXPERTS, NONE, EXPERTS, HIDDEN, L(router)},
    {"router.scale", 0, VECTOR, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(router_scale)},
    {"router.per_expert_scale", 0, VECTOR, HAS_MOE, EXPERTS, NONE, ONE, EXPERTS, L(expert_scale)},
    {"experts.gate_up_proj", "experts.switch_glu.gate_proj", EXPERT, HAS_MOE, MOE_2, NONE, MOE, HIDDEN, L(expert_gate)},
    {"experts.gate_up_proj", "experts.switch_glu.up_proj", EXPERT, HAS_MOE, MOE_2, MOE, MOE, HIDDEN, L(expert_up)},
    {"experts.down_proj", "experts.switch_glu.down_proj", EXPERT, HAS_MOE, HIDDEN, NONE, HIDDEN, MOE, L(expert_down)},
    {"per_layer_input_gate", 0, MATRIX, HAS_P, P, NONE, P, HIDDEN, L(per_layer_gate)},
    {"per_layer_projection", 0, MATRIX, HAS_P, HIDDEN, NONE, HIDDEN, P, L(per_layer_proj)},
    {"post_per_layer_input_norm.weight", 0, VECTOR, HAS_P, HIDDEN, NONE, ONE, HIDDEN, L(post_per_layer_norm)},
    {"layer_scalar", 0, VECTOR, ALWAYS, ONE, NONE, ONE, ONE, L(scalar)},
};

/* layer < 0: of the whole model */
static int count(const ek_config *c, int layer, size s)
{
    const ek_layer_config *l = &c->layer[layer < 0 ? 0 : layer];
    switch (s) {
    case NONE: return 0;
    case ONE: return 1;
    case HIDDEN: return c->hidden_size;
    case VOCAB: return c->vocab_size;
    case VOCAB_P: return c->vocab_size_per_layer;
    case QUERY: return c->n_heads * l->head_dim;
    case KEY: return l->n_kv_heads * l->head_dim;
    case HEAD: return l->head_dim;
    case INTER: return l->intermediate_size;
    case P: return c->per_layer_size;
    case ALL_P: return c->per_layer_size * c->n_layers;
    case HEAD_P: return c->per_layer_size * ek_prompt_layers(c);
    case TAIL_P: return c->per_layer_size * (c->n_layers - ek_prompt_layers(c));
    case EXPERTS: return c->n_experts;
    case MOE: return c->moe_intermediate_size;
    case MOE_2: return 2 * c->moe_intermediate_size;
    }
    return 0;
}

static bool applies(const rule *r, const ek_config *c, int layer)
{
    if (r->when & HAS_MOE && !c->n_experts) return false;
    if (r->when & HAS_P && !c->per_layer_size) return false;
    if (r->when & OWNS && !c->layer[layer].owns_kv) return false;
    return !(r->when & HAS_V && c->layer[layer].k_eq_v);
}

typedef struct binder {
    ek_items *list;
    ek_weights *w;
    const ek_config *c;
    /* reading a checkpoint */
    const ek_checkpoint *from;
    const ek_quant *quant;
    const char *prefix;
    bool split_experts;
    bool *used;
    /* inventing */
    int bits;
} binder;

/* A tensor's values, as many matrices of rows x k as it holds. */
typedef struct source {
    ek_dtype dtype;
    int bits, group;
    const uint8_t *values, *scales, *biases;
    size_t value_row, scale_row; /* bytes */
} source;

static ek_item *new_item(ek_items *list)
{
    if ((list->n & (list->n - 1)) == 0) /* at every power of two the room doubles */
        list->item = ek_realloc(list->item, sizeof *list->item * (size_t)(list->n ? list->n * 2 : 1));
    list->item[list->n] = (ek_item){0};
    return &list->item[list->n++];
}

static const ek_tensor *take(binder *b, const char *bare, const char *suffix)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", b->prefix, bare, suffix);
    const ek_tensor *t = ek_checkpoint_find(b->from, name);
    if (t) b->used[t - ek_checkpoint_at(b->from, 0)] = true;
    return t;
}

static ek_err missing(const binder *b, const char *bare, const char *suffix)
{
    return ek_fail(EK_EFORMAT, "tensor %s%s%s is missing from %s", b->prefix, bare, suffix,
                   ek_checkpoint_at(b->from, 0)->file);
}

static void shape_text(char *out, size_t room, const ek_tensor *t)
{
    size_t used = (size_t)snprintf(out, room, "[");
    for (int d = 0; d < t->n_dims && used < room; d++)
        used += (size_t)snprintf(out + used, room - used, "%s%lld", d ? ", " : "", (long long)t->dim[d]);
    if (used < room) snprintf(out + used, room - used, "]");
}

/* outer 0: a tensor without that dimension; k 0: a vector of rows. */
static ek_err check_shape(const ek_tensor *t, int outer, int rows, int k)
{
    int64_t want[3], n = 0;
    char has[128], needs[64];
    if (outer) want[n++] = outer;
    want[n++] = rows;
    if (k) want[n++] = k;
    bool same = t->n_dims == n;
    for (int d = 0; same && d < n; d++) same = t->dim[d] == want[d];
    if (same) return EK_OK;
    ek_tensor w = {.n_dims = (int)n, .dim = {want[0], n > 1 ? want[1] : 0, n > 2 ? want[2] : 0}};
    shape_text(has, sizeof has, t);
    shape_text(needs, sizeof needs, &w);
    return ek_fail(EK_EFORMAT, "%s: tensor %s has shape %s, config.json needs %s", t->file, t->name, has, needs);
}

static bool is_float(ek_dtype t)
{
    return t == EK_F32 || t == EK_F16 || t == EK_BF16;
}

static ek_err read_float(source *s, const ek_tensor *t, int outer, int rows, int k)
{
    if (!is_float(t->dtype))
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, without .scales it must be F32, F16 or BF16", t->file,
                       t->name, ek_dtype_name(t->dtype));
    EK_TRY(check_shape(t, outer, rows, k));
    *s = (source){.dtype = t->dtype, .values = t->data, .value_row = (size_t)(k ? k : 1) * ek_dtype_size(t->dtype)};
    return EK_OK;
}

static ek_err read_affine(source *s, const ek_tensor *codes, const ek_tensor *scales, const ek_tensor *biases,
                          int outer, int rows, int k, int bits, int group)
{
    if (bits == 0 || group == 0)
        return ek_fail(EK_EFORMAT,
                       "%s: tensor %s has .scales, but config.json gives no quantization bits and "
                       "group_size for it",
                       codes->file, codes->name);
    if (codes->dtype != EK_U32)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, quantised weights are U32", codes->file, codes->name,
                       ek_dtype_name(codes->dtype));
    if (!is_float(scales->dtype) || biases->dtype != scales->dtype)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, its biases %s; both must be the same of F32, F16, BF16",
                       scales->file, scales->name, ek_dtype_name(scales->dtype), ek_dtype_name(biases->dtype));
    if (k % group || (int64_t)k * bits % 32)
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %d inputs cannot be stored in groups of %d at %d bits", codes->file,
                       codes->name, k, group, bits);
    EK_TRY(check_shape(codes, outer, rows, (int)((int64_t)k * bits / 32)));
    EK_TRY(check_shape(scales, outer, rows, k / group));
    EK_TRY(check_shape(biases, outer, rows, k / group));
    *s = (source){.dtype = scales->dtype,
                  .bits = bits,
                  .group = group,
                  .values = codes->data,
                  .scales = scales->data,
                  .biases = biases->data,
                  .value_row = (size_t)k * (size_t)bits / 8,
                  .scale_row = (size_t)(k / group) * ek_dtype_size(scales->dtype)};
    return EK_OK;
}

static ek_err read_module(binder *b, source *s, const char *bare, const char *suffix, int outer, int rows, int k)
{
    const ek_tensor *weight = take(b, bare, suffix), *scales = take(b, bare, ".scales"),
                    *biases = take(b, bare, ".biases");
    int bits, group;
    if (!weight) return missing(b, bare, suffix);
    if (!scales && biases) return missing(b, bare, ".scales");
    if (!scales) return read_float(s, weight, outer, rows, k);
    if (!biases) return missing(b, bare, ".biases");
    ek_quant_find(b->quant, bare, &bits, &group);
    return read_affine(s, weight, scales, biases, outer, rows, k, bits, group);
}

/* The widest group that divides k; none (floats) where 32 does not, as mlx-lm leaves them. */
static void invent_source(const binder *b, source *s, int k, bool vector)
{
    *s = (source){.dtype = EK_BF16};
    if (vector || !b->bits || k % 32) return;
    s->bits = b->bits;
    s->group = k % 64 ? 32 : 64;
}

static void add_item(binder *b, const source *s, const rule *r, const char *bare, int number, size_t skip_rows, int n,
                     int k, void *into)
{
    ek_item *it = new_item(b->list);
    *it = (ek_item){.n = n, .k = k, .bits = s->bits, .group = s->group, .dtype = s->dtype};
    if (s->values) it->values = s->values + skip_rows * s->value_row;
    if (s->scales) it->scales = s->scales + skip_rows * s->scale_row;
    if (s->biases) it->biases = s->biases + skip_rows * s->scale_row;
    if (r->form == EXPERT) snprintf(it->name, sizeof it->name, "%s.%d", bare, number);
    else snprintf(it->name, sizeof it->name, "%s%s", bare, r->from ? ".tail" : "");
    if (r->form == VECTOR) it->vector = into;
    else if (r->form == TABLE) it->table = into;
    else it->matrix = into;
}

static ek_err apply(binder *b, const rule *r, int layer, void *owner)
{
    const ek_config *c = b->c;
    bool split = r->form == EXPERT && b->split_experts;
    int n = count(c, layer, r->n), k = count(c, layer, r->k), outer = r->form == EXPERT ? c->n_experts : 0;
    int total = split ? n : count(c, layer, r->total), from = split ? 0 : count(c, layer, r->from);
    bool bare_name = r->form == VECTOR || (r->form == EXPERT && !split);
    char bare[128];
    const char *module = split ? r->split : r->name;
    source s = {0};
    if (!applies(r, c, layer)) return EK_OK;
    if (layer < 0) snprintf(bare, sizeof bare, "%s", module);
    else snprintf(bare, sizeof bare, "layers.%d.%s", layer, module);
    if (!b->from) invent_source(b, &s, k, r->form == VECTOR);
    else if (r->form == VECTOR) {
        const ek_tensor *t = take(b, bare, "");
        if (!t) return missing(b, bare, "");
        EK_TRY(read_float(&s, t, 0, total, 0));
    } else {
        EK_TRY(read_module(b, &s, bare, bare_name ? "" : ".weight", outer, total, k));
    }
    void *into = (char *)owner + r->at;
    if (r->form == EXPERT) into = *(ek_linear **)into;
    if (n == 0) return EK_OK;
    for (int e = 0; e < (outer ? outer : 1); e++)
        add_item(b, &s, r, bare, e, (size_t)e * (size_t)total + (size_t)from, n, k,
                 r->form == EXPERT ? (void *)((ek_linear *)into + e) : into);
    return EK_OK;
}

static void place_experts(ek_weights *w, const ek_config *c)
{
    size_t each = (size_t)c->n_experts;
    if (!each) return;
    w->experts = ek_alloc(sizeof *w->experts * each * 3 * (size_t)c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        ek_linear *first = w->experts + each * 3 * (size_t)i;
        w->layer[i].expert_gate = first;
        w->layer[i].expert_up = first + each;
        w->layer[i].expert_down = first + 2 * each;
    }
}

static ek_err apply_all(binder *b)
{
    place_experts(b->w, b->c);
    for (size_t i = 0; i < sizeof model_rules / sizeof *model_rules; i++) EK_TRY(apply(b, &model_rules[i], -1, b->w));
    for (int l = 0; l < b->c->n_layers; l++)
        for (size_t i = 0; i < sizeof layer_rules / sizeof *layer_rules; i++)
            EK_TRY(apply(b, &layer_rules[i], l, &b->w->layer[l]));
    return EK_OK;
}

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* Tensors that a text model may leave aside: the towers of other senses, a head equal to the
 * embedding, and the keys and values that early files still hold for layers that share. */
static bool ignorable(const char *name, const ek_config *c)
{
    static const char *const tower[] = {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                                        "vision_embedder."};
    int layer, at = 0;
    if (starts(name, "language_model.lm_head.") || starts(name, "lm_head.")) return true;
    const char *inner = starts(name, "model.") ? name + strlen("model.") : name;
    for (size_t i = 0; i < sizeof tower / sizeof *tower; i++)
        if (starts(inner, tower[i])) return true;
    const char *bare = ek_bare_name(name);
    if (sscanf(bare, "layers.%d.self_attn.%n", &layer, &at) != 1 || at == 0) return false;
    if (layer < c->first_shared || layer >= c->n_layers) return false;
    return starts(bare + at, "k_proj.") || starts(bare + at, "v_proj.") || starts(bare + at, "k_norm.");
}

static ek_err check_unused(const binder *b)
{
    for (int i = 0; i < ek_checkpoint_count(b->from); i++) {
        const ek_tensor *t = ek_checkpoint_at(b->from, i);
        if (!b->used[i] && !ignorable(t->name, b->c))
            return ek_fail(EK_EFORMAT, "%s: tensor %.200s is no part of the model that config.json describes", t->file,
                           t->name);
    }
    return EK_OK;
}

static ek_err find_prefix(binder *b)
{
    static const char *const prefix[] = {"model.language_model.", "language_model.model.", "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        b->prefix = prefix[i];
        if (take(b, "embed_tokens", ".weight")) return EK_OK;
    }
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) { /* how the others are called tells its whole name */
        b->prefix = prefix[i];
        if (take(b, "norm", ".weight")) break;
    }
    return missing(b, "embed_tokens", ".weight");
}

/* As mlx-lm names them; one of the three is enough, so that another that is missing is called by its name. */
static bool has_split_experts(binder *b)
{
    static const char *const part[] = {"gate_proj", "up_proj", "down_proj"};
    bool any = false;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char bare[64];
        snprintf(bare, sizeof bare, "layers.0.experts.switch_glu.%s", part[i]);
        any |= take(b, bare, ".weight") != NULL;
    }
    return any;
}

ek_err ek_items_bind(ek_items *list, ek_weights *w, const ek_config *c, const ek_quant *q, const ek_checkpoint *from)
{
    *list = (ek_items){0};
    if (ek_checkpoint_count(from) == 0) return ek_fail(EK_EFORMAT, "the checkpoint holds no tensors");
    binder b = {
        .list = list, .w = w, .c = c, .from = from, .quant = q, .used = ek_alloc((size_t)ek_checkpoint_count(from))};
    ek_err err = find_prefix(&b);
    b.split_experts = !err && has_split_experts(&b);
    if (!err) err = apply_all(&b);
    if (!err) err = check_unused(&b);
    free(b.used);
    if (err) ek_items_fini(list);
    return err;
}

void ek_items_invent(ek_items *list, ek_weights *w, const ek_config *c, int bits)
{
    *list = (ek_items){0};
    binder b = {.list = list, .w = w, .c = c, .bits = bits};
    ek_err err = apply_all(&b);
    EK_ASSERT(err == EK_OK);
}

void ek_items_fini(ek_items *list)
{
    free(list->item);
    *list = (ek_items){0};
}
