/* Views: their checks, shapes and copies; the public helpers that make views of views; and the kernels by CPU flags. */
#include "lib/lib.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "tensor/dtype.h"

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} types[EK_TYPE_COUNT] = {
    [EK_TYPE_F32] = {"f32", 4, true}, [EK_TYPE_F16] = {"f16", 2, true},  [EK_TYPE_BF16] = {"bf16", 2, true},
    [EK_TYPE_U8] = {"u8", 1, false},  [EK_TYPE_U32] = {"u32", 4, false},
};

bool lib_is_float(ek_type t)
{
    return types[t].is_float;
}

size_t lib_type_size(ek_type t)
{
    return types[t].size;
}

const char *lib_shape(char text[LIB_SHAPE_TEXT], const lib_view *v)
{
    size_t n = 0;
    text[n++] = '[';
    for (int i = 0; i < v->n_dims; i++)
        n += (size_t)snprintf(text + n, LIB_SHAPE_TEXT - n, "%s%lld", i ? ", " : "", (long long)v->dim[i]);
    snprintf(text + n, LIB_SHAPE_TEXT - n, "] of %s", types[v->type].name);
    return text;
}

/* ------------------------------------------------------------------ checks */

enum { MAX_LOG2 = 55 };

/* The range of bytes that the elements touch, relative to data: [*low, *high). */
static bool extent(const lib_view *v, int64_t *low, int64_t *high)
{
    *low = 0, *high = (int64_t)types[v->type].size;
    for (int i = 0; i < v->n_dims; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(v->dim[i] - 1, v->stride[i], &reach)) return false;
        if (__builtin_add_overflow(*(reach < 0 ? low : high), reach, reach < 0 ? low : high)) return false;
    }
    return *low > -(INT64_C(1) << 61) && *high < INT64_C(1) << 61;
}

ek_err lib_view_check(lib_view *out, const ek_view *v, const char *what)
{
    if (!v) return ek_fail(EK_EINVAL, "%s is missing", what);
    if ((unsigned)v->type >= EK_TYPE_COUNT) return ek_fail(EK_EINVAL, "%s has the unknown type %d", what, (int)v->type);
    if (v->n_dims < 0 || v->n_dims > EK_VIEW_DIMS)
        return ek_fail(EK_EINVAL, "%s has %d dims, 0 to %d are possible%s", what, v->n_dims, EK_VIEW_DIMS,
                       v->n_dims == -1 ? " (an axis or a range that its tensor does not have)" : "");
    *out = (lib_view){.data = v->data, .type = v->type, .n_dims = v->n_dims, .count = 1};
    int64_t whole = 1; /* without zeros, so that dims are bounded in an empty view, too */
    for (int i = 0; i < v->n_dims; i++) {
        int64_t d = v->dim[i];
        if (d < 0) return ek_fail(EK_EINVAL, "dim %d of %s is %lld", i, what, (long long)d);
        if (__builtin_mul_overflow(whole, d ? d : 1, &whole) || whole > INT64_C(1) << MAX_LOG2)
            return ek_fail(EK_EINVAL, "%s has more than 2^%d elements", what, MAX_LOG2);
        out->dim[i] = d;
        out->count *= d;
        if (d > 1 && __builtin_mul_overflow(v->stride[i], (int64_t)types[v->type].size, &out->stride[i]))
            return ek_fail(EK_EINVAL, "stride %lld of %s is out of range", (long long)v->stride[i], what);
    }
    int64_t low, high;
    if (out->count && !extent(out, &low, &high))
        return ek_fail(EK_EINVAL, "the strides of %s reach over the end of memory", what);
    if (out->count && !v->data)
        return ek_fail(EK_EINVAL, "%s has %lld elements and no data", what, (long long)out->count);
    return EK_OK;
}

ek_err lib_out_check(const lib_view *y, const char *what)
{
    char text[LIB_SHAPE_TEXT];
    if (y->count == 0) return EK_OK;
    int order[EK_VIEW_DIMS], n = 0;
    for (int i = 0; i < y->n_dims; i++) { /* dims in ascending stride */
        if (y->dim[i] == 1) continue;
        int at = n++;
        for (; at > 0 && llabs(y->stride[order[at - 1]]) > llabs(y->stride[i]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t span = (int64_t)types[y->type].size; /* bytes that the dims so far touch */
    for (int i = 0; i < n; i++) {
        int64_t step = llabs(y->stride[order[i]]);
        if (step < span)
            return ek_fail(EK_EINVAL, "elements of the output %s, %s, share memory: stride %lld of dim %d", what,
                           lib_shape(text, y), (long long)(y->stride[order[i]] / (int64_t)types[y->type].size),
                           order[i]);
        span += step * (y->dim[order[i]] - 1);
    }
    return EK_OK;
}

static bool may_overlap(const lib_view *a, const lib_view *b)
{
    int64_t al, ah, bl, bh;
    if (!a->count || !b->count || !extent(a, &al, &ah) || !extent(b, &bl, &bh)) return false;
    uintptr_t pa = (uintptr_t)a->data, pb = (uintptr_t)b->data;
    return pa + (uintptr_t)al < pb + (uintptr_t)bh && pb + (uintptr_t)bl < pa + (uintptr_t)ah;
}

/* ------------------------------------------------------------------ shapes */

int64_t lib_offset(const lib_view *v, int n_dims, int64_t i)
{
    int64_t at = 0;
    for (int d = n_dims - 1; d >= 0; d--) {
        at += i % v->dim[d] * v->stride[d];
        i /= v->dim[d];
    }
    return at;
}

bool lib_broadcast(lib_view *v, int n_lead, const int64_t *lead, int n_tail)
{
    int own = v->n_dims - n_tail, shift = n_lead - own;
    if (own < 0 || shift < 0) return false;
    lib_view was = *v;
    v->n_dims = n_lead + n_tail;
    v->count = 1;
    for (int i = 0; i < n_lead + n_tail; i++) {
        int64_t d = i < shift ? 1 : was.dim[i - shift], s = i < shift ? 0 : was.stride[i - shift];
        if (i < n_lead && d != lead[i]) {
            if (d != 1) return false;
            d = lead[i], s = 0;
        }
        v->dim[i] = d, v->stride[i] = s;
        v->count *= d;
    }
    return true;
}

bool lib_join(int *n_lead, int64_t *lead, const lib_view *v, int n_tail)
{
    int own = v->n_dims - n_tail;
    if (own > *n_lead) {
        memmove(lead + (own - *n_lead), lead, sizeof *lead * (size_t)*n_lead);
        for (int i = 0; i < own - *n_lead; i++) lead[i] = 1;
        *n_lead = own;
    }
    for (int i = 0; i < own; i++) {
        int64_t *l = &lead[*n_lead - own + i];
        if (*l == v->dim[i] || v->dim[i] == 1) continue;
        if (*l != 1) return false;
        *l = v->dim[i];
    }
    return true;
}

/* ------------------------------------------------------------------ copies */

void lib_load(const lib_kernels *k, float *to, const uint8_t *from, ek_type t, int64_t stride, int64_t n)
{
    if (stride == (int64_t)types[t].size || n == 1) {
        k->convert.widen(to, from, lib_dtype(t), n);
        return;
    }
    for (int64_t i = 0; i < n; i++, from += stride) to[i] = lib_float_at(from, t);
}

void lib_store(const lib_kernels *k, uint8_t *to, ek_type t, int64_t stride, const float *from, int64_t n)
{
    if (stride == (int64_t)types[t].size || n == 1) {
        k->convert.narrow(to, lib_dtype(t), from, n);
        return;
    }
    for (int64_t i = 0; i < n; i++, to += stride) ek_store_float(to, lib_dtype(t), from[i]);
}

bool lib_rows_readable(const lib_view *v)
{
    if (v->type != EK_TYPE_F32 || (uintptr_t)v->data % 4) return false;
    if (v->n_dims && lib_dim(v, 1) > 1 && lib_stride(v, 1) != 4) return false;
    for (int i = 0; i < v->n_dims; i++)
        if (v->stride[i] % 4) return false;
    return true;
}

typedef struct copy_arg {
    const lib_kernels *k;
    const lib_view *to, *from;
    int64_t row; /* elements per row */
} copy_arg;

enum { COPY_ROWS = 16 };

static void copy_row(const copy_arg *a, uint8_t *to, const uint8_t *from)
{
    int64_t ts = a->to->n_dims ? lib_stride(a->to, 1) : 0, fs = a->from->n_dims ? lib_stride(a->from, 1) : 0;
    size_t size = types[a->to->type].size;
    if (a->to->type == a->from->type) {
        if (ts == (int64_t)size && fs == ts) memcpy(to, from, size * (size_t)a->row);
        else
            for (int64_t i = 0; i < a->row; i++) memcpy(to + i * ts, from + i * fs, size);
        return;
    }
    float part[256];
    for (int64_t i = 0; i < a->row; i += 256) {
        int64_t n = a->row - i < 256 ? a->row - i : 256;
        lib_load(a->k, part, from + i * fs, a->from->type, fs, n);
        lib_store(a->k, to + i * ts, a->to->type, ts, part, n);
    }
}

static void copy_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const copy_arg *a = arg;
    int lead = a->to->n_dims > 0 ? a->to->n_dims - 1 : 0;
    int64_t rows = a->to->count / a->row;
    for (int64_t r = task * COPY_ROWS; r < rows && r < (task + 1) * COPY_ROWS; r++)
        copy_row(a, a->to->data + lib_offset(a->to, lead, r), a->from->data + lib_offset(a->from, lead, r));
}

void lib_copy(lib_call *c, const lib_kernels *k, const lib_view *to, const lib_view *from)
{
    if (to->count == 0) return;
    copy_arg a = {k, to, from, to->n_dims ? lib_dim(to, 1) : 1};
    int64_t rows = to->count / a.row;
    lib_run(c, copy_task, &a, (rows + COPY_ROWS - 1) / COPY_ROWS);
}

/* A dense place in working memory for v in another type. Dims of stride 0 stay so. */
static ek_err place(lib_call *c, lib_view *to, const lib_view *v, ek_type t)
{
    *to = *v;
    to->type = t;
    int64_t step = (int64_t)types[t].size;
    for (int i = v->n_dims - 1; i >= 0; i--) {
        bool repeats = v->dim[i] > 1 && v->stride[i] == 0;
        to->stride[i] = repeats ? 0 : step;
        if (!repeats) step *= v->dim[i];
    }
    to->data = lib_take(c, (size_t)step);
    return to->data ? EK_OK : EK_ENOMEM;
}

static ek_err make(lib_call *c, const lib_kernels *k, lib_view *v, ek_type t)
{
    lib_view from = *v, to;
    EK_TRY(place(c, &to, v, t));
    *v = to;
    for (int i = 0; i < to.n_dims; i++) /* each element once */
        if (to.dim[i] > 1 && to.stride[i] == 0) to.count /= to.dim[i], to.dim[i] = from.dim[i] = 1;
    from.count = to.count;
    lib_copy(c, k, &to, &from);
    return EK_OK;
}

ek_err lib_make_f32(lib_call *c, const lib_kernels *k, lib_view *v)
{
    return make(c, k, v, EK_TYPE_F32);
}

ek_err lib_make_dense(lib_call *c, lib_view *v)
{
    return make(c, NULL, v, v->type);
}

ek_err lib_out_begin(lib_call *c, lib_out *o, const lib_view *y, int n_in, const lib_view *const *in)
{
    *o = (lib_out){.view = *y, .final = *y};
    for (int i = 0; i < n_in && !o->staged; i++) o->staged = in[i] && may_overlap(y, in[i]);
    return o->staged ? place(c, &o->view, y, y->type) : EK_OK;
}

void lib_out_end(lib_call *c, lib_out *o)
{
    if (o->staged) lib_copy(c, NULL, &o->final, &o->view);
}

static ek_err copy(lib_call *c, const ek_view *to, const ek_view *from)
{
    lib_view t, f;
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    EK_TRY(lib_view_check(&t, to, "the target"));
    EK_TRY(lib_view_check(&f, from, "the source"));
    EK_TRY(lib_out_check(&t, "of the copy"));
    if (t.n_dims != f.n_dims || memcmp(t.dim, f.dim, sizeof t.dim[0] * (size_t)t.n_dims))
        return ek_fail(EK_EINVAL, "a copy of %s into %s: the shapes differ", lib_shape(a, &f), lib_shape(b, &t));
    if (t.type != f.type && !(lib_is_float(t.type) && lib_is_float(f.type)))
        return ek_fail(EK_EINVAL, "a copy of %s into %s: only f32, f16 and bf16 convert", lib_shape(a, &f),
                       lib_shape(b, &t));
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_out o;
    EK_TRY(lib_out_begin(c, &o, &t, 1, (const lib_view *[]){&f}));
    lib_copy(c, k, &o.view, &f);
    lib_out_end(c, &o);
    return EK_OK;
}

ek_status ek_copy(ek_view to, ek_view from)
{
    return LIB_OPERATE(c, copy(&c, &to, &from));
}

/* ------------------------------------------------------------------ views of views */

ek_view ek_view_dense(void *data, ek_type type, int n_dims, const int64_t *dim)
{
    ek_view v = {.data = data, .type = type, .n_dims = n_dims};
    if (n_dims < 0 || n_dims > EK_VIEW_DIMS) return v;
    int64_t step = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        v.dim[i] = dim[i];
        v.stride[i] = step;
        /* the operator refuses a shape that overflows, because it multiplies with a check */
        if (__builtin_mul_overflow(step, dim[i] > 0 ? dim[i] : 1, &step)) step = INT64_MAX;
    }
    return v;
}

ek_view ek_view_1d(void *data, ek_type type, int64_t a)
{
    return ek_view_dense(data, type, 1, &a);
}

ek_view ek_view_2d(void *data, ek_type type, int64_t a, int64_t b)
{
    return ek_view_dense(data, type, 2, (int64_t[]){a, b});
}

ek_view ek_view_3d(void *data, ek_type type, int64_t a, int64_t b, int64_t c)
{
    return ek_view_dense(data, type, 3, (int64_t[]){a, b, c});
}

ek_view ek_view_4d(void *data, ek_type type, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return ek_view_dense(data, type, 4, (int64_t[]){a, b, c, d});
}

static ek_view nothing(ek_view v)
{
    v.n_dims = -1;
    return v;
}

/* Turns axis into [0, n), or -1. */
static int axis_of(const ek_view *v, int axis, int n)
{
    if (v->n_dims < 0 || v->n_dims > EK_VIEW_DIMS) return -1;
    if (axis < 0) axis += n;
    return axis >= 0 && axis < n ? axis : -1;
}

static void *moved(const ek_view *v, int64_t index, int64_t stride)
{
    if (!v->data || (unsigned)v->type >= EK_TYPE_COUNT) return v->data;
    return (void *)((uintptr_t)v->data + (uintptr_t)index * (uintptr_t)stride * types[v->type].size);
}

ek_view ek_view_slice(ek_view v, int axis, int64_t from, int64_t to)
{
    int a = axis_of(&v, axis, v.n_dims);
    if (a < 0 || from < 0 || to < from || to > v.dim[a]) return nothing(v);
    if (to > from) v.data = moved(&v, from, v.stride[a]);
    v.dim[a] = to - from;
    return v;
}

ek_view ek_view_swap(ek_view v, int axis_a, int axis_b)
{
    int a = axis_of(&v, axis_a, v.n_dims), b = axis_of(&v, axis_b, v.n_dims);
    if (a < 0 || b < 0) return nothing(v);
    int64_t d = v.dim[a], s = v.stride[a];
    v.dim[a] = v.dim[b], v.stride[a] = v.stride[b];
    v.dim[b] = d, v.stride[b] = s;
    return v;
}

ek_view ek_view_expand(ek_view v, int axis, int64_t n)
{
    int a = axis_of(&v, axis, v.n_dims);
    if (a < 0 || v.dim[a] != 1 || n < 0) return nothing(v);
    v.dim[a] = n, v.stride[a] = 0;
    return v;
}

ek_view ek_view_insert(ek_view v, int axis)
{
    int a = axis_of(&v, axis, v.n_dims + 1);
    if (a < 0 || v.n_dims >= EK_VIEW_DIMS) return nothing(v);
    for (int i = v.n_dims; i > a; i--) v.dim[i] = v.dim[i - 1], v.stride[i] = v.stride[i - 1];
    v.dim[a] = 1, v.stride[a] = 0;
    v.n_dims++;
    return v;
}

ek_view ek_view_reverse(ek_view v, int axis)
{
    int a = axis_of(&v, axis, v.n_dims);
    if (a < 0) return nothing(v);
    if (v.dim[a] > 0) v.data = moved(&v, v.dim[a] - 1, v.stride[a]);
    v.stride[a] = (int64_t)(0 - (uint64_t)v.stride[a]);
    return v;
}

/* ------------------------------------------------------------------ kernels */

enum {
    FLAGS = EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16 | EK_CPU_AMX | EK_CPU_AVXVNNI | EK_CPU_ZEN4 | EK_CPU_DOTPROD |
            EK_CPU_I8MM
};
static lib_kernels table[FLAGS + 1];

/* Uses only flags that this machine has, because the functions that fill in kernels are compiled for their instruction
 * set, too. */
static void fill_table(void)
{
    const unsigned here = ek_cpu_detect();
    for (unsigned cpu = 0; cpu <= FLAGS; cpu++) {
        lib_kernels *k = &table[cpu];
        if (cpu & ~here) continue;
        ek_convert_init(&k->convert, cpu);
        ek_decoded_init(&k->product, cpu);
        ek_linear_init(&k->linear, cpu);
        ek_linear_b_init(&k->linear_b, cpu);
        ek_row_init(&k->rows, cpu);
        ek_attn_rows_init(&k->attn, cpu);
    }
}

const lib_kernels *lib_kernels_of(unsigned cpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table[cpu & FLAGS];
}
