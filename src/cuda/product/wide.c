#include "cuda/product/product.h"

#include <stdio.h>

#include "cuda/tiles.h"

static int row_tiles(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_over(rows, EK_CUDA_WIDE_COLUMNS / l->limbs);
}

bool ek_cuda_wide_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip)
{
    return chip->wgmma && (ek_cuda_affine_64(l) || ek_cuda_half_32(l));
}

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return row_tiles(l, rows) * ek_cuda_over(l->n_panels, EK_CUDA_WIDE_PANELS);
}

const char *ek_cuda_arrange_name(const ek_cuda_linear *l)
{
    if (ek_cuda_half_32(l)) return l->limbs == 1 ? "ek_arrange32_l1" : "ek_arrange32_l2";
    return l->limbs == 1 ? "ek_arrange_l1" : "ek_arrange_l2";
}

size_t ek_cuda_wide_operand(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip)
{
    if (!ek_cuda_wide_fits(l, chip)) return 0;
    return (size_t)(jobs ? jobs : row_tiles(l, rows)) * (size_t)ek_cuda_over(l->units, 2) * (size_t)EK_CUDA_WIDE_PAIR;
}

/* The launch by tiles of `panels` panels, of which a multiprocessor runs `at_once`. */
static ek_cuda_product plan_by(const ek_cuda_linear *l, int rows, int jobs, int matrices, int panels, int at_once,
                               const ek_cuda_chip *chip)
{
    const int operands = jobs ? jobs : row_tiles(l, rows), columns = EK_CUDA_WIDE_COLUMNS;
    const int tiles = operands * ek_cuda_over(l->n_panels, panels), leaves = ek_cuda_over(l->k, EK_KBLOCK_Q);
    const int blocks = (at_once * chip->multiprocessors + matrices - 1) / matrices;
    ek_cuda_product p = {.operand = ek_cuda_wide_operand(l, rows, jobs, chip)};
    while (leaves >> p.levels) p.levels++;
    p.grid = (ek_cuda_grid){.x = (unsigned)(tiles < blocks ? tiles : blocks),
                            .z = (unsigned)matrices,
                            .threads = EK_CUDA_WIDE_GROUPS * 128,
                            .shared = (size_t)EK_CUDA_WIDE_SHARED(l->bits),
                            .overlap = true};
    p.stack = (size_t)p.grid.x * (size_t)matrices * (size_t)p.levels * (size_t)panels * EK_PANEL * (size_t)columns *
              sizeof(float); /* with two limbs half of it is unused */
    p.arrange = (ek_cuda_grid){.x = (unsigned)ek_cuda_over(columns * l->units * 4, 256),
                               .y = (unsigned)operands,
                               .threads = 256,
                               .overlap = true};
    snprintf(p.name, sizeof p.name, "ek_product%s_q%d%s_l%d_wide", jobs ? "s" : "", l->bits,
             ek_cuda_half_32(l) ? "h_32" : "", l->limbs);
    return p;
}

ek_cuda_product ek_cuda_wide_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip)
{
    return plan_by(l, rows, jobs, matrices, EK_CUDA_WIDE_PANELS, EK_CUDA_WIDE_BLOCKS, chip);
}

bool ek_cuda_wide_short_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip)
{
    return ek_cuda_wide_fits(l, chip) && l->bits == 4 && ek_cuda_half_32(l);
}

ek_cuda_product ek_cuda_wide_short_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    ek_cuda_product p = plan_by(l, rows, 0, 1, EK_CUDA_SHORT_PANELS, EK_CUDA_SHORT_BLOCKS, chip);
    p.grid.shared = EK_CUDA_SHORT_SHARED;
    snprintf(p.name, sizeof p.name, "ek_product_q4h_32_l%d_wide_short", l->limbs);
    return p;
}

bool ek_cuda_wide_gate_plan(ek_cuda_product *out, const ek_cuda_linear *l, const ek_cuda_linear *next, int rows,
                            int jobs, const ek_cuda_chip *chip)
{
    const bool alike = ek_cuda_affine_64(l) ? ek_cuda_affine_64(next) : ek_cuda_half_32(l) && ek_cuda_half_32(next);
    if (!ek_cuda_wide_fits(l, chip) || !alike || l->limbs != 1 || next->limbs != 1 || l->bits != 4 || l->n % 64)
        return false;
    ek_cuda_product p = ek_cuda_wide_plan(l, rows, jobs, 1, chip);
    const int tiles = (int)p.arrange.y * (l->n / 64), blocks = EK_CUDA_WIDE_BLOCKS * chip->multiprocessors;
    const size_t each = p.stack / p.grid.x;
    p.grid.x = (unsigned)(tiles < blocks ? tiles : blocks), p.stack = p.grid.x * each;
    snprintf(p.name, sizeof p.name, "ek_products_q4%s",
             ek_cuda_half_32(l) ? "h_32_l1_wide_gate"
             : jobs             ? "_l1_wide_gate_jobs"
                                : "_l1_wide_gate");
    *out = p;
    return true;
}

static bool head_fits(const ek_cuda_linear *l, int limbs, bool groups_of_32, const ek_cuda_chip *chip)
{
    return ek_cuda_wide_fits(l, chip) && l->bits == 4 && l->limbs == limbs && ek_cuda_half_32(l) == groups_of_32;
}

bool ek_cuda_wide_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip)
{
    const bool small = ek_cuda_half_32(k);
    if (!head_fits(k, 2, small, chip) || (v && !head_fits(v, 2, small, chip)) || (q && !head_fits(q, 1, small, chip)))
        return false;
    *out = (ek_cuda_heads){.k = ek_cuda_wide_plan(k, rows, 0, v ? 2 : 1, chip)};
    out->q = q ? ek_cuda_wide_plan(q, rows, 0, 1, chip) : out->k;
    const int all = tiles_of(k, rows) * (v ? 2 : 1) + (q ? tiles_of(q, rows) : 0);
    const int blocks = EK_CUDA_WIDE_BLOCKS * chip->multiprocessors;
    out->q.grid.x = (unsigned)(all < blocks ? all : blocks), out->q.grid.z = 1;
    out->q.stack = out->q.grid.x * (size_t)out->q.levels * EK_CUDA_WIDE_PANELS * EK_PANEL * EK_CUDA_WIDE_COLUMNS *
                   sizeof(float);
    out->q.grid.shared += 2 * EK_CUDA_WIDE_CONTROL; /* each matrix has its own control words */
    snprintf(out->q.name, sizeof out->q.name, "ek_product_heads_%s_wide", small ? "q4h_32" : "q4");
    return true;
}

/* A wave of tiles that leaves multiprocessors idle takes as long as a whole one: each waits for its own inputs. */
double ek_cuda_wide_heads_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                             const ek_cuda_chip *chip)
{
    ek_cuda_heads p;
    if (!ek_cuda_wide_heads_plan(&p, q, k, v, rows, chip)) return 1e30;
    const int of_q = q ? tiles_of(q, rows) : 0, of_k = tiles_of(k, rows) * (v ? 2 : 1);
    const int waves = ek_cuda_over(of_q + of_k, EK_CUDA_WIDE_BLOCKS * chip->multiprocessors);
    const double mean = (of_q + chip->us->wide.l2 * of_k) / (of_q + of_k),
                 unit = (ek_cuda_half_32(k) ? chip->us->wide.half_32 : 1) * chip->us->wide.full;
    return chip->us->wide.launch + chip->us->parts.sum + waves * mean * unit * k->units; /* two arrangements */
}

/* The time of `tiles` tiles of `units` units. */
static double tiles_us(const ek_cuda_linear *l, int tiles, int units, int at_once, double full, double last,
                       double last_tile, const ek_cuda_chip *chip)
{
    const int slots = at_once * chip->multiprocessors, rest = ek_cuda_over(tiles % slots, chip->multiprocessors);
    const double waves = full * (tiles / slots) + (rest ? last + last_tile * rest : 0);
    return chip->us->wide.launch +
           (ek_cuda_half_32(l) ? chip->us->wide.half_32 : 1) * (l->limbs == 1 ? 1 : chip->us->wide.l2) * waves * units;
}

double ek_cuda_wide_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int parts = units ? ek_cuda_over(l->units, units) : 1;
    return tiles_us(l, tiles_of(l, rows) * parts, units ? units : l->units, EK_CUDA_WIDE_BLOCKS, chip->us->wide.full,
                    chip->us->wide.last, chip->us->wide.last_tile, chip);
}

double ek_cuda_wide_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return tiles_us(l, 2 * tiles_of(l, rows), l->units, EK_CUDA_WIDE_BLOCKS, chip->us->wide.full, chip->us->wide.last,
                    chip->us->wide.last_tile, chip);
}

static int short_tiles_of(const ek_cuda_linear *l, int rows)
{
    return row_tiles(l, rows) * ek_cuda_over(l->n_panels, EK_CUDA_SHORT_PANELS);
}

static double short_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int parts = units ? ek_cuda_over(l->units, units) : 1;
    return tiles_us(l, short_tiles_of(l, rows) * parts, units ? units : l->units, EK_CUDA_SHORT_BLOCKS,
                    chip->us->wide.full_short, chip->us->wide.last_short, chip->us->wide.last_tile_short, chip);
}

ek_cuda_product ek_cuda_wide_plan_parts(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us)
{
    ek_cuda_product p = ek_cuda_wide_plan(l, rows, 0, 1, chip);
    *us = ek_cuda_wide_us(l, rows, 0, chip);
    ek_cuda_in_parts(&p, l, rows, chip, room, tiles_of(l, rows), EK_CUDA_WIDE_BLOCKS, ek_cuda_wide_us, us);
    if (!ek_cuda_wide_short_fits(l, chip)) return p;
    ek_cuda_product s = ek_cuda_wide_short_plan(l, rows, chip);
    double t = short_us(l, rows, 0, chip);
    ek_cuda_in_parts(&s, l, rows, chip, room, short_tiles_of(l, rows), EK_CUDA_SHORT_BLOCKS, short_us, &t);
    if (t < *us) *us = t, p = s;
    return p;
}
