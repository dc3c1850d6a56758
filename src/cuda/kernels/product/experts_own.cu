// A layer with experts in groups of 32 and a router of floats, for few rows: like experts.cu, by warp.cuh
// (cuda/model_args.h; contracts: ops/linear/linear.h, src/model/moe.c).
#include "cuda/kernels/choose.cuh"
#include "cuda/kernels/product/product_f.cuh"
#include "cuda/kernels/product/warp.cuh"

using namespace ek;

typedef weight_format<4, 32, SCALES_F16> q4_0;

// Row `row` of x by panel `number` of a, in floats: half a warp is a leaf, a lane one output of it.
static __device__ __forceinline__ void panel_of_row(const ek_cuda_linear_args &a, int number, int row)
{
    EK_DYNAMIC_SHARED(float, leaf); // [leaf][16]
    const int tid = threadIdx.x, o = tid % 16, k = a.x.k, leaves = (k + BLOCK - 1) / BLOCK;
    const float *const panel = (const float *)panel_at<FLOAT>(a, number), *const x = (const float *)a.f + row * a.ldf;
    let_next_start();
    // 16 inputs at a time: lane o has their weights for output o, and element o of the row, which all lanes need
    for (int l0 = 0; l0 < leaves; l0 += blockDim.x / 16) {
        const int l = l0 + tid / 16, end = l < leaves ? min(k, (l + 1) * BLOCK) : 0;
        float sum = 0, w[16], next_w[16], v, next_v;
        // not under a condition, because each load would be waited for; loads after the end are unused
        auto load_weights = [&](int i) {
#pragma unroll
            for (int j = 0; j < 16; j++) next_w[j] = panel[(int64_t)min(i + j, k - 1) * 16 + o];
        };
        load_weights(l * BLOCK);
        if (l0 == 0) wait_for_previous();
        next_v = x[min(l * BLOCK + o, k - 1)];
#pragma unroll 1
        for (int i = l * BLOCK; __any_sync(~0u, i < end); i += 16) {
#pragma unroll
            for (int j = 0; j < 16; j++) w[j] = next_w[j];
            v = next_v;
            const int next = i + 16 < (l + 1) * BLOCK ? i + 16 : k;
            load_weights(next);
            next_v = x[min(next + o, k - 1)];
#pragma unroll
            for (int j = 0; j < 16; j++) {
                float xj = __shfl_sync(~0u, v, j, 16);
                if (i + j < end) sum = fma_(xj, w[j], sum);
            }
            if (i + 16 >= (l + 1) * BLOCK) break; // for both halves of the warp at the same time
        }
        if (l < leaves) leaf[l * 16 + o] = sum;
    }
    __syncthreads();
    const int out = number * 16 + o;
    if (tid < 16 && row < a.rows && out < a.n)
        ((float *)a.y)[row * a.ldy + out] = tree_sum([&](int i) { return leaf[i * 16 + tid]; }, leaves);
}

template <int ROWS> __device__ __forceinline__ void first(const ek_cuda_experts_first_args &a)
{
    const int block = blockIdx.x - a.choose.router_blocks, panel = blockIdx.x % a.route_panels;
    if (block >= a.gate_blocks) {
        let_next_start();
        choose(a.choose);
    } else if (block >= 0) {
        warps<q4_0, 1, ROWS, false>(a.gate, block, a.gate_blocks, 0);
    } else { // a row and a panel for each block
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
