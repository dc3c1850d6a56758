/* How products of few rows by leaves are launched (kernels/product_leaf.cuh): of a matrix, of experts, with a gate, or
 * of q, k and v. */
#include <stdio.h>

#include "cuda/linear.h"
#include "cuda/model_args.h"

enum {
    CHUNK_UNITS = 4,
    LEAF_CHUNKS = 4,
    UNIT_SCALES = 64,
    LEAF_BLOCKS = 2,
    STAGES = 3, /* chunks of a warp on their way: with more what the others read waits longer */
    LEAF_ROOM = 100 << 10,
    LEAF_SUMS = 24 << 10,
    WARPS = 8, /* of a block that shares its multiprocessor; one alone has twice as many, and room */
    WIDE_SUMS = 33 << 10
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

/* Panels of a turn for so many on so many slots, as long as its leaves fit. */
static int leaf_turn(const ek_cuda_linear *l, int per_tile, int panels, int slots, int sums)
{
    const int leaves = over(l->units, CHUNK_UNITS * LEAF_CHUNKS);
    int turn = over(panels, slots);
    const int most = sums / (leaves * EK_PANEL * per_tile * 4);
    if (turn > most) turn = most;
    return turn < 1 ? 1 : turn;
}

/* Stages and shared memory of p's warps, with p's turn and `turns` per block. */
static void leaf_ring(ek_cuda_product *p, const ek_cuda_linear *l, int per_tile, int turns, int warps, size_t room)
{
    const int chunks = over(l->units, CHUNK_UNITS), leaves = over(chunks, LEAF_CHUNKS);
    const int work = turns * p->turn * chunks, told = p->turn * leaves * (LEAF_CHUNKS - 1);
    const size_t chunk = CHUNK_UNITS * ((size_t)l->bits * 128 + UNIT_SCALES),
                 sums = 2 * (size_t)p->turn * (size_t)(leaves * EK_PANEL * per_tile) * 4,
                 fixed = (size_t)told * 8 + 256 + sums;
    p->stages = over(work, warps);
    if (p->stages > STAGES) p->stages = STAGES;
    while (p->stages > 1 && fixed + (size_t)(warps * p->stages) * (chunk + 8) > room) p->stages--;
    p->grid.threads = (unsigned)warps * 32;
    p->grid.shared = (size_t)((warps * p->stages + told) * 8 + 127) / 128 * 128 + (size_t)(warps * p->stages) * chunk +
                     sums;
}

ek_cuda_product ek_cuda_leaf_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors)
{
    const int per_tile = gate || jobs ? 8 / l->limbs : leaf_rows(l, rows), oct = per_tile * l->limbs / 8;
    const int tiles = jobs ? jobs : over(rows, per_tile), chunks = over(l->units, CHUNK_UNITS);
    const int panels = l->n_panels * (gate == EK_CUDA_GATE_MATRIX ? 2 : 1);
    ek_cuda_product p = {0};
    /* two blocks of a multiprocessor, or one if its warps then take fewer chunks one after the other */
    for (int wide = 0, best = 0; wide < 2; wide++) {
        const int slots = multiprocessors * (wide ? 1 : LEAF_BLOCKS);
        ek_cuda_product next = {.grid = {.y = (unsigned)tiles, .overlap = true}};
        next.turn = gate == EK_CUDA_GATE_MATRIX ? 8 : 4;
        if (!gate) next.turn = leaf_turn(l, per_tile, panels * tiles, slots, wide ? WIDE_SUMS : LEAF_SUMS);
        if (next.turn > panels && !gate) next.turn = panels;
        const int turns = over(panels, next.turn), each = over(turns, over(slots, tiles));
        next.grid.x = (unsigned)over(turns, each);
        const bool alone = (int)next.grid.x * tiles <= multiprocessors && each * next.turn * chunks > WARPS;
        const int warps = alone ? 2 * WARPS : WARPS, in_turn = each * over(next.turn * chunks, warps);
        if (wide && in_turn >= best) break;
        best = in_turn, p = next;
        leaf_ring(&p, l, per_tile, each, warps, alone ? 2 * LEAF_ROOM : LEAF_ROOM);
    }
    snprintf(p.name, sizeof p.name, "ek_product%s_leaf_q%d_l%d_o%d", gate || jobs ? "s" : "", l->bits, l->limbs, oct);
    return p;
}

/* Fitted to which is faster in whole steps on an H200, of 1, 4 and 8 rows; more rows to `device choice`. */
double ek_cuda_leaf_gate_us(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    if (rows > 8) return 4.5 + 0.28e-6 * 2 * (double)l->n * (double)l->k * over(rows, 8);
    const ek_cuda_product p = ek_cuda_leaf_plan(l, rows, 0, EK_CUDA_GATE_MATRIX, multiprocessors);
    const int turns = over(over(2 * l->n_panels, p.turn), (int)p.grid.x);
    const int in_turn = turns * over(p.turn * over(l->units, CHUNK_UNITS), (int)p.grid.threads / 32);
    return 0.4 + (0.9 + 0.066 * (rows - 1)) * in_turn;
}

bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, int multiprocessors)
{
    if (rows > 8 && ek_cuda_mid_heads_plan(out, q, k, v, rows, multiprocessors)) return true;
    if (!ek_cuda_leaf_wins(q, rows, multiprocessors) || !ek_cuda_leaf_wins(k, rows, multiprocessors) ||
        (v && !ek_cuda_linear_alike(k, v)) || q->bits != 4 || k->bits != 4 || q->limbs != 1 || k->limbs != 2)
        return false;
    const int k_rows = leaf_rows(k, rows), tiles = rows <= 4 ? 1 : over(rows, 8);
    const int slots = over(multiprocessors * LEAF_BLOCKS, tiles), parts = v ? 2 : 1;
    const int panels = q->n_panels + parts * k->n_panels;
    *out = (ek_cuda_heads){.q.turn = leaf_turn(q, 8, panels, slots, LEAF_SUMS),
                           .k.turn = leaf_turn(k, k_rows, panels, slots, LEAF_SUMS)};
    const int q_turns = over(q->n_panels, out->q.turn), k_turns = over(k->n_panels, out->k.turn),
              turns = q_turns + parts * k_turns;
    const int each = over(turns, slots); /* turns of a block */
    out->q_blocks = over(q_turns, each), out->k_blocks = over(k_turns, each);
    leaf_ring(&out->q, q, 8, each, WARPS, LEAF_ROOM);
    leaf_ring(&out->k, k, k_rows, each, WARPS, LEAF_ROOM);
    ek_cuda_grid *grid = &out->q.grid;
    if (grid->shared < out->k.grid.shared) grid->shared = out->k.grid.shared;
    grid->x = (unsigned)(out->q_blocks + parts * out->k_blocks), grid->y = (unsigned)tiles, grid->overlap = true;
    snprintf(out->q.name, sizeof out->q.name, "ek_product_heads_q4_o%d", k_rows == 4 ? 1 : 2);
    return true;
}

/* Stages and shared memory of a launch that holds blocks of both. */
static void rings_of_both(ek_cuda_heads *p, const ek_cuda_linear *a, const ek_cuda_linear *b, int b_rows, int warps,
                          size_t room, int blocks)
{
    leaf_ring(&p->q, a, 8, 1, warps, room);
    leaf_ring(&p->k, b, b_rows, 1, warps, room);
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
    if (!takes(gate, rows) || gate->n % 64 || !down->units || down->a_group != 64 || !ek_cuda_leaf_fits(router) ||
        router->limbs != 2)
        return false;
    const int route_rows = leaf_rows(router, rows), tiles = over(rows, route_rows);
    *out = (ek_cuda_heads){.q.turn = 2, .q.grid.cluster = EK_CUDA_SPREAD, .k.turn = 1};
    out->q_blocks = gate->n_panels, out->k_blocks = whole_clusters(router->n_panels);
    rings_of_both(out, gate, router, route_rows, WARPS, LEAF_ROOM,
                  out->q_blocks + out->k_blocks * tiles + EK_CUDA_SPREAD);
    out->q.grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_first_q%d_o%d", router->bits, route_rows * 2 / 8);
    return true;
}

bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs, int multiprocessors)
{
    if (!takes(gate, tile) || gate->n % 64 || !expert_down->units || expert_down->a_group != 64 || !takes(down, rows))
        return false;
    *out = (ek_cuda_heads){.q.turn = 8};
    out->q_blocks = over(2 * gate->n_panels, 8);
    /* the dense matrix on multiprocessors that the experts leave, or on some that they then share */
    int left = multiprocessors - out->q_blocks * jobs;
    const bool alone = left >= multiprocessors / 4;
    if (!alone) left = multiprocessors * 2 / 3;
    out->k.turn = leaf_turn(down, 8, down->n_panels, left, LEAF_SUMS);
    out->k_blocks = over(down->n_panels, out->k.turn);
    rings_of_both(out, gate, down, 8, alone ? 2 * WARPS : WARPS, alone ? 2 * LEAF_ROOM : LEAF_ROOM,
                  out->q_blocks * jobs + out->k_blocks);
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_second");
    return true;
}
