// Heads as a block of attention in integers begins with them (attn_int.cu): queries normed, turned and coded, the new
// key and value as well, and stored. A warp has a head, x[i] being element 32 i + lane.
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

// Query n of the tile, which other kernels have finished, by a warp.
__device__ __forceinline__ void code_query_any(few_shared<0> &sm, const ek_cuda_attn_args &a,
                                               const ek_cuda_attn_tile &t, int n, int dim, int lane)
{
    float x[HEAD] = {};
    int code[HEAD] = {};
    if (n < t.n_q) {
        const float *q = (const float *)a.q + row_of(a, t, n) * a.ldq + (int64_t)head_of(a, t, n) * dim;
#pragma unroll
        for (int i = 0; i < HEAD; i++)
            if (i * 32 + lane < dim) x[i] = __ldcg(q + i * 32 + lane);
        const float scale = encode(x, dim, QUERY_CODE, code);
        if (lane == 0) sm.q_scale[n] = scale * __fdiv_rn(1.0f, (float)(dim & -dim));
    } else if (lane == 0) sm.q_scale[n] = 0;
#pragma unroll
    for (int i = 0; i < HEAD; i++)
        if (i * 32 < dim) put_limbs(sm.q[i], n, lane, code[i]);
}

// Codes of the new key or value, as a page has them but without other tokens between: to sm.fresh and, with the scale,
// to the page. Code i of a lane is that of element 32 i + lane.
template <int DIM>
__device__ __forceinline__ void store_fresh(few_shared<DIM> &sm, const ek_cuda_kv &kv, const int (&code)[DIM / 32],
                                            float scale, int fresh, bool key)
{
    const int lane = threadIdx.x % 32, bits = key ? kv.k_bits : kv.v_bits, slot = fresh % PAGE;
    uint8_t *const at = (uint8_t *)sm.page[fresh / PAGE] + (key ? 0 : kv.k_bytes);
    if (lane == 0) ((float *)(at + rotated_codes(bits, DIM)))[slot] = scale;
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        const int d = i * 32 + lane, own = key ? rotated_place(bits, d, 1, 0) : d;
        if (bits == 16) ((int16_t *)sm.fresh[!key])[own] = (int16_t)code[i];
        else ((int8_t *)sm.fresh[!key])[own] = (int8_t)code[i];
        if (key) continue;
        const int to = rotated_place(bits, slot, DIM, d);
        if (bits == 16) ((int16_t *)at)[to] = (int16_t)code[i];
        else ((int8_t *)at)[to] = (int8_t)code[i];
    }
    if (!key) return;
    __syncwarp();
    for (int row = lane; row < DIM * bits / 32; row += 32) ((u32 *)at)[row * PAGE + slot] = sm.fresh[0][row];
}

// The same from the page, where another kernel has stored them.
template <int DIM>
__device__ __forceinline__ void read_fresh(few_shared<DIM> &sm, const ek_cuda_kv &kv, int fresh, bool key, int lane)
{
    const int bits = key ? kv.k_bits : kv.v_bits, slot = fresh % PAGE;
    const uint8_t *const at = sm.page[fresh / PAGE] + (key ? 0 : kv.k_bytes);
    if (key) {
        for (int row = lane; row < DIM * bits / 32; row += 32)
            sm.fresh[0][row] = __ldcg((const u32 *)at + row * PAGE + slot);
        return;
    }
    for (int d = lane; d < DIM; d += 32) {
        const int from = rotated_place(bits, slot, DIM, d);
        if (bits == 16) ((int16_t *)sm.fresh[1])[d] = ((const int16_t *)at)[from];
        else ((int8_t *)sm.fresh[1])[d] = ((const int8_t *)at)[from];
    }
}

// Head u of the block, by a warp: a query of the tile, or behind these the new key and the new value. fresh: the new
// key of a.single. Not real: for the code alone, over the norm's weights.
template <int DIM>
__device__ __forceinline__ void code_head(few_shared<DIM> &sm, const ek_cuda_attn_args &a, const ek_cuda_attn_tile &t,
                                          int u, int fresh, bool real, int lane)
{
    const bool query = u < t.n_q, key = u == t.n_q;
    if (!query && !a.k) {
        read_fresh(sm, a.kv, fresh, key, lane);
        return;
    }
    const int row = query ? row_of(a, t, u) : t.row;
    const float *from = query ? (const float *)a.q + row * a.ldq + (int64_t)head_of(a, t, u) * DIM
                              : (const float *)(key ? a.k : a.v) + row * a.ldk + t.kv_head * DIM;
    if (!real) from = (const float *)a.head.norm;
    float x[DIM / 32];
    int code[DIM / 32];
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) x[i] = __ldcg(from + i * 32 + lane);
    if (a.head.norm)
        finish_lanes<DIM>(x, a.head, query ? a.head.norm : key ? a.k_norm : 0, (query || key) && a.head.cos != 0, row);
    const float scale = encode(x, DIM, query || (key ? a.kv.k_bits : a.kv.v_bits) == 16 ? QUERY_CODE : 127, code);
    if (!query) {
        store_fresh<DIM>(sm, a.kv, code, scale, fresh, key);
        return;
    }
    if (lane == 0) sm.q_scale[u] = scale * (1.0f / DIM);
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) put_limbs(sm.q[i], u, lane, code[i]);
}

} // namespace ek
