// Row operators (contract: ops/rows/rows.h). A row is reduced by one block of threads: a block of 256 elements
// by half a warp, whose 16 threads are the 16 lanes of the definition.
#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

using namespace ek;

constexpr int THREADS = 256, MAX_LEAVES = 2048; // rows of up to 524,288 elements

// Sum of squares (SQUARE), of elements, or of exp(x - a) over a row, everywhere in the block.
template <int KIND> __device__ __forceinline__ float row_sum(const float *x, int n, float a, float *leaf)
{
    int half = threadIdx.x / 16, lane = threadIdx.x % 16, blocks = (n + 255) / 256;
    for (int b0 = 0; b0 < blocks;
         b0 += THREADS / 16) { // the same for all threads, because the shuffles need whole warps
        int b = b0 + half;
        float sum = 0;
        if (b < blocks) {
#pragma unroll
            for (int i = 0; i < 256; i += 16) {
                int at = b * 256 + i + lane;
                if (at >= n) break;
                float v = x[at];
                if (KIND == 0) sum = fma_(v, v, sum);
                if (KIND == 1) sum = sum + v;
                if (KIND == 2) sum = sum + exp_(v - a);
            }
        }
        sum = add_lanes(sum);
        if (b < blocks && lane == 0) leaf[b] = sum;
    }
    __syncthreads();
    block_tree(leaf, blocks);
    return blocks ? leaf[0] : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_rms_norm(const __grid_constant__ ek_cuda_rows_args a)
{
    __shared__ float leaf[MAX_LEAVES];
    const float *x = (const float *)a.x + blockIdx.x * a.ldx, *w = (const float *)a.w;
    float *y = (float *)a.y + blockIdx.x * a.ldy;
    let_next_start();
    wait_for_previous();
    float ss = row_sum<0>(x, a.n, 0, leaf);
    float r = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(ss, (float)a.n) + a.a));
    for (int i = threadIdx.x; i < a.n; i += THREADS) {
        float v = x[i] * r;
        y[i] = w ? v * w[i] : v;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_row_sum(const __grid_constant__ ek_cuda_reduce_args a)
{
    __shared__ float leaf[MAX_LEAVES];
    float s = row_sum<1>((const float *)a.x + blockIdx.x * a.ldx, a.n, 0, leaf);
    if (threadIdx.x == 0) ((float *)a.out)[blockIdx.x] = s;
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_exp_sum(const __grid_constant__ ek_cuda_reduce_args a)
{
    __shared__ float leaf[MAX_LEAVES];
    float s = row_sum<2>((const float *)a.x + blockIdx.x * a.ldx, a.n, a.a, leaf);
    if (threadIdx.x == 0) ((float *)a.out)[blockIdx.x] = s;
}

// grid (any, rows). The last block of a row writes the index, so no second launch is needed.
extern "C" __global__ void __launch_bounds__(THREADS) ek_argmax(const __grid_constant__ ek_cuda_reduce_args a)
{
    const float *x = (const float *)a.x + blockIdx.y * a.ldx;
    unsigned long long *key = (unsigned long long *)a.key + 2 * blockIdx.y; // the best; blocks that came
    u64 best = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < a.n; i += gridDim.x * THREADS) {
        float v = x[i];
        if (!(v > bits(0xff800000u))) continue; // NaN and -inf never win
        u64 k = rank_key(v, (u32)i);
        best = k > best ? k : best;
    }
    best = warp_max(best);
    if (threadIdx.x % 32 == 0 && best) atomicMax(key, (unsigned long long)best);
    __threadfence();
    __syncthreads();
    if (threadIdx.x) return;
    if (atomicAdd(key + 1, 1ull) + 1 < gridDim.x) return;
    __threadfence();
    u64 k = atomicMax(key, 0ull);
    ((int32_t *)a.out)[blockIdx.y] = k ? (int32_t) ~(u32)k : 0;
}

// --- operators on elements: grid (blocks, rows)

template <class F> __device__ __forceinline__ void each(const ek_cuda_rows_args &a, F f)
{
    const float *x = (const float *)a.x + blockIdx.y * a.ldx, *w = (const float *)a.w + blockIdx.y * a.ldw;
    float *y = (float *)a.y + blockIdx.y * a.ldy;
    let_next_start();
    wait_for_previous();
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < a.n; i += gridDim.x * THREADS) y[i] = f(y, x, w, i);
}

#define EACH(name, expr)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ ek_cuda_rows_args a) \
    {                                                                                                       \
        each(a, [&](const float *y, const float *x, const float *w, int i) -> float {                       \
            (void)y, (void)x, (void)w;                                                                      \
            return expr;                                                                                    \
        });                                                                                                 \
    }

EACH(ek_add, y[i] + x[i])
EACH(ek_scale, y[i] * a.a)
EACH(ek_gelu_mul, gelu_(x[i]) * w[i])
EACH(ek_soft_cap, a.a *tanh_(__fdiv_rn(y[i], a.a)))
EACH(ek_axpy, fma_(a.a, x[i], y[i]))
EACH(ek_add_scale, (x[i] + w[i]) * a.a)

// grid (blocks, rows): one thread a pair
extern "C" __global__ void __launch_bounds__(THREADS) ek_rope(const __grid_constant__ ek_cuda_rope_args a)
{
    float *row = (float *)a.x + blockIdx.y * a.ldx;
    const float *cs = (const float *)a.cos + blockIdx.y * a.ld_table,
                *sn = (const float *)a.sin + blockIdx.y * a.ld_table;
    let_next_start();
    wait_for_previous();
    int n = a.n_heads * a.rotated;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        int head = i / a.rotated, j = i % a.rotated;
        float *x = row + (int64_t)head * a.head_dim;
        float x0 = x[j], x1 = x[j + a.half];
        x[j] = fma_(-x1, sn[j], x0 * cs[j]);
        x[j + a.half] = fma_(x0, sn[j], x1 * cs[j]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_math(const __grid_constant__ ek_cuda_math_args a)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += (int64_t)gridDim.x * THREADS) {
        float x = ((const float *)a.x)[i], y = 0;
        int n = 0;
        switch (a.which) {
        case 0: y = exp_split(x, &n); break;
        case 1: y = exp_(x); break;
        case 2: y = tanh_(x); break;
        case 3: y = ln_(x); break;
        case 4: y = gelu_(x); break;
        }
        ((float *)a.y)[i] = y;
        if (a.which == 0) ((int32_t *)a.n_out)[i] = n;
    }
}

// Reads n / 16 vectors, and prevents the compiler from leaving the reads out: the stream with which others are
// compared.
extern "C" __global__ void __launch_bounds__(THREADS) ek_read_stream(const __grid_constant__ ek_cuda_math_args a)
{
    const uint4 *x = (const uint4 *)a.x;
    u32 sum = 0;
    int64_t n = a.n / 16, step = (int64_t)gridDim.x * THREADS;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = __ldg(x + i + k * step);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) sum += __ldg(x + i).x;
    if (sum == 0x12345678u) *(u32 *)a.y = sum;
}
