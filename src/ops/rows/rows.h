/* Row-wise operators: norms, rotation, gates, sums, clamps. Rows are independent: the bits of a
 * row depend on nothing but that row. Elements are f32 and contiguous; n counts elements. Nothing here can fail.
 *
 * Sum over one row: blocks of 256 elements from 0; lane l of 16 takes elements l, l + 16, …
 * in ascending order (a_l = fma(x, x, a_l) for squares, a_l + x for plain sums), lanes are
 * added 8, 4, 2, 1 apart; blocks by T. A short block omits absent terms. NUMERICS.md 4. */
#ifndef EK_OPS_ROWS_H
#define EK_OPS_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ek_row_ops {
    /* y = (x * r) * w, r = 1 / sqrt(ss / n + eps); w NULL: y = x * r. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, int n, float eps);
    /* h += y element by element */
    void (*add)(float *h, const float *y, int n);
    /* x *= s */
    void (*scale)(float *x, float s, int n);
    /* y[i] = gelu_tanh(g[i]) * u[i]; y may be g */
    void (*gelu_mul)(float *y, const float *g, const float *u, int n);
    /* x[i] = cap * tanh(x[i] / cap); the division is correctly rounded */
    void (*soft_cap)(float *x, float cap, int n);
    /* Rotates one head in place: pairs (j, j + half), j < rotated; table holds cos[j], sin[j].
     * x0' = fma(-x1, s, x0 * c), x1' = fma(x0, s, x1 * c). */
    void (*rope)(float *x, const float *cos, const float *sin, int half, int rotated);
    /* y = fma(a, x, y): experts' outputs, ascending expert id */
    void (*axpy)(float *y, float a, const float *x, int n);
    /* (a[i] + b[i]) * s: the per-layer inputs */
    void (*add_scale)(float *y, const float *a, const float *b, float s, int n);
    /* index of the largest element; ties go to the lowest index; NaN never wins; 0 if all are NaN */
    int (*argmax)(const float *x, int n);
    /* sum of exp(x[i] - top) over a row, the total for top-p without top-k: ek_exp of each
     * difference, added as the plain sum above. x[i] <= top; -inf adds +0. */
    float (*sum_exp)(const float *x, int n, float top);
    /* y[i] = x[i] within [lo, hi]: m = lo > x ? lo : x, y = hi < m ? hi : m, so that a NaN and the sign of a zero stay;
     * y may be x */
    void (*clamp)(float *y, const float *x, float lo, float hi, int n);
    /* m = sum of x / n, d = x - m, r = 1 / sqrt(ss of d / n + eps), y = (d * r) * w, with b y = fma(d * r, w, b); b may
     * be NULL; y may be x. Formula: torch.nn.LayerNorm */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    /* y[i] = a[i] * sigmoid(g[i]), silu where a is g: t = exp(-|g|), (a * (g < 0 ? t : 1)) / (1 + t); y may be a or g.
     * Formula: torch.nn.functional.glu, silu */
    void (*sigmoid_mul)(float *y, const float *a, const float *g, int n);
    /* y[i] = fma(w[i], x[i], y[i]): a tap of a convolution that keeps channels apart */
    void (*mul_add)(float *y, const float *w, const float *x, int n);
    /* y[i] *= w[i] */
    void (*mul)(float *y, const float *w, int n);
} ek_row_ops;

void ek_row_init(ek_row_ops *ops, unsigned cpu);
void ek_row_table_avx2(ek_row_ops *ops);
void ek_row_table_avx512(ek_row_ops *ops);

/* prob = softmax(x) over n: e_i by ek_exp relative to the maximum, sum by the row sum above,
 * one division each. For the router and for logprobs; scalar everywhere. */
void ek_softmax(float *prob, const float *x, int n);

/* The k largest of x, k <= n (value descending, index ascending): ids and values in that order.
 * O(n log k). x holds no NaN. */
void ek_top_k(const float *x, int n, int k, int32_t *id, float *value);

/* RoPE frequencies: f[j] for j < rotated, default (partial 1): theta^(-2j/dim); proportional: the
 * same divisor dim for the first int(partial * dim / 2) pairs, the rest do not rotate. Returns
 * the number of rotated pairs. In the steps of transformers, each rounded to float32: the exponent
 * 2j/dim, theta^exponent (from float64), 1 over it, divided by factor (1 changes nothing).
 * Formula: transformers, modeling_rope_utils.py, default and proportional parameters. */
int ek_rope_frequencies(float *f, int dim, double theta, double partial, double factor);
/* cos/sin rows for pos: angle = (float)pos * f[j] in float32, then cos and sin of it. */
void ek_rope_row(float *cos, float *sin, const float *f, int rotated, int pos);

#endif
