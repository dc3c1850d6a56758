/* Constants for launches of ek_product_*_many (kernels/product/product_many.cu): blocks per multiprocessor, threads,
 * rows and outputs of a tile, shared memory. Arguments: ek_cuda_linear_args. */
#ifndef EK_CUDA_MANY_H
#define EK_CUDA_MANY_H

enum {
    EK_CUDA_MANY_BLOCKS = 3,
    EK_CUDA_MANY_THREADS = 128,
    EK_CUDA_MANY_ROWS = 64,
    EK_CUDA_MANY_OUTPUTS = 128,
    EK_CUDA_MANY_SHARED = 25600
};

#endif
