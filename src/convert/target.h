/* The formats that matrices are written in, and the way from float32 to their bytes.
 *
 * A row is a sequence of blocks. Block formats (GGUF) have one plane; MLX affine has three: codes, scales, biases.
 * Which codes a block gets is a function of its own values alone, so neither threads nor the order of work change a
 * byte. i32 and i64 hold the token ids of a drafter's ordering. Rounding is to nearest; how scales are found stands in
 * quantise.h. */
#ifndef EK_CONVERT_TARGET_H
#define EK_CONVERT_TARGET_H

#include "ops/weights/weight_type.h"

enum { EK_TARGET_PLANES = 3 };

/* Writes n values, whole blocks, to the planes. search: by trying several scales, slower and closer. */
typedef void ek_target_put_fn(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search);

typedef struct ek_target {
    const char *name;                    /* the weight type's: "q4_k", "q4.64", "bf16" */
    const char *dtype[EK_TARGET_PLANES]; /* in safetensors; NULL: only in GGUF */
    int ggml;                            /* type number in GGUF; -1: only in safetensors */
    int file_type;                       /* general.file_type of a file of mostly this */
    int bits, group;                     /* MLX affine; 0 else */
    int block;                           /* values */
    uint16_t bytes[EK_TARGET_PLANES];    /* of a block */
    float max;                           /* of a value's magnitude that can be written; 0: any finite one */
    ek_target_put_fn *put;
} ek_target;

/* The format of that name; NULL if there is none. MLX affine is "q4.64" and so on, with BF16 scales. */
const ek_target *ek_target_find(const char *name);

static inline size_t ek_target_row_bytes(const ek_target *t, int plane, int k)
{
    return (size_t)(k / t->block) * t->bytes[plane];
}

/* Whether the bytes of w are already those of t. */
bool ek_target_holds(const ek_target *t, const ek_weight_data *w);

#endif
