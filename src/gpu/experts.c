/* Mixture of experts on the device (src/model/moe.c): pairs of (row, chosen expert) are sorted by expert, so that an
 * expert's weights are read once for up to a tile of rows. */
#include <math.h>

#include "gpu/run.h"

/* x = norm(h) for the router and for the experts; w decides how it is quantised. */
static ek_gpu_input input(ek_gpu_run *x, CUdeviceptr norm, float factor, const ek_gpu_matrix *w, int n)
{
    const ek_config *c = &x->g->m->config;
    ek_gpu_input in = ek_gpu_rows(x->x, c->hidden_size, n, c->hidden_size);
    ek_cuda_stage_args a = {.h = x->h,
                            .x_norm = norm,
                            .x = x->x,
                            .to = ek_gpu_acts_for(x, &in, w),
                            .factor = factor,
                            .has_factor = factor != 0};
    ek_gpu_stage(x, &a, n);
    return in;
}

/* Pairs of a job, and how many jobs there can be: an expert's pairs fill all jobs but the last. */
static int tile_of(const ek_config *c, const ek_gpu_layer *w, int pairs, int *jobs)
{
    const bool floats = !w->expert_gate.l.units || !w->expert_up.l.units || !w->expert_down.l.units;
    int experts = pairs < c->n_experts ? pairs : c->n_experts, each = (pairs + experts - 1) / experts;
    const int limbs = w->expert_gate.l.limbs > w->expert_down.l.limbs ? w->expert_gate.l.limbs : w->expert_down.l.limbs;
    /* Form F takes 8; more than 16 are a tile of ek_products_*_tile, whatever the matrix's limbs */
    int tile = each <= 4 ? 4 : each <= 8 || floats ? 8 : w->expert_up.l.limbs > limbs ? 16 : 64 / limbs;
    *jobs = (pairs + experts * (tile - 1)) / tile;
    if (*jobs > pairs) *jobs = pairs;
    return tile;
}

typedef struct work {
    int tile, jobs;
    CUdeviceptr index;
} work;

/* y[pair] = a row of `in` times its expert's matrix; with w2, the same to y2. */
static void project(ek_gpu_run *x, const ek_gpu_matrix *w, const ek_gpu_matrix *w2, ek_gpu_input *in, const work *c,
                    CUdeviceptr y, CUdeviceptr y2)
{
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c);
    ek_gpu_quantize(x, in, w);
    if (!w2 && ek_cuda_job_fits(&w->l, c->tile)) {
        ek_cuda_product p = ek_cuda_few_plan(&w->l, c->tile, c->jobs, EK_CUDA_GATE_NONE, multiprocessors);
        ek_cuda_leaf_args a = {
            .a = {.x = in->acts, .y = y, .ldy = w->l.n, .rows = c->tile, .turn = p.turn, .stages = p.stages},
            .jobs = x->jobs,
            .n_jobs = x->n_jobs,
            .index = c->index,
            .expert_bytes = (int64_t)w->l.bytes};
        ek_cuda_linear_args_of(&a.a, &w->l, w->at);
        ek_gpu_launch(x->g, p.name, p.grid, &a);
        return;
    }
    ek_cuda_product p = ek_cuda_products_plan(&w->l, c->tile, c->jobs, w2 ? 2 : 1, multiprocessors);
    ek_cuda_products_args a = {.a = {.x = in->acts,
                                     .f = in->f,
                                     .ldf = in->ld,
                                     .y = y,
                                     .ldy = w->l.n,
                                     .rows = c->tile,
                                     .pass = p.pass,
                                     .levels = p.levels,
                                     .stack = x->stack,
                                     .image = x->image},
                               .jobs = x->jobs,
                               .n_jobs = x->n_jobs,
                               .index = c->index,
                               .expert_bytes = (int64_t)w->l.bytes};
    ek_cuda_linear_args_of(&a.a, &w->l, w->at);
    if (w2) a.codes2 = w2->at, a.scales2 = w2->at + w2->l.code_bytes, a.y2 = y2;
    ek_gpu_arrange(x, w, in, &p, (ek_cuda_arrange_args){.jobs = x->jobs, .n_jobs = x->n_jobs, .index = c->index});
    ek_gpu_launch(x->g, p.name, p.grid, &a);
}

static void choose(ek_gpu_run *x, const ek_gpu_layer *w, int n, const work *all)
{
    const ek_config *c = &x->g->m->config;
    ek_cuda_route_args r = {.route = x->route,
                            .expert_scale = w->expert_scale,
                            .expert = x->expert,
                            .weight = x->weight,
                            .ld = c->n_experts,
                            .n_experts = c->n_experts,
                            .top_k = c->top_k_experts};
    ek_gpu_launch(x->g, "ek_route", (ek_cuda_grid){.x = (unsigned)n, .threads = 256, .overlap = true}, &r);
    ek_cuda_group_args g = {.expert = x->expert,
                            .pair_row = x->pair_row,
                            .row_pair = x->row_pair,
                            .jobs = x->jobs,
                            .n_jobs = x->n_jobs,
                            .n_experts = c->n_experts,
                            .top_k = c->top_k_experts,
                            .n_pairs = n * c->top_k_experts,
                            .tile = all->tile};
    ek_gpu_launch(x->g, "ek_group", (ek_cuda_grid){.x = 1, .threads = 1024, .overlap = true}, &g);
}

void ek_gpu_experts(ek_gpu_run *x, int i, int n)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const int pairs = n * c->top_k_experts, inter = c->moe_intermediate_size;
    work all = {.index = x->pair_row};
    all.tile = tile_of(c, w, pairs, &all.jobs);
    ek_gpu_input in = input(x, w->router_scale, (float)(1 / sqrt((double)c->hidden_size)), &w->router, n);
    ek_gpu_project(x, &w->router, &in, x->route, c->n_experts);
    choose(x, w, n, &all);
    in = input(x, w->pre_mlp_norm_2, 0, &w->expert_gate, n);
    const ek_cuda_leaf_args pick = {.jobs = x->jobs, .n_jobs = x->n_jobs, .index = all.index};
    ek_gpu_input gated;
    if (ek_gpu_gated(x, &w->expert_gate, &w->expert_up, pick, all.tile, all.jobs, &in, pairs, &w->expert_down,
                     &gated)) {
        all.index = 0;
        project(x, &w->expert_down, NULL, &gated, &all, x->pair_out, 0);
        return;
    }
    if (ek_cuda_linear_alike(&w->expert_gate.l, &w->expert_up.l)) {
        project(x, &w->expert_gate, &w->expert_up, &in, &all, x->pair_gate, x->pair_up);
    } else {
        project(x, &w->expert_gate, NULL, &in, &all, x->pair_gate, 0);
        project(x, &w->expert_up, NULL, &in, &all, x->pair_up, 0);
    }
    in = ek_gpu_gate(x, x->pair_gate, x->pair_up, inter, inter, pairs, inter, &w->expert_down);
    all.index = 0;
    project(x, &w->expert_down, NULL, &in, &all, x->pair_out, 0);
}
