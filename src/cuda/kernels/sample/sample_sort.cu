// Rows of logits that ek_sample_choose left undecided: sorts the whole row (contract: sample.cu).
#include "cuda/kernels/sample/sample.cuh"

using namespace ek;

constexpr int WARPS = CHOOSERS / 32, DIGITS = 256;

__device__ __forceinline__ u32 high(u64 key)
{
    return (u32)(key >> 32);
}

// One digit of a stable sort, descending. Each warp has a run of `in`, and for each digit its own place in `out`.
template <class In> __device__ __forceinline__ void sort_digit(u64 *out, In in, int n, int shift, u32 (*place)[DIGITS])
{
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int run = (n + CHOOSERS - 1) / CHOOSERS * 32, first = warp * run, end = first + run < n ? first + run : n;
    for (int i = tid; i < WARPS * DIGITS; i += CHOOSERS) place[i / DIGITS][i % DIGITS] = 0;
    __syncthreads();
    for (int i = first + lane; i < end; i += 32) atomicAdd(&place[warp][255 - (high(in(i)) >> shift & 255)], 1u);
    __syncthreads();
    // the places of a digit, by warps; before them, those of larger digits
    __shared__ u32 total[DIGITS / 32];
    u32 own = 0, upto = 0;
    if (tid < DIGITS) {
        for (int w = 0; w < WARPS; w++) {
            const u32 mine = place[w][tid];
            place[w][tid] = own;
            own += mine;
        }
        upto = own;
        for (int apart = 1; apart < 32; apart *= 2) {
            const u32 other = __shfl_up_sync(~0u, upto, apart);
            if (lane >= apart) upto += other;
        }
        if (lane == 31) total[warp] = upto;
    }
    __syncthreads();
    if (tid < DIGITS) {
        u32 before = upto - own;
        for (int w = 0; w < warp; w++) before += total[w];
        for (int w = 0; w < WARPS; w++) place[w][tid] += before;
    }
    __syncthreads();
    for (int i0 = first; i0 < end; i0 += 32) {
        const int i = i0 + lane;
        const u64 key = i < end ? in(i) : 0;
        const u32 digit = i < end ? 255 - (high(key) >> shift & 255) : DIGITS; // after the end: equal to one another
        u32 alike = ~0u;
        for (int bit = 0; bit < 9; bit++) {
            const u32 set = __ballot_sync(~0u, digit >> bit & 1);
            alike &= digit >> bit & 1 ? set : ~set;
        }
        const u32 lower = alike & ((1u << lane) - 1);
        u32 at = 0;
        if (i < end) at = place[warp][digit];
        __syncwarp();
        if (i < end) {
            out[at + __popc(lower)] = key;
            if (!lower) place[warp][digit] = at + __popc(alike);
        }
        __syncwarp();
    }
    __syncthreads();
}

// Adds n weights to `upto`, one after the other, and stores the sum before each. One thread does this: only the
// additions wait for each other. Weights after the last, up to a multiple of 8, are 0.
__device__ __forceinline__ float chain(float *before, const float *weight, int n, float upto)
{
#pragma unroll 4
    for (int i = 0; i < n; i += 8) {
        const float4 w = *(const float4 *)(weight + i), v = *(const float4 *)(weight + i + 4);
        float4 a, b;
        a.x = upto, a.y = a.x + w.x, a.z = a.y + w.y, a.w = a.z + w.z;
        b.x = a.w + w.w, b.y = b.x + v.x, b.z = b.y + v.y, b.w = b.z + v.z;
        upto = b.w + v.w;
        *(float4 *)(before + i) = a, *(float4 *)(before + i + 4) = b;
    }
    return upto;
}

// grid (up to EK_CUDA_SORTERS): undecided rows, one after the other
extern "C" __global__ void __launch_bounds__(CHOOSERS) ek_sample_sort(const __grid_constant__ ek_cuda_sample_args a)
{
    constexpr int CHUNK = 2048;
    alignas(16) __shared__ u32 place[WARPS][DIGITS];
    alignas(16) __shared__ float weight[CHUNK];
    float *const before = (float *)place; // after sorting
    __shared__ float total, sum;
    __shared__ int kept, candidates;
    __shared__ unsigned long long drawn;
    const int tid = threadIdx.x, n = a.vocab_size;
    u64 *one = (u64 *)a.sorted + (int64_t)blockIdx.x * 2 * n, *two = one + n;
    for (int r = blockIdx.x; r < a.n_rows; r += gridDim.x) {
        int32_t *token = (int32_t *)a.token + r;
        if (*token != EK_CUDA_UNDECIDED)
            continue; // the same for all threads: only this block wrote it, before a barrier
        const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[r];
        const float *z = (const float *)o.logits, top = unordered(high(((const u64 *)a.best)[r]));
        const bool cut_k = cuts_k(o, n);
        if (tid == 0) drawn = 0, sum = total = 0, kept = n, candidates = 0;
        sort_digit(
            one, [=](int i) { return rank_key(z[i], (u32)i); }, n, 0, place);
        sort_digit(
            two, [=](int i) { return one[i]; }, n, 8, place);
        sort_digit(
            one, [=](int i) { return two[i]; }, n, 16, place);
        sort_digit(
            two, [=](int i) { return one[i]; }, n, 24, place);
        const u32 nothing = ordered(minus_infinity());
        for (int i = tid; i < n; i += CHOOSERS) // the last candidate
            if (high(two[i]) > nothing && (i + 1 == n || high(two[i + 1]) <= nothing)) candidates = i + 1;
        if (o.top_p < 1 && !cut_k) { // T over the leaves; the keys at `one` are no longer needed
            const int leaves = (n + 255) / 256;
            float *leaf = (float *)one;
            for (int i = tid; i < leaves; i += CHOOSERS) leaf[i] = ((const float *)a.leaf)[(int64_t)r * leaves + i];
            __syncthreads();
            block_tree(leaf, leaves);
            if (tid == 0) total = leaf[0];
        }
        __syncthreads();
        const int limit = cut_k && o.top_k < candidates ? o.top_k : candidates;
        // in descending order: first the total of the k largest, then the sums up to where a limit ends the candidates
        for (int pass = o.top_p >= 1 && o.min_p <= 0 ? 2 : o.top_p < 1 && cut_k ? 0 : 1; pass < 2; pass++)
            for (int first = 0; first < limit; first += CHUNK) {
                const int count = limit - first < CHUNK ? limit - first : CHUNK;
                __syncthreads();
                if (kept < limit) break;
                for (int i = tid; i < CHUNK; i += CHOOSERS)
                    weight[i] = i < count ? exp_(unordered(high(two[first + i])) - top) : 0;
                __syncthreads();
                if (tid == 0) {
                    const float all = chain(before, weight, count, pass ? sum : total);
                    if (pass) sum = all;
                    else total = all;
                }
                __syncthreads();
                for (int i = tid; pass && i < count; i += CHOOSERS)
                    if (first + i > 0 && ((o.top_p < 1 && !(before[i] < o.top_p * total)) || weight[i] < o.min_p))
                        atomicMin(&kept, first + i);
            }
        __syncthreads();
        const int end = kept < limit ? kept : limit;
        u64 mine = 0;
        for (int i = tid; i < end; i += CHOOSERS) {
            const u32 id = ~(u32)two[i];
            const u64 k = rank_key(unordered(high(two[i])) + gumbel(o.seed, o.pos, 0, id), id);
            mine = k > mine ? k : mine;
        }
        mine = warp_max(mine);
        if (tid % 32 == 0 && mine) atomicMax(&drawn, (unsigned long long)mine);
        __syncthreads();
        if (tid == 0) *token = (int32_t) ~(u32)drawn;
        __syncthreads();
    }
}
