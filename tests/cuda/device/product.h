/* Weights and rows for tests of products (linear.c). */
#ifndef EK_TESTS_CUDA_PRODUCT_H
#define EK_TESTS_CUDA_PRODUCT_H

#include "cuda/product/product.h"
#include "dev.h"
#include "ops/linear/linear.h"

typedef struct shape {
    int n, k, bits, group, a_group, limbs; /* bits 0: float */
    ek_dtype scales;                       /* or the float type */
    bool biased;
} shape;

/* Random weights; w->data is the caller's to free. seed: which codes. */
void open_weights(ek_linear *w, shape *s, uint64_t seed);
/* Ordinary rows with outliers, a group of zeros, a tiny one; odd: infinities and NaN as well. */
float *make_rows(int rows, int k, bool odd);
/* As the device quantises rows for w: both limbs, whatever w reads. */
void quantize_both(dev *d, ek_acts *acts, const ek_linear *w);
void device_quantize(dev *d, const ek_cuda_acts *to, CUdeviceptr x, int rows);
/* Every byte of quantised rows. */
void compare_rows(dev *d, const ek_acts *want, const ek_cuda_acts *acts, int rows, const char *name);

#endif
