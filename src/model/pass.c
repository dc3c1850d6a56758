/* How the work on the rows of a pass is spread over the pool. */
#include "model/pass.h"

typedef struct row_arg {
    const ek_pass *p;
    ek_row_fn *fn;
    int per_task;
} row_arg;

static void row_task(void *arg, int task, int worker)
{
    const row_arg *t = arg;
    for (int r = task * t->per_task; r < (task + 1) * t->per_task && r < t->p->n; r++) t->fn(t->p, r, worker);
}

void ek_each_row(const ek_pass *p, ek_row_fn *fn)
{
    enum { TASKS_PER_THREAD = 4 };
    int threads = ek_pool_threads(p->m->pool);
    row_arg arg = {p, fn, 1 + (p->n - 1) / (threads * TASKS_PER_THREAD)};
    if (!ek_rows_worth_waking(p->m->pool, p->n)) arg.per_task = p->n;
    ek_pool_run(p->m->pool, row_task, &arg, (p->n + arg.per_task - 1) / arg.per_task);
}
