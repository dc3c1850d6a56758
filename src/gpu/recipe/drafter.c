#include "gpu/recipe/sections.h"

#include "gpu/recipe/linear.h"

/* The states that are fed to rows lie behind their embeddings. */
static CUdeviceptr states(const ek_gpu_run *x)
{
    return x->buf.fed + sizeof(float) * (size_t)x->g->m->config.backbone_hidden_size;
}

void ek_gpu_write_draft_first(ek_gpu_writer *w)
{
    const int wide = w->x->g->m->config.backbone_hidden_size;
    ek_gpu_rope_tables(w, false, w->of.n); /* queries keep their position for the whole draft */
    ek_gpu_gather(w, states(w->x), 2 * wide, w->x->target->buf.hidden, ek_gpu_open_value(EK_GPU_FROM), wide, w->of.n);
}

void ek_gpu_write_draft_begin(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const int wide = x->g->m->config.backbone_hidden_size, n = w->of.n;
    ek_gpu_embed(w, &x->g->target->w.embed, ek_gpu_open_value(EK_GPU_IDS), x->buf.fed, 2 * wide, 0, wide,
                 ek_config_embed_scale(&x->g->target->m->config, wide), n);
    ek_gpu_input in = ek_gpu_rows(x->buf.fed, 2 * wide, n, 2 * wide);
    ek_gpu_project(w, &x->g->w.pre_projection, &in, x->buf.h, x->g->m->config.hidden_size);
}

static ek_cuda_draft_args args_of(const ek_gpu_writer *w, CUdeviceptr y)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    return (ek_cuda_draft_args){.score = x->buf.logits,
                                .chosen = x->buf.chosen,
                                .ordering = x->g->w.ordering,
                                .y = y,
                                .best = x->buf.best,
                                .id = ek_gpu_open_value(EK_GPU_IDS),
                                .draft = x->buf.token,
                                .n = ek_gpu_open_value(EK_GPU_N_TOKEN),
                                .head = ek_gpu_rows_of(ek_gpu_head(&x->g->w)),
                                .n_centroids = c->n_centroids,
                                .top_k = c->top_k_centroids,
                                .vocab_size = c->vocab_size,
                                .rows = w->of.n,
                                .max = EK_DRAFT_MAX};
}

/* Writes the key of each row's best token to x->best. */
static void write_head(ek_gpu_writer *w, ek_gpu_input *in)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    const unsigned rows = (unsigned)in->n, wide = in->n > 8 ? 16 : 64;
    if (c->n_centroids) {
        const ek_cuda_draft_args a = args_of(w, in->f);
        ek_gpu_project(w, &x->g->w.centroids, in, x->buf.logits, c->n_centroids);
        const ek_cuda_grid one = {.x = rows, .threads = 1024, .overlap = true},
                           some = {.x = 2 * wide, .y = rows, .threads = 256, .overlap = true};
        EK_GPU_WRITE(w, "ek_draft_centroids", one, a);
        EK_GPU_WRITE(w, "ek_draft_ordered", some, a);
        return;
    }
    ek_gpu_project(w, ek_gpu_head(&x->g->w), in, x->buf.logits, c->vocab_size);
    const ek_cuda_reduce_args a = {.out = ek_gpu_open_value(EK_GPU_IDS),
                                   .x = x->buf.logits,
                                   .key = x->buf.best,
                                   .ldx = c->vocab_size,
                                   .n = c->vocab_size};
    const ek_cuda_grid grid = {.x = wide, .y = rows, .threads = 256};
    EK_GPU_WRITE(w, "ek_argmax", grid, a);
}

void ek_gpu_write_draft_end(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    ek_gpu_input in = ek_gpu_last_rows(w, w->of.n);
    ek_gpu_project(w, &x->g->w.post_projection, &in, states(x), 2 * x->g->m->config.backbone_hidden_size);
    write_head(w, &in);
    const ek_cuda_draft_args a = args_of(w, in.f);
    const ek_cuda_grid grid = {.x = 1, .threads = 1024, .overlap = true};
    EK_GPU_WRITE(w, "ek_draft_next", grid, a);
}
