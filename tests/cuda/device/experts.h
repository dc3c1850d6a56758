/* A layer with experts behind attention, as the scalar definitions of ops/rows/rows.c and ops/linear/linear.c compute
 * it. */
#ifndef EK_TESTS_CUDA_EXPERTS_H
#define EK_TESTS_CUDA_EXPERTS_H

#include "product.h"

enum { ROWS = 8, MOST_EXPERTS = 128, MOST_TOP = 8, MOST_PAIRS = ROWS * MOST_TOP, NORMS = 8 };
enum { AFTER_ATTENTION, BEFORE_MLP, ROUTER, BEFORE_EXPERTS, BEHIND_MLP, BEHIND_EXPERTS, BEHIND, NEXT };
#define ROUTER_FACTOR 0.0625f
#define EPS           1e-6f

typedef struct matrix {
    ek_linear w[MOST_EXPERTS];
    ek_cuda_linear l;
    CUdeviceptr at;
} matrix;

typedef struct rows {
    float *f;
    void *mem;
    ek_acts acts;
} rows;

typedef struct layer {
    dev *d;
    int k, inter, experts, expert_inter, top, router_bits; /* 0: a router of floats */
    const char *type;                                      /* of all other matrices; NULL: MLX's 4 bits */
    matrix gate, up, down, router, expert_gate, expert_up, expert_down, next;
    float *norm[NORMS], *scale, scalar, *h, *y; /* y: o's output, then down's */
    CUdeviceptr at[NORMS], scale_at, scalar_at;
    rows in[3], gated, pair, x;                      /* in: of gate, router, experts */
    float *dense, *h_between, *out, *h_end, *weight; /* dense: down's */
    int32_t *id;
} layer;

/* The layer with the sizes of `of`, weights and ROWS rows on both sides, and what the CPU makes of them. */
layer *layer_open(dev *d, const layer *of, bool odd);
void layer_close(layer *e);
/* n rows of k floats, not set; `f` and `mem` are the caller's to free. */
void open_rows(rows *r, int n, int k);

#endif
