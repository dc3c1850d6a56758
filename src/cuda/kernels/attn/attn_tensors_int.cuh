// The layout of codes for attention in integers over tensors (attn_tensors_int.cu).
#pragma once

#include "cuda/kernels/int_codes.cuh"
#include "cuda/tower_args.h"

namespace ek
{

constexpr int STEP = 512;           // bytes of 8 columns by 32 inputs, both limbs
constexpr int SCALES = SEGMENT * 4; // bytes, in front of a segment's codes

// The beginnings of the codes of queries, keys and values, and the bytes of a tile of 16 queries and of a segment.
// Recomputed at each use, to save registers.
struct codes {
    int steps, blocks, padded; // of 32 dims; of 8 dims; rows
    int64_t q_bytes, k_bytes, v_bytes;
    uint8_t *q, *k, *v;
    float *q_scale;

    __device__ __forceinline__ explicit codes(const ek_cuda_tensors_int_args &a)
    {
        steps = EK_CUDA_TENSORS_INT_STEPS(a.dim), blocks = (a.dim + 7) / 8;
        padded = (a.rows + SEGMENT - 1) / SEGMENT * SEGMENT;
        q_bytes = steps * 1024, k_bytes = EK_CUDA_TENSORS_INT_K(a.dim), v_bytes = EK_CUDA_TENSORS_INT_V(a.dim);
        k = (uint8_t *)a.codes;
        v = k + a.kv_heads * (padded / SEGMENT) * k_bytes;
        q = v + a.kv_heads * (padded / SEGMENT) * v_bytes;
        q_scale = (float *)(q + a.heads * (padded / 16) * q_bytes);
    }
};

// Writes a code's limbs: the low one to byte `at`, the high one `apart` bytes later.
__device__ __forceinline__ void put_code(uint8_t *at, int apart, int code)
{
    at[0] = (uint8_t)(code & 127), at[apart] = (uint8_t)(code >> 7);
}

} // namespace ek
