// The same for GGUF's weights of 4 bits in groups of 32 with f16 scales (product_mid.cuh).
#include "cuda/kernels/product/product_mid.cuh"

EK_MID_KERNELS(q4h_32, 32)
