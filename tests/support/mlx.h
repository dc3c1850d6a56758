/* Small quantised checkpoints in the MLX layout, with hashed weights. */
#ifndef EK_TESTS_SUPPORT_MLX_H
#define EK_TESTS_SUPPORT_MLX_H

#include <stdbool.h>

#include "model/config/config.h"

typedef struct mlx_opts {
    int bits, group;
    const char *prefix;          /* "model." or "language_model.model." */
    const char *scale_type;      /* "BF16", "F16" or "F32" */
    const char *other;           /* modules whose path holds this text … */
    int other_bits, other_group; /* … are stored so; 0: not quantised and "false" in config.json */
    bool f32_rest;               /* what is not quantised is F32 */
    const char *mode;            /* of all but `other`, which is affine; NULL: affine; "mxfp4" */
} mlx_opts;

/* Writes one set of weights twice: quantised into mlx_dir, and into hf_dir as the F32 values that the codes
 * stand for, in the Hugging Face layout. In exact mode both must give the same bits. */
void write_mlx(const char *mlx_dir, const char *hf_dir, const ek_config *c, const mlx_opts *o);

/* The same, and calls fn with the values that each tensor's codes stand for, by Hugging Face name. */
typedef void values_fn(void *arg, const char *name, const float *w, size_t n);
void write_mlx_values(const char *mlx_dir, const char *hf_dir, const ek_config *c, const mlx_opts *o, values_fn *fn,
                      void *arg);

#endif
