#include "gpu/recipe/sections.h"

#include <math.h>

#include "gpu/recipe/linear.h"

ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *m)
{
    const ek_cuda_linear *l = &m->l;
    ek_cuda_linear_args of = {0};
    if (m->invented) return (ek_cuda_embed_args){.codes = m->seed, .rows = l->n, .k = l->k, .form = 4};
    ek_cuda_linear_args_of(&of, l, m->at);
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

void ek_gpu_embed(ek_gpu_writer *w, const ek_gpu_matrix *m, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n)
{
    ek_cuda_embed_args a = ek_gpu_rows_of(m);
    a.h = to, a.id = id, a.token = w->x->buf.token, a.ldh = ld, a.factor = factor, a.first = first, a.n = width;
    const ek_cuda_grid grid = {.x = ek_gpu_over(width, 256), .y = (unsigned)n, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_embed", grid, a);
}

void ek_gpu_rope_tables(ek_gpu_writer *w, bool tail, int n)
{
    const ek_gpu *g = w->x->g;
    const ek_gpu_set *set = tail ? &w->x->now.tail : &w->x->now.all; /* the offsets of these never change */
    if (ek_gpu_is_plain(w->x)) return;                               /* they came with the step's block */
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const int rotated = g->m->n_rotated[k];
        if (!rotated) continue;
        const ek_cuda_rope_tables_args a = {.cos = set->cos[k],
                                            .sin = set->sin[k],
                                            .frequency = g->w.rope[k],
                                            .place = ek_gpu_open_value(tail ? EK_GPU_TAIL_PLACE : EK_GPU_PLACE),
                                            .ld = rotated,
                                            .rotated = rotated};
        const ek_cuda_grid grid = {.x = ek_gpu_over(rotated, 64), .y = (unsigned)n, .threads = 64, .overlap = true};
        EK_GPU_WRITE(w, "ek_rope_tables", grid, a);
    }
}

void ek_gpu_gather(ek_gpu_writer *w, CUdeviceptr y, int64_t ldy, CUdeviceptr from, CUdeviceptr index, int width, int n)
{
    const ek_cuda_gather_args a = {.y = y, .x = from, .index = index, .ldy = ldy, .ldx = width, .n = width};
    const ek_cuda_grid grid = {.x = ek_gpu_over(width, 1024), .y = (unsigned)n, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_gather", grid, a);
}

/* Layers [first, first + layers) of the rows' per-layer inputs, from projections of `in` and the embeddings at temp. */
static void per_layer_part(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, CUdeviceptr to, CUdeviceptr temp,
                           int layers)
{
    const ek_config *c = &w->x->g->m->config;
    const int size = c->per_layer_size;
    ek_gpu_project(w, m, in, to, (int64_t)layers * size);
    const ek_cuda_per_layer_args a = {.ctx = to,
                                      .temp = temp,
                                      .w = w->x->g->w.per_layer_norm,
                                      .ld_ctx = (int64_t)layers * size,
                                      .ld_temp = (int64_t)layers * size,
                                      .eps = c->rms_norm_eps,
                                      .ctx_scale = (float)(1 / sqrt((double)c->hidden_size)),
                                      .temp_scale = ek_config_embed_scale(c, size),
                                      .sum_scale = (float)(1 / sqrt(2.0)),
                                      .size = size};
    const ek_cuda_grid grid = {.x = (unsigned)layers,
                               .y = (unsigned)in->n,
                               .threads = 128,
                               .shared = sizeof(float) * (size_t)size,
                               .overlap = true};
    EK_GPU_WRITE(w, "ek_per_layer", grid, a);
}

/* The layers' embeddings lie at temp: first those of the first layers for all rows, then those of the other layers for
 * rows with logits. */
static void per_layer_inputs(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_weights *g = &x->g->w;
    const ek_config *c = &x->g->m->config;
    const int n = w->of.n, want = w->of.want, before = ek_prompt_layers(c), behind = c->n_layers - before;
    const int hidden = c->hidden_size, width = before * c->per_layer_size, rest = behind * c->per_layer_size;
    const CUdeviceptr temp = x->buf.temp + sizeof(float) * (size_t)n * (size_t)width;
    const CUdeviceptr rows = ek_gpu_embedded(x);
    ek_gpu_input in = ek_gpu_rows(rows, hidden, n, hidden);
    if (g->table.l.n && before)
        ek_gpu_embed(w, &g->table, ek_gpu_open_value(EK_GPU_TABLE_IDS), x->buf.temp, width, 0, width, 1, n);
    if (g->table.l.n && want)
        ek_gpu_embed(w, &g->table, ek_gpu_open_value(EK_GPU_TABLE_WANT), temp, rest, width, rest, 1, want);
    if (before) per_layer_part(w, &g->per_layer_head, &in, x->buf.per_layer_head, x->buf.temp, before);
    if (!want) return;
    if (want < n) {
        /* If outputs are divided, other devices may still read y here (gpu/recipe/exchange.h). On a later device the
         * rows themselves lie at x. */
        const CUdeviceptr some = rows == x->buf.h ? x->buf.x : x->buf.y;
        ek_gpu_gather(w, some, hidden, rows, ek_gpu_open_value(EK_GPU_WANT), hidden, want);
        in = ek_gpu_rows(some, hidden, want, hidden);
    }
    per_layer_part(w, &g->per_layer_tail, &in, x->buf.per_layer_tail, temp, behind);
}

void ek_gpu_write_begin(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const int hidden = x->g->m->config.hidden_size;
    const bool per_layer = x->g->m->config.per_layer_size;
    if (!x->g->share.first || per_layer)
        ek_gpu_embed(w, &x->g->w.embed, ek_gpu_open_value(EK_GPU_IDS), ek_gpu_embedded(x), hidden, 0, hidden,
                     ek_config_embed_scale(&x->g->m->config, hidden), w->of.n);
    ek_gpu_rope_tables(w, false, w->of.n);
    if (per_layer) per_layer_inputs(w);
}

CUdeviceptr ek_gpu_per_layer_rows(const ek_gpu_run *x, int i, int64_t *ld)
{
    const ek_config *c = &x->g->m->config;
    const int before = ek_prompt_layers(c);
    *ld = (int64_t)(i < before ? before : c->n_layers - before) * c->per_layer_size;
    return (i < before ? x->buf.per_layer_head : x->buf.per_layer_tail) +
           sizeof(float) * (size_t)((i < before ? i : i - before) * c->per_layer_size);
}
