#include "cuda/product/floats.h"

#include <stdio.h>

#include "cuda/many.h"
#include "cuda/product/parts.h"

enum { ROWS = 8 }; /* of a tile */

int ek_cuda_floats_levels(int k)
{
    return ek_cuda_nodes(ek_cuda_over(k, EK_KBLOCK));
}

static const char *name_of(const ek_cuda_linear *l)
{
    return l->form == EK_W_F32 ? "f32" : l->form == EK_W_F16 ? "f16" : "bf16";
}

/* For tiles of so many rows. */
static ek_cuda_product plan(const ek_cuda_linear *l, int per_tile, int tiles)
{
    const size_t leaves = (size_t)(l->k + EK_KBLOCK - 1) / EK_KBLOCK;
    return (ek_cuda_product){.grid = {.x = (unsigned)l->n_panels,
                                      .y = (unsigned)tiles,
                                      .threads = 256,
                                      .shared = leaves * (size_t)per_tile * EK_PANEL * 4,
                                      .overlap = true}};
}

ek_cuda_product ek_cuda_floats_plan_few(const ek_cuda_linear *l, int rows)
{
    const int per_tile = rows == 1 ? 1 : ROWS;
    ek_cuda_product p = plan(l, per_tile, ek_cuda_over(rows, per_tile));
    snprintf(p.name, sizeof p.name, "ek_product_%s_r%d", name_of(l), per_tile);
    return p;
}

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_over(rows, EK_CUDA_MANY_ROWS) * ek_cuda_over(l->n, EK_CUDA_MANY_OUTPUTS);
}

double ek_cuda_floats_few_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int waves = ek_cuda_over(l->n_panels * ek_cuda_over(rows, ROWS), chip->multiprocessors);
    return chip->us->floats.launch + chip->us->floats.few * waves * l->k;
}

double ek_cuda_floats_tiles_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int each = units ? units * 64 : l->k, parts = ek_cuda_over(l->k, each);
    const int waves = ek_cuda_over(tiles_of(l, rows) * parts, chip->multiprocessors);
    return chip->us->floats.launch + each * (waves == 1 ? chip->us->floats.alone : chip->us->floats.shared * waves);
}

ek_cuda_product ek_cuda_floats_plan_tiles(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                          double *us)
{
    const int tiles = tiles_of(l, rows), max = EK_CUDA_MANY_BLOCKS * chip->multiprocessors;
    ek_cuda_product p = {.levels = ek_cuda_floats_levels(l->k),
                         .grid = {.x = (unsigned)(tiles < max ? tiles : max),
                                  .threads = EK_CUDA_MANY_THREADS,
                                  .shared = EK_CUDA_MANY_SHARED,
                                  .overlap = true}};
    p.stack = p.grid.x * (size_t)p.levels * EK_CUDA_MANY_ROWS * EK_CUDA_MANY_OUTPUTS * sizeof(float);
    snprintf(p.name, sizeof p.name, "ek_product_%s_many", name_of(l));
    *us = ek_cuda_floats_tiles_us(l, rows, 0, chip);
    ek_cuda_in_parts(&p, l, rows, chip, room, tiles, EK_CUDA_MANY_BLOCKS, ek_cuda_floats_tiles_us, us);
    return p;
}

ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices)
{
    ek_cuda_product p = plan(l, ROWS, jobs ? jobs : ek_cuda_over(rows, ROWS));
    p.grid.z = (unsigned)matrices;
    snprintf(p.name, sizeof p.name, "ek_products_%s_r%d", name_of(l), ROWS);
    return p;
}
