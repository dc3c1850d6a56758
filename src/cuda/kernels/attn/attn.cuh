// Code that the kernels of attention of few queries share: a tile's queries, nodes of T, the join of few leaves.
#pragma once

#include "cuda/kernels/kv.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/quantize.cuh"

namespace ek
{

constexpr int MULTIPROCESSORS = 132, FEW_BLOCKS = 2 * MULTIPROCESSORS; // of an H100 or H200: speed only

// Few blocks wait for memory, so the pages of an item are fetched into the second-level cache while the previous
// kernels run.
__device__ __forceinline__ void fetch_ahead(const ek_cuda_kv &kv, const ek_cuda_attn_args &a,
                                            const ek_cuda_attn_item &item, const ek_cuda_attn_tile &t)
{
    if (gridDim.x > FEW_BLOCKS || item.tile < 0) return;
    const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[t.row];
    const int64_t bytes = kv.k_bytes + kv.v_bytes;
#pragma unroll 1
    for (int p = item.seg * 4; p < item.seg * 4 + 4; p++) {
        if (p * PAGE >= row.end || (p + 1) * PAGE <= row.lo) continue;
        const uint8_t *page = (const uint8_t *)page_block(kv, t.view, p);
        if (!page) continue;
        page += t.kv_head * bytes;
#pragma unroll 1
        for (int64_t i = threadIdx.x * 128; i < bytes; i += blockDim.x * 128) prefetch_line(page + i);
    }
}

template <int N> __device__ __forceinline__ void load_queries(float (&x)[N], const float *at)
{
    if (N == 2) {
        float2 v = *(const float2 *)at;
        x[0] = v.x, x[1] = v.y;
    }
#pragma unroll
    for (int i = 0; i + 4 <= N; i += 4) {
        float4 v = *(const float4 *)(at + i);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
}

__device__ __forceinline__ int clamp_key(int x)
{
    return x < 0 ? 0 : x > SEGMENT ? SEGMENT : x;
}

// A node of T for one dim: sum of e v relative to 2^m, and of e.
struct node {
    float o, l;
    int m;
};

__device__ __forceinline__ node combine(const node &a, const node &b)
{
    int m = max(a.m, b.m);
    float fa = factor(a.m - m), fb = factor(b.m - m);
    return {a.o * fa + b.o * fb, a.l * fa + b.l * fb, m};
}

// T over n of up to COUNT leaves: neighbours level by level; a last one without a neighbour waits.
template <int COUNT> __device__ __forceinline__ node join_up_to(node (&x)[COUNT], int n)
{
#pragma unroll
    for (int apart = 1; apart < COUNT; apart *= 2)
#pragma unroll
        for (int k = 0; k + apart < COUNT; k += 2 * apart)
            if (k + apart < n) x[k] = combine(x[k], x[k + apart]);
    return x[0];
}

__device__ __forceinline__ float finish(const node &sum)
{
    return __fdiv_rn(sum.o + 0.0f, sum.l);
}

// The row of query n of a tile.
__device__ __forceinline__ int row_of(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, int n)
{
    return t.row + (t.head + n) / a.ratio;
}

__device__ __forceinline__ int head_of(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, int n)
{
    return t.kv_head * a.ratio + (t.head + n) % a.ratio;
}

__device__ __forceinline__ int leaves_of(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, int n)
{
    return (((const ek_cuda_attn_row *)a.rows)[row_of(a, t, n)].end - 1) / SEGMENT - t.seg0 + 1;
}

// T over the leaves of query n of a tile, at dim d.
__device__ __forceinline__ node join_leaves(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, int n, int d)
{
    constexpr int LEVELS = 16; // of nodes of 8 leaves: 524,288 leaves
    const int dim = a.kv.head_dim, leaves = leaves_of(a, t, n);
    const float *o = (const float *)a.leaf_o + ((int64_t)t.leaf0 * a.tile + n) * dim + d;
    const float *l = (const float *)a.leaf_l + (int64_t)t.leaf0 * a.tile + n;
    const int *m = (const int *)a.leaf_m + (int64_t)t.leaf0 * a.tile + n;
    auto read = [&](int i) {
        return node{o[(int64_t)i * a.tile * dim], l[(int64_t)i * a.tile], m[(int64_t)i * a.tile]};
    };
    node stack[LEVELS], sum;
    int eights = leaves / 8, rest = leaves % 8;
    for (int i = 0; i < eights; i++) {
        node x[8];
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = read(i * 8 + k);
        node up = join_up_to(x, 8);
        bool put = false;
#pragma unroll
        for (int level = 0; level < LEVELS; level++) {
            if (put) continue;
            if (i >> level & 1) up = combine(stack[level], up);
            else stack[level] = up, put = true;
        }
    }
    // the rest of less than 8 leaves, from the last leaf back; nodes of equal size first
    bool any = rest > 0;
    if (rest) {
        node x[7];
#pragma unroll
        for (int k = 0; k < 7; k++)
            if (k < rest) x[k] = read(eights * 8 + k);
        sum = join_up_to(x, rest);
    }
#pragma unroll
    for (int level = 0; level < LEVELS; level++) {
        if (!(eights >> level & 1)) continue;
        sum = any ? combine(stack[level], sum) : stack[level];
        any = true;
    }
    return sum;
}

} // namespace ek
