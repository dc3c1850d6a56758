// Queries, the new key and the new value of a block of attention (attn_half.cu): norms, rotation, storing.
#pragma once

#include "cuda/kernels/attn_half.cuh"

namespace ek {

// Heads of a tile: its queries, and where this block has the new token (`new_token`), its key and value; each by half a
// warp, or by a warp for more than 256 dims. A lane has elements 16 apart of a block of 256, which is its chain in the sum
// of squares. Not real: for the code alone, of the norm's weights.
template <int N, int DIM> __device__ __forceinline__ void finish_heads(const half_leaf<N, DIM> &h, bool new_token, bool real)
{
    static_assert(N % 2 == 0, "a warp's two halves both have a head");
    constexpr int LANES = DIM > 256 ? 32 : 16, HALF = DIM / 2, OWN = DIM / LANES;
    const ek_cuda_attn_args &a = h.a;
    const int count = new_token ? N + 2 : N, lane = threadIdx.x % LANES, first = lane % 16 + lane / 16 * 256;
#pragma unroll 1
    for (int u0 = (int)threadIdx.x / 32 * (32 / LANES); u0 < count; u0 += THREADS / LANES) { // of the warp
        const int u = u0 + (int)threadIdx.x % 32 / LANES, row = h.m.row[u < N ? u : 0];
        const float *const norm = (const float *)(u < N ? a.head.norm : a.k_norm);
        const bool weighs = a.head.norm && u <= N, turns = a.head.cos && weighs;
        const float *from = u < N ? (const float *)a.q + row * a.ldq + h.m.column[u] : (const float *)(u == N ? a.k : a.v) + row * a.ldk + h.t.kv_head * DIM;
        const float *cos = (const float *)a.head.cos + row * a.head.ld_table, *sin = (const float *)a.head.sin + row * a.head.ld_table;
        if (!real && weighs) from = cos = sin = norm; // what stands there already
        float *const to = u < N ? h.q + u : h.m.head[u == N ? 0 : 1];
        const int apart = u < N ? N : 1;
        float x[OWN], w[OWN], c[OWN / 2], s[OWN / 2];
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = __ldcg(from + first + i * 16);
#pragma unroll
        for (int i = 0; i < OWN / 2; i++) { // with j + HALF a pair
            const int j = lane + LANES * i;
            const bool pair = turns && j < a.head.rotated;
            c[i] = pair ? cos[j] : 1, s[i] = pair ? sin[j] : 0;
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) w[i] = weighs ? norm[first + i * 16] : 1;
        if (a.head.norm) {
            float ss = 0;
#pragma unroll
            for (int i = 0; i < OWN; i++) ss = fma_(x[i], x[i], ss);
            ss = __shfl_sync(~0u, add_lanes(ss), 0, 16);
            if (LANES == 32) ss = __shfl_sync(~0u, ss, 0) + __shfl_sync(~0u, ss, 16); // blocks of 256
            const float f = norm_factor(ss, DIM, a.head.eps);
#pragma unroll
            for (int i = 0; i < OWN; i++) x[i] = x[i] * f * w[i];
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) to[(first + i * 16) * apart] = x[i];
        __syncwarp();
        if (turns)
#pragma unroll
            for (int i = 0; i < OWN / 2; i++) {
                const int j = lane + LANES * i;
                const float x0 = to[j * apart], x1 = to[(j + HALF) * apart];
                const bool pair = j < a.head.rotated;
                to[j * apart] = pair ? fma_(-x1, s[i], x0 * c[i]) : x0, to[(j + HALF) * apart] = pair ? fma_(x0, s[i], x1 * c[i]) : x1;
            }
        __syncwarp();
        if (u < N) continue;
        unsigned short *const place = (unsigned short *)h.m.page[h.fresh / PAGE];
        unsigned short *const out = u == N ? place + h.fresh % PAGE : place + a.kv.k_bytes / 2 + h.fresh % PAGE * DIM;
        const int step = u == N ? PAGE : 1;
#pragma unroll 4
        for (int j = lane; j < DIM; j += LANES) {
            const unsigned short y = to_half(to[j]);
            h.m.fresh[u - N][j] = y;
            if (real && h.t.head == 0) out[j * step] = y;
        }
    }
}

} // namespace ek
