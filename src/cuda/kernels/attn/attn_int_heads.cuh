// The heads of a block of attention in integers (attn_int.cu): queries are normed, rotated and encoded; so are the new
// key and value, which are stored. A warp has a head; x[i] is element 32 i + lane.
#pragma once

#include "cuda/kernels/attn/attn_int_few.cuh"

namespace ek
{

// A head of DIM dims, of row `row`, normed (norm 0: without weights) and, if it turns, rotated (ops/rows/rows.h).
template <int DIM>
__device__ __forceinline__ void finish_lanes(float (&x)[DIM / 32], const ek_cuda_head &head, ek_cuda_ptr norm,
                                             bool turns, int64_t row)
{
    constexpr int COUNT = DIM / 32, BLOCKS = (DIM + 255) / 256, PAIRS = COUNT / 2;
    const int lane = threadIdx.x % 32;
    const float *const cos = (const float *)head.cos + row * head.ld_table + lane, *const sin =
                                                                                       (const float *)head.sin +
                                                                                       row * head.ld_table + lane;
    float w[COUNT], c[PAIRS], s[PAIRS], ss[BLOCKS] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i++) w[i] = norm ? ((const float *)norm)[i * 32 + lane] : 1;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const bool pair = turns && i * 32 + lane < head.rotated;
        c[i] = pair ? __ldcg(cos + i * 32) : 1, s[i] = pair ? __ldcg(sin + i * 32) : 0;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) { // a chain has elements 16 apart: those of two lanes in turn
        const float other = __shfl_xor_sync(~0u, x[i], 16);
        ss[i / 8] = fma_(lane & 16 ? other : x[i], lane & 16 ? other : x[i], ss[i / 8]);
        ss[i / 8] = fma_(lane & 16 ? x[i] : other, lane & 16 ? x[i] : other, ss[i / 8]);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) ss[b] = __shfl_sync(~0u, add_lanes(ss[b]), 0);
    const float f = norm_factor(BLOCKS > 1 ? ss[0] + ss[BLOCKS - 1] : ss[0], DIM, head.eps);
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = x[i] * f * w[i];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const float x0 = x[i], x1 = x[i + PAIRS];
        if (turns && i * 32 + lane < head.rotated)
            x[i] = fma_(-x1, s[i], x0 * c[i]), x[i + PAIRS] = fma_(x0, s[i], x1 * c[i]);
    }
}

// Query n of the tile, or none, by a warp.
template <int DIM>
__device__ __forceinline__ void code_query(few_shared<DIM> &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t,
                                           int n, int dim, int lane)
{
    constexpr int COUNT = DIM ? DIM / 32 : HEAD;
    float x[COUNT];
    int code[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = 0, code[i] = 0;
    if (n < t.n_q) {
        const int row = row_of(a, t, n);
        const float *q = (const float *)a.q + row * a.ldq + (int64_t)head_of(a, t, n) * dim;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i * 32 + lane < dim) x[i] = __ldcg(q + i * 32 + lane);
        if constexpr (DIM > 0)
            if (a.head.norm) finish_lanes<DIM>(x, a.head, a.head.norm, a.head.cos != 0, row);
        const float scale = encode(x, dim, QUERY_CODE, code);
        if (lane == 0) sm.q_scale[n] = scale * __fdiv_rn(1.0f, (float)(dim & -dim));
    } else if (lane == 0) sm.q_scale[n] = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (i * 32 < dim) put_limbs(sm.q[i], n, lane, code[i]);
}

// Stores the new key, or value, of row `row` in its slot of the page, by a warp.
template <int DIM>
__device__ __forceinline__ void store_fresh(const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t, uint8_t *page,
                                            int slot, bool key)
{
    const int lane = threadIdx.x % 32;
    const float *from = (const float *)(key ? a.k : a.v) + t.row * a.ldk + t.kv_head * DIM;
    float x[DIM / 32];
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) x[i] = __ldcg(from + i * 32 + lane);
    finish_lanes<DIM>(x, a.head, key ? a.k_norm : 0, key && a.head.cos, t.row);
    store_rotated(page + (key ? 0 : a.kv.k_bytes), x, DIM, key ? a.kv.k_bits : a.kv.v_bits, slot, key);
}

// Warps 0 to 3 of a block of two queries run the same code: a query each, the new key, the new value (last: its slot of
// the segment, if it is stored here). Columns of absent queries keep their contents, on which no other column depends.
template <int DIM, int W>
__device__ __forceinline__ void head_by_warp(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, int last, int warp)
{
    constexpr int COUNT = DIM / 32;
    const ek_cuda_attn_tile &t = sm.item.t;
    const int lane = threadIdx.x % 32;
    const bool query = warp < 2;
    if (query ? warp >= t.n_q : warp > 3 || !a.k || last < 0) return;
    const int row = query ? row_of(a, t, warp) : t.row;
    const float *const from = query ? (const float *)a.q + row * a.ldq + (int64_t)head_of(a, t, warp) * DIM
                                    : (const float *)(warp == 2 ? a.k : a.v) + row * a.ldk + t.kv_head * DIM;
    float x[COUNT];
    int code[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = __ldcg(from + i * 32 + lane);
    if (a.head.norm)
        finish_lanes<DIM>(x, a.head, query ? a.head.norm : warp == 2 ? a.k_norm : 0, warp < 3 && a.head.cos, row);
    const float scale = encode(x, DIM, QUERY_CODE, code);
    if (query) {
        if (lane == 0) sm.q_scale[warp] = scale * (1.0f / DIM);
#pragma unroll
        for (int i = 0; i < COUNT; i++) put_limbs(sm.q[i], warp, lane, code[i]);
        return;
    }
    const int slot = last % PAGE;
    uint8_t *const to = (uint8_t *)sm.page[last / PAGE] + (warp == 2 ? 0 : a.kv.k_bytes);
    if (lane == 0) ((float *)(to + rotated_codes(16, DIM)))[slot] = scale;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int d = i * 32 + lane;
        ((int16_t *)to)[warp == 2 ? rotated_place(16, d, PAGE, slot) : rotated_place(16, slot, DIM, d)] =
            (int16_t)code[i];
    }
}

} // namespace ek
