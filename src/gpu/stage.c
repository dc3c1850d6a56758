/* The row-wise stages between two linear layers (cuda/model_args.h, ek_stage; cuda/image_args.h). */
#include "gpu/run.h"

static void launch(ek_gpu_run *x, ek_cuda_stage_args *a, int n, ek_cuda_images to)
{
    const ek_config *c = &x->g->m->config;
    const unsigned warps = (unsigned)(c->hidden_size + 255) / 256;
    const bool many = n >= EK_GPU_PROMPT_ROWS && c->hidden_size <= EK_CUDA_STAGE_ROWS_WIDTH &&
                      (!a->to.q || a->to.a_group == 64);
    const char *experts = many                                      ? "ek_stage_rows_experts"
                          : c->hidden_size <= EK_CUDA_EXPERTS_WIDTH ? "ek_experts_end"
                                                                    : "ek_experts_end_wide";
    EK_ASSERT(many || (!to.one && !to.two));
    a->h = x->h, a->ld = c->hidden_size, a->n = c->hidden_size, a->eps = c->rms_norm_eps;
    ek_cuda_stage_rows_args rows = {.s = *a, .to = to};
    ek_gpu_launch(x->g,
                  a->pair_out ? experts
                  : many      ? "ek_stage_rows"
                              : "ek_stage",
                  (ek_cuda_grid){.x = (unsigned)n, .threads = warps * 32, .overlap = true}, many ? (void *)&rows : a);
}

void ek_gpu_stage(ek_gpu_run *x, ek_cuda_stage_args *a, int n)
{
    launch(x, a, n, (ek_cuda_images){0});
}

/* Whether records of rows for w are what b reads, too. */
static bool serves(const ek_gpu_matrix *w, const ek_gpu_matrix *b)
{
    return b->l.n == 0 || (b->l.units && b->l.a_group == w->l.a_group);
}

bool ek_gpu_serves_heads(const ek_gpu_layer *w)
{
    return serves(&w->q, &w->k) && serves(&w->q, &w->v);
}

ek_gpu_input ek_gpu_stage_to(ek_gpu_run *x, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *w, bool all,
                             int n)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_gpu_input in = ek_gpu_rows(x->x, hidden, n, hidden);
    a.x_norm = norm, a.to = ek_gpu_acts_for(x, &in, w);
    if (all && a.to.q) in.f = 0; /* what a kernel writes, the next one waits for */
    a.x = in.f;
    launch(x, &a, n, (ek_cuda_images){0});
    return in;
}

ek_gpu_input ek_gpu_stage_for(ek_gpu_run *x, ek_cuda_stage_args a, int i, bool heads, int n)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const int hidden = x->g->m->config.hidden_size;
    const CUdeviceptr norm = heads ? w->input_norm : w->pre_mlp_norm;
    const ek_gpu_matrix *first = heads ? &w->q : &w->gate;
    const bool all = heads ? ek_gpu_serves_heads(w) : serves(&w->gate, &w->up);
    ek_gpu_input in = ek_gpu_rows(x->x, hidden, n, hidden);
    bool complete;
    const ek_cuda_images to = ek_gpu_images_for(x, i, heads, n, &in, &complete);
    if (!to.one && !to.two) return ek_gpu_stage_to(x, a, norm, first, all, n);
    const uint64_t number = in.number;
    a.x_norm = norm;
    if (!complete) a.to = ek_gpu_acts_for(x, &in, first);
    if (complete || (all && a.to.q)) in.f = 0;
    a.x = in.f, in.number = number;
    launch(x, &a, n, to);
    return in;
}
