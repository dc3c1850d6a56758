/* Code that encoders share: memory, and the public functions of a work. */
#include "model/tower/tower_part.h"

#include "base/alloc.h"

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
