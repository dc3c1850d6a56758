// A layer with experts in groups of 32 whose router has floats, for few rows: as experts.cu, by warp.cuh
// (cuda/model_args.h; contracts: ops/linear/linear.h, src/model/moe.c).
#include "cuda/kernels/choose.cuh"
#include "cuda/kernels/product/panel_f.cuh"
#include "cuda/kernels/product/warp.cuh"

using namespace ek;

typedef weight_format<4, 32, SCALES_F16> q4_0;

template <int ROWS> __device__ __forceinline__ void first(const ek_cuda_experts_first_args &a)
{
    const int block = blockIdx.x - a.choose.router_blocks, panel = blockIdx.x % a.route_panels;
    if (block >= a.gate_blocks) {
        let_next_start();
        choose(a.choose);
    } else if (block >= 0) {
        warps<q4_0, 1, ROWS, false>(a.gate, block, a.gate_blocks, 0);
    } else { // a row and a panel each
        const uint8_t *const weights = panel_at<FLOAT>(a.router, panel);
        for (int64_t i = threadIdx.x * 128; i < panel_bytes<FLOAT>(a.router.x.k); i += blockDim.x * 128)
            prefetch_line(weights + i);
        panel_of_row(a.router, panel, blockIdx.x / a.route_panels);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd((int *)a.choose.ended, 1);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_experts_first_q4h_32_r4(const __grid_constant__ ek_cuda_experts_first_args a)
{
    first<4>(a);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_experts_first_q4h_32_r8(const __grid_constant__ ek_cuda_experts_first_args a)
{
    first<8>(a);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_experts_second_q4h_32_r4(const __grid_constant__ ek_cuda_experts_second_args a)
{
    const int all = a.down_blocks * a.down_tiles, experts = (int)blockIdx.x >= all;
    const int block = blockIdx.x - (experts ? all : 0), blocks = experts ? a.gate_blocks : a.down_blocks;
    warps<q4_0, 1, 4, true>(a.part[experts], block % blocks, blocks, block / blocks);
}
