/* The exact form of every product. A task computes up to ROWS rows of LIB_COLS outputs: values of
 * w are made in the first-level cache, 64 inputs at a time, and every row of the task reads them
 * there. How rows and outputs fall into tasks decides no bit: each output is one chain a block,
 * and the blocks meet in T. */
#include "lib/product.h"

#include <string.h>

#include "ops/tree.h"

enum {
    ROWS = 48,
    PARTS = EK_KBLOCK / LIB_DEPTH,
    LEVELS = 32 /* of T: 2^31 blocks of 256 */
};

typedef struct slab { /* pairs of one matrix */
    int64_t first, rows;
    int64_t tasks; /* up to and with this slab */
} slab;

typedef struct work {
    const lib_kernels *k;
    const lib_product *p;
    slab *slabs;
    int64_t n_slabs;
    int64_t rows; /* of a task */
    int levels;
    float *scratch;
    size_t scratch_floats; /* of a worker */
} work;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static const slab *find_slab(const work *t, int64_t task)
{
    int64_t low = 0;
    for (int64_t high = t->n_slabs - 1; low < high;) {
        int64_t mid = (low + high) / 2;
        if (t->slabs[mid].tasks > task) high = mid;
        else low = mid + 1;
    }
    return &t->slabs[low];
}

static lib_matrix matrix_of(const lib_product *p, const lib_pair *pair)
{
    lib_matrix w = p->w;
    if (w.data) w.data += pair->data;
    if (w.codes) w.codes += pair->data, w.scales += pair->scales;
    if (w.biases) w.biases += pair->biases;
    return w;
}

static void run_task(void *arg, int64_t task, int worker)
{
    const work *t = arg;
    const lib_product *p = t->p;
    const slab *s = find_slab(t, task);
    if (s > t->slabs) task -= s[-1].tasks;
    const lib_matrix w = matrix_of(p, &p->pair[s->first]);
    int64_t row_tasks = ceil_div(s->rows, t->rows), n0 = task / row_tasks * LIB_COLS, r0 = task % row_tasks * t->rows;
    int rows = (int)(s->rows - r0 < t->rows ? s->rows - r0 : t->rows);
    int64_t floats = rows * LIB_COLS;

    float *panel = t->scratch + (size_t)worker * t->scratch_floats;
    float *temp = panel + LIB_COLS * LIB_DEPTH, *acc = temp + EK_PANEL * LIB_DEPTH, *node = acc + t->rows * LIB_COLS;
    const float *x[ROWS];
    for (int r = 0; r < rows; r++) {
        const lib_pair *pair = &p->pair[s->first + (r0 + r) / p->m];
        x[r] = (const float *)(p->x.data + pair->x + (r0 + r) % p->m * p->x_row);
    }
    bool few = w.kind == LIB_PACKED && t->k->madd_few && rows <= LIB_FEW && w.packed->biased && w.n - n0 >= LIB_COLS;
    int64_t blocks = 0;
    for (int64_t k0 = 0; k0 < w.k; k0 += EK_KBLOCK, blocks++) {
        int64_t end = w.k < k0 + EK_KBLOCK ? w.k : k0 + EK_KBLOCK;
        memset(acc, 0, sizeof *acc * (size_t)floats);
        if (few) t->k->madd_few(acc, x, rows, w.packed, (int)(n0 / EK_PANEL), k0, (int)(end - k0));
        for (int64_t at = k0; at < end && !few; at += LIB_DEPTH) {
            int depth = (int)(end - at < LIB_DEPTH ? end - at : LIB_DEPTH);
            lib_fill(t->k, &w, n0, at, depth, panel, temp);
            t->k->madd(acc, x, at, rows, panel, depth);
        }
        ek_tree_push_row(node, (uint64_t)blocks, acc, (size_t)floats);
    }
    const float *sum = ek_tree_sum_row(node, (uint64_t)blocks, (size_t)floats);
    int64_t cols = w.n - n0 < LIB_COLS ? w.n - n0 : LIB_COLS;
    for (int r = 0; r < rows; r++) {
        const lib_pair *pair = &p->pair[s->first + (r0 + r) / p->m];
        lib_store(t->k, p->y.data + pair->y + (r0 + r) % p->m * p->y_row + n0 * p->y_step, p->y.type, p->y_step,
                  sum + r * LIB_COLS, cols);
    }
}

static bool cut_slabs(work *t)
{
    const lib_product *p = t->p;
    int64_t tasks = 0;
    for (int64_t i = 0, end; i < p->n_pairs; i = end) {
        for (end = i + 1; end < p->n_pairs && p->pair[end].w == p->pair[i].w;) end++;
        int64_t rows, row_tasks, here;
        if (__builtin_mul_overflow(end - i, p->m, &rows)) return false;
        row_tasks = ceil_div(rows, t->rows);
        if (__builtin_mul_overflow(row_tasks, ceil_div(p->w.n, LIB_COLS), &here) ||
            __builtin_add_overflow(tasks, here, &tasks))
            return false;
        t->slabs[t->n_slabs++] = (slab){i, rows, tasks};
    }
    return true;
}

ek_err lib_product_run(lib_call *c, const lib_kernels *k, const lib_product *p)
{
    work t = {.k = k, .p = p, .rows = ROWS};
    if (p->y.count == 0) return EK_OK;
    int64_t most = p->n_pairs * p->m;
    if (most < t.rows) t.rows = most;
    t.levels = 1;
    for (int64_t blocks = ceil_div(p->w.k, EK_KBLOCK); blocks > 1; blocks /= 2) t.levels++;
    if (t.levels > LEVELS) return ek_fail(EK_EINVAL, "%lld inputs are too many", (long long)p->w.k);
    t.scratch_floats = (size_t)(LIB_COLS * LIB_DEPTH + EK_PANEL * LIB_DEPTH + t.rows * LIB_COLS * (1 + t.levels));
    t.scratch = lib_take_array(c, (size_t)c->n_workers, t.scratch_floats * sizeof *t.scratch);
    t.slabs = lib_take_array(c, (size_t)p->n_pairs, sizeof *t.slabs);
    if (!t.scratch || !t.slabs) return EK_ENOMEM;
    if (!cut_slabs(&t)) return ek_fail(EK_EINVAL, "a product of %lld matrices is too large", (long long)p->n_pairs);
    lib_run(c, run_task, &t, t.slabs[t.n_slabs - 1].tasks);
    return EK_OK;
}
