/* Products of many rows by wgmma (cuda/linear.h): the image of their rows, the memory that it and nodes of T take. */
#include "gpu/run.h"

static unsigned up(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

void ek_gpu_arrange(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with)
{
    if (!p->image) {
        ek_gpu_quantize(x, in, w);
        return;
    }
    const int limbs = w->l.limbs;
    const CUdeviceptr image = x->image[limbs - 1];
    if (in->number == 0) in->number = ++x->n_inputs;
    if (x->holds[limbs - 1] == in->number && x->held_group[limbs - 1] == w->l.a_group) return;
    x->holds[limbs - 1] = in->number, x->held_group[limbs - 1] = w->l.a_group;
    if (in->f && !in->acts.q && !with.jobs && w->l.a_group == 64) {
        ek_cuda_quantize_images_args a = {.to = {.one = limbs == 1 ? image : 0, .two = limbs == 2 ? image : 0},
                                          .x = in->f,
                                          .ldx = in->ld,
                                          .k = in->k};
        ek_gpu_launch(x->g, "ek_quantize_images",
                      (ek_cuda_grid){.x = up(in->k, 2048), .y = (unsigned)in->n, .threads = 256, .overlap = true}, &a);
        return;
    }
    ek_gpu_quantize(x, in, w);
    with.x = in->acts, with.image = image, with.rows = in->n;
    ek_gpu_launch(x->g, ek_cuda_arrange_name(&w->l), p->arrange, &with);
}

/* Whether w reads n rows as an image. */
static bool reads_image(const ek_gpu_run *x, const ek_gpu_matrix *w, int n)
{
    return w->l.units && w->l.a_group == 64 &&
           ek_cuda_product_plan(&w->l, n, ek_cuda_multiprocessors(x->g->c), x->leaf_bytes).image;
}

/* Where q, or without it k, would be wide and whole by itself. */
static bool heads_plan(const ek_gpu_run *x, int i, bool with_q, int n, ek_cuda_heads *p)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c);
    if (n < EK_GPU_PROMPT_ROWS ||
        !ek_cuda_wide_heads_plan(p, with_q ? &w->q.l : NULL, &w->k.l, w->v.l.n ? &w->v.l : NULL, n, multiprocessors))
        return false;
    const ek_cuda_product one = ek_cuda_product_plan(with_q ? &w->q.l : &w->k.l, n, multiprocessors, x->leaf_bytes);
    return one.image && !one.parts;
}

bool ek_gpu_heads_wide(ek_gpu_run *x, int i, bool with_q, ek_gpu_input *in, int64_t ldq, int64_t ldk)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    ek_cuda_heads p;
    if (!heads_plan(x, i, with_q, in->n, &p)) return false;
    ek_cuda_wide_heads_args a = {0};
    ek_gpu_arrange(x, &w->k, in, &p.k, (ek_cuda_arrange_args){0});
    if (with_q) {
        ek_gpu_arrange(x, &w->q, in, &p.q, (ek_cuda_arrange_args){0});
        a.q = ek_gpu_linear_args(x, &w->q, in, &p.q, x->q, ldq);
    }
    a.k = ek_gpu_linear_args(x, &w->k, in, &p.k, x->k, ldk);
    if (w->v.l.n) a.v = ek_gpu_linear_args(x, &w->v, in, &p.k, x->v, ldk);
    ek_gpu_launch(x->g, p.q.name, p.q.grid, &a);
    return true;
}

ek_cuda_images ek_gpu_images_for(ek_gpu_run *x, int i, bool heads, int n, ek_gpu_input *in, bool *complete)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c);
    const ek_gpu_matrix *const all[2][3] = {{&w->gate, &w->up}, {&w->q, &w->k, w->v.l.n ? &w->v : NULL}};
    ek_cuda_images to = {0};
    ek_cuda_heads together;
    ek_cuda_product p;
    *complete = false;
    if (n < EK_GPU_PROMPT_ROWS || c->hidden_size > EK_CUDA_STAGE_ROWS_WIDTH) return to;
    if (all[heads][0]->l.units && all[heads][0]->l.a_group != 64) return to; /* its records: ek_stage alone has them */
    const bool stored = heads && c->layer[i].owns_kv;
    if (stored && ((i == ek_prompt_layers(c) && x->n_want < x->all.n) || /* q reads other rows */
                   ek_cuda_heads_plan(&together, &w->q.l, &w->k.l, w->v.l.n ? &w->v.l : NULL, n, multiprocessors)))
        return to;
    if (!heads && ek_cuda_linear_alike(&w->gate.l, &w->up.l) &&
        ek_cuda_gated_plan(&p, &w->gate.l, n, 0, EK_CUDA_GATE_MATRIX, &w->down.l, multiprocessors))
        return to;
    *complete = true;
    const bool all_wide = stored && heads_plan(x, i, true, n, &together);
    for (int m = 0; m < (heads ? stored ? 3 : 1 : 2); m++) {
        const ek_gpu_matrix *reader = all[heads][m];
        if (!reader) continue;
        const bool pair = m && stored && w->v.l.n && ek_cuda_linear_alike(&w->k.l, &w->v.l) &&
                          ek_cuda_products_plan(&w->k.l, n, 0, 2, multiprocessors).name[0];
        if (!all_wide && (pair || !reads_image(x, reader, n))) *complete = false;
        else *(reader->l.limbs == 1 ? &to.one : &to.two) = x->image[reader->l.limbs - 1];
    }
    if (!to.one && !to.two) return to;
    in->number = ++x->n_inputs;
    if (to.one) x->holds[0] = in->number, x->held_group[0] = 64;
    if (to.two) x->holds[1] = in->number, x->held_group[1] = 64;
    return to;
}

bool ek_gpu_gated_wide(ek_gpu_run *x, const ek_gpu_matrix *gate, const ek_gpu_matrix *upper, ek_cuda_products_args with,
                       int tile, int jobs, ek_gpu_input *in, int rows_out, const ek_gpu_matrix *w, ek_gpu_input *out)
{
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c);
    ek_cuda_product p;
    if (!ek_cuda_linear_alike(&gate->l, &upper->l) ||
        !ek_cuda_wide_gate_plan(&p, &gate->l, &w->l, tile, jobs, multiprocessors))
        return false;
    if (!jobs) { /* where both products would be wide and whole */
        const ek_cuda_product first = ek_cuda_product_plan(&gate->l, tile, multiprocessors, x->leaf_bytes);
        if (!first.image || first.parts || !ek_cuda_product_plan(&w->l, tile, multiprocessors, x->leaf_bytes).image)
            return false;
    }
    ek_gpu_arrange(x, gate, in, &p,
                   (ek_cuda_arrange_args){.jobs = with.jobs, .n_jobs = with.n_jobs, .index = with.index});
    with.a = ek_gpu_linear_args(x, gate, in, &p, 0, 0);
    with.a.rows = tile;
    with.codes2 = upper->at, with.scales2 = upper->at + gate->l.code_bytes, with.y2 = x->image[1];
    with.expert_bytes = (int64_t)gate->l.bytes;
    ek_gpu_launch(x->g, p.name, p.grid, &with);
    const CUdeviceptr read = x->image[0];
    x->image[0] = x->image[1], x->image[1] = read;
    *out = ek_gpu_rows(0, 0, rows_out, gate->l.n);
    ek_cuda_acts_plan(&out->acts, out->k, w->l.a_group);
    out->acts.q = x->acts; /* nobody reads it: the rows are there as an image alone */
    out->number = ++x->n_inputs;
    x->holds[0] = out->number, x->held_group[0] = 64, x->holds[1] = 0;
    return true;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void ek_gpu_size_products(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const int blocks = EK_CUDA_WIDE_BLOCKS * ek_cuda_multiprocessors(x->g->c), rows = x->z.max_rows;
    x->stack_bytes = (size_t)blocks * (size_t)x->g->levels * 128 * 64 * sizeof(float);
    x->image_bytes = 0;
    for (int i = 0; i < c->n_layers; i++) {
        const ek_gpu_layer *w = &x->g->w.layer[i];
        const ek_gpu_matrix *const dense[] = {
            &w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down, &w->router, &w->per_layer_gate, &w->per_layer_proj};
        for (size_t m = 0; m < sizeof dense / sizeof *dense; m++)
            x->image_bytes = larger(x->image_bytes, ek_cuda_wide_image(&dense[m]->l, rows, 0));
        if (!c->n_experts) continue;
        const ek_gpu_matrix *const expert[] = {&w->expert_gate, &w->expert_up, &w->expert_down};
        for (size_t m = 0; m < sizeof expert / sizeof *expert; m++) {
            const int jobs = rows * c->top_k_experts / 32 + c->n_experts; /* of 32 pairs where a matrix has two limbs */
            x->image_bytes = larger(x->image_bytes, ek_cuda_wide_image(&expert[m]->l, rows, jobs));
        }
    }
    const ek_gpu_matrix *const others[] = {&x->g->w.embed,          &x->g->w.per_layer_head,  &x->g->w.per_layer_tail,
                                           &x->g->w.pre_projection, &x->g->w.post_projection, &x->g->w.centroids};
    for (size_t m = 0; m < sizeof others / sizeof *others; m++)
        x->image_bytes = larger(x->image_bytes, ek_cuda_wide_image(&others[m]->l, rows, 0));
}
