#include "cuda/product/product.h"

#include <stdio.h>

#include "cuda/tiles.h"

enum { MIN_OCT = 1, MAX_OCT = EK_CUDA_MID_MAX_OCT }; /* columns per block, divided by 8 */
#define NEVER 1e30                                   /* us */
enum { LEAF_UNITS = EK_KBLOCK_Q / 64 };

bool ek_cuda_mid_fits(const ek_cuda_linear *l)
{
    return l->bits == 4 && (ek_cuda_affine_64(l) || ek_cuda_half_32(l));
}

/* Shared memory of a block; units: per part. */
static size_t shared_bytes(const ek_cuda_linear *l, int oct, int units)
{
    int levels = 0;
    while ((units - 1) / LEAF_UNITS >> levels) levels++;
    return (size_t)(EK_CUDA_MID_SLOTS(oct) * EK_CUDA_MID_SLOT(oct, l->limbs) +
                    levels * EK_CUDA_MID_NODE(oct, l->limbs));
}

static int groups(const ek_cuda_linear *l, ek_cuda_gate gate)
{
    return ek_cuda_over(l->n_panels, gate ? EK_CUDA_MID_PANELS / 2 : EK_CUDA_MID_PANELS);
}

/* The time of `blocks` blocks of this many units and bytes of shared memory. A block's unit takes `alone`, or `each` if
 * several blocks share a multiprocessor. Units with two groups of 32 take half as long again. */
static double blocks_us(const ek_cuda_linear *l, int blocks, int units, int oct, size_t shared,
                        const ek_cuda_chip *chip)
{
    const double longer = l->group == 32 ? chip->us->mid.half_32 : 1;
    const double alone = longer * (chip->us->mid.alone + chip->us->mid.alone_oct * oct),
                 each = longer * (chip->us->mid.each + chip->us->mid.each_oct * oct);
    double us = chip->us->mid.launch;
    int at_once = (int)(chip->shared / (shared + 1024));
    const int max = chip->wgmma ? 3 : 2; /* by registers */
    if (at_once > max) at_once = max;
    if (at_once < 1) at_once = 1;
    for (; blocks > 0; blocks -= at_once * chip->multiprocessors) {
        const int share = blocks < at_once * chip->multiprocessors ? ek_cuda_over(blocks, chip->multiprocessors)
                                                                   : at_once;
        us += units * (each * share > alone ? each * share : alone);
    }
    return us;
}

/* The time with parts of this many units. */
static double part_us(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate,
                      const ek_cuda_chip *chip)
{
    const int parts = ek_cuda_over(l->units, units);
    const int blocks = groups(l, gate) * parts * ek_cuda_over(rows * l->limbs, oct * 8);
    double us = blocks_us(l, blocks, units, oct, shared_bytes(l, oct, units), chip);
    if (parts > 1) us += chip->us->mid.sum + 2 * (double)parts * rows * l->n * 4 / chip->us->parts.bytes;
    return us + (gate ? chip->us->mid.gate + chip->us->mid.gate_oct * oct : 0);
}

ek_cuda_product ek_cuda_mid_plan_at(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate)
{
    const int parts = ek_cuda_over(l->units, units), tiles = ek_cuda_over(rows * l->limbs, oct * 8);
    ek_cuda_product p = {.grid = {.x = (unsigned)(groups(l, gate) * parts * tiles),
                                  .threads = EK_CUDA_MID_THREADS,
                                  .shared = shared_bytes(l, oct, units),
                                  .overlap = true}};
    if (parts > 1) p.split = units, p.parts = parts;
    snprintf(p.name, sizeof p.name, "ek_product_mid%s_%s_l%d_o%d", gate ? "_gate" : "", ek_cuda_kind_of(l).name,
             l->limbs, oct);
    return p;
}

ek_cuda_product ek_cuda_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, const ek_cuda_chip *chip,
                                 size_t room, double *us)
{
    int oct = MIN_OCT, best = l->units;
    *us = NEVER; /* a block has no room for the nodes of this many leaves */
    for (int o = MIN_OCT; o <= MAX_OCT; o *= 2)
        for (int units = LEAF_UNITS;; units *= 2) {
            const bool whole = units >= l->units;
            if (!whole && (gate || (size_t)ek_cuda_over(l->units, units) * (size_t)rows * (size_t)l->n * 4 > room))
                continue;
            const double t = part_us(l, rows, o, whole ? l->units : units, gate, chip);
            const bool holds = shared_bytes(l, o, whole ? l->units : units) <= chip->block_shared;
            if (holds && t < *us) *us = t, oct = o, best = whole ? l->units : units;
            if (whole) break;
        }
    return ek_cuda_mid_plan_at(l, rows, oct, best, gate);
}

bool ek_cuda_mid_job_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip)
{
    return chip->wgmma && ek_cuda_mid_fits(l) && l->limbs == 1;
}

bool ek_cuda_mid_job_takes(int rows)
{
    return rows == EK_CUDA_MID_JOB_FEW || rows == EK_CUDA_MID_JOB_MORE || rows == EK_CUDA_MID_JOB_ROWS;
}

/* With few columns more blocks share a multiprocessor (docs/log/2026-11-30-rows.md). */
int ek_cuda_mid_job_rows(int each)
{
    return each <= 12 ? EK_CUDA_MID_JOB_FEW : each <= 18 ? EK_CUDA_MID_JOB_MORE : EK_CUDA_MID_JOB_ROWS;
}

/* A block has room for the largest job. */
ek_cuda_product ek_cuda_mid_plan_jobs(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate)
{
    ek_cuda_product p = {
        .grid = {.x = (unsigned)groups(l, gate), .y = (unsigned)jobs, .threads = EK_CUDA_MID_THREADS, .overlap = true}};
    const int nodes = ek_cuda_nodes(ek_cuda_over(l->units, LEAF_UNITS));
    const int by = gate && rows < EK_CUDA_MID_JOB_MORE ? EK_CUDA_MID_JOB_MORE : rows; /* whose kernel it is */
    for (int oct = 1; oct * 8 <= rows; oct++) {
        const size_t bytes = (size_t)(EK_CUDA_MID_JOB_SLOTS(by, oct) * EK_CUDA_MID_SLOT(oct, 1) +
                                      EK_CUDA_MID_PICKED(by) + nodes * EK_CUDA_MID_NODE(oct, 1));
        if (bytes > p.grid.shared) p.grid.shared = bytes;
    }
    snprintf(p.name, sizeof p.name, "ek_products_mid%s_%s_l1_r%d", gate ? "_gate" : "", ek_cuda_kind_of(l).name, by);
    return p;
}

ek_cuda_heads ek_cuda_mid_heads_plan_at(const ek_cuda_linear *q, const ek_cuda_linear *k, bool v, int rows, int oct)
{
    ek_cuda_heads p = {.q = ek_cuda_mid_plan_at(q, rows, oct, q->units, EK_CUDA_GATE_NONE),
                       .k = ek_cuda_mid_plan_at(k, rows, oct, k->units, EK_CUDA_GATE_NONE)};
    p.q_blocks = (int)p.q.grid.x, p.k_blocks = (int)p.k.grid.x;
    p.q.grid.x += (unsigned)((v ? 2 : 1) * p.k_blocks);
    if (p.q.grid.shared < p.k.grid.shared) p.q.grid.shared = p.k.grid.shared;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_mid_heads_%s_o%d", ek_cuda_kind_of(q).name, oct);
    return p;
}

bool ek_cuda_mid_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                            const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip, double *us)
{
    if (!ek_cuda_mid_fits(q) || !ek_cuda_mid_fits(k) || (v && !ek_cuda_linear_alike(k, v)) || q->limbs != 1 ||
        k->limbs != 2 || q->group != k->group)
        return false;
    *us = NEVER;
    for (int oct = MIN_OCT; oct <= MAX_OCT; oct *= 2) { /* all matrices of the launch have one width */
        const ek_cuda_heads p = ek_cuda_mid_heads_plan_at(q, k, v, rows, oct);
        const double t = blocks_us(q, (int)p.q.grid.x, q->units, oct, p.q.grid.shared, chip);
        if (p.q.grid.shared <= chip->block_shared && t < *us) *us = t, *out = p;
    }
    return *us < NEVER;
}
