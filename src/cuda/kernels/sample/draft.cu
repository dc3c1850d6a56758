// A drafter model's work after its layers (contract: model/drafter.h; arguments: cuda/model_args.h).
#include "cuda/kernels/element.cuh"
#include "cuda/kernels/sample/select.cuh"

using namespace ek;

// The top_k largest of a row's scores, in any order; among equals, those with the lower index. grid (rows)
extern "C" __global__ void __launch_bounds__(CHOOSERS) ek_draft_centroids(const __grid_constant__ ek_cuda_draft_args a)
{
    __shared__ u32 histogram[256];
    __shared__ int above;
    let_next_start();
    wait_for_previous();
    const float *score = (const float *)a.score + (int64_t)blockIdx.x * a.n_centroids;
    int32_t *chosen = (int32_t *)a.chosen + (int64_t)blockIdx.x * a.top_k;
    const int n = a.n_centroids;
    if (threadIdx.x == 0) above = 0;
    const u32 bound = kth_largest(score, n, a.top_k, histogram);
    for (int i = threadIdx.x; i < n; i += CHOOSERS)
        if (ordered(score[i]) > bound) chosen[atomicAdd(&above, 1)] = i;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += CHOOSERS) {
        if (ordered(score[i]) != bound) continue;
        int place = above;
        for (int j = 0; j < i && place < a.top_k; j++) place += ordered(score[j]) == bound;
        if (place < a.top_k) chosen[place] = i;
    }
}

// The score of a token of a chosen centroid, by half a warp: 16 lanes with a chain each, then the elements that 16
// leaves over, then the lanes in order, as in model/drafter.c. grid (any, rows), 256 threads
extern "C" __global__ void __launch_bounds__(256) ek_draft_ordered(const __grid_constant__ ek_cuda_draft_args a)
{
    let_next_start();
    wait_for_previous();
    const int lane = threadIdx.x % 16, per = a.vocab_size / a.n_centroids, tokens = a.top_k * per, hidden = a.head.k;
    const int32_t *chosen = (const int32_t *)a.chosen + (int64_t)blockIdx.y * a.top_k;
    const float *y = (const float *)a.y + (int64_t)blockIdx.y * hidden;
    const int first = (blockIdx.x * 256 + threadIdx.x) / 16, step = gridDim.x * 16;
    u64 best = 0;
    for (int t0 = first - first % 2; t0 < tokens; t0 += step) { // the same for both halves of a warp
        const int t = t0 + first % 2 < tokens ? t0 + first % 2 : t0;
        const int32_t token = ((const int32_t *)a.ordering)[chosen[t / per] * per + t % per];
        float mine = 0, sum = 0;
        int i = 0;
        for (; i + 16 <= hidden; i += 16) mine = mine + y[i + lane] * element(a.head, token, i + lane);
        for (; i < hidden; i++) sum = sum + y[i] * element(a.head, token, i);
        for (int l = 0; l < 16; l++) sum = sum + __shfl_sync(~0u, mine, l, 16);
        u64 key = sum == sum ? rank_key(sum, (u32)token) : 0;
        best = key > best ? key : best;
    }
    best = warp_max(best);
    if (threadIdx.x % 32 == 0 && best)
        atomicMax((unsigned long long *)a.best + 2 * blockIdx.y, (unsigned long long)best);
}

// The best token is appended to the row's draft and is fed next. One block of 1024 threads
extern "C" __global__ void __launch_bounds__(1024) ek_draft_next(const __grid_constant__ ek_cuda_draft_args a)
{
    let_next_start();
    wait_for_previous();
    for (int r = threadIdx.x; r < a.rows; r += 1024) {
        u64 *best = (u64 *)a.best + 2 * r;
        const int32_t token = *best ? (int32_t) ~(u32)*best : 0, at = ((int32_t *)a.n)[r];
        ((int32_t *)a.id)[r] = token;
        ((int32_t *)a.draft)[(int64_t)r * a.max + at] = token;
        ((int32_t *)a.n)[r] = at + 1;
        best[0] = best[1] = 0;
    }
}
