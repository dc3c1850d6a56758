#include "cuda/layer_end.h"

#include <stdio.h>

enum { MAX_BLOCKS = 16, MIN_BLOCKS = 4, MAX_ROWS = 8, THREADS = EK_CUDA_LAYER_END_THREADS };
enum { MAX_INPUTS = 1024, CONTROL = 448, UNIT_SCALES = 64 }; /* of proj: one leaf; bytes of arrivals and sums of rows */

/* The place of `bytes` in a block's shared memory, which ends at *end. */
static int32_t take(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end = at + (bytes + 63) / 64 * 64;
    return (int32_t)at;
}

/* Blocks of a row, as many as share the panels of both matrices evenly. Most win: no step waits for more than one warp
 * does. */
static int blocks_of(const ek_cuda_linear *gate, const ek_cuda_linear *proj)
{
    int blocks = MAX_BLOCKS;
    while (gate->n_panels % blocks || proj->n_panels % blocks) blocks /= 2;
    return blocks;
}

bool ek_cuda_layer_end_plan(ek_cuda_product *out, ek_cuda_layer_end_args *args, const ek_cuda_linear *gate,
                            const ek_cuda_linear *proj, int rows)
{
    if (rows > MAX_ROWS || !ek_cuda_leaf_fits(gate) || !ek_cuda_leaf_fits(proj) || gate->bits != 4 || proj->bits != 4 ||
        gate->limbs != proj->limbs || gate->n != proj->k || gate->k != proj->n || gate->n > MAX_INPUTS ||
        gate->k > THREADS * 8)
        return false;
    const int blocks = blocks_of(gate, proj), panels = gate->n_panels / blocks, panels2 = proj->n_panels / blocks;
    if (blocks < MIN_BLOCKS || panels * EK_PANEL * 4 > THREADS || panels2 * EK_PANEL > THREADS) return false;
    const int units = panels * gate->units, units2 = panels2 * proj->units;
    const size_t unit = (size_t)gate->bits * 128 + UNIT_SCALES;
    size_t end = CONTROL, bytes = ek_cuda_acts_plan(&args->row, gate->k, 64);
    args->row.q = (ek_cuda_ptr)take(&end, bytes);
    bytes = ek_cuda_acts_plan(&args->gated, gate->n, 64);
    args->gated.q = (ek_cuda_ptr)take(&end, bytes);
    args->n = gate->k, args->size = gate->n, args->zero = gate->zero;
    args->gate_panels = panels, args->proj_panels = panels2, args->proj_shift = 0;
    while (args->proj_shift < 2 && panels2 * EK_PANEL << (args->proj_shift + 1) <= THREADS) args->proj_shift++;
    args->value = take(&end, (size_t)(units > units2 ? units : units2) * EK_PANEL * sizeof(float));
    args->g = take(&end, (size_t)gate->n * sizeof(float));
    args->sum = take(&end, (size_t)gate->k * sizeof(float));
    args->gate_at = take(&end, (size_t)units * unit);
    args->proj_at = take(&end, (size_t)units2 * unit);
    *out = (ek_cuda_product){.grid = {.x = (unsigned)blocks,
                                      .y = (unsigned)rows,
                                      .threads = THREADS,
                                      .cluster = (unsigned)blocks,
                                      .shared = end,
                                      .overlap = true}};
    snprintf(out->name, sizeof out->name, "ek_layer_end_q%d_l%d", gate->bits, gate->limbs);
    return true;
}
