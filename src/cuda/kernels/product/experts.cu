// A layer with experts, for few rows. Experts and the dense MLP read the same rows, and their results meet at the
// layer's end, so the launches in between hold blocks of both (cuda/model_args.h; contracts: ops/rows/rows.h,
// src/model/moe.c).
#include "cuda/kernels/choose.cuh"
#include "cuda/kernels/product/warp.cuh"
#include "cuda/kernels/row.cuh"

using namespace ek;

// --- inputs: one sum of squares and three rows, with a block for each row, because rounding takes half of the time

constexpr int INPUTS_THREADS = EK_CUDA_STAGE_WIDTH / 8;

// ALL: for many rows, one block makes all three.
template <bool ANY, bool ALL> __device__ __forceinline__ void inputs(const ek_cuda_inputs_args &a)
{
    __shared__ float leaf[2][INPUTS_THREADS / 32];
    const int r = blockIdx.y, n = a.n, first = ALL ? 0 : blockIdx.x, end = ALL ? 3 : first + 1;
    const float *const any = (const float *)a.y_norm;
    stage_row h, y, w;
    let_next_start();
    // runs once only to fetch its code, as in ek_stage
#pragma unroll 1
    for (int real = ALL || gridDim.y > 8; real < 2; real++) {
        const int n_written = real ? n : 0;
        if (real) wait_for_previous();
        h.read(real ? (const float *)a.h + r * a.ld : any, n);
        y.read(real ? (const float *)a.y + r * a.ld : any, n);
        w.read(any, n);
        __syncthreads(); // sums of the pass before are read
        float f = y.factor(n, a.eps, leaf[0]);
#pragma unroll
        for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + y.v[i] * f * w.v[i];
        h.write((float *)a.h_out + r * a.ld, first == 0 ? n_written : 0);
        if (ALL) f = h.factor(n, a.eps, leaf[1]);
#pragma unroll 1
        for (int which = first; which < end; which++) {
            w.read((const float *)(which == 0 ? a.norm[0] : which == 1 ? a.norm[1] : a.norm[2]), n);
            if (!ALL) f = h.factor(n, a.eps, leaf[1]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float v = h.v[i] * f * w.v[i];
                w.v[i] = which == 1 ? v * a.factor : v;
            }
            const ek_cuda_acts to = which == 0 ? a.to[0] : which == 1 ? a.to[1] : a.to[2];
            const int block = threadIdx.x / 16;
            if (ANY && a.router && which == 1) w.write((float *)a.router + r * a.ld, n_written);
            if (ANY && !to.q) continue;
            if (!ANY || to.a_group == 64) quantize_block<64>(to, r, block, w.v, n_written);
            else if (to.a_group == 32) quantize_block<32>(to, r, block, w.v, n_written);
            else quantize_block<16>(to, r, block, w.v, n_written);
        }
    }
}

#define INPUTS(NAME, ANY, ALL)                                                                                       \
    extern "C" __global__ void __launch_bounds__(INPUTS_THREADS) NAME(const __grid_constant__ ek_cuda_inputs_args a) \
    {                                                                                                                \
        inputs<ANY, ALL>(a);                                                                                         \
    }
INPUTS(ek_experts_inputs, false, false)
INPUTS(ek_experts_inputs_any, true, false)
INPUTS(ek_experts_inputs_rows, false, true)
INPUTS(ek_experts_inputs_any_rows, true, true)

// --- the choice of experts

// Without a router in the same launch, whose blocks it would wait for.
extern "C" __global__ void __launch_bounds__(256) ek_choose(const __grid_constant__ ek_cuda_choose_args a)
{
    let_next_start();
    choose(a);
}

// ek_route for up to EK_CUDA_CHOOSE_EXPERTS experts: a row by a warp.
extern "C" __global__ void __launch_bounds__(32) ek_route_warp(const __grid_constant__ ek_cuda_route_args r)
{
    let_next_start();
    wait_for_previous();
    ek_cuda_choose_args a = {};
    a.route = r.route, a.expert_scale = r.expert_scale, a.weight = r.weight;
    a.ld = r.ld, a.n_experts = r.n_experts, a.top_k = r.top_k;
    choose_row(a, blockIdx.x, (int32_t *)r.expert, true);
}

#if EK_HAS_CLUSTERS // which round the dense gate's rows
template <int BITS, int OCT> __device__ __forceinline__ void first(const ek_cuda_experts_first_args &a)
{
    const int block = blockIdx.x - a.choose.router_blocks;
    if (block >= a.gate_blocks) {
        let_next_start();
        if (block == a.gate_blocks) choose(a.choose);
    } else if (block >= 0) {
        warps<affine_64<4>, 1, 8, false, false, 0, true>(a.gate, block, a.gate_blocks, 0);
    } else {
        ek_cuda_warp_args p = {};
        p.a = a.router;
        warps<affine_64<BITS>, 2, OCT * 4, false>(p, blockIdx.x % a.route_panels, a.route_panels,
                                                  blockIdx.x / a.route_panels);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd((int *)a.choose.ended, 1);
    }
}

#define FIRST(BITS, OCT)                                                                        \
    extern "C" __global__ void __launch_bounds__(512, 1)                                        \
        ek_experts_first_q##BITS##_o##OCT(const __grid_constant__ ek_cuda_experts_first_args a) \
    {                                                                                           \
        first<BITS, OCT>(a);                                                                    \
    }
FIRST(4, 1)
FIRST(4, 2)
FIRST(8, 1)
#endif

// For 8 rows, or for 4 by chunks of 512 inputs.
template <int UNITS> __device__ __forceinline__ void second(const ek_cuda_experts_second_args &a)
{
    const int all = a.down_blocks * a.down_tiles, experts = (int)blockIdx.x >= all;
    const int block = blockIdx.x - (experts ? all : 0), blocks = experts ? a.gate_blocks : a.down_blocks;
    warps<affine_64<4, UNITS>, 1, UNITS == 8 ? 4 : 8, true, UNITS == 8>(a.part[experts], block % blocks, blocks,
                                                                        block / blocks);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_experts_second_o1(const __grid_constant__ ek_cuda_experts_second_args a)
{
    second<4>(a);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_experts_second_r4(const __grid_constant__ ek_cuda_experts_second_args a)
{
    second<8>(a);
}

// --- the layer's end

// All data of a row of pairs is requested at once, EACH pairs at a time.
template <int THREADS, int EACH> __device__ __forceinline__ void experts_end(const ek_cuda_stage_args &a)
{
    __shared__ float leaf[4][THREADS / 32], pair_weight[EK_CUDA_MAX_TOP_K];
    __shared__ int32_t pair[EK_CUDA_MAX_TOP_K];
    const int r = blockIdx.x, tid = threadIdx.x, n = a.n;
    const float *const any = (const float *)a.y_norm, *const h_from = (const float *)(a.h_from ? a.h_from : a.h);
    stage_row h, y, sum, norm;
    let_next_start();
    const float scalar = a.scalar ? *(const float *)a.scalar : 1;
    if (tid < a.top_k) pair[tid] = 0, pair_weight[tid] = 0;
        // for its code, as ek_stage
#pragma unroll 1
    for (int real = gridDim.x > 16; real < 2; real++) {
        const int n_written = real ? n : 0;
        if (real && !a.known) wait_for_previous();
        if (real && tid < a.top_k) { // bypasses the cache, which may have those of an earlier layer
            pair_weight[tid] = ((const volatile float *)a.weight)[r * a.top_k + tid];
            pair[tid] = ((const volatile int32_t *)a.row_pair)[r * a.top_k + tid];
        }
        __syncthreads(); // the sums of the pass before were read, and the pairs are there
        if (real) wait_for_previous();
        h.read(real ? h_from + r * a.ld : any, n);
        y.read(real ? (const float *)a.y + r * a.ld : any, n);
        const float *const outs = real ? (const float *)a.pair_out : any;
#pragma unroll
        for (int i = 0; i < 8; i++) sum.v[i] = 0;
#pragma unroll 1
        for (int k = 0; k < a.top_k; k += EACH) {
            stage_row out[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) out[j].read(outs + pair[min(k + j, a.top_k - 1)] * a.ld, n);
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (k + j < a.top_k)
#pragma unroll
                    for (int i = 0; i < 8; i++) sum.v[i] = fma_(pair_weight[k + j], out[j].v[i], sum.v[i]);
        }
        const float f1 = y.factor(n, a.eps, leaf[0]), f2 = sum.factor(n, a.eps, leaf[1]);
        norm.read((const float *)a.norm_1, n);
#pragma unroll
        for (int i = 0; i < 8; i++) y.v[i] = y.v[i] * f1 * norm.v[i];
        norm.read((const float *)a.norm_2, n);
#pragma unroll
        for (int i = 0; i < 8; i++) y.v[i] = y.v[i] + sum.v[i] * f2 * norm.v[i];
        norm.read((const float *)a.y_norm, n);
        float f = y.factor(n, a.eps, leaf[2]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            h.v[i] = h.v[i] + y.v[i] * f * norm.v[i];
            if (a.scalar) h.v[i] = h.v[i] * scalar;
        }
        h.write((float *)a.h + r * a.ld, n_written);
        if (a.x_norm) {
            norm.read((const float *)a.x_norm, n);
            f = h.factor(n, a.eps, leaf[3]);
#pragma unroll
            for (int i = 0; i < 8; i++) h.v[i] = h.v[i] * f * norm.v[i];
        }
        if (a.x) h.write((float *)a.x + r * a.ld, n_written);
        if (!a.to.q) continue;
        if (a.to.a_group == 64) quantize_block<64>(a.to, r, threadIdx.x / 16, h.v, n_written);
        else quantize_block<32>(a.to, r, threadIdx.x / 16, h.v, n_written);
    }
}

extern "C" __global__ void __launch_bounds__(EK_CUDA_EXPERTS_WIDTH / 8)
    ek_experts_end(const __grid_constant__ ek_cuda_stage_args a)
{
    experts_end<EK_CUDA_EXPERTS_WIDTH / 8, 8>(a);
}

extern "C" __global__ void __launch_bounds__(EK_CUDA_STAGE_WIDTH / 8)
    ek_experts_end_wide(const __grid_constant__ ek_cuda_stage_args a)
{
    experts_end<EK_CUDA_STAGE_WIDTH / 8, 2>(a);
}
