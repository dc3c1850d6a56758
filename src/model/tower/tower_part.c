/* Code that encoders share: their tensors, which are looked up, checked and listed for packing; memory, and the public
 * functions of a work. */
#include "model/tower/tower_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* ------------------------------------------------------------------ weights */

void *ek_tower_own(ek_tower_binder *b, void *memory)
{
    b->own = ek_realloc(b->own, sizeof *b->own * ((size_t)b->n_own + 1));
    return b->own[b->n_own++] = memory;
}

static ek_item *new_item(ek_tower_binder *b, const char *name, const ek_weight_data *data)
{
    ek_items *list = &b->items;
    if ((list->n & (list->n - 1)) == 0) /* the room doubles at every power of two */
        list->item = ek_realloc(list->item, sizeof *list->item * (size_t)(list->n ? list->n * 2 : 1));
    ek_item *it = &list->item[list->n++];
    *it = (ek_item){.role = EK_ROLE_Q, .data = *data};
    snprintf(it->name, sizeof it->name, "%s", name);
    return it;
}

void ek_tower_matrix_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, ek_linear *w)
{
    new_item(b, name, data)->matrix = w;
}

void ek_tower_vector_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, float **v)
{
    EK_ASSERT(data->n == 1);
    new_item(b, name, data)->vector = v;
}

/* Data that the source has made belongs to the binder from here on. */
static void take_made(ek_tower_binder *b)
{
    if (b->from->made) ek_tower_own(b, b->from->made);
    b->from->made = NULL;
}

ek_err ek_tower_matrix(ek_tower_binder *b, const char *name, int n, int k, ek_linear *w)
{
    ek_weight_data data = {0};
    EK_TRY(ek_tower_source_matrix(b->from, name, n, k, &data));
    take_made(b);
    ek_tower_matrix_of(b, name, &data, w);
    return EK_OK;
}

/* k: elements per row; the other dimensions are rows. */
static ek_err find_floats(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, int64_t k,
                          ek_weight_data *out)
{
    ek_tower_tensor t;
    int64_t count = 1;
    EK_TRY(ek_tower_source_need(b->from, name, n_dims, dim, &t));
    take_made(b);
    for (int d = 0; d < n_dims; d++) count *= dim[d];
    if (count > EK_LINEAR_MAX * (int64_t)16)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has %lld numbers", t.file, t.name, (long long)count);
    if (k == 0) k = count;
    *out = (ek_weight_data){.type = t.type, .n = (int)(count / k), .k = (int)k, .plane = {t.data}};
    return EK_OK;
}

/* Floats of any shape, in stored order, widened to f32. */
static ek_err tower_floats(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, float **v)
{
    ek_weight_data data = {0};
    EK_TRY(find_floats(b, name, n_dims, dim, 0, &data));
    ek_tower_vector_of(b, name, &data, v);
    return EK_OK;
}

ek_err ek_tower_vector(ek_tower_binder *b, const char *name, int n, float **v)
{
    return tower_floats(b, name, 1, &(int64_t){n}, v);
}

ek_err ek_tower_table(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, ek_embedding_table *t)
{
    ek_weight_data data = {0};
    EK_TRY(find_floats(b, name, n_dims, dim, dim[n_dims - 1], &data));
    new_item(b, name, &data)->table = t;
    return EK_OK;
}

/* ------------------------------------------------------------------ clipped linears */

/* Reads a scalar, or a tensor of one element, as some programs store it. */
static ek_err bound(ek_tower_binder *b, const char *module, const char *which, float *out)
{
    char name[256];
    ek_tower_tensor t;
    snprintf(name, sizeof name, "%s.%s", module, which);
    if (!ek_tower_source_find(b->from, name, &t))
        return ek_fail(EK_EFORMAT,
                       "%s: tensor %.200s is missing: without its four bounds a clipped linear gives other answers",
                       b->from->path, name);
    EK_TRY(ek_tower_source_need(b->from, name, t.n_dims > 1 ? 0 : t.n_dims, &(int64_t){1}, &t));
    ek_weight_data data = {.type = t.type, .n = 1, .k = 1, .plane = {t.data}};
    ek_weight_row(&data, 0, 0, 1, out);
    if (*out != *out) return ek_fail(EK_EFORMAT, "%s: tensor %.200s is no number", t.file, t.name);
    return EK_OK;
}

static ek_err bounds(ek_tower_binder *b, const char *module, const char *min, const char *max, float out[2])
{
    EK_TRY(bound(b, module, min, &out[0]));
    EK_TRY(bound(b, module, max, &out[1]));
    if (out[0] <= out[1]) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: %s of %.200s is %g, above its %s, which is %g", b->from->path, min, module,
                   (double)out[0], max, (double)out[1]);
}

ek_err ek_tower_clipped(ek_tower_binder *b, const char *name, int n, int k, bool clips, ek_clipped *w)
{
    char linear[256];
    const float inf = __builtin_inff();
    w->clip = (ek_clip){{-inf, inf}, {-inf, inf}};
    if (clips) EK_TRY(bounds(b, name, "input_min", "input_max", w->clip.in));
    if (clips) EK_TRY(bounds(b, name, "output_min", "output_max", w->clip.out));
    snprintf(linear, sizeof linear, "%s.linear", name);
    return ek_tower_matrix(b, linear, n, k, &w->w);
}

/* ------------------------------------------------------------------ products */

void ek_tower_product(const ek_tower_ops *k, const ek_linear *m, const float *x, ptrdiff_t ldx, int rows, void *acts,
                      float *y, ptrdiff_t ldy)
{
    ek_acts a;
    ek_acts_bind(&a, acts, x, ldx, rows, m->k);
    ek_linear_forward(&k->linear, k->pool, m, &a, y, ldy);
}

/* ------------------------------------------------------------------ works */

ek_err ek_tower_take_memory(ek_tower_work *w, uint8_t **block, size_t bytes)
{
    *block = ek_alloc_big(bytes);
    w->rows = *block ? ek_alloc_big(sizeof *w->rows * (size_t)w->n_rows * (size_t)w->part->hidden) : NULL;
    if (w->rows) return EK_OK;
    w->ops->free(w);
    return EK_ENOMEM;
}

ek_err ek_tower_check_positions(int across, int down, int n)
{
    if (across <= n && down <= n) return EK_OK;
    return ek_fail(EK_EINVAL, "a picture of %d x %d patches; this model has positions for %d in a row or column",
                   across, down, n);
}

void ek_tower_advance(ek_tower_work *w, double max_macs, bool *done)
{
    if (w->left > 0) w->ops->advance(w, max_macs);
    *done = w->left <= 0;
}

double ek_tower_left(const ek_tower_work *w)
{
    return w->left > 0 ? w->left : 0;
}

const float *ek_tower_rows(const ek_tower_work *w, int *rows)
{
    EK_ASSERT(w->left <= 0);
    *rows = w->n_rows;
    return w->rows;
}

void ek_tower_free(ek_tower_work *w)
{
    if (!w) return;
    float *rows = w->rows;
    size_t n = (size_t)w->n_rows * (size_t)w->part->hidden * sizeof *rows;
    w->ops->free(w);
    ek_free_big(rows, n);
}
