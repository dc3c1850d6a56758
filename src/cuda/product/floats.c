#include "cuda/product/floats.h"

#include <stdio.h>

enum { ROWS = 8 }; /* of a tile */

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

ek_cuda_product ek_cuda_floats_plan(const ek_cuda_linear *l, int rows)
{
    const int per_tile = rows == 1 ? 1 : ROWS;
    ek_cuda_product p = plan(l, per_tile, ek_cuda_over(rows, per_tile));
    snprintf(p.name, sizeof p.name, "ek_product_%s_r%d", name_of(l), per_tile);
    return p;
}

ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices)
{
    ek_cuda_product p = plan(l, ROWS, jobs ? jobs : ek_cuda_over(rows, ROWS));
    p.grid.z = (unsigned)matrices;
    snprintf(p.name, sizeof p.name, "ek_products_%s_r%d", name_of(l), ROWS);
    return p;
}
