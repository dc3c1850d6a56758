#include "ops/rows/rows.h"

#include <math.h>
#include <stdbool.h>

#include "base/machine/cpu.h"
#include "ops/math.h"
#include "ops/tree.h"

enum { BLOCK = 256 };

static float sum_squares(const float *x, int n)
{
    ek_tree tree = {.count = 0};
    for (int b = 0; b < n; b += BLOCK) {
        float lane[EK_LANES] = {0};
        for (int i = b; i < n && i < b + BLOCK; i++) lane[i % EK_LANES] = fmaf(x[i], x[i], lane[i % EK_LANES]);
        ek_tree_push(&tree, ek_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static float sum(const float *x, int n)
{
    ek_tree tree = {.count = 0};
    for (int b = 0; b < n; b += BLOCK) {
        float lane[EK_LANES] = {0};
        for (int i = b; i < n && i < b + BLOCK; i++) lane[i % EK_LANES] += x[i];
        ek_tree_push(&tree, ek_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static void rms_norm(float *y, const float *x, const float *w, int n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    if (w)
        for (int i = 0; i < n; i++) y[i] = x[i] * r * w[i];
    else
        for (int i = 0; i < n; i++) y[i] = x[i] * r;
}

static void add(float *h, const float *y, int n)
{
    for (int i = 0; i < n; i++) h[i] += y[i];
}

static void scale(float *x, float s, int n)
{
    for (int i = 0; i < n; i++) x[i] *= s;
}

static void gelu_mul(float *y, const float *g, const float *u, int n)
{
    for (int i = 0; i < n; i++) y[i] = ek_gelu_tanh(g[i]) * u[i];
}

static void soft_cap(float *x, float cap, int n)
{
    for (int i = 0; i < n; i++) x[i] = cap * ek_tanh(x[i] / cap);
}

static void rope(float *x, const float *cos, const float *sin, int half, int rotated)
{
    for (int j = 0; j < rotated; j++) {
        float x0 = x[j], x1 = x[j + half];
        x[j] = fmaf(-x1, sin[j], x0 * cos[j]);
        x[j + half] = fmaf(x0, sin[j], x1 * cos[j]);
    }
}

static void axpy(float *y, float a, const float *x, int n)
{
    for (int i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

static void add_scale(float *y, const float *a, const float *b, float s, int n)
{
    for (int i = 0; i < n; i++) y[i] = (a[i] + b[i]) * s;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    float max = -INFINITY;
    for (int i = 0; i < n; i++)
        if (x[i] > max) max = x[i], best = i;
    return best;
}

static float sum_exp(const float *x, int n, float top)
{
    ek_tree tree = {.count = 0};
    for (int b = 0; b < n; b += BLOCK) {
        float lane[EK_LANES] = {0};
        for (int i = b; i < n && i < b + BLOCK; i++) lane[i % EK_LANES] += ek_exp(x[i] - top);
        ek_tree_push(&tree, ek_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static void clamp(float *y, const float *x, float lo, float hi, int n)
{
    for (int i = 0; i < n; i++) {
        const float m = lo > x[i] ? lo : x[i];
        y[i] = hi < m ? hi : m;
    }
}

static void layer_norm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    const float m = sum(x, n) / (float)n;
    for (int i = 0; i < n; i++) y[i] = x[i] - m;
    const float r = 1.0f / sqrtf(sum_squares(y, n) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = b ? fmaf(y[i] * r, w[i], b[i]) : y[i] * r * w[i];
}

static void sigmoid_mul(float *y, const float *a, const float *g, int n)
{
    for (int i = 0; i < n; i++) {
        const float t = ek_exp(-fabsf(g[i]));
        y[i] = a[i] * (g[i] < 0 ? t : 1.0f) / (1.0f + t);
    }
}

static void mul_add(float *y, const float *w, const float *x, int n)
{
    for (int i = 0; i < n; i++) y[i] = fmaf(w[i], x[i], y[i]);
}

static void mul(float *y, const float *w, int n)
{
    for (int i = 0; i < n; i++) y[i] *= w[i];
}

void ek_row_init(ek_row_ops *ops, unsigned cpu)
{
    *ops = (ek_row_ops){rms_norm, add,     scale, gelu_mul,   soft_cap,    rope,    axpy, add_scale,
                        argmax,   sum_exp, clamp, layer_norm, sigmoid_mul, mul_add, mul};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_row_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_row_table_avx512(ops);
#else
    (void)cpu;
#endif
}

void ek_softmax(float *prob, const float *x, int n)
{
    const float max = x[argmax(x, n)];
    for (int i = 0; i < n; i++) prob[i] = ek_exp(x[i] - max);
    float total = sum(prob, n);
    for (int i = 0; i < n; i++) prob[i] /= total;
}

/* Whether (a, i) ranks behind (b, j): smaller, or equal at a higher index. */
static bool behind(float a, int32_t i, float b, int32_t j)
{
    return a < b || (a == b && i > j);
}

/* In a heap whose root ranks last, moves the entry at the root to its position. */
static void sink(int32_t *id, float *value, int n)
{
    int32_t i = id[0];
    float v = value[0];
    int at = 0;
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && behind(value[child + 1], id[child + 1], value[child], id[child])) child++;
        if (!behind(value[child], id[child], v, i)) break;
        id[at] = id[child], value[at] = value[child];
    }
    id[at] = i, value[at] = v;
}

static void rise(int32_t *id, float *value, int at)
{
    int32_t i = id[at];
    float v = value[at];
    for (; at > 0 && behind(v, i, value[(at - 1) / 2], id[(at - 1) / 2]); at = (at - 1) / 2)
        id[at] = id[(at - 1) / 2], value[at] = value[(at - 1) / 2];
    id[at] = i, value[at] = v;
}

void ek_top_k(const float *x, int n, int k, int32_t *id, float *value)
{
    for (int i = 0; i < k; i++) {
        id[i] = i, value[i] = x[i];
        rise(id, value, i);
    }
    for (int i = k; k > 0 && i < n; i++) {
        if (!(x[i] > value[0])) continue; /* an equal value has the higher index */
        id[0] = i, value[0] = x[i];
        sink(id, value, k);
    }
    for (int left = k - 1; left > 0; left--) { /* moves the last of the rest to the end */
        int32_t i = id[0];
        float v = value[0];
        id[0] = id[left], value[0] = value[left];
        sink(id, value, left);
        id[left] = i, value[left] = v;
    }
}

int ek_rope_frequencies(float *f, int dim, double theta, double partial, double factor)
{
    int rotated = (int)(partial * dim) / 2;
    if (rotated > dim / 2) rotated = dim / 2;
    for (int j = 0; j < rotated; j++) {
        float power = (float)ek_pow(theta, (double)((float)(2 * j) / (float)dim));
        f[j] = 1.0f / power / (float)factor;
    }
    return rotated;
}

void ek_rope_row(float *cos, float *sin, const float *f, int rotated, int pos)
{
    for (int j = 0; j < rotated; j++) {
        double c, s;
        ek_cos_sin((double)((float)pos * f[j]), &c, &s);
        cos[j] = (float)c, sin[j] = (float)s;
    }
}
