/* Attention to near positions (ops/attn/attn_near.h) on AVX2 and AVX-512. */
#include "ops/x86/isa.h"

#include <math.h>

#include "ops/attn/attn_near.h"
#include "ops/x86/math_vec.h"

/* Absent elements are zeros, whose product changes no lane, because no lane is ever -0. */
INLINE void add_products(vf *lane, const float *q, const float *k, int n)
{
    int d = 0;
    for (; d + 16 <= n; d += 16)
        for (int c = 0; c < LANE_VECS; c++) lane[c] = v_fma(v_load(q + d + c * W), v_load(k + d + c * W), lane[c]);
    for (int c = 0; c < LANE_VECS && d < n; c++, d += W) {
        const int m = n - d < W ? n - d : W;
        lane[c] = v_fma(v_load_part(q + d, m), v_load_part(k + d, m), lane[c]);
    }
}

/* s has room for whole vectors; elements after n are not used. */
INLINE void weigh(float *s, int n, float cap)
{
    const vf c = v_set1(cap);
    float max = -INFINITY, total = 0;
    for (int j = 0; j < n; j += W) v_store(s + j, v_mul(c, v_tanh(v_div(v_load(s + j), c))));
    for (int j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
    for (int j = 0; j < n; j += W) { /* exp loses a NaN; the product with 0 restores it */
        const vf below = v_sub(v_load(s + j), v_set1(max));
        v_store(s + j, v_add(v_exp_below(below), v_mul(v_zero(), below)));
    }
    for (int j = 0; j < n; j++) total += s[j];
    for (int j = 0; j < n; j += W) v_store(s + j, v_div(v_load(s + j), v_set1(total)));
}

void EK_OF_ISA(ek_near)(const ek_near *a, float *o, const float *q, const float *k, const float *v, ptrdiff_t ld,
                        int pos)
{
    const int lo = pos < a->span ? 0 : pos - a->span + 1, n = pos - lo + 1, width = a->heads * a->head_dim;
    for (int h = 0; h < a->heads; h++) {
        const int at = h * a->head_dim;
        float s[EK_NEAR_MAX_SPAN + W];
        for (int j = 0; j < W; j++) s[n + j] = 0; /* zeros, so that nothing behind the end counts */
        for (int j = 0; j < n; j++) {
            vf lane[LANE_VECS];
            for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
            add_products(lane, q + at, k + (lo + j) * ld + at, a->head_dim);
            add_products(lane, q + at, a->rel + (ptrdiff_t)(n - 1 - j) * width + at, a->head_dim);
            s[j] = v_add_lanes(lane);
        }
        weigh(s, n, a->cap);
        for (int d = at, m; d < at + a->head_dim; d += W) {
            vf sum = v_zero();
            m = at + a->head_dim - d < W ? at + a->head_dim - d : W;
            for (int j = 0; j < n; j++) sum = v_fma(v_set1(s[j]), v_load_part(v + (lo + j) * ld + d, m), sum);
            v_store_part(o + d, sum, m);
        }
    }
}
