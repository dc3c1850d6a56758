/* Products by index. The reference multiplies by the matrices' float values;
 * and every result has the bits of the product with that one matrix. */
/* tier: all */
#include <math.h>

#include "ref.h"

typedef struct setting {
    int n_a, a[2], n_l, l[2], lhs[6]; /* n_l 0: no indices */
    int n_b, b[2], n_r, r[2], rhs[6];
    ek_quant_mode mode;
} setting;

static const setting settings[] = {
    {1, {1}, 1, {1}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_AFFINE},
    {1, {1}, 0, {0}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_AFFINE},
    {1, {2}, 0, {0}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_AFFINE},
    {1, {3}, 1, {2}, {0, 2}, 1, {1}, 1, {1}, {0}, EK_AFFINE},
    {1, {5}, 1, {2}, {0, 2}, 1, {3}, 1, {2}, {2, 1}, EK_AFFINE},
    {2, {4, 2}, 2, {3, 2}, {7, 6, 5, 4, 1, 2}, 2, {4, 1}, 2, {3, 1}, {2, 0, 1}, EK_AFFINE},
    {1, {1}, 1, {1}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_NVFP4},
    {1, {1}, 1, {1}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_MXFP4},
    {1, {1}, 1, {1}, {0}, 1, {3}, 1, {2}, {2, 1}, EK_MXFP8},
};

static const struct {
    int m, n, k;
    bool t;
} shapes[] = {{1, 32, 128, true},  {32, 32, 256, true}, {1, 32, 256, true},   {32, 256, 32, false}, {1, 256, 32, false},
              {32, 32, 512, true}, {1, 32, 512, true},  {32, 512, 32, false}, {1, 512, 32, false}};

static ek_view indices(int n_dims, const int *dim, const int *value)
{
    ek_view v = n_dims == 1 ? ref_new(EK_TYPE_U32, 1, dim[0]) : ref_new(EK_TYPE_U32, 2, dim[0], dim[1]);
    for (int64_t i = 0; i < ref_count(&v); i++) ((uint32_t *)v.data)[i] = (uint32_t)value[i];
    return v;
}

static ek_view batch(uint64_t key, int n_dims, const int *dim, int rows, int cols)
{
    return n_dims == 1 ? ref_normals(EK_TYPE_F32, key, 1, 3, dim[0], rows, cols)
                       : ref_normals(EK_TYPE_F32, key, 1, 4, dim[0], dim[1], rows, cols);
}

/* The i-th of v's matrices, flat. */
static ek_view matrix(const ek_view *v, int64_t i)
{
    ek_view m = *v;
    for (int d = v->n_dims - 3; d >= 0; d--) {
        m.data = (char *)m.data + i % v->dim[d] * v->stride[d] *
                                      (v->type == EK_TYPE_U8                              ? 1
                                       : v->type == EK_TYPE_F32 || v->type == EK_TYPE_U32 ? 4
                                                                                          : 2);
        i /= v->dim[d];
    }
    m.n_dims = 2;
    m.dim[0] = v->dim[v->n_dims - 2], m.dim[1] = v->dim[v->n_dims - 1];
    m.stride[0] = v->stride[v->n_dims - 2], m.stride[1] = v->stride[v->n_dims - 1];
    return m;
}

static ek_qview qmatrix(const ek_qview *q, int64_t i)
{
    ek_qview m = *q;
    m.codes = matrix(&q->codes, i), m.scales = matrix(&q->scales, i);
    if (q->mode == EK_AFFINE) m.biases = matrix(&q->biases, i);
    return m;
}

/* y's i-th matrix against x's l-th times q's r-th. */
static void check_one(const ek_view *y, int64_t i, const ek_view *x, int64_t l, const ek_qview *q, int64_t r,
                      bool transpose, double tol)
{
    ek_view got = matrix(y, i), xm = matrix(x, l), alone = ref_like(&got, EK_TYPE_F32);
    ek_qview qm = qmatrix(q, r);
    ek_view values = ref_qvalues(&qm);
    MUST(ek_quantized_matmul(alone, xm, &qm, transpose, EK_EXACT));
    ref_same(&alone, &got, "gathered %d: %d with %d", (int)i, (int)l, (int)r);
    ref_close(&got, ref_matmul(&xm, &values, transpose, &got), 1e-5, tol, "gathered %d: %d with %d", (int)i, (int)l,
              (int)r);
}

static void test_gather(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
        for (size_t h = 0; h < sizeof shapes / sizeof *shapes; h++) {
            const setting *g = &settings[s];
            int m = shapes[h].m, n = shapes[h].n, k = shapes[h].k;
            bool t = shapes[h].t;
            ek_view x = batch(1, g->n_a, g->a, m, k), w = batch(2, g->n_b, g->b, t ? n : k, t ? k : n);
            int bits = g->mode == EK_MXFP8 ? 8 : 4, group = g->mode == EK_AFFINE ? 32 : g->mode == EK_NVFP4 ? 16 : 32;
            ek_qview q = ref_quantised(g->mode, bits, group, &w);
            ek_view lhs = g->n_l ? indices(g->n_l, g->l, g->lhs) : indices(1, g->a, (int[]){0, 1, 2, 3});
            ek_view rhs = indices(g->n_r, g->r, g->rhs);
            ek_view y = g->n_r == 1
                            ? ref_new(EK_TYPE_F32, 3, (int)(lhs.dim[0] > rhs.dim[0] ? lhs.dim[0] : rhs.dim[0]), m, n)
                            : ref_new(EK_TYPE_F32, 4, 3, 2, m, n);
            MUST(ek_gather_qmm(y, x, &q, g->n_l ? &lhs : NULL, &rhs, t, EK_EXACT));
            for (int64_t i = 0; i < ref_count(&y) / (m * n); i++) {
                uint32_t *lv = lhs.data, *rv = rhs.data;
                int64_t l = g->n_r == 2       ? lv[i]
                            : lhs.dim[0] == 1 ? lv[0]
                                              : lv[i],
                        r = g->n_r == 2       ? rv[i / 2]
                            : rhs.dim[0] == 1 ? rv[0]
                                              : rv[i];
                check_one(&y, i, &x, l, &q, r, t, 1e-4);
            }
            ref_free_all();
        }
}

static void test_matrix_path(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 3, 3, 64, 512), w = ref_normals(EK_TYPE_F32, 2, 1, 3, 4, 512, 512),
                y = ref_new(EK_TYPE_F32, 3, 3, 64, 512);
        ek_qview q = mode ? ref_quantised(EK_MXFP4, 4, 32, &w) : ref_quantised(EK_AFFINE, 4, 64, &w);
        ek_view lhs = indices(1, (int[]){3}, (int[]){0, 1, 2}), rhs = indices(1, (int[]){3}, (int[]){0, 2, 3});
        MUST(ek_gather_qmm(y, x, &q, &lhs, &rhs, true, EK_EXACT));
        for (int i = 0; i < 3; i++) check_one(&y, i, &x, i, &q, ((uint32_t *)rhs.data)[i], true, 1e-3);
        ref_free_all();
    }
}

/* ------------------------------------------------------------------ many rows, each with its own experts */

enum { EXPERTS = 4, PER_ROW = 2, MAX_L = 133 };

static const struct {
    int l, k, d;
    bool transpose;
    ek_quant_mode mode;
} mixtures[] = {{32, 512, 512, true, EK_AFFINE},   {32, 512, 544, true, EK_MXFP4},    {32, 512, 544, true, EK_NVFP4},
                {32, 512, 544, true, EK_MXFP8},    {39, 512, 512, true, EK_AFFINE},   {128, 512, 512, true, EK_AFFINE},
                {133, 512, 512, true, EK_AFFINE},  {133, 512, 555, true, EK_AFFINE},  {64, 512, 512, false, EK_AFFINE},
                {133, 512, 512, false, EK_AFFINE}, {133, 512, 544, false, EK_AFFINE}, {64, 512, 544, false, EK_MXFP4},
                {64, 512, 544, false, EK_NVFP4},   {64, 512, 544, false, EK_MXFP8}};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

/* L rows x [L, 1, 1, K]; row i goes to experts rhs[i][0..PER_ROW). y [L, PER_ROW, 1, D]. */
typedef struct mixture {
    int number, l, k, d;
    bool transpose;
    ek_view x, lhs, rhs, y;
    ek_qview w;
} mixture;

static uint32_t *numbers(const ek_view *v)
{
    return v->data;
}

static mixture mixture_new(int number)
{
    const ek_quant_mode mode = mixtures[number].mode;
    mixture m = {.number = number,
                 .l = mixtures[number].l,
                 .k = mixtures[number].k,
                 .d = mixtures[number].d,
                 .transpose = mixtures[number].transpose};
    ek_view w = m.transpose ? ref_normals(EK_TYPE_F32, 2, 1, 3, EXPERTS, m.d, m.k)
                            : ref_normals(EK_TYPE_F32, 2, 1, 3, EXPERTS, m.k, m.d);
    m.w = ref_quantised(mode, mode == EK_MXFP8 ? 8 : 4, mode == EK_NVFP4 ? 16 : 32, &w);
    m.x = ref_normals(EK_TYPE_F32, 1, 1 / sqrt(m.k), 4, m.l, 1, 1, m.k);
    m.lhs = ref_new(EK_TYPE_U32, 2, m.l, 1), m.rhs = ref_new(EK_TYPE_U32, 2, m.l, PER_ROW);
    for (int i = 0; i < m.l; i++) numbers(&m.lhs)[i] = (uint32_t)i;
    for (int i = 0; i < m.l * PER_ROW; i++) numbers(&m.rhs)[i] = (uint32_t)(EXPERTS * ref_uniform(3, (uint64_t)i));
    m.y = ref_new(EK_TYPE_F32, 4, m.l, PER_ROW, 1, m.d);
    MUST(ek_gather_qmm(m.y, m.x, &m.w, &m.lhs, &m.rhs, m.transpose, EK_EXACT));
    return m;
}

/* The same rows in the order of their experts. */
static void check_sorted(const mixture *m)
{
    int order[MAX_L * PER_ROW], n = 0, all = m->l * PER_ROW;
    ek_view lhs = ref_new(EK_TYPE_U32, 1, all), rhs = ref_new(EK_TYPE_U32, 1, all),
            y = ref_new(EK_TYPE_F32, 3, all, 1, m->d);
    for (uint32_t e = 0; e < EXPERTS; e++)
        for (int i = 0; i < all; i++)
            if (numbers(&m->rhs)[i] == e) order[n++] = i;
    for (int i = 0; i < all; i++) {
        numbers(&lhs)[i] = (uint32_t)(order[i] / PER_ROW);
        numbers(&rhs)[i] = numbers(&m->rhs)[order[i]];
    }
    MUST(ek_gather_qmm(y, m->x, &m->w, &lhs, &rhs, m->transpose, EK_EXACT));
    for (int i = 0; i < all; i++) {
        ek_view want = matrix(&m->y, order[i]), got = matrix(&y, i);
        ref_same(&want, &got, "sorted row %d of mixture %d", i, m->number);
    }
}

/* All rows times one expert in float64, against those rows that chose it. */
static void check_against_float64(const mixture *m)
{
    for (int e = 0; e < EXPERTS; e++) {
        ek_qview w = qmatrix(&m->w, e);
        ek_view values = ref_qvalues(&w), all = ref_new(EK_TYPE_F32, 2, m->l, m->d),
                x = ek_view_2d(m->x.data, EK_TYPE_F32, m->l, m->k);
        const double *want = ref_matmul(&x, &values, m->transpose, &all);
        for (int i = 0; i < m->l * PER_ROW; i++) {
            if (numbers(&m->rhs)[i] != (uint32_t)e) continue;
            ek_view got = matrix(&m->y, i);
            ref_near(&got, want + (i / PER_ROW) * m->d, 1.5e-5, "row %d of mixture %d", i, m->number);
        }
    }
}

static void each_mixture(void (*check)(const mixture *m))
{
    for (int i = 0; i < N_MIXTURES; i++) {
        if (!ref_all && i % 2) continue; /* thinned to half */
        const mixture m = mixture_new(i);
        check(&m);
        ref_free_all();
    }
}

static void test_sorted(void **state)
{
    (void)state;
    each_mixture(check_sorted);
}

static void test_mixtures_against_float64(void **state)
{
    (void)state;
    each_mixture(check_against_float64);
}

/* ------------------------------------------------------------------ views and types */

static void test_sliced(void **state)
{
    (void)state;
    ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 3, 64, 1, 256), w = ref_normals(EK_TYPE_F32, 2, 1, 3, 8, 128, 256);
    ek_qview q = ref_quantised(EK_AFFINE, 4, 64, &w);
    ek_view rhs = ref_new(EK_TYPE_U32, 1, 64), y = ref_new(EK_TYPE_F32, 3, 64, 1, 64),
            y2 = ref_new(EK_TYPE_F32, 3, 64, 1, 64);
    for (int i = 0; i < 64; i++) ((uint32_t *)rhs.data)[i] = (uint32_t)(i / 8);
    for (int from = 0; from < 128; from += 64) {
        ek_qview part = q, dense = q;
        part.codes = ek_view_slice(q.codes, 1, from, from + 64),
        part.scales = ek_view_slice(q.scales, 1, from, from + 64);
        part.biases = ek_view_slice(q.biases, 1, from, from + 64);
        dense.codes = ref_dense(&part.codes), dense.scales = ref_dense(&part.scales),
        dense.biases = ref_dense(&part.biases);
        for (ek_precision p = EK_EXACT; p <= EK_BFLOAT16; p++) {
            MUST(ek_gather_qmm(y, x, &part, NULL, &rhs, true, p));
            MUST(ek_gather_qmm(y2, x, &dense, NULL, &rhs, true, p));
            ref_same(&y2, &y, "rows from %d, precision %d", from, (int)p);
        }
    }
    ref_free_all();
}

static void test_types(void **state)
{
    (void)state;
    for (int mode = EK_MXFP4; mode <= EK_MXFP8; mode++)
        for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
            ek_view x = ref_normals(t, 1, 1, 2, 32, 256), w = ref_normals(t, 2, 1, 3, 4, 32, 256),
                    y = ref_new(t, 4, 3, 1, 32, 32);
            ek_view x3 = ek_view_insert(x, 0), rhs = indices(2, (int[]){3, 1}, (int[]){2, 0, 1});
            ek_qview q = ref_quantised((ek_quant_mode)mode, mode == EK_MXFP8 ? 8 : 4, 32, &w);
            MUST(ek_gather_qmm(y, x3, &q, NULL, &rhs, true, EK_EXACT));
            for (int i = 0; i < 3; i++) {
                ek_qview one = qmatrix(&q, ((uint32_t *)rhs.data)[i]);
                ek_view values = ref_qvalues(&one), got = matrix(&y, i);
                ref_close(&got, ref_matmul(&x, &values, true, &got), t == EK_TYPE_BF16 ? 4e-3 : 1e-3, 1e-3, "type %d",
                          (int)t);
            }
            ref_free_all();
        }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather), cmocka_unit_test(test_matrix_path),
        cmocka_unit_test(test_sorted), cmocka_unit_test(test_mixtures_against_float64),
        cmocka_unit_test(test_sliced), cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
