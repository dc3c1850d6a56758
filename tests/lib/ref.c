#define _GNU_SOURCE
#include "ref.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

bool ref_all;

int ref_main(int argc, char **argv)
{
    ref_all = argc > 1 && strcmp(argv[1], "all") == 0;
    return 0;
}

static const char *running; /* the test, if it said so */

int ref_starts(void **state)
{
    running = *state;
    return 0;
}

int ref_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "all") == 0) ref_all = true;
        else cmocka_set_test_filter(argv[i]);
    }
    return _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

double ref_uniform(uint64_t key, uint64_t i)
{
    return (double)(mix(mix(key) + i) >> 11) * 0x1p-53;
}

double ref_normal(uint64_t key, uint64_t i)
{
    double u = 1 - ref_uniform(key, 2 * i), v = ref_uniform(key, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ------------------------------------------------------------------ memory */

struct block {
    struct block *next;
};
static struct block *all_blocks;

void *ref_take(size_t n)
{
    struct block *t = calloc(1, sizeof *t + 64 + n);
    if (!t) fail_msg("no memory for a test");
    t->next = all_blocks;
    all_blocks = t;
    return (void *)(((uintptr_t)(t + 1) + 63) / 64 * 64);
}

void ref_free_all(void)
{
    while (all_blocks) {
        struct block *next = all_blocks->next;
        free(all_blocks);
        all_blocks = next;
    }
}

static const size_t size_of[] = {4, 2, 2, 1, 4};

static ek_view dense(ek_type t, int n_dims, const int64_t *dim)
{
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= dim[i];
    return ek_view_dense(ref_take((size_t)n * size_of[t] + 1), t, n_dims, dim);
}

static void read_dims(int64_t *dim, int n_dims, va_list ap)
{
    for (int i = 0; i < n_dims; i++) dim[i] = va_arg(ap, int);
}

ek_view ref_new(ek_type t, int n_dims, ...)
{
    int64_t dim[EK_VIEW_DIMS];
    va_list ap;
    va_start(ap, n_dims);
    read_dims(dim, n_dims, ap);
    va_end(ap);
    return dense(t, n_dims, dim);
}

ek_view ref_normals(ek_type t, uint64_t key, double scale, int n_dims, ...)
{
    int64_t dim[EK_VIEW_DIMS];
    va_list ap;
    va_start(ap, n_dims);
    read_dims(dim, n_dims, ap);
    va_end(ap);
    ek_view v = dense(t, n_dims, dim);
    for (int64_t i = 0, n = ref_count(&v); i < n; i++) ref_set(&v, i, scale * ref_normal(key, (uint64_t)i));
    return v;
}

ek_view ref_uniforms(ek_type t, uint64_t key, double low, double high, int n_dims, ...)
{
    int64_t dim[EK_VIEW_DIMS];
    va_list ap;
    va_start(ap, n_dims);
    read_dims(dim, n_dims, ap);
    va_end(ap);
    ek_view v = dense(t, n_dims, dim);
    for (int64_t i = 0, n = ref_count(&v); i < n; i++)
        ref_set(&v, i, low + (high - low) * ref_uniform(key, (uint64_t)i));
    return v;
}

ek_view ref_like(const ek_view *v, ek_type t)
{
    return dense(t, v->n_dims, v->dim);
}

ek_view ref_dense(const ek_view *v)
{
    ek_view to = ref_like(v, v->type);
    size_t s = size_of[v->type];
    for (int64_t i = 0, n = ref_count(v); i < n; i++)
        memcpy((char *)to.data + (size_t)i * s, (char *)v->data + ref_place(v, i) * (int64_t)s, s);
    return to;
}

/* ------------------------------------------------------------------ elements */

int64_t ref_count(const ek_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->n_dims; i++) n *= v->dim[i];
    return n;
}

int64_t ref_place(const ek_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->n_dims - 1; d >= 0; d--) at += i % v->dim[d] * v->stride[d], i /= v->dim[d];
    return at;
}

static double half(uint16_t h)
{
    int e = h >> 10 & 31, f = h & 1023;
    double v = e == 31 ? (f ? NAN : INFINITY) : e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return h >> 15 ? -v : v;
}

static double get(const ek_view *v, int64_t place)
{
    const char *p = (const char *)v->data + place * (int64_t)size_of[v->type];
    uint32_t u = 0;
    memcpy(&u, p, size_of[v->type]);
    float f;
    switch (v->type) {
    case EK_TYPE_F16: return half((uint16_t)u);
    case EK_TYPE_BF16: u <<= 16; /* fall through */
    case EK_TYPE_F32: memcpy(&f, &u, 4); return (double)f;
    default: return (double)u;
    }
}

double ref_get(const ek_view *v, int64_t i)
{
    return get(v, ref_place(v, i));
}

double ref_at(const ek_view *v, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < v->n_dims; d++) at += index[d] * v->stride[d];
    return get(v, at);
}

/* x to the nearest value with `bits` bits of fraction, ties to even (rint of an exact scaling). */
static double round_to(double x, int bits, int min_exp)
{
    int e;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    if (e - 1 < min_exp) e = min_exp + 1;
    return ldexp(rint(ldexp(x, bits + 1 - e)), e - 1 - bits);
}

void ref_set(const ek_view *v, int64_t i, double x)
{
    char *p = (char *)v->data + ref_place(v, i) * (int64_t)size_of[v->type];
    uint32_t u;
    float f = (float)x;
    if (v->type == EK_TYPE_F32) memcpy(p, &f, 4);
    else if (v->type == EK_TYPE_BF16) {
        f = (float)round_to(x, 7, -126);
        memcpy(&u, &f, 4);
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(p, &h, 2);
    } else if (v->type == EK_TYPE_F16) {
        double a = fabs(round_to(x, 10, -14));
        int e;
        uint16_t h;
        if (isnan(x)) h = 0x7e00;
        else if (a >= 65536) h = 0x7c00;
        else if (a < ldexp(1, -14)) h = (uint16_t)ldexp(a, 24);
        else {
            double m = frexp(a, &e); /* [0.5, 1) */
            h = (uint16_t)((e + 14) << 10 | ((int)ldexp(m, 11) - 1024));
        }
        if (signbit(x)) h |= 0x8000;
        memcpy(p, &h, 2);
    } else {
        u = (uint32_t)x;
        memcpy(p, &u, size_of[v->type]);
    }
}

/* ------------------------------------------------------------------ quantised */

ek_qview ref_qnew(ek_quant_mode mode, int bits, int group, ek_type scales, const ek_view *shape)
{
    ek_qview q = {.mode = mode, .bits = bits, .group = group};
    int64_t dim[EK_VIEW_DIMS], c = shape->dim[shape->n_dims - 1];
    memcpy(dim, shape->dim, sizeof dim);
    dim[shape->n_dims - 1] = c * bits / 32;
    q.codes = dense(EK_TYPE_U32, shape->n_dims, dim);
    dim[shape->n_dims - 1] = c / group;
    q.scales = dense(mode == EK_AFFINE ? scales : EK_TYPE_U8, shape->n_dims, dim);
    if (mode == EK_AFFINE) q.biases = dense(scales, shape->n_dims, dim);
    return q;
}

ek_qview ref_quantised(ek_quant_mode mode, int bits, int group, const ek_view *x)
{
    ek_qview q = ref_qnew(mode, bits, group, x->type, x);
    MUST(ek_quantize(&q, *x));
    return q;
}

static double e2m1(int c)
{
    static const double t[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -t[c & 7] : t[c & 7];
}

static double e4m3(int c)
{
    int e = c >> 3 & 15, m = c & 7;
    double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return c & 128 ? -v : v;
}

double ref_qvalue(const ek_qview *q, int64_t i)
{
    int n = q->codes.n_dims;
    int64_t c_words = q->codes.dim[n - 1], cols = c_words * 32 / q->bits, row = i / cols, c = i % cols;
    int64_t at[EK_VIEW_DIMS];
    for (int d = n - 2; d >= 0; d--) at[d] = row % q->codes.dim[d], row /= q->codes.dim[d];
    unsigned code = 0;
    for (int b = 0; b < q->bits; b++) {
        int64_t bit = c * q->bits + b;
        at[n - 1] = bit / 32;
        code |= (unsigned)((uint32_t)ref_at(&q->codes, at) >> (bit % 32) & 1) << b;
    }
    at[n - 1] = c / q->group;
    double s = ref_at(&q->scales, at);
    double global = q->global_scale > 0 ? q->global_scale / 2688.0 : 1;
    switch (q->mode) {
    case EK_AFFINE: return s * code + ref_at(&q->biases, at);
    case EK_MXFP4: return e2m1((int)code) * ldexp(1, (int)s - 127);
    case EK_MXFP8: return e4m3((int)code) * ldexp(1, (int)s - 127);
    default: return e2m1((int)code) * e4m3((int)s) * global;
    }
}

/* Like ref_qvalue, for dense codes, quickly: the scale of a group is looked up once. */
ek_view ref_qvalues(const ek_qview *q)
{
    ek_view shape = q->codes;
    int last = shape.n_dims - 1;
    int64_t cols = shape.dim[last] = shape.dim[last] * 32 / q->bits;
    ek_view v = ref_like(&shape, EK_TYPE_F32), codes = ref_dense(&q->codes);
    const uint8_t *bytes = codes.data;
    float *to = v.data;
    double s = 0, b = 0, global = q->global_scale > 0 ? q->global_scale / 2688.0 : 1;
    for (int64_t i = 0, n = ref_count(&v); i < n; i++) {
        int64_t bit = i * q->bits; /* rows are whole bytes, so the tensor is one bit string */
        unsigned two = bytes[bit / 8] | (unsigned)bytes[bit / 8 + 1] << 8,
                 code = two >> bit % 8 & ((1u << q->bits) - 1);
        if (i % q->group == 0) {
            int64_t g = i / cols * (cols / q->group) + i % cols / q->group;
            s = ref_get(&q->scales, g);
            if (q->mode == EK_AFFINE) b = ref_get(&q->biases, g);
            else s = (q->mode == EK_NVFP4 ? e4m3((int)s) : ldexp(1, (int)s - 127)) * global;
        }
        to[i] = (float)(q->mode == EK_AFFINE  ? s * code + b
                        : q->mode == EK_MXFP8 ? e4m3((int)code) * s
                                              : e2m1((int)code) * s);
    }
    return v;
}

/* ------------------------------------------------------------------ products */

/* Element offset of the batch entry of v that the i-th of y's leading dims reads. */
static int64_t batch_place(const ek_view *v, const ek_view *y, int64_t i)
{
    int64_t at = 0;
    for (int d = y->n_dims - 3; d >= 0; d--) {
        int64_t index = i % y->dim[d];
        i /= y->dim[d];
        int own = d - (y->n_dims - v->n_dims);
        if (own >= 0 && v->dim[own] > 1) at += index * v->stride[own];
    }
    return at;
}

double *ref_matmul(const ek_view *x, const ek_view *w, bool transpose, const ek_view *y)
{
    double *out = ref_take(sizeof *out * (size_t)ref_count(y)), *wd = NULL;
    int64_t m = y->dim[y->n_dims - 2], n = y->dim[y->n_dims - 1], k = x->dim[x->n_dims - 1];
    int64_t batches = m * n > 0 ? ref_count(y) / (m * n) : 0, wn = w->stride[w->n_dims - (transpose ? 2 : 1)],
            wk = w->stride[w->n_dims - (transpose ? 1 : 2)], held = -1;
    double *xd = malloc(sizeof *xd * (size_t)(k + 1));
    wd = malloc(sizeof *wd * (size_t)(n * k + 1));
    for (int64_t b = 0; b < batches; b++) {
        int64_t xp = batch_place(x, y, b), wp = batch_place(w, y, b);
        if (wp != held)
            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < k; i++) wd[j * k + i] = get(w, wp + j * wn + i * wk);
        held = wp;
        for (int64_t r = 0; r < m; r++) {
            for (int64_t i = 0; i < k; i++)
                xd[i] = get(x, xp + r * x->stride[x->n_dims - 2] + i * x->stride[x->n_dims - 1]);
            for (int64_t j = 0; j < n; j++) {
                double s[8] = {0};
                int64_t i = 0;
                for (; i + 8 <= k; i += 8)
                    for (int l = 0; l < 8; l++) s[l] += xd[i + l] * wd[j * k + i + l];
                for (; i < k; i++) s[0] += xd[i] * wd[j * k + i];
                out[(b * m + r) * n + j] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
            }
        }
    }
    free(xd);
    free(wd);
    return out;
}

/* ------------------------------------------------------------------ checks */

double ref_max_off(const ek_view *y, const double *want)
{
    double max = 0;
    for (int64_t i = 0, n = ref_count(y); i < n; i++) {
        double d = fabs(ref_get(y, i) - want[i]);
        if (!(d <= max)) max = d;
    }
    return max;
}

static void where(const char *shape, va_list ap)
{
    char text[256];
    vsnprintf(text, sizeof text, shape, ap);
    print_error("%s\n", text);
}

void ref_again(void)
{
    print_error("again: %s%s%s%s\n", program_invocation_name, running ? " " : "", running ? running : "",
                ref_all ? " all" : "");
    fail();
}

void ref_close(const ek_view *y, const double *want, double rtol, double atol, const char *shape, ...)
{
    for (int64_t i = 0, n = ref_count(y); i < n; i++) {
        double got = ref_get(y, i);
        if (fabs(got - want[i]) <= atol + rtol * fabs(want[i])) continue;
        va_list ap;
        va_start(ap, shape);
        where(shape, ap);
        va_end(ap);
        print_error("[%lld] of %lld: want %.9g within %g + %g of it, got %.9g\n", (long long)i, (long long)n, want[i],
                    atol, rtol, got);
        ref_again();
    }
}

void ref_near(const ek_view *y, const double *want, double tol, const char *shape, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, shape);
    vsnprintf(text, sizeof text, shape, ap);
    va_end(ap);
    ref_close(y, want, 0, tol, "%s", text);
}

void ref_same(const ek_view *want, const ek_view *got, const char *shape, ...)
{
    size_t s = size_of[want->type];
    int64_t n = ref_count(want), differ = 0, first = -1;
    assert_int_equal(n, ref_count(got));
    assert_int_equal(want->type, got->type);
    for (int64_t i = 0; i < n; i++)
        if (memcmp((char *)want->data + ref_place(want, i) * (int64_t)s,
                   (char *)got->data + ref_place(got, i) * (int64_t)s, s)) {
            if (first < 0) first = i;
            differ++;
        }
    if (!differ) return;
    va_list ap;
    va_start(ap, shape);
    where(shape, ap);
    va_end(ap);
    print_error("%lld of %lld differ, first [%lld]: want %a, got %a\n", (long long)differ, (long long)n,
                (long long)first, ref_get(want, first), ref_get(got, first));
    ref_again();
}
