#include "cuda/rows/launch.h"

#include <stdio.h>
#include <string.h>

#include "cuda/product/product.h"

enum { MAX_BLOCKS = 16, MIN_BLOCKS = 4, MAX_ROWS = 8, THREADS = EK_CUDA_LAYER_END_THREADS };
enum { MAX_INPUTS = 1024, CONTROL = 448 }; /* inputs of proj: one leaf; bytes of arrivals and of rows' sums */

/* Takes `bytes` of a block's shared memory, which so far ends at *end; returns their offset. */
static int32_t take(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end = at + (bytes + 63) / 64 * 64;
    return (int32_t)at;
}

/* The number of blocks per row: the largest that divides the panels of both matrices evenly, because a step then waits
 * for no more than one warp's work. */
static int blocks_of(const ek_cuda_linear *gate, const ek_cuda_linear *proj)
{
    int blocks = MAX_BLOCKS;
    while (gate->n_panels % blocks || proj->n_panels % blocks) blocks /= 2;
    return blocks;
}

/* The shapes for which the kernels are compiled. */
static bool fits(const ek_cuda_linear *l)
{
    static const char *const kinds[] = {"q4", "q4h_32", "q8h_32", "q4fm_32", "q8fm_32"};
    if (l->k % 64 || (!ek_cuda_affine_64(l) && !ek_cuda_own_scales(l))) return false;
    const ek_cuda_kind kind = ek_cuda_kind_of(l);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind.name, kinds[i])) return true;
    return l->limbs == 2 && !strcmp(kind.name, "q8f_16");
}

/* Whether groups of `next` can be written: l's groups, or groups of 32 by matrices with groups of 16. */
static bool writes(const ek_cuda_linear *l, const ek_cuda_linear *next)
{
    return !next->units || next->a_group == l->a_group || (l->a_group == 16 && next->a_group == 32);
}

bool ek_cuda_layer_end_plan(ek_cuda_product *out, ek_cuda_layer_end_args *args, const ek_cuda_linear *gate,
                            const ek_cuda_linear *proj, const ek_cuda_linear *next, int rows, const ek_cuda_chip *chip)
{
    if (!chip->clusters || rows > MAX_ROWS || !fits(gate) || gate->form != proj->form || gate->group != proj->group ||
        gate->bits != proj->bits || gate->biased != proj->biased || gate->f16_scales != proj->f16_scales ||
        gate->f32_scales != proj->f32_scales || gate->zero != proj->zero || gate->limbs != proj->limbs ||
        gate->n != proj->k || gate->k != proj->n || gate->n > MAX_INPUTS || gate->n % 64 || gate->k > THREADS * 8 ||
        !writes(gate, next))
        return false;
    const int blocks = blocks_of(gate, proj), panels = gate->n_panels / blocks, panels2 = proj->n_panels / blocks;
    if (blocks < MIN_BLOCKS || panels * EK_PANEL * 4 > THREADS || panels2 * EK_PANEL > THREADS) return false;
    const int units = panels * gate->units, units2 = panels2 * proj->units;
    const size_t in_unit = 64 / (size_t)gate->group,
                 unit = (size_t)gate->bits * 128 + in_unit * EK_PANEL * ek_cuda_linear_scale(gate);
    size_t end = CONTROL, bytes = ek_cuda_acts_plan(&args->row, gate->k, gate->a_group);
    args->row.q = (ek_cuda_ptr)take(&end, bytes);
    bytes = ek_cuda_acts_plan(&args->gated, gate->n, gate->a_group);
    args->gated.q = (ek_cuda_ptr)take(&end, bytes);
    args->n = gate->k, args->size = gate->n, args->zero = gate->zero;
    args->gate_panels = panels, args->proj_panels = panels2, args->proj_shift = 0;
    while (args->proj_shift < 2 && panels2 * EK_PANEL << (args->proj_shift + 1) <= THREADS) args->proj_shift++;
    args->value = take(&end, (size_t)(units > units2 ? units : units2) * in_unit * EK_PANEL * sizeof(float));
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
    snprintf(out->name, sizeof out->name, "ek_layer_end_%s_l%d", ek_cuda_kind_of(gate).name, gate->limbs);
    return true;
}
