// Attention over the keys near a query (contract: ops/attn/attn_near.h), for towers of sounds. Half a warp computes a
// query of a head; its threads are the 16 lanes of the definition. Neighbours read the same keys and values, which are
// then in the multiprocessor's cache.
#include "cuda/kernels/math.cuh"
#include "cuda/tower_args.h"

using namespace ek;

namespace
{

constexpr int OWN = EK_CUDA_NEAR_MAX_DIM / 16; // dims of a lane

__device__ __forceinline__ float within(float x, const float (&to)[2])
{
    const float m = to[0] > x ? to[0] : x;
    return to[1] < m ? to[1] : m;
}

} // namespace

extern "C" __global__ void __launch_bounds__(EK_CUDA_NEAR_QUERIES * 16)
    ek_attn_near(const __grid_constant__ ek_cuda_near_args a)
{
    EK_DYNAMIC_SHARED(float, shared);
    const int half = threadIdx.x / 16, lane = threadIdx.x % 16, head = blockIdx.y * a.dim;
    const int query = blockIdx.x * EK_CUDA_NEAR_QUERIES + half, pos = min(query, a.rows - 1);
    const int lo = max(0, pos - a.span + 1), n = pos - lo + 1;
    float *const s = shared + half * a.span;
    let_next_start();
    wait_for_previous();
    float q[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int d = head + i * 16 + lane;
        q[i] = i * 16 + lane < a.dim
                   ? within(((const float *)a.q)[pos * a.ld + d], a.q_clip) * ((const float *)a.q_scale)[d]
                   : 0;
    }
#pragma unroll 1
    for (int j = 0; j < a.span; j++) { // all threads alike: the shuffles need whole warps
        const int key = min(j, n - 1);
        const float *k = (const float *)a.k + (lo + key) * a.ld + head,
                    *rel = (const float *)a.rel + (int64_t)(n - 1 - key) * gridDim.y * a.dim + head;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (i * 16 + lane < a.dim) sum = fma_(q[i], within(k[i * 16 + lane], a.k_clip) * a.k_scale, sum);
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (i * 16 + lane < a.dim) sum = fma_(q[i], rel[i * 16 + lane], sum);
        sum = add_lanes(sum);
        if (lane == 0 && j < n) s[j] = sum;
    }
    __syncwarp();
    float most = bits(0xff800000u), total = 0;
    for (int j = lane; j < n; j += 16) {
        s[j] = a.cap * tanh_(__fdiv_rn(s[j], a.cap));
        most = fmaxf(most, s[j]);
    }
#pragma unroll
    for (int apart = 8; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart, 16));
    for (int j = lane; j < n; j += 16) s[j] = exp_(s[j] - most);
    __syncwarp();
    for (int j = 0; j < n; j++) total = total + s[j];
    __syncwarp();
    for (int j = lane; j < n; j += 16) s[j] = __fdiv_rn(s[j], total);
    __syncwarp();
    if (query >= a.rows) return;
    const float *const v = (const float *)a.v + lo * a.ld + head;
    float o[OWN] = {};
#pragma unroll 1
    for (int j = 0; j < n; j++) {
        const float w = s[j];
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (i * 16 + lane < a.dim) o[i] = fma_(w, within(v[j * a.ld + i * 16 + lane], a.v_clip), o[i]);
    }
#pragma unroll
    for (int i = 0; i < OWN; i++)
        if (i * 16 + lane < a.dim) ((float *)a.o)[query * a.ldo + head + i * 16 + lane] = within(o[i], a.o_clip);
}
