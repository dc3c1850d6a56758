// From rows of logits to tokens (contract: engine/sample/sampler.h, docs/NUMERICS.md 7), one ek_cuda_sample per row:
//   ek_sample_mask    masks tokens that are not allowed, in place
//   ek_sample_edit    suppressed tokens, bias, penalties, in place
//   ek_sample_scale   temperature in place; the largest value, maxima of blocks of 64
//   ek_sample_weights sums of exp(z - largest) over blocks of 256, for top-p without top-k
//   ek_sample_choose  rows with limits: candidates in order, the limits, the draw
//   ek_sample_all     rows without limits, and greedy ones
//   ek_sample_sort    (sample_sort.cu) a separate launch: rows with limits that need more candidates than fit into
//                     shared memory
// A row that needs more than MAX_KEYS sorted candidates, or whose top_k is above EK_CUDA_MAX_CANDIDATES, gets
// EK_CUDA_UNDECIDED; ek_sample_sort then sorts all of its z (as it stands after ek_sample_scale). Nothing is
// approximated.
#include "cuda/kernels/sample/sample.cuh"

using namespace ek;

constexpr int THREADS = 256;
constexpr int BLOCK = 64, MAX_BLOCKS = 5120, MAX_KEYS = 2048;

// grid (any, rows): a thread for each token
extern "C" __global__ void __launch_bounds__(THREADS) ek_sample_mask(const __grid_constant__ ek_cuda_sample_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.y];
    const u64 *allowed = (const u64 *)o.allowed;
    if (!allowed) return;
    float *z = (float *)o.logits;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < a.vocab_size; i += gridDim.x * THREADS)
        if (!(allowed[i / 64] >> (i % 64) & 1)) z[i] = minus_infinity();
}

// grid (rows)
extern "C" __global__ void __launch_bounds__(THREADS) ek_sample_edit(const __grid_constant__ ek_cuda_sample_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.x];
    float *z = (float *)o.logits;
    const int32_t *suppress = (const int32_t *)a.suppress;
    const ek_cuda_bias *bias = (const ek_cuda_bias *)o.bias;
    const ek_cuda_count *count = (const ek_cuda_count *)o.count;
    for (int i = threadIdx.x; i < a.n_suppress; i += THREADS) z[suppress[i]] = minus_infinity();
    __syncthreads();
    for (int i = threadIdx.x; i < o.n_bias; i += THREADS) { // the first entry of a token adds all of its entries
        int32_t token = bias[i].token;
        if (i && bias[i - 1].token == token) continue;
        float v = z[token];
        for (int k = i; k < o.n_bias && bias[k].token == token; k++) v = v + bias[k].bias;
        z[token] = v;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < o.n_count; i += THREADS) {
        ek_cuda_count c = count[i];
        float v = z[c.token];
        if (o.repetition != 1) v = v < 0 ? v * o.repetition : __fdiv_rn(v, o.repetition);
        if (c.replied > 0) {
            v = v - o.presence;
            v = v - o.frequency * (float)c.replied;
        }
        z[c.token] = v;
    }
}

// grid (any, rows): a warp for two blocks of 64
extern "C" __global__ void __launch_bounds__(THREADS) ek_sample_scale(const __grid_constant__ ek_cuda_sample_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.y];
    float *z = (float *)o.logits;
    const int n = a.vocab_size, lane = threadIdx.x % 32, blocks = (n + BLOCK - 1) / BLOCK;
    const bool divide = !greedy(o) && o.temperature != 1;
    u64 best = 0; // of the lane
    for (int b0 = (blockIdx.x * THREADS + threadIdx.x) / 32 * 2; b0 < blocks; b0 += gridDim.x * THREADS / 32 * 2) {
        float v[4]; // of two blocks, all requested at once
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = b0 * BLOCK + i * 32 + lane;
            v[i] = at < n ? z[at] : minus_infinity();
        }
        u32 most[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = b0 * BLOCK + i * 32 + lane;
            if (divide && at < n) z[at] = v[i] = __fdiv_rn(v[i], o.temperature);
            const u64 k = v[i] > minus_infinity() ? rank_key(v[i], (u32)at) : 0;
            most[i / 2] = max(most[i / 2], (u32)(k >> 32)), best = k > best ? k : best;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u32 k = __reduce_max_sync(~0u, most[i]);
            if (lane == 0 && b0 + i < blocks)
                ((float *)a.block)[(int64_t)blockIdx.y * blocks + b0 + i] = k ? unordered(k) : minus_infinity();
        }
    }
    best = warp_max(best);
    if (lane == 0 && best) atomicMax((unsigned long long *)a.best + blockIdx.y, (unsigned long long)best);
}

// grid (any, rows): half a warp for a block of 256
extern "C" __global__ void __launch_bounds__(THREADS) ek_sample_weights(const __grid_constant__ ek_cuda_sample_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.y];
    const int n = a.vocab_size, lane = threadIdx.x % 16, leaves = (n + 255) / 256;
    if (greedy(o) || cuts_k(o, n) || o.top_p >= 1) return;
    const float *z = (const float *)o.logits, top = unordered((u32)(((const u64 *)a.best)[blockIdx.y] >> 32));
    const int first = (blockIdx.x * THREADS + threadIdx.x) / 16, step = gridDim.x * THREADS / 16;
    for (int b0 = first - first % 2; b0 < leaves; b0 += step) { // the same for both halves of a warp
        int b = b0 + first % 2;
        float sum = 0;
        if (b < leaves)
            for (int at = b * 256 + lane; at < n && at < b * 256 + 256; at += 16) sum = sum + exp_(z[at] - top);
        sum = add_lanes(sum);
        if (b < leaves && lane == 0) ((float *)a.leaf)[(int64_t)blockIdx.y * leaves + b] = sum;
    }
}

// grid (rows)
extern "C" __global__ void __launch_bounds__(CHOOSERS) ek_sample_choose(const __grid_constant__ ek_cuda_sample_args a)
{
    __shared__ u64 key[MAX_KEYS];
    __shared__ float value[MAX_BLOCKS]; // block maxima, then leaves, then weights
    __shared__ int found, kept;
    __shared__ unsigned long long drawn;
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.x];
    const float *z = (const float *)o.logits;
    const int tid = threadIdx.x, lane = tid % 32, n = a.vocab_size, blocks = (n + BLOCK - 1) / BLOCK;
    int32_t *token = (int32_t *)a.token + blockIdx.x;
    if (greedy(o) || unlimited(o, n)) return;
    const u64 best = ((const u64 *)a.best)[blockIdx.x];
    if (!best) {
        if (tid == 0) *token = -1;
        return;
    }
    const bool cut_k = cuts_k(o, n);
    if (cut_k && o.top_k > EK_CUDA_MAX_CANDIDATES) {
        if (tid == 0) *token = EK_CUDA_UNDECIDED;
        return;
    }
    const int want = cut_k ? o.top_k : EK_CUDA_MAX_CANDIDATES;
    const float top = unordered((u32)(best >> 32));

    // as many block maxima as wanted are at least the bound, so at least as many values are
    for (int b = tid; b < blocks; b += CHOOSERS) value[b] = ((const float *)a.block)[(int64_t)blockIdx.x * blocks + b];
    if (tid == 0) found = 0, drawn = 0;
    __syncthreads();
    u32 bound = ordered(minus_infinity());
    if (want < blocks) bound = kth_largest(value, blocks, want, (u32 *)key);
    const bool complete = bound == ordered(minus_infinity());
    for (int b = tid / 32; b < blocks; b += CHOOSERS / 32) {
        if (ordered(value[b]) < bound) continue;
        for (int i = 0; i < 2; i++) {
            int at = b * BLOCK + i * 32 + lane;
            float v = at < n ? z[at] : minus_infinity();
            if (!(v > minus_infinity()) || ordered(v) < bound) continue;
            int place = atomicAdd(&found, 1);
            if (place < MAX_KEYS) key[place] = rank_key(v, (u32)at);
        }
    }
    __syncthreads();
    const int count = found;
    if (count > MAX_KEYS || (!complete && count < want)) {
        if (tid == 0) *token = EK_CUDA_UNDECIDED;
        return;
    }
    int size = 2;
    while (size < count) size *= 2;
    for (int i = tid; i < size; i += CHOOSERS)
        if (i >= count) key[i] = 0;
    for (int run = 2; run <= size; run *= 2) // bitonic, descending
        for (int apart = run / 2; apart; apart /= 2) {
            __syncthreads();
            for (int i = tid; i < size / 2; i += CHOOSERS) {
                int lo = i / apart * 2 * apart + i % apart, hi = lo + apart;
                u64 x = key[lo], y = key[hi];
                if ((x < y) == ((lo & run) == 0)) key[lo] = y, key[hi] = x;
            }
        }
    __syncthreads();

    const int limit = cut_k && o.top_k < count ? o.top_k : count;
    if (o.top_p < 1 || o.min_p > 0) {
        float total = 0;
        if (o.top_p < 1 && !cut_k) {
            const int leaves = (n + 255) / 256;
            for (int i = tid; i < leaves; i += CHOOSERS)
                value[i] = ((const float *)a.leaf)[(int64_t)blockIdx.x * leaves + i];
            block_tree(value, leaves);
            total = value[0];
            __syncthreads();
        }
        for (int i = tid; i < limit; i += CHOOSERS) value[i] = exp_(unordered((u32)(key[i] >> 32)) - top);
        __syncthreads();
        if (tid == 0) {
            float sum = 0;
            if (o.top_p < 1 && cut_k)
                for (int i = 0; i < limit; i++) total = total + value[i];
            int i = 0;
            for (; i < limit; i++) {
                float w = value[i];
                if (i > 0 && o.top_p < 1 && !(sum < o.top_p * total)) break;
                if (i > 0 && w < o.min_p) break;
                sum = sum + w;
            }
            kept = i;
        }
        __syncthreads();
    } else {
        if (tid == 0) kept = limit;
        __syncthreads();
    }
    u64 mine = 0;
    for (int i = tid; i < kept; i += CHOOSERS) {
        u32 id = ~(u32)key[i];
        u64 k = rank_key(unordered((u32)(key[i] >> 32)) + gumbel(o.seed, o.pos, 0, id), id);
        mine = k > mine ? k : mine;
    }
    mine = warp_max(mine);
    if (lane == 0 && mine) atomicMax(&drawn, (unsigned long long)mine);
    __syncthreads();
    if (tid) return;
    // the list continued after the sorted part, and a later candidate could have won
    bool open = !complete && !cut_k && kept == count;
    if (open && !(unordered((u32)(key[count - 1] >> 32)) + MOST_GUMBEL < unordered((u32)(drawn >> 32))))
        *token = EK_CUDA_UNDECIDED;
    else *token = (int32_t) ~(u32)drawn;
}

// grid (any, rows): greedy rows, and rows in which every token is a candidate
extern "C" __global__ void __launch_bounds__(THREADS) ek_sample_all(const __grid_constant__ ek_cuda_sample_args a)
{
    let_next_start();
    wait_for_previous();
    const ek_cuda_sample o = ((const ek_cuda_sample *)a.rows)[blockIdx.y];
    const int n = a.vocab_size;
    int32_t *token = (int32_t *)a.token + blockIdx.y;
    const u64 best = ((const u64 *)a.best)[blockIdx.y];
    if (greedy(o)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) *token = best ? (int32_t) ~(u32)best : -1;
        return;
    }
    if (!unlimited(o, n)) return;
    const float *z = (const float *)o.logits;
    unsigned long long *draw = (unsigned long long *)a.draw + 2 * blockIdx.y; // the best; number of ended blocks
    // the sum of the likeliest token: a token that cannot exceed it needs no noise
    u32 first = ~(u32)best;
    float least = best ? unordered((u32)(best >> 32)) + gumbel(o.seed, o.pos, 0, first) : 0;
    u64 mine = best && blockIdx.x == 0 && threadIdx.x == 0 ? rank_key(least, first) : 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; best && i < n; i += gridDim.x * THREADS) {
        float v = z[i];
        if (!(v > minus_infinity()) || v + MOST_GUMBEL < least) continue;
        u64 k = rank_key(v + gumbel(o.seed, o.pos, 0, (u32)i), (u32)i);
        mine = k > mine ? k : mine;
    }
    mine = warp_max(mine);
    if (threadIdx.x % 32 == 0 && mine) atomicMax(draw, (unsigned long long)mine);
    __threadfence();
    __syncthreads();
    if (threadIdx.x) return;
    if (atomicAdd(draw + 1, 1ull) + 1 < gridDim.x) return;
    __threadfence();
    u64 k = atomicMax(draw, 0ull);
    *token = k ? (int32_t) ~(u32)k : -1;
}
