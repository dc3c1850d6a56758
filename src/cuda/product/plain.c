#include "cuda/product/product.h"

#include <stdio.h>

enum { TILE = 4 }; /* rows of a block (vulkan/shaders/product_q.glsl) */

/* A block of threads for each panel and tile of rows; of floats, row. */
ek_cuda_product ek_cuda_plain_plan(const ek_cuda_linear *l, int rows)
{
    ek_cuda_product p = {.grid = {.x = (unsigned)l->n_panels,
                                  .y = (unsigned)(l->units ? (rows + TILE - 1) / TILE : rows),
                                  .threads = 256}};
    if (l->units) snprintf(p.name, sizeof p.name, "ek_product_plain_q%d_l%d", l->bits, l->limbs);
    else
        snprintf(p.name, sizeof p.name, "ek_product_plain_%s",
                 l->form == EK_W_F32   ? "f32"
                 : l->form == EK_W_F16 ? "f16"
                                       : "bf16");
    return p;
}
