/* The exact form of every product: the division into tasks by matrix, rows and outputs. A task is a tile of
 * ops/linear/decoded.h, up to ROWS rows; the division into tiles changes no bit. */
#include "lib/product.h"

#include <string.h>

#include "ops/tree.h"

enum {
    ROWS = 48,
    TEMP_FLOATS = EK_PANEL * EK_DECODED_DEPTH /* that lib_fill needs */
};

typedef struct slab { /* the pairs with one matrix */
    int64_t first, rows;
    int64_t tasks; /* the number of tasks up to and including this slab */
} slab;

typedef struct work {
    const lib_kernels *k;
    const lib_product *p;
    slab *slabs;
    int64_t n_slabs;
    int64_t rows; /* of a task */
    float *scratch;
    size_t scratch_floats; /* per worker: memory of lib_fill, then of the tile */
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

typedef struct tile_source {
    const lib_kernels *k;
    const lib_matrix *w;
    int64_t n0;
    float *temp;
} tile_source;

static void fill_panel(const void *arg, int64_t k0, int depth, float *panel)
{
    const tile_source *s = arg;
    lib_fill(s->k, s->w, s->n0, k0, depth, panel, s->temp);
}

static void run_task(void *arg, int64_t task, int worker)
{
    const work *t = arg;
    const lib_product *p = t->p;
    const slab *s = find_slab(t, task);
    if (s > t->slabs) task -= s[-1].tasks;
    const lib_matrix w = matrix_of(p, &p->pair[s->first]);
    int64_t row_tasks = ceil_div(s->rows, t->rows), n0 = task / row_tasks * EK_DECODED_COLS;
    int64_t r0 = task % row_tasks * t->rows, cols = w.n - n0 < EK_DECODED_COLS ? w.n - n0 : EK_DECODED_COLS;
    int rows = (int)(s->rows - r0 < t->rows ? s->rows - r0 : t->rows);

    const float *x[ROWS];
    for (int r = 0; r < rows; r++) {
        const lib_pair *pair = &p->pair[s->first + (r0 + r) / p->m];
        x[r] = (const float *)(p->x.data + pair->x + (r0 + r) % p->m * p->x_row);
    }
    float *temp = t->scratch + (size_t)worker * t->scratch_floats;
    const tile_source source = {t->k, &w, n0, temp};
    ek_decoded_source from = {.fill = fill_panel, .source = &source};
    if (w.kind == LIB_PACKED && cols == EK_DECODED_COLS) from.packed = w.packed, from.p0 = (int)(n0 / EK_PANEL);
    const float *sum = ek_decoded_tile(&t->k->product, x, rows, w.k, &from, temp + TEMP_FLOATS);
    for (int r = 0; r < rows; r++) {
        const lib_pair *pair = &p->pair[s->first + (r0 + r) / p->m];
        lib_store(t->k, p->y.data + pair->y + (r0 + r) % p->m * p->y_row + n0 * p->y_step, p->y.type, p->y_step,
                  sum + r * EK_DECODED_COLS, cols);
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
        if (__builtin_mul_overflow(row_tasks, ceil_div(p->w.n, EK_DECODED_COLS), &here) ||
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
    if (p->n_pairs * p->m < t.rows) t.rows = p->n_pairs * p->m;
    if ((p->w.k - 1) / EK_KBLOCK >> EK_TREE_DEPTH > 0)
        return ek_fail(EK_EINVAL, "%lld inputs are too many", (long long)p->w.k);
    t.scratch_floats = TEMP_FLOATS + ek_decoded_scratch((int)t.rows, p->w.k);
    t.scratch = lib_take_array(c, (size_t)c->n_workers, t.scratch_floats * sizeof *t.scratch);
    t.slabs = lib_take_array(c, (size_t)p->n_pairs, sizeof *t.slabs);
    if (!t.scratch || !t.slabs) return EK_ENOMEM;
    if (!cut_slabs(&t)) return ek_fail(EK_EINVAL, "a product of %lld matrices is too large", (long long)p->n_pairs);
    lib_run(c, run_task, &t, t.slabs[t.n_slabs - 1].tasks);
    return EK_OK;
}
