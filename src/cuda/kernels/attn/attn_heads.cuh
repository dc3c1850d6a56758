// Queries, the new key and the new value of a block of attention (attn_half.cu): norms, rotation, storing.
#pragma once

#include "cuda/kernels/attn/attn_half_segment.cuh"

namespace ek
{

// Heads of a tile: its queries, and if this block has the new token, its key and value; each by half a warp, or by a
// warp for more than 256 dims. A lane has elements 16 apart of a block of 256, which is its chain in the sum of
// squares. The rotation's partner of an element is in the same lane, or with more than 256 dims in lane ^ 16. The place
// of a head and the norm's weights are known before the previous kernel has ended.
template <int N, int DIM> struct half_head {
    static constexpr int THREADS = HALF_THREADS<N, DIM>, LANES = DIM > 256 ? 32 : 16, OWN = DIM / LANES,
                         PAIRS = LANES == 32 ? OWN : OWN / 2;
    static constexpr int PLACES = N * LANES < 32 ? 32 / LANES : N,
                         FIRST_NEW = PLACES * LANES / 32; // whole warps for queries, then the new key's
    const half_leaf<N, DIM> &h;
    int u, row; // the head, of the tile's; its row
    bool weighs, turns;
    const float *from;
    int64_t table; // of cos and sin, its first element of them
    static constexpr int KEPT = LANES == 16 ? OWN : 1;
    float w[KEPT]; // the norm's weights, as many as registers allow

    __device__ __forceinline__ explicit half_head(const half_leaf<N, DIM> &leaf) : h(leaf)
    {
        const int at = (int)threadIdx.x / LANES;
        place(at < PLACES ? min(at, N - 1) : at - (PLACES - N));
    }

    // The next head of this warp; false if there is none.
    __device__ __forceinline__ bool next(bool new_token)
    {
        if (PLACES + 2 <= THREADS / LANES || u + THREADS / LANES >= (new_token ? N + 2 : N)) return false;
        place(u + THREADS / LANES);
        return true;
    }

    __device__ __forceinline__ void place(int head)
    {
        const ek_cuda_attn_args &a = h.a;
        u = head, row = h.m.row[u < N ? u : 0];
        weighs = a.head.norm && (u < N || (u == N && a.k)), turns = a.head.cos && weighs;
        from = u < N ? (const float *)a.q + row * a.ldq + h.m.column[u]
                     : (const float *)(u == N ? a.k : a.v) + row * a.ldk + h.t.kv_head * DIM;
        const int first = threadIdx.x % 16 + threadIdx.x % LANES / 16 * 256; // element
        from += first;
        table = row * a.head.ld_table + threadIdx.x % 16;
        if (LANES == 16) read_weights(w, first);
    }

    template <int COUNT> __device__ __forceinline__ void read_weights(float (&w)[COUNT], int first) const
    {
        const float *const norm = (const float *)(u < N ? h.a.head.norm : h.a.k_norm);
#pragma unroll
        for (int i = 0; i < COUNT; i++) w[i] = weighs ? norm[first + i * 16] : 1;
    }

    // Not real: the call only fetches the code of the norm's weights.
    __device__ __forceinline__ void finish(bool new_token, bool real)
    {
        const ek_cuda_attn_args &a = h.a;
        const int count = new_token ? PLACES + 2 : PLACES, tid = thread_again(), lane = tid % 16,
                  first = lane + tid % LANES / 16 * 256;
        if (tid / 32 * (32 / LANES) >= count) return;
        const float *from = this->from, *sin = (const float *)a.head.sin + table,
                    *cos = LANES == 32 && tid & 16 ? sin : (const float *)a.head.cos + table;
        if (!real && a.head.norm) from = cos = sin = (const float *)a.head.norm; // existing data is read
        float x[OWN], c[PAIRS], s[LANES == 16 ? PAIRS : 1];
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = __ldcg(from + i * 16);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bool pair = turns && lane + i * 16 < a.head.rotated;
            c[i] = pair ? __ldcg(cos + i * 16) : 1;
            if (LANES == 16) s[i] = pair ? __ldcg(sin + i * 16) : 0;
        }
        if (a.head.norm) {
            float ss = 0;
#pragma unroll
            for (int i = 0; i < OWN; i++) ss = fma_(x[i], x[i], ss);
            ss = __shfl_sync(~0u, add_lanes(ss), 0, 16);
            if (LANES == 32) ss = __shfl_sync(~0u, ss, 0) + __shfl_sync(~0u, ss, 16); // blocks of 256
            const float f = __fdiv_rn(
                1.0f, __fsqrt_rn(__fmul_rn(ss, 1.0f / DIM) + a.head.eps)); // norm_factor: DIM is a power of 2
            const float *const kept = h.m.weight[u < N ? 0 : 1] + first;
#pragma unroll
            for (int i = 0; i < OWN; i++) x[i] = x[i] * f * (LANES == 16 ? w[i % KEPT] : weighs ? kept[i * 16] : 1);
        }
        if (turns) turn(x, c, s, tid);
        if (u < N) {
#pragma unroll
            for (int i = 0; i < OWN; i++) h.q[(first + i * 16) * N + u] = x[i];
            return;
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) h.m.fresh[u - N][first + i * 16] = to_half(x[i]);
    }

    // c: cosines; of a whole warp's head, sines in the upper half.
    template <int S>
    __device__ __forceinline__ void turn(float (&x)[OWN], const float (&c)[PAIRS], const float (&s)[S], int tid) const
    {
        const int lane = tid % 16;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bool pair = lane + i * 16 < h.a.head.rotated;
            const float x0 = x[i];
            if constexpr (LANES == 32) {
                const float other = __shfl_xor_sync(~0u, x0, 16), cosine = __shfl_sync(~0u, c[i], lane),
                            sine = __shfl_sync(~0u, c[i], lane + 16);
                x[i] = pair ? fma_(tid & 16 ? other : -other, sine, x0 * cosine) : x0;
            } else {
                const float x1 = x[i + PAIRS];
                x[i] = pair ? fma_(-x1, s[i], x0 * c[i]) : x0, x[i + PAIRS] = pair ? fma_(x0, s[i], x1 * c[i]) : x1;
            }
        }
    }
};

} // namespace ek
