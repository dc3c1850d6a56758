/* The formats that matrices are written in, and the way from float32 to their bytes.
 *
 * A row is a sequence of blocks. Block formats (GGUF) have one plane; MLX affine has three: codes, scales, biases.
 * Which codes a block gets is a function of its own values alone, so neither threads nor the order of work change a
 * byte. i32 and i64 hold the token ids of a drafter's ordering. Rounding is to nearest. Scales are found as the
 * functions below say. */
#ifndef EK_CONVERT_TARGET_H
#define EK_CONVERT_TARGET_H

#include "ops/weights/weight_type.h"

#include <stdbool.h>

enum { EK_TARGET_PLANES = 3 };

/* Writes n values, whole blocks, to the planes. search: by trying several scales, slower and closer. */
typedef void ek_target_put_fn(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search);

typedef struct ek_target {
    const char *name;                    /* the weight type's: "q4_k", "q4.64", "bf16" */
    const char *dtype[EK_TARGET_PLANES]; /* in safetensors; NULL: only in GGUF */
    int ggml;                            /* type number in GGUF; -1: only in safetensors */
    int file_type;                       /* general.file_type of a file of mostly this */
    int bits, group;                     /* MLX affine; otherwise 0 */
    int block;                           /* values per block */
    uint16_t bytes[EK_TARGET_PLANES];    /* per block */
    float max;                           /* maximum magnitude of a value; 0: any finite one */
    ek_target_put_fn *put;
} ek_target;

/* The format of that name; NULL if there is none. MLX affine is "q4.64" and so on, with BF16 scales. */
const ek_target *ek_target_find(const char *name);

static inline size_t ek_target_row_bytes(const ek_target *t, int plane, int k)
{
    return (size_t)(k / t->block) * t->bytes[plane];
}

/* Whether the bytes of w are already in the format t. */
bool ek_target_holds(const ek_target *t, const ek_weight_data *w);

/* Quantisers: blocks of float32 values to the bytes of a format. Deterministic C without contraction, the same on every
 * machine; a block depends on its own values only.
 *
 * Layouts: ggml, ggml-common.h. Decoding is that of ops/weights/weight_type.h, and every choice here is made by the
 * squared error of the decoded values, with scales as they are stored (rounded to half precision). */

ek_target_put_fn ek_put_q4_0, ek_put_q4_1, ek_put_q5_0, ek_put_q5_1, ek_put_q8_0, ek_put_iq4_nl, ek_put_mxfp4;
ek_target_put_fn ek_put_q2_k, ek_put_q3_k, ek_put_q4_k, ek_put_q5_k, ek_put_q6_k, ek_put_iq4_xs;

extern const float ek_iq4_table[16]; /* of IQ4_NL and IQ4_XS */

/* --- the search for scales, shared by the quantisers. n is a multiple of 8, at most EK_SEARCH_MAX. Codes are whole
 * numbers in float. half: scales and biases are rounded to half precision, and errors are those of the rounded ones.
 * --- */

enum { EK_SEARCH_MAX = 64, EK_TABLE_CODES = 16 };

/* x rounded to the nearest whole number, ties to even, within [lo, hi]; the bounds are below 2^22. */
static inline float ek_nearest(float x, float lo, float hi)
{
    x = x < lo ? lo : x > hi ? hi : x;
    return (x + 12582912.0f) - 12582912.0f;
}

float ek_half(float x); /* rounded to half precision */

/* Each ek_try: the nearest codes for a scale, and the squared error of the decoded values. */

/* value = d * c, c of [-2^(bits - 1), 2^(bits - 1) - 1] */
float ek_try_symmetric(const float *x, int n, float d, int bits, float *c);
/* value = d * c + m, c of [0, 2^bits - 1], d >= 0 */
float ek_try_biased(const float *x, int n, float d, float m, int bits, float *c);
/* value = d * table[c]: table ascends */
float ek_try_table(const float *x, int n, float d, const float table[EK_TABLE_CODES], float *c);

/* The best of the tried scales. search false: the scale that puts the value of largest magnitude on the outermost code.
 * search true: several around it, of either sign, each also fitted to its codes by least squares. */
float ek_search_symmetric(const float *x, int n, int bits, bool search, bool half);
float ek_search_table(const float *x, int n, const float table[EK_TABLE_CODES], bool search, bool half);
/* The same for a scale and a bias; below: the bias is never positive. */
void ek_search_biased(const float *x, int n, int bits, bool search, bool half, bool below, float *d, float *m);

#endif
