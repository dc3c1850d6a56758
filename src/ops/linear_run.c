/* Activations as linear layers read them, and the distribution of products over the pool. The
 * division into tasks is free: one task computes an output completely, in the contract's order. */
#include "ops/linear.h"

#include "ops/linear_layout.h"

/* A tile of 8 rows reads 8 cache lines of each, of two limbs 4 rows and both limbs: so that they fill the 64 sets of a
 * first-level cache evenly, a record takes an odd multiple of 8 lines and l lies half of the sets after h. (K is often
 * a multiple of 4096, and odd numbers of lines put up to four of the rows' lines into one set.) */
static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64;
}

static size_t group_bytes(int k)
{
    return ((size_t)k + 15) / 16 * sizeof(ek_act_group);
}

static size_t high_bytes(int k)
{
    const size_t n = lines((size_t)k);
    return (n <= 8 ? n : (n + 31) / 64 * 64 + 32) * 64;
}

static size_t record_bytes(int k)
{
    return ((lines(high_bytes(k) + lines((size_t)k) * 64 + 2 * group_bytes(k)) + 7) / 8 | 1) * 8 * 64;
}

size_t ek_acts_bytes(int rows, int k)
{
    return (size_t)rows * record_bytes(k);
}

void ek_acts_bind(ek_acts *a, void *mem, const float *x, ptrdiff_t ldx, int rows, int k)
{
    const ptrdiff_t low = (ptrdiff_t)high_bytes(k), groups = low + (k + 63) / 64 * 64;
    *a = (ek_acts){.x = x, .ldx = ldx, .rows = rows, .k = k, .q = mem, .ldq = (ptrdiff_t)record_bytes(k)};
    a->low = low, a->groups[0] = groups, a->groups[1] = groups + (ptrdiff_t)group_bytes(k);
}

ek_acts ek_acts_pick(const ek_acts *a, const int32_t *index, int n)
{
    EK_ASSERT(!a->index);
    ek_acts view = *a;
    view.index = index;
    view.rows = n;
    return view;
}

enum { QUANTIZE_ROWS = 4 }; /* a task */

typedef struct quantize_arg {
    ek_quantize_fn *fn;
    ek_acts *a;
    int a_group;
} quantize_arg;

static void quantize_task(void *arg, int task, int worker)
{
    (void)worker;
    const quantize_arg *t = arg;
    const ek_acts *a = t->a;
    for (int r = task * QUANTIZE_ROWS; r < (task + 1) * QUANTIZE_ROWS && r < a->rows; r++)
        ek_acts_quantize_row(t->fn, a, r, t->a_group);
}

void ek_acts_quantize_for(const ek_linear_ops *ops, ek_pool *pool, ek_acts *a, const ek_linear *w)
{
    if (w->a_group == 0 || a->a_group == w->a_group) return;
    EK_ASSERT(!a->index && a->q);
    quantize_arg arg = {ops->quantize_row, a, w->a_group};
    ek_pool_run(pool, quantize_task, &arg, (a->rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS);
    a->a_group = w->a_group;
}

/* A task's weights stay in the second-level cache while its tiles of rows pass over them. It
 * should last long against the cost of taking one and short against the whole, so that threads
 * finish together. */
enum { TASK_BYTES = 48 << 10, TASK_BYTES_ROWS = 160 << 10, FEW_ROWS = 16, TASK_ROWS = 128, TASKS_PER_THREAD = 8 };

static int at_least_1(size_t n)
{
    return n < 1 ? 1 : (int)n;
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

int ek_linear_node_panel(const ek_linear *w, const ek_pool *pool, int node)
{
    const int first = ek_pool_node_first(pool, node), threads = ek_pool_threads(pool);
    return first == threads ? w->n_panels : (int)((int64_t)w->n_panels * first / threads) & ~1; /* see plan_tasks */
}

ek_linear ek_linear_of_node(const ek_linear *w, int node)
{
    ek_linear own = *w;
    /* an address that panels count from: it may lie in front of the memory */
    own.data = (uint8_t *)((uintptr_t)w->parts->data[node] - (uintptr_t)w->parts->first[node] * w->panel_bytes);
    own.parts = NULL;
    return own;
}

/* A job's tasks on each node, behind those of the job before. */
static void plan_tasks(ek_linear_job *job, const int *before, int nodes, const ek_pool *pool)
{
    const ek_linear *w = job->w;
    const int threads = ek_pool_threads(pool);
    for (int j = 0; j < nodes; j++) job->tasks[j] = before ? before[j] : 0;
    if (job->x->rows == 0) return;
    int row_tasks = ceil_div(job->x->rows, TASK_ROWS);
    job->rows = ceil_div(job->x->rows, row_tasks);
    int by_bytes = at_least_1((job->rows <= FEW_ROWS ? TASK_BYTES : TASK_BYTES_ROWS) / w->panel_bytes);
    int by_threads = at_least_1((size_t)(w->n_panels * row_tasks / (threads * TASKS_PER_THREAD)));
    job->panels = by_bytes < by_threads ? by_bytes : by_threads;
    if (job->rows > 1) job->panels = job->panels < 2 ? 2 : job->panels & ~1; /* kernels take two at a time */
    for (int j = 0; j < nodes; j++) {
        int panels = nodes == 1 ? w->n_panels : w->parts->first[j + 1] - w->parts->first[j];
        job->tasks[j] += ceil_div(panels, job->panels) * ceil_div(job->x->rows, job->rows);
    }
}

typedef struct run_arg {
    const ek_linear_job *job;
    int n;
    int end[EK_MAX_NODES]; /* of each node's tasks */
} run_arg;

static void run_task(void *arg, int task, int worker)
{
    (void)worker;
    const run_arg *t = arg;
    int node = 0, low = 0; /* the first job whose tasks end behind this one */
    while (task >= t->end[node]) node++;
    if (node > 0) task -= t->end[node - 1];
    for (int high = t->n - 1; low < high;) {
        int mid = (low + high) / 2;
        if (t->job[mid].tasks[node] > task) high = mid;
        else low = mid + 1;
    }
    const ek_linear_job *job = &t->job[low];
    if (low > 0) task -= t->job[low - 1].tasks[node];

    const ek_linear *w = job->w;
    ek_linear own;
    int first = 0, end = w->n_panels;
    if (w->parts) {
        first = w->parts->first[node], end = w->parts->first[node + 1];
        own = ek_linear_of_node(w, node), w = &own;
    }
    int row_tasks = ceil_div(job->x->rows, job->rows); /* of one set of panels, one after the other */
    int p0 = first + task / row_tasks * job->panels, r0 = task % row_tasks * job->rows;
    int p1 = p0 + job->panels < end ? p0 + job->panels : end;
    int r1 = r0 + job->rows < job->x->rows ? r0 + job->rows : job->x->rows;
    w->run(w, job->x, r0, r1, job->y, job->ldy, p0, p1);
}

/* The matrices of a model have parts on as many nodes as its pool has, or none of them has. */
static void run_all(ek_pool *pool, int n, ek_linear_job *job)
{
    run_arg arg = {.job = job, .n = n};
    const int nodes = n > 0 && job->w->parts ? ek_pool_nodes(pool) : 1;
    for (int i = 0; i < n; i++) {
        EK_ASSERT(!job[i].w->parts == (nodes == 1));
        plan_tasks(&job[i], i ? job[i - 1].tasks : NULL, nodes, pool);
    }
    for (int j = 0; j < nodes; j++) arg.end[j] = (j ? arg.end[j - 1] : 0) + (n ? job[n - 1].tasks[j] : 0);
    if (nodes > 1) ek_pool_run_nodes(pool, run_task, &arg, arg.end, false);
    else ek_pool_run(pool, run_task, &arg, arg.end[0]);
}

void ek_linear_run(const ek_linear_ops *ops, ek_pool *pool, int n, ek_linear_job *job)
{
    int first = 0;
    for (int i = 0; i < n; i++) {
        EK_ASSERT(job[i].x->k == job[i].w->k && job[i].ldy >= job[i].w->n);
        const ek_linear *w = job[i].w;
        if (!w->a_group || job[i].x->a_group == w->a_group) continue;
        if (job[i].x->a_group) { /* jobs before this one may still need the other groups */
            run_all(pool, i - first, job + first);
            first = i;
        }
        ek_acts_quantize_for(ops, pool, job[i].x, w);
    }
    run_all(pool, n - first, job + first);
}

void ek_linear_forward(const ek_linear_ops *ops, ek_pool *pool, const ek_linear *w, ek_acts *x, float *y, ptrdiff_t ldy)
{
    ek_linear_job job = {.w = w, .x = x, .y = y, .ldy = ldy};
    ek_linear_run(ops, pool, 1, &job);
}
