/* The vision tower's configuration and weights. */
#include "model/tower/tower_vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"

enum { MAX_POSITIONS = 1 << 20 };

/* ------------------------------------------------------------------ configuration */

static ek_err check_act(const ek_settings *f)
{
    const char *act;
    EK_TRY(ek_setting_may_text(&act, f, "hidden_activation"));
    if (!act || strcmp(act, "gelu_pytorch_tanh") == 0) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%s: %shidden_activation is %.60s; gelu_pytorch_tanh can be run", f->file, f->in,
                   act);
}

static ek_err read_theta(ek_vision *v, const ek_settings *f)
{
    ek_settings rope = {.file = f->file, .in = "vision_config.rope_parameters.", .other = f->object};
    EK_TRY(ek_setting_may_object(&rope.object, f, "rope_parameters"));
    return ek_setting_may_number(&v->theta, &rope, "rope_theta", 100, 1, 1e9);
}

static ek_err check_sizes(const ek_vision *v, const ek_settings *f)
{
    if (v->patching.pool == 1)
        return ek_fail(EK_EUNSUPPORTED, "%s: %spooling_kernel_size is 1, for which transformers keeps rows of padding",
                       f->file, f->in);
    if (v->heads % v->kv_heads)
        return ek_fail(EK_EFORMAT, "%s: %s%d heads cannot share %d key-value heads evenly", f->file, f->in, v->heads,
                       v->kv_heads);
    if (v->head_dim % 4)
        return ek_fail(EK_EFORMAT, "%s: %shead_dim is %d, must be a multiple of 4: half is rotated by each axis",
                       f->file, f->in, v->head_dim);
    if ((int64_t)v->heads * v->head_dim > EK_MAX_WIDTH)
        return ek_fail(EK_EFORMAT, "%s: %s%d heads of %d are more than %d values", f->file, f->in, v->heads,
                       v->head_dim, EK_MAX_WIDTH);
    return EK_OK;
}

static ek_err read_config(ek_vision *v, bool *standardise, const ek_settings *f)
{
    bool bias;
    EK_TRY(check_act(f));
    EK_TRY(ek_setting_need_int(&v->width, f, "hidden_size", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_need_int(&v->n_layers, f, "num_hidden_layers", 1, EK_MAX_LAYERS));
    EK_TRY(ek_setting_need_int(&v->heads, f, "num_attention_heads", 1, 4096));
    EK_TRY(ek_setting_may_int(&v->kv_heads, f, "num_key_value_heads", v->heads, 1, 4096));
    EK_TRY(ek_setting_may_int(&v->head_dim, f, "head_dim", v->width / v->heads, 4, EK_MAX_HEAD_DIM));
    EK_TRY(ek_setting_need_int(&v->inner, f, "intermediate_size", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_may_int(&v->n_positions, f, "position_embedding_size", 10240, 1, MAX_POSITIONS));
    EK_TRY(ek_setting_may_bool(&v->clips, f, "use_clipped_linears", false));
    EK_TRY(ek_setting_may_bool(standardise, f, "standardize", false));
    EK_TRY(ek_setting_may_bool(&bias, f, "attention_bias", false));
    EK_TRY(ek_setting_may_float(&v->eps, f, "rms_norm_eps", 1e-6, 0, 1));
    EK_TRY(read_theta(v, f));
    if (bias) return ek_fail(EK_EUNSUPPORTED, "%s: %sattention_bias is true; false can be run", f->file, f->in);
    return check_sizes(v, f);
}

/* ------------------------------------------------------------------ weights */

static ek_err bind_layer(ek_vision *v, ek_vision_layer *l, int i, ek_tower_binder *b)
{
    const int q = v->heads * v->head_dim, kv = v->kv_heads * v->head_dim;
    const struct {
        const char *name;
        int n, k;
        ek_clipped *to;
    } matrix[] = {{"self_attn.q_proj", q, v->width, &l->q},        {"self_attn.k_proj", kv, v->width, &l->k},
                  {"self_attn.v_proj", kv, v->width, &l->v},       {"self_attn.o_proj", v->width, q, &l->o},
                  {"mlp.gate_proj", v->inner, v->width, &l->gate}, {"mlp.up_proj", v->inner, v->width, &l->up},
                  {"mlp.down_proj", v->width, v->inner, &l->down}};
    const struct {
        const char *name;
        int n;
        float **to;
    } vector[] = {{"input_layernorm", v->width, &l->input_norm},
                  {"self_attn.q_norm", v->head_dim, &l->q_norm},
                  {"self_attn.k_norm", v->head_dim, &l->k_norm},
                  {"post_attention_layernorm", v->width, &l->post_attention_norm},
                  {"pre_feedforward_layernorm", v->width, &l->pre_mlp_norm},
                  {"post_feedforward_layernorm", v->width, &l->post_mlp_norm}};
    char name[128];
    for (size_t m = 0; m < sizeof matrix / sizeof *matrix; m++) {
        snprintf(name, sizeof name, "vision_tower.encoder.layers.%d.%s", i, matrix[m].name);
        EK_TRY(ek_tower_clipped(b, name, matrix[m].n, matrix[m].k, v->clips, matrix[m].to));
    }
    for (size_t m = 0; m < sizeof vector / sizeof *vector; m++) {
        snprintf(name, sizeof name, "vision_tower.encoder.layers.%d.%s.weight", i, vector[m].name);
        EK_TRY(ek_tower_vector(b, name, vector[m].n, vector[m].to));
    }
    return EK_OK;
}

static ek_err bind(ek_vision *v, int hidden, bool standardise, ek_tower_binder *b)
{
    const int64_t positions[] = {2, v->n_positions, v->width};
    EK_TRY(ek_tower_matrix(b, "vision_tower.patch_embedder.input_proj", v->width,
                           3 * v->patching.side * v->patching.side, &v->input));
    EK_TRY(ek_tower_table(b, "vision_tower.patch_embedder.position_embedding_table", 3, positions, &v->positions));
    for (int i = 0; i < v->n_layers; i++) EK_TRY(bind_layer(v, &v->layer[i], i, b));
    if (standardise) {
        EK_TRY(ek_tower_vector(b, "vision_tower.std_bias", v->width, &v->std_bias));
        EK_TRY(ek_tower_vector(b, "vision_tower.std_scale", v->width, &v->std_scale));
    }
    return ek_tower_matrix(b, "embed_vision.embedding_projection", hidden, v->width, &v->projection);
}

/* ------------------------------------------------------------------ the part */

static uint64_t hash_clip(uint64_t h, const ek_clipped *w)
{
    return ek_hash64(h, &w->clip, sizeof w->clip);
}

static uint64_t hash(const ek_tower_part *p, uint64_t h)
{
    const ek_vision *v = (const ek_vision *)p;
    const double number[] = {v->patching.side, v->patching.pool, v->width, v->heads, v->kv_heads,
                             v->head_dim,      v->inner,         v->eps,   v->theta, p->kernels->integers_from};
    h = ek_hash64(h, number, sizeof number);
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *l = &v->layer[i];
        h = hash_clip(hash_clip(hash_clip(hash_clip(h, &l->q), &l->k), &l->v), &l->o);
        h = hash_clip(hash_clip(hash_clip(h, &l->gate), &l->up), &l->down);
    }
    return h;
}

static void close_vision(ek_tower_part *p)
{
    ek_vision *v = (ek_vision *)p;
    free(v->layer);
    free(v->freq);
    free(v);
}

static const ek_tower_part_ops part_ops = {.hash = hash, .close = close_vision};

const ek_vision *ek_vision_of(const ek_tower_part *p)
{
    return p && p->ops == &part_ops ? (const ek_vision *)p : NULL;
}

ek_err ek_vision_open(ek_tower_part **out, const ek_towers_info *info, ek_tower_binder *b, const ek_settings *config)
{
    ek_vision *v = ek_alloc(sizeof *v);
    bool standardise = false;
    v->part.ops = &part_ops;
    v->patching = info->patching;
    ek_err err = read_config(v, &standardise, config);
    if (!err) {
        v->layer = ek_alloc(sizeof *v->layer * (size_t)v->n_layers);
        v->freq = ek_alloc(sizeof *v->freq * (size_t)v->head_dim);
        ek_rope_frequencies(v->freq, v->head_dim / 2, v->theta, 1, 1);
        err = bind(v, info->hidden, standardise, b);
    }
    if (err) close_vision(&v->part);
    else *out = &v->part;
    return err;
}
