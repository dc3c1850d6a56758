#include "cuda/product/units.h"

#include <stdio.h>

enum { MIN_WARPS = 8, SLOTS = 4 };

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
    while (warps > 2 && (size_t)(warps * SLOTS) * slot + leaf_bytes + 16 * unit_values > chip->block_shared) warps /= 2;
    while (warps >= MIN_WARPS && warps < max && l->units > warps &&
           l->n_panels * layers * (warps + 8) <= chip->multiprocessors * max &&
           (size_t)((warps + 8) * SLOTS) * slot + leaf_bytes + 16 * unit_values < memory)
        warps += 8;
    /* the longest pass with which as many blocks fit as there are registers for, else one of 16 units */
    const size_t ring = (size_t)(warps * SLOTS) * slot, room = memory / (size_t)(max / warps) - 1024;
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
