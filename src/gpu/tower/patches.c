/* The 12B's pictures on a device, which have no tower (model/tower/tower_unified.h): a projection between norms. */
#include <math.h>

#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"
#include "model/tower/tower_unified.h"

typedef struct ek_gpu_patches {
    ek_gpu_tower t;
    const ek_unified *u;
    ek_gpu_matrix input, projection;
    CUdeviceptr bias, ln1[2], ln2[2], ln3[2];
    int across, down;
    CUdeviceptr rgb, value, column, line, x, y; /* x: rows of pixels; y: rows of the model's width */
} patches;

static patches *of(ek_gpu_tower *t)
{
    return (patches *)t;
}

static bool takes(const ek_tower_part *p)
{
    return ek_unified_of(p) != NULL;
}

static ek_err check(const ek_tower_part *p, const ek_cuda_chip *chip)
{
    (void)chip;
    const ek_unified *u = ek_unified_of(p);
    const int wide = u->floats > u->width ? u->floats : u->width;
    if (wide <= EK_CUDA_TOWER_WIDTH) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "patches of %d samples that become rows of %d; the CUDA kernels take up to %d",
                   u->floats, u->width, EK_CUDA_TOWER_WIDTH);
}

static void open_patches(ek_gpu_tower *t)
{
    of(t)->u = ek_unified_of(t->part);
}

static void weights(ek_gpu_tower *t)
{
    patches *x = of(t);
    const ek_unified *u = x->u;
    ek_gpu_tower_matrix(t, &x->input, &u->input), ek_gpu_tower_matrix(t, &x->projection, &u->projection);
    ek_gpu_tower_vector(t, &x->bias, u->bias, u->width);
    for (int i = 0; i < 2; i++) {
        ek_gpu_tower_vector(t, &x->ln1[i], u->ln1[i], u->floats);
        ek_gpu_tower_vector(t, &x->ln2[i], u->ln2[i], u->width),
            ek_gpu_tower_vector(t, &x->ln3[i], u->ln3[i], u->width);
    }
}

static ek_err measure(ek_gpu_tower *t)
{
    patches *x = of(t);
    const ek_image_fit *fit = &t->media->picture.fit;
    const int side = x->u->patching.side * x->u->patching.pool;
    ek_tower_cost cost;
    EK_TRY(ek_unified_cost(&cost, t->part, fit));
    x->across = fit->width / side, x->down = fit->height / side;
    t->tokens = fit->tokens, t->steps = 1;
    return EK_OK;
}

static void lay_out(ek_gpu_tower *t)
{
    patches *x = of(t);
    const ek_unified *u = x->u;
    x->value = ek_gpu_tower_take_rows(t, 1, 256);
    x->column = ek_gpu_tower_take_rows(t, x->across, u->width), x->line = ek_gpu_tower_take_rows(t, x->down, u->width);
    t->host_bytes = t->at;
    x->rgb = ek_gpu_tower_take(t, ek_image_bytes(&t->media->picture.image));
    x->x = ek_gpu_tower_take_rows(t, t->tokens, u->floats), x->y = ek_gpu_tower_take_rows(t, t->tokens, u->width);
    ek_gpu_tower_need(t, &x->input, t->tokens), ek_gpu_tower_need(t, &x->projection, t->tokens);
}

static float *host_at(const patches *x, CUdeviceptr p, int row)
{
    return ek_gpu_tower_host(&x->t, p) + (size_t)row * (size_t)x->u->width;
}

static void write_tables(ek_gpu_tower *t)
{
    patches *x = of(t);
    const ek_image *image = &t->media->picture.image;
    ek_patch_values(host_at(x, x->value, 0), EK_PATCH_UNIFIED);
    for (int i = 0; i < x->across; i++) ek_unified_column(x->u, i, host_at(x, x->column, i));
    for (int i = 0; i < x->down; i++) ek_unified_line(x->u, i, host_at(x, x->line, i));
    ek_gpu_note(t->g, ek_cuda_upload(t->g->c, x->rgb, image->rgb, ek_image_bytes(image)));
}

static double macs(const ek_gpu_tower *t, int step)
{
    const ek_unified *u = ((const patches *)t)->u;
    (void)step;
    return (double)t->tokens * u->width * ((double)u->floats + u->part.hidden);
}

static void norms(patches *x, CUdeviceptr rows, int n, const ek_cuda_tower_norms_args *what)
{
    ek_cuda_tower_norms_args a = *what;
    a.x = a.y = rows, a.ldx = a.ldy = n, a.n = n;
    a.ln_eps = EK_UNIFIED_LAYER_NORM_EPS, a.clip[0] = -INFINITY, a.clip[1] = INFINITY;
    ek_gpu_launch(x->t.g, "ek_tower_norms", ek_gpu_tower_row_grid(x->t.tokens, n), &a);
}

static void step(ek_gpu_tower *t, int number)
{
    patches *x = of(t);
    const ek_unified *u = x->u;
    (void)number;
    const ek_cuda_patch_args patch = {.x = x->x,
                                      .rgb = x->rgb,
                                      .value = x->value,
                                      .ldx = u->floats,
                                      .side = u->patching.side * u->patching.pool,
                                      .across = x->across};
    const ek_cuda_tower_norms_args first = {.w = {x->ln1[0]}, .b = {x->ln1[1]}, .layer_norms = 1},
                                   behind = {.bias = x->bias,
                                             .w = {x->ln2[0], x->ln3[0]},
                                             .b = {x->ln2[1], x->ln3[1]},
                                             .column = x->column,
                                             .line = x->line,
                                             .eps = u->eps,
                                             .layer_norms = 2,
                                             .rms = true,
                                             .across = x->across};
    ek_gpu_launch(t->g, "ek_tower_patch",
                  (ek_cuda_grid){.x = ek_gpu_over(u->floats, 256), .y = (unsigned)t->tokens, .threads = 256}, &patch);
    norms(x, x->x, u->floats, &first);
    ek_gpu_tower_product(t, &x->input, t->tokens, x->x, u->floats, x->y, u->width);
    norms(x, x->y, u->width, &behind);
    ek_gpu_tower_product(t, &x->projection, t->tokens, x->y, u->width, t->rows, t->part->hidden);
}

const ek_gpu_tower_ops ek_gpu_patches_ops = {.takes = takes,
                                             .check = check,
                                             .bytes = sizeof(patches),
                                             .open = open_patches,
                                             .weights = weights,
                                             .measure = measure,
                                             .lay_out = lay_out,
                                             .write = write_tables,
                                             .macs = macs,
                                             .step = step};
