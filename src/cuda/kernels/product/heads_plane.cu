// q, k and v of few rows in groups of 32 in one launch (product_plane.cuh, cuda/model_args.h).
#include "cuda/kernels/product/product_plane.cuh"

using namespace ek;

// q with Q limbs, k and v with two.
template <class F, int Q, int ROWS> __device__ __forceinline__ void heads(const ek_cuda_leaf_heads_args &h)
{
    ek_cuda_leaf_args p = {};
    int block = blockIdx.x - h.q_blocks;
    if (block < 0) {
        p.a = h.q;
        planes<F, Q, ROWS>(p, blockIdx.x, h.q_blocks, blockIdx.y);
        return;
    }
    p.a = h.k;
    if (block >= h.k_blocks) block -= h.k_blocks, p.a.codes = h.v_codes, p.a.scales = h.v_scales, p.a.y = h.v;
    planes<F, 2, ROWS>(p, block, h.k_blocks, blockIdx.y);
}

#define HEADS(NAME, BITS, Q, ROWS)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 2)                                           \
        ek_product_plane_heads_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_leaf_heads_args h) \
    {                                                                                              \
        heads<plane_format<BITS, 32, PLANE_F16>, Q, ROWS>(h);                                      \
    }
HEADS(q4h_32, 4, 1, 4)
HEADS(q4h_32, 4, 1, 8)
HEADS(q8h_32, 8, 2, 4)
HEADS(q8h_32, 8, 2, 8)
