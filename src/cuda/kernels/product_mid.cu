// Products of Form Q for 9 to some hundred rows, of one matrix or of two with their gate (product_mid.cuh).
#include "cuda/kernels/product_mid.cuh"

using namespace ek;

#define MID(LIMBS, OCT)                                                                                               \
    extern "C" __global__ void __launch_bounds__(128, 3) ek_product_mid_q4_l##LIMBS##_o##OCT(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                                                 \
        mid<LIMBS, OCT>(a, blockIdx.x);                                                                                           \
    }
MID(1, 1)
MID(1, 2)
MID(1, 4)
MID(2, 1)
MID(2, 2)
MID(2, 4)

#define GATE(OCT)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, 3) ek_product_mid_gate_q4_l1_o##OCT(const __grid_constant__ ek_cuda_leaf_args p) \
    {                                                                                                                 \
        mid_gate<OCT>(p);                                                                                             \
    }
GATE(1)
GATE(2)
GATE(4)

// q with one limb, k and v with two.
template <int OCT> __device__ __forceinline__ void mid_heads(const ek_cuda_leaf_heads_args &h)
{
    int block = blockIdx.x - h.q_blocks;
    if (block < 0) {
        mid<1, OCT>(h.q, blockIdx.x);
        return;
    }
    ek_cuda_linear_args a = h.k;
    if (block >= h.k_blocks) block -= h.k_blocks, a.codes = h.v_codes, a.scales = h.v_scales, a.y = h.v;
    mid<2, OCT>(a, block);
}

#define HEADS(OCT)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(128, 3) ek_product_mid_heads_q4_o##OCT(const __grid_constant__ ek_cuda_leaf_heads_args h) \
    {                                                                                                                 \
        mid_heads<OCT>(h);                                                                                            \
    }
HEADS(1)
HEADS(2)
HEADS(4)
