// The kernels of mid_product.cuh for GGUF's weights of 4 bits in groups of 32 with f16 scales.
#include "cuda/kernels/product/mid_kernels.cuh"

EK_MID_KERNELS(q4h_32, 32)
