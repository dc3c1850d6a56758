/* Attention over tensors: its bits are those of the contract of ops/attn/attn.h as attn_scene.c writes it once more,
 * for any head size, whatever hides keys and wherever rows lie; added masks are compared with float64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_scene.h"
#include "ops/attn/attn_tensors.h"

enum { HEADS = 6, KV_HEADS = 2, KEYS = 600, ROWS = 21, MAX_DIM = EK_MAX_HEAD_DIM };

/* --- calls --- */

typedef struct machine {
    ek_attn_rows_ops attn;
    ek_convert_ops convert;
    ek_pool *pool;
} machine;

static machine machine_open(unsigned cpu, int threads)
{
    machine m = {0};
    ek_attn_rows_init(&m.attn, cpu);
    ek_convert_init(&m.convert, cpu);
    assert_int_equal(ek_pool_open(&m.pool, threads), EK_OK);
    return m;
}

static void run(ek_attn_tensors *t, const machine *m)
{
    const ek_attn_workers workers = ek_attn_workers_of(m->pool);
    t->attn = &m->attn, t->convert = &m->convert;
    const size_t bytes = ek_attn_tensors_bytes(t, workers.n_workers);
    void *memory = check_alloc(bytes);
    memset(memory, 0xff, bytes); /* NaN: what was not written must not be read */
    ek_attn_tensors_run(t, &workers, memory);
    check_free(memory, bytes);
}

/* Rows of heads beside each other, as the pages' operator has them: [rows][heads][dim] of floats. */
static ek_attn_tensor tensor(const float *x, int heads, int dim)
{
    return (ek_attn_tensor){.data = (uint8_t *)(uintptr_t)x,
                            .type = EK_F32,
                            .entry = 0,
                            .head = 4 * dim,
                            .row = 4 * (ptrdiff_t)dim * heads,
                            .element = 4};
}

/* Every key of s is visible to ROWS rows of q, of one entry. */
static ek_attn_tensors call(const scene *s, const float *q, float *y)
{
    const int dim = s->shape.head_dim;
    return (ek_attn_tensors){.q = tensor(q, HEADS, dim),
                             .y = tensor(y, HEADS, dim),
                             .k.at = tensor(s->k, KV_HEADS, dim),
                             .v.at = tensor(s->v, KV_HEADS, dim),
                             .entries = 1,
                             .heads = HEADS,
                             .kv_heads = KV_HEADS,
                             .rows = ROWS,
                             .keys = s->n_keys,
                             .dim = dim,
                             .scale = 1};
}

static void open_scene(scene *s, int dim, int n_keys)
{
    const ek_attn_shape shape = {
        .k_format = EK_KV_F32, .v_format = EK_KV_F32, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = dim};
    scene_open(s, &shape, n_keys, 0, (uint64_t)dim);
}

/* The contract for row i, which sees keys [lo[i], end[i]): zeros where there are none. The caller frees it. */
static float *wanted(const scene *s, const float *q, const ek_attn_row *row)
{
    const int dim = s->shape.head_dim;
    float *want = calloc(ROWS * HEADS * (size_t)dim, sizeof *want);
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < HEADS && row[i].lo < row[i].end; h++)
            contract(s, &row[i], q + (i * HEADS + h) * dim, h, want + (i * HEADS + h) * dim);
    return want;
}

/* On every instruction set. */
static void check_call(ek_attn_tensors *t, const float *want, const char *what)
{
    const size_t n = ROWS * HEADS * (size_t)t->dim;
    CHECK_ISAS(isa, cpu)
    {
        const machine m = machine_open(cpu, 3);
        memset(t->y.data, 0xff, n * sizeof *want);
        run(t, &m);
        check_bits(what, isa, want, (const float *)t->y.data, n, "head size %d", t->dim);
        ek_pool_close(m.pool);
    }
}

/* --- what hides keys, as ranges --- */

typedef struct hidden {
    const char *name;
    bool causal;
    int window, start; /* start: positions before the first key; negative: keys that are padding */
    int mask;          /* of: 1 bytes, 2 floats that show the keys [30 i, 600 - 20 i) of row i */
} hidden;

static const hidden ways[] = {
    {.name = "every key"},
    {.name = "causal", .causal = true},
    {.name = "window", .window = 100},
    {.name = "causal, window", .causal = true, .window = 300},
    {.name = "padding", .start = -40},
    {.name = "positions", .start = 70, .causal = true},
    {.name = "mask of bytes", .mask = 1},
    {.name = "mask of floats", .mask = 2},
    {.name = "mask of bytes, causal", .mask = 1, .causal = true},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static bool shows(int row, int key)
{
    return key >= 30 * row && key < KEYS - 20 * row;
}

static uint8_t mask_bytes[ROWS * KEYS];
static float mask_floats[ROWS * KEYS];

static ek_attn_mask mask_of(int kind)
{
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < KEYS; j++) {
            mask_bytes[i * KEYS + j] = shows(i, j);
            mask_floats[i * KEYS + j] = shows(i, j) ? 0 : -INFINITY;
        }
    if (kind == 0) return (ek_attn_mask){0};
    if (kind == 1) return (ek_attn_mask){.data = mask_bytes, .bytes = true, .row = KEYS, .key = 1};
    return (ek_attn_mask){.data = (const uint8_t *)mask_floats, .type = EK_F32, .row = 4 * KEYS, .key = 4};
}

/* The first KEYS keys of s, behind `start` of its positions: that is where the contract has them. */
static void check_way(const hidden *w, int dim)
{
    scene s;
    const int before = w->start > 0 ? w->start : 0;
    open_scene(&s, dim, KEYS + before);
    float *q = queries(&s.shape, ROWS, 7), *y = queries(&s.shape, ROWS, 8);
    const int64_t start = w->start;
    const size_t skip = (size_t)before * KV_HEADS * (size_t)dim;
    ek_attn_row row[ROWS];
    ek_attn_tensors t = call(&s, q, y);
    t.k.at.data += 4 * skip, t.v.at.data += 4 * skip;
    t.keys = KEYS, t.causal = w->causal, t.window = w->window, t.mask = mask_of(w->mask);
    if (w->start) t.key_start = &start;
    for (int i = 0; i < ROWS; i++) {
        int own = i + KEYS - ROWS, lo = w->window ? own - w->window + 1 : 0, end = w->causal ? own + 1 : KEYS;
        if (w->mask && lo < 30 * i) lo = 30 * i;
        if (w->mask && end > KEYS - 20 * i) end = KEYS - 20 * i;
        if (lo < -w->start) lo = -w->start;
        row[i] = (ek_attn_row){0, lo + before, end + before};
    }
    if (w->start < 0) { /* position 0 is the first key that counts */
        s.k -= w->start * KV_HEADS * dim, s.v -= w->start * KV_HEADS * dim;
        for (int i = 0; i < ROWS; i++) row[i].lo += w->start, row[i].end += w->start;
    }
    float *want = wanted(&s, q, row);
    check_call(&t, want, w->name);
    if (w->start < 0) s.k += w->start * KV_HEADS * dim, s.v += w->start * KV_HEADS * dim;
    free(q), free(y), free(want);
    scene_close(&s);
}

static void hidden_keys(void **state)
{
    (void)state;
    for (int i = 0; i < N_WAYS; i++) check_way(&ways[i], 72);
}

static void head_sizes(void **state)
{
    (void)state;
    static const int dims[] = {64, 68, 80, 88, 96, 128, 144, 160, 192, 256, 260, 320, 448, MAX_DIM};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) check_way(&ways[i % 4], dims[i]);
}

/* --- where rows lie --- */

/* A copy whose elements lie apart, in another type. */
static ek_attn_tensor spread(const ek_attn_tensor *x, int heads, int rows, int dim, ek_dtype type)
{
    const ptrdiff_t size = (ptrdiff_t)ek_dtype_size(type);
    ek_attn_tensor out = {.type = type, .element = 3 * size, .head = 3 * size * dim + 4, .entry = 0};
    out.row = out.head * heads + 8;
    out.data = calloc(1, (size_t)(out.row * rows));
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++)
                ek_store_float(out.data + i * out.row + h * out.head + d * out.element, type,
                               ek_load_float(x->data + i * x->row + h * x->head + d * x->element, x->type));
    return out;
}

/* A packed copy of spread's, of the same numbers. */
static void pack(float *to, const ek_attn_tensor *x, int heads, int rows, int dim)
{
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++)
                to[(i * heads + h) * dim + d] = ek_load_float(x->data + i * x->row + h * x->head + d * x->element,
                                                              x->type);
}

static void read_row(const void *self, int64_t b, int64_t kv_head, int64_t j, float *to)
{
    const ek_attn_tensor *x = self;
    (void)b;
    memcpy(to, x->data + kv_head * x->head + j * x->row, (size_t)x->head);
}

/* A copy as kernels read keys: 16 by 16, of each head. */
static ek_attn_operand turn(const ek_attn_tensor *x, int heads, int rows, int dim)
{
    const size_t head = (size_t)(rows + 15) / 16 * 16 * (size_t)dim;
    float *to = calloc(head * (size_t)heads, sizeof *to);
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++)
                memcpy(&to[(size_t)h * head + (size_t)(i / 16 * 16 * dim + 16 * d + i % 16)],
                       x->data + i * x->row + h * x->head + d * x->element, sizeof *to);
    return (ek_attn_operand){
        .at = {.data = (uint8_t *)to, .type = EK_F32, .head = (ptrdiff_t)(head * sizeof *to), .element = 4},
        .turned = true};
}

static void apart(const char *isa, const machine *m, ek_dtype type)
{
    enum { DIM = 72 };
    scene s;
    open_scene(&s, DIM, KEYS);
    float *q = queries(&s.shape, ROWS, 7), *y = queries(&s.shape, ROWS, 8), *again = queries(&s.shape, ROWS, 9);
    ek_attn_tensors t = call(&s, q, y), far = t, own = t;
    far.q = spread(&t.q, HEADS, ROWS, DIM, type);
    far.k.at = spread(&t.k.at, KV_HEADS, KEYS, DIM, type), far.v.at = spread(&t.v.at, KV_HEADS, KEYS, DIM, type);
    far.y = spread(&t.y, HEADS, ROWS, DIM, EK_F32);
    pack(q, &far.q, HEADS, ROWS, DIM), pack(s.k, &far.k.at, KV_HEADS, KEYS, DIM);
    pack(s.v, &far.v.at, KV_HEADS, KEYS, DIM);
    t.scale = far.scale = own.scale = 0.125f;
    run(&t, m);
    run(&far, m);
    pack(again, &far.y, HEADS, ROWS, DIM);
    check_bits("apart", isa, y, again, (size_t)(ROWS * HEADS * DIM), "rows of %s", ek_dtype_name(type));
    own.k = (ek_attn_operand){.read = read_row, .self = &t.k.at};
    own.v = (ek_attn_operand){.read = read_row, .self = &t.v.at};
    own.y = tensor(again, HEADS, DIM);
    memset(again, 0xff, sizeof *again * ROWS * HEADS * DIM);
    run(&own, m);
    check_bits("read", isa, y, again, (size_t)(ROWS * HEADS * DIM), "rows that are read");
    own.k = turn(&t.k.at, KV_HEADS, KEYS, DIM);
    memset(again, 0xff, sizeof *again * ROWS * HEADS * DIM);
    run(&own, m);
    check_bits("turned", isa, y, again, (size_t)(ROWS * HEADS * DIM), "keys that are turned");
    free(own.k.at.data);
    free(far.q.data), free(far.k.at.data), free(far.v.at.data), free(far.y.data);
    free(q), free(y), free(again);
    scene_close(&s);
}

static void rows_anywhere(void **state)
{
    (void)state;
    CHECK_ISAS(isa, cpu)
    {
        const machine m = machine_open(cpu, 2);
        for (ek_dtype type = EK_F32; type <= EK_BF16; type++) apart(isa, &m, type);
        ek_pool_close(m.pool);
    }
}

/* --- against float64 --- */

/* Softmax over all keys with a term added to each score, and a sink. */
static void softmax(const scene *s, const float *q, int head, const float *add, float sink, double *o)
{
    const int dim = s->shape.head_dim, kv = head / (HEADS / KV_HEADS);
    double *p = malloc(sizeof *p * (size_t)s->n_keys), max = sink, total;
    for (int j = 0; j < s->n_keys; j++) {
        p[j] = add[j];
        for (int d = 0; d < dim; d++) p[j] += (double)q[head * dim + d] * s->k[(j * KV_HEADS + kv) * dim + d];
        if (p[j] > max) max = p[j];
    }
    memset(o, 0, sizeof *o * (size_t)dim);
    total = exp(sink - max);
    for (int j = 0; j < s->n_keys; j++) {
        const double e = exp(p[j] - max);
        total += e;
        for (int d = 0; d < dim; d++) o[d] += e * s->v[(j * KV_HEADS + kv) * dim + d];
    }
    for (int d = 0; d < dim; d++) o[d] /= total;
    free(p);
}

static void added_terms(void **state)
{
    (void)state;
    enum { DIM = 80 };
    static float add[ROWS * KEYS];
    static const float sinks[HEADS] = {0, -2, 3, 1, 5, -1};
    scene s;
    open_scene(&s, DIM, KEYS);
    check_fill(s.v, (size_t)(KEYS * KV_HEADS * DIM), 3, 1);
    check_fill(add, ROWS * KEYS, 5, 4);
    float *q = queries(&s.shape, ROWS, 7), *y = queries(&s.shape, ROWS, 8);
    double want[DIM], tol[DIM];
    for (int d = 0; d < DIM; d++) tol[d] = 1e-5;
    CHECK_ISAS(isa, cpu)
    {
        const machine m = machine_open(cpu, 2);
        ek_attn_tensors t = call(&s, q, y);
        t.sinks = sinks;
        t.mask = (ek_attn_mask){.data = (const uint8_t *)add, .type = EK_F32, .row = 4 * KEYS, .key = 4};
        run(&t, &m);
        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < HEADS; h++) {
                softmax(&s, q + i * HEADS * DIM, h, add + i * KEYS, sinks[h], want);
                check_near("added", isa, want, y + (i * HEADS + h) * DIM, DIM, tol, "row %d, head %d", i, h);
            }
        ek_pool_close(m.pool);
    }
    free(q), free(y);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CHECK_TEST(hidden_keys),
        CHECK_TEST(head_sizes),
        CHECK_TEST(rows_anywhere),
        CHECK_TEST(added_terms),
    };
    return CHECK_RUN(argc, argv, tests);
}
