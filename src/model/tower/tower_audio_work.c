/* How the work on the rows of a block is spread over the pool. */
#include "model/tower/tower_audio_work.h"

typedef struct each_arg {
    const ek_audio_work *w;
    ek_audio_row_fn *fn;
    int n, per_task;
} each_arg;

static void each_task(void *arg, int task, int worker)
{
    const each_arg *e = arg;
    (void)worker;
    for (int r = task * e->per_task; r < (task + 1) * e->per_task && r < e->n; r++) e->fn(e->w, r);
}

void ek_audio_each(const ek_audio_work *w, ek_audio_row_fn *fn, int n)
{
    ek_pool *pool = w->a->part.kernels->pool;
    enum { TASKS_PER_THREAD = 4, WORTH_WAKING = 6 };
    each_arg arg = {w, fn, n, 1 + (n - 1) / (ek_pool_threads(pool) * TASKS_PER_THREAD)};
    if (n < WORTH_WAKING) arg.per_task = n;
    ek_pool_run(pool, each_task, &arg, (n + arg.per_task - 1) / arg.per_task);
}

void ek_audio_product(const ek_audio_work *w, const ek_linear *m, const float *x, ptrdiff_t ldx, int rows, float *y,
                      ptrdiff_t ldy)
{
    const ek_tower_ops *k = w->a->part.kernels;
    ek_acts acts;
    ek_acts_bind(&acts, w->acts, x, ldx, rows, m->k);
    ek_linear_forward(&k->linear, k->pool, m, &acts, y, ldy);
}
