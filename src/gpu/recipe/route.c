#include "gpu/recipe/sections.h"

#include "cuda/tiles.h"
#include "cuda/product/product.h"
#include "gpu/recipe/exchange.h"
#include "gpu/recipe/linear.h"

/* The number of pairs per job, and in *jobs the maximum number of jobs: all jobs of an expert but the last are full. */
static int tile_of(const ek_config *c, const ek_gpu_layer *l, int pairs, int *jobs, const ek_cuda_chip *chip)
{
    const bool floats = !l->expert_gate.l.units || !l->expert_up.l.units || !l->expert_down.l.units;
    int experts = pairs < c->n_experts ? pairs : c->n_experts, each = (pairs + experts - 1) / experts;
    if (chip->plain && pairs == c->top_k_experts) { /* of one row, for which kernels of few have one as well */
        *jobs = pairs;
        return 1;
    }
    const int limbs = l->expert_gate.l.limbs > l->expert_down.l.limbs ? l->expert_gate.l.limbs : l->expert_down.l.limbs;
    /* With few pairs most experts have one. With more, some experts have twice as many as others, and jobs of 4 would
     * read their weights twice. Jobs then have 8 pairs, if the kernels take 8 and, in groups of 32, if that is not
     * slower. Form F takes 8. More than 16 pairs are a tile of ek_products_*_tile, whatever the matrix's limbs. */
    const bool eight = ek_cuda_warp_job_fits(&l->expert_gate.l, 8) && ek_cuda_warp_job_fits(&l->expert_up.l, 8) &&
                       ek_cuda_warp_job_fits(&l->expert_down.l, 8) &&
                       (each > 2 || ek_cuda_affine_64(&l->expert_gate.l));
    const bool four = each <= 4 && (pairs <= EK_CUDA_CHOOSE_PAIRS || !eight);
    /* Narrow tiles of wgmma read an expert's weights once for a tile of rows, and their time grows with the expert's
     * rows. If most experts have one row, warps are faster; if most have more than a tile, wide tiles are
     * (docs/log/2026-11-29-experts.md). */
    const bool mid = each > 1 && each <= EK_CUDA_MID_JOB_ROWS && ek_cuda_mid_job_fits(&l->expert_gate.l, chip) &&
                     ek_cuda_mid_job_fits(&l->expert_up.l, chip) && ek_cuda_mid_job_fits(&l->expert_down.l, chip);
    int tile = four ? 4 : each <= 8 || floats ? 8 : l->expert_up.l.limbs > limbs ? 16 : 64 / limbs;
    if (mid) tile = ek_cuda_mid_job_rows(each);
    *jobs = (pairs + experts * (tile - 1)) / tile;
    if (*jobs > pairs) *jobs = pairs;
    return tile;
}

ek_gpu_work ek_gpu_work_of(const ek_gpu_run *x, const ek_gpu_layer *l, int n)
{
    ek_gpu_work all = {.index = x->experts.pair_row};
    all.tile = tile_of(&x->g->m->config, l, n * x->g->m->config.top_k_experts, &all.jobs, ek_cuda_chip_of(x->g->c));
    return all;
}

bool ek_gpu_few_pairs(const ek_config *c, int n)
{
    return n <= EK_CUDA_CHOOSE_ROWS && n * c->top_k_experts <= EK_CUDA_CHOOSE_PAIRS &&
           c->n_experts <= EK_CUDA_CHOOSE_EXPERTS;
}

ek_cuda_choose_args ek_gpu_choose_args(const ek_gpu_run *x, const ek_gpu_layer *l, int n, int tile, int router_blocks)
{
    const ek_config *c = &x->g->m->config;
    return (ek_cuda_choose_args){.route = x->experts.route,
                                 .expert_scale = l->expert_scale,
                                 .weight = x->experts.weight,
                                 .pair_row = x->experts.pair_row,
                                 .row_pair = x->experts.row_pair,
                                 .jobs = x->experts.jobs,
                                 .n_jobs = x->experts.n_jobs,
                                 .ended = x->experts.routed,
                                 .ld = c->n_experts,
                                 .n_experts = c->n_experts,
                                 .top_k = c->top_k_experts,
                                 .rows = n,
                                 .tile = tile,
                                 .router_blocks = router_blocks};
}

void ek_gpu_write_route(ek_gpu_writer *w, const ek_gpu_layer *l, int n, const ek_gpu_work *all)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    const bool plain = ek_gpu_is_plain(x);
    if (ek_gpu_few_pairs(c, n)) {
        const ek_cuda_choose_args a = ek_gpu_choose_args(x, l, n, all->tile, 0);
        const size_t shared = 2 * EK_CUDA_CHOOSE_PAIRS * sizeof(int32_t);
        const ek_cuda_grid grid = {.x = 1, .threads = 256, .shared = shared, .overlap = true};
        EK_GPU_WRITE(w, "ek_choose", grid, a);
        return;
    }
    const ek_cuda_route_args r = {.route = x->experts.route,
                                  .expert_scale = l->expert_scale,
                                  .expert = x->experts.expert,
                                  .weight = x->experts.weight,
                                  .ld = c->n_experts,
                                  .n_experts = c->n_experts,
                                  .top_k = c->top_k_experts};
    const bool by_warp = !plain && n >= EK_GPU_PROMPT_ROWS && c->n_experts <= EK_CUDA_CHOOSE_EXPERTS &&
                         c->top_k_experts <= 32;
    const ek_cuda_grid each = {.x = (unsigned)n, .threads = by_warp ? 32 : 256, .overlap = true};
    EK_GPU_WRITE(w, by_warp ? "ek_route_warp" : "ek_route", each, r);
    const ek_cuda_group_args g = {.expert = x->experts.expert,
                                  .pair_row = x->experts.pair_row,
                                  .row_pair = x->experts.row_pair,
                                  .jobs = x->experts.jobs,
                                  .n_jobs = x->experts.n_jobs,
                                  .n_experts = c->n_experts,
                                  .top_k = c->top_k_experts,
                                  .n_pairs = n * c->top_k_experts,
                                  .tile = all->tile};
    const ek_cuda_grid one = {.x = 1, .threads = 1024, .overlap = true};
    /* pairs of an expert may have any order, unless devices share outputs of the same pairs */
    EK_GPU_WRITE(w, ek_gpu_is_sharded(x) ? "ek_group_ordered" : "ek_group", one, g);
}
