/* Launches of products of few rows in groups of 64 (kernels/product/warp.cuh): of a matrix, of experts, with a gate, of
 * q, k and v, and of experts beside the dense MLP. */
#include "cuda/product/product.h"

#include <stdio.h>

enum {
    CHUNK_UNITS = 4,
    FEW_UNITS = 8, /* units per chunk of the kernels for few rows */
    FEW_ROWS = 4,  /* rows of those kernels; a single matrix of one limb has twice as many */
    SLOTS = 3,     /* chunks per warp in flight; with more, the chunks of other warps wait longer */
    ROW_CHUNKS = 12
};

/* Maximum leaves of a share if a multiprocessor has one block. */
static int wide_sums(const ek_cuda_chip *chip)
{
    return ek_cuda_warp_sums(chip) / 8 * 11;
}

/* Rows per block: two limbs of 8 bits leave registers for 4. */
static int rows_of(const ek_cuda_linear *l, int rows)
{
    return l->limbs == 1 ? 8 : rows > 4 && l->bits == 4 ? 8 : 4;
}

double ek_cuda_warp_64_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int each = rows_of(l, rows), passes = ek_cuda_over(rows, each);
    const double weight = l->limbs == 1 ? chip->us->warp_64.weight_l1
                          : each == 4   ? chip->us->warp_64.weight_l2_4
                                        : chip->us->warp_64.weight_l2_8;
    return chip->us->warp_64.launch + weight * (double)l->n * (double)l->k * passes;
}

static ek_cuda_cut cut_of(const ek_cuda_linear *l, int units, int per_tile)
{
    return ek_cuda_cut_of(l, units, per_tile, SLOTS);
}

/* Panels per share. With up to FEW_ROWS rows their leaves leave room for two larger chunks per warp. */
static int share_of(const ek_cuda_linear *l, int units, int per_tile, int panels, int places, int sums)
{
    const ek_cuda_cut c = cut_of(l, units, per_tile);
    return ek_cuda_cut_share(&c, panels, places, units == FEW_UNITS ? sums / 2 : sums);
}

static void ring(ek_cuda_product *p, const ek_cuda_linear *l, int units, int per_tile, int shares, int warps,
                 size_t room, const ek_cuda_chip *chip)
{
    const ek_cuda_cut c = cut_of(l, units, per_tile);
    ek_cuda_cut_ring(p, &c, shares, warps, room, chip);
}

/* Chunks that a warp takes one after the other. */
static int in_a_row(const ek_cuda_linear *l, int units, int share, int each, int warps)
{
    return each * ek_cuda_over(share * ek_cuda_over(l->units, units), warps);
}

/* The launch by chunks of this many units; *row: chunks that a warp takes one after the other. */
static ek_cuda_product plan_by(const ek_cuda_linear *l, int units, int rows, int jobs, ek_cuda_gate gate,
                               const ek_cuda_chip *chip, int *row)
{
    const int few_rows = rows > FEW_ROWS ? 2 * FEW_ROWS : FEW_ROWS;
    const int per_tile = units == FEW_UNITS ? few_rows : gate || jobs ? 8 / l->limbs : rows_of(l, rows);
    const int tiles = jobs ? jobs : ek_cuda_over(rows, per_tile), chunks = ek_cuda_over(l->units, units);
    const int panels = l->n_panels * (gate == EK_CUDA_GATE_MATRIX ? 2 : 1);
    char tile[16];
    ek_cuda_product p = {0};
    /* two blocks per multiprocessor, or one if its warps then take fewer chunks one after the other */
    for (int wide = 0; wide < 2; wide++) {
        const int places = chip->multiprocessors * (wide ? 1 : EK_CUDA_WARP_BLOCKS);
        ek_cuda_product next = {.grid = {.y = (unsigned)tiles, .overlap = true}};
        next.share = gate == EK_CUDA_GATE_MATRIX ? 8 : 4;
        if (!gate)
            next.share = share_of(l, units, per_tile, panels * tiles, places,
                                  wide ? wide_sums(chip) : ek_cuda_warp_sums(chip));
        if (next.share > panels && !gate) next.share = panels;
        /* with more jobs than places the number of running jobs is unknown: a block takes one share, as soon as there
         * is a place */
        const int shares = ek_cuda_over(panels, next.share),
                  each = jobs && 2 * tiles > places ? 1 : ek_cuda_over(shares, ek_cuda_over(places, tiles));
        next.grid.x = (unsigned)ek_cuda_over(shares, each);
        const bool alone = (int)next.grid.x * tiles <= chip->multiprocessors &&
                           each * next.share * chunks > EK_CUDA_WARPS;
        const int warps = alone ? 2 * EK_CUDA_WARPS : EK_CUDA_WARPS,
                  in_share = in_a_row(l, units, next.share, each, warps);
        if (wide && in_share >= *row) break;
        *row = in_share, p = next;
        ring(&p, l, units, per_tile, each, warps, alone ? 2 * ek_cuda_warp_room(chip) : ek_cuda_warp_room(chip), chip);
    }
    snprintf(tile, sizeof tile, "%s%d",
             units == CHUNK_UNITS ? "o"
             : jobs               ? "j"
                                  : "r",
             units == FEW_UNITS ? per_tile : per_tile * l->limbs / 8);
    snprintf(p.name, sizeof p.name, "ek_product%s_warp_q%d_l%d_%s", gate || jobs ? "s" : "", l->bits, l->limbs, tile);
    return p;
}

/* Puts the groups of 64 of a gate on clusters, whose blocks have 16 outputs each, if whole groups would give some
 * multiprocessors half as much again as others (E4B: 160 groups on 132). Blocks have two warps; three or four are
 * slower. Clusters are also slower if the groups are divided evenly already. */
static bool spread_plan(ek_cuda_product *out, const ek_cuda_linear *l, const ek_cuda_chip *chip)
{
    const int groups = l->n_panels / EK_CUDA_SPREAD, rounds = ek_cuda_over(groups, chip->multiprocessors);
    if (!chip->clusters || l->n % 64 || rounds < 2 || 2 * rounds * chip->multiprocessors < 3 * groups) return false;
    *out = (ek_cuda_product){.grid = {.x = (unsigned)l->n_panels, .y = 1, .cluster = EK_CUDA_SPREAD, .overlap = true},
                             .share = 2};
    ring(out, l, FEW_UNITS, FEW_ROWS, 1, 2,
         2 * ek_cuda_warp_room(chip) / (size_t)ek_cuda_over(l->n_panels, chip->multiprocessors), chip);
    out->grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->name, sizeof out->name, "ek_products_warp_q4_l1_s%d", FEW_ROWS);
    return true;
}

/* The same for one matrix with few groups (per-layer gates have 4), while multiprocessors have at most ROW_CHUNKS
 * chunks each. With E4B a step of 16 rows gains 5 %, one of 32 nothing, and one of 64 would lose 2 %. */
static bool spread_row_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int tiles = ek_cuda_over(rows, FEW_ROWS), blocks = l->n_panels * tiles,
              chunks = ek_cuda_over(l->units, CHUNK_UNITS);
    const int max = blocks <= chip->multiprocessors ? 2 * EK_CUDA_WARPS : EK_CUDA_WARPS;
    if (!chip->clusters || l->n % 64 || blocks > EK_CUDA_WARP_BLOCKS * chip->multiprocessors ||
        blocks * chunks > ROW_CHUNKS * chip->multiprocessors)
        return false;
    *out = (ek_cuda_product){
        .grid = {.x = (unsigned)l->n_panels, .y = (unsigned)tiles, .cluster = EK_CUDA_SPREAD, .overlap = true},
        .share = 1};
    ring(out, l, CHUNK_UNITS, FEW_ROWS, 1, chunks < max ? chunks : max, ek_cuda_warp_room(chip), chip);
    out->grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->name, sizeof out->name, "ek_products_warp_q4_l2_s%d", FEW_ROWS);
    return true;
}

ek_cuda_product ek_cuda_warp_64_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                     const ek_cuda_chip *chip)
{
    int row, few_row;
    const ek_cuda_product p = plan_by(l, CHUNK_UNITS, rows, jobs, gate, chip, &row);
    const bool alone = !gate && !jobs;
    ek_cuda_product spread;
    if (gate == EK_CUDA_GATE_ROW && !jobs && l->bits == 4 && l->limbs == 2 && spread_row_plan(&spread, l, rows, chip))
        return spread;
    if (l->bits != 4 || gate == EK_CUDA_GATE_ROW || (jobs && gate) || (!alone && l->limbs == 2)) return p;
    if (rows > (alone && l->limbs == 1 ? 2 * FEW_ROWS : FEW_ROWS)) return p;
    if (gate && spread_plan(&spread, l, chip)) return spread;
    /* if every warp has one chunk anyway, a larger chunk takes longer; for experts and more rows a block has one
     * share */
    const ek_cuda_product few = plan_by(l, FEW_UNITS, rows, jobs, gate, chip, &few_row);
    const bool once = (int)few.grid.x * few.share >= l->n_panels;
    return few_row < row && (once || (!jobs && rows <= FEW_ROWS)) ? few : p;
}

double ek_cuda_warp_64_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    if (rows > 8)
        return chip->us->warp_64.gates_launch +
               chip->us->warp_64.gates_weight * 2 * (double)l->n * (double)l->k * ek_cuda_over(rows, 8);
    int row; /* chunks of 256 inputs, even if larger ones took less time */
    plan_by(l, CHUNK_UNITS, rows, 0, EK_CUDA_GATE_MATRIX, chip, &row);
    return chip->us->warp_64.gate_launch +
           (chip->us->warp_64.gate_chunk + chip->us->warp_64.gate_row * (rows - 1)) * row;
}

/* The launch by chunks of this many units; *row: chunks that a warp takes one after the other. */
static ek_cuda_heads heads_by(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int units,
                              int rows, const ek_cuda_chip *chip, int *row)
{
    const int q_rows = units == FEW_UNITS ? FEW_ROWS : 8, k_rows = rows_of(k, rows);
    const int tiles = rows <= 4 ? 1 : ek_cuda_over(rows, 8),
              places = ek_cuda_over(chip->multiprocessors * EK_CUDA_WARP_BLOCKS, tiles);
    const int parts = v ? 2 : 1, panels = q->n_panels + parts * k->n_panels;
    ek_cuda_heads p = {.q.share = share_of(q, units, q_rows, panels, places, ek_cuda_warp_sums(chip)),
                       .k.share = share_of(k, units, k_rows, panels, places, ek_cuda_warp_sums(chip))};
    const int q_shares = ek_cuda_over(q->n_panels, p.q.share), k_shares = ek_cuda_over(k->n_panels, p.k.share),
              shares = q_shares + parts * k_shares;
    const int each = ek_cuda_over(shares, places); /* shares per block */
    const int of_q = in_a_row(q, units, p.q.share, each, EK_CUDA_WARPS),
              of_k = in_a_row(k, units, p.k.share, each, EK_CUDA_WARPS);
    *row = of_q > of_k ? of_q : of_k;
    p.q_blocks = ek_cuda_over(q_shares, each), p.k_blocks = ek_cuda_over(k_shares, each);
    ring(&p.q, q, units, q_rows, each, EK_CUDA_WARPS, ek_cuda_warp_room(chip), chip);
    ring(&p.k, k, units, k_rows, each, EK_CUDA_WARPS, ek_cuda_warp_room(chip), chip);
    ek_cuda_grid *grid = &p.q.grid;
    if (grid->shared < p.k.grid.shared) grid->shared = p.k.grid.shared;
    grid->x = (unsigned)(p.q_blocks + parts * p.k_blocks), grid->y = (unsigned)tiles, grid->overlap = true;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_warp_heads_q4_%s",
             units == FEW_UNITS ? "r4"
             : k_rows == 4      ? "o1"
                                : "o2");
    return p;
}

bool ek_cuda_warp_64_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip)
{
    if (!ek_cuda_affine_64(q) || !ek_cuda_affine_64(k) || (v && !ek_cuda_linear_alike(k, v)) || q->bits != 4 ||
        k->bits != 4 || q->limbs != 1 || k->limbs != 2)
        return false;
    int row = 0, few_row = 0;
    *out = heads_by(q, k, v, CHUNK_UNITS, rows, chip, &row);
    if (rows > FEW_ROWS) return true;
    const ek_cuda_heads few = heads_by(q, k, v, FEW_UNITS, rows, chip, &few_row);
    if (few_row < row) *out = few;
    return true;
}

static bool takes(const ek_cuda_linear *l, int rows)
{
    return rows <= 8 && ek_cuda_affine_64(l) && l->bits == 4 && l->limbs == 1;
}

static int whole_clusters(int blocks)
{
    return ek_cuda_over(blocks, EK_CUDA_SPREAD) * EK_CUDA_SPREAD;
}

bool ek_cuda_warp_64_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip)
{
    if (!chip->clusters || !takes(gate, rows) || gate->n % 64 || !down->units || down->a_group != 64 ||
        !ek_cuda_affine_64(router) || router->limbs != 2)
        return false;
    const int route_rows = rows_of(router, rows);
    *out = (ek_cuda_heads){
        .q.share = 2, .q.grid.cluster = EK_CUDA_SPREAD, .k.share = 1, .k_tiles = ek_cuda_over(rows, route_rows)};
    out->q_blocks = gate->n_panels, out->k_blocks = whole_clusters(router->n_panels);
    const ek_cuda_cut c = cut_of(gate, CHUNK_UNITS, 8), of_router = cut_of(router, CHUNK_UNITS, route_rows);
    ek_cuda_cut_rings(out, &c, &of_router, EK_CUDA_WARPS, ek_cuda_warp_room(chip), chip);
    out->q.grid.x = (unsigned)(out->q_blocks + out->k_blocks * out->k_tiles + EK_CUDA_SPREAD);
    out->q.grid.shared += EK_CUDA_SPREAD_SHARED;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_first_q%d_o%d", router->bits, route_rows * 2 / 8);
    return true;
}

bool ek_cuda_warp_64_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip)
{
    if (!takes(gate, tile) || gate->n % 64 || !expert_down->units || expert_down->a_group != 64 || !takes(down, rows))
        return false;
    const bool few = tile <= FEW_ROWS;
    const int units = few ? FEW_UNITS : CHUNK_UNITS, per_tile = few ? FEW_ROWS : 8;
    *out = (ek_cuda_heads){.q.share = 8, .k_tiles = ek_cuda_over(rows, per_tile)};
    out->q_blocks = ek_cuda_over(2 * gate->n_panels, 8);
    /* the dense matrix takes the multiprocessors that the experts do not use, or shares some with them */
    int left = chip->multiprocessors - out->q_blocks * jobs;
    const bool alone = left >= chip->multiprocessors / 4;
    if (!alone) left = chip->multiprocessors * 2 / 3;
    out->k.share = share_of(down, units, per_tile, down->n_panels * out->k_tiles, left, ek_cuda_warp_sums(chip));
    out->k_blocks = ek_cuda_over(down->n_panels, out->k.share);
    const ek_cuda_cut c = cut_of(gate, units, per_tile), of_down = cut_of(down, units, per_tile);
    ek_cuda_cut_rings(out, &c, &of_down, alone ? 2 * EK_CUDA_WARPS : EK_CUDA_WARPS,
                      alone ? 2 * ek_cuda_warp_room(chip) : ek_cuda_warp_room(chip), chip);
    out->q.grid.x = (unsigned)(out->q_blocks * jobs + out->k_blocks * out->k_tiles);
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_second_%s", few ? "r4" : "o1");
    return true;
}
