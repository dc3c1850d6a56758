/* The public products: shapes, broadcasting, indices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/product.h"

/* ------------------------------------------------------------------ right operands */

ek_err lib_operand_dense(lib_operand *o, const ek_view *view, bool transpose)
{
    lib_view *w = &o->parts[0];
    *o = (lib_operand){0};
    EK_TRY(lib_view_check(w, view, "w"));
    lib_shape(o->shape, w);
    if (w->n_dims < 2 || !lib_is_float(w->type))
        return ek_fail(EK_EINVAL, "w %s must be f32, f16 or bf16 with 2 dims or more", o->shape);
    o->n_batch = w->n_dims - 2;
    int outputs = transpose ? 2 : 1, inputs = 3 - outputs;
    o->w = (lib_matrix){.kind = LIB_DENSE,
                        .n = lib_dim(w, outputs),
                        .k = lib_dim(w, inputs),
                        .data = w->data,
                        .type = w->type,
                        .n_stride = lib_stride(w, outputs),
                        .k_stride = lib_stride(w, inputs)};
    return EK_OK;
}

ek_err lib_operand_quantised(lib_call *c, lib_operand *o, const ek_qview *view, bool transpose)
{
    lib_quant q;
    *o = (lib_operand){0};
    EK_TRY(lib_quant_check(&q, view, "w"));
    lib_view shown = q.codes;
    shown.dim[shown.n_dims - 1] = q.cols;
    lib_shape(o->shape, &shown);
    snprintf(strrchr(o->shape, ']') + 1, 32, ", %d bits", q.bits);
    EK_TRY(lib_quant_settle(c, &q));
    o->n_batch = q.codes.n_dims - 2;
    o->w = lib_matrix_of(&q, transpose);
    o->parts[0] = q.codes, o->parts[1] = q.scales;
    if (q.mode == EK_AFFINE) o->parts[2] = q.biases;
    return EK_OK;
}

static void operand_packed(lib_operand *o, const ek_linear *w)
{
    *o = (lib_operand){.w = {.kind = LIB_PACKED, .n = w->n, .k = w->k, .packed = w}};
    snprintf(o->shape, sizeof o->shape, "[%d, %d], packed", w->n, w->k);
}

/* ------------------------------------------------------------------ pairs */

typedef struct operands {
    lib_view x, y; /* x [..., M, K], y [..., M, N]; one-dimensional ones have an added dim of 1 */
    lib_operand w;
    char x_shape[LIB_SHAPE_TEXT], y_shape[LIB_SHAPE_TEXT];
} operands;

static void row_of_one(lib_view *v)
{
    v->dim[1] = v->dim[0], v->stride[1] = v->stride[0];
    v->dim[0] = 1, v->stride[0] = 0;
    v->n_dims = 2;
}

/* Checks x and y, and that the inner dims are equal. */
static ek_err check_rows(operands *o, const ek_view *y, const ek_view *x)
{
    EK_TRY(lib_view_check(&o->x, x, "x"));
    EK_TRY(lib_view_check(&o->y, y, "y"));
    lib_shape(o->x_shape, &o->x), lib_shape(o->y_shape, &o->y);
    if (!lib_is_float(o->x.type) || o->x.n_dims < 1)
        return ek_fail(EK_EINVAL, "x %s must be f32, f16 or bf16 with a dim or more; w is %s", o->x_shape, o->w.shape);
    if (!lib_is_float(o->y.type) || o->y.n_dims < 1)
        return ek_fail(EK_EINVAL, "y %s must be f32, f16 or bf16 with a dim or more; x is %s", o->y_shape, o->x_shape);
    EK_TRY(lib_out_check(&o->y, "y"));
    if (o->x.n_dims == 1) {
        if (o->w.n_batch == 0 && o->y.n_dims == 1) row_of_one(&o->y);
        else if (o->w.n_batch == 0 || o->y.n_dims < 2)
            return ek_fail(EK_EINVAL, "y %s is not the shape of x %s times w %s", o->y_shape, o->x_shape, o->w.shape);
        row_of_one(&o->x);
        if (o->w.n_batch > 0) { /* y [..., N] gets an added row dim of 1 */
            lib_view *v = &o->y;
            if (v->n_dims == EK_VIEW_DIMS) return ek_fail(EK_EINVAL, "y %s has too many dims", o->y_shape);
            v->dim[v->n_dims] = v->dim[v->n_dims - 1], v->stride[v->n_dims] = v->stride[v->n_dims - 1];
            v->dim[v->n_dims - 1] = 1, v->stride[v->n_dims - 1] = 0;
            v->n_dims++;
        }
    }
    if (o->y.n_dims < 2)
        return ek_fail(EK_EINVAL, "y %s is not the shape of x %s times w %s", o->y_shape, o->x_shape, o->w.shape);
    if (lib_dim(&o->x, 1) != o->w.w.k)
        return ek_fail(EK_EINVAL, "x %s and w %s: rows of %lld do not meet %lld inputs", o->x_shape, o->w.shape,
                       (long long)lib_dim(&o->x, 1), (long long)o->w.w.k);
    return EK_OK;
}

/* Checks that y is lead + [M, N]. */
static ek_err check_result(const operands *o, int n_lead, const int64_t *lead)
{
    lib_view want = {.type = o->y.type, .n_dims = n_lead + 2};
    bool fits = o->y.n_dims == n_lead + 2;
    for (int i = 0; i < n_lead; i++) {
        want.dim[i] = lead[i];
        fits = fits && o->y.dim[i] == lead[i];
    }
    want.dim[n_lead] = lib_dim(&o->x, 2), want.dim[n_lead + 1] = o->w.w.n;
    if (fits && lib_dim(&o->y, 2) == want.dim[n_lead] && lib_dim(&o->y, 1) == o->w.w.n) return EK_OK;
    char text[LIB_SHAPE_TEXT];
    return ek_fail(EK_EINVAL, "y %s, but x %s times w %s is %s", o->y_shape, o->x_shape, o->w.shape,
                   lib_shape(text, &want));
}

static ek_err no_fit(const operands *o)
{
    return ek_fail(EK_EINVAL, "the leading dims of x %s and w %s do not fit each other", o->x_shape, o->w.shape);
}

/* Sets the parts of p that do not depend on the pairs. Makes x readable and stages y if needed. */
static ek_err begin(lib_call *c, const lib_kernels *k, operands *o, lib_product *p, lib_out *out, int64_t n_pairs)
{
    const lib_view *in[4] = {&o->x, &o->w.parts[0], &o->w.parts[1], &o->w.parts[2]};
    EK_TRY(lib_out_begin(c, out, &o->y, 4, in));
    if (o->x.count && !lib_rows_readable(&o->x)) EK_TRY(lib_make_f32(c, k, &o->x));
    static float none;
    if (!o->x.data) o->x.data = (uint8_t *)&none; /* K = 0: nothing is read */
    *p = (lib_product){.x = o->x,
                       .y = out->view,
                       .m = lib_dim(&o->x, 2),
                       .x_row = lib_stride(&o->x, 2),
                       .y_row = lib_stride(&out->view, 2),
                       .y_step = lib_stride(&out->view, 1),
                       .w = o->w.w,
                       .n_pairs = n_pairs};
    p->pair = lib_take_array(c, (size_t)n_pairs, sizeof *p->pair);
    return p->pair ? EK_OK : EK_ENOMEM;
}

static bool same_matrix(const lib_pair *a, const lib_pair *b)
{
    return a->data == b->data && a->scales == b->scales && a->biases == b->biases;
}

/* Puts leading dims over which w does not move last, so that the rows of one matrix are adjacent. */
static void order_dims(const lib_view *parts, int n_lead, int *order)
{
    int n = 0;
    for (int moves = 1; moves >= 0; moves--)
        for (int i = 0; i < n_lead; i++) {
            int here = 0;
            for (int j = 0; j < 3; j++) here |= parts[j].n_dims > 0 && parts[j].stride[i] != 0;
            if (here == moves) order[n++] = i;
        }
}

static ek_err plan_pairs(lib_call *c, const lib_kernels *k, operands *o, lib_product *p, lib_out *out)
{
    int64_t lead[EK_VIEW_DIMS], n_pairs = 1;
    int n_lead = 0, order[EK_VIEW_DIMS];
    if (!lib_join(&n_lead, lead, &o->x, 2)) return no_fit(o);
    if (o->w.n_batch && !lib_join(&n_lead, lead, &o->w.parts[0], 2)) return no_fit(o);
    if (n_lead + 2 > EK_VIEW_DIMS) return no_fit(o);
    EK_TRY(check_result(o, n_lead, lead));
    for (int i = 0; i < n_lead; i++) n_pairs *= lead[i];
    if (o->y.count == 0) n_pairs = 0;
    EK_TRY(begin(c, k, o, p, out, n_pairs));
    if (n_pairs == 0) return EK_OK;

    lib_view x = o->x, y = out->view, parts[3] = {o->w.parts[0], o->w.parts[1], o->w.parts[2]};
    bool fits = lib_broadcast(&x, n_lead, lead, 2);
    for (int j = 0; j < 3; j++)
        if (parts[j].n_dims) fits = fits && lib_broadcast(&parts[j], n_lead, lead, 2);
    EK_ASSERT(fits);
    order_dims(parts, n_lead, order);
    int64_t at[EK_VIEW_DIMS] = {0};
    for (int64_t i = 0; i < n_pairs; i++) {
        lib_pair *pair = &p->pair[i];
        *pair = (lib_pair){0};
        for (int d = 0; d < n_lead; d++) {
            pair->x += at[d] * x.stride[d], pair->y += at[d] * y.stride[d];
            pair->data += at[d] * parts[0].stride[d];
            pair->scales += at[d] * parts[1].stride[d], pair->biases += at[d] * parts[2].stride[d];
        }
        pair->w = i == 0 ? 0 : pair[-1].w + !same_matrix(pair, pair - 1);
        for (int d = n_lead - 1; d >= 0 && ++at[order[d]] == lead[order[d]]; d--) at[order[d]] = 0;
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ products */

static ek_err multiply(lib_call *c, operands *o, const ek_view *y, const ek_view *x, ek_precision precision)
{
    if ((unsigned)precision > EK_BFLOAT16) return ek_fail(EK_EINVAL, "unknown precision %d", (int)precision);
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_product p;
    lib_out out;
    EK_TRY(check_rows(o, y, x));
    EK_TRY(plan_pairs(c, k, o, &p, &out));
    const ek_linear *packed = o->w.w.packed;
    bool quantised = packed && ek_wform_is_q(packed->form);
    if (packed && !quantised && precision != EK_EXACT)
        return ek_fail(EK_EUNSUPPORTED, "%s activations go with affine, transposed weights; w %s was packed as floats",
                       precision == EK_BFLOAT16 ? "bf16" : "integer", o->w.shape);
    if (p.n_pairs) {
        if (packed && (!quantised || precision)) EK_TRY(lib_linear_run(c, k, packed, &p, 0, p.n_pairs, precision));
        else if (precision && p.w.k > 0) EK_TRY(lib_product_run_packing(c, k, &p, precision));
        else EK_TRY(lib_product_run(c, k, &p));
    }
    lib_out_end(c, &out);
    return EK_OK;
}

static ek_err matmul(lib_call *c, const ek_view *y, const ek_view *x, const ek_view *w, bool transpose)
{
    operands o;
    EK_TRY(lib_operand_dense(&o.w, w, transpose));
    return multiply(c, &o, y, x, EK_EXACT);
}

static ek_err quantized(lib_call *c, const ek_view *y, const ek_view *x, const ek_qview *w, bool transpose,
                        ek_precision precision)
{
    operands o;
    EK_TRY(lib_operand_quantised(c, &o.w, w, transpose));
    return multiply(c, &o, y, x, precision);
}

ek_status ek_matmul(ek_view y, ek_view x, ek_view w, bool transpose)
{
    return LIB_OPERATE(c, matmul(&c, &y, &x, &w, transpose));
}

ek_status ek_quantized_matmul(ek_view y, ek_view x, const ek_qview *w, bool transpose, ek_precision precision)
{
    return LIB_OPERATE(c, quantized(&c, &y, &x, w, transpose, precision));
}

ek_err lib_packed_matmul(lib_call *c, const ek_view *y, const ek_view *x, const ek_linear *w, ek_precision precision)
{
    operands o;
    operand_packed(&o.w, w);
    return multiply(c, &o, y, x, precision);
}

/* ------------------------------------------------------------------ by index */

typedef struct indices {
    lib_view v; /* u32; if it has no dims and data, it counts 0, 1, 2, … */
    bool given;
    int64_t limit; /* number of matrices */
} indices;

static ek_err check_indices(indices *x, const ek_view *v, const char *what, int n_batch, const lib_view *batch)
{
    *x = (indices){.given = v != NULL, .limit = 1};
    for (int i = 0; i < n_batch; i++) x->limit *= batch->dim[i];
    if (v) {
        EK_TRY(lib_view_check(&x->v, v, what));
        char text[LIB_SHAPE_TEXT];
        if (x->v.type != EK_TYPE_U32) return ek_fail(EK_EINVAL, "%s %s must be u32", what, lib_shape(text, &x->v));
        return EK_OK;
    }
    x->v = (lib_view){.type = EK_TYPE_U32, .n_dims = n_batch, .count = x->limit}; /* 0, 1, 2, … in that shape */
    int64_t step = 1;
    for (int i = n_batch - 1; i >= 0; i--) {
        x->v.dim[i] = batch->dim[i], x->v.stride[i] = step;
        step *= batch->dim[i];
    }
    return EK_OK;
}

static ek_err index_at(const indices *x, int n_lead, int64_t i, const char *what, const char *shape, int64_t *out)
{
    int64_t at = lib_offset(&x->v, n_lead, i);
    if (x->given) {
        uint32_t u;
        memcpy(&u, x->v.data + at, sizeof u);
        at = u;
    }
    if (at >= x->limit)
        return ek_fail(EK_EINVAL, "%s number %lld is %lld, %s has %lld matrices", what, (long long)i, (long long)at,
                       shape, (long long)x->limit);
    *out = at;
    return EK_OK;
}

static int by_matrix(const void *a, const void *b)
{
    const lib_pair *p = a, *q = b;
    if (p->w != q->w) return p->w < q->w ? -1 : 1;
    return p->x < q->x ? -1 : p->x > q->x;
}

static ek_err plan_gather(lib_call *c, const lib_kernels *k, operands *o, indices *lhs, indices *rhs, lib_product *p,
                          lib_out *out)
{
    int64_t lead[EK_VIEW_DIMS], n_pairs = 1;
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    int n_lead = 0;
    lib_shape(a, &lhs->v), lib_shape(b, &rhs->v);
    if (!lib_join(&n_lead, lead, &lhs->v, 0) || !lib_join(&n_lead, lead, &rhs->v, 0) || n_lead + 2 > EK_VIEW_DIMS)
        return ek_fail(EK_EINVAL, "lhs indices %s and rhs indices %s do not fit each other", a, b);
    EK_TRY(check_result(o, n_lead, lead));
    for (int i = 0; i < n_lead; i++) n_pairs *= lead[i];
    const bool left = lib_broadcast(&lhs->v, n_lead, lead, 0), right = lib_broadcast(&rhs->v, n_lead, lead, 0);
    EK_ASSERT(left && right);
    EK_TRY(begin(c, k, o, p, out, n_pairs));
    for (int64_t i = 0; i < n_pairs; i++) {
        int64_t l = 0, r = 0;
        EK_TRY(index_at(lhs, n_lead, i, "lhs index", o->x_shape, &l));
        EK_TRY(index_at(rhs, n_lead, i, "rhs index", o->w.shape, &r));
        p->pair[i] = (lib_pair){.x = lib_offset(&o->x, o->x.n_dims - 2, l),
                                .y = lib_offset(&out->view, n_lead, i),
                                .w = r,
                                .data = lib_offset(&o->w.parts[0], o->w.n_batch, r),
                                .scales = lib_offset(&o->w.parts[1], o->w.n_batch, r),
                                .biases = o->w.parts[2].n_dims ? lib_offset(&o->w.parts[2], o->w.n_batch, r) : 0};
    }
    qsort(p->pair, (size_t)n_pairs, sizeof *p->pair, by_matrix);
    return EK_OK;
}

static ek_err gather(lib_call *c, const ek_view *y, const ek_view *x, const ek_qview *w, const ek_view *lhs,
                     const ek_view *rhs, bool transpose, ek_precision precision)
{
    operands o;
    indices l, r;
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_product p;
    lib_out out;
    if ((unsigned)precision > EK_BFLOAT16) return ek_fail(EK_EINVAL, "unknown precision %d", (int)precision);
    EK_TRY(lib_operand_quantised(c, &o.w, w, transpose));
    EK_TRY(check_rows(&o, y, x));
    if (x->n_dims < 2)
        return ek_fail(EK_EINVAL, "x %s needs two dims or more to be indexed; w is %s", o.x_shape, o.w.shape);
    EK_TRY(check_indices(&l, lhs, "lhs indices", o.x.n_dims - 2, &o.x));
    EK_TRY(check_indices(&r, rhs, "rhs indices", o.w.n_batch, &o.w.parts[0]));
    EK_TRY(plan_gather(c, k, &o, &l, &r, &p, &out));
    if (out.view.count) {
        if (precision && p.w.k > 0) EK_TRY(lib_product_run_packing(c, k, &p, precision));
        else EK_TRY(lib_product_run(c, k, &p));
    }
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_gather_qmm(ek_view y, ek_view x, const ek_qview *w, const ek_view *lhs, const ek_view *rhs, bool transpose,
                        ek_precision precision)
{
    return LIB_OPERATE(c, gather(&c, &y, &x, w, lhs, rhs, transpose, precision));
}
