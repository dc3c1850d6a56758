/* Products that linear.c compares and linear_speed.c times. */
#ifndef EK_TESTS_CUDA_LINEAR_H
#define EK_TESTS_CUDA_LINEAR_H

#include "cuda/model_args.h"
#include "product.h"

extern const char *gguf; /* a type of GGUF, which decides bits, group, a_group and biased of a shape; NULL: MLX's */
/* Form Q by one family of kernels, then Form F, to measure which wins. */
typedef enum family {
    BY_UNITS,
    BY_TILES,
    BY_WARPS,
    BY_WIDE,
    BY_MID,
    BY_SHORT,
    BY_FEW_FLOATS,
    BY_MANY_FLOATS,
    BY_MANY_PARTS,
    BY_OTHER /* what a Vulkan device gets with matrices if this has none, and the other way round */
} family;
extern int by_kernel; /* a family: products are prepared by it; -1: by what the plan chooses */

typedef struct product {
    dev *d;
    ek_cuda_linear l;
    ek_cuda_product plan;
    ek_cuda_linear_args a;
    ek_cuda_kernel kernel, join, arrange;
    ek_cuda_arrange_args r; /* image 0: none */
    ek_cuda_join_args j;    /* parts 0: none */
    CUdeviceptr weights;
    size_t copies; /* of the weights, for timings */
} product;

/* Of weights at `weights` for rows at x, floats or quantised (acts), to y with 3 columns to spare; finish drops its
 * memory. */
void prepare(product *p, dev *d, const ek_cuda_linear *l, CUdeviceptr weights, const ek_cuda_acts *acts, CUdeviceptr x,
             int rows, CUdeviceptr y);
void run_product(product *p);
void finish(dev *d, product *p);

#endif
