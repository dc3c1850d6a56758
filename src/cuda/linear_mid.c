/* How products of 9 to some hundred rows are launched (kernels/product_mid.cuh), and how long they take. */
#include <stdio.h>

#include "cuda/linear.h"

enum { MIN_OCT = 1, MAX_OCT = EK_CUDA_MID_MAX_OCT }; /* columns of a block over 8 */
enum { LEAF_UNITS = EK_KBLOCK_Q / 64, MEMORY = 233472, MAX_BLOCKS = 3 /* of a multiprocessor, by registers */ };

static int over(int n, int by)
{
    return (n + by - 1) / by;
}

bool ek_cuda_mid_fits(const ek_cuda_linear *l)
{
    return ek_cuda_wide_fits(l) && l->bits == 4;
}

bool ek_cuda_mid_may(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_mid_fits(l) && (rows >= 8 || (double)l->n * l->k > 100e6);
}

/* units: of a part. */
static size_t shared_bytes(const ek_cuda_linear *l, int oct, int units)
{
    int levels = 0;
    while ((units - 1) / LEAF_UNITS >> levels) levels++;
    return (size_t)(EK_CUDA_MID_STAGES(oct) * EK_CUDA_MID_STAGE(oct, l->limbs) +
                    levels * EK_CUDA_MID_NODE(oct, l->limbs));
}

static int groups(const ek_cuda_linear *l, ek_cuda_gate gate)
{
    return over(l->n_panels, gate ? EK_CUDA_MID_PANELS / 2 : EK_CUDA_MID_PANELS);
}

/* Fitted on an H200 (docs/cuda/products.md), in us: so many blocks of so many units, of which `most` fit a
 * multiprocessor at once. A block's unit takes `alone`, or where several share a multiprocessor `each`: with two groups
 * of 32 in it, half as long again. */
static double blocks_us(const ek_cuda_linear *l, int blocks, int units, int oct, int most, int multiprocessors)
{
    const double longer = l->group == 32 ? 1.5 : 1;
    const double alone = longer * (0.2 + 0.05 * oct), each = longer * (0.04 + 0.07 * oct);
    double us = 1;
    if (most > MAX_BLOCKS) most = MAX_BLOCKS;
    for (; blocks > 0; blocks -= most * multiprocessors) {
        const int share = blocks < most * multiprocessors ? over(blocks, multiprocessors) : most;
        us += units * (each * share > alone ? each * share : alone);
    }
    return us;
}

/* In parts of that many units. */
static double part_us(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate, int multiprocessors)
{
    const int n_parts = over(l->units, units), blocks = groups(l, gate) * n_parts * over(rows * l->limbs, oct * 8);
    double us = blocks_us(l, blocks, units, oct, (int)(MEMORY / (shared_bytes(l, oct, units) + 1024)), multiprocessors);
    if (n_parts > 1) us += 1.5 + 2 * (double)n_parts * rows * l->n * 4 / 2.5e6;
    return us + (gate ? 1 + 0.7 * oct : 0);
}

static ek_cuda_product plan_of(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate)
{
    const int parts = over(l->units, units), tiles = over(rows * l->limbs, oct * 8);
    ek_cuda_product p = {.grid = {.x = (unsigned)(groups(l, gate) * parts * tiles),
                                  .threads = EK_CUDA_MID_THREADS,
                                  .shared = shared_bytes(l, oct, units),
                                  .overlap = true}};
    if (parts > 1) p.split = units, p.parts = parts;
    snprintf(p.name, sizeof p.name, "ek_product_mid%s_%s_l%d_o%d", gate ? "_gate" : "", ek_cuda_kind_of(l).name,
             l->limbs, oct);
    return p;
}

ek_cuda_product ek_cuda_mid_plan_by(const ek_cuda_linear *l, int rows, int oct, ek_cuda_gate gate)
{
    return plan_of(l, rows, oct, l->units, gate);
}

ek_cuda_product ek_cuda_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, int multiprocessors, size_t room,
                                 double *us)
{
    int oct = 0, best = l->units;
    for (int o = MIN_OCT; o <= MAX_OCT; o *= 2)
        for (int units = LEAF_UNITS;; units *= 2) {
            const bool whole = units >= l->units;
            if (!whole && (gate || (size_t)over(l->units, units) * (size_t)rows * (size_t)l->n * 4 > room)) continue;
            const double t = part_us(l, rows, o, whole ? l->units : units, gate, multiprocessors);
            if (!oct || t < *us) *us = t, oct = o, best = whole ? l->units : units;
            if (whole) break;
        }
    return plan_of(l, rows, oct, best, gate);
}

bool ek_cuda_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                        const ek_cuda_linear *next, int multiprocessors)
{
    if (!jobs && gate == EK_CUDA_GATE_MATRIX && l->limbs == 1 && ek_cuda_mid_may(l, rows) && l->n % 64 == 0 &&
        next->units && next->a_group == l->a_group) {
        double us;
        const double leaf = l->group == 32 ? 2 * ek_cuda_plane_us(l, rows)
                                           : ek_cuda_leaf_gate_us(l, rows, multiprocessors);
        *out = ek_cuda_mid_plan(l, rows, gate, multiprocessors, 0, &us);
        if (us < leaf) return us < 2 * ek_cuda_wide_us(l, rows, 0, multiprocessors);
    }
    if (!ek_cuda_gate_fits(l, rows, jobs, next, multiprocessors)) return false;
    *out = ek_cuda_few_plan(l, rows, jobs, gate, multiprocessors);
    return true;
}

ek_cuda_heads ek_cuda_mid_heads_by(const ek_cuda_linear *q, const ek_cuda_linear *k, bool v, int rows, int oct)
{
    ek_cuda_heads p = {.q = plan_of(q, rows, oct, q->units, EK_CUDA_GATE_NONE),
                       .k = plan_of(k, rows, oct, k->units, EK_CUDA_GATE_NONE)};
    p.q_blocks = (int)p.q.grid.x, p.k_blocks = (int)p.k.grid.x;
    p.q.grid.x += (unsigned)((v ? 2 : 1) * p.k_blocks);
    if (p.q.grid.shared < p.k.grid.shared) p.q.grid.shared = p.k.grid.shared;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_mid_heads_%s_o%d", ek_cuda_kind_of(q).name, oct);
    return p;
}

bool ek_cuda_mid_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                            const ek_cuda_linear *v, int rows, int multiprocessors)
{
    if (!ek_cuda_mid_fits(q) || !ek_cuda_mid_fits(k) || (v && !ek_cuda_linear_alike(k, v)) || q->limbs != 1 ||
        k->limbs != 2 || q->group != k->group)
        return false;
    const int parts = v ? 2 : 1;
    double best = 2.5 + 0.24e-6 * ((double)q->n + 2.0 * parts * k->n) * q->k * ((rows + 7) / 8); /* by leaves */
    bool any = false;
    for (int oct = MIN_OCT; oct <= MAX_OCT; oct *= 2) { /* one width for all */
        const ek_cuda_heads p = ek_cuda_mid_heads_by(q, k, v, rows, oct);
        const double us = blocks_us(q, (int)p.q.grid.x, q->units, oct, (int)(MEMORY / (p.q.grid.shared + 1024)),
                                    multiprocessors);
        if (us < best) best = us, *out = p, any = true;
    }
    /* products of their own for many rows */
    return any && best < ek_cuda_wide_us(q, rows, 0, multiprocessors);
}
