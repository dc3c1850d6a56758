// Quantising rows, and products of Form Q for few rows (contract: ops/linear/linear.h).
#include "cuda/kernels/product/product_few.cuh"
#include "cuda/kernels/quantize.cuh"

using namespace ek;

// A warp for each group. A lane holds element lane, and in groups of 64 also lane + 32.
extern "C" __global__ void __launch_bounds__(256) ek_quantize(const __grid_constant__ ek_cuda_quantize_args a)
{
    const ek_cuda_acts &to = a.to;
    const int lane = threadIdx.x % 32, g = blockIdx.x * 8 + threadIdx.x / 32, row = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (g * to.a_group >= to.k) return;
    const float *x = (const float *)a.x + row * a.ldx;
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = g * to.a_group + lane + i * 32;
        v[i] = lane + i * 32 < to.a_group && at < to.k ? x[at] : 0;
    }
    quantize_group(to, row, g, v);
}

#define FEW(BITS, LIMBS, A, OCT)                                                                     \
    extern "C" __global__ void __launch_bounds__(A<64 || OCT> 1 ? 512 : 768, 1)                      \
        ek_product_q##BITS##_l##LIMBS##_a##A##_o##OCT(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                                \
        few<BITS, LIMBS, A, OCT>(a, blockIdx.y * (OCT * 8 / LIMBS),                                  \
                                 [&](int r) { return (const uint8_t *)a.x.q + r * a.x.ldq; });       \
    }
#define FEW_OF(BITS, A) FEW(BITS, 1, A, 1) FEW(BITS, 1, A, 2) FEW(BITS, 2, A, 1) FEW(BITS, 2, A, 2) FEW(BITS, 2, A, 4)
FEW_OF(4, 64)
FEW_OF(8, 64)
FEW_OF(4, 32)
FEW_OF(8, 32)
FEW_OF(8, 16)
