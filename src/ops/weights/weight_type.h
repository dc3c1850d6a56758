/* The formats of stored weights: a format is one row of a table.
 *
 * A quantised format, whatever its bytes look like, is exactly: unsigned codes u of `bits` bits, a
 * float32 scale s per group of weights and, if it is biased, a float32 bias b per group.
 *     value = fma(s, (float)u, b)      biased
 *     value = s * (float)(u - zero)    symmetric; zero = 2^(bits - 1), 128 of a codebook
 * A codebook is such a format too: u = value + 128, s the scale.
 * Exact mode, embedding rows and packed matrices (linear.h) all read a format through this, so a
 * new format is a row and one unpack function. How formats map to it:
 *     Q4_0, Q5_0, Q8_0   symmetric, group 32, s = d
 *     Q4_1, Q5_1         biased, group 32, s = d, b = m
 *     Q4_K, Q5_K         biased, block 256, group 32, s = d * sc, b = -(dmin * m): exact in float32
 *     Q2_K               biased, block 256, group 16, as Q4_K
 *     Q3_K, Q6_K         symmetric, block 256, group 16, s = d * sc
 *     IQ4_NL, IQ4_XS     codebook, group 32, s = d, d * sc
 *     MXFP4              codebook of doubled E2M1, group 32, s = 2^(e - 128)
 *     NVFP4              codebook of doubled E2M1, group 16, s = d * sc / 256
 *     GPTQ, AWQ, pack-quantized  biased, b = -(z * s), or symmetric: ops/weights/quantised_type.h
 *     NVFP4, MXFP4, MXFP8 and fp8 of safetensors  ops/weights/quantised_type.h
 * Sources: MLX, quantized.h; ggml-common.h. Arithmetic: docs/NUMERICS.md 3. */
#ifndef EK_OPS_WEIGHT_TYPE_H
#define EK_OPS_WEIGHT_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

/* The form of a packed matrix: decides its kernel. */
typedef enum ek_wform { EK_W_F32, EK_W_F16, EK_W_BF16, EK_W_Q4, EK_W_Q8, EK_W_PLANES, EK_WFORM_COUNT } ek_wform;

/* How form PLANES stores scales and biases: ops/linear/planes.h. All rules but the last give exact float32 s and b. */
typedef enum ek_wscale {
    EK_SCALE_PLAIN, /* f16 s, and b if biased */
    EK_SCALE_E8M0,  /* s = 2^(e - 128) */
    EK_SCALE_I8,    /* s = d * sc: f16 d per block, int8 sc per group */
    EK_SCALE_U8,    /* s = d * sc, b = -(dmin * m): f16 d and dmin per block, uint8 sc and m per group */
    EK_SCALE_U4,    /* the same, sc and m in the low and high half of a byte */
    EK_SCALE_E4M3   /* s = d * h, rounded once: float32 d per output, h = E4M3 byte per group / 256, a binary16 */
} ek_wscale;

enum {
    EK_WEIGHT_PLANES = 4,   /* byte arrays a format may be spread over */
    EK_UNPACK_WEIGHTS = 512 /* weights that an unpack or load function handles per call; every block divides it */
};

struct ek_weight_data;

/* Unpacks weights [first, first + n) of a row, whole blocks: u[n], s[n / group], and b[n / group]
 * if the type is biased. n <= EK_UNPACK_WEIGHTS. u has room for 8 codes more than n. A type of form PLANES is packed
 * with s NULL: the codes alone, of a codebook its indices. */
typedef void ek_unpack_fn(const struct ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b);
/* The scales that form PLANES stores, for the block with weight `first`: d[0] and, if biased, d[1] as f16 (d and dmin,
 * or s and b of SCALE_PLAIN); for each group a byte to sc (e of E8M0, the byte of E4M3; 255 means NaN) and, only for
 * U8, one to m. */
typedef void ek_subscales_fn(const struct ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m);
/* The same as ek_unpack_fn for a float format, any range of n <= EK_UNPACK_WEIGHTS: the values, widened exactly. */
typedef void ek_load_fn(const struct ek_weight_data *w, int row, int first, int n, float *out);

typedef struct ek_weight_type {
    const char *name;           /* in the numerics id: "bf16", "q4.64" */
    ek_wform form;              /* the packed form, which decides the kernels */
    int bits, group, zero;      /* bits of a stored code; weights that share a scale. 0: a float format */
    const int8_t *book;         /* a codebook's 2^bits values c; its codes are u = c + zero. NULL: none */
    bool biased;                /* has a bias per group */
    ek_dtype stored;            /* of the elements, or of scales and biases, in the file */
    ek_dtype scale_dtype;       /* of scales and biases when packed, without rounding: BF16, F32; PLANES: F16 */
    ek_wscale scale;            /* PLANES: how they are packed */
    ek_subscales_fn *subscales; /* PLANES */
    int block;                  /* weights of the smallest unit of a row; a multiple of group */
    uint16_t block_bytes[EK_WEIGHT_PLANES]; /* of a block in each plane */
    ek_unpack_fn *unpack;                   /* exactly one of these two */
    ek_load_fn *load;
    /* ops/weights/quantised_type.h: the stored float type; NULL: `stored`. */
    const struct ek_weight_type *of;
} ek_weight_type;

/* n rows of k weights in a type's layout, in a mapped file or in memory: borrowed, at any
 * alignment, row after row in every plane.
 *   floats   plane 0: the elements
 *   MLX      planes 0, 1, 2: codes as one little-endian bit string per row, scales, biases
 *   GGUF     plane 0: blocks */
typedef struct ek_weight_data {
    const ek_weight_type *type;
    int n, k;
    int64_t row;                            /* row 0's number in the planes */
    const uint8_t *plane[EK_WEIGHT_PLANES]; /* all NULL: weights without values (synthetic models) */
    int groups; /* ops/weights/quantised_type.h: scales of a row; 1: one for the row, 0: one for the tensor */
    int across; /* ops/weights/quantised_type.h: rows of the tensor where its words lie across rows */
    float gain; /* NVFP4: the factor of all scales; 0 means 1 */
    int tile_rows, tile_k; /* fp8: rows and inputs that share a scale; 0: all */
} ek_weight_data;

/* All rows of the table. */
const ek_weight_type *ek_weight_types(int *count);
/* The first row of that name, "q4_k"; NULL if there is none. Rows of MLX share names: ek_weight_type_affine. */
const ek_weight_type *ek_weight_type_named(const char *name);
/* The type of float elements; NULL unless F32, F16 or BF16. */
const ek_weight_type *ek_weight_type_float(ek_dtype t);
/* MLX affine: 2, 3, 4, 5, 6 or 8 bits, groups of 32, 64 or 128, scales of F32, F16 or BF16; without
 * biases the same codes, symmetric. *out is static. EINVAL lists the possible values. */
ek_err ek_weight_type_affine(const ek_weight_type **out, int bits, int group, ek_dtype scales, bool biased);

size_t ek_weight_row_bytes(const ek_weight_type *t, int k); /* over all planes */

/* The address of a row in a plane, for formats whose rows lie one after the other. */
static inline const uint8_t *ek_weight_plane_row(const ek_weight_data *w, int plane, int row)
{
    return w->plane[plane] + (size_t)(w->row + row) * (size_t)(w->k / w->type->block) * w->type->block_bytes[plane];
}

/* Rows [first, first + n) of w. */
static inline ek_weight_data ek_weight_rows(const ek_weight_data *w, int64_t first, int n)
{
    ek_weight_data rows = *w;
    rows.row += first;
    rows.n = n;
    return rows;
}

/* n codes of a row of MLX's, n a multiple of 8: code i is bits [i bits, i bits + bits) of a little-endian bit string,
 * bits 2, 3, 4, 5, 6 or 8. Reads n / 8 * bits bytes. */
void ek_unpack_bits(uint8_t *u, const uint8_t *src, int n, int bits);

/* A weight's value: the only definition. */
static inline float ek_weight_value(int u, int zero, float s, bool biased, float b)
{
    return biased ? __builtin_fmaf(s, (float)u, b) : s * (float)(u - zero);
}

/* out[0..n) = the values of weights [first, first + n) of a row, in f32: any range, any type. */
void ek_weight_row(const ek_weight_data *w, int row, int first, int n, float *out);

#endif
