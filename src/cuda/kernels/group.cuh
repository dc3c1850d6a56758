// Pairs of a row and an expert, by expert, and their jobs (contracts: src/model/moe.c, cuda/model_args.h).
#pragma once

#include "cuda/kernels/device.cuh"
#include "cuda/model_args.h"

namespace ek
{

// The place of a pair among those of its expert changes no bit, because each pair has its own product. Ordered: the
// pairs of an expert are in ascending order, made by a warp for every 32nd expert. Otherwise in any order. Up to SORTED
// pairs are sorted in shared memory, because one block scatters slowly to other memory.
template <bool ORDERED> __device__ __forceinline__ void group(const ek_cuda_group_args &a)
{
    constexpr int SORTED = 16384; // for 2,048 rows with eight experts each
    __shared__ uint16_t sorted[ORDERED ? 1 : SORTED];
    __shared__ int count[EK_CUDA_MAX_EXPERTS], first[EK_CUDA_MAX_EXPERTS];
    __shared__ int warp_pairs[32], warp_jobs[32], warp_last[32];
    const int tid = threadIdx.x, lane = tid % 32;
    let_next_start();
    wait_for_previous();
    const int32_t *expert = (const int32_t *)a.expert;
    count[tid] = 0;
    __syncthreads();
    constexpr int EACH = 8; // pairs that a thread requests at once
    auto read = [&](int first, int(&of)[EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; j++) of[j] = first + j * 1024 < a.n_pairs ? expert[first + j * 1024] : -1;
    };
    for (int i = tid; i < a.n_pairs; i += EACH * 1024) {
        int of[EACH];
        read(i, of);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (of[j] >= 0) atomicAdd(&count[of[j]], 1);
    }
    __syncthreads();
    // Jobs of prompts have three classes, the longest first, because blocks take them in turn and should end together.
    // An expert's last job comes after all others, unless it takes as long as a whole job. If half a tile suffices, it
    // comes last. Prefix sums of pairs and of jobs are made over a warp, then over warps; those of the last two classes
    // share one number.
    const int pairs = count[tid], rest = pairs % a.tile, by_length = a.tile > 16;
    const int last = !rest || !by_length || rest > a.tile * 3 / 4 ? 0 : rest > a.tile / 2 ? 1 : 1 << 16;
    const int jobs = (pairs + a.tile - 1) / a.tile - (last > 0);
    int sum_pairs = pairs, sum_jobs = jobs, sum_last = last;
    for (int apart = 1; apart < 32; apart *= 2) {
        int p = __shfl_up_sync(~0u, sum_pairs, apart), j = __shfl_up_sync(~0u, sum_jobs, apart),
            l = __shfl_up_sync(~0u, sum_last, apart);
        if (lane >= apart) sum_pairs += p, sum_jobs += j, sum_last += l;
    }
    if (lane == 31) warp_pairs[tid / 32] = sum_pairs, warp_jobs[tid / 32] = sum_jobs, warp_last[tid / 32] = sum_last;
    __syncthreads();
    int before_pairs = 0, before_jobs = 0, before_last = 0, all_jobs = 0, all_last = 0;
    for (int w = 0; w < 32; w++) {
        if (w < tid / 32) before_pairs += warp_pairs[w], before_jobs += warp_jobs[w], before_last += warp_last[w];
        all_jobs += warp_jobs[w], all_last += warp_last[w];
    }
    const int start = before_pairs + sum_pairs - pairs, job = before_jobs + sum_jobs - jobs,
              of_last = before_last + sum_last - last;
    first[tid] = start;
    if (tid == 0) *(u32 *)a.n_jobs = (u32)(all_jobs + all_last % 65536 + all_last / 65536);
    ek_cuda_job *const to = (ek_cuda_job *)a.jobs;
    for (int j = 0; j < jobs; j++) to[job + j] = {tid, start + j * a.tile, min(a.tile, pairs - j * a.tile), 0};
    if (last)
        to[all_jobs + (last == 1 ? of_last % 65536 : all_last % 65536 + of_last / 65536)] = {tid, start + jobs * a.tile,
                                                                                             rest, 0};
    __syncthreads();
    if (ORDERED) {
        for (int e = tid / 32; e < a.n_experts; e += 32) {
            int at = first[e];
            for (int i = lane; i - lane < a.n_pairs && at < first[e] + count[e]; i += 32) {
                const bool mine = i < a.n_pairs && expert[i] == e;
                const u32 all = __ballot_sync(~0u, mine);
                const int to = at + __popc(all & ((1u << lane) - 1));
                if (mine) ((int32_t *)a.pair_row)[to] = i / a.top_k, ((int32_t *)a.row_pair)[i] = to;
                at += __popc(all);
            }
        }
    } else {
        const bool here = a.n_pairs <= SORTED;
        for (int i = tid; i < a.n_pairs; i += EACH * 1024) {
            int of[EACH];
            read(i, of);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                if (of[j] < 0) continue;
                const int pair = i + j * 1024, at = atomicAdd(&first[of[j]], 1);
                if (here) sorted[at] = (uint16_t)(pair / a.top_k);
                else ((int32_t *)a.pair_row)[at] = pair / a.top_k;
                ((int32_t *)a.row_pair)[pair] = at;
            }
        }
        if (!here) return;
        __syncthreads();
        for (int i = tid; i < a.n_pairs; i += 1024) ((int32_t *)a.pair_row)[i] = sorted[i];
    }
}

} // namespace ek
