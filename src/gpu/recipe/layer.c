#include "gpu/recipe/exchange.h"
#include "gpu/recipe/sections.h"

#include "cuda/rows/launch.h"
#include "gpu/recipe/linear.h"

/* --- its rows */

/* The inputs of q, k and v of layer i, of n rows. */
static ek_gpu_input rows_in(ek_gpu_writer *w, int i, bool drops, int n)
{
    const ek_gpu_reading r = {.layer = i, .n = n, .by = EK_GPU_TO_HEADS, .drops = drops};
    if (i > w->x->g->share.first) return ek_gpu_left_for(w, &r);
    return ek_gpu_write_rows_for(w, (ek_cuda_stage_args){0}, &r);
}

/* Drops rows without logits: later layers write no keys that other rows could read. */
static ek_gpu_input drop_rows(ek_gpu_writer *w, int i, int n)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const int hidden = x->g->m->config.hidden_size;
    /* through x, because other devices may still read y here (gpu/recipe/exchange.h) */
    ek_gpu_gather(w, x->buf.x, hidden, x->buf.h, ek_gpu_open_value(EK_GPU_WANT), hidden, n);
    ek_gpu_gather(w, x->buf.h, hidden, x->buf.x, 0, hidden, n);
    ek_gpu_rope_tables(w, true, n);
    return ek_gpu_write_rows_to(w, (ek_cuda_stage_args){0}, l->input_norm, &l->q, true, x->buf.x, n);
}

/* --- its end */

/* The buffer for the last x, which a drafter reads; 0: there is no drafter. */
static CUdeviceptr last_x(const ek_gpu_run *x)
{
    return x->buf.hidden ? ek_gpu_open_value(EK_GPU_HIDDEN) : x->buf.x;
}

/* What reads it. */
static const ek_gpu_matrix *behind_layers(const ek_gpu_run *x)
{
    return x->g->m->config.backbone_hidden_size ? &x->g->w.post_projection : ek_gpu_head(&x->g->w);
}

ek_gpu_input ek_gpu_last_rows(ek_gpu_writer *w, int n)
{
    const int hidden = w->x->g->m->config.hidden_size;
    ek_gpu_input in = ek_gpu_rows(last_x(w->x), hidden, n, hidden);
    ek_gpu_acts_for(w, &in, behind_layers(w->x));
    return in;
}

/* The row kernel at the end of layer i: the rows' h, and x in the form of the next reader. */
static void write_end(ek_gpu_writer *w, int i, ek_cuda_stage_args a, int n)
{
    const ek_gpu_run *x = w->x;
    ek_gpu_write_home(w);
    a.scalar = x->g->w.layer[i].scalar;
    if (i + 1 < x->g->m->config.n_layers) {
        const ek_gpu_reading r = {.layer = i + 1, .n = n, .by = EK_GPU_TO_HEADS, .drops = w->of.drops};
        ek_gpu_write_rows_for(w, a, &r);
    } else {
        ek_gpu_write_rows_to(w, a, x->g->w.norm, behind_layers(x), false, last_x(x), n);
    }
}

static void write_per_layer(ek_gpu_writer *w, int i, ek_gpu_input *in, int n)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const int size = x->g->m->config.per_layer_size;
    const ek_gpu_gating g = {.gate = &l->per_layer_gate, .next = &l->per_layer_proj, .tile = n};
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    ek_cuda_warp_args own = {0};
    own.u = ek_gpu_per_layer_rows(x, i, &own.ldu);
    ek_gpu_input gated;
    if (by.by == EK_GPU_GATE_APART) {
        ek_gpu_project(w, g.gate, in, x->buf.gate, size);
        gated = ek_gpu_gate(w, x->buf.gate, own.u, size, own.ldu, n, size, g.next);
    } else {
        gated = ek_gpu_write_gated(w, &by, &g, own, in, n);
    }
    ek_gpu_project(w, g.next, &gated, x->buf.x,
                   x->g->m->config.hidden_size); /* not to y, for the reason in drop_rows */
    write_end(w, i, (ek_cuda_stage_args){.y = x->buf.x, .y_norm = l->post_per_layer_norm}, n);
}

/* A launch with the whole end of a layer with per-layer inputs, from down's output in x->y on. */
typedef struct whole_end {
    ek_cuda_product p;
    ek_cuda_layer_end_args a;
} whole_end;

static const ek_gpu_matrix *next_of(const ek_gpu_run *x, int i)
{
    return i + 1 < x->g->m->config.n_layers ? &x->g->w.layer[i + 1].q : behind_layers(x);
}

static bool choose_whole_end(const ek_gpu_run *x, int i, int n, whole_end *out)
{
    const ek_gpu_layer *l = &x->g->w.layer[i];
    *out = (whole_end){0};
    return !x->g->m->config.n_experts &&
           ek_cuda_layer_end_plan(&out->p, &out->a, &l->per_layer_gate.l, &l->per_layer_proj.l, &next_of(x, i)->l, n,
                                  ek_cuda_chip_of(x->g->c));
}

static void write_whole_end(ek_gpu_writer *w, int i, int n, whole_end *e)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const bool last = i + 1 == c->n_layers;
    ek_cuda_layer_end_args *a = &e->a;
    ek_gpu_write_home(w);
    ek_gpu_input in = ek_gpu_rows(last ? last_x(x) : x->buf.x, c->hidden_size, n, c->hidden_size);
    a->h = x->buf.h, a->y = x->buf.y, a->y_norm = l->post_mlp_norm, a->u = ek_gpu_per_layer_rows(x, i, &a->ldu);
    a->gate = l->per_layer_gate.at, a->gate_scales = a->gate + l->per_layer_gate.l.code_bytes;
    a->proj = l->per_layer_proj.at, a->proj_scales = a->proj + l->per_layer_proj.l.code_bytes;
    a->post_norm = l->post_per_layer_norm, a->scalar = l->scalar;
    a->x_norm = last ? x->g->w.norm : l[1].input_norm;
    a->to = ek_gpu_acts_for(w, &in, next_of(x, i));
    if (!last && a->to.q && ek_gpu_serves_heads(l + 1)) in.f = 0;
    a->x = in.f, a->ld = c->hidden_size, a->eps = c->rms_norm_eps;
    EK_GPU_WRITE(w, e->p.name, e->p.grid, *a);
}

/* --- the layer */

/* The host computes the experts while the device computes gate, up and down; their sum comes back as the output of one
 * expert. */
static void write_moe_with_host(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_cuda_stage_args behind = {.y = x->buf.y, .y_norm = l->post_attention_norm};
    EK_ASSERT(!ek_gpu_is_sharded(x));
    ek_gpu_input in = ek_gpu_write_rows_for(w, behind, &(ek_gpu_reading){.layer = i, .n = n, .by = EK_GPU_TO_MLP});
    ek_gpu_write_host(w, EK_GPU_HOST_ASK, n);
    ek_gpu_write_mlp(w, i, &in, n);
    ek_gpu_write_host(w, EK_GPU_HOST_ANSWER, n);
    end->pair_out = x->experts.pair_out, end->row_pair = x->experts.host_pair, end->weight = x->experts.host_weight;
    end->top_k = 1, end->known = true;
    end->norm_1 = l->post_mlp_norm_1, end->norm_2 = l->post_mlp_norm_2;
}

static void write_behind_attention(ek_gpu_writer *w, int i, int n)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    ek_cuda_stage_args end = {.y = x->buf.y, .y_norm = l->post_mlp_norm};
    whole_end whole;
    if (c->n_experts && !ek_gpu_experts_are_here(&x->g->share, i)) {
        write_moe_with_host(w, i, n, &end);
    } else if (c->n_experts) {
        ek_gpu_write_moe(w, i, n, &end);
    } else {
        const ek_cuda_stage_args behind = {.y = x->buf.y, .y_norm = l->post_attention_norm};
        ek_gpu_input in = ek_gpu_write_rows_for(w, behind, &(ek_gpu_reading){i, n, EK_GPU_TO_MLP, false});
        ek_gpu_write_mlp(w, i, &in, n);
    }
    if (!c->per_layer_size) {
        write_end(w, i, end, n);
    } else if (choose_whole_end(x, i, n, &whole)) {
        write_whole_end(w, i, n, &whole);
    } else {
        ek_gpu_input in = ek_gpu_rows(x->buf.h, c->hidden_size, n, c->hidden_size);
        end.to = ek_gpu_acts_for(w, &in, &l->per_layer_gate);
        ek_gpu_write_rows(w, end, n);
        write_per_layer(w, i, &in, n);
    }
}

/* Devices that divide outputs compute all of o for few rows, if they have all of o. */
static void write_o(ek_gpu_writer *w, int i, ek_gpu_input *in, int n)
{
    const ek_gpu_layer *l = &w->x->g->w.layer[i];
    const int hidden = w->x->g->m->config.hidden_size;
    if (!ek_gpu_is_sharded(w->x) || ek_gpu_skips_exchange_y(w, n)) {
        ek_gpu_project(w, &l->o, in, w->x->buf.y, hidden);
        return;
    }
    const ek_gpu_parts parts = ek_gpu_outputs_of(w->x, hidden);
    ek_gpu_project(w, &l->o_part, in, ek_gpu_at_part(w->x->buf.y, ek_gpu_part_here(w->x, &parts)), hidden);
    ek_gpu_write_exchange_y(w, n);
}

void ek_gpu_write_keys(ek_gpu_writer *w)
{
    const int i = w->of.layer, n = w->of.n;
    ek_gpu_input in = rows_in(w, i, true, n);
    ek_gpu_write_heads(w, i, true, &in);
    ek_gpu_write_store(w, i, n);
}

void ek_gpu_write_layer(ek_gpu_writer *w)
{
    const ek_config *c = &w->x->g->m->config;
    const int i = w->of.layer, n = w->of.n;
    if (w->of.tail && i == ek_prompt_layers(c)) {
        ek_gpu_input in = drop_rows(w, i, n);
        ek_gpu_write_queries(w, i, &in);
    } else {
        ek_gpu_input in = rows_in(w, i, false, n);
        ek_gpu_write_heads(w, i, false, &in);
        if (c->layer[i].owns_kv) ek_gpu_write_store(w, i, n);
    }
    ek_gpu_write_finish(w, i, n);
    ek_gpu_input o = ek_gpu_write_attend(w, i, n);
    write_o(w, i, &o, n);
    write_behind_attention(w, i, n);
}
