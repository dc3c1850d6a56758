// The experts of a row, and the jobs of few rows (contracts: src/model/moe.c, cuda/model_args.h).
#pragma once

#include "cuda/kernels/row.cuh"
#include "cuda/model_args.h"

namespace ek
{

// Probabilities of all experts, divided by the sum of the chosen ones, in ascending order of experts. Computed by a
// warp, whose lane has experts lane % 16 + 16 i of half a chain. A call that is not real runs over other numbers, only
// to fetch its code.
__device__ __forceinline__ void choose_row(const ek_cuda_choose_args &a, int r, int32_t *chosen, bool real)
{
    const int lane = threadIdx.x % 32, n = a.n_experts, first = lane / 16 * 64 + lane % 16;
    const float *const x = real ? (const float *)a.route + r * a.ld : (const float *)a.expert_scale;
    const float x0 = x[0];
    float v[4], sum = 0;
    u32 best = 0, key[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = first + i * 16 < n ? x[first + i * 16] : bits(0xff800000u);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (v[i] > bits(0xff800000u)) best = max(best, ordered(v[i]));
    best = __reduce_max_sync(~0u, best);
    const float top = best ? unordered(best) : x0;
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = exp_(v[i] - top);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i * 16 < n) sum = sum + v[i];
    sum = __shfl_up_sync(~0u, sum, 16); // the chains continue in the upper half
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (lane < 16 || first + i * 16 < n) sum = sum + v[i];
    const float total = __shfl_sync(~0u, add_lanes(sum), 16);
#pragma unroll
    for (int i = 0; i < 4; i++)
        key[i] = first + i * 16 < n ? ordered(__fdiv_rn(v[i], total))
                                    : 0; // if the row has NaN, all are NaN; the answer is refused later
    int mine = 0;
    float p = 0;
    sum = 0;
    for (int k = 0; k < a.top_k; k++) {
        u32 id = 0;
        best = __reduce_max_sync(~0u, max(max(key[0], key[1]), max(key[2], key[3])));
#pragma unroll
        for (int i = 3; i >= 0; i--) id = key[i] == best ? ~(u32)(first + i * 16) : id;
        id = ~__reduce_max_sync(~0u, id); // among equals the first
#pragma unroll
        for (int i = 0; i < 4; i++) key[i] = (int)id == first + i * 16 ? 0 : key[i];
        if (lane == k) mine = (int)id, p = unordered(best);
        sum = sum + unordered(best);
    }
    int place = 0;
    for (int k = 0; k < a.top_k; k++) place += __shfl_sync(~0u, mine, k) < mine;
    if (lane >= a.top_k) return;
    place += r * a.top_k;
    chosen[place] = mine;
    p = __fdiv_rn(p, sum) * ((const float *)a.expert_scale)[mine];
    if (real) ((float *)a.weight)[place] = p;
}

// Finds the experts of all rows, then pairs by expert, and jobs (ek_group). The block first runs over other numbers
// without writing, so that its code is there when the router's blocks have ended.
__device__ __forceinline__ void choose(const ek_cuda_choose_args &a)
{
    EK_DYNAMIC_SHARED(int32_t,
                      chosen); // not a variable, because in clusters the emulated device has only one copy of variables
    int32_t *const lead = chosen + EK_CUDA_CHOOSE_PAIRS;
    const int tid = threadIdx.x, pairs = a.rows * a.top_k;
#pragma unroll 1
    for (int real = 0; real < 2; real++) {
        if (real) {
            wait_for_previous();
            if (tid == 0) {
                while (*(volatile int *)a.ended < a.router_blocks) {
                }
                *(volatile int *)a.ended = 0;
            }
            __syncthreads();
            __threadfence();
        }
        for (int r = tid / 32; r < a.rows; r += blockDim.x / 32) choose_row(a, r, chosen, real);
        __syncthreads();
        const int mine = tid < pairs ? chosen[tid] : 0;
        int less = 0, before = 0, same = 0, job = 0, jobs = 0;
        if (tid < pairs) {
#pragma unroll 8
            for (int j = 0; j < pairs; j++)
                less += chosen[j] < mine, same += chosen[j] == mine, before += chosen[j] == mine && j < tid;
            const int row = tid / a.top_k;
            if (real) ((int32_t *)a.pair_row)[less + before] = row, ((int32_t *)a.row_pair)[tid] = less + before;
            lead[tid] = before % a.tile ? EK_CUDA_CHOOSE_PAIRS : less + before;
        }
        __syncthreads();
        if (tid >= pairs || lead[tid] == EK_CUDA_CHOOSE_PAIRS) continue;
#pragma unroll 8
        for (int j = 0; j < pairs; j++) job += lead[j] < lead[tid], jobs += lead[j] < EK_CUDA_CHOOSE_PAIRS;
        if (!real) continue;
        ((ek_cuda_job *)a.jobs)[job] = {mine, less + before, min(a.tile, same - before), 0};
        if (job == 0) *(u32 *)a.n_jobs = (u32)jobs;
    }
}

} // namespace ek
