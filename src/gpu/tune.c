#include "gpu/gpu.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "cuda/memory.h"
#include "cuda/product/product.h"
#include "ops/linear/linear.h"
#include "ops/weights/weight_type.h"

enum {
    WEIGHTS = 96 << 20, /* larger than caches, because a step reads every weight once */
    ROWS = 32 << 20,    /* memory for the rows that products read and write */
    FILL = 1 << 20,     /* random bytes, which are repeated */
    LAUNCHES = 12,
    ROUNDS = 3
};

/* The timed cases: matrix, weights (MLX's 4 bits, GGUF's, floats), rows. */
static const struct timed {
    ek_cuda_family family;
    enum { AFFINE, GGUF, FLOATS } weights;
    int n, k, limbs, rows;
} timed[] = {
    {EK_CUDA_UNITS, AFFINE, 6144, 1536, 1, 2},
    {EK_CUDA_UNITS, AFFINE, 2560, 10240, 1, 8},
    {EK_CUDA_UNITS, AFFINE, 1536, 6144, 2, 8},
    {EK_CUDA_TILE, AFFINE, 6144, 1536, 1, 64},
    {EK_CUDA_TILE, AFFINE, 2560, 10240, 1, 128},
    {EK_CUDA_TILE, AFFINE, 10240, 2560, 1, 256},
    {EK_CUDA_TILE, AFFINE, 2048, 1536, 2, 64},
    {EK_CUDA_WARP_64, AFFINE, 6144, 1536, 1, 1},
    {EK_CUDA_WARP_64, AFFINE, 2560, 10240, 1, 1},
    {EK_CUDA_WARP_64, AFFINE, 10240, 2560, 1, 8},
    {EK_CUDA_WARP_64, AFFINE, 1536, 6144, 1, 16},
    {EK_CUDA_WARP_64, AFFINE, 2048, 1536, 2, 8},
    {EK_CUDA_WARP_OWN, GGUF, 6144, 1536, 1, 1},
    {EK_CUDA_WARP_OWN, GGUF, 2560, 10240, 1, 8},
    {EK_CUDA_WARP_OWN, GGUF, 1536, 6144, 1, 16},
    {EK_CUDA_MID, AFFINE, 6144, 1536, 1, 16},
    {EK_CUDA_MID, AFFINE, 2560, 10240, 1, 32},
    {EK_CUDA_MID, AFFINE, 10240, 2560, 1, 64},
    {EK_CUDA_MID, GGUF, 6144, 1536, 1, 32},
    {EK_CUDA_FLOATS_FEW, FLOATS, 2048, 1536, 1, 8},
    {EK_CUDA_FLOATS_FEW, FLOATS, 6144, 1536, 1, 16},
    {EK_CUDA_FLOATS_TILES, FLOATS, 2048, 1536, 1, 64},
    {EK_CUDA_FLOATS_TILES, FLOATS, 6144, 1536, 1, 256},
};

typedef struct tuner {
    ek_cuda *c;
    CUdeviceptr weights, rows;
    CUevent from, to;
    double logs[EK_CUDA_FAMILIES];
    int n[EK_CUDA_FAMILIES];
} tuner;

static ek_err plan_weights(ek_cuda_linear *out, const struct timed *t)
{
    const ek_weight_type *type = t->weights == GGUF ? ek_weight_type_named("q4_0") : ek_weight_type_float(EK_BF16);
    ek_linear w;
    if (t->weights == AFFINE) EK_TRY(ek_weight_type_affine(&type, 4, 64, EK_BF16, true));
    EK_TRY(ek_linear_plan(&w, 0, t->n, t->k, type));
    if (t->weights != FLOATS) EK_TRY(ek_linear_set_acts(&w, (ek_act_form){t->limbs, t->weights == GGUF ? 32 : 64}));
    return ek_cuda_linear_plan(out, &w);
}

/* Plans the family's launch. *us: its time by the chip's fitted times. */
static ek_cuda_product plan(const struct timed *t, const ek_cuda_linear *l, const ek_cuda_chip *chip, double *us)
{
    ek_cuda_product p;
    double unused;
    switch (t->family) {
    case EK_CUDA_UNITS: *us = ek_cuda_units_us(l, t->rows, chip); return ek_cuda_units_plan(l, t->rows, 0, 0, chip);
    case EK_CUDA_TILE:
        p = ek_cuda_tile_plan(l, t->rows, chip, 0, &unused), *us = ek_cuda_tile_us(l, t->rows, 0, chip);
        return p;
    case EK_CUDA_MID: return ek_cuda_mid_plan(l, t->rows, EK_CUDA_GATE_NONE, chip, 0, us);
    case EK_CUDA_FLOATS_FEW: return ek_cuda_floats_plan_few(l, t->rows, chip, 0, us);
    case EK_CUDA_FLOATS_TILES:
        p = ek_cuda_floats_plan_tiles(l, t->rows, chip, 0, &unused);
        *us = ek_cuda_floats_tiles_us(l, t->rows, 0, chip);
        return p;
    default: *us = ek_cuda_warp_us(l, t->rows, chip); return ek_cuda_warp_plan(l, t->rows, 0, EK_CUDA_GATE_NONE, chip);
    }
}

/* Queues n launches of the kernel, each with weights that are in no cache. */
static ek_err queue(tuner *x, const ek_cuda_kernel *kernel, const ek_cuda_product *p, const ek_cuda_linear *l,
                    ek_cuda_linear_args a, size_t n)
{
    const size_t copies = WEIGHTS / l->bytes;
    for (size_t i = 0; i < n; i++) {
        ek_cuda_linear_args_of(&a, l, x->weights + i % copies * l->bytes);
        EK_TRY(ek_cuda_launch(x->c, kernel, p->grid, &a));
    }
    return EK_OK;
}

/* Microseconds of a launch among several in a row; the shortest round counts. 0: the device has no clock. */
static ek_err measure(tuner *x, const ek_cuda_kernel *kernel, const ek_cuda_product *p, const ek_cuda_linear *l,
                      const ek_cuda_linear_args *a, double *us)
{
    const ek_cuda_api *f = ek_cuda_functions(x->c);
    float best = 0;
    for (int r = -1; r < ROUNDS; r++) {
        float ms = 0;
        EK_TRY(ek_cuda_event_record(x->c, x->from));
        EK_TRY(queue(x, kernel, p, l, *a, LAUNCHES));
        EK_TRY(ek_cuda_event_record(x->c, x->to));
        EK_TRY(ek_cuda_sync(x->c));
        EK_TRY(ek_cuda_check(x->c, f->cuEventElapsedTime(&ms, x->from, x->to), "timing a kernel"));
        if (ms <= 0) break;
        if (r >= 0 && (best == 0 || ms < best)) best = ms;
    }
    *us = (double)best * 1000 / LAUNCHES;
    return EK_OK;
}

/* The same by the host's clock, for a plain device, which has no clock. A slow device gets fewer launches and one
 * round. */
static ek_err measure_plain(tuner *x, const ek_cuda_kernel *kernel, const ek_cuda_product *p, const ek_cuda_linear *l,
                            const ek_cuda_linear_args *a, double *us)
{
    const double enough = 20e-3; /* seconds of a round */
    size_t n = 1;
    double each = 0;
    *us = 0;
    for (int r = -2; r < ROUNDS && (r < 0 || each < enough); r++) { /* the first may compile it */
        const double from = ek_now();
        EK_TRY(queue(x, kernel, p, l, *a, n));
        EK_TRY(ek_cuda_sync(x->c));
        each = (ek_now() - from) / (double)n;
        if (r >= -1 && (*us == 0 || each * 1e6 < *us)) *us = each * 1e6;
        if (r == -1 && each * LAUNCHES < enough) n = LAUNCHES;
    }
    return EK_OK;
}

/* Microseconds of a launch; 0: too many bytes. Rows with arbitrary bytes, the result and nodes of T are in x->rows. */
static ek_err time_product(tuner *x, const ek_cuda_product *p, const ek_cuda_linear *l, int rows, double *us)
{
    ek_cuda_kernel kernel;
    EK_TRY(ek_cuda_find(x->c, &kernel, p->name, p->grid.shared));
    ek_cuda_linear_args a = {.ldf = l->k, .ldy = l->n, .rows = rows};
    a.pass = p->pass, a.levels = p->levels, a.share = p->share, a.slots = p->slots;
    const size_t row = l->units ? ek_cuda_acts_plan(&a.x, l->k, l->a_group) : (size_t)l->k * sizeof(float);
    const size_t y = (row * (size_t)rows + 255) & ~(size_t)255,
                 stack = (y + (size_t)l->n * (size_t)rows * sizeof(float) + 255) & ~(size_t)255;
    *us = 0;
    if (stack + p->stack > ROWS || l->bytes > WEIGHTS) return EK_OK;
    a.x.q = x->rows, a.f = x->rows, a.y = x->rows + y, a.stack = x->rows + stack;
    if (ek_cuda_chip_of(x->c)->plain) return measure_plain(x, &kernel, p, l, &a, us);
    EK_TRY(measure(x, &kernel, p, l, &a, us));
    return *us <= 0 ? ek_fail(EK_EUNSUPPORTED, "the device has no clock") : EK_OK;
}

static ek_err time_one(tuner *x, const struct timed *t)
{
    ek_cuda_linear l;
    EK_TRY(plan_weights(&l, t));
    double said = 0, us = 0;
    const ek_cuda_product p = plan(t, &l, ek_cuda_chip_of(x->c), &said);
    EK_TRY(time_product(x, &p, &l, t->rows, &us));
    if (us == 0) return EK_OK;
    x->logs[t->family] += log(us / said), x->n[t->family]++;
    return EK_OK;
}

static ek_err fill(tuner *x, CUdeviceptr to, size_t bytes, const uint8_t *random)
{
    for (size_t at = 0; at < bytes; at += FILL) EK_TRY(ek_cuda_upload(x->c, to + at, random, FILL));
    return ek_cuda_sync(x->c);
}

static ek_err start(tuner *x, uint8_t *random)
{
    const ek_cuda_api *f = ek_cuda_functions(x->c);
    EK_TRY(ek_cuda_alloc(x->c, &x->weights, WEIGHTS, "timing kernels"));
    EK_TRY(ek_cuda_alloc(x->c, &x->rows, ROWS, "timing kernels"));
    EK_TRY(ek_cuda_check(x->c, f->cuEventCreate(&x->from, 0), "making an event"));
    EK_TRY(ek_cuda_check(x->c, f->cuEventCreate(&x->to, 0), "making an event"));
    /* Shaders take a slow path for denormal and infinite numbers, which models do not have. Any two or four of a plain
     * device's bytes make a scale from 2^-15 to 2. */
    for (size_t i = 0; i < FILL; i++) {
        const uint8_t any = (uint8_t)ek_mix64(i);
        random[i] = ek_cuda_chip_of(x->c)->plain ? 0x38 | (any & 7) : any;
    }
    EK_TRY(fill(x, x->weights, WEIGHTS, random));
    return fill(x, x->rows, ROWS, random);
}

/* --- a plain device --- */

/* Matrices of few panels, E2B's o and down, and of many, E2B's and E4B's gates. */
static const struct timed shapes[2][2] = {
    {{EK_CUDA_TILES_NARROW, AFFINE, 1536, 2048, 1, 0}, {EK_CUDA_TILES_NARROW, GGUF, 1536, 6144, 1, 0}},
    {{EK_CUDA_TILES_WIDE, AFFINE, 6144, 1536, 1, 0}, {EK_CUDA_TILES_WIDE, GGUF, 10240, 2560, 1, 0}}};

/* Microseconds of both shapes, by tiles of rows or by a few rows at a time. */
static ek_err time_plain(tuner *x, const struct timed shape[2], int rows, bool tiles, bool matrices, double *us)
{
    const ek_cuda_chip *const own = ek_cuda_chip_of(x->c);
    ek_cuda_times times = *own->us;
    ek_cuda_chip chip = *own;
    times.plain.narrow = times.plain.wide = tiles ? 1 : rows + 1;
    chip.us = &times, chip.matrices = own->matrices && matrices;
    *us = 0;
    for (int i = 0; i < 2; i++) {
        ek_cuda_linear l;
        double one;
        EK_TRY(plan_weights(&l, &shape[i]));
        const ek_cuda_product p = ek_cuda_plain_plan(&l, rows, &chip);
        EK_TRY(time_product(x, &p, &l, rows, &one));
        *us += one;
    }
    return EK_OK;
}

/* The least of some numbers of rows for which tiles are as fast, divided by the built-in number. */
static ek_err find_rows(tuner *x, const struct timed shape[2], double built_in, double *factor)
{
    static const int rows[] = {8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    size_t i = 0;
    for (; i + 1 < sizeof rows / sizeof *rows; i++) {
        double few, tiles;
        EK_TRY(time_plain(x, shape, rows[i], false, true, &few));
        EK_TRY(time_plain(x, shape, rows[i], true, true, &tiles));
        ek_log(EK_LOG_DEBUG, "%d rows of two products: %.0f us, by tiles %.0f", rows[i], few, tiles);
        if (tiles <= few) break;
    }
    *factor = rows[i] / built_in;
    return EK_OK;
}

static ek_err run_plain(tuner *x, double factor[EK_CUDA_FAMILIES])
{
    enum { MANY = 256 };
    const ek_cuda_chip *const chip = ek_cuda_chip_of(x->c);
    double by, packed;
    EK_TRY(find_rows(x, shapes[0], chip->us->plain.narrow, &factor[EK_CUDA_TILES_NARROW]));
    EK_TRY(find_rows(x, shapes[1], chip->us->plain.wide, &factor[EK_CUDA_TILES_WIDE]));
    if (!chip->matrices) return EK_OK;
    EK_TRY(time_plain(x, shapes[1], MANY, true, true, &by));
    EK_TRY(time_plain(x, shapes[1], MANY, true, false, &packed));
    ek_log(EK_LOG_DEBUG, "%d rows of two products: %.0f us by matrices, packed %.0f", MANY, by, packed);
    factor[EK_CUDA_BY_MATRICES] = by / packed;
    return EK_OK;
}

/* --- a CUDA device --- */

static ek_err run(tuner *x)
{
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
        const ek_err err = time_one(x, &timed[i]);
        /* a missing kernel could not be chosen anyway */
        if (err == EK_EUNSUPPORTED || ek_cuda_broken(x->c)) return err;
    }
    return EK_OK;
}

ek_err ek_gpu_tune(double factor[EK_CUDA_FAMILIES], ek_cuda *c)
{
    tuner x = {.c = c};
    uint8_t *const random = ek_alloc(FILL);
    for (int f = 0; f < EK_CUDA_FAMILIES; f++) factor[f] = 1;
    ek_err err = start(&x, random);
    free(random);
    if (!err) err = ek_cuda_chip_of(c)->plain ? run_plain(&x, factor) : run(&x);
    ek_cuda_event_close(c, x.from), ek_cuda_event_close(c, x.to);
    ek_cuda_free(c, x.weights), ek_cuda_free(c, x.rows);
    for (int f = 0; f < EK_CUDA_FAMILIES; f++)
        if (x.n[f]) factor[f] = exp(x.logs[f] / x.n[f]);
    return err;
}
