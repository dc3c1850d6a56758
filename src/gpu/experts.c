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
    /* Few pairs are alone with their expert. Of more some experts have twice as many as others, and jobs of 4 would
     * read these twice: 8, where the kernels take them and, in groups of 32, that is not slower. Form F takes 8; more
     * than 16 are a tile of ek_products_*_tile, whatever the matrix's limbs. */
    const bool eight = ek_cuda_job_fits(&w->expert_gate.l, 8) && ek_cuda_job_fits(&w->expert_up.l, 8) &&
                       ek_cuda_job_fits(&w->expert_down.l, 8) && (each > 2 || ek_cuda_leaf_fits(&w->expert_gate.l));
    const bool four = each <= 4 && (pairs <= EK_CUDA_CHOOSE_PAIRS || !eight);
    int tile = four ? 4 : each <= 8 || floats ? 8 : w->expert_up.l.limbs > limbs ? 16 : 64 / limbs;
    *jobs = (pairs + experts * (tile - 1)) / tile;
    if (*jobs > pairs) *jobs = pairs;
    return tile;
}

typedef struct work {
    int tile, jobs;
    CUdeviceptr index;
    bool known; /* jobs lie there before the launch in front has ended */
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
            .expert_bytes = (int64_t)w->l.bytes,
            .known = c->known};
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
                                     .image = w->l.units ? x->image[w->l.limbs - 1] : 0},
                               .jobs = x->jobs,
                               .n_jobs = x->n_jobs,
                               .index = c->index,
                               .expert_bytes = (int64_t)w->l.bytes};
    ek_cuda_linear_args_of(&a.a, &w->l, w->at);
    if (w2) a.codes2 = w2->at, a.scales2 = w2->at + w2->l.code_bytes, a.y2 = y2;
    ek_gpu_arrange(x, w, in, &p, (ek_cuda_arrange_args){.jobs = x->jobs, .n_jobs = x->n_jobs, .index = c->index});
    ek_gpu_launch(x->g, p.name, p.grid, &a);
}

/* For few rows in one launch; behind a router's blocks of the same launch: so many of them. */
static bool few_pairs(const ek_config *c, int n)
{
    return n <= EK_CUDA_CHOOSE_ROWS && n * c->top_k_experts <= EK_CUDA_CHOOSE_PAIRS &&
           c->n_experts <= EK_CUDA_CHOOSE_EXPERTS;
}

static ek_cuda_choose_args choose_args(const ek_gpu_run *x, const ek_gpu_layer *w, int n, int tile, int router_blocks)
{
    const ek_config *c = &x->g->m->config;
    return (ek_cuda_choose_args){.route = x->route,
                                 .expert_scale = w->expert_scale,
                                 .weight = x->weight,
                                 .pair_row = x->pair_row,
                                 .row_pair = x->row_pair,
                                 .jobs = x->jobs,
                                 .n_jobs = x->n_jobs,
                                 .ended = x->routed,
                                 .ld = c->n_experts,
                                 .n_experts = c->n_experts,
                                 .top_k = c->top_k_experts,
                                 .rows = n,
                                 .tile = tile,
                                 .router_blocks = router_blocks};
}

static void choose(ek_gpu_run *x, const ek_gpu_layer *w, int n, const work *all)
{
    const ek_config *c = &x->g->m->config;
    if (few_pairs(c, n)) {
        ek_cuda_choose_args a = choose_args(x, w, n, all->tile, 0);
        const size_t shared = 2 * EK_CUDA_CHOOSE_PAIRS * sizeof(int32_t);
        ek_gpu_launch(x->g, "ek_choose", (ek_cuda_grid){.x = 1, .threads = 256, .shared = shared, .overlap = true}, &a);
        return;
    }
    ek_cuda_route_args r = {.route = x->route,
                            .expert_scale = w->expert_scale,
                            .expert = x->expert,
                            .weight = x->weight,
                            .ld = c->n_experts,
                            .n_experts = c->n_experts,
                            .top_k = c->top_k_experts};
    const bool by_warp = n >= EK_GPU_PROMPT_ROWS && c->n_experts <= EK_CUDA_CHOOSE_EXPERTS && c->top_k_experts <= 32;
    ek_gpu_launch(x->g, by_warp ? "ek_route_warp" : "ek_route",
                  (ek_cuda_grid){.x = (unsigned)n, .threads = by_warp ? 32 : 256, .overlap = true}, &r);
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

static work work_of(const ek_gpu_run *x, const ek_gpu_layer *w, int n)
{
    work all = {.index = x->pair_row};
    all.tile = tile_of(&x->g->m->config, w, n * x->g->m->config.top_k_experts, &all.jobs);
    return all;
}

/* From rows that the experts read to their outputs. */
static void run_experts(ek_gpu_run *x, const ek_gpu_layer *w, ek_gpu_input in, int n, work all)
{
    const ek_config *c = &x->g->m->config;
    const int pairs = n * c->top_k_experts, inter = c->moe_intermediate_size;
    const ek_cuda_leaf_args pick = {.jobs = x->jobs, .n_jobs = x->n_jobs, .index = all.index};
    ek_gpu_input gated;
    if (ek_gpu_gated(x, &w->expert_gate, &w->expert_up, pick, all.tile, all.jobs, &in, pairs, &w->expert_down,
                     &gated)) {
        all.index = 0;
        project(x, &w->expert_down, NULL, &gated, &all, x->pair_out, 0);
        return;
    }
    const ek_cuda_products_args many = {.jobs = x->jobs, .n_jobs = x->n_jobs, .index = all.index};
    if (all.tile == EK_CUDA_WIDE_COLUMNS && ek_gpu_gated_wide(x, &w->expert_gate, &w->expert_up, many, all.tile,
                                                              all.jobs, &in, pairs, &w->expert_down, &gated)) {
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

static float router_factor(const ek_config *c)
{
    return (float)(1 / sqrt((double)c->hidden_size));
}

static void set_end(const ek_gpu_run *x, const ek_gpu_layer *w, ek_cuda_stage_args *end)
{
    end->pair_out = x->pair_out, end->row_pair = x->row_pair, end->weight = x->weight;
    end->top_k = x->g->m->config.top_k_experts;
    end->norm_1 = w->post_mlp_norm_1, end->norm_2 = w->post_mlp_norm_2;
}

void ek_gpu_experts(ek_gpu_run *x, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const work all = work_of(x, w, n);
    set_end(x, w, end);
    ek_gpu_input in = input(x, w->router_scale, router_factor(c), &w->router, n);
    ek_gpu_project(x, &w->router, &in, x->route, c->n_experts);
    choose(x, w, n, &all);
    run_experts(x, w, input(x, w->pre_mlp_norm_2, 0, &w->expert_gate, n), n, all);
}

/* --- beside the dense MLP */

/* Rows that w reads: records at q, or floats at f. */
static ek_gpu_input rows_at(const ek_gpu_run *x, int n, CUdeviceptr q, CUdeviceptr f, const ek_gpu_matrix *w)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_gpu_input in = ek_gpu_rows(w->l.units ? 0 : f, hidden, n, hidden);
    if (w->l.units == 0) return in;
    ek_cuda_acts_plan(&in.acts, hidden, w->l.a_group);
    in.acts.q = q;
    return in;
}

static bool reads_alike(const ek_gpu_matrix *w, const ek_gpu_matrix *w2)
{
    return w->l.units && w2->l.units && w->l.a_group == w2->l.a_group;
}

static bool in_groups_of_64(const ek_gpu_matrix *w)
{
    return w->l.units && w->l.a_group == 64;
}

/* Rows that are read from x->acts are written, for w, to the other place for records. */
static ek_cuda_acts gated_to(ek_gpu_run *x, int k, ek_gpu_input *out, int n, const ek_gpu_matrix *w)
{
    const CUdeviceptr read = x->acts;
    x->acts = x->acts2, x->acts2 = read;
    *out = ek_gpu_rows(0, 0, n, k);
    ek_cuda_acts_plan(&out->acts, k, w->l.a_group);
    out->acts.q = x->acts;
    return out->acts;
}

/* Few rows: the router and which experts beside gate and up, these experts' gate and up beside down. */
static bool few_together(ek_gpu_run *x, const ek_gpu_layer *w, const ek_gpu_input in[3], int n, work all)
{
    const ek_config *c = &x->g->m->config;
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c), pairs = n * c->top_k_experts;
    ek_cuda_heads p, q;
    ek_gpu_input gated, pair;
    if (!few_pairs(c, n) || !ek_cuda_linear_alike(&w->gate.l, &w->up.l) ||
        !ek_cuda_linear_alike(&w->expert_gate.l, &w->expert_up.l) ||
        !ek_cuda_experts_first_plan(&p, &w->gate.l, &w->down.l, &w->router.l, n) ||
        !ek_cuda_experts_second_plan(&q, &w->expert_gate.l, &w->down.l, &w->expert_down.l, n, all.tile, all.jobs,
                                     multiprocessors))
        return false;
    const ek_cuda_linear *l = &w->gate.l, *e = &w->expert_gate.l;
    ek_cuda_experts_first_args a = {.gate = {.a = ek_gpu_linear_args(x, &w->gate, &in[0], &p.q, 0, 0),
                                             .codes2 = w->up.at,
                                             .scales2 = w->up.at + l->code_bytes,
                                             .to = gated_to(x, l->n, &gated, n, &w->down)},
                                    .router = ek_gpu_linear_args(x, &w->router, &in[1], &p.k, x->route, c->n_experts),
                                    .choose = choose_args(x, w, n, all.tile, p.k_blocks * p.k_tiles),
                                    .gate_blocks = p.q_blocks,
                                    .route_panels = p.k_blocks};
    ek_gpu_launch(x->g, p.q.name, p.q.grid, &a);
    ek_cuda_experts_second_args b = {
        .part = {{.a = ek_gpu_linear_args(x, &w->down, &gated, &q.k, x->y, c->hidden_size), .holds = true},
                 {.a = ek_gpu_linear_args(x, &w->expert_gate, &in[2], &q.q, 0, 0),
                  .codes2 = w->expert_up.at,
                  .scales2 = w->expert_up.at + e->code_bytes,
                  .jobs = x->jobs,
                  .n_jobs = x->n_jobs,
                  .index = all.index,
                  .to = gated_to(x, e->n, &pair, pairs, &w->expert_down),
                  .expert_bytes = (int64_t)e->bytes,
                  .holds = true}},
        .down_blocks = q.k_blocks,
        .down_tiles = q.k_tiles,
        .gate_blocks = q.q_blocks};
    b.part[1].a.rows = all.tile;
    ek_gpu_launch(x->g, q.q.name, q.q.grid, &b);
    all.index = 0, all.known = true;
    project(x, &w->expert_down, NULL, &pair, &all, x->pair_out, 0);
    return true;
}

bool ek_gpu_experts_beside(ek_gpu_run *x, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_layer *w = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    if (!reads_alike(&w->gate, &w->up) || !reads_alike(&w->expert_gate, &w->expert_up)) return false;
    const bool by_64 = in_groups_of_64(&w->gate) && in_groups_of_64(&w->router) && in_groups_of_64(&w->expert_gate);
    ek_gpu_input in[] = {rows_at(x, n, x->acts, 0, &w->gate), rows_at(x, n, x->route_acts, x->x, &w->router),
                         rows_at(x, n, x->expert_acts, 0, &w->expert_gate)};
    const ek_cuda_inputs_args a = {.h = x->h,
                                   .h_out = x->h_between,
                                   .y = x->y,
                                   .y_norm = w->post_attention_norm,
                                   .norm = {w->pre_mlp_norm, w->router_scale, w->pre_mlp_norm_2},
                                   .to = {in[0].acts, in[1].acts, in[2].acts},
                                   .router = in[1].f,
                                   .ld = c->hidden_size,
                                   .eps = c->rms_norm_eps,
                                   .factor = router_factor(c),
                                   .n = c->hidden_size};
    const bool many = n >= EK_GPU_PROMPT_ROWS;
    const char *const kernel[2][2] = {{"ek_experts_inputs_any", "ek_experts_inputs_any_rows"},
                                      {"ek_experts_inputs", "ek_experts_inputs_rows"}};
    ek_gpu_launch(x->g, kernel[by_64][many],
                  (ek_cuda_grid){.x = many ? 1 : 3,
                                 .y = (unsigned)n,
                                 .threads = (unsigned)(c->hidden_size + 255) / 256 * 32,
                                 .overlap = true},
                  &a);
    set_end(x, w, end);
    end->h_from = x->h_between;
    const work all = work_of(x, w, n);
    if (few_together(x, w, in, n, all)) {
        end->known = true;
        return true;
    }
    ek_gpu_mlp(x, i, &in[0], n);
    ek_gpu_project(x, &w->router, &in[1], x->route, c->n_experts);
    choose(x, w, n, &all);
    run_experts(x, w, in[2], n, all);
    return true;
}
