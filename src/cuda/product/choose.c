#include "cuda/product/product.h"

#include "cuda/tiles.h"

enum { PROMPT = 256 }; /* rows from which on what lies between products writes them in wgmma's order */
enum { FEW = 8 };      /* maximum rows of a tile of the family `warp` */

/* The time by whole tiles of many rows: of wgmma if such kernels exist and fit. */
static double many_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_wide_fits(l, chip) ? ek_cuda_wide_us(l, rows, 0, chip) : ek_cuda_tile_us(l, rows, 0, chip);
}

/* Whether the chip has enough shared memory: long rows have many sums. */
static bool holds(const ek_cuda_grid *g, const ek_cuda_chip *chip)
{
    return g->shared <= chip->block_shared;
}

/* Whether the family `warp` can compute this many rows. */
static bool warp_can(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    if (!ek_cuda_warp_fits(l)) return false;
    const ek_cuda_product p = ek_cuda_warp_plan(l, rows, 0, EK_CUDA_GATE_NONE, chip);
    return holds(&p.grid, chip);
}

/* Whether the family `warp` is faster than tiles. */
static bool warp_wins(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    if (!warp_can(l, rows, chip)) return false;
    if (rows <= FEW) return true;
    const double us = ek_cuda_warp_us(l, rows, chip);
    return us < ek_cuda_tile_us(l, rows, 0, chip) &&
           (!chip->wgmma || !ek_cuda_affine_64(l) || us < ek_cuda_wide_us(l, rows, 0, chip));
}

/* Whether narrow tiles of wgmma may win for few rows. */
static bool mid_may(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_mid_fits(l) && (rows >= FEW || (double)l->n * l->k > 100e6);
}

/* The plan for few rows: by warps, or by narrow tiles if these are faster. */
static ek_cuda_product plan_few(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    double us = 0;
    if (mid_may(l, rows)) {
        const ek_cuda_product mid = ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, chip, 0, &us);
        if (us < ek_cuda_warp_us(l, rows, chip)) return mid;
    }
    return ek_cuda_warp_plan(l, rows, 0, EK_CUDA_GATE_NONE, chip);
}

/* The plan by tiles of any kind, in parts if that is faster. */
static ek_cuda_product plan_tiles(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room, double *us)
{
    double t = 0;
    ek_cuda_product best = ek_cuda_tile_plan(l, rows, chip, room, us);
    if (ek_cuda_wide_fits(l, chip)) {
        const ek_cuda_product wide = ek_cuda_wide_plan_parts(l, rows, chip, room, &t);
        if (t < *us) *us = t, best = wide;
    }
    if (ek_cuda_mid_fits(l)) {
        const ek_cuda_product mid = ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, chip, room, &t);
        if (t < *us) *us = t, best = mid;
    }
    return best;
}

static ek_cuda_product plan_floats(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room)
{
    double us, few_us;
    const ek_cuda_product tiles = ek_cuda_floats_plan_tiles(l, rows, chip, room, &us);
    const ek_cuda_product few = ek_cuda_floats_plan_few(l, rows, chip, room, &few_us);
    if (rows > FEW && us < few_us) return tiles;
    return holds(&few.grid, chip) ? few : tiles;
}

ek_cuda_product ek_cuda_product_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room)
{
    if (chip->plain) return ek_cuda_plain_plan(l, rows, chip);
    if (!l->units) return plan_floats(l, rows, chip, room);
    const bool warp = warp_can(l, rows, chip);
    if (warp && rows <= FEW) return plan_few(l, rows, chip);
    const ek_cuda_product few = warp ? ek_cuda_warp_plan(l, rows, 0, EK_CUDA_GATE_NONE, chip)
                                     : ek_cuda_units_plan(l, rows, 0, 0, chip);
    const bool may_be_few = holds(&few.grid, chip); /* tiles need no more shared memory for longer rows */
    if (may_be_few && !warp && rows * l->limbs <= EK_CUDA_UNITS_ROWS) return few;
    double us;
    const ek_cuda_product tiles = plan_tiles(l, rows, chip, room, &us);
    if (!may_be_few || us < (warp ? ek_cuda_warp_us(l, rows, chip) : ek_cuda_units_us(l, rows, chip))) return tiles;
    return few;
}

/* Whether narrow tiles of wgmma take jobs of this many rows. */
static bool mid_takes_jobs(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_mid_job_takes(rows) && ek_cuda_mid_job_fits(l, chip);
}

bool ek_cuda_jobs_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip)
{
    const bool mid = mid_takes_jobs(l, rows, chip);
    if (chip->plain || !(mid || ek_cuda_warp_job_fits(l, rows))) return false;
    *out = mid ? ek_cuda_mid_plan_jobs(l, rows, jobs, EK_CUDA_GATE_NONE)
               : ek_cuda_warp_plan(l, rows, jobs, EK_CUDA_GATE_NONE, chip);
    return true;
}

/* The time by what ek_cuda_product_plan chooses. */
static double alone_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room)
{
    double us, few;
    plan_tiles(l, rows, chip, room, &us);
    few = warp_can(l, rows, chip) ? ek_cuda_warp_us(l, rows, chip) : ek_cuda_units_us(l, rows, chip);
    return few < us ? few : us;
}

bool ek_cuda_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                        const ek_cuda_linear *next, const ek_cuda_chip *chip)
{
    if (chip->plain) return ek_cuda_plain_gated_plan(out, l, rows, jobs, gate, next);
    if (!jobs && gate == EK_CUDA_GATE_MATRIX && l->limbs == 1 && mid_may(l, rows) && l->n % 64 == 0 && next->units &&
        next->a_group == l->a_group) {
        double us = 0;
        *out = ek_cuda_mid_plan(l, rows, gate, chip, 0, &us);
        if (us < ek_cuda_warp_gate_us(l, rows, chip)) return us < 2 * many_us(l, rows, chip);
    }
    if (jobs && gate == EK_CUDA_GATE_MATRIX && mid_takes_jobs(l, rows, chip) && l->n % 64 == 0 && next->units &&
        next->a_group == l->a_group) {
        *out = ek_cuda_mid_plan_jobs(l, rows, jobs, gate);
        return true;
    }
    if (!ek_cuda_warp_gate_fits(l, next) || !(jobs ? ek_cuda_warp_job_fits(l, rows) : warp_wins(l, rows, chip)))
        return false;
    *out = ek_cuda_warp_plan(l, rows, jobs, gate, chip);
    return holds(&out->grid, chip); /* the shared memory holds the sums of both matrices */
}

/* Both matrices by launches of their own, and ek_gate, which reads two numbers and writes one. */
static double gate_apart_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room)
{
    const double bytes = 3 * sizeof(float) * (double)rows * l->n;
    return 2 * alone_us(l, rows, chip, room) + chip->us->parts.sum + bytes / chip->us->parts.bytes;
}

/* A launch of both matrices by narrow tiles or warps. */
static double gate_few_us(const ek_cuda_linear *l, const ek_cuda_linear *next, int rows, const ek_cuda_chip *chip)
{
    double us = 1e30;
    if (mid_may(l, rows)) ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_MATRIX, chip, 0, &us);
    if (!ek_cuda_warp_gate_fits(l, next)) return us;
    const double warps = ek_cuda_warp_gate_us(l, rows, chip);
    return warps < us ? warps : us;
}

bool ek_cuda_wide_gate_wins(const ek_cuda_linear *l, const ek_cuda_linear *next, int rows, bool few,
                            const ek_cuda_chip *chip, size_t room)
{
    double down;
    ek_cuda_wide_plan_parts(next, rows, chip, room, &down);
    const double other = few ? gate_few_us(l, next, rows, chip) : gate_apart_us(l, rows, chip, room);
    return ek_cuda_wide_gate_us(l, rows, chip) + down < other + alone_us(next, rows, chip, room);
}

/* q, which may be NULL, k and v by launches of their own. */
static double apart_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                       const ek_cuda_chip *chip)
{
    const size_t room = (size_t)1 << 30; /* enough */
    return (q ? alone_us(q, rows, chip, room) : 0) + (v ? 2 : 1) * alone_us(k, rows, chip, room);
}

bool ek_cuda_wide_heads_win(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                            const ek_cuda_chip *chip)
{
    ek_cuda_heads p;
    return !chip->plain && ek_cuda_wide_heads_plan(&p, q, k, v, rows, chip) &&
           ek_cuda_wide_heads_us(q, k, v, rows, chip) < apart_us(q, k, v, rows, chip);
}

bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, const ek_cuda_chip *chip)
{
    double us = 0;
    if (chip->plain) return false;
    if (rows > FEW && ek_cuda_mid_heads_plan(out, q, k, v, rows, chip, &us) &&
        us < ek_cuda_warp_heads_us(q, k, v, rows, chip) && us < ek_cuda_wide_heads_us(q, k, v, rows, chip) &&
        us < (rows < PROMPT ? apart_us(q, k, v, rows, chip) : many_us(q, rows, chip)))
        return true;
    return warp_wins(q, rows, chip) && warp_wins(k, rows, chip) && ek_cuda_warp_heads_plan(out, q, k, v, rows, chip) &&
           holds(&out->q.grid, chip);
}

/* Experts with jobs of up to a tile of rows: 64, or 32 with two limbs. */
static ek_cuda_product plan_job_tiles(const ek_cuda_linear *l, int jobs, int matrices, const ek_cuda_chip *chip)
{
    if (ek_cuda_wide_fits(l, chip)) return ek_cuda_wide_plan(l, EK_CUDA_WIDE_COLUMNS / l->limbs, jobs, matrices, chip);
    return ek_cuda_tile_plan_jobs(l, jobs, matrices, chip);
}

ek_cuda_product ek_cuda_products_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                      const ek_cuda_chip *chip)
{
    const ek_cuda_product none = {.name = ""};
    if (chip->plain) return jobs ? ek_cuda_plain_plan_jobs(l, rows, jobs, matrices) : none;
    if (!l->units && !jobs && rows > FEW &&
        ek_cuda_floats_tiles_us(l, rows, 0, chip) < ek_cuda_floats_few_us(l, rows, chip))
        return none;
    if (!l->units) return ek_cuda_floats_plan_many(l, rows, jobs, matrices, chip);
    if (jobs && rows > EK_CUDA_UNITS_ROWS) return plan_job_tiles(l, jobs, matrices, chip);
    if (!jobs && rows * l->limbs > EK_CUDA_UNITS_ROWS &&
        ek_cuda_tile_us(l, rows, 0, chip) < ek_cuda_units_us(l, rows, chip))
        return none;
    const ek_cuda_product few = ek_cuda_units_plan(l, rows, jobs, matrices, chip);
    if (holds(&few.grid, chip)) return few;
    return jobs ? plan_job_tiles(l, jobs, matrices, chip) : none;
}

bool ek_cuda_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return !chip->plain && warp_wins(l, rows, chip) && ek_cuda_warp_pair_plan(out, l, rows, chip) &&
           holds(&out->grid, chip);
}
