/* Products of many rows by wgmma (cuda/linear.h): the image of their rows, the memory that it and nodes of T take. */
#include "gpu/run.h"

void ek_gpu_arrange(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with)
{
    if (!p->image || (in->image && in->image == x->n_images && in->image_limbs == w->l.limbs)) return;
    in->image = ++x->n_images, in->image_limbs = w->l.limbs;
    with.x = in->acts, with.image = x->image, with.rows = in->n;
    ek_gpu_launch(x->g, w->l.limbs == 1 ? "ek_arrange_l1" : "ek_arrange_l2", p->arrange, &with);
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
