/* Activations in the forms of linear layers, and the distribution of products over the pool. The division into tasks is
 * free: one task computes an output completely, in the contract's order. */
#include "ops/linear/linear.h"

#include "ops/linear/linear_layout.h"

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
    ek_act_form form;
} quantize_arg;

static void quantize_task(void *arg, int task, int worker)
{
    (void)worker;
    const quantize_arg *t = arg;
    const ek_acts *a = t->a;
    for (int r = task * QUANTIZE_ROWS; r < (task + 1) * QUANTIZE_ROWS && r < a->rows; r++)
        ek_acts_quantize_row(t->fn, a, r, t->form);
}

static bool is_quantised(const ek_acts *a, ek_act_form form)
{
    return form.group == 0 || (a->a_group == form.group && a->limbs >= form.limbs);
}

void ek_acts_quantize_as(const ek_linear_ops *ops, ek_pool *pool, ek_acts *a, ek_act_form form)
{
    if (is_quantised(a, form)) return;
    EK_ASSERT(!a->index && a->q && a->x);
    quantize_arg arg = {ops->quantize_row, a, form};
    ek_pool_run(pool, quantize_task, &arg, (a->rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS);
    a->a_group = form.group, a->limbs = form.limbs;
}

void ek_acts_quantize_for(const ek_linear_ops *ops, ek_pool *pool, ek_acts *a, const ek_linear *w)
{
    ek_act_form form = {0};
    ek_acts_add_reader(&form, w);
    ek_acts_quantize_as(ops, pool, a, form);
}

/* The sizes of a task. A task's weights stay in the second-level cache while its tiles of rows pass over them. It
 * should be long compared with the time to take a task, and short compared with the whole, so that threads finish
 * together. */
enum { TASK_BYTES = 128 << 10, TASK_BYTES_ROWS = 160 << 10, FEW_ROWS = 16, TASK_ROWS = 128, TASKS_PER_THREAD = 8 };
enum { GATE_PANELS = EK_GATE_OUTPUTS / EK_PANEL, NODE_PANELS = GATE_PANELS };

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
    return first == threads ? w->n_panels
                            : (int)((int64_t)w->n_panels * first / threads) & -NODE_PANELS; /* see plan_gate */
}

/* A matrix of one node's panels alone. */
static ek_linear of_node(const ek_linear *w, int node)
{
    ek_linear own = *w;
    /* the address from which panels count, which may lie before the memory */
    own.data = (uint8_t *)((uintptr_t)w->parts->data[node] - (uintptr_t)w->parts->first[node] * w->panel_bytes);
    own.parts = NULL;
    return own;
}

/* Plans a gate: tasks have so many outputs that the next product's groups are whole. Few outputs for many threads are
 * also divided by rows. */
static void plan_gate(ek_linear_job *job, int threads)
{
    const int rows = job->x->rows, tasks = ceil_div(job->w->n_panels, GATE_PANELS);
    int row_tasks = ceil_div(rows, EK_GATE_ROWS), wanted = ceil_div(threads * TASKS_PER_THREAD, tasks);
    if (wanted > rows / FEW_ROWS) wanted = rows / FEW_ROWS;
    if (row_tasks < wanted) row_tasks = wanted;
    job->rows = ceil_div(rows, row_tasks);
    job->panels = GATE_PANELS;
}

static void plan_product(ek_linear_job *job, int threads)
{
    const ek_linear *w = job->w;
    int row_tasks = ceil_div(job->x->rows, TASK_ROWS);
    job->rows = ceil_div(job->x->rows, row_tasks);
    int by_bytes = at_least_1((job->rows <= FEW_ROWS ? TASK_BYTES : TASK_BYTES_ROWS) / w->panel_bytes);
    int by_threads = at_least_1((size_t)(w->n_panels * row_tasks / (threads * TASKS_PER_THREAD)));
    job->panels = by_bytes < by_threads ? by_bytes : by_threads;
    if (job->rows > 1) job->panels = job->panels < 2 ? 2 : job->panels & ~1; /* kernels take two at a time */
}

/* A job's tasks on each node follow those of the previous job. */
static void plan_tasks(ek_linear_job *job, const int *before, int nodes, const ek_pool *pool)
{
    const ek_linear *w = job->w;
    for (int j = 0; j < nodes; j++) job->tasks[j] = before ? before[j] : 0;
    if (job->x->rows == 0) return;
    if (job->gate) plan_gate(job, ek_pool_threads(pool));
    else plan_product(job, ek_pool_threads(pool));
    for (int j = 0; j < nodes; j++) {
        int panels = nodes == 1 ? w->n_panels : w->parts->first[j + 1] - w->parts->first[j];
        job->tasks[j] += ceil_div(panels, job->panels) * ceil_div(job->x->rows, job->rows);
    }
}

typedef struct run_arg {
    ek_quantize_fn *quantize;
    const ek_linear_job *job;
    int n;
    int end[EK_MAX_NODES]; /* the end of the tasks on each node */
} run_arg;

static void run_panels(const ek_linear *w, int node, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                       int p1)
{
    ek_linear own;
    if (w->parts) own = of_node(w, node), w = &own;
    w->run(w, x, r0, r1, y, ldy, p0, p1);
}

/* The y for kernels so that the output of panel p and row r is at `at`, because kernels count from the first output and
 * row. */
static float *counted_from_0(const float *at, ptrdiff_t ld, int r, int p)
{
    return (float *)((uintptr_t)at - sizeof(float) * (size_t)(r * ld + (ptrdiff_t)p * EK_PANEL));
}

static void run_gate(const run_arg *t, const ek_linear_job *job, int node, int r0, int r1, int p0, int p1, int worker)
{
    enum { LD = EK_GATE_OUTPUTS };
    const ek_linear_gate *of = job->gate;
    float *g = of->space + (size_t)worker * EK_GATE_FLOATS, *up = g + EK_GATE_ROWS * LD;
    run_panels(job->w, node, job->x, r0, r1, counted_from_0(g, LD, r0, p0), LD, p0, p1);
    if (of->up) run_panels(of->up, node, job->x, r0, r1, counted_from_0(up, LD, r0, p0), LD, p0, p1);
    const int first = p0 * EK_PANEL, n = p1 * EK_PANEL < job->w->n ? p1 * EK_PANEL - first : job->w->n - first;
    for (int r = r0; r < r1; r++, g += LD, up += LD) {
        of->gelu_mul(g, g, of->up ? up : of->factor + r * of->ldf + first, n);
        ek_acts_quantize_part(t->quantize, of->out, of->row + r, first, n, g, of->form);
    }
}

static void run_task(void *arg, int task, int worker)
{
    const run_arg *t = arg;
    int node = 0, low = 0; /* the first job whose tasks end after this one */
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
    const int first = w->parts ? w->parts->first[node] : 0, end = w->parts ? w->parts->first[node + 1] : w->n_panels;
    int row_tasks = ceil_div(job->x->rows, job->rows); /* tasks of one set of panels are adjacent */
    int p0 = first + task / row_tasks * job->panels, r0 = task % row_tasks * job->rows;
    int p1 = p0 + job->panels < end ? p0 + job->panels : end;
    int r1 = r0 + job->rows < job->x->rows ? r0 + job->rows : job->x->rows;
    if (job->gate) {
        run_gate(t, job, node, r0, r1, p0, p1, worker);
        return;
    }
    run_panels(w, node, job->x, r0, r1, job->y, job->ldy, p0, p1);
}

/* Either all matrices of a model have parts on the pool's nodes, or none has. */
static void run_all(const ek_linear_ops *ops, ek_pool *pool, int n, ek_linear_job *job)
{
    run_arg arg = {.quantize = ops->quantize_row, .job = job, .n = n};
    const int nodes = n > 0 && job->w->parts ? ek_pool_nodes(pool) : 1;
    for (int i = 0; i < n; i++) {
        EK_ASSERT(!job[i].w->parts == (nodes == 1));
        plan_tasks(&job[i], i ? job[i - 1].tasks : NULL, nodes, pool);
    }
    for (int j = 0; j < nodes; j++) arg.end[j] = (j ? arg.end[j - 1] : 0) + (n ? job[n - 1].tasks[j] : 0);
    if (nodes > 1) ek_pool_run_nodes(pool, run_task, &arg, arg.end, false);
    else ek_pool_run(pool, run_task, &arg, arg.end[0]);
}

static void check_job(const ek_linear_job *job)
{
    const ek_linear *w = job->w, *up = job->gate ? job->gate->up : NULL;
    EK_ASSERT(job->x->k == w->k);
    EK_ASSERT(job->gate ? job->gate->out->k == w->n && job->gate->form.group : job->ldy >= w->n);
    EK_ASSERT(!up || (up->n == w->n && up->k == w->k && up->a_group == w->a_group));
}

static void add_readers(ek_act_form *form, const ek_linear_job *job)
{
    ek_acts_add_reader(form, job->w);
    if (job->gate && job->gate->up) ek_acts_add_reader(form, job->gate->up);
}

void ek_linear_run(const ek_linear_ops *ops, ek_pool *pool, int n, ek_linear_job *job)
{
    int first = 0;
    for (int i = 0; i < n; i++) {
        ek_acts *x = job[i].x;
        check_job(&job[i]);
        ek_act_form form = {0};
        add_readers(&form, &job[i]);
        if (is_quantised(x, form)) continue;
        if (x->a_group && x->a_group != form.group) { /* earlier jobs may still need records with other groups */
            run_all(ops, pool, i - first, job + first);
            first = i;
        }
        for (int j = i + 1; j < n; j++)
            if (job[j].x == x) add_readers(&form, &job[j]);
        ek_acts_quantize_as(ops, pool, x, form);
    }
    run_all(ops, pool, n - first, job + first);
    for (int i = 0; i < n; i++)
        if (job[i].gate)
            job[i].gate->out->a_group = job[i].gate->form.group, job[i].gate->out->limbs = job[i].gate->form.limbs;
}

void ek_linear_forward(const ek_linear_ops *ops, ek_pool *pool, const ek_linear *w, ek_acts *x, float *y, ptrdiff_t ldy)
{
    ek_linear_job job = {.w = w, .x = x, .y = y, .ldy = ldy};
    ek_linear_run(ops, pool, 1, &job);
}
