/* Small vision towers with random weights: their tensors, written as a checkpoint in several layouts, and what they
 * make of a picture in float64 by the formulas of transformers. */
#ifndef EK_TESTS_MODEL_TOWER_CASE_H
#define EK_TESTS_MODEL_TOWER_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "media/picture.h"

typedef struct tower_tensor {
    char name[128]; /* of transformers, without "model." */
    int n_dims;
    int64_t dim[4];
    float *v; /* bf16 values, exact in f16 too but for std_bias */
    size_t n;
} tower_tensor;

typedef struct tower_case {
    const char *name;
    int width, layers, heads, kv_heads, dim, inner, side, pool, positions, hidden;
    bool clips, infinite /* bounds */, standardise, unified;
    double std_bias; /* of about this size */
    /* filled by tower_make */
    tower_tensor *tensor;
    int n_tensors;
} tower_case;

void tower_make(tower_case *c);
void tower_free(tower_case *c);
const tower_tensor *tower_find(const tower_case *c, const char *name);

typedef struct tower_layout {
    const char *dtype;  /* "F32", "F16" or "BF16" */
    const char *prefix; /* before names: "model." or "" */
    const char *skip;   /* a tensor that is left out */
    const char *change; /* text of config.json that is put in place of … */
    const char *to;     /* … by this */
    int quantise_bits;  /* linears in MLX's layout: 8 (exactly) or 4; 0: floats */
    int quantise_group; /* 0: 32; else `change` must say so, too */
} tower_layout;

/* config.json and model.safetensors. */
void tower_write(const char *dir, const tower_case *c, const tower_layout *l);

/* rows x hidden, owned by the caller. */
double *tower_oracle(const tower_case *c, const ek_picture *p);

/* A picture with something in it, cut for the case. */
void tower_picture(ek_picture *p, const tower_case *c, int width, int height, int budget);

#endif
