/* The public helpers that make views of views, and ek_copy. */
#include <string.h>

#include "lib/view.h"

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
    static const int size[EK_TYPE_COUNT] = {4, 2, 2, 1, 4};
    if (!v->data || (unsigned)v->type >= EK_TYPE_COUNT) return v->data;
    return (void *)((uintptr_t)v->data + (uintptr_t)index * (uintptr_t)stride * (uintptr_t)size[v->type]);
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
    lib_call c;
    ek_err e = lib_enter(&c);
    if (e != EK_OK) return lib_status(e);
    e = copy(&c, &to, &from);
    lib_leave(&c);
    return lib_status(e);
}
