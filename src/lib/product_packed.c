/* Products with the engine's packed matrices: in the engine's forms with its quantised activations and kernels, and in
 * bf16 (ops/linear/linear_b.h). */
#include <string.h>

#include "lib/product.h"

enum { MAX_ROWS = 1 << 24 /* rows of one call of the kernels, which count in int */, TASK_ROWS = 256 };

typedef struct work {
    const lib_kernels *k;
    ek_linear w; /* the matrix with this call's limbs */
    ek_acts x;
    float *y;
    ptrdiff_t ldy;
    int panels, rows; /* of a task */
    bool in_pairs;    /* EK_BFLOAT16: rows in pairs instead of x's codes */
    ek_acts_b pairs;
} work;

enum { QUANTIZE_ROWS = 4 };

static void quantize_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    work *t = arg;
    const ek_acts *a = &t->x;
    const ek_acts_b *pairs = &t->pairs;
    for (int64_t r = task * QUANTIZE_ROWS; r < a->rows && r < (task + 1) * QUANTIZE_ROWS; r++) {
        if (t->in_pairs)
            t->k->linear_b.row(pairs->x + r * pairs->ldx, pairs->sum + r * pairs->lds, a->x + r * a->ldx, a->k,
                               t->w.group);
        else ek_acts_quantize_row(t->k->linear.quantize_row, a, (int)r, (ek_act_form){t->w.limbs, t->w.a_group});
    }
}

/* A tile of rows passes over all panels. The panels stay in the second-level cache for the next tile. */
static void run_pairs(const work *t, int r0, int r1, int p0, int p1)
{
    for (int r = r0, n; r < r1; r += n) {
        int left = r1 - r, tiles = (left + EK_LINEAR_B_ROWS - 1) / EK_LINEAR_B_ROWS;
        n = (left + tiles - 1) / tiles;
        for (int p = p0; p < p1; p++) {
            float *y = t->y + r * t->ldy + (ptrdiff_t)p * EK_PANEL, part[EK_LINEAR_B_ROWS * EK_PANEL];
            int cols = t->w.n - p * EK_PANEL;
            if (cols >= EK_PANEL) {
                t->k->linear_b.panel(y, t->ldy, &t->pairs, r, n, &t->w, p, r == r0);
                continue;
            }
            t->k->linear_b.panel(part, EK_PANEL, &t->pairs, r, n, &t->w, p, r == r0);
            for (int i = 0; i < n; i++) memcpy(y + i * t->ldy, part + i * EK_PANEL, sizeof *part * (size_t)cols);
        }
    }
}

static void run_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    work *t = arg;
    int row_tasks = (t->x.rows + t->rows - 1) / t->rows;
    int p0 = (int)(task / row_tasks) * t->panels, r0 = (int)(task % row_tasks) * t->rows;
    int p1 = p0 + t->panels < t->w.n_panels ? p0 + t->panels : t->w.n_panels;
    int r1 = r0 + t->rows < t->x.rows ? r0 + t->rows : t->x.rows;
    if (t->in_pairs) run_pairs(t, r0, r1, p0, p1);
    else t->w.run(&t->w, &t->x, r0, r1, t->y, t->ldy, p0, p1);
}

/* Cuts tasks of about 50 KB of weights, or 8 M products. */
static void cut(work *t, int n_workers)
{
    size_t per_panel = (size_t)t->w.k * EK_PANEL;
    t->rows = t->x.rows < TASK_ROWS ? t->x.rows : TASK_ROWS;
    size_t by_bytes = (48u << 10) / t->w.panel_bytes, by_work = (8u << 20) / (per_panel * (size_t)t->rows);
    size_t by_workers = (size_t)t->w.n_panels / ((size_t)n_workers * 8);
    size_t panels = by_bytes < by_work ? by_bytes : by_work;
    if (panels > by_workers) panels = by_workers;
    t->panels = panels < 1 ? 1 : (int)panels;
}

/* The rows of the pairs as one run of evenly spaced rows. Rows with other spacing are copied together. */
static ek_err gather_rows(lib_call *c, const lib_product *p, int64_t first, int64_t n_pairs, work *t)
{
    int64_t rows = n_pairs * p->m, k = p->w.k;
    const uint8_t *x0 = p->x.data + p->pair[first].x;
    int64_t step = p->m > 1 ? p->x_row : n_pairs > 1 ? p->pair[first + 1].x - p->pair[first].x : k * 4;
    bool even = true;
    for (int64_t i = 1; i < n_pairs && even; i++) even = p->pair[first + i].x - p->pair[first].x == i * p->m * step;
    float *copy = NULL;
    if (!even) {
        copy = lib_take_array(c, (size_t)rows, (size_t)k * sizeof *copy);
        if (!copy) return EK_ENOMEM;
        for (int64_t r = 0; r < rows; r++)
            memcpy(copy + r * k, p->x.data + p->pair[first + r / p->m].x + r % p->m * p->x_row,
                   (size_t)k * sizeof *copy);
        x0 = (const uint8_t *)copy, step = k * 4;
    }
    void *mem = NULL;
    if (t->w.a_group && !t->in_pairs && !(mem = lib_take(c, ek_acts_bytes((int)rows, (int)k)))) return EK_ENOMEM;
    ek_acts_bind(&t->x, mem, (const float *)x0, step / 4, (int)rows, (int)k);
    if (!t->in_pairs) return EK_OK;
    t->pairs.lds = k / t->w.group;
    t->pairs.ldx = (k * EK_LINEAR_B_BYTES + 127) / 64 *
                   64; /* rows a power of two apart would evict each other from the cache */
    t->pairs.x = lib_take_array(c, (size_t)rows, (size_t)t->pairs.ldx);
    t->pairs.sum = lib_take_array(c, (size_t)rows, (size_t)t->pairs.lds * sizeof *t->pairs.sum);
    return t->pairs.x && t->pairs.sum ? EK_OK : EK_ENOMEM;
}

ek_err lib_linear_run(lib_call *c, const lib_kernels *k, const ek_linear *w, const lib_product *p, int64_t first,
                      int64_t n_pairs, ek_precision precision)
{
    int64_t rows = n_pairs * p->m, n = w->n;
    if (rows > MAX_ROWS)
        return ek_fail(EK_EINVAL, "%lld rows in one product, %d are possible", (long long)rows, MAX_ROWS);
    work t = {.k = k, .w = *w, .in_pairs = precision == EK_BFLOAT16};
    const int limbs = precision == EK_INT16 ? 2 : 1;
    if (t.in_pairs) EK_ASSERT(w->biased);
    else if (w->a_group) EK_TRY(ek_linear_set_acts(&t.w, (ek_act_form){limbs, w->a_group}));
    EK_TRY(gather_rows(c, p, first, n_pairs, &t));
    /* the kernels write evenly spaced f32 rows */
    int64_t step = p->m > 1 ? p->y_row : n_pairs > 1 ? p->pair[first + 1].y - p->pair[first].y : n * 4;
    bool direct = p->y.type == EK_TYPE_F32 && (n == 1 || p->y_step == 4) && step >= n * 4 &&
                  (uintptr_t)p->y.data % 4 == 0;
    for (int64_t i = 0; i < n_pairs && direct; i++) direct = p->pair[first + i].y - p->pair[first].y == i * p->m * step;
    t.y = direct ? (float *)(p->y.data + p->pair[first].y) : lib_take_array(c, (size_t)rows, (size_t)n * 4);
    t.ldy = direct ? step / 4 : n;
    if (!t.y) return EK_ENOMEM;
    cut(&t, c->n_workers);
    if (w->a_group) {
        lib_run(c, quantize_task, &t, (rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS);
        t.x.a_group = w->a_group, t.x.limbs = t.w.limbs;
    }
    int64_t row_tasks = (rows + t.rows - 1) / t.rows;
    lib_run(c, run_task, &t, (w->n_panels + t.panels - 1) / t.panels * row_tasks);
    for (int64_t r = 0; r < rows && !direct; r++)
        lib_store(k, p->y.data + p->pair[first + r / p->m].y + r % p->m * p->y_row, p->y.type, p->y_step, t.y + r * n,
                  n);
    return EK_OK;
}

/* --- matrices that are not packed --- */

static const void *even_scales(const uint8_t *from, int64_t step, int size, int64_t n, uint8_t *room)
{
    if (step == size || n == 1) return from;
    for (int64_t i = 0; i < n; i++) memcpy(room + i * size, from + i * step, (size_t)size);
    return room;
}

typedef struct pack_work {
    ek_linear *w;
    const lib_matrix *m;
    const ek_weight_type *type;
    uint8_t *room; /* two rows of scales per worker */
    size_t room_bytes;
} pack_work;

static void pack_task(void *arg, int64_t task, int worker)
{
    const pack_work *t = arg;
    const lib_matrix *m = t->m;
    int64_t end = (task + 1) * EK_PANEL < m->n ? (task + 1) * EK_PANEL : m->n, groups = m->k / m->group;
    int size = (int)lib_type_size(m->type);
    uint8_t *room = t->room + (size_t)worker * t->room_bytes;
    for (int64_t n = task * EK_PANEL; n < end; n++) {
        const void *s = even_scales(m->scales + n * m->scale_row, m->scale_step, size, groups, room);
        const void *b = even_scales(m->biases + n * m->bias_row, m->bias_step, size, groups, room + groups * size);
        const ek_weight_data row = {
            .type = t->type, .n = 1, .k = (int)m->k, .plane = {m->codes + n * m->code_row, s, b}};
        ek_err e = ek_linear_pack(t->w, (int)n, &row);
        EK_ASSERT(e == EK_OK); /* the plan checked the same shape */
    }
}

ek_err lib_pack_affine(lib_call *c, ek_linear *w, const lib_matrix *m)
{
    pack_work t = {w, m, NULL, NULL, (size_t)(m->k / m->group) * 2 * lib_type_size(m->type)};
    EK_TRY(ek_weight_type_affine(&t.type, m->bits, m->group, lib_dtype(m->type), true));
    t.room = lib_take_array(c, (size_t)c->n_workers, t.room_bytes);
    if (!t.room) return EK_ENOMEM;
    lib_run(c, pack_task, &t, w->n_panels);
    return EK_OK;
}

ek_err lib_product_run_packing(lib_call *c, const lib_kernels *k, const lib_product *p, ek_precision precision)
{
    const lib_matrix *m = &p->w;
    if (p->y.count == 0) return EK_OK;
    if (m->kind != LIB_QUANTISED || m->mode != EK_AFFINE || !m->transposed)
        return ek_fail(EK_EUNSUPPORTED, "%s activations go with affine, transposed weights; these are %s and %s",
                       precision == EK_BFLOAT16 ? "bf16" : "integer",
                       m->mode == EK_AFFINE ? "affine" : "of a floating-point mode",
                       m->transposed ? "transposed" : "not transposed");
    if (m->n > EK_LINEAR_MAX || m->k > EK_LINEAR_MAX || m->k == 0)
        return ek_fail(EK_EINVAL, "a matrix of %lld outputs x %lld inputs, 1 to %d of each are possible",
                       (long long)m->n, (long long)m->k, EK_LINEAR_MAX);
    ek_linear w;
    const ek_weight_type *type;
    EK_TRY(ek_weight_type_affine(&type, m->bits, m->group, lib_dtype(m->type), true));
    EK_TRY(ek_linear_plan(&w, c->cpu, (int)m->n, (int)m->k, type));
    w.data = lib_take(c, w.bytes);
    if (!w.data) return EK_ENOMEM;
    for (int64_t i = 0, end; i < p->n_pairs; i = end) {
        for (end = i + 1; end < p->n_pairs && p->pair[end].w == p->pair[i].w;) end++;
        lib_matrix one = *m;
        one.codes += p->pair[i].data, one.scales += p->pair[i].scales, one.biases += p->pair[i].biases;
        EK_TRY(lib_pack_affine(c, &w, &one));
        EK_TRY(lib_linear_run(c, k, &w, p, i, end - i, precision));
    }
    return EK_OK;
}
