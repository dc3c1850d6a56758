/* Small checkpoints of 4-bit and 8-bit floats, with random codes. */
#ifndef EK_TESTS_SUPPORT_MINIFLOAT_H
#define EK_TESTS_SUPPORT_MINIFLOAT_H

#include <stdbool.h>

#include "model/config/config.h"

typedef enum mini_layout {
    MINI_NVFP4_CT,       /* compressed-tensors: divides by .weight_global_scale */
    MINI_NVFP4_MODELOPT, /* multiplies with .weight_scale_2 */
    MINI_MXFP4,
    MINI_MXFP8,
    MINI_MXFP8_E5M2,
    MINI_FP8_TENSOR,
    MINI_FP8_ROW,
    MINI_FP8_GROUP, /* of 64 inputs */
    MINI_FP8_TILES, /* .weight_scale_inv of 128 x 128 */
    MINI_FP8_E5M2
} mini_layout;

typedef struct mini_opts {
    mini_layout layout;
    const char *scale_type; /* of fp8: "F32", "F16" or "BF16"; of MX: "U8" or "F8_E8M0" */
    bool single_experts;
    float global; /* of NVFP4: what multiplies, a power of two where both layouts shall hold the same */
    int fault;    /* a code or scale of one module that is no number: 1 a scale, 2 an element */
} mini_opts;

/* As write_twice (twice.h). */
void write_minifloat(const char *dir, const char *hf_dir, const ek_config *c, const mini_opts *o);

/* n weights of k to a row as MLX's mode "mxfp4", "mxfp8" or "nvfp4" stores them: codes, scales, and values. */
void mini_mlx(const char *mode, const char *name, size_t n, uint8_t *codes, uint8_t *scales, float *w);

#endif
