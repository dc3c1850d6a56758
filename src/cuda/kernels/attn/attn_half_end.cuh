// The end of a block of attention of few queries (attn_half.cu): the rows of a tile's only leaf; or a leaf, and the
// join of the tile's leaves by its last block.
#pragma once

#include "cuda/kernels/attn/attn_half_segment.cuh"

namespace ek
{

// The tile's only leaf: o / l, and the rows of o quantised; a warp has a group of 64. Two queries at once.
template <int N, int DIM>
__device__ __forceinline__ void finish_alone(const half_leaf<N, DIM> &h, float (&o)[N][2], bool real)
{
    const ek_cuda_attn_args &a = h.a;
    const ek_cuda_attn_tile &t = h.t;
    half_shared<N, DIM> &m = h.m;
    if (real && !h.has_dims()) return;
#pragma unroll 1
    for (int n0 = 0; n0 < (real ? t.n_q : 1); n0 += 2) {
#pragma unroll
        for (int i = 0; i < (N < 2 ? N : 2); i++) {
            const int n = n0 + i;
            if (n >= t.n_q) break;
            const int at = m.column[n] + threadIdx.x * 2;
            const float v[2] = {finish({o[i][0], m.sum[n], 0}), finish({o[i][1], m.sum[n], 0})};
            if (real) *(float2 *)((float *)a.o + m.row[n] * a.ldo + at) = make_float2(v[0], v[1]);
            if (a.to.q) quantize_pairs(a.to, m.row[n], at / 64, v, real);
        }
#pragma unroll
        for (int n = 0; n + 2 < N; n++) o[n][0] = o[n + 2][0], o[n][1] = o[n + 2][1];
    }
}

// One of several leaves.
template <int N, int DIM> __device__ __forceinline__ void keep(const half_leaf<N, DIM> &h, const float (&o)[N][2])
{
    if (!h.has_dims()) return;
    const ek_cuda_attn_tile &t = h.t;
    float *out = (float *)h.a.leaf_o + (int64_t)(t.leaf0 + h.item.seg - t.seg0) * N * DIM + threadIdx.x * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
        if (n < t.n_q) *(float2 *)(out + n * DIM) = make_float2(o[n][0], o[n][1]);
}

// The last block of a tile joins its few leaves: T over them, o / l, and the rows of o quantised.
template <int N, int DIM> __device__ __forceinline__ void join(const half_leaf<N, DIM> &h)
{
    const ek_cuda_attn_args &a = h.a;
    const ek_cuda_attn_tile &t = h.t;
    half_shared<N, DIM> &m = h.m;
    float *const all = (float *)h.ring; // [n_q][DIM]; the ring is no longer used
    const int tid = threadIdx.x, lane = tid % 32;
    __syncthreads();
    if (tid == 0) { // everything that others wrote before the barrier is visible from here on
        __threadfence();
        m.before = atomicAdd((int *)a.ended + h.item.tile, 1);
        __threadfence();
        if (m.before + 1 == t.n_seg) ((int *)a.ended)[h.item.tile] = 0;
    }
    __syncthreads();
    if (m.before + 1 < t.n_seg) return;
#pragma unroll 1
    for (int i = tid; i < t.n_q * DIM; i += h.THREADS) {
        const int n = i / DIM, d = i % DIM, leaves = m.leaves[n];
        const float *o = (const float *)a.leaf_o + ((int64_t)t.leaf0 * N + n) * DIM + d;
        const float *l = (const float *)a.leaf_l + (int64_t)t.leaf0 * N + n;
        const int *most = (const int *)a.leaf_m + (int64_t)t.leaf0 * N + n;
        node x[EK_CUDA_ATTN_JOINED];
#pragma unroll
        for (int k = 0; k < EK_CUDA_ATTN_JOINED; k++)
            if (k < leaves) x[k] = {__ldcg(o + k * N * DIM), __ldcg(l + k * N), __ldcg(most + k * N)};
        const float value = finish(join_up_to(x, leaves));
        ((float *)a.o)[m.row[n] * a.ldo + m.column[n] + d] = value;
        all[i] = value;
    }
    if (!a.to.q) return;
    __syncthreads();
#pragma unroll 1
    for (int i = tid / 32 * 64; i < t.n_q * DIM; i += h.THREADS * 2) { // a group per warp
        const int n = i / DIM;
        const float v[2] = {all[i + lane], all[i + lane + 32]};
        quantize_group(a.to, m.row[n], (m.column[n] + i % DIM) / 64, v);
    }
}

} // namespace ek
