#include "cuda/linear.h"

#include <stdio.h>
#include <string.h>

#include "cuda/planes.h"
#include "ops/linear_layout.h"

enum { UNIT = 64, FEW_ROWS = 16, FEW_WARPS = 8, FEW_STAGES = 4, TILE_STAGES = 3, TILE_OUT = 128 };
enum { MEMORY = 233472 - 4096 }; /* shared memory of a multiprocessor, and some to spare */

static size_t up64(size_t n)
{
    return (n + 63) / 64 * 64;
}

static size_t scale_size(const ek_cuda_linear *l)
{
    return (l->f32_scales ? 4u : 2u) << (l->biased ? 1 : 0);
}

size_t ek_cuda_linear_scale(const ek_cuda_linear *l)
{
    return scale_size(l);
}

ek_cuda_place_of_code ek_cuda_linear_place(const ek_cuda_linear *l, int o, int kk)
{
    const int a = l->a_group;
    const int j = a == 64 ? kk / 8 % 2 : kk / 32, t = a == 64 ? kk / 16 : a == 32 ? kk % 32 / 8 : kk % 16 / 4;
    const int upper = a == 16 ? kk / 16 % 2 : kk / 4 % 2, lane = o % 8 * 4 + t, i = o / 8;
    if (l->bits == 8) return (ek_cuda_place_of_code){j * 512 + lane * 16 + (i + 2 * upper) * 4 + kk % 4, 0};
    return (ek_cuda_place_of_code){lane * 16 + (j * 2 + i) * 4 + kk % 4, upper * 4};
}

ek_err ek_cuda_linear_plan(ek_cuda_linear *out, const ek_linear *w)
{
    const int block = ek_wform_is_q(w->form) ? EK_KBLOCK_Q : EK_KBLOCK;
    if (w->k > EK_CUDA_MAX_LEAVES * block)
        return ek_fail(EK_EUNSUPPORTED, "a matrix of %d inputs; the CUDA kernels take up to %d", w->k,
                       EK_CUDA_MAX_LEAVES * block);
    ek_cuda_linear l = {.form = w->form, .n = w->n, .k = w->k, .n_panels = w->n_panels};
    if (ek_wform_is_q(w->form)) {
        l.units = (w->k + UNIT - 1) / UNIT;
        l.group = w->group, l.a_group = w->a_group, l.bits = w->form == EK_W_Q4 ? 4 : 8;
        l.limbs = w->limbs, l.zero = w->zero, l.biased = w->biased, l.f32_scales = w->scale_dtype == EK_F32;
        if (w->form == EK_W_PLANES) EK_TRY(ek_cuda_planes_plan(&l, w));
        l.code_bytes = (size_t)l.n_panels * (size_t)l.units * (size_t)l.bits * 128;
        l.scale_bytes = up64((size_t)l.n_panels * (size_t)(l.k / l.group) * EK_PANEL * scale_size(&l));
    } else {
        l.code_bytes = w->bytes;
    }
    l.bytes = l.code_bytes + l.scale_bytes;
    *out = l;
    return EK_OK;
}

/* Code of output o at input k of the panel; 0 past the last input. */
static int code_at(const ek_linear *w, const uint8_t *panel, int o, int k)
{
    if (k >= w->k) return 0;
    return ek_linear_code(w, panel + (size_t)(k / w->group) * ek_linear_group_bytes(w), o, k % w->group);
}

static void pack_unit(const ek_cuda_linear *l, const ek_linear *w, const uint8_t *panel, int unit, uint8_t *to)
{
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 4; i++) {
                const int t = lane % 4, o = lane / 4 + 8 * (i & 1);
                const int k = unit * UNIT + (l->a_group == 64 ? 16 * t + 8 * j : 32 * j + 8 * t) + 4 * (i >> 1);
                for (int e = 0; e < 4; e++) {
                    const int c = code_at(w, panel, o, k + e);
                    if (l->bits == 8) {
                        to[j * 512 + lane * 16 + i * 4 + e] = (uint8_t)c;
                    } else {
                        uint8_t *byte = &to[lane * 16 + (j * 2 + (i & 1)) * 4 + e];
                        *byte = (uint8_t)(i < 2 ? c & 15 : *byte | (c & 15) << 4);
                    }
                }
            }
}

static void pack_scales(const ek_cuda_linear *l, const uint8_t *from, uint8_t *to)
{
    const size_t size = l->f32_scales ? 4 : 2;
    for (int g = 0; g < 8; g++)
        for (int half = 0; half < 2; half++)
            for (int b = 0; b < (l->biased ? 2 : 1); b++, to += size)
                memcpy(to, from + (size_t)(b * EK_PANEL + g + 8 * half) * size, size);
}

void ek_cuda_linear_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1)
{
    if (!ek_wform_is_q(l->form)) {
        memcpy(to + (size_t)p0 * w->panel_bytes, w->data + (size_t)p0 * w->panel_bytes,
               (size_t)(p1 - p0) * w->panel_bytes);
        return;
    }
    if (l->form == EK_W_PLANES) {
        ek_cuda_planes_pack(l, w, to, p0, p1);
        return;
    }
    const int groups = l->k / l->group;
    const size_t unit_bytes = (size_t)l->bits * 128, group_bytes = EK_PANEL * scale_size(l);
    for (int p = p0; p < p1; p++) {
        const uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        for (int u = 0; u < l->units; u++)
            pack_unit(l, w, panel, u, to + ((size_t)p * (size_t)l->units + (size_t)u) * unit_bytes);
        for (int g = 0; g < groups; g++)
            pack_scales(l, panel + (size_t)g * ek_linear_group_bytes(w) + ek_linear_code_bytes(w),
                        to + l->code_bytes + ((size_t)p * (size_t)groups + (size_t)g) * group_bytes);
    }
    size_t end = (size_t)l->n_panels * (size_t)groups * group_bytes;
    if (p1 == l->n_panels) memset(to + l->code_bytes + end, 0, l->scale_bytes - end);
}

size_t ek_cuda_acts_plan(ek_cuda_acts *a, int k, int a_group)
{
    const size_t codes = up64((size_t)k), groups = up64((size_t)((k + a_group - 1) / a_group) * 8);
    *a = (ek_cuda_acts){.ldq = (int64_t)(2 * codes + 2 * groups),
                        .low = (int64_t)codes,
                        .groups = {(int64_t)(2 * codes), (int64_t)(2 * codes + groups)},
                        .k = k,
                        .a_group = a_group};
    return 2 * codes + 2 * groups;
}

void ek_cuda_linear_args_of(ek_cuda_linear_args *args, const ek_cuda_linear *l, CUdeviceptr weights)
{
    args->codes = weights, args->scales = weights + l->code_bytes;
    args->n = l->n, args->x.k = l->k,
    args->group_shift = l->group == 16   ? 4
                        : l->group == 32 ? 5
                        : l->group == 64 ? 6
                                         : 7;
    args->zero = l->zero;
    args->biased = l->biased, args->f32_scales = l->f32_scales, args->f16_scales = l->f16_scales;
}

/* Blocks that take the panels in equal turns. */
static unsigned even(int jobs, int blocks)
{
    int turns = (jobs + blocks - 1) / blocks;
    return (unsigned)((jobs + turns - 1) / turns);
}

static ek_cuda_product plan_float(const ek_cuda_linear *l, int rows)
{
    const size_t leaves = (size_t)(l->k + EK_KBLOCK - 1) / EK_KBLOCK;
    const int per_tile = rows == 1 ? 1 : 8;
    ek_cuda_product p = {.grid = {.x = (unsigned)l->n_panels,
                                  .y = (unsigned)((rows + per_tile - 1) / per_tile),
                                  .threads = 256,
                                  .shared = leaves * (size_t)per_tile * EK_PANEL * 4,
                                  .overlap = true}};
    snprintf(p.name, sizeof p.name, "ek_product_%s_r%d",
             l->form == EK_W_F32   ? "f32"
             : l->form == EK_W_F16 ? "f16"
                                   : "bf16",
             per_tile);
    return p;
}

/* jobs: of experts, 0: none; matrices: in a launch, 0: one, by the kernel of one. */
static ek_cuda_product plan_few(const ek_cuda_linear *l, int rows, int jobs, int matrices, int multiprocessors)
{
    int oct = 1;
    while (oct * 8 / l->limbs < rows && oct * 8 / l->limbs < FEW_ROWS) oct *= 2;
    const int sub = 64 / l->a_group, per_tile = oct * 8 / l->limbs, values = EK_PANEL * per_tile;
    const int leaves = (l->k + EK_KBLOCK_Q - 1) / EK_KBLOCK_Q, tiles = jobs ? jobs : (rows + per_tile - 1) / per_tile;
    const int layers = tiles * (matrices ? matrices : 1); /* of blocks */
    const size_t unit_values = (size_t)(sub * values) * 4, leaf_bytes = (size_t)(leaves * values) * 4;
    const size_t stage = (size_t)l->bits * 128 + (size_t)sub * 64 * scale_size(l) + (size_t)oct * 512;
    /* warps that a multiprocessor has registers for, and a block's share: more where there are few panels */
    const int most = l->a_group == 32 || oct > 1 || matrices ? 16 : 24;
    int warps = FEW_WARPS;
    while (warps < most && l->units > warps && l->n_panels * layers * (warps + 8) <= multiprocessors * most &&
           (size_t)((warps + 8) * FEW_STAGES) * stage + leaf_bytes + 16 * unit_values < (size_t)MEMORY)
        warps += 8;
    /* the longest pass with which as many blocks fit as there are registers for, else one of 16 units */
    const size_t ring = (size_t)(warps * FEW_STAGES) * stage, room = (size_t)(MEMORY / (most / warps) - 1024);
    ek_cuda_product p = {.pass = 96};
    while (p.pass > 16 && ring + leaf_bytes + (size_t)(p.pass < l->units ? p.pass : l->units) * unit_values > room)
        p.pass -= 16;
    const size_t shared = ring + leaf_bytes + (size_t)(p.pass < l->units ? p.pass : l->units) * unit_values;
    int resident = (int)((size_t)MEMORY / (shared + 1024));
    if (resident > most / warps) resident = most / warps;
    if (resident < 1) resident = 1;
    int blocks = multiprocessors * resident;
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

/* How much longer the kernels of few rows and of tiles take with activations in groups of 32 or 16 (`device planes`).
 */
static double by_group(const ek_cuda_linear *l)
{
    return l->a_group == 64 ? 1 : l->a_group == 32 ? 1.45 : 2.4;
}

/* Times of a product by tiles of 128 outputs on an H100 in us, whatever the columns; a multiprocessor with two of them
 * takes less than twice as long. units: of a tile. */
static double tile_us(const ek_cuda_linear *l, int tiles, int units, int multiprocessors)
{
    const int turns = (tiles + multiprocessors - 1) / multiprocessors;
    return by_group(l) * units * (turns == 1 ? 0.72 : (l->limbs == 1 ? 0.63 : 0.51) * turns);
}

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return (rows * l->limbs + 63) / 64 * ((l->n_panels + 7) / 8);
}

bool ek_cuda_leaf_wins(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    if (!ek_cuda_leaf_fits(l)) return false;
    if (rows <= 8) return true;
    const double tile = tile_us(l, tiles_of(l, rows), l->units, multiprocessors),
                 wide = ek_cuda_wide_us(l, rows, 0, multiprocessors);
    return ek_cuda_leaf_us(l, rows) < (tile < wide ? tile : wide);
}

bool ek_cuda_plane_wins(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    if (!ek_cuda_plane_fits(l)) return false;
    return rows <= 8 || ek_cuda_plane_us(l, rows) < tile_us(l, tiles_of(l, rows), l->units, multiprocessors);
}

static ek_cuda_product plan_tile(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    const int sub = 64 / l->a_group, per_tile = 64 / l->limbs, leaves = (l->k + EK_KBLOCK_Q - 1) / EK_KBLOCK_Q;
    const int tiles = (rows + per_tile - 1) / per_tile * ((l->n_panels + 7) / 8);
    ek_cuda_product p = {0};
    const size_t stage = 8 * (size_t)l->bits * 128 + 4096 + (size_t)(sub * per_tile) * 8 +
                         (size_t)sub * 128 * scale_size(l);
    while (leaves >> p.levels) p.levels++;
    int blocks = 2 * multiprocessors;
    if (blocks > tiles) blocks = tiles;
    p.stack = (size_t)blocks * (size_t)p.levels * TILE_OUT * (size_t)per_tile * 4;
    p.grid = (ek_cuda_grid){.x = (unsigned)blocks, .threads = 256, .shared = TILE_STAGES * stage, .overlap = true};
    snprintf(p.name, sizeof p.name, "ek_product_q%d_l%d_a%d_tile", l->bits, l->limbs, l->a_group);
    ek_cuda_plane_tile(&p, l);
    return p;
}

/* Time on an H100 in us (`device choice`, docs/cuda/products.md) of few rows, which read all weights for every 16. */
static double few_us(const ek_cuda_linear *l, int rows)
{
    const int passes = (rows + FEW_ROWS - 1) / FEW_ROWS * l->limbs;
    return by_group(l) * (l->limbs == 1 ? 0.82e-6 : 0.52e-6) * (double)l->n * (double)l->k * passes;
}

static bool wants_tiles(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    return rows * l->limbs > 16 && tile_us(l, tiles_of(l, rows), l->units, multiprocessors) < few_us(l, rows);
}

/* Few tiles with many inputs leave multiprocessors without work: parts of 2^n leaves, which are nodes of T, go to
 * blocks of their own if that is faster, their sum included. */
static void split(const ek_cuda_linear *l, int rows, int multiprocessors, size_t room, ek_cuda_product *p, double *us)
{
    const int tiles = tiles_of(l, rows), leaf = EK_KBLOCK_Q / UNIT;
    const size_t part_bytes = (size_t)rows * (size_t)l->n * sizeof(float);
    for (int units = leaf; units < l->units; units *= 2) {
        const int parts = (l->units + units - 1) / units;
        const size_t bytes = part_bytes * (size_t)parts;
        if (bytes > room) continue;
        double t = (p->image ? ek_cuda_wide_us(l, rows, units, multiprocessors)
                             : tile_us(l, tiles * parts, units, multiprocessors)) +
                   4 + 2 * (double)bytes / 2.5e6;
        if (t >= *us) continue;
        *us = t;
        p->split = units, p->parts = parts;
    }
    if (!p->parts) return;
    const int blocks = (p->image ? EK_CUDA_WIDE_BLOCKS : 2) * multiprocessors;
    const size_t each = p->stack / p->grid.x;
    const int jobs = p->image ? (int)p->arrange.y * ((l->n_panels + EK_CUDA_WIDE_PANELS - 1) / EK_CUDA_WIDE_PANELS)
                              : tiles;
    p->grid.x = (unsigned)(jobs * p->parts < blocks ? jobs * p->parts : blocks);
    p->stack = p->grid.x * each;
}

ek_cuda_product ek_cuda_product_plan(const ek_cuda_linear *l, int rows, int multiprocessors, size_t room)
{
    if (!ek_wform_is_q(l->form)) return plan_float(l, rows);
    const bool leaves = ek_cuda_leaf_fits(l), planes = ek_cuda_plane_fits(l);
    double mid_us = 0;
    if (leaves || planes) {
        if (rows <= 8 && ek_cuda_mid_may(l, rows)) {
            ek_cuda_product mid = ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, multiprocessors, 0, &mid_us);
            if (mid_us < (planes ? ek_cuda_plane_us(l, rows) : ek_cuda_leaf_us(l, rows))) return mid;
        }
        if (rows <= 8) return ek_cuda_few_plan(l, rows, 0, EK_CUDA_GATE_NONE, multiprocessors);
    } else if (rows * l->limbs <= 16) return plan_few(l, rows, 0, 0, multiprocessors);
    ek_cuda_product tile = plan_tile(l, rows, multiprocessors);
    double few = leaves   ? ek_cuda_leaf_us(l, rows)
                 : planes ? ek_cuda_plane_us(l, rows)
                          : few_us(l, rows),
           us = tile_us(l, tiles_of(l, rows), l->units, multiprocessors);
    split(l, rows, multiprocessors, room, &tile, &us);
    if (ek_cuda_wide_fits(l)) {
        ek_cuda_product wide = ek_cuda_wide_plan(l, rows, 0, 1, multiprocessors);
        double t = ek_cuda_wide_us(l, rows, 0, multiprocessors);
        split(l, rows, multiprocessors, room, &wide, &t);
        if (t < us) us = t, tile = wide;
    }
    if (ek_cuda_mid_fits(l)) {
        ek_cuda_product mid = ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, multiprocessors, room, &mid_us);
        if (mid_us < us) us = mid_us, tile = mid;
    }
    if (us < few) return tile;
    return leaves || planes ? ek_cuda_few_plan(l, rows, 0, EK_CUDA_GATE_NONE, multiprocessors)
                            : plan_few(l, rows, 0, 0, multiprocessors);
}

ek_cuda_product ek_cuda_product_plan_by(const ek_cuda_linear *l, int rows, int multiprocessors, size_t room,
                                        ek_cuda_by by)
{
    double us;
    if (by == EK_CUDA_BY_MID) return ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, multiprocessors, room, &us);
    if (by == EK_CUDA_BY_PLANES) return ek_cuda_plane_plan(l, rows, 0, EK_CUDA_GATE_NONE, multiprocessors);
    if (by == EK_CUDA_BY_WIDE) return ek_cuda_wide_plan(l, rows, 0, 1, multiprocessors);
    if (by == EK_CUDA_BY_LEAVES) return ek_cuda_leaf_plan(l, rows, 0, EK_CUDA_GATE_NONE, multiprocessors);
    return by == EK_CUDA_BY_TILES ? plan_tile(l, rows, multiprocessors) : plan_few(l, rows, 0, 0, multiprocessors);
}

/* Experts with jobs of up to a tile of rows: 64, or 32 with two limbs. */
static ek_cuda_product plan_job_tiles(const ek_cuda_linear *l, int jobs, int matrices, int multiprocessors)
{
    if (ek_cuda_wide_fits(l)) return ek_cuda_wide_plan(l, 64 / l->limbs, jobs, matrices, multiprocessors);
    ek_cuda_product p = plan_tile(l, 64 / l->limbs, multiprocessors);
    int blocks = 2 * multiprocessors / matrices, tiles = jobs * ((l->n_panels + 7) / 8);
    p.grid.x = (unsigned)(blocks < tiles ? blocks : tiles), p.grid.z = (unsigned)matrices;
    snprintf(p.name, sizeof p.name, "ek_products_q%d_l%d_a%d_tile", l->bits, l->limbs, l->a_group);
    return p;
}

ek_cuda_product ek_cuda_products_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, int multiprocessors)
{
    if (ek_wform_is_q(l->form)) {
        if (!jobs && wants_tiles(l, rows, multiprocessors)) return (ek_cuda_product){.name = ""};
        if (jobs && rows > FEW_ROWS) return plan_job_tiles(l, jobs, matrices, multiprocessors);
        return plan_few(l, rows, jobs, matrices, multiprocessors);
    }
    ek_cuda_product p = plan_float(l, 8);
    if (!jobs && rows == 1) return (ek_cuda_product){.name = ""};
    p.grid.y = (unsigned)(jobs ? jobs : (rows + 7) / 8);
    p.grid.z = (unsigned)matrices;
    snprintf(p.name, sizeof p.name, "ek_products_%s_r8",
             l->form == EK_W_F32   ? "f32"
             : l->form == EK_W_F16 ? "f16"
                                   : "bf16");
    return p;
}

bool ek_cuda_linear_alike(const ek_cuda_linear *a, const ek_cuda_linear *b)
{
    return a->form == b->form && a->n == b->n && a->k == b->k && a->group == b->group && a->a_group == b->a_group &&
           a->bits == b->bits && a->limbs == b->limbs && a->zero == b->zero && a->biased == b->biased &&
           a->f32_scales == b->f32_scales && a->f16_scales == b->f16_scales;
}
