/* How products of few rows by leaves are launched (kernels/product_leaf.cuh): of a matrix, of experts, with a gate, or
 * of q, k and v. */
#include <stdio.h>

#include "cuda/linear.h"
#include "cuda/model_args.h"

enum {
    CHUNK_UNITS = 4,
    FEW_UNITS = 8, /* of a chunk of the kernels for few rows */
    FEW_ROWS = 4,  /* of those kernels; of one limb, a matrix alone, twice as many */
    LEAF_UNITS = 16,
    UNIT_SCALES = 64,
    LEAF_BLOCKS = 2,
    STAGES = 3, /* chunks of a warp on their way: with more what the others read waits longer */
    LEAF_ROOM = 100 << 10,
    LEAF_SUMS = 24 << 10,
    WARPS = 8, /* of a block that shares its multiprocessor; one alone has twice as many, and room */
    WIDE_SUMS = 33 << 10,
    ROW_CHUNKS = 12
};

/* Rows that a block computes: two limbs of 8 bits leave registers for 4. */
static int leaf_rows(const ek_cuda_linear *l, int rows)
{
    return l->limbs == 1 ? 8 : rows > 4 && l->bits == 4 ? 8 : 4;
}

bool ek_cuda_leaf_fits(const ek_cuda_linear *l)
{
    return l->units && l->group == 64 && l->a_group == 64 && l->biased && !l->f32_scales && !l->f16_scales;
}

static int over(int n, int by)
{
    return (n + by - 1) / by;
}

/* Fitted to `device choice` on an H200, us: what a launch takes, and 8 rows (or 4) of a million weights. */
double ek_cuda_leaf_us(const ek_cuda_linear *l, int rows)
{
    const int each = leaf_rows(l, rows), passes = (rows + each - 1) / each;
    return 2 + (l->limbs == 1 ? 0.24e-6 : each == 4 ? 0.2e-6 : 0.34e-6) * (double)l->n * (double)l->k * passes;
}

/* Panels of a turn for so many on so many slots, as long as its leaves fit; of up to FEW_ROWS rows they leave room for
 * two of their larger chunks per warp. */
static int leaf_turn(const ek_cuda_linear *l, int units, int per_tile, int panels, int slots, int sums)
{
    const int leaves = over(l->units, LEAF_UNITS);
    int turn = over(panels, slots);
    const int most = (units == FEW_UNITS ? sums / 2 : sums) / (leaves * EK_PANEL * per_tile * 4);
    if (turn > most) turn = most;
    return turn < 1 ? 1 : turn;
}

/* Stages and shared memory of p's warps, with p's turn and `turns` per block, and chunks of so many units. */
static void leaf_ring(ek_cuda_product *p, const ek_cuda_linear *l, int units, int per_tile, int turns, int warps,
                      size_t room)
{
    const int chunks = over(l->units, units), leaves = over(l->units, LEAF_UNITS);
    const int work = turns * p->turn * chunks, told = p->turn * leaves * (LEAF_UNITS / units - 1);
    const size_t chunk = (size_t)units * ((size_t)l->bits * 128 + UNIT_SCALES),
                 sums = 2 * (size_t)p->turn * (size_t)(leaves * EK_PANEL * per_tile) * 4,
                 fixed = (size_t)told * 8 + 256 + sums;
    p->stages = over(work, warps);
    if (p->stages > STAGES) p->stages = STAGES;
    while (p->stages > 1 && fixed + (size_t)(warps * p->stages) * (chunk + 8) > room) p->stages--;
    p->grid.threads = (unsigned)warps * 32;
    p->grid.shared = (size_t)((warps * p->stages + told) * 8 + 127) / 128 * 128 + (size_t)(warps * p->stages) * chunk +
                     sums;
}

/* Chunks that a warp takes one after the other. */
static int in_a_row(const ek_cuda_linear *l, int units, int turn, int each, int warps)
{
    return each * over(turn * over(l->units, units), warps);
}

/* By chunks of so many units; *row: those of a warp. */
static ek_cuda_product plan_by(const ek_cuda_linear *l, int units, int rows, int jobs, ek_cuda_gate gate,
                               int multiprocessors, int *row)
{
    const int few_rows = rows > FEW_ROWS ? 2 * FEW_ROWS : FEW_ROWS;
    const int per_tile = units == FEW_UNITS ? few_rows : gate || jobs ? 8 / l->limbs : leaf_rows(l, rows);
    const int tiles = jobs ? jobs : over(rows, per_tile), chunks = over(l->units, units);
    const int panels = l->n_panels * (gate == EK_CUDA_GATE_MATRIX ? 2 : 1);
    char tile[16];
    ek_cuda_product p = {0};
    /* two blocks of a multiprocessor, or one if its warps then take fewer chunks one after the other */
    for (int wide = 0; wide < 2; wide++) {
        const int slots = multiprocessors * (wide ? 1 : LEAF_BLOCKS);
        ek_cuda_product next = {.grid = {.y = (unsigned)tiles, .overlap = true}};
        next.turn = gate == EK_CUDA_GATE_MATRIX ? 8 : 4;
        if (!gate) next.turn = leaf_turn(l, units, per_tile, panels * tiles, slots, wide ? WIDE_SUMS : LEAF_SUMS);
        if (next.turn > panels && !gate) next.turn = panels;
        /* of more jobs than slots nobody knows how many there will be: a block per turn, as places become free */
        const int turns = over(panels, next.turn),
                  each = jobs && 2 * tiles > slots ? 1 : over(turns, over(slots, tiles));
        next.grid.x = (unsigned)over(turns, each);
        const bool alone = (int)next.grid.x * tiles <= multiprocessors && each * next.turn * chunks > WARPS;
        const int warps = alone ? 2 * WARPS : WARPS, in_turn = in_a_row(l, units, next.turn, each, warps);
        if (wide && in_turn >= *row) break;
        *row = in_turn, p = next;
        leaf_ring(&p, l, units, per_tile, each, warps, alone ? 2 * LEAF_ROOM : LEAF_ROOM);
    }
    snprintf(tile, sizeof tile, "%s%d",
             units == CHUNK_UNITS ? "o"
             : jobs               ? "j"
                                  : "r",
             units == FEW_UNITS ? per_tile : per_tile * l->limbs / 8);
    snprintf(p.name, sizeof p.name, "ek_product%s_leaf_q%d_l%d_%s", gate || jobs ? "s" : "", l->bits, l->limbs, tile);
    return p;
}

/* A gate's groups of 64 by clusters, each block of which has 16 of them, where whole groups would leave some
 * multiprocessors with half as much again as their share (E4B: 160 groups on 132). Two warps per block: with three or
 * four it is slower, as is what shares out evenly already. */
static bool spread_plan(ek_cuda_product *out, const ek_cuda_linear *l, int multiprocessors)
{
    const int groups = l->n_panels / EK_CUDA_SPREAD, rounds = over(groups, multiprocessors);
    if (l->n % 64 || rounds < 2 || 2 * rounds * multiprocessors < 3 * groups) return false;
    *out = (ek_cuda_product){.grid = {.x = (unsigned)l->n_panels, .y = 1, .cluster = EK_CUDA_SPREAD, .overlap = true},
                             .turn = 2};
    leaf_ring(out, l, FEW_UNITS, FEW_ROWS, 1, 2, (size_t)2 * LEAF_ROOM / (size_t)over(l->n_panels, multiprocessors));
    out->grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->name, sizeof out->name, "ek_products_leaf_q4_l1_s%d", FEW_ROWS);
    return true;
}

/* The same of one matrix, whose groups are few (per-layer gates have 4), as long as multiprocessors have no more to do
 * than ROW_CHUNKS chunks each: of E4B it gains 5 % of a step of 16 rows, nothing at 32, and would lose 2 at 64. */
static bool spread_row_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int multiprocessors)
{
    const int tiles = over(rows, FEW_ROWS), blocks = l->n_panels * tiles, chunks = over(l->units, CHUNK_UNITS);
    const int most = blocks <= multiprocessors ? 2 * WARPS : WARPS;
    if (l->n % 64 || blocks > LEAF_BLOCKS * multiprocessors || blocks * chunks > ROW_CHUNKS * multiprocessors)
        return false;
    *out = (ek_cuda_product){
        .grid = {.x = (unsigned)l->n_panels, .y = (unsigned)tiles, .cluster = EK_CUDA_SPREAD, .overlap = true},
        .turn = 1};
    leaf_ring(out, l, CHUNK_UNITS, FEW_ROWS, 1, chunks < most ? chunks : most, LEAF_ROOM);
    out->grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->name, sizeof out->name, "ek_products_leaf_q4_l2_s%d", FEW_ROWS);
    return true;
}

ek_cuda_product ek_cuda_leaf_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors)
{
    int row, few_row;
    const ek_cuda_product p = plan_by(l, CHUNK_UNITS, rows, jobs, gate, multiprocessors, &row);
    const bool alone = !gate && !jobs;
    ek_cuda_product spread;
    if (gate == EK_CUDA_GATE_ROW && !jobs && l->bits == 4 && l->limbs == 2 &&
        spread_row_plan(&spread, l, rows, multiprocessors))
        return spread;
    if (l->bits != 4 || gate == EK_CUDA_GATE_ROW || (jobs && gate) || (!alone && l->limbs == 2)) return p;
    if (rows > (alone && l->limbs == 1 ? 2 * FEW_ROWS : FEW_ROWS)) return p;
    if (gate && spread_plan(&spread, l, multiprocessors)) return spread;
    /* where every warp has one chunk anyway, a larger one takes longer; experts and more rows: a block has one turn */
    const ek_cuda_product few = plan_by(l, FEW_UNITS, rows, jobs, gate, multiprocessors, &few_row);
    const bool once = (int)few.grid.x * few.turn >= l->n_panels;
    return few_row < row && (once || (!jobs && rows <= FEW_ROWS)) ? few : p;
}

/* Fitted to which is faster in whole steps on an H200, of 1, 4 and 8 rows; more rows to `device choice`. */
double ek_cuda_leaf_gate_us(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    if (rows > 8) return 4.5 + 0.28e-6 * 2 * (double)l->n * (double)l->k * over(rows, 8);
    int row; /* chunks of 256 inputs, also where larger ones then take less time */
    plan_by(l, CHUNK_UNITS, rows, 0, EK_CUDA_GATE_MATRIX, multiprocessors, &row);
    return 0.4 + (0.9 + 0.066 * (rows - 1)) * row;
}

/* By chunks of so many units; *row: those of a warp. */
static ek_cuda_heads heads_by(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int units,
                              int rows, int multiprocessors, int *row)
{
    const int q_rows = units == FEW_UNITS ? FEW_ROWS : 8, k_rows = leaf_rows(k, rows);
    const int tiles = rows <= 4 ? 1 : over(rows, 8), slots = over(multiprocessors * LEAF_BLOCKS, tiles);
    const int parts = v ? 2 : 1, panels = q->n_panels + parts * k->n_panels;
    ek_cuda_heads p = {.q.turn = leaf_turn(q, units, q_rows, panels, slots, LEAF_SUMS),
                       .k.turn = leaf_turn(k, units, k_rows, panels, slots, LEAF_SUMS)};
    const int q_turns = over(q->n_panels, p.q.turn), k_turns = over(k->n_panels, p.k.turn),
              turns = q_turns + parts * k_turns;
    const int each = over(turns, slots); /* turns of a block */
    const int of_q = in_a_row(q, units, p.q.turn, each, WARPS), of_k = in_a_row(k, units, p.k.turn, each, WARPS);
    *row = of_q > of_k ? of_q : of_k;
    p.q_blocks = over(q_turns, each), p.k_blocks = over(k_turns, each);
    leaf_ring(&p.q, q, units, q_rows, each, WARPS, LEAF_ROOM);
    leaf_ring(&p.k, k, units, k_rows, each, WARPS, LEAF_ROOM);
    ek_cuda_grid *grid = &p.q.grid;
    if (grid->shared < p.k.grid.shared) grid->shared = p.k.grid.shared;
    grid->x = (unsigned)(p.q_blocks + parts * p.k_blocks), grid->y = (unsigned)tiles, grid->overlap = true;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_heads_q4_%s",
             units == FEW_UNITS ? "r4"
             : k_rows == 4      ? "o1"
                                : "o2");
    return p;
}

bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, int multiprocessors)
{
    if (rows > 8 && ek_cuda_mid_heads_plan(out, q, k, v, rows, multiprocessors)) return true;
    if (ek_cuda_plane_heads_plan(out, q, k, v, rows, multiprocessors)) return true;
    if (!ek_cuda_leaf_wins(q, rows, multiprocessors) || !ek_cuda_leaf_wins(k, rows, multiprocessors) ||
        (v && !ek_cuda_linear_alike(k, v)) || q->bits != 4 || k->bits != 4 || q->limbs != 1 || k->limbs != 2)
        return false;
    int row = 0, few_row = 0;
    *out = heads_by(q, k, v, CHUNK_UNITS, rows, multiprocessors, &row);
    if (rows > FEW_ROWS) return true;
    const ek_cuda_heads few = heads_by(q, k, v, FEW_UNITS, rows, multiprocessors, &few_row);
    if (few_row < row) *out = few;
    return true;
}

/* Stages and shared memory of a launch that holds blocks of both, by chunks of so many units. */
static void rings_of_both(ek_cuda_heads *p, const ek_cuda_linear *a, const ek_cuda_linear *b, int units, int rows,
                          int b_rows, int warps, size_t room, int blocks)
{
    leaf_ring(&p->q, a, units, rows, 1, warps, room);
    leaf_ring(&p->k, b, units, b_rows, 1, warps, room);
    if (p->q.grid.shared < p->k.grid.shared) p->q.grid.shared = p->k.grid.shared;
    p->q.grid.x = (unsigned)blocks, p->q.grid.overlap = true;
}

static bool takes(const ek_cuda_linear *l, int rows)
{
    return rows <= 8 && ek_cuda_leaf_fits(l) && l->bits == 4 && l->limbs == 1;
}

static int whole_clusters(int blocks)
{
    return over(blocks, EK_CUDA_SPREAD) * EK_CUDA_SPREAD;
}

bool ek_cuda_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows)
{
    if (ek_cuda_plane_experts_first_plan(out, gate, down, router, rows)) return true;
    if (!takes(gate, rows) || gate->n % 64 || !down->units || down->a_group != 64 || !ek_cuda_leaf_fits(router) ||
        router->limbs != 2)
        return false;
    const int route_rows = leaf_rows(router, rows);
    *out = (ek_cuda_heads){
        .q.turn = 2, .q.grid.cluster = EK_CUDA_SPREAD, .k.turn = 1, .k_tiles = over(rows, route_rows)};
    out->q_blocks = gate->n_panels, out->k_blocks = whole_clusters(router->n_panels);
    rings_of_both(out, gate, router, CHUNK_UNITS, 8, route_rows, WARPS, LEAF_ROOM,
                  out->q_blocks + out->k_blocks * out->k_tiles + EK_CUDA_SPREAD);
    out->q.grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_first_q%d_o%d", router->bits, route_rows * 2 / 8);
    return true;
}

bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs, int multiprocessors)
{
    if (ek_cuda_plane_experts_second_plan(out, gate, down, expert_down, rows, tile, jobs, multiprocessors)) return true;
    if (!takes(gate, tile) || gate->n % 64 || !expert_down->units || expert_down->a_group != 64 || !takes(down, rows))
        return false;
    const bool few = tile <= FEW_ROWS;
    const int units = few ? FEW_UNITS : CHUNK_UNITS, per_tile = few ? FEW_ROWS : 8;
    *out = (ek_cuda_heads){.q.turn = 8, .k_tiles = over(rows, per_tile)};
    out->q_blocks = over(2 * gate->n_panels, 8);
    /* the dense matrix on multiprocessors that the experts leave, or on some that they then share */
    int left = multiprocessors - out->q_blocks * jobs;
    const bool alone = left >= multiprocessors / 4;
    if (!alone) left = multiprocessors * 2 / 3;
    out->k.turn = leaf_turn(down, units, per_tile, down->n_panels * out->k_tiles, left, LEAF_SUMS);
    out->k_blocks = over(down->n_panels, out->k.turn);
    rings_of_both(out, gate, down, units, per_tile, per_tile, alone ? 2 * WARPS : WARPS,
                  alone ? 2 * LEAF_ROOM : LEAF_ROOM, out->q_blocks * jobs + out->k_blocks * out->k_tiles);
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_second_%s", few ? "r4" : "o1");
    return true;
}
