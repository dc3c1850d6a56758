#include "model/tower/tower_unified.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "model/tower/tower_vision.h"

enum { BLOCK = 128, LEAST = 8 };

typedef ek_unified unified;

typedef struct work {
    ek_tower_work work;
    const unified *u;
    ek_picture picture; /* a copy; its pixels lie in the block */
    int across, down, row, m;
    uint8_t *block;
    size_t bytes;
    ek_span x, y, temp;
    void *acts;
} work;

/* ------------------------------------------------------------------ opening */

static ek_err bind(unified *u, int hidden, ek_tower_binder *b)
{
    const struct {
        const char *name;
        int n;
        float **to;
    } vector[] = {{"patch_ln1.weight", u->floats, &u->ln1[0]}, {"patch_ln1.bias", u->floats, &u->ln1[1]},
                  {"patch_dense.bias", u->width, &u->bias},    {"patch_ln2.weight", u->width, &u->ln2[0]},
                  {"patch_ln2.bias", u->width, &u->ln2[1]},    {"pos_norm.weight", u->width, &u->ln3[0]},
                  {"pos_norm.bias", u->width, &u->ln3[1]}};
    const int64_t positions[] = {u->n_positions, 2, u->width}, apart[] = {2, u->n_positions, u->width};
    char name[64];
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        snprintf(name, sizeof name, "embed_vision.%s", vector[i].name);
        EK_TRY(ek_tower_vector(b, name, vector[i].n, vector[i].to));
    }
    EK_TRY(ek_tower_matrix(b, "embed_vision.patch_dense", u->width, u->floats, &u->input));
    u->apart = b->from->gguf;
    EK_TRY(ek_tower_table(b, "embed_vision.pos_embedding", 3, u->apart ? apart : positions, &u->positions));
    return ek_tower_matrix(b, "embed_vision.multimodal_embedder.embedding_projection", hidden, u->width,
                           &u->projection);
}

static ek_err read_config(unified *u, const ek_settings *f)
{
    int out;
    EK_TRY(ek_setting_need_int(&u->width, f, "mm_embed_dim", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_may_int(&out, f, "output_proj_dims", u->width, 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_may_int(&u->n_positions, f, "mm_posemb_size", 1120, 1, 1 << 20));
    EK_TRY(ek_setting_may_float(&u->eps, f, "rms_norm_eps", 1e-6, 0, 1));
    if (out == u->width) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: %soutput_proj_dims is %d, mm_embed_dim %d; they must be the same", f->file, f->in,
                   out, u->width);
}

static uint64_t hash(const ek_tower_part *p, uint64_t h)
{
    const unified *u = (const unified *)p;
    const double number[] = {u->patching.side, u->patching.pool, u->width, (double)u->eps};
    return ek_hash64(h, number, sizeof number);
}

static void close_unified(ek_tower_part *p)
{
    free(p);
}

static const ek_tower_part_ops part_ops = {.hash = hash, .close = close_unified};

const ek_unified *ek_unified_of(const ek_tower_part *p)
{
    return p && p->ops == &part_ops ? (const ek_unified *)p : NULL;
}

void ek_unified_column(const ek_unified *u, int i, float *row)
{
    ek_embedding_row(&u->positions, u->apart ? i : 2 * i, 0, u->width, row);
}

void ek_unified_line(const ek_unified *u, int i, float *row)
{
    ek_embedding_row(&u->positions, u->apart ? u->n_positions + i : 2 * i + 1, 0, u->width, row);
}

/* info: the fields for pictures are set, except those that this function reads from config. */
static ek_err unified_open(ek_tower_part **out, const ek_towers_info *info, ek_tower_binder *b,
                           const ek_settings *config)
{
    const int side = info->patching.side * info->patching.pool;
    unified *u = ek_alloc(sizeof *u);
    u->part.ops = &part_ops;
    u->patching = info->patching;
    u->floats = 3 * side * side;
    ek_err err = read_config(u, config);
    if (!err) err = bind(u, info->hidden, b);
    if (err) close_unified(&u->part);
    else *out = &u->part;
    return err;
}

/* ------------------------------------------------------------------ a block of patches */

static void patch_row(const void *self, int i, int thread)
{
    const work *w = self;
    const unified *u = w->u;
    float *x = ek_row_at(&w->x, i);
    (void)thread;
    ek_picture_patches(x, NULL, &w->picture, EK_PATCH_UNIFIED, w->row + i, 1);
    u->part.kernels->rows.layer_norm(x, x, u->ln1[0], u->ln1[1], u->floats, EK_UNIFIED_LAYER_NORM_EPS);
}

static void dense_row(const void *self, int i, int thread)
{
    const work *w = self;
    const unified *u = w->u;
    const ek_row_ops *ops = &u->part.kernels->rows;
    const int p = w->row + i, n = u->width;
    float *y = ek_row_at(&w->y, i), *column = ek_row_at(&w->temp, 2 * thread), *line = column + w->temp.ld;
    ops->add(y, u->bias, n);
    ops->layer_norm(y, y, u->ln2[0], u->ln2[1], n, EK_UNIFIED_LAYER_NORM_EPS);
    ek_unified_column(u, p % w->across, column);
    ek_unified_line(u, p / w->across, line);
    ops->add(column, line, n);
    ops->add(y, column, n);
    ops->layer_norm(y, y, u->ln3[0], u->ln3[1], n, EK_UNIFIED_LAYER_NORM_EPS);
    ops->rms_norm(y, y, NULL, n, u->eps);
}

static double row_macs(const unified *u)
{
    return (double)u->width * ((double)u->floats + u->part.hidden);
}

static void advance(ek_tower_work *self, double max_macs)
{
    work *w = (work *)self;
    const unified *u = w->u;
    const ek_tower_ops *k = u->part.kernels;
    const double each = row_macs(u);
    do {
        const double may = max_macs / each;
        w->m = may >= BLOCK ? BLOCK : may <= LEAST ? LEAST : (int)may;
        if (w->m > self->n_rows - w->row) w->m = self->n_rows - w->row;
        ek_tower_each_row(k->pool, patch_row, w, w->m);
        ek_tower_product(k, &u->input, w->x.at, w->x.ld, w->m, w->acts, w->y.at, w->y.ld);
        ek_tower_each_row(k->pool, dense_row, w, w->m);
        ek_tower_product(k, &u->projection, w->y.at, w->y.ld, w->m, w->acts,
                         self->rows + (ptrdiff_t)w->row * u->part.hidden, u->part.hidden);
        w->row += w->m;
        max_macs -= each * w->m;
    } while (w->row < self->n_rows && max_macs > 0);
    self->left = each * (self->n_rows - w->row);
}

static void free_work(ek_tower_work *self)
{
    work *w = (work *)self;
    ek_free_big(w->block, w->bytes);
    free(w);
}

/* ------------------------------------------------------------------ memory */

static void lay_out(work *w, ek_layout *l)
{
    const unified *u = w->u;
    const int wide = u->floats > u->width ? u->floats : u->width;
    w->x = ek_take_rows(l, BLOCK, u->floats);
    w->y = ek_take_rows(l, BLOCK, u->width);
    w->temp = ek_take_rows(l, 2 * ek_pool_threads(u->part.kernels->pool), u->width);
    w->picture.image.rgb = ek_take(l, ek_image_bytes(&w->picture.image));
    if (u->input.a_group || u->projection.a_group) w->acts = ek_take(l, ek_acts_bytes(BLOCK, wide));
}

static void measure(work *w, const unified *u, const ek_image_fit *fit, ek_layout *l)
{
    const int side = u->patching.side * u->patching.pool;
    *w = (work){.u = u, .across = fit->width / side, .down = fit->height / side};
    w->picture.fit = *fit;
    w->picture.image.width = fit->width, w->picture.image.height = fit->height;
    lay_out(w, l);
}

ek_err ek_unified_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit)
{
    const unified *u = (const unified *)p;
    ek_layout l = {0};
    work w;
    measure(&w, u, fit, &l);
    EK_TRY(ek_tower_check_positions(w.across, w.down, u->n_positions));
    *out = (ek_tower_cost){.rows = fit->tokens,
                           .macs = fit->tokens * row_macs(u),
                           .bytes = l.used + sizeof(float) * (size_t)fit->tokens * (size_t)p->hidden};
    return EK_OK;
}

static ek_err unified_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture)
{
    static const ek_tower_work_ops ops = {.advance = advance, .free = free_work};
    const unified *u = (const unified *)p;
    ek_tower_cost cost;
    ek_layout l = {0};
    EK_TRY(ek_unified_cost(&cost, p, &picture->fit));
    work *w = ek_alloc(sizeof *w);
    measure(w, u, &picture->fit, &l);
    w->work = (ek_tower_work){.ops = &ops, .part = p, .n_rows = cost.rows, .left = cost.macs};
    w->bytes = l.used;
    EK_TRY(ek_tower_take_memory(&w->work, &w->block, w->bytes));
    l = (ek_layout){.base = w->block};
    lay_out(w, &l);
    memcpy(w->picture.image.rgb, picture->image.rgb, ek_image_bytes(&picture->image));
    *out = &w->work;
    return EK_OK;
}

ek_err ek_tower_image_open(ek_tower_part **out, ek_towers_info *info, ek_tower_binder *b, const ek_tower_ops *kernels)
{
    ek_tower_source *from = b->from;
    const ek_settings top = {.file = from->file, .object = from->config};
    ek_settings vision = {.file = from->file, .in = "vision_config."};
    *out = NULL;
    EK_TRY(ek_setting_may_object(&vision.object, &top, "vision_config"));
    const bool tower = ek_tower_source_has(from, "vision_tower.");
    if (!vision.object ||
        (!tower && !ek_tower_source_has(from, "embed_vision.") && !ek_tower_source_has(from, "vision_embedder.")))
        return EK_OK; /* some programs drop the tensors and keep the configuration */
    info->image_kind = tower ? EK_PATCH_TOWER : EK_PATCH_UNIFIED;
    EK_TRY(ek_setting_may_int(&info->patching.side, &vision, "patch_size", 16, 1, EK_MAX_CELL));
    EK_TRY(ek_setting_may_int(&info->patching.pool, &vision, "pooling_kernel_size", 3, 1, EK_MAX_CELL));
    if (info->patching.side * info->patching.pool > EK_MAX_CELL)
        return ek_fail(EK_EUNSUPPORTED, "%s: %d x %d patches of %d pixels in a token; %d pixels on a side can be run",
                       from->file, info->patching.pool, info->patching.pool, info->patching.side, EK_MAX_CELL);
    ek_err err = tower ? ek_vision_open(out, info, b, &vision) : unified_open(out, info, b, &vision);
    if (!err) (*out)->kernels = kernels, (*out)->hidden = info->hidden;
    return err;
}

ek_err ek_tower_image_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit)
{
    return ek_unified_of(p) ? ek_unified_cost(out, p, fit) : ek_vision_cost(out, p, fit);
}

ek_err ek_tower_image_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture)
{
    return ek_unified_of(p) ? unified_begin(out, p, picture) : ek_vision_begin(out, p, picture);
}
