/* Operators on tensor views. Errors and threads: evenkeel.h. Each operator has a page: docs/OPS.md.
 * The order of every addition: docs/NUMERICS.md.
 *
 * Guarantees, each checked by a test:
 *   rows        An output row has the same bits for any number of rows in the call, any order of
 *               rows, any batch, broadcast and strides, packed or not, any number of threads and
 *               any instruction set.
 *   masks       Attention without a mask, with an all-true mask, with an additive mask of zeros and
 *               over a left-padded sequence under a boolean mask agrees bit for bit, whatever the
 *               padding holds (NaN and infinity included).
 *   empty rows  The result of a query without a visible key is zeros.
 *   excluded    Keys and values that a mask or a length excludes enter no addition.
 *   views       Strides may have any sign and may be zero. A view that a kernel cannot read in place
 *               is copied first. An output may share memory with an input.
 *
 * Not guaranteed: the payload and the sign of a NaN. */
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
    EK_TYPE_U8,   /* scales of the fp modes, codes, booleans (0 is false) */
    EK_TYPE_U32,  /* packed codes, indices */
    EK_TYPE_COUNT
} ek_type;

enum { EK_VIEW_DIMS = 8 };

/* A tensor in the caller's memory, which stays the caller's. Element (i0, i1, …) lies
 * i0 * stride[0] + i1 * stride[1] + … elements from data. data needs no alignment. Strides of inputs
 * may be 0 (broadcast) or negative; the elements of an output must not share memory. */
typedef struct ek_view {
    void *data; /* element (0, 0, …); may be NULL if the tensor has no elements */
    ek_type type;
    int n_dims;                   /* 0 to EK_VIEW_DIMS; 0: a scalar */
    int64_t dim[EK_VIEW_DIMS];    /* outermost first; 0 is allowed */
    int64_t stride[EK_VIEW_DIMS]; /* in elements */
} ek_view;

/* Dense row-major views. They cannot fail: an invalid shape is reported by the operator that receives the view. */
EK_API ek_view ek_view_dense(void *data, ek_type type, int n_dims, const int64_t *dim);
EK_API ek_view ek_view_1d(void *data, ek_type type, int64_t a);
EK_API ek_view ek_view_2d(void *data, ek_type type, int64_t a, int64_t b);
EK_API ek_view ek_view_3d(void *data, ek_type type, int64_t a, int64_t b, int64_t c);
EK_API ek_view ek_view_4d(void *data, ek_type type, int64_t a, int64_t b, int64_t c, int64_t d);

/* Other views of the same memory. A negative axis counts from the end (-1 is the last). If the axis or the
 * range does not exist, the result has n_dims = -1 and every operator refuses it. */
EK_API ek_view ek_view_slice(ek_view v, int axis, int64_t from, int64_t to); /* indices [from, to) of an axis */
EK_API ek_view ek_view_swap(ek_view v, int axis_a, int axis_b);              /* transposes two axes */
EK_API ek_view ek_view_expand(ek_view v, int axis, int64_t n); /* stretches an axis of length 1 to n, stride 0 */
EK_API ek_view ek_view_insert(ek_view v, int axis);  /* adds an axis of length 1 before axis; -1: at the end */
EK_API ek_view ek_view_reverse(ek_view v, int axis); /* reverses the order of an axis */

/* Copies `from` to `to`, element by element; shapes must be equal. Converts between f32, f16 and bf16, rounding
 * to nearest even; other types must be equal. */
EK_API ek_status ek_copy(ek_view to, ek_view from);

/* ------------------------------------------------------------------ quantised tensors */

typedef enum ek_quant_mode {
    EK_AFFINE, /* MLX: value = scale * code + bias; 2, 3, 4, 5, 6 or 8 bits; groups of 32, 64 or 128 */
    EK_MXFP4,  /* E2M1 elements, groups of 32, E8M0 scales */
    EK_MXFP8,  /* E4M3 elements, groups of 32, E8M0 scales */
    EK_NVFP4   /* E2M1 elements, groups of 16, E4M3 scales, optionally one f32 scale for the whole tensor */
} ek_quant_mode;

/* A quantised tensor [..., R, C] in MLX's layout: groups run along the last axis.
 *   codes   [..., R, C * bits / 32] of u32, or [..., R, C * bits / 8] of u8: element i of a row is
 *           bits [i bits, (i + 1) bits) of the row's little-endian bit string
 *   scales  [..., R, C / group]: f32, f16 or bf16 (affine), u8 (fp modes)
 *   biases  like scales (affine); ignored otherwise
 * The value of an element, in f32: affine fma(scale, code, bias); fp modes (element * scale) * global,
 * where global is global_scale / 2688, or 1 if global_scale is 0. A global_scale that is negative or not finite, or not
 * 0 in another mode than EK_NVFP4, is EK_BAD_ARGUMENT. */
typedef struct ek_qview {
    ek_quant_mode mode;
    int bits, group; /* 0: 4 bits and groups of 64 for EK_AFFINE, the mode's own for the others */
    ek_view codes, scales, biases;
    float global_scale; /* EK_NVFP4 only; 0: none */
} ek_qview;

/* Quantises x [..., R, C] into the views of q, which the caller lays out with the shapes above. C must be a
 * multiple of the group. Codes are chosen in f32 from the exact value of each element; scales are then rounded
 * to their type. EK_AFFINE follows MLX's CPU rule; fp modes take the scale whose exponent is nearest in the
 * logarithm and round elements to nearest even. The rule in full: docs/ops/quantize.md. */
EK_API ek_status ek_quantize(const ek_qview *q, ek_view x);

/* Writes the values of q to y [..., R, C], f32, f16 or bf16, each rounded once to that type. */
EK_API ek_status ek_dequantize(ek_view y, const ek_qview *q);

/* ------------------------------------------------------------------ products
 *
 * y[m][n] = sum over k of x[m][k] * W(n, k), where w is [N, K] if transpose (the layout of
 * torch.nn.Linear) and [K, N] if not. x is [..., M, K] or [K]; y is [..., M, N] or [N]. Leading dims of x and
 * w broadcast by numpy's rule; a w of two dims is shared by all rows. y must have exactly the broadcast shape;
 * its type is f32, f16 or bf16 (one rounding). M, N or K may be 0.
 *
 * The sum: k is cut into blocks of 256 from 0; a block is one chain of fma in ascending k from +0 over the
 * exact f32 values; blocks are added by the fixed tree T (docs/NUMERICS.md 2). So a quantised product equals,
 * bit for bit, the product with the f32 output of ek_dequantize. */

typedef enum ek_precision {
    EK_EXACT, /* the sum above */
    /* The other forms are faster and give other bits, with the same guarantees. They need affine, transposed
     * weights. Choose one form per program, not per call. Accuracy: docs/ops/quantized_matmul.md.
     *
     * EK_INT16, EK_INT8 are the engine's forms: activations are rounded to integers, in units of their group's
     * largest magnitude / 32512 or / 127. A group has 32 activations if the weights' groups have 32, else 64. */
    EK_INT16,
    EK_INT8,
    /* EK_BFLOAT16: products of bf16 numbers, sums in f32 (Form B, docs/numerics/bf16.md); x is rounded to bf16. */
    EK_BFLOAT16
} ek_precision;

EK_API ek_status ek_matmul(ek_view y, ek_view x, ek_view w, bool transpose);
EK_API ek_status ek_quantized_matmul(ek_view y, ek_view x, const ek_qview *w, bool transpose, ek_precision precision);

/* Products by index, for mixtures of experts: entry i of y [...I..., M, N] is matrix lhs[i] of x times matrix
 * rhs[i] of w. lhs and rhs are u32 views that index the flattened leading dims of x and of w; they broadcast
 * against each other to [...I...]. NULL stands for 0, 1, 2, … in the shape of those leading dims. An index out
 * of range is an error. */
EK_API ek_status ek_gather_qmm(ek_view y, ek_view x, const ek_qview *w, const ek_view *lhs, const ek_view *rhs,
                               bool transpose, ek_precision precision);

/* A weight matrix of two dims, rearranged once for many products: the same bits, faster. Affine transposed
 * weights stay quantised; others are kept as f32, f16 or bf16, whichever holds them exactly. ek_pack* copies
 * the weights; *out belongs to the caller until ek_packed_free, and is NULL after a failure. A packed matrix is
 * read-only and may be shared by threads. */
typedef struct ek_packed ek_packed;
EK_API ek_status ek_pack(ek_packed **out, ek_view w, bool transpose);
EK_API ek_status ek_pack_quantized(ek_packed **out, const ek_qview *w, bool transpose);
EK_API void ek_packed_free(ek_packed *w);          /* NULL is allowed */
EK_API size_t ek_packed_bytes(const ek_packed *w); /* bytes of its weights */
EK_API ek_status ek_packed_matmul(ek_view y, ek_view x, const ek_packed *w, ek_precision precision);

/* ------------------------------------------------------------------ attention */

typedef struct ek_sdpa_options {
    float scale;              /* of scores, multiplied into q in f32. 0: 1 / sqrt(D) */
    bool causal;              /* only keys j <= i + kL - qL are visible to query i */
    int64_t window;           /* > 0: only keys j > i + kL - qL - window are visible; 0: no window */
    const ek_view *mask;      /* NULL, or broadcastable to [B, H, qL, kL]: u8 (0 hides), or f32, f16 or bf16,
                                 added to the score (<= -1e30 hides) */
    const int64_t *key_start; /* NULL, or B absolute positions of key 0; keys at negative positions are padding.
                                 NULL with a mask: the leading keys that the mask hides from every query of b
                                 are padding */
    const float *sinks;       /* NULL, or H attention sinks: scores that take part in the softmax without a value */
    ek_precision precision;   /* EK_EXACT, or EK_BFLOAT16 if q, k and v are bf16 (weights are rounded to bf16
                                 before they are multiplied with the values) */
} ek_sdpa_options;

/* y [B, H, qL, D] = softmax(scale q k^T + mask) v, for q [B, H, qL, D] and k, v [B, Hkv, kL, D], where H is a
 * multiple of Hkv and D is 1 to 512; each tensor is f32, f16 or bf16. options NULL: all defaults. A key is
 * visible if causal, window, mask and padding all allow it. ek_sdpa_quantized takes k and v as quantised tensors
 * along D; its result equals ek_sdpa's over their f32 values.
 *
 * A query's result: segments of 256 keys by absolute position, in each exponentials relative to the segment's
 * largest exponent (an integer), segments added by the tree T with power-of-two factors. docs/ops/sdpa.md.
 * EK_BFLOAT16 gives other bits with the same guarantees. If a sliding window is given as a boolean mask for a
 * single query, pass key_start as well: such a mask does not say where the sequence begins. */
EK_API ek_status ek_sdpa(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *options);
EK_API ek_status ek_sdpa_quantized(ek_view y, ek_view q, const ek_qview *k, const ek_qview *v,
                                   const ek_sdpa_options *options);

/* ------------------------------------------------------------------ rows */

/* RMS norm of each row: y[..., i] = (x[..., i] * r) * w[i], r = 1 / sqrt(mean of squares + eps). w is [N], or
 * NULL for ones. */
EK_API ek_status ek_rms_norm(ek_view y, ek_view x, const ek_view *w, float eps);

typedef struct ek_rope_options {
    int64_t dims;             /* the first `dims` elements of a row form pairs; even. 0: all */
    int64_t pairs;            /* the first `pairs` of the dims / 2 pairs are rotated. 0: all */
    bool interleaved;         /* pairs are (2j, 2j + 1) instead of (j, j + dims / 2) */
    double theta;             /* the angle of pair j at position p is p * theta^(-2j / dims). 0: 10000 */
    double factor;            /* divides the angles. 0: 1 */
    int64_t position;         /* of row 0; 0 to 2^31 - 1 - L */
    const int64_t *positions; /* NULL, or one position per index of the first axis, used instead of `position` */
} ek_rope_options;

/* Rotary position embedding: y is x [..., L, D] with row l rotated to position + l. */
EK_API ek_status ek_rope(ek_view y, ek_view x, const ek_rope_options *options);

#ifdef __cplusplus
}
#endif
#endif
