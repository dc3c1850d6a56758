/* What a launch of ek_attn_int_DIM must know of its rings (cuda/kernels/attn/attn_int_ring.cuh). */
#ifndef EK_CUDA_ATTN_INT_ARGS_H
#define EK_CUDA_ATTN_INT_ARGS_H

/* Warps of a block; bytes of a warp's step of codes of 16 and of 8 bits; of a block's shared memory besides its rings
 * at most, for each dim and beyond. */
enum { EK_CUDA_ATTN_INT_WARPS = 8, EK_CUDA_ATTN_INT_STEP16 = 2304, EK_CUDA_ATTN_INT_STEP8 = 1280 };
enum { EK_CUDA_ATTN_INT_DIM = 52, EK_CUDA_ATTN_INT_MORE = 6656 };

#endif
