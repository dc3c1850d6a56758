#include "cuda/product/product.h"

#include <stdio.h>

enum { SLOTS = 3, OUTPUTS = 128, COLUMNS = 64, PANELS = OUTPUTS / EK_PANEL, BLOCKS = 2 /* of a multiprocessor */ };

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return (rows * l->limbs + COLUMNS - 1) / COLUMNS * ((l->n_panels + PANELS - 1) / PANELS);
}

/* Two tiles on a multiprocessor take less than twice the time of one. */
double ek_cuda_tile_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int parts = units ? ek_cuda_over(l->units, units) : 1, each = units ? units : l->units;
    const int waves = ek_cuda_over(tiles_of(l, rows) * parts, chip->multiprocessors);
    return ek_cuda_small_groups(chip->us, l->a_group) * each *
           (waves == 1 ? chip->us->tile.alone : chip->us->tile.shared[l->limbs - 1] * waves);
}

/* Whether the format has its own kernels. */
static bool has_own(const ek_cuda_linear *l)
{
    return ek_cuda_own_scales(l) && (l->group == 16 || (l->biased ? l->bits == 4 && !l->f16_scales : l->f16_scales));
}

static ek_cuda_product plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int sub = 64 / l->a_group, per_tile = COLUMNS / l->limbs, leaves = ek_cuda_over(l->k, EK_KBLOCK_Q);
    const int tiles = tiles_of(l, rows);
    ek_cuda_product p = {0};
    const size_t slot = PANELS * (size_t)l->bits * 128 + 4096 + (size_t)(sub * per_tile) * 8 +
                        (size_t)sub * OUTPUTS * ek_cuda_linear_scale(l);
    while (leaves >> p.levels) p.levels++;
    int blocks = BLOCKS * chip->multiprocessors;
    if (blocks > tiles) blocks = tiles;
    p.stack = (size_t)blocks * (size_t)p.levels * OUTPUTS * (size_t)per_tile * 4;
    p.grid = (ek_cuda_grid){.x = (unsigned)blocks, .threads = 256, .shared = SLOTS * slot, .overlap = true};
    return p;
}

ek_cuda_product ek_cuda_tile_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room, double *us)
{
    ek_cuda_product p = plan(l, rows, chip);
    if (has_own(l)) snprintf(p.name, sizeof p.name, "ek_product_%s_l%d_tile", ek_cuda_kind_of(l).name, l->limbs);
    else snprintf(p.name, sizeof p.name, "ek_product_q%d_l%d_a%d_tile", l->bits, l->limbs, l->a_group);
    *us = ek_cuda_tile_us(l, rows, 0, chip);
    ek_cuda_in_parts(&p, l, rows, chip, room, tiles_of(l, rows), BLOCKS, ek_cuda_tile_us, us);
    return p;
}

ek_cuda_product ek_cuda_tile_plan_jobs(const ek_cuda_linear *l, int jobs, int matrices, const ek_cuda_chip *chip)
{
    ek_cuda_product p = plan(l, COLUMNS / l->limbs, chip);
    const int blocks = BLOCKS * chip->multiprocessors / matrices, tiles = jobs * ((l->n_panels + PANELS - 1) / PANELS);
    p.grid.x = (unsigned)(blocks < tiles ? blocks : tiles), p.grid.z = (unsigned)matrices;
    snprintf(p.name, sizeof p.name, "ek_products_q%d_l%d_a%d_tile", l->bits, l->limbs, l->a_group);
    return p;
}

/* --- units */

enum { MIN_WARPS = 8, UNIT_SLOTS = 4 };

/* Blocks that take as many panels each. */
static unsigned even(int panels, int blocks)
{
    int each = (panels + blocks - 1) / blocks;
    return (unsigned)((panels + each - 1) / each);
}

ek_cuda_product ek_cuda_units_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip)
{
    int oct = 1;
    while (oct * 8 / l->limbs < rows && oct * 8 / l->limbs < EK_CUDA_UNITS_ROWS) oct *= 2;
    const size_t memory = chip->shared - 4096; /* and some to spare */
    const int sub = 64 / l->a_group, per_tile = oct * 8 / l->limbs, values = EK_PANEL * per_tile;
    const int leaves = (l->k + EK_KBLOCK_Q - 1) / EK_KBLOCK_Q, tiles = jobs ? jobs : (rows + per_tile - 1) / per_tile;
    const int layers = tiles * (matrices ? matrices : 1); /* of blocks */
    const size_t unit_values = (size_t)(sub * values) * 4, leaf_bytes = (size_t)(leaves * values) * 4;
    const size_t slot = (size_t)l->bits * 128 + (size_t)sub * 64 * ek_cuda_linear_scale(l) + (size_t)oct * 512;
    /* warps that a multiprocessor has registers for, and a block's share: more where there are few panels */
    const int max = l->a_group == 32 || oct > 1 || matrices ? 16 : 24;
    int warps = MIN_WARPS;
    while (warps > 2 && (size_t)(warps * UNIT_SLOTS) * slot + leaf_bytes + 16 * unit_values > chip->block_shared)
        warps /= 2;
    while (warps >= MIN_WARPS && warps < max && l->units > warps &&
           l->n_panels * layers * (warps + 8) <= chip->multiprocessors * max &&
           (size_t)((warps + 8) * UNIT_SLOTS) * slot + leaf_bytes + 16 * unit_values < memory)
        warps += 8;
    /* the longest pass with which as many blocks fit as there are registers for, else one of 16 units */
    const size_t ring = (size_t)(warps * UNIT_SLOTS) * slot, room = memory / (size_t)(max / warps) - 1024;
    ek_cuda_product p = {.pass = 96};
    while (p.pass > 16 && ring + leaf_bytes + (size_t)(p.pass < l->units ? p.pass : l->units) * unit_values > room)
        p.pass -= 16;
    const size_t shared = ring + leaf_bytes + (size_t)(p.pass < l->units ? p.pass : l->units) * unit_values;
    int resident = (int)(memory / (shared + 1024));
    if (resident > max / warps) resident = max / warps;
    if (resident < 1) resident = 1;
    int blocks = chip->multiprocessors * resident;
    if (matrices) blocks = blocks * (jobs ? 2 : 1) / layers + 1; /* some jobs are empty */
    p.grid = (ek_cuda_grid){.x = even(l->n_panels, blocks),
                            .y = (unsigned)tiles,
                            .z = (unsigned)matrices,
                            .threads = (unsigned)warps * 32,
                            .shared = shared,
                            .overlap = true};
    snprintf(p.name, sizeof p.name, "ek_product%s_q%d_l%d_a%d_o%d", matrices ? "s" : "", l->bits, l->limbs, l->a_group,
             oct);
    return p;
}

double ek_cuda_units_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int passes = (rows + EK_CUDA_UNITS_ROWS - 1) / EK_CUDA_UNITS_ROWS * l->limbs;
    return ek_cuda_small_groups(chip->us, l->a_group) * chip->us->units.weight[l->limbs - 1] * (double)l->n *
           (double)l->k * passes;
}

/* --- dividing a product: into parts, and into the pieces of a block's warps */

void ek_cuda_in_parts(ek_cuda_product *p, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                      int tiles, int blocks, ek_cuda_part_us *part_us, double *us)
{
    const size_t part_bytes = (size_t)rows * (size_t)l->n * sizeof(float);
    const int all_units = ek_cuda_over(l->k, 64), leaf_units = (l->units ? EK_KBLOCK_Q : EK_KBLOCK) / 64;
    for (int units = leaf_units; units < all_units; units *= 2) {
        const int parts = ek_cuda_over(all_units, units);
        const size_t bytes = part_bytes * (size_t)parts;
        if (bytes > room) continue;
        const double t = part_us(l, rows, units, chip) + chip->us->parts.sum +
                         2 * (double)bytes / chip->us->parts.bytes;
        if (t >= *us) continue;
        *us = t;
        p->split = units, p->parts = parts;
    }
    if (!p->parts) return;
    const size_t each = p->stack / p->grid.x;
    const int all = tiles * p->parts, max = blocks * chip->multiprocessors;
    p->grid.x = (unsigned)(all < max ? all : max);
    p->stack = p->grid.x * each;
}

ek_cuda_cut ek_cuda_cut_of(const ek_cuda_linear *l, int groups, int per_tile, int slots)
{
    const int inputs = groups * l->group, leaf_chunks = EK_KBLOCK_Q / inputs;
    const int chunks = ek_cuda_over(l->units * 64, inputs);
    return (ek_cuda_cut){.chunks = chunks,
                         .leaf_chunks = leaf_chunks,
                         .leaves = ek_cuda_over(chunks, leaf_chunks),
                         .slots = slots,
                         .chunk_bytes = (size_t)(inputs / 64 * l->bits * 128) +
                                        (size_t)groups * EK_PANEL * ek_cuda_linear_scale(l),
                         .leaf_bytes = sizeof(float) * EK_PANEL * (size_t)per_tile};
}

int ek_cuda_cut_share(const ek_cuda_cut *c, int panels, int places, int sums)
{
    const int share = ek_cuda_over(panels, places), max = sums / (int)((size_t)c->leaves * c->leaf_bytes);
    return share <= max ? share : max ? max : 1;
}

void ek_cuda_cut_ring(ek_cuda_product *p, const ek_cuda_cut *c, int shares, int warps, size_t room,
                      const ek_cuda_chip *chip)
{
    const int arrived = p->share * c->leaves * (c->leaf_chunks - 1); /* barriers of chunks that wait for other chunks */
    const size_t sums = 2 * (size_t)(p->share * c->leaves) * c->leaf_bytes, fixed = (size_t)arrived * 8 + 256 + sums;
    p->slots = ek_cuda_over(shares * p->share * c->chunks, warps);
    if (p->slots > c->slots) p->slots = c->slots;
    while (p->slots > 1 && fixed + (size_t)(warps * p->slots) * (c->chunk_bytes + 8) > room) p->slots--;
    const size_t slots = (size_t)(warps * p->slots);
    p->grid.threads = (unsigned)warps * 32;
    p->grid.shared = ((slots + (size_t)arrived) * 8 + 127) / 128 * 128 + slots * c->chunk_bytes + sums;
    if (p->grid.shared > chip->block_shared && warps > EK_CUDA_WARPS)
        ek_cuda_cut_ring(p, c, shares, EK_CUDA_WARPS, room, chip);
}

void ek_cuda_cut_rings(ek_cuda_heads *p, const ek_cuda_cut *q, const ek_cuda_cut *k, int warps, size_t room,
                       const ek_cuda_chip *chip)
{
    ek_cuda_cut_ring(&p->q, q, 1, warps, room, chip);
    ek_cuda_cut_ring(&p->k, k, 1, (int)p->q.grid.threads / 32, room, chip);
    if (p->k.grid.threads < p->q.grid.threads) ek_cuda_cut_ring(&p->q, q, 1, EK_CUDA_WARPS, room, chip);
    if (p->q.grid.shared < p->k.grid.shared) p->q.grid.shared = p->k.grid.shared;
    p->q.grid.overlap = true;
}
