/* The weights of a Gemma 4 text model: name, role, shape and place in ek_weights. Names: transformers,
 * modeling_gemma4.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "model/weights/weights.h"

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
    BACKBONE,
    TWO_BACKBONES,
    CENTROIDS
} size;

typedef enum form { MATRIX, VECTOR, EXPERT, TABLE } form;

enum { ALWAYS = 0, OWNS = 1, HAS_V = 2, HAS_MOE = 4, HAS_P = 8, DRAFTS = 16, ORDERED = 32, OWN_HEAD = 64 };

typedef struct rule {
    const char *name;  /* for messages, and as the key of synthetic weights */
    const char *query; /* the name for the source; NULL: name */
    form form;
    ek_matrix_role role; /* of a matrix */
    unsigned when;
    size total, from, n, k; /* the weight has total x k; rows [from, from + n) of it are taken */
    size_t at;
} rule;

#define W(field) offsetof(ek_weights, field)
#define L(field) offsetof(ek_layer_weights, field)

static const rule model_rules[] = {
    {"embed_tokens", NULL, MATRIX, EK_ROLE_HEAD, ALWAYS, VOCAB, NONE, VOCAB, HIDDEN, W(embed)},
    {"lm_head", NULL, MATRIX, EK_ROLE_HEAD, OWN_HEAD, VOCAB, NONE, VOCAB, HIDDEN, W(head)},
    {"norm.weight", NULL, VECTOR, 0, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, W(norm)},
    {"embed_tokens_per_layer", NULL, TABLE, 0, HAS_P, VOCAB_P, NONE, VOCAB_P, ALL_P, W(per_layer_embed)},
    {"per_layer_model_projection", NULL, MATRIX, EK_ROLE_PER_LAYER_MODEL_PROJECTION, HAS_P, ALL_P, NONE, HEAD_P, HIDDEN,
     W(per_layer_head)},
    {"per_layer_model_projection", NULL, MATRIX, EK_ROLE_PER_LAYER_MODEL_PROJECTION, HAS_P, ALL_P, HEAD_P, TAIL_P,
     HIDDEN, W(per_layer_tail)},
    {"per_layer_projection_norm.weight", NULL, VECTOR, 0, HAS_P, P, NONE, ONE, P, W(per_layer_norm)},
    {"pre_projection", NULL, MATRIX, EK_ROLE_HEAD, DRAFTS, HIDDEN, NONE, HIDDEN, TWO_BACKBONES, W(pre_projection)},
    {"post_projection", NULL, MATRIX, EK_ROLE_HEAD, DRAFTS, BACKBONE, NONE, BACKBONE, HIDDEN, W(post_projection)},
    {"masked_embedding.centroids", NULL, MATRIX, EK_ROLE_HEAD, ORDERED, CENTROIDS, NONE, CENTROIDS, HIDDEN,
     W(centroids)},
};

static const rule layer_rules[] = {
    {"input_layernorm.weight", NULL, VECTOR, 0, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(input_norm)},
    {"self_attn.q_proj", NULL, MATRIX, EK_ROLE_Q, ALWAYS, QUERY, NONE, QUERY, HIDDEN, L(q)},
    {"self_attn.k_proj", NULL, MATRIX, EK_ROLE_K, OWNS, KEY, NONE, KEY, HIDDEN, L(k)},
    {"self_attn.v_proj", NULL, MATRIX, EK_ROLE_V, OWNS | HAS_V, KEY, NONE, KEY, HIDDEN, L(v)},
    {"self_attn.o_proj", NULL, MATRIX, EK_ROLE_O, ALWAYS, HIDDEN, NONE, HIDDEN, QUERY, L(o)},
    {"self_attn.q_norm.weight", NULL, VECTOR, 0, ALWAYS, HEAD, NONE, ONE, HEAD, L(q_norm)},
    {"self_attn.k_norm.weight", NULL, VECTOR, 0, OWNS, HEAD, NONE, ONE, HEAD, L(k_norm)},
    {"post_attention_layernorm.weight", NULL, VECTOR, 0, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(post_attention_norm)},
    {"pre_feedforward_layernorm.weight", NULL, VECTOR, 0, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(pre_mlp_norm)},
    {"mlp.gate_proj", NULL, MATRIX, EK_ROLE_GATE, ALWAYS, INTER, NONE, INTER, HIDDEN, L(gate)},
    {"mlp.up_proj", NULL, MATRIX, EK_ROLE_UP, ALWAYS, INTER, NONE, INTER, HIDDEN, L(up)},
    {"mlp.down_proj", NULL, MATRIX, EK_ROLE_DOWN, ALWAYS, HIDDEN, NONE, HIDDEN, INTER, L(down)},
    {"post_feedforward_layernorm.weight", NULL, VECTOR, 0, ALWAYS, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm)},
    {"post_feedforward_layernorm_1.weight", NULL, VECTOR, 0, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm_1)},
    {"pre_feedforward_layernorm_2.weight", NULL, VECTOR, 0, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(pre_mlp_norm_2)},
    {"post_feedforward_layernorm_2.weight", NULL, VECTOR, 0, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(post_mlp_norm_2)},
    {"router.proj", NULL, MATRIX, EK_ROLE_ROUTER, HAS_MOE, EXPERTS, NONE, EXPERTS, HIDDEN, L(router)},
    {"router.scale", NULL, VECTOR, 0, HAS_MOE, HIDDEN, NONE, ONE, HIDDEN, L(router_scale)},
    {"router.per_expert_scale", NULL, VECTOR, 0, HAS_MOE, EXPERTS, NONE, ONE, EXPERTS, L(expert_scale)},
    {"experts.gate_up_proj", "experts.gate_proj", EXPERT, EK_ROLE_EXPERT_GATE, HAS_MOE, MOE, NONE, MOE, HIDDEN,
     L(expert_gate)},
    {"experts.gate_up_proj", "experts.up_proj", EXPERT, EK_ROLE_EXPERT_UP, HAS_MOE, MOE, NONE, MOE, HIDDEN,
     L(expert_up)},
    {"experts.down_proj", "experts.down_proj", EXPERT, EK_ROLE_EXPERT_DOWN, HAS_MOE, HIDDEN, NONE, HIDDEN, MOE,
     L(expert_down)},
    {"per_layer_input_gate", NULL, MATRIX, EK_ROLE_PER_LAYER_GATE, HAS_P, P, NONE, P, HIDDEN, L(per_layer_gate)},
    {"per_layer_projection", NULL, MATRIX, EK_ROLE_PER_LAYER_PROJECTION, HAS_P, HIDDEN, NONE, HIDDEN, P,
     L(per_layer_proj)},
    {"post_per_layer_input_norm.weight", NULL, VECTOR, 0, HAS_P, HIDDEN, NONE, ONE, HIDDEN, L(post_per_layer_norm)},
    {"layer_scalar", NULL, VECTOR, 0, ALWAYS, ONE, NONE, ONE, ONE, L(scalar)},
};

/* layer < 0: for the whole model */
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
    case BACKBONE: return c->backbone_hidden_size;
    case TWO_BACKBONES: return 2 * c->backbone_hidden_size;
    case CENTROIDS: return c->n_centroids;
    }
    return 0;
}

static bool applies(const rule *r, const ek_config *c, int layer)
{
    if (r->when & HAS_MOE && !c->n_experts) return false;
    if (r->when & HAS_P && !c->per_layer_size) return false;
    if (r->when & DRAFTS && !c->backbone_hidden_size) return false;
    if (r->when & ORDERED && !c->n_centroids) return false;
    if (r->when & OWN_HEAD && !c->own_head) return false;
    if (layer < 0) return true;
    if (r->when & OWNS && !c->layer[layer].owns_kv) return false;
    return !(r->when & HAS_V && c->layer[layer].k_eq_v);
}

typedef struct binder {
    ek_items *list;
    ek_weights *w;
    const ek_config *c;
    ek_source *from; /* NULL: synthetic */
    int bits;        /* of synthetic weights */
} binder;

static ek_item *new_item(ek_items *list)
{
    if ((list->n & (list->n - 1)) == 0) /* the room doubles at every power of two */
        list->item = ek_realloc(list->item, sizeof *list->item * (size_t)(list->n ? list->n * 2 : 1));
    list->item[list->n] = (ek_item){0};
    return &list->item[list->n++];
}

/* For synthetic weights: the widest group that divides k; floats if 32 does not divide it, as in mlx-lm. */
static const ek_weight_type *invented_type(const binder *b, const rule *r, int k)
{
    const ek_weight_type *t = ek_weight_type_float(EK_BF16);
    if (r->form == VECTOR || !b->bits || k % 32) return t;
    ek_err err = ek_weight_type_affine(&t, b->bits, k % 64 ? 32 : 64, EK_BF16, true);
    EK_ASSERT(err == EK_OK);
    return t;
}

static ek_err find(const binder *b, const rule *r, int layer, int expert, int n, int k, ek_weight_data *out)
{
    char name[128];
    const char *module = r->query ? r->query : r->name;
    *out = (ek_weight_data){.type = invented_type(b, r, k), .n = n, .k = k};
    if (!b->from) return EK_OK;
    if (layer < 0) snprintf(name, sizeof name, "%s", module);
    else snprintf(name, sizeof name, "layers.%d.%s", layer, module);
    ek_weight_query q = {.name = name, .n = n, .k = k, .shape = EK_WEIGHT_MATRIX};
    if (r->form == VECTOR) q.shape = EK_WEIGHT_VECTOR;
    if (r->form == EXPERT) q.shape = EK_WEIGHT_EXPERT, q.expert = expert, q.n_experts = b->c->n_experts;
    return ek_source_weight(b->from, &q, out);
}

/* tail: rows after those of the previous item, of the same weight. */
static void add_item(binder *b, const ek_weight_data *data, const rule *r, int layer, int expert, bool tail, void *into)
{
    ek_item *it = new_item(b->list);
    char in_layer[32] = "", number[16] = "";
    if (layer >= 0) snprintf(in_layer, sizeof in_layer, "layers.%d.", layer);
    if (r->form == EXPERT) snprintf(number, sizeof number, ".%d", expert);
    snprintf(it->name, sizeof it->name, "%s%s%s%s", in_layer, r->name, number, tail ? ".tail" : "");
    it->layer = layer;
    it->role = r->role;
    it->data = *data;
    if (r->form == VECTOR) it->vector = into;
    else if (r->form == TABLE) it->table = into;
    else it->matrix = into;
}

static ek_err apply(binder *b, const rule *r, int layer, void *owner)
{
    const ek_config *c = b->c;
    if (!applies(r, c, layer)) return EK_OK;
    int n = count(c, layer, r->n), k = count(c, layer, r->k), copies = r->form == EXPERT ? c->n_experts : 1;
    int total = r->form == VECTOR ? 1 : count(c, layer, r->total), from = count(c, layer, r->from);
    void *into = (char *)owner + r->at;
    if (r->form == EXPERT) into = *(ek_linear **)into;
    for (int e = 0; e < copies; e++) {
        ek_weight_data data;
        EK_TRY(find(b, r, layer, e, total, k, &data));
        if (n == 0) continue;
        data = ek_weight_rows(&data, from, n);
        add_item(b, &data, r, layer, e, from > 0, r->form == EXPERT ? (void *)((ek_linear *)into + e) : into);
    }
    return EK_OK;
}

static uint64_t count_rules(const ek_config *c, const rule *rules, size_t n_rules, int layer)
{
    uint64_t sum = 0;
    for (const rule *r = rules; r < rules + n_rules; r++)
        if (applies(r, c, layer))
            sum += (uint64_t)count(c, layer, r->n) * (uint64_t)count(c, layer, r->k) *
                   (r->form == EXPERT ? (uint64_t)c->n_experts : 1);
    return sum;
}

uint64_t ek_weights_count(const ek_config *config)
{
    uint64_t sum = count_rules(config, model_rules, sizeof model_rules / sizeof *model_rules, -1);
    for (int i = 0; i < config->n_layers; i++)
        sum += count_rules(config, layer_rules, sizeof layer_rules / sizeof *layer_rules, i);
    return sum;
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

/* Whether both have one type, and their rows lie next to each other in their planes: equal bytes are then equal
 * values. */
static bool lie_alike(const ek_weight_data *a, const ek_weight_data *b)
{
    if (a->type != b->type || a->across || b->across || a->gain != b->gain) return false;
    for (int p = 0; p < EK_WEIGHT_PLANES; p++)
        if (!a->plane[p] != !a->type->block_bytes[p] || !b->plane[p] != !b->type->block_bytes[p]) return false;
    return true;
}

static bool same_bytes(const ek_weight_data *a, const ek_weight_data *b, int row)
{
    for (int p = 0; p < EK_WEIGHT_PLANES && a->plane[p]; p++)
        if (memcmp(ek_weight_plane_row(a, p, row), ek_weight_plane_row(b, p, row),
                   (size_t)(a->k / a->type->block) * a->type->block_bytes[p]))
            return false;
    return true;
}

/* Whether two matrices of one shape have equal values, in whatever form each is stored. */
static bool same_values(const ek_weight_data *a, const ek_weight_data *b)
{
    enum { RUN = 1024 };
    float x[RUN], y[RUN];
    const bool alike = lie_alike(a, b);
    for (int row = 0; row < a->n; row++) {
        if (alike && same_bytes(a, b, row)) continue;
        for (int at = 0, n; at < a->k; at += n) {
            n = a->k - at < RUN ? a->k - at : RUN;
            ek_weight_row(a, row, at, n, x);
            ek_weight_row(b, row, at, n, y);
            for (int i = 0; i < n; i++)
                if (x[i] != y[i]) return false;
        }
    }
    return true;
}

/* A file may hold the head a second time, or a head that the configuration does not mention. As in transformers the
 * weights decide, because fine-tuning tools write such files and the embedding would give other tokens. */
static ek_err find_head(const binder *b, ek_config *c)
{
    const rule *embed = &model_rules[0], *head = &model_rules[1];
    ek_weight_data of[2];
    bool there;
    EK_TRY(ek_source_has_head(b->from, &there));
    if (!there && !c->own_head) return EK_OK;
    if (!there)
        return ek_fail(EK_EFORMAT, "%s: config.json says tie_word_embeddings false, and there is no lm_head",
                       b->from->path);
    EK_TRY(find(b, embed, -1, 0, c->vocab_size, c->hidden_size, &of[0]));
    EK_TRY(find(b, head, -1, 0, c->vocab_size, c->hidden_size, &of[1]));
    c->own_head = !same_values(&of[0], &of[1]);
    return EK_OK;
}

ek_err ek_items_bind(ek_items *list, ek_weights *w, ek_config *c, ek_source *from)
{
    *list = (ek_items){0};
    binder b = {.list = list, .w = w, .c = c, .from = from};
    ek_err err = find_head(&b, c);
    if (!err) err = apply_all(&b);
    if (!err) err = ek_source_finish(from, c);
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
