// Products of Form Q for 9 to some hundred rows, of one matrix, of two with their gate, or of q, k and v
// (mid_product.cuh).
#include "cuda/kernels/product/mid_kernels.cuh"

EK_MID_KERNELS(q4, 64)
