/* Norms and rotations of rows. A row that is not contiguous f32 is copied first. */
#include <string.h>

#include "lib/lib.h"

typedef struct work {
    const lib_kernels *k;
    lib_view x, y;
    int64_t n;      /* of a row */
    float *scratch; /* one row per worker */
    /* norm */
    const float *w;
    float eps;
    /* rope */
    const float *frequencies;
    ek_rope_options how;
    int64_t row_len; /* L: the number of rows with successive positions */
    float *table;    /* per worker: cos, sin, and a row with its pairs split */
} work;

static ek_err check_pair(lib_view *y, lib_view *x, const ek_view *yv, const ek_view *xv, int min_dims)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    EK_TRY(lib_view_check(x, xv, "x"));
    EK_TRY(lib_view_check(y, yv, "y"));
    EK_TRY(lib_out_check(y, "y"));
    if (x->n_dims != y->n_dims || x->n_dims < min_dims ||
        memcmp(x->dim, y->dim, sizeof x->dim[0] * (size_t)x->n_dims) || !lib_is_float(x->type) ||
        !lib_is_float(y->type))
        return ek_fail(EK_EINVAL, "x %s and y %s must have one shape of %d dims or more, f32, f16 or bf16",
                       lib_shape(a, x), lib_shape(b, y), min_dims);
    return EK_OK;
}

static ek_err begin(lib_call *c, const lib_kernels *k, work *t, lib_out *out, const lib_view *also)
{
    t->k = k;
    t->n = lib_dim(&t->x, 1);
    /* y may be exactly x, because a row is read before it is written. Any other overlap is staged */
    bool in_place = t->x.data == t->y.data && t->x.type == t->y.type &&
                    memcmp(t->x.stride, t->y.stride, sizeof t->x.stride) == 0;
    EK_TRY(lib_out_begin(c, out, &t->y, 2, (const lib_view *[]){in_place ? NULL : &t->x, also}));
    t->y = out->view;
    t->scratch = lib_take_array(c, (size_t)c->n_workers, (size_t)t->n * sizeof *t->scratch);
    return t->scratch ? EK_OK : EK_ENOMEM;
}

static float *load_row(const work *t, int64_t row, int worker)
{
    float *x = t->scratch + (size_t)worker * (size_t)t->n;
    lib_load(t->k, x, t->x.data + lib_offset(&t->x, t->x.n_dims - 1, row), t->x.type, lib_stride(&t->x, 1), t->n);
    return x;
}

static void store_row(const work *t, int64_t row, const float *x)
{
    lib_store(t->k, t->y.data + lib_offset(&t->y, t->y.n_dims - 1, row), t->y.type, lib_stride(&t->y, 1), x, t->n);
}

/* ------------------------------------------------------------------ RMS norm */

static void norm_task(void *arg, int64_t row, int worker)
{
    const work *t = arg;
    float *x = load_row(t, row, worker);
    t->k->rows.rms_norm(x, x, t->w, (int)t->n, t->eps);
    store_row(t, row, x);
}

enum { MAX_ROW = 1 << 30 };

static ek_err rms_norm(lib_call *c, const ek_view *y, const ek_view *x, const ek_view *w, float eps)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    work t = {.eps = eps};
    lib_view wv = {0};
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_out out;
    EK_TRY(check_pair(&t.y, &t.x, y, x, 1));
    if (w) {
        EK_TRY(lib_view_check(&wv, w, "w"));
        if (wv.n_dims != 1 || wv.dim[0] != lib_dim(&t.x, 1) || !lib_is_float(wv.type))
            return ek_fail(EK_EINVAL, "w %s does not fit rows of x %s", lib_shape(a, &wv), lib_shape(b, &t.x));
    }
    if (!(eps >= 0)) return ek_fail(EK_EINVAL, "eps %g is negative; x is %s", (double)eps, lib_shape(a, &t.x));
    if (lib_dim(&t.x, 1) > MAX_ROW)
        return ek_fail(EK_EINVAL, "rows of x %s are longer than %d", lib_shape(a, &t.x), MAX_ROW);
    if (t.x.count == 0) return EK_OK;
    EK_TRY(begin(c, k, &t, &out, w ? &wv : NULL));
    if (w) {
        float *copy = lib_take_array(c, (size_t)t.n, sizeof *copy);
        if (!copy) return EK_ENOMEM;
        lib_load(k, copy, wv.data, wv.type, wv.stride[0], t.n);
        t.w = copy;
    }
    lib_run(c, norm_task, &t, t.x.count / t.n);
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_rms_norm(ek_view y, ek_view x, const ek_view *w, float eps)
{
    return LIB_OPERATE(c, rms_norm(&c, &y, &x, w, eps));
}

/* ------------------------------------------------------------------ rotation */

/* Moves pairs (2j, 2j + 1) to (j, j + half). */
static void split_pairs(float *to, const float *x, int64_t dims)
{
    for (int64_t j = 0; j < dims / 2; j++) to[j] = x[2 * j], to[j + dims / 2] = x[2 * j + 1];
}

static void join_pairs(float *to, const float *x, int64_t dims)
{
    for (int64_t j = 0; j < dims / 2; j++) to[2 * j] = x[j], to[2 * j + 1] = x[j + dims / 2];
}

static void rope_task(void *arg, int64_t row, int worker)
{
    const work *t = arg;
    const ek_rope_options *how = &t->how;
    float *x = load_row(t, row, worker), *cos = t->table + (size_t)worker * 4 * (size_t)how->dims,
          *sin = cos + how->dims;
    float *turned = sin + how->dims;
    int64_t first = how->position;
    if (how->positions) first = how->positions[row / (t->x.count / t->n / t->x.dim[0])];
    ek_rope_row(cos, sin, t->frequencies, (int)how->pairs, (int)(first + row % t->row_len));
    if (how->interleaved) {
        split_pairs(turned, x, how->dims);
        t->k->rows.rope(turned, cos, sin, (int)(how->dims / 2), (int)how->pairs);
        join_pairs(x, turned, how->dims);
    } else t->k->rows.rope(x, cos, sin, (int)(how->dims / 2), (int)how->pairs);
    store_row(t, row, x);
}

static ek_err check_position(int64_t first, const lib_view *x)
{
    char text[LIB_SHAPE_TEXT];
    if (first >= 0 && first <= INT32_MAX - lib_dim(x, 2)) return EK_OK;
    return ek_fail(EK_EINVAL, "position %lld of the first row of x %s is outside 0 to %d", (long long)first,
                   lib_shape(text, x), INT32_MAX);
}

static ek_err check_rope(work *t, const ek_rope_options *options)
{
    char text[LIB_SHAPE_TEXT];
    ek_rope_options how = options ? *options : (ek_rope_options){0};
    int64_t n = lib_dim(&t->x, 1);
    if (how.dims == 0) how.dims = n;
    if (how.dims < 0 || how.dims > n || how.dims % 2 || n > MAX_ROW)
        return ek_fail(EK_EINVAL, "%lld dims of rows of x %s cannot be turned", (long long)how.dims,
                       lib_shape(text, &t->x));
    if (how.pairs == 0) how.pairs = how.dims / 2;
    if (how.pairs < 0 || how.pairs > how.dims / 2)
        return ek_fail(EK_EINVAL, "%lld pairs out of %lld dims cannot be turned; x is %s", (long long)how.pairs,
                       (long long)how.dims, lib_shape(text, &t->x));
    if (how.theta == 0) how.theta = 10000;
    if (how.factor == 0) how.factor = 1;
    if (!(how.theta >= 1 && how.theta <= 1e12) || !(how.factor > 0 && how.factor <= 1e6))
        return ek_fail(EK_EINVAL, "theta %g and factor %g: 1 to 1e12, and up to 1e6, are possible", how.theta,
                       how.factor);
    t->how = how;
    if (!how.positions) return check_position(how.position, &t->x);
    if (t->x.n_dims < 3)
        return ek_fail(EK_EINVAL,
                       "positions are one for each index of the first axis; x %s has no axis before its rows",
                       lib_shape(text, &t->x));
    for (int64_t i = 0; i < t->x.dim[0]; i++) EK_TRY(check_position(how.positions[i], &t->x));
    return EK_OK;
}

static ek_err rope(lib_call *c, const ek_view *y, const ek_view *x, const ek_rope_options *options)
{
    work t = {0};
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_out out;
    EK_TRY(check_pair(&t.y, &t.x, y, x, 2));
    EK_TRY(check_rope(&t, options));
    if (t.x.count == 0) return EK_OK;
    EK_TRY(begin(c, k, &t, &out, NULL));
    float *f = lib_take_array(c, (size_t)t.how.dims, sizeof *f);
    t.table = lib_take_array(c, (size_t)c->n_workers, 4 * (size_t)t.how.dims * sizeof *f);
    if (!f || !t.table) return EK_ENOMEM;
    ek_rope_frequencies(f, (int)t.how.dims, t.how.theta, 1.0, t.how.factor);
    t.frequencies = f;
    t.row_len = lib_dim(&t.x, 2);
    lib_run(c, rope_task, &t, t.x.count / t.n);
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_rope(ek_view y, ek_view x, const ek_rope_options *options)
{
    return LIB_OPERATE(c, rope(&c, &y, &x, options));
}
