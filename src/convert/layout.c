#include "convert/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/source/gguf_names.h"
#include "model/source/source.h"

/* --- names of weights in files (transformers, modeling_gemma4.py; mlx-lm, gemma4_text.py; GGUF:
 * model/source/gguf_names.h) --- */

/* An item's name without the suffix for its part of a tensor: ".tail", or an expert's number. */
static void base_name(char *out, size_t room, const ek_item *it)
{
    snprintf(out, room, "%s", it->name);
    char *dot = strrchr(out, '.');
    if (dot && (strcmp(dot, ".tail") == 0 || (dot[1] >= '0' && dot[1] <= '9'))) *dot = 0;
}

/* mlx-lm splits the experts' projections and names them one level deeper. */
static void mlx_expert(char *out, size_t room, const char *name, const ek_item *it)
{
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    int n = (int)(strrchr(name, '.') - name);
    snprintf(out, room, "%.*s.switch_glu.%s", n, name, proj[it->role - EK_ROLE_EXPERT_GATE]);
}

/* The name of an item's tensor (of which it may be the first part): in GGUF the whole name of llama.cpp's converter; in
 * safetensors without .weight for a matrix. EUNSUPPORTED if GGUF has no name for it. */
static ek_err name_of(char *out, size_t room, ek_convert_form form, bool nested, const ek_item *it)
{
    char name[144], inner[160];
    base_name(name, sizeof name, it);
    if (form == EK_FORM_GGUF)
        return ek_gguf_weight_name(name, out, room) ? EK_OK : ek_fail(EK_EUNSUPPORTED, "%s has no name in GGUF", name);
    bool expert = it->matrix && it->role >= EK_ROLE_EXPERT_GATE && it->role <= EK_ROLE_EXPERT_DOWN;
    if (form == EK_FORM_MLX && expert) mlx_expert(inner, sizeof inner, name, it);
    else snprintf(inner, sizeof inner, "%s", name);
    if (strcmp(name, "lm_head") == 0) { /* the head stands beside the model; mlx-lm has it in its language_model */
        snprintf(out, room, "%s%s", nested && form == EK_FORM_MLX ? "language_model." : "", name);
        return EK_OK;
    }
    if (ek_source_stands_beside(name)) {
        snprintf(out, room, "%s", name);
        return EK_OK;
    }
    const char *prefix = !nested ? "model." : form == EK_FORM_MLX ? "language_model.model." : "model.language_model.";
    snprintf(out, room, "%s%s", prefix, inner);
    return EK_OK;
}

/* --- tensors and their formats --- */

#define ORDERING "masked_embedding.token_ordering"

/* ------------------------------------------------------------------ formats */

static bool wants_six(const ek_item *it)
{
    return it->table || it->role == EK_ROLE_HEAD || it->role == EK_ROLE_K || it->role == EK_ROLE_V;
}

static bool wants_eight(const ek_item *it)
{
    return !it->table && (it->role == EK_ROLE_PER_LAYER_MODEL_PROJECTION || it->role == EK_ROLE_PER_LAYER_GATE ||
                          it->role == EK_ROLE_PER_LAYER_PROJECTION);
}

/* The bits of a weight with its scales, in 64ths. Only for comparisons. */
static int bits_of(const ek_target *t)
{
    int bytes = 0;
    for (int p = 0; p < EK_TARGET_PLANES; p++) bytes += t->bytes[p];
    return bytes * 8 * 64 / t->block;
}

static const ek_target *at_least(const ek_target *t, const char *name)
{
    const ek_target *floor = ek_target_find(name);
    return floor && bits_of(floor) > bits_of(t) ? floor : t;
}

/* The first format with blocks of 32 that has at least as many bits. */
static const ek_target *fall_back(const ek_target *t, int k)
{
    static const char *const by_bits[] = {"iq4_nl", "q5_0", "q5_1", "q8_0"};
    if (k % t->block == 0) return t;
    for (size_t i = 0; i < sizeof by_bits / sizeof *by_bits && k % 32 == 0; i++) {
        const ek_target *f = ek_target_find(by_bits[i]);
        if (f && bits_of(f) > bits_of(t)) return f;
    }
    return ek_target_find(k % 32 == 0 ? "q8_0" : "bf16");
}

static const ek_target *gguf_target(const ek_target *t, const ek_item *it)
{
    if (it->vector || it->role == EK_ROLE_ROUTER) return ek_target_find("f32");
    if (t->block == 1) return t;
    if (wants_eight(it)) t = at_least(t, "q8_0");
    else if (wants_six(it)) t = at_least(t, it->data.k % 256 ? "q8_0" : "q6_k");
    return fall_back(t, it->data.k);
}

static const ek_target *affine(int bits, int k)
{
    char name[16];
    if (k % 32) return ek_target_find("bf16");
    snprintf(name, sizeof name, "q%d.%d", bits, k % 64 ? 32 : 64);
    return ek_target_find(name);
}

static const ek_target *mlx_target(const ek_target *t, const ek_item *it)
{
    int bits = t->bits, k = it->data.k;
    if (it->role == EK_ROLE_ROUTER || wants_eight(it)) bits = 8;
    else if (wants_six(it) && bits < 6) bits = 6;
    return affine(bits, k);
}

/* BF16 if it holds every value of the vector, else F32. */
static const ek_target *vector_target(const ek_item *it, uint64_t seed)
{
    float *x = ek_alloc(sizeof *x * (size_t)it->data.k);
    if (it->data.plane[0]) ek_weight_row(&it->data, 0, 0, it->data.k, x);
    else ek_invent_floats(x, it, seed, 0, it->data.k);
    bool exact = true;
    for (int i = 0; i < it->data.k; i++) exact &= (ek_f32_bits(x[i]) & 0xffff) == 0;
    free(x);
    return ek_target_find(exact ? "bf16" : "f32");
}

static const ek_target *target_of(const ek_layout_opts *o, const ek_item *it)
{
    if (strcmp(it->name, ORDERING) == 0) return ek_target_find(o->form == EK_FORM_GGUF ? "i32" : "i64");
    if (o->form == EK_FORM_GGUF) return gguf_target(o->target, it);
    if (it->vector) return o->target->block == 1 && o->target->bytes[0] == 4 ? o->target : vector_target(it, o->seed);
    if (o->form == EK_FORM_HF) return o->target;
    if (o->invented) return ek_target_find(it->data.type->name);
    return mlx_target(o->target, it);
}

/* ------------------------------------------------------------------ tensors */

static ek_out *new_out(ek_layout *l, const ek_layout_opts *o, const ek_item *first)
{
    ek_out *t = &l->out[l->n++];
    *t = (ek_out){.target = target_of(o, first), .k = first->data.k, .part = l->parts};
    return t;
}

static void add_part(ek_layout *l, ek_out *t, const ek_item *it)
{
    t->part[t->n_parts++] = it;
    t->rows += it->data.n;
    l->parts = t->part + t->n_parts;
}

static bool is_tail(const ek_item *it)
{
    const char *dot = strrchr(it->name, '.');
    return dot && strcmp(dot, ".tail") == 0;
}

static bool is_expert(const ek_item *it)
{
    return it->matrix && it->role >= EK_ROLE_EXPERT_GATE && it->role <= EK_ROLE_EXPERT_DOWN;
}

static int dims_of(int64_t dim[3], const ek_out *t, const ek_item *it, int n_experts, int64_t k)
{
    int n = 0;
    if (is_expert(it)) dim[n++] = n_experts;
    if (!it->vector) dim[n++] = is_expert(it) ? t->rows / n_experts : t->rows;
    dim[n++] = k;
    return n;
}

/* Sets the names, shapes and sizes of the planes; t has all its parts. */
static ek_err name_planes(ek_out *t, const ek_layout_opts *o, const ek_item *it, int n_experts)
{
    static const char *const suffix[] = {".weight", ".scales", ".biases"};
    char name[192];
    EK_TRY(name_of(name, sizeof name, o->form, o->nested, it));
    bool quantised = t->target->bits > 0;
    t->n_planes = quantised ? EK_TARGET_PLANES : 1;
    for (int p = 0; p < t->n_planes; p++) {
        ek_out_plane *plane = &t->plane[p];
        size_t bytes = ek_target_row_bytes(t->target, p, t->k);
        plane->row_bytes = bytes;
        plane->dtype = t->target->dtype[p];
        bool whole_name = o->form == EK_FORM_GGUF || it->vector || (o->form == EK_FORM_HF && is_expert(it));
        snprintf(plane->name, sizeof plane->name, "%s%s", name, whole_name ? "" : suffix[p]);
        int64_t k = !quantised ? t->k : p == 0 ? (int64_t)bytes / 4 : (int64_t)bytes / 2;
        t->n_dims = dims_of(plane->dim, t, it, n_experts, k);
    }
    return EK_OK;
}

/* GGUF and Hugging Face fuse gate and up: for each expert, the rows of gate and then those of up. */
static int add_experts(ek_layout *l, const ek_layout_opts *o, const ek_item *it, int n_experts, ek_err *err)
{
    bool fused = o->form != EK_FORM_MLX && it->role == EK_ROLE_EXPERT_GATE;
    ek_out *t = new_out(l, o, it);
    for (int e = 0; e < n_experts; e++) {
        add_part(l, t, it + e);
        if (fused) add_part(l, t, it + n_experts + e);
    }
    *err = name_planes(t, o, it, n_experts);
    return fused ? 2 * n_experts : n_experts;
}

static int add_plain(ek_layout *l, const ek_layout_opts *o, const ek_item *it, const ek_item *end, ek_err *err)
{
    ek_out *t = new_out(l, o, it);
    int taken = 1;
    add_part(l, t, it);
    if (it + 1 < end && is_tail(it + 1)) add_part(l, t, it + 1), taken++;
    *err = name_planes(t, o, it, 0);
    return taken;
}

static ek_err add_vector(ek_layout *l, const ek_layout_opts *o, const ek_item *it)
{
    ek_out *t = new_out(l, o, it);
    add_part(l, t, it);
    return name_planes(t, o, it, 0);
}

/* Full layers rotate only some pairs of a head. For the other pairs, the angles are divided by a huge number. */
static ek_err add_rope(ek_layout *l, const ek_layout_opts *o, const ek_config *c)
{
    const ek_layer_config *full = NULL;
    for (int i = 0; i < c->n_layers && !full; i++)
        if (c->layer[i].kind == EK_FULL) full = &c->layer[i];
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (c->rope_factor[k] != 0 && c->rope_factor[k] != 1)
            return ek_fail(EK_EUNSUPPORTED, "rope_parameters has a factor of %.9g, a GGUF file of Gemma 4 has none",
                           c->rope_factor[k]);
    if (!full || (c->backbone_hidden_size && c->rope_partial[EK_FULL] == 0.25)) return EK_OK; /* a drafter's default */
    int pairs = full->head_dim / 2, turned = (int)(c->rope_partial[EK_FULL] * full->head_dim / 2);
    l->rope_values = ek_alloc(sizeof(float) * (size_t)pairs);
    for (int i = 0; i < pairs; i++) l->rope_values[i] = i < turned ? 1.0f : 1e30f;
    l->rope = (ek_item){.name = "rope_freqs.weight", .vector = &l->rope_values};
    l->rope.data = (ek_weight_data){
        .type = ek_weight_type_float(EK_F32), .n = 1, .k = pairs, .plane = {(const uint8_t *)l->rope_values}};
    return add_vector(l, o, &l->rope);
}

/* The first tensor of all, with eight bytes per number, so that the numbers are aligned. */
static ek_err add_order(ek_layout *l, const ek_layout_opts *o, int n)
{
    if (!o->order) return EK_OK;
    l->order_values = ek_alloc(sizeof(float) * (size_t)n);
    for (int i = 0; i < n; i++) l->order_values[i] = (float)o->order[i];
    l->order = (ek_item){.name = ORDERING, .vector = &l->order_values};
    l->order.data = (ek_weight_data){
        .type = ek_weight_type_float(EK_F32), .n = 1, .k = n, .plane = {(const uint8_t *)l->order_values}};
    return add_vector(l, o, &l->order);
}

ek_err ek_layout_make(ek_layout *l, const ek_layout_opts *o, const ek_config *c, const ek_items *items)
{
    *l = (ek_layout){.form = o->form};
    l->out = ek_alloc(sizeof *l->out * (size_t)(items->n + 2));
    l->parts = ek_alloc(sizeof *l->parts * (size_t)(items->n + 2));
    const ek_item **first_part = l->parts, *it = items->item, *end = it + items->n;
    ek_err err = add_order(l, o, c->vocab_size);
    while (it < end && !err)
        it += is_expert(it) ? add_experts(l, o, it, c->n_experts, &err) : add_plain(l, o, it, end, &err);
    if (!err && o->form == EK_FORM_GGUF) err = add_rope(l, o, c);
    l->parts = first_part;
    for (int i = 0; i < l->n; i++)
        for (int p = 0; p < l->out[i].n_planes; p++)
            l->bytes += (double)l->out[i].plane[p].row_bytes * (double)l->out[i].rows;
    return err;
}

void ek_layout_fini(ek_layout *l)
{
    free(l->out);
    free(l->parts);
    free(l->rope_values);
    free(l->order_values);
    *l = (ek_layout){0};
}

void ek_layout_module(const ek_out *t, char *out, size_t room)
{
    snprintf(out, room, "%s", t->plane[0].name);
    char *end = strrchr(out, '.');
    if (end && strcmp(end, ".weight") == 0) *end = 0;
}
