/* Mixture of experts on the device (src/model/moe.c): pairs of (row, chosen expert) are sorted by expert, so that an
 * expert's weights are read once for up to a tile of rows. */
#include "gpu/recipe/exchange.h"
#include "gpu/recipe/sections.h"

#include <math.h>
#include <stddef.h>

#include "cuda/tiles.h"
#include "cuda/product/product.h"
#include "gpu/recipe/linear.h"

/* --- pairs and jobs. A job has up to a tile of rows of one expert, whose weights it reads once. */

typedef struct work {
    int tile, jobs;    /* maximum rows per job, and maximum jobs */
    CUdeviceptr index; /* sorted pair -> row; 0: itself */
} work;

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

static work work_of(const ek_gpu_run *x, const ek_gpu_layer *l, int n)
{
    work all = {.index = x->experts.pair_row};
    all.tile = tile_of(&x->g->m->config, l, n * x->g->m->config.top_k_experts, &all.jobs, ek_cuda_chip_of(x->g->c));
    return all;
}

bool ek_gpu_few_pairs(const ek_config *c, int n)
{
    return n <= EK_CUDA_CHOOSE_ROWS && n * c->top_k_experts <= EK_CUDA_CHOOSE_PAIRS &&
           c->n_experts <= EK_CUDA_CHOOSE_EXPERTS;
}

/* The arguments of the block that finds few pairs. It comes after router_blocks blocks of a router in the same launch,
 * or alone. */
static ek_cuda_choose_args choose_args(const ek_gpu_run *x, const ek_gpu_layer *l, int n, int tile, int router_blocks)
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

/* Makes pairs and jobs from the router's rows. */
static void write_route(ek_gpu_writer *w, const ek_gpu_layer *l, int n, const work *all)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    const bool plain = ek_gpu_is_plain(x);
    if (ek_gpu_few_pairs(c, n)) {
        const ek_cuda_choose_args a = choose_args(x, l, n, all->tile, 0);
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

static void write_router(ek_gpu_writer *w, const ek_gpu_layer *l, ek_gpu_input *in, int n, const work *all)
{
    ek_gpu_project(w, &l->router, in, w->x->experts.route, w->x->g->m->config.n_experts);
    write_route(w, l, n, all);
}

/* --- their products */

/* x = norm(h) for the router and for the experts; m decides how x is quantised. */
static ek_gpu_input input(ek_gpu_writer *w, CUdeviceptr norm, float factor, const ek_gpu_matrix *m, int n)
{
    const ek_config *c = &w->x->g->m->config;
    ek_gpu_input in = ek_gpu_rows(w->x->buf.x, c->hidden_size, n, c->hidden_size);
    const ek_cuda_stage_args a = {.h = w->x->buf.h,
                                  .x_norm = norm,
                                  .x = w->x->buf.x,
                                  .to = ek_gpu_acts_for(w, &in, m),
                                  .factor = factor,
                                  .has_factor = factor != 0};
    ek_gpu_write_rows(w, a, n);
    return in;
}

/* y[pair] = a row of `in` times the matrix of its expert; ldy is the distance between pairs. With m2 the same goes to
 * y2. */
static void project(ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, ek_gpu_input *in, const work *c,
                    CUdeviceptr y, CUdeviceptr y2, int64_t ldy)
{
    const ek_gpu_run *x = w->x;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    ek_cuda_product p;
    ek_gpu_quantize(w, in, m);
    if (!m2 && ek_cuda_jobs_plan(&p, &m->l, c->tile, c->jobs, chip)) {
        ek_cuda_warp_args a = {
            .a = {.x = in->acts, .y = y, .ldy = ldy, .rows = c->tile, .share = p.share, .slots = p.slots},
            .jobs = x->experts.jobs,
            .n_jobs = x->experts.n_jobs,
            .index = c->index,
            .expert_bytes = (int64_t)m->l.bytes,
            .known = w->known};
        ek_cuda_linear_args_of(&a.a, &m->l, m->at);
        EK_GPU_WRITE(w, p.name, p.grid, a);
        return;
    }
    p = ek_cuda_products_plan(&m->l, c->tile, c->jobs, m2 ? 2 : 1, chip);
    ek_cuda_products_args a = {.a = {.x = in->acts,
                                     .f = in->f,
                                     .ldf = in->ld,
                                     .y = y,
                                     .ldy = ldy,
                                     .rows = c->tile,
                                     .pass = p.pass,
                                     .levels = p.levels,
                                     .slots = p.slots,
                                     .stack = x->buf.stack,
                                     .operand = m->l.units ? w->operand[m->l.limbs - 1] : 0},
                               .jobs = x->experts.jobs,
                               .n_jobs = x->experts.n_jobs,
                               .index = c->index,
                               .expert_bytes = (int64_t)m->l.bytes};
    ek_cuda_linear_args_of(&a.a, &m->l, m->at);
    if (m2) a.codes2 = m2->at, a.scales2 = m2->at + m2->l.code_bytes, a.y2 = y2;
    ek_gpu_arrange(w, m, in, &p,
                   (ek_cuda_arrange_args){.jobs = x->experts.jobs, .n_jobs = x->experts.n_jobs, .index = c->index});
    EK_GPU_WRITE(w, p.name, p.grid, a);
}

static ek_gpu_gating gating_of(const ek_gpu_layer *l, const work *all)
{
    return (ek_gpu_gating){
        .gate = &l->expert_gate, .upper = &l->expert_up, .next = &l->expert_down, .tile = all->tile, .jobs = all->jobs};
}

/* The jobs of a product with its gate. holds: its launch waits until they are written. */
static ek_cuda_warp_args jobs_of(const ek_gpu_run *x, const work *all, bool holds)
{
    return (ek_cuda_warp_args){
        .jobs = x->experts.jobs, .n_jobs = x->experts.n_jobs, .index = all->index, .holds = holds};
}

/* Gate and up by separate products, in one launch if they are alike. */
static void project_both(ek_gpu_writer *w, const ek_gpu_gating *g, ek_gpu_input *in, const work *all, CUdeviceptr gate,
                         CUdeviceptr up, int64_t ldy)
{
    const bool alike = ek_cuda_linear_alike(&g->gate->l, &g->upper->l);
    project(w, g->gate, alike ? g->upper : NULL, in, all, gate, alike ? up : 0, ldy);
    if (!alike) project(w, g->upper, NULL, in, all, up, 0, ldy);
}

/* From the experts' input rows to their outputs. */
static void write_experts(ek_gpu_writer *w, const ek_gpu_layer *l, ek_gpu_input in, int n, work all)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    const int pairs = n * c->top_k_experts, inter = c->moe_intermediate_size;
    const ek_gpu_gating g = gating_of(l, &all);
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    ek_gpu_input gated;
    if (by.by != EK_GPU_GATE_APART) {
        gated = ek_gpu_write_gated(w, &by, &g, jobs_of(x, &all, ek_cuda_mid_job_takes(all.tile)), &in, pairs);
    } else {
        project_both(w, &g, &in, &all, x->experts.pair_gate, x->experts.pair_up, inter);
        gated = ek_gpu_gate(w, x->experts.pair_gate, x->experts.pair_up, inter, inter, pairs, inter, g.next);
    }
    all.index = 0;
    project(w, g.next, NULL, &gated, &all, x->experts.pair_out, 0, c->hidden_size);
}

/* The same for devices that divide outputs: here a device gates its piece of e, and after the exchange the experts'
 * down reads the whole. */
static ek_gpu_input write_experts_part(ek_gpu_writer *w, const ek_gpu_layer *l, ek_gpu_input in, int n, const work *all,
                                       ek_gpu_exchange *e)
{
    const ek_gpu_run *x = w->x;
    const int pairs = n * x->g->m->config.top_k_experts;
    ek_gpu_gating g = gating_of(l, all);
    const int width = g.next->l.k;
    const bool records = ek_gpu_goes_as_records(x, g.next);
    const ek_gpu_parts parts = ek_gpu_inputs_of(x, g.next);
    const ek_gpu_range part = ek_gpu_part_here(x, &parts);
    const ek_gpu_input out = records ? ek_gpu_records_for(g.next, x->exchange.pair_gathered, pairs)
                                     : ek_gpu_rows(x->experts.pair_gate, width, pairs, width);
    if (records) g.to = ek_gpu_part_of_records(&out.acts, part);
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    if (records && by.by == EK_GPU_GATE_FEW) {
        ek_gpu_write_gated(w, &by, &g, jobs_of(x, all, true), &in, pairs);
    } else {
        const CUdeviceptr gate = ek_gpu_at_part(x->experts.pair_gate, part),
                          up = ek_gpu_at_part(x->experts.pair_up, part);
        project_both(w, &g, &in, all, gate, up, width);
        ek_gpu_gate_to(w, &g.to, gate, up, width, pairs, part.n);
    }
    if (records) ek_gpu_exchange_records(x, e, offsetof(ek_gpu_run, exchange.pair_gathered), &out, g.next, &parts);
    else ek_gpu_exchange_floats(x, e, offsetof(ek_gpu_run, experts.pair_gate), width, &parts, pairs);
    return out;
}

/* Writes both downs, whose outputs go to all devices. */
static void write_downs_part(ek_gpu_writer *w, int i, ek_gpu_input *gated, ek_gpu_input *pair, work all, int n)
{
    const ek_gpu_run *x = w->x;
    const int hidden = x->g->m->config.hidden_size;
    const ek_gpu_parts outputs = ek_gpu_outputs_of(x, hidden);
    ek_gpu_exchange e = {0};
    ek_gpu_write_down_part(w, i, gated);
    all.index = 0;
    project(w, &x->g->w.layer[i].expert_down, NULL, pair, &all,
            ek_gpu_at_part(x->experts.pair_out, ek_gpu_part_here(x, &outputs)), 0, hidden);
    ek_gpu_exchange_floats(x, &e, offsetof(ek_gpu_run, buf.y), hidden, &outputs, n);
    ek_gpu_exchange_floats(x, &e, offsetof(ek_gpu_run, experts.pair_out), hidden, &outputs, pair->n);
    ek_gpu_write_exchange(w, &e);
}

static float router_factor(const ek_config *c)
{
    return (float)(1 / sqrt((double)c->hidden_size));
}

static void set_end(const ek_gpu_run *x, const ek_gpu_layer *l, ek_cuda_stage_args *end)
{
    end->pair_out = x->experts.pair_out, end->row_pair = x->experts.row_pair, end->weight = x->experts.weight;
    end->top_k = x->g->m->config.top_k_experts;
    end->norm_1 = l->post_mlp_norm_1, end->norm_2 = l->post_mlp_norm_2;
}

static void write_apart(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_layer *l = &w->x->g->w.layer[i];
    const ek_config *c = &w->x->g->m->config;
    const work all = work_of(w->x, l, n);
    const ek_cuda_stage_args behind = {.y = w->x->buf.y, .y_norm = l->post_attention_norm};
    ek_gpu_input in = ek_gpu_write_rows_for(w, behind, &(ek_gpu_reading){.layer = i, .n = n, .by = EK_GPU_TO_MLP});
    const bool shard = ek_gpu_is_sharded(w->x);
    ek_gpu_exchange e = {0};
    ek_gpu_input gated = {0}, pair;
    if (shard) gated = ek_gpu_write_mlp_part(w, i, &in, n, &e);
    else ek_gpu_write_mlp(w, i, &in, n);
    set_end(w->x, l, end);
    in = input(w, l->router_scale, router_factor(c), &l->router, n);
    write_router(w, l, &in, n, &all);
    in = input(w, l->pre_mlp_norm_2, 0, &l->expert_gate, n);
    if (!shard) {
        write_experts(w, l, in, n, all);
        return;
    }
    pair = write_experts_part(w, l, in, n, &all, &e);
    ek_gpu_write_exchange(w, &e);
    write_downs_part(w, i, &gated, &pair, all, n);
}

/* --- beside the dense MLP */

/* Rows in the form that m reads: records at q, or floats at f. */
static ek_gpu_input rows_at(const ek_gpu_run *x, int n, CUdeviceptr q, CUdeviceptr f, const ek_gpu_matrix *m)
{
    const int hidden = x->g->m->config.hidden_size;
    ek_gpu_input in = m->l.units ? ek_gpu_records_for(m, q, n) : ek_gpu_rows(f, hidden, n, hidden);
    in.ld = hidden;
    return in;
}

static bool reads_alike(const ek_gpu_matrix *m, const ek_gpu_matrix *m2)
{
    return m->l.units && m2->l.units && m->l.a_group == m2->l.a_group;
}

static bool in_groups_of_64(const ek_gpu_matrix *m)
{
    return m->l.units && m->l.a_group == 64;
}

/* Joint launches for few rows: the first has gate and up, the router, and the choice of experts; the second has down,
 * and these experts' gate and up. */
typedef struct together {
    ek_cuda_heads first, second;
} together;

static bool choose_first(const ek_gpu_run *x, const ek_gpu_layer *l, int n, ek_cuda_heads *out)
{
    return !ek_gpu_is_plain(x) && ek_gpu_few_pairs(&x->g->m->config, n) && ek_cuda_linear_alike(&l->gate.l, &l->up.l) &&
           ek_cuda_experts_first_plan(out, &l->gate.l, &l->down.l, &l->router.l, n, ek_cuda_chip_of(x->g->c));
}

static bool choose_together(const ek_gpu_run *x, const ek_gpu_layer *l, int n, const work *all, together *out)
{
    return choose_first(x, l, n, &out->first) && ek_cuda_linear_alike(&l->expert_gate.l, &l->expert_up.l) &&
           ek_cuda_experts_second_plan(&out->second, &l->expert_gate.l, &l->down.l, &l->expert_down.l, n, all->tile,
                                       all->jobs, ek_cuda_chip_of(x->g->c));
}

static void write_first(ek_gpu_writer *w, const ek_gpu_layer *l, const ek_cuda_heads *p, const ek_gpu_input in[3],
                        int n, const work *all, const ek_cuda_acts *to)
{
    const ek_gpu_run *x = w->x;
    const ek_cuda_experts_first_args a = {
        .gate = {.a = ek_gpu_linear_args(w, &l->gate, &in[0], &p->q, 0, 0),
                 .codes2 = l->up.at,
                 .scales2 = l->up.at + l->gate.l.code_bytes,
                 .to = *to},
        .router = ek_gpu_linear_args(w, &l->router, &in[1], &p->k, x->experts.route, x->g->m->config.n_experts),
        .choose = choose_args(x, l, n, all->tile, p->k_blocks * p->k_tiles),
        .gate_blocks = p->q_blocks,
        .route_panels = p->k_blocks};
    EK_GPU_WRITE(w, p->q.name, p->q.grid, a);
}

static void write_together(ek_gpu_writer *w, const ek_gpu_layer *l, const together *t, const ek_gpu_input in[3], int n,
                           work all)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    const ek_cuda_heads *q = &t->second;
    const ek_cuda_linear *e = &l->expert_gate.l;
    const ek_gpu_input gated = ek_gpu_turn_acts(w, l->gate.l.n, n, &l->down);
    write_first(w, l, &t->first, in, n, &all, &gated.acts);
    ek_gpu_input pair = ek_gpu_turn_acts(w, e->n, n * c->top_k_experts, &l->expert_down);
    ek_cuda_experts_second_args b = {
        .part = {{.a = ek_gpu_linear_args(w, &l->down, &gated, &q->k, x->buf.y, c->hidden_size), .holds = true},
                 {.a = ek_gpu_linear_args(w, &l->expert_gate, &in[2], &q->q, 0, 0),
                  .codes2 = l->expert_up.at,
                  .scales2 = l->expert_up.at + e->code_bytes,
                  .jobs = x->experts.jobs,
                  .n_jobs = x->experts.n_jobs,
                  .index = all.index,
                  .to = pair.acts,
                  .expert_bytes = (int64_t)e->bytes,
                  .holds = true}},
        .down_blocks = q->k_blocks,
        .down_tiles = q->k_tiles,
        .gate_blocks = q->q_blocks};
    b.part[1].a.rows = all.tile;
    EK_GPU_WRITE(w, q->q.name, q->q.grid, b);
    all.index = 0, w->known = true;
    project(w, &l->expert_down, NULL, &pair, &all, x->experts.pair_out, 0, c->hidden_size);
}

static void write_inputs(ek_gpu_writer *w, const ek_gpu_layer *l, const ek_gpu_input in[3], int n)
{
    static const char *const kernel[2][2] = {{"ek_experts_inputs_any", "ek_experts_inputs_any_rows"},
                                             {"ek_experts_inputs", "ek_experts_inputs_rows"}};
    const ek_config *c = &w->x->g->m->config;
    const bool by_64 = in_groups_of_64(&l->gate) && in_groups_of_64(&l->router) && in_groups_of_64(&l->expert_gate);
    const bool many = n >= EK_GPU_PROMPT_ROWS;
    const ek_cuda_inputs_args a = {.h = w->x->buf.h,
                                   .h_out = w->x->experts.h_between,
                                   .y = w->x->buf.y,
                                   .y_norm = l->post_attention_norm,
                                   .norm = {l->pre_mlp_norm, l->router_scale, l->pre_mlp_norm_2},
                                   .to = {in[0].acts, in[1].acts, in[2].acts},
                                   .router = in[1].f,
                                   .ld = c->hidden_size,
                                   .eps = c->rms_norm_eps,
                                   .factor = router_factor(c),
                                   .n = c->hidden_size};
    const ek_cuda_grid grid = {
        .x = many ? 1 : 3, .y = (unsigned)n, .threads = (unsigned)(c->hidden_size + 255) / 256 * 32, .overlap = true};
    EK_GPU_WRITE(w, kernel[by_64][many], grid, a);
}

static void write_parts_beside(ek_gpu_writer *w, int i, int n, ek_gpu_input in[3], const work *all)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    ek_gpu_exchange e = {0};
    ek_gpu_input gated;
    ek_cuda_heads first;
    if (ek_gpu_goes_as_records(x, &l->down) && choose_first(x, l, n, &first)) {
        const ek_gpu_parts parts = ek_gpu_inputs_of(x, &l->down);
        const ek_gpu_range part = ek_gpu_part_here(x, &parts);
        gated = ek_gpu_records_for(&l->down, x->exchange.gathered, n);
        const ek_cuda_acts to = ek_gpu_part_of_records(&gated.acts, part);
        write_first(w, l, &first, in, n, all, &to);
        ek_gpu_exchange_records(x, &e, offsetof(ek_gpu_run, exchange.gathered), &gated, &l->down, &parts);
    } else {
        gated = ek_gpu_write_mlp_part(w, i, &in[0], n, &e);
        write_router(w, l, &in[1], n, all);
    }
    ek_gpu_input pair = write_experts_part(w, l, in[2], n, all, &e);
    ek_gpu_write_exchange(w, &e);
    write_downs_part(w, i, &gated, &pair, *all, n);
}

/* In an order in which launches that do not depend on each other follow each other: a device that runs them beside each
 * other needs no barrier between them (vulkan/stream.c). */
static void write_plain(ek_gpu_writer *w, int i, int n, ek_gpu_input in[3], const work *all)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_config *c = &x->g->m->config;
    const int inter = c->layer[i].intermediate_size;
    const ek_gpu_gating g = {.gate = &l->gate, .upper = &l->up, .next = &l->down, .tile = n};
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    ek_gpu_input gated;
    if (by.by == EK_GPU_GATE_FEW) gated = ek_gpu_write_gated(w, &by, &g, (ek_cuda_warp_args){0}, &in[0], n);
    else ek_gpu_project_two(w, &l->gate, &l->up, &in[0], x->buf.gate, x->buf.up, inter);
    ek_gpu_project(w, &l->router, &in[1], x->experts.route, c->n_experts);
    if (by.by != EK_GPU_GATE_FEW) gated = ek_gpu_gate(w, x->buf.gate, x->buf.up, inter, inter, n, inter, &l->down);
    write_route(w, l, n, all);
    ek_gpu_project(w, &l->down, &gated, x->buf.y, c->hidden_size);
    write_experts(w, l, in[2], n, *all);
}

static void write_beside(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const work all = work_of(x, l, n);
    ek_gpu_input in[] = {rows_at(x, n, w->acts, 0, &l->gate),
                         rows_at(x, n, x->experts.route_acts, x->buf.x, &l->router),
                         rows_at(x, n, x->experts.expert_acts, 0, &l->expert_gate)};
    together t;
    write_inputs(w, l, in, n);
    set_end(x, l, end);
    end->h_from = x->experts.h_between;
    if (ek_gpu_is_sharded(x)) {
        write_parts_beside(w, i, n, in, &all);
    } else if (choose_together(x, l, n, &all, &t)) {
        write_together(w, l, &t, in, n, all);
    } else if (ek_gpu_is_plain(x)) {
        write_plain(w, i, n, in, &all);
    } else {
        ek_gpu_write_mlp(w, i, &in[0], n);
        write_router(w, l, &in[1], n, &all);
        write_experts(w, l, in[2], n, all);
    }
    end->known = w->known;
}

void ek_gpu_write_moe(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_layer *l = &w->x->g->w.layer[i];
    if (reads_alike(&l->gate, &l->up) && reads_alike(&l->expert_gate, &l->expert_up)) write_beside(w, i, n, end);
    else write_apart(w, i, n, end);
}
