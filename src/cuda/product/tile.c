#include "cuda/product/tile.h"

#include <stdio.h>

#include "cuda/product/format.h"
#include "cuda/product/parts.h"

enum { SLOTS = 3, OUTPUTS = 128, COLUMNS = 64, PANELS = OUTPUTS / EK_PANEL, BLOCKS = 2 /* of a multiprocessor */ };

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return (rows * l->limbs + COLUMNS - 1) / COLUMNS * ((l->n_panels + PANELS - 1) / PANELS);
}

/* A multiprocessor with two tiles takes less than twice as long. */
double ek_cuda_tile_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int parts = units ? ek_cuda_over(l->units, units) : 1, each = units ? units : l->units;
    const int waves = ek_cuda_over(tiles_of(l, rows) * parts, chip->multiprocessors);
    return ek_cuda_small_groups(chip->us, l->a_group) * each *
           (waves == 1 ? chip->us->tile.alone : chip->us->tile.shared[l->limbs - 1] * waves);
}

/* Kernels of a format of their own, where there is one. */
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
