/* The row operators (ops/rows/rows.h) on AVX2 and AVX-512; each equals the scalar definition bit for bit. */
#include "ops/x86/isa.h"

#include <math.h>

#include "ops/rows/rows.h"
#include "ops/tree.h"
#include "ops/x86/math_vec.h"

/* Runs the statements for elements [i, i + count) in vectors; the last one may be short. */
#define EACH(i, count, n) for (int i = 0, count; i < (n) && (count = (n)-i < W ? (n)-i : W, 1); i += W)

INLINE vf get(const float *p, int count)
{
    return count == W ? v_load(p) : v_load_part(p, count);
}

INLINE void put(float *p, vf x, int count)
{
    if (count == W) v_store(p, x);
    else v_store_part(p, x, count);
}

/* Lanes past the end of a row add squares of zeros: no change. */
INLINE float sum_squares(const float *x, int n)
{
    ek_tree tree = {.count = 0};
    for (int b = 0; b < n; b += 256) {
        int end = n < b + 256 ? n : b + 256;
        vf lane[LANE_VECS];
        for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
        int i = b;
        for (; i + 16 <= end; i += 16)
            for (int c = 0; c < LANE_VECS; c++) {
                vf v = v_load(x + i + c * W);
                lane[c] = v_fma(v, v, lane[c]);
            }
        for (int c = 0; c < LANE_VECS && i < end; c++, i += W) {
            vf v = get(x + i, end - i < W ? end - i : W);
            lane[c] = v_fma(v, v, lane[c]);
        }
        ek_tree_push(&tree, v_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static void rms_norm(float *y, const float *x, const float *w, int n, float eps)
{
    vf r = v_set1(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    if (w) {
        EACH(i, m, n) put(y + i, v_mul(v_mul(get(x + i, m), r), get(w + i, m)), m);
    } else {
        EACH(i, m, n) put(y + i, v_mul(get(x + i, m), r), m);
    }
}

static void add(float *h, const float *y, int n)
{
    EACH(i, m, n) put(h + i, v_add(get(h + i, m), get(y + i, m)), m);
}

static void scale(float *x, float s, int n)
{
    EACH(i, m, n) put(x + i, v_mul(get(x + i, m), v_set1(s)), m);
}

static void gelu_mul(float *y, const float *g, const float *u, int n)
{
    EACH(i, m, n) put(y + i, v_mul(v_gelu_tanh(get(g + i, m)), get(u + i, m)), m);
}

static void soft_cap(float *x, float cap, int n)
{
    vf c = v_set1(cap);
    EACH(i, m, n) put(x + i, v_mul(c, v_tanh(v_div(get(x + i, m), c))), m);
}

static void rope(float *x, const float *cos, const float *sin, int half, int rotated)
{
    EACH(i, m, rotated)
    {
        vf x0 = get(x + i, m), x1 = get(x + half + i, m), c = get(cos + i, m), s = get(sin + i, m);
        put(x + i, v_fnma(x1, s, v_mul(x0, c)), m);
        put(x + half + i, v_fma(x0, s, v_mul(x1, c)), m);
    }
}

static void axpy(float *y, float a, const float *x, int n)
{
    EACH(i, m, n) put(y + i, v_fma(v_set1(a), get(x + i, m), get(y + i, m)), m);
}

static void add_scale(float *y, const float *a, const float *b, float s, int n)
{
    EACH(i, m, n) put(y + i, v_mul(v_add(get(a + i, m), get(b + i, m)), v_set1(s)), m);
}

/* Finds the largest value first, then its first index, so that no index travels with the values. */
static int argmax(const float *x, int n)
{
    vf max[4];
    for (int c = 0; c < 4; c++) max[c] = v_set1(-INFINITY);
    int i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
        for (int c = 0; c < 4; c++) max[c] = v_max(v_load(x + i + c * W), max[c]); /* NaN: keeps max */
    float lane[W], best = -INFINITY;
    v_store(lane, v_max(v_max(max[0], max[1]), v_max(max[2], max[3])));
    for (int l = 0; l < W; l++) best = lane[l] > best ? lane[l] : best;
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    if (best == -INFINITY) return 0;
    vf b = v_set1(best);
    for (i = 0; i + W <= n; i += W)
        if (vm_any(v_same(v_load(x + i), b))) break;
    while (x[i] != best) i++;
    return i;
}

static float sum_exp(const float *x, int n, float top)
{
    ek_tree tree = {.count = 0};
    vf t = v_set1(top);
    for (int b = 0; b < n; b += 256) {
        int end = n < b + 256 ? n : b + 256, i = b;
        vf lane[LANE_VECS];
        for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
        for (; i + 16 <= end; i += 16)
            for (int c = 0; c < LANE_VECS; c++) lane[c] = v_add(lane[c], v_exp_below(v_sub(v_load(x + i + c * W), t)));
        if (i < end) { /* absent terms add +0, which changes no sum of terms >= +0 */
            float last[16];
            for (int l = 0; l < 16; l++) last[l] = i + l < end ? x[i + l] : -INFINITY;
            for (int c = 0; c < LANE_VECS; c++) lane[c] = v_add(lane[c], v_exp_below(v_sub(v_load(last + c * W), t)));
        }
        ek_tree_push(&tree, v_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static void clamp(float *y, const float *x, float lo, float hi, int n)
{
    vf l = v_set1(lo), h = v_set1(hi);
    EACH(i, m, n) put(y + i, v_min(h, v_max(l, get(x + i, m))), m);
}

/* Lanes past the end of a row add zeros: no change, because no lane is ever -0. */
INLINE float sum(const float *x, int n)
{
    ek_tree tree = {.count = 0};
    for (int b = 0; b < n; b += 256) {
        int end = n < b + 256 ? n : b + 256, i = b;
        vf lane[LANE_VECS];
        for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
        for (; i + 16 <= end; i += 16)
            for (int c = 0; c < LANE_VECS; c++) lane[c] = v_add(lane[c], v_load(x + i + c * W));
        for (int c = 0; c < LANE_VECS && i < end; c++, i += W)
            lane[c] = v_add(lane[c], get(x + i, end - i < W ? end - i : W));
        ek_tree_push(&tree, v_add_lanes(lane));
    }
    return ek_tree_sum(&tree);
}

static void layer_norm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    const vf mean = v_set1(sum(x, n) / (float)n);
    EACH(i, m, n) put(y + i, v_sub(get(x + i, m), mean), m);
    const vf r = v_set1(1.0f / sqrtf(sum_squares(y, n) / (float)n + eps));
    if (b) {
        EACH(i, m, n) put(y + i, v_fma(v_mul(get(y + i, m), r), get(w + i, m), get(b + i, m)), m);
    } else {
        EACH(i, m, n) put(y + i, v_mul(v_mul(get(y + i, m), r), get(w + i, m)), m);
    }
}

/* Beyond 200 exp gives +0 already; min lets NaN through and the product with 0 brings it back. */
static void sigmoid_mul(float *y, const float *a, const float *g, int n)
{
    EACH(i, m, n)
    {
        const vf x = get(g + i, m), one = v_set1(1.0f);
        const vf far = v_min(v_set1(200.0f), v_as_float(vi_and(v_bits(x), vi_set1(INT32_MAX))));
        const vf t = v_exp_below(v_sub(v_zero(), far));
        const vf d = v_add(v_add(one, t), v_mul(v_zero(), far));
        put(y + i, v_div(v_mul(get(a + i, m), v_pick(v_less(x, v_zero()), t, one)), d), m);
    }
}

static void mul_add(float *y, const float *w, const float *x, int n)
{
    EACH(i, m, n) put(y + i, v_fma(get(w + i, m), get(x + i, m), get(y + i, m)), m);
}

static void mul(float *y, const float *w, int n)
{
    EACH(i, m, n) put(y + i, v_mul(get(y + i, m), get(w + i, m)), m);
}

void EK_OF_ISA(ek_row_table)(ek_row_ops *ops)
{
    *ops = (ek_row_ops){rms_norm, add,     scale, gelu_mul,   soft_cap,    rope,    axpy, add_scale,
                        argmax,   sum_exp, clamp, layer_norm, sigmoid_mul, mul_add, mul};
}
