/* The row-wise stages between two linear layers (cuda/model_args.h, ek_stage). */
#include "gpu/run.h"

void ek_gpu_stage(ek_gpu_run *x, ek_cuda_stage_args *a, int n)
{
    const ek_config *c = &x->g->m->config;
    const unsigned warps = (unsigned)(c->hidden_size + 255) / 256;
    a->h = x->h, a->ld = c->hidden_size, a->n = c->hidden_size, a->eps = c->rms_norm_eps;
    ek_gpu_launch(x->g,
                  !a->pair_out                              ? "ek_stage"
                  : c->hidden_size <= EK_CUDA_EXPERTS_WIDTH ? "ek_experts_end"
                                                            : "ek_experts_end_wide",
                  (ek_cuda_grid){.x = (unsigned)n, .threads = warps * 32, .overlap = true}, a);
}

bool ek_gpu_serves(const ek_gpu_matrix *w, const ek_gpu_matrix *b)
{
    return b->l.n == 0 || (b->l.units && b->l.a_group == w->l.a_group);
}

bool ek_gpu_serves_heads(const ek_gpu_layer *w)
{
    return ek_gpu_serves(&w->q, &w->k) && ek_gpu_serves(&w->q, &w->v);
}

ek_gpu_input ek_gpu_stage_to(ek_gpu_run *x, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *w, bool all,
                             int n)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_gpu_input in = ek_gpu_rows(x->x, hidden, n, hidden);
    a.x_norm = norm, a.to = ek_gpu_acts_for(x, &in, w);
    if (all && a.to.q) in.f = 0; /* what a kernel writes, the next one waits for */
    a.x = in.f;
    ek_gpu_stage(x, &a, n);
    return in;
}

ek_gpu_input ek_gpu_stage_to_heads(ek_gpu_run *x, ek_cuda_stage_args a, const ek_gpu_layer *w, int n)
{
    return ek_gpu_stage_to(x, a, w->input_norm, &w->q, ek_gpu_serves_heads(w), n);
}
