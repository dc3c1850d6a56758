/* Operators on tensor views. See evenkeel.h for errors and threads, docs/OPS.md for a page per
 * operator, docs/NUMERICS.md for the order of every addition.
 *
 * Guarantees, each a test:
 *   rows        an output row has the same bits for any number of rows in the call, any order of
 *               them, any batch, any broadcast, any strides, packed or not, any number of
 *               threads, any instruction set
 *   masks       no mask, an all-true mask, an additive mask of zeros, and a left-padded sequence
 *               with a boolean mask agree bit for bit, whatever the padding holds (NaN, infinity)
 *   empty rows  a query that sees no key gets zeros
 *   garbage     what a mask or a length excludes never reaches an addition
 *   views       strides of any sign, zero included; a view a kernel cannot read is copied first,
 *               never misread; an output may share memory with an input */
#ifndef EVENKEEL_OPS_H
#define EVENKEEL_OPS_H

#include <stdbool.h>

#include "evenkeel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ views */

typedef enum ek_type {
    EK_TYPE_F32,
    EK_TYPE_F16,  /* IEEE binary16 */
    EK_TYPE_BF16, /* upper half of a binary32 */
    EK_TYPE_U8,   /* bytes: scales of fp modes, codes, booleans (0 is false) */
    EK_TYPE_U32,  /* words: packed codes, indices */
    EK_TYPE_COUNT
} ek_type;

enum { EK_VIEW_DIMS = 8 };

/* A tensor somewhere in the caller's memory; nothing is owned. Element (i0, i1, …) lies at
 * data + (i0 stride[0] + i1 stride[1] + …) elements. data needs no alignment. Strides may be 0
 * (broadcast) or negative in inputs; in outputs elements must not share memory. */
typedef struct ek_view {
    void *data; /* element (0, 0, …); may be NULL if there are no elements */
    ek_type type;
    int n_dims;                   /* 0 to 8; 0: one element */
    int64_t dim[EK_VIEW_DIMS];    /* outermost first; 0 is allowed */
    int64_t stride[EK_VIEW_DIMS]; /* in elements */
} ek_view;

/* Row-major and dense. Cannot fail: what is wrong is found by the operator that gets the view. */
EK_API ek_view ek_view_dense(void *data, ek_type type, int n_dims, const int64_t *dim);
EK_API ek_view ek_view_1d(void *data, ek_type type, int64_t a);
EK_API ek_view ek_view_2d(void *data, ek_type type, int64_t a, int64_t b);
EK_API ek_view ek_view_3d(void *data, ek_type type, int64_t a, int64_t b, int64_t c);
EK_API ek_view ek_view_4d(void *data, ek_type type, int64_t a, int64_t b, int64_t c, int64_t d);

/* Other views of the same memory. Axes may count from the end (-1 is the last). An axis or a
 * range that is not there gives a view with n_dims = -1, which every operator refuses. */
EK_API ek_view ek_view_slice(ek_view v, int axis, int64_t from, int64_t to);
EK_API ek_view ek_view_swap(ek_view v, int axis_a, int axis_b);
EK_API ek_view ek_view_expand(ek_view v, int axis, int64_t n); /* an axis of 1 becomes n, stride 0 */
EK_API ek_view ek_view_insert(ek_view v, int axis);            /* a new axis of 1 before axis; -1: at the end */
EK_API ek_view ek_view_reverse(ek_view v, int axis);

/* to = from, element by element, converted; shapes must be equal. Rounds to nearest even.
 * Between f32, f16 and bf16, or between equal types. */
EK_API ek_status ek_copy(ek_view to, ek_view from);

/* ------------------------------------------------------------------ quantised tensors */

typedef enum ek_quant_mode {
    EK_AFFINE, /* MLX: value = scale * code + bias; 2, 3, 4, 5, 6, 8 bits; groups of 32, 64, 128 */
    EK_MXFP4,  /* E2M1 elements, groups of 32, E8M0 scales */
    EK_MXFP8,  /* E4M3 elements, groups of 32, E8M0 scales */
    EK_NVFP4   /* E2M1 elements, groups of 16, E4M3 scales, optionally one f32 for the tensor */
} ek_quant_mode;

/* A quantised tensor [..., R, C], in the layout of MLX: groups run along the last axis.
 *   codes   [..., R, C * bits / 32] of u32, or [..., R, C * bits / 8] of u8: element i of a row is
 *           bits [i bits, (i + 1) bits) of the row's little-endian bit string
 *   scales  [..., R, C / group]: f32, f16 or bf16 (affine), u8 (fp modes)
 *   biases  like scales (affine); ignored otherwise
 * Value of an element, in f32: affine fma(scale, code, bias); fp modes (element * scale) * global,
 * where global is 1 unless global_scale > 0 (NVFP4): then global_scale / 2688. */
typedef struct ek_qview {
    ek_quant_mode mode;
    int bits, group; /* 0: 4 and 64 (affine), the mode's own otherwise */
    ek_view codes, scales, biases;
    float global_scale;
} ek_qview;

/* x [..., R, C] -> q, whose views the caller has laid out with the shapes above. C must be a
 * multiple of the group. Codes are chosen in f32 from the element's exact value, scales then
 * rounded to their type (affine: the rule of MLX on the CPU; fp: exponent nearest in the
 * logarithm, elements to nearest even). One-sided groups: docs/ops/quantize.md. */
EK_API ek_status ek_quantize(const ek_qview *q, ek_view x);

/* y [..., R, C] = the values of q, rounded once to y's type. */
EK_API ek_status ek_dequantize(ek_view y, const ek_qview *q);

/* ------------------------------------------------------------------ products
 *
 * Y[m][n] = sum over k of X[m][k] W(n, k), where w is [N, K] if transpose (the layout of
 * torch.nn.Linear) and [K, N] if not. x [..., M, K] or [K]; y [..., M, N] or [N]. If both x and w
 * have more than two dims, the leading ones broadcast against each other; a w of two dims is
 * shared by all rows. y has exactly the broadcast shape, in f32, f16 or bf16 (one rounding).
 *
 * The sum: blocks of 256 k from 0, each one chain of fma in ascending k from +0 over the exact
 * f32 values, blocks added by the fixed tree T. So a quantised product equals, bit for bit, the
 * product with ek_dequantize's f32 output. M, N or K of 0 are fine. */

typedef enum ek_precision {
    EK_EXACT, /* as above */
    /* The forms of the evenkeel engine, for speed: activations rounded per row and group of 32
     * (group 32) or 64 (64, 128), sums inside a group exact in integers. The same guarantees.
     * Affine, transposed weights only. docs/ops/quantized_matmul.md. */
    EK_INT16, /* to 1/32512 of the group's largest */
    EK_INT8,  /* to 1/127 of it */
    /* Products of bf16 numbers, two a step, sums in f32: Form B, docs/numerics/bf16.md. x is rounded
     * to bf16 where it is not; affine, transposed weights, whose codes bf16 holds exactly. */
    EK_BFLOAT16
} ek_precision;

EK_API ek_status ek_matmul(ek_view y, ek_view x, ek_view w, bool transpose);
EK_API ek_status ek_quantized_matmul(ek_view y, ek_view x, const ek_qview *w, bool transpose, ek_precision precision);

/* Rows by rows' experts: lhs and rhs (u32) index the flattened leading dims of x and of w; they
 * broadcast against each other to [...I...], and y is [...I..., M, N]. NULL: 0, 1, 2, … in the
 * shape of those leading dims. Indices out of range are an error. */
EK_API ek_status ek_gather_qmm(ek_view y, ek_view x, const ek_qview *w, const ek_view *lhs, const ek_view *rhs,
                               bool transpose, ek_precision precision);

/* A weight matrix rearranged once for many products: same bits, more speed. Two dims only.
 * Affine transposed weights stay quantised; the others are kept as f32, f16 or bf16, whichever
 * holds them exactly. A packed matrix is read-only and may be shared by threads. */
typedef struct ek_packed ek_packed;
EK_API ek_status ek_pack(ek_packed **out, ek_view w, bool transpose);
EK_API ek_status ek_pack_quantized(ek_packed **out, const ek_qview *w, bool transpose);
EK_API void ek_packed_free(ek_packed *w); /* NULL is fine */
EK_API size_t ek_packed_bytes(const ek_packed *w);
EK_API ek_status ek_packed_matmul(ek_view y, ek_view x, const ek_packed *w, ek_precision precision);

/* ------------------------------------------------------------------ attention */

typedef struct ek_sdpa_options {
    float scale;              /* of scores; folded into q in f32. 0 means 1 / sqrt(D) */
    bool causal;              /* query i sees keys j <= i + kL - qL */
    int64_t window;           /* > 0: and j > i + kL - qL - window */
    const ek_view *mask;      /* NULL, or broadcastable to [B, H, qL, kL]: u8 (0 hides) or f32, f16,
                                 bf16 added to the score (<= -1e30 hides) */
    const int64_t *key_start; /* NULL, or B entries: absolute position of key 0; keys at negative
                                 positions are padding. NULL with a mask: minus the number of
                                 leading keys that the mask hides from every query of b */
    const float *sinks;       /* NULL, or H scores that take weight and give no value */
    ek_precision precision;   /* EK_EXACT, or EK_BFLOAT16 for q, k and v in bf16: weights are rounded to bf16
                                 before they meet the values */
} ek_sdpa_options;

/* y [B, H, qL, D] = softmax(scale q k^T + mask) v, for q [B, H, qL, D] and k, v [B, Hkv, kL, D],
 * H a multiple of Hkv, D from 1 to 512; f32, f16, bf16, each its own. options NULL: all defaults.
 * ek_sdpa_quantized: k and v as quantised triples along D.
 *
 * Query row's result: segments of 256 keys by absolute position, in each one exponentials relative
 * to the segment's largest exponent (an integer), segments added by the tree T with power-of-two
 * factors. docs/ops/sdpa.md. EK_BFLOAT16: other bits, the same guarantees. A window given as a boolean
 * mask to a single query leaves open where the sequence begins: pass key_start with it. */
EK_API ek_status ek_sdpa(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *options);
EK_API ek_status ek_sdpa_quantized(ek_view y, ek_view q, const ek_qview *k, const ek_qview *v,
                                   const ek_sdpa_options *options);

/* ------------------------------------------------------------------ rows */

/* y[..., i] = (x[..., i] * r) * w[i], r = 1 / sqrt(mean of squares + eps); w [N] or NULL. */
EK_API ek_status ek_rms_norm(ek_view y, ek_view x, const ek_view *w, float eps);

typedef struct ek_rope_options {
    int64_t dims;             /* of each row that take part, even; 0: all of them */
    int64_t pairs;            /* of dims / 2 pairs that turn, from the first; 0: all of them */
    bool interleaved;         /* pairs are (2j, 2j + 1) instead of (j, j + dims / 2) */
    double theta;             /* angle of pair j at position p: p * theta^(-2j / dims); 0: 10000 */
    double factor;            /* angles are divided by it; 0: 1 */
    int64_t position;         /* of row 0, 0 to 2^31 - 1 - rows */
    const int64_t *positions; /* NULL, or one for each index of the first axis instead of position */
} ek_rope_options;

/* y = x [..., L, D] with row l turned to position + l. */
EK_API ek_status ek_rope(ek_view y, ek_view x, const ek_rope_options *options);

#ifdef __cplusplus
}
#endif
#endif
