// The end of a block of attention in integers of few queries (attn_int.cu): the blocks that end last join the leaves of
// a tile, and the very last one rotates the result back.
#pragma once

#include "cuda/kernels/attn/attn_int_few.cuh"

namespace ek
{

// T over up to 8 nodes of each query, whose leaves begin `below` leaves apart from leaf `first` of the tile on; the
// result replaces the first, or goes to sm.all if it covers all leaves.
template <int DIM, int W>
__device__ __forceinline__ void meet(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t,
                                     int first, int below, bool last)
{
    const int64_t leaf0 = (int64_t)(t.leaf0 + first) * a.tile;
    if ((int)threadIdx.x < t.n_q) {
        const int n = threadIdx.x, nodes = min((sm.leaves[n] - first + below - 1) / below, 8);
        float *const l_at = (float *)a.leaf_l + leaf0 + n;
        int *const m_at = (int *)a.leaf_m + leaf0 + n;
        float l[8] = {};
        int m[8] = {}, met = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (k < nodes) l[k] = __ldcg(l_at + k * below * a.tile), m[k] = __ldcg(m_at + k * below * a.tile);
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2)
#pragma unroll
            for (int k = 0; k + apart < 8; k += 2 * apart, met++) {
                if (k + apart >= nodes) continue;
                const int most = max(m[k], m[k + apart]);
                const float x = factor(m[k] - most), y = factor(m[k + apart] - most);
                sm.factor[n][met][0] = x, sm.factor[n][met][1] = y;
                l[k] = l[k] * x + l[k + apart] * y, m[k] = most;
            }
        sm.nodes[n] = nodes, sm.l[n] = l[0];
        if (!last && nodes > 0) *l_at = l[0], *m_at = m[0];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < t.n_q * (DIM / 4); i += W * 32) {
        const int n = i / (DIM / 4), d = i % (DIM / 4) * 4, nodes = sm.nodes[n];
        float4 *const at = (float4 *)((float *)a.leaf_o + (leaf0 + n) * DIM + d);
        float4 x[8];
        int met = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (k < nodes) x[k] = __ldcg(at + (int64_t)k * below * a.tile * (DIM / 4));
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2)
#pragma unroll
            for (int k = 0; k + apart < 8; k += 2 * apart, met++) {
                if (k + apart >= nodes) continue;
                const float f = sm.factor[n][met][0], g = sm.factor[n][met][1];
                x[k].x = x[k].x * f + x[k + apart].x * g, x[k].y = x[k].y * f + x[k + apart].y * g;
                x[k].z = x[k].z * f + x[k + apart].z * g, x[k].w = x[k].w * f + x[k + apart].w * g;
            }
        if (last) *(float4 *)(sm.all + n * DIM + d) = x[0];
        else if (nodes > 0) *at = x[0];
    }
}

// Among 8 neighbours, the block that ends last joins the nodes and continues with the result among its neighbours. So
// few nodes wait for one block. False: another block continues. Blocks count themselves in one counter per group of
// joined leaves and level.
template <int DIM, int W>
__device__ __forceinline__ bool join(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_start &item)
{
    const ek_cuda_attn_tile &t = item.t;
    const int own = item.seg - t.seg0;
#pragma unroll 1
    for (int below = 1, level = 0; below < t.n_seg; below *= 8, level++) {
        const int first = own / (below * 8) * (below * 8), meeting = min(below * 8, t.n_seg - first);
        if (meeting <= below) continue; // nothing to join
        __syncthreads();
        if (threadIdx.x == 0) { // everything that others wrote before the barrier is visible from here on
            int *const ended = (int *)a.ended + t.leaf0 + first + level;
            __threadfence();
            sm.before = atomicAdd(ended, 1);
            __threadfence();
            if ((sm.before + 1) * below >= meeting) *ended = 0;
        }
        __syncthreads();
        if ((sm.before + 1) * below < meeting) return false;
        meet(sm, a, t, first, below, below * 8 >= t.n_seg);
    }
    return true;
}

// Rows of the tile's queries, each by a warp: R (o / l) / n, and the same quantised.
template <int DIM>
__device__ __forceinline__ void write_rows(const few_shared<DIM> &sm, const ek_cuda_attn_args &a,
                                           const ek_cuda_attn_tile &t)
{
    const int n = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= t.n_q) return;
    const int row = row_of(a, t, n), place = head_of(a, t, n) * DIM;
    float x[DIM / 32], *const out = (float *)a.o + row * a.ldo + place;
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) x[i] = finish({sm.all[n * DIM + i * 32 + lane], sm.l[n], 0});
    rotate_back(x, DIM);
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) out[i * 32 + lane] = x[i];
    if (!a.to.q) return;
#pragma unroll
    for (int g = 0; g < DIM / 64; g++) {
        const float v[2] = {x[g * 2], x[g * 2 + 1]};
        quantize_group(a.to, row, place / 64 + g, v);
    }
}

// The same of two queries, a row by up to half of the warps.
template <int DIM, int W>
__device__ __forceinline__ void write_two_rows(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a,
                                               const ek_cuda_attn_tile &t)
{
    constexpr int PARTS = DIM / 64 < W / 2 ? DIM / 64 : W / 2,
                  COUNT = DIM / PARTS / 32; // warps of a row; values of a lane
    float *const turned = (float *)sm.q;    // [2][DIM]; queries are no longer needed
    const int warp = threadIdx.x / 32, n = warp / PARTS, part = warp % PARTS, lane = threadIdx.x % 32;
    const bool has = n < t.n_q;
    const float by = 1.0f / DIM;
    const int first = part * (DIM / PARTS) + lane;
    float x[COUNT];
    if (has) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = finish({sm.all[n * DIM + first + i * 32], sm.l[n], 0});
        rotate(x, DIM / PARTS);
#pragma unroll
        for (int i = 0; i < COUNT; i++) turned[n * DIM + first + i * 32] = x[i];
    }
    if (PARTS > 1) __syncthreads();
    if (!has) return;
    const int row = row_of(a, t, n), place = head_of(a, t, n) * DIM;
    float *const out = (float *)a.o + row * a.ldo + place;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        auto of = [&](int p) { return turned[n * DIM + p * (DIM / PARTS) + i * 32 + lane]; };
        auto pair = [&](float own, float other, int bit) { return part & bit ? other - own : own + other; };
        if (PARTS > 1) x[i] = pair(x[i], of(part ^ 1), 1);
        if (PARTS > 2) x[i] = pair(x[i], pair(of(part ^ 2), of(part ^ 3), 1), 2);
        x[i] = x[i] * by;
        out[first + i * 32] = x[i];
    }
    if (!a.to.q) return;
#pragma unroll
    for (int g = 0; g < COUNT / 2; g++) {
        const float v[2] = {x[g * 2], x[g * 2 + 1]};
        quantize_group(a.to, row, place / 64 + part * (COUNT / 2) + g, v);
    }
}

} // namespace ek
