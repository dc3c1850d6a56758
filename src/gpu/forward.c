/* The forward pass on the device: the stages of src/model/forward.c as kernels in one stream. Every stage that lies
 * between two linear layers is one launch, which also quantises the rows for the next of them. */
#include <math.h>

#include "cuda/layer_end.h"
#include "gpu/run.h"

static unsigned up(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

/* --- before the layers */

ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *w)
{
    const ek_cuda_linear *l = &w->l;
    ek_cuda_linear_args of = {0};
    if (w->invented) return (ek_cuda_embed_args){.codes = w->seed, .rows = l->n, .k = l->k, .form = 4};
    ek_cuda_linear_args_of(&of, l, w->at);
    return (ek_cuda_embed_args){.codes = of.codes,
                                .scales = of.scales,
                                .rows = l->n,
                                .k = l->k,
                                .form = l->form == EK_W_F32    ? 0
                                        : l->form == EK_W_F16  ? 1
                                        : l->form == EK_W_BF16 ? 2
                                                               : 3,
                                .bits = l->bits,
                                .a_group = l->a_group,
                                .group_shift = of.group_shift,
                                .zero = l->zero,
                                .biased = l->biased,
                                .f32_scales = l->f32_scales,
                                .f16_scales = l->f16_scales};
}

void ek_gpu_embed(ek_gpu_run *x, const ek_gpu_matrix *w, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n)
{
    ek_cuda_embed_args a = ek_gpu_rows_of(w);
    a.h = to, a.id = id, a.token = x->token, a.ldh = ld, a.factor = factor, a.first = first, a.n = width;
    ek_gpu_launch(x->g, "ek_embed",
                  (ek_cuda_grid){.x = up(width, 256), .y = (unsigned)n, .threads = 256, .overlap = true}, &a);
}

static void embed(ek_gpu_run *x, int n)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_gpu_embed(x, &x->g->w.embed, x->id, x->h, hidden, 0, hidden, sqrtf((float)hidden), n);
}

void ek_gpu_rope_tables(ek_gpu_run *x, const ek_gpu_set *set)
{
    const ek_gpu *g = x->g;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const int rotated = g->m->n_rotated[k];
        if (!rotated) continue;
        ek_cuda_rope_tables_args a = {.cos = set->cos[k],
                                      .sin = set->sin[k],
                                      .frequency = g->w.rope[k],
                                      .place = set->place,
                                      .ld = rotated,
                                      .rotated = rotated};
        ek_gpu_launch(x->g, "ek_rope_tables",
                      (ek_cuda_grid){.x = up(rotated, 64), .y = (unsigned)set->n, .threads = 64, .overlap = true}, &a);
    }
}

static void gather(ek_gpu_run *x, CUdeviceptr y, CUdeviceptr from, CUdeviceptr index, int n)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_cuda_gather_args a = {.y = y, .x = from, .index = index, .ldy = hidden, .ldx = hidden, .n = hidden};
    ek_gpu_launch(x->g, "ek_gather",
                  (ek_cuda_grid){.x = up(hidden, 1024), .y = (unsigned)n, .threads = 256, .overlap = true}, &a);
}

/* Layers [first, first + layers) of the rows' inputs, from projections of `in` and the embeddings at temp. */
static void per_layer_part(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, CUdeviceptr to, CUdeviceptr temp,
                           int layers)
{
    const ek_config *c = &x->g->m->config;
    const int size = c->per_layer_size;
    ek_gpu_project(x, w, in, to, (int64_t)layers * size);
    ek_cuda_per_layer_args a = {.ctx = to,
                                .temp = temp,
                                .w = x->g->w.per_layer_norm,
                                .ld_ctx = (int64_t)layers * size,
                                .ld_temp = (int64_t)layers * size,
                                .eps = c->rms_norm_eps,
                                .ctx_scale = (float)(1 / sqrt((double)c->hidden_size)),
                                .temp_scale = sqrtf((float)size),
                                .sum_scale = (float)(1 / sqrt(2.0)),
                                .size = size};
    ek_gpu_launch(x->g, "ek_per_layer",
                  (ek_cuda_grid){.x = (unsigned)layers,
                                 .y = (unsigned)in->n,
                                 .threads = 128,
                                 .shared = sizeof(float) * (size_t)size,
                                 .overlap = true},
                  &a);
}

/* Embeddings of the layers lie at temp: first those of all rows' first layers, then those of the rest for rows that
 * want logits. */
static void per_layer_inputs(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const int n = x->all.n, before = ek_prompt_layers(c), behind = c->n_layers - before;
    ek_gpu_input in = ek_gpu_rows(x->h, c->hidden_size, n, c->hidden_size);
    const ek_gpu_matrix *table = &x->g->w.table;
    const int width = before * c->per_layer_size, rest = behind * c->per_layer_size;
    CUdeviceptr temp = x->temp + sizeof(float) * (size_t)n * (size_t)width;
    if (table->l.n && before) ek_gpu_embed(x, table, x->table_id, x->temp, width, 0, width, 1, n);
    if (table->l.n && x->n_want) ek_gpu_embed(x, table, x->table_want, temp, rest, width, rest, 1, x->n_want);
    if (before) per_layer_part(x, &x->g->w.per_layer_head, &in, x->per_layer_head, x->temp, before);
    if (!x->n_want) return;
    if (x->n_want < n) {
        gather(x, x->y, x->h, x->want, x->n_want);
        in = ek_gpu_rows(x->y, c->hidden_size, x->n_want, c->hidden_size);
    }
    per_layer_part(x, &x->g->w.per_layer_tail, &in, x->per_layer_tail, temp, behind);
}

/* --- a layer */

/* Rows that want no logits end here: the layers behind write no keys that others could read. */
static ek_gpu_input drop_rows(ek_gpu_run *x, int i)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    gather(x, x->y, x->h, x->want, x->n_want);
    gather(x, x->h, x->y, 0, x->n_want);
    ek_gpu_rope_tables(x, &x->tail);
    return ek_gpu_stage_to(x, (ek_cuda_stage_args){0}, w->input_norm, &w->q, true, x->n_want);
}

/* q, k and v in one launch. False: it cannot, and nothing was queued. */
static bool project_together(ek_gpu_run *x, int i, ek_gpu_input *in, int64_t ldq, int64_t ldk)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    ek_cuda_heads p;
    if (!ek_cuda_heads_plan(&p, &w->q.l, &w->k.l, w->v.l.n ? &w->v.l : NULL, in->n, ek_cuda_multiprocessors(x->g->c)))
        return false;
    ek_gpu_quantize(x, in, &w->q);
    ek_cuda_leaf_heads_args a = {.q = ek_gpu_linear_args(x, &w->q, in, &p.q, x->q, ldq),
                                 .k = ek_gpu_linear_args(x, &w->k, in, &p.k, x->k, ldk),
                                 .v_codes = w->v.at,
                                 .v_scales = w->v.at + w->v.l.code_bytes,
                                 .v = x->v,
                                 .q_blocks = p.q_blocks,
                                 .k_blocks = p.k_blocks};
    ek_gpu_launch(x->g, p.q.name, p.q.grid, &a);
    return true;
}

/* q, k and v of the rows in `in`; of the last owner q only for rows that go on, which set then names. */
static void project_heads(ek_gpu_run *x, int i, ek_gpu_input *in, const ek_gpu_set **set)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const ek_layer_config *l = &c->layer[i];
    const int64_t ldq = (int64_t)c->n_heads * l->head_dim, ldk = (int64_t)l->n_kv_heads * l->head_dim;
    const bool last = ek_gpu_drops(x, i);
    if (!l->owns_kv ||
        ((last || !project_together(x, i, in, ldq, ldk)) && !ek_gpu_heads_wide(x, i, !last, in, ldq, ldk))) {
        if (!last) ek_gpu_project(x, &w->q, in, x->q, ldq);
        if (l->owns_kv && w->v.l.n) ek_gpu_project_two(x, &w->k, &w->v, in, x->k, x->v, ldk);
        else if (l->owns_kv) ek_gpu_project(x, &w->k, in, x->k, ldk);
    }
    if (l->owns_kv) ek_gpu_store(x, i, *set);
    if (last && !x->n_want) return;
    if (last) {
        *in = drop_rows(x, i);
        *set = &x->tail;
        ek_gpu_project(x, &w->q, in, x->q, ldq);
    }
    ek_gpu_finish_queries(x, i, *set);
}

/* Where a drafter reads the last x. */
static CUdeviceptr last_hidden(const ek_gpu_run *x)
{
    return x->hidden + sizeof(float) * (size_t)x->first_logits * (size_t)x->g->m->config.hidden_size;
}

/* The row-wise end of layer i: the rows' h, and x for the matrix that reads it next. The last x is kept for a drafter.
 */
static ek_gpu_input end_layer(ek_gpu_run *x, int i, ek_cuda_stage_args a, int n)
{
    const ek_gpu_weights *w = &x->g->w;
    const ek_config *c = &x->g->m->config;
    a.scalar = w->layer[i].scalar;
    if (i + 1 < c->n_layers) return ek_gpu_stage_for(x, a, i + 1, true, n);
    const CUdeviceptr own = x->x;
    if (x->hidden) x->x = last_hidden(x);
    ek_gpu_input in = ek_gpu_stage_to(x, a, w->norm, c->backbone_hidden_size ? &w->post_projection : &w->embed, false,
                                      n);
    x->x = own;
    return in;
}

/* The per-layer inputs of layer i, ld elements per row. */
static CUdeviceptr per_layer_rows(const ek_gpu_run *x, int i, int64_t *ld)
{
    const ek_config *c = &x->g->m->config;
    const int before = ek_prompt_layers(c);
    *ld = (int64_t)(i < before ? before : c->n_layers - before) * c->per_layer_size;
    return (i < before ? x->per_layer_head : x->per_layer_tail) +
           sizeof(float) * (size_t)((i < before ? i : i - before) * c->per_layer_size);
}

static ek_gpu_input per_layer(ek_gpu_run *x, int i, ek_gpu_input *in, int n)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const int size = c->per_layer_size;
    ek_cuda_leaf_args own = {0};
    own.u = per_layer_rows(x, i, &own.ldu);
    ek_gpu_input g;
    if (!ek_gpu_gated(x, &w->per_layer_gate, NULL, own, n, 0, in, n, &w->per_layer_proj, &g)) {
        ek_gpu_project(x, &w->per_layer_gate, in, x->gate, size);
        g = ek_gpu_gate(x, x->gate, own.u, size, own.ldu, n, size, &w->per_layer_proj);
    }
    ek_gpu_project(x, &w->per_layer_proj, &g, x->y, c->hidden_size);
    return end_layer(x, i, (ek_cuda_stage_args){.y = x->y, .y_norm = w->post_per_layer_norm}, n);
}

/* All of the end of layer i behind down, whose output is x->y, in one launch. False: it cannot, and nothing was queued.
 */
static bool end_together(ek_gpu_run *x, int i, int n, ek_gpu_input *in)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const bool last = i + 1 == c->n_layers;
    const ek_gpu_matrix *next = !last ? &w[1].q : c->backbone_hidden_size ? &x->g->w.post_projection : &x->g->w.embed;
    ek_cuda_layer_end_args a = {0};
    ek_cuda_product p;
    if (c->n_experts || !ek_cuda_layer_end_plan(&p, &a, &w->per_layer_gate.l, &w->per_layer_proj.l, &next->l, n))
        return false;
    *in = ek_gpu_rows(last && x->hidden ? last_hidden(x) : x->x, c->hidden_size, n, c->hidden_size);
    a.h = x->h, a.y = x->y, a.y_norm = w->post_mlp_norm, a.u = per_layer_rows(x, i, &a.ldu);
    a.gate = w->per_layer_gate.at, a.gate_scales = a.gate + w->per_layer_gate.l.code_bytes;
    a.proj = w->per_layer_proj.at, a.proj_scales = a.proj + w->per_layer_proj.l.code_bytes;
    a.post_norm = w->post_per_layer_norm, a.scalar = w->scalar, a.x_norm = last ? x->g->w.norm : w[1].input_norm;
    a.to = ek_gpu_acts_for(x, in, next);
    if (!last && a.to.q && ek_gpu_serves_heads(w + 1)) in->f = 0;
    a.x = in->f, a.ld = c->hidden_size, a.eps = c->rms_norm_eps;
    ek_gpu_launch(x->g, p.name, p.grid, &a);
    return true;
}

void ek_gpu_mlp(ek_gpu_run *x, int i, ek_gpu_input *in, int n)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const int inter = c->layer[i].intermediate_size;
    ek_gpu_input g;
    if (!ek_gpu_gated(x, &w->gate, &w->up, (ek_cuda_leaf_args){0}, n, 0, in, n, &w->down, &g) &&
        !ek_gpu_gated_wide(x, &w->gate, &w->up, (ek_cuda_products_args){0}, n, 0, in, n, &w->down, &g)) {
        ek_gpu_project_two(x, &w->gate, &w->up, in, x->gate, x->up, inter);
        g = ek_gpu_gate(x, x->gate, x->up, inter, inter, n, inter, &w->down);
    }
    ek_gpu_project(x, &w->down, &g, x->y, c->hidden_size);
}

static ek_gpu_input run_layer(ek_gpu_run *x, int i, ek_gpu_input in, const ek_gpu_set *set)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const ek_layer_config *l = &c->layer[i];
    const int n = set->n, query = c->n_heads * l->head_dim;
    ek_gpu_input o = ek_gpu_rows(x->o, query, n, query);
    ek_gpu_attend(x, i, set, &o);
    ek_gpu_project(x, &w->o, &o, x->y, c->hidden_size);
    ek_cuda_stage_args end = {.y = x->y, .y_norm = w->post_mlp_norm};
    if (!c->n_experts || !ek_gpu_experts_beside(x, i, n, &end)) {
        const ek_cuda_stage_args stage = {.y = x->y, .y_norm = w->post_attention_norm};
        in = ek_gpu_stage_for(x, stage, i, false, n);
        ek_gpu_mlp(x, i, &in, n);
        if (c->n_experts) ek_gpu_experts(x, i, n, &end);
    }
    if (!c->per_layer_size) return end_layer(x, i, end, n);
    if (end_together(x, i, n, &in)) return in;
    in = ek_gpu_rows(x->h, c->hidden_size, n, c->hidden_size);
    end.to = ek_gpu_acts_for(x, &in, &w->per_layer_gate);
    ek_gpu_stage(x, &end, n);
    return per_layer(x, i, &in, n);
}

static void run_head(ek_gpu_run *x, ek_gpu_input *in)
{
    const ek_config *c = &x->g->m->config;
    CUdeviceptr to = x->logits + sizeof(float) * (size_t)x->first_logits * (size_t)c->vocab_size;
    ek_gpu_project(x, &x->g->w.embed, in, to, c->vocab_size);
    ek_cuda_cap_args a = {.x = to,
                          .bad = x->bad + sizeof(int32_t) * (size_t)x->first_logits,
                          .digest = x->digests ? x->digest + sizeof(uint64_t) * (size_t)x->first_logits : 0,
                          .ld = c->vocab_size,
                          .cap = c->final_logit_softcapping,
                          .n = c->vocab_size};
    ek_gpu_launch(x->g, "ek_soft_cap_check",
                  (ek_cuda_grid){.x = in->n > 8 ? 32 : 128, .y = (unsigned)in->n, .threads = 256, .overlap = true}, &a);
}

ek_gpu_input ek_gpu_layers(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const ek_gpu_set *set = &x->all;
    ek_gpu_input in = ek_gpu_stage_for(x, (ek_cuda_stage_args){0}, 0, true, set->n);
    for (int i = 0; i < c->n_layers; i++) {
        project_heads(x, i, &in, &set);
        if (i == ek_prompt_layers(c) && !x->n_want) return in;
        in = run_layer(x, i, in, set);
    }
    return in;
}

void ek_gpu_forward(ek_gpu_run *x)
{
    embed(x, x->all.n);
    ek_gpu_rope_tables(x, &x->all);
    if (x->g->m->config.per_layer_size) per_layer_inputs(x);
    ek_gpu_input in = ek_gpu_layers(x);
    if (x->n_want) run_head(x, &in);
}
