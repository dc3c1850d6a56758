/* A layer with experts behind attention, by the launches that hold blocks of the experts and of the dense MLP, against
 * the scalar definitions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/model_args.h"
#include "experts.h"

/* n rows that m reads. */
static ek_cuda_acts record(dev *d, const matrix *m, int k, int n)
{
    ek_cuda_acts to = {0};
    if (!m->l.units) return to;
    const size_t bytes = ek_cuda_acts_plan(&to, k, m->l.a_group) * (size_t)n;
    to.q = up(d, NULL, bytes);
    return to;
}

static ek_cuda_linear_args product(const matrix *m, const ek_cuda_acts *in, const ek_cuda_product *p, int n,
                                   CUdeviceptr y)
{
    ek_cuda_linear_args a = {.x = *in, .y = y, .ldy = m->l.n, .rows = n, .share = p->share, .slots = p->slots};
    ek_cuda_linear_args_of(&a, &m->l, m->at);
    return a;
}

static void run(layer *e, const ek_cuda_product *p, const void *args)
{
    ek_cuda_kernel kernel = find(e->d, p->name, p->grid.shared);
    if (p->grid.cluster) must(ek_cuda_allow_cluster(e->d->c, &kernel));
    launch(e->d, &kernel, p->grid, args);
}

/* Whether each pair has a place of its own in a job of its expert; which[place] becomes the pair. */
static bool check_jobs(layer *e, int n, int tile, const ek_cuda_choose_args *c, int32_t *which)
{
    const int pairs = n * e->top;
    const size_t ints = sizeof(int32_t) * (size_t)pairs;
    int32_t *row_pair = down(e->d, c->row_pair, ints), *pair_row = down(e->d, c->pair_row, ints);
    uint32_t *n_jobs = down(e->d, c->n_jobs, sizeof *n_jobs);
    ek_cuda_job *job = down(e->d, c->jobs, sizeof *job * (size_t)pairs);
    int taken = 0;
    bool held[MOST_PAIRS] = {false};
    bool good = *n_jobs >= 1 && *n_jobs <= (uint32_t)pairs;
    for (int i = 0; i < pairs; i++) which[i] = -1;
    for (int i = 0; i < pairs && good; i++) {
        const int at = row_pair[i];
        good = at >= 0 && at < pairs && which[at] < 0 && pair_row[at] == i / e->top;
        if (good) which[at] = i;
    }
    for (uint32_t j = 0; good && j < *n_jobs; j++) { /* in any order: a pair belongs to one job */
        good = job[j].first >= 0 && job[j].n >= 1 && job[j].n <= tile && job[j].first + job[j].n <= pairs;
        for (int i = job[j].first; good && i < job[j].first + job[j].n; i++)
            good = which[i] >= 0 && e->id[which[i]] == job[j].expert && !held[i], held[i] = true;
        taken += job[j].n;
    }
    free(row_pair), free(pair_row), free(n_jobs), free(job);
    return good && taken == pairs;
}

/* Which experts, and their jobs, as for many rows. */
static void compare_routes(layer *e, ek_cuda_choose_args c, int n, const char *name)
{
    dev *d = e->d;
    const size_t ints = sizeof(int32_t) * (size_t)(n * e->top);
    int32_t which[MOST_PAIRS];
    c.pair_row = up(d, NULL, ints), c.row_pair = up(d, NULL, ints);
    for (int by_warp = 0; by_warp < 2; by_warp++) {
        ek_cuda_route_args r = {.route = c.route,
                                .expert_scale = c.expert_scale,
                                .expert = up(d, NULL, ints),
                                .weight = up(d, NULL, ints),
                                .ld = c.ld,
                                .n_experts = c.n_experts,
                                .top_k = c.top_k};
        ek_cuda_group_args g = {.expert = r.expert,
                                .pair_row = c.pair_row,
                                .row_pair = c.row_pair,
                                .jobs = c.jobs,
                                .n_jobs = c.n_jobs,
                                .n_experts = c.n_experts,
                                .top_k = c.top_k,
                                .n_pairs = n * e->top,
                                .tile = c.tile};
        ek_cuda_product one = {.grid = {.x = (unsigned)n, .threads = by_warp ? 32 : 256}},
                        group = {.name = "ek_group", .grid = {.x = 1, .threads = 1024}};
        snprintf(one.name, sizeof one.name, "ek_route%s", by_warp ? "_warp" : "");
        run(e, &one, &r), run(e, &group, &g);
        same(d, e->id, down(d, r.expert, ints), ints, false, "experts by %s of %s", one.name, name);
        same(d, e->weight, down(d, r.weight, ints), ints, true, "weights by %s of %s", one.name, name);
        const bool good = check_jobs(e, n, c.tile, &c, which);
        same(d, &(bool){true}, memcpy(malloc(1), &good, 1), 1, false, "jobs by ek_group of %s", name);
        drop(d, r.expert), drop(d, r.weight);
    }
    drop(d, c.pair_row), drop(d, c.row_pair);
}

/* The inputs in groups of 16 and 32, the router's also as floats; and which experts by a launch of its own. */
static void compare_others(layer *e, ek_cuda_inputs_args a, ek_cuda_choose_args c, int n, const char *name)
{
    dev *d = e->d;
    static const int group[3] = {32, 16, 64};
    const size_t bytes = sizeof(float) * (size_t)n * (size_t)e->k, ints = sizeof(int32_t) * (size_t)(n * e->top);
    int32_t which[MOST_PAIRS];
    ek_cuda_product one = {.grid = {.y = (unsigned)n, .threads = (unsigned)(e->k + 255) / 256 * 32}};
    a.router = up(d, NULL, bytes);
    for (int rows_too = 0; rows_too < 2; rows_too++) {
        snprintf(one.name, sizeof one.name, "ek_experts_inputs_any%s", rows_too ? "_rows" : "");
        one.grid.x = rows_too ? 1 : 3;
        for (int i = 0; i < 3; i++) {
            a.to[i].q = 0;
            const size_t row = ek_cuda_acts_plan(&a.to[i], e->k, group[i]);
            a.to[i].q = up(d, NULL, row * (size_t)n);
        }
        run(e, &one, &a);
        same(d, e->in[1].f, down(d, a.router, bytes), bytes, true, "floats of the router by %s of %s", one.name, name);
        for (int i = 0; i < 3; i++) {
            ek_linear w = {.k = e->k, .form = EK_W_Q4, .a_group = group[i]};
            rows in;
            open_rows(&in, n, e->k);
            memcpy(in.f, e->in[i].f, bytes);
            quantize_both(d, &in.acts, &w);
            compare_rows(d, &in.acts, &a.to[i], n, name);
            drop(d, a.to[i].q), free(in.f), free(in.mem);
        }
    }
    drop(d, a.router);
    c.router_blocks = 0;
    c.weight = up(d, NULL, ints), c.pair_row = up(d, NULL, ints), c.row_pair = up(d, NULL, ints);
    one = (ek_cuda_product){.name = "ek_choose",
                            .grid = {.x = 1, .threads = 256, .shared = 2 * EK_CUDA_CHOOSE_PAIRS * sizeof(int32_t)}};
    run(e, &one, &c);
    same(d, e->weight, down(d, c.weight, ints), ints, true, "weights by ek_choose of %s", name);
    const bool good = check_jobs(e, n, c.tile, &c, which);
    same(d, &(bool){true}, memcpy(malloc(1), &good, 1), 1, false, "jobs by ek_choose of %s", name);
    drop(d, c.weight), drop(d, c.pair_row), drop(d, c.row_pair);
}

static void compare(layer *e, int n, const ek_cuda_chip *chip)
{
    dev *d = e->d;
    char name[256];
    const int k = e->k, pairs = n * e->top, tile = pairs > e->experts * 4 ? 8 : 4;
    const size_t bytes = sizeof(float) * (size_t)n * (size_t)k, ints = sizeof(int32_t) * (size_t)pairs;
    int32_t which[MOST_PAIRS];
    const int32_t zero = 0;
    ek_cuda_heads p, q;
    if (!ek_cuda_experts_first_plan(&p, &e->gate.l, &e->down.l, &e->router.l, n, chip) ||
        !ek_cuda_experts_second_plan(&q, &e->expert_gate.l, &e->down.l, &e->expert_down.l, n, tile, pairs, chip)) {
        if (!chip->clusters) return; /* which those for groups of 64 are */
        printf("FAIL no kernels for experts of %d\n", k);
        d->failed++;
        return;
    }
    snprintf(name, sizeof name, "%d of %d experts, %d x %d beside %d, %d rows by %s and %s", e->top, e->experts,
             e->expert_inter, k, e->inter, n, p.q.name, q.q.name);
    const CUdeviceptr h = up(d, e->h, bytes), y = up(d, e->y, bytes), h2 = up(d, NULL, bytes), x = up(d, NULL, bytes);
    const CUdeviceptr out = up(d, NULL, sizeof(float) * (size_t)pairs * (size_t)k);
    ek_cuda_acts in[3] = {record(d, &e->gate, k, n), record(d, &e->router, k, n), record(d, &e->expert_gate, k, n)};
    ek_cuda_acts gated = record(d, &e->down, e->inter, n), pair = record(d, &e->expert_down, e->expert_inter, pairs),
                 to = record(d, &e->next, k, n);
    const CUdeviceptr router_in = e->router.l.units ? 0 : up(d, NULL, bytes);
    ek_cuda_choose_args c = {.route = up(d, NULL, sizeof(float) * (size_t)n * (size_t)e->experts),
                             .expert_scale = e->scale_at,
                             .weight = up(d, NULL, ints),
                             .pair_row = up(d, NULL, ints),
                             .row_pair = up(d, NULL, ints),
                             .jobs = up(d, NULL, sizeof(ek_cuda_job) * (size_t)pairs),
                             .n_jobs = up(d, NULL, sizeof(int32_t)),
                             .ended = up(d, &zero, sizeof zero),
                             .ld = e->experts,
                             .n_experts = e->experts,
                             .top_k = e->top,
                             .rows = n,
                             .tile = tile};
    ek_cuda_product one = {.grid = {.y = (unsigned)n, .threads = (unsigned)(k + 255) / 256 * 32}};
    const ek_cuda_inputs_args three = {.h = h,
                                       .h_out = h2,
                                       .y = y,
                                       .y_norm = e->at[AFTER_ATTENTION],
                                       .norm = {e->at[BEFORE_MLP], e->at[ROUTER], e->at[BEFORE_EXPERTS]},
                                       .to = {in[0], in[1], in[2]},
                                       .router = router_in,
                                       .ld = k,
                                       .eps = EPS,
                                       .factor = ROUTER_FACTOR,
                                       .n = k};
    for (int rows_too = 1; rows_too >= 0; rows_too--) {
        snprintf(one.name, sizeof one.name, "ek_experts_inputs%s%s", e->type ? "_any" : "", rows_too ? "_rows" : "");
        one.grid.x = rows_too ? 1 : 3;
        run(e, &one, &three);
        same(d, e->h_between, down(d, h2, bytes), bytes, true, "h by %s of %s", one.name, name);
        for (int i = 0; i < 3; i++)
            if (in[i].q) compare_rows(d, &e->in[i].acts, &in[i], n, name);
    }

    c.router_blocks = p.k_blocks * p.k_tiles;
    ek_cuda_experts_first_args a = {.gate = {.a = product(&e->gate, &in[0], &p.q, n, 0),
                                             .codes2 = e->up.at,
                                             .scales2 = e->up.at + e->up.l.code_bytes,
                                             .to = gated},
                                    .router = product(&e->router, &in[1], &p.k, n, c.route),
                                    .choose = c,
                                    .gate_blocks = p.q_blocks,
                                    .route_panels = p.k_blocks};
    a.router.f = router_in, a.router.ldf = k;
    for (int i = 0; i < 2; i++) run(e, &p.q, &a); /* it leaves `ended` as it was */
    compare_rows(d, &e->gated.acts, &gated, n, name);
    same(d, e->weight, down(d, c.weight, ints), ints, true, "weights of %s", name);
    const bool good = check_jobs(e, n, tile, &c, which);
    same(d, &(bool){true}, memcpy(malloc(1), &good, 1), 1, false, "jobs of %s", name);
    if (!e->type) compare_others(e, three, c, n, name), compare_routes(e, c, n, name);
    if (good) {
        ek_cuda_experts_second_args b = {.part = {{.a = product(&e->down, &gated, &q.k, n, y), .holds = true},
                                                  {.a = product(&e->expert_gate, &in[2], &q.q, tile, 0),
                                                   .codes2 = e->expert_up.at,
                                                   .scales2 = e->expert_up.at + e->expert_up.l.code_bytes,
                                                   .jobs = c.jobs,
                                                   .n_jobs = c.n_jobs,
                                                   .index = c.pair_row,
                                                   .to = pair,
                                                   .expert_bytes = (int64_t)e->expert_gate.l.bytes,
                                                   .holds = true}},
                                         .down_blocks = q.k_blocks,
                                         .down_tiles = q.k_tiles,
                                         .gate_blocks = q.q_blocks};
        run(e, &q.q, &b);
        same(d, e->dense, down(d, y, bytes), bytes, true, "down of %s", name);
        const ek_acts sorted = ek_acts_pick(&e->pair.acts, which, pairs);
        compare_rows(d, &sorted, &pair, pairs, name);
        one = ek_cuda_warp_plan(&e->expert_down.l, tile, pairs, EK_CUDA_GATE_NONE, chip);
        run(e, &one,
            &(ek_cuda_warp_args){.a = product(&e->expert_down, &pair, &one, tile, out),
                                 .jobs = c.jobs,
                                 .n_jobs = c.n_jobs,
                                 .expert_bytes = (int64_t)e->expert_down.l.bytes,
                                 .known = true});
        ek_cuda_stage_args s = {.h = h,
                                .h_from = h2,
                                .y = y,
                                .y_norm = e->at[BEHIND],
                                .pair_out = out,
                                .row_pair = c.row_pair,
                                .weight = c.weight,
                                .norm_1 = e->at[BEHIND_MLP],
                                .norm_2 = e->at[BEHIND_EXPERTS],
                                .scalar = e->scalar_at,
                                .x_norm = e->at[NEXT],
                                .x = x,
                                .to = to,
                                .ld = k,
                                .eps = EPS,
                                .n = k,
                                .top_k = e->top,
                                .known = true};
        for (int wide = 0; wide < 2; wide++) {
            one.grid = (ek_cuda_grid){.x = (unsigned)n, .threads = (unsigned)(k + 255) / 256 * 32};
            snprintf(one.name, sizeof one.name, "ek_experts_end%s", wide ? "_wide" : "");
            run(e, &one, &s);
            same(d, e->h_end, down(d, h, bytes), bytes, true, "h by %s of %s", one.name, name);
            same(d, e->x.f, down(d, x, bytes), bytes, true, "x by %s of %s", one.name, name);
            compare_rows(d, &e->x.acts, &to, n, name);
        }
    }
    for (int i = 0; i < 3; i++) drop(d, in[i].q);
    drop(d, router_in);
    drop(d, h), drop(d, y), drop(d, h2), drop(d, x), drop(d, out), drop(d, gated.q), drop(d, pair.q), drop(d, to.q);
    drop(d, c.route), drop(d, c.weight), drop(d, c.pair_row), drop(d, c.row_pair), drop(d, c.jobs), drop(d, c.n_jobs);
    drop(d, c.ended);
}

static void test_shape(dev *d, const layer *of, bool odd)
{
    layer *e = layer_open(d, of, odd);
    for (int n = 1; n <= ROWS; n += n > 1 ? cases(d, 6, 3, 1) : 1)
        for (int many = 0; many < 2; many++) {
            const ek_cuda_chip chip = ek_cuda_chip_like(ek_cuda_chip_of(e->d->c)->features, many ? 132 : 3);
            compare(e, n, &chip);
        }
    layer_close(e);
}

void test_experts(dev *d)
{
    static const layer c[] = {
        {.k = 192, .inter = 128, .experts = 8, .expert_inter = 64, .top = 2, .router_bits = 4},
        {.k = 320, .inter = 64, .experts = 128, .expert_inter = 64, .top = 8, .router_bits = 8},
        {.k = 1088, .inter = 192, .experts = 24, .expert_inter = 128, .top = 8, .router_bits = 4},
        {.k = 2816, .inter = 2112, .experts = 128, .expert_inter = 704, .top = 8, .router_bits = 4},
    };
    static const layer planes[] = {
        {.k = 192, .inter = 128, .experts = 8, .expert_inter = 64, .top = 2, .type = "q4_0"},
        {.k = 1376, .inter = 192, .experts = 24, .expert_inter = 128, .top = 8, .type = "q4_0"},
        {.k = 2816, .inter = 2112, .experts = 128, .expert_inter = 704, .top = 8, .type = "q4_0"},
    };
    for (int i = 0; i < (d->quick ? 2 : 4); i++) test_shape(d, &c[i], i % 2);
    for (int i = 0; i < (d->quick ? 2 : 3); i++) test_shape(d, &planes[i], i % 2);
}
