// The weights of a segment of keys for the 16 queries of a warp (attn_tensors.cu): scores in its registers, weights in
// shared memory, e[key][query], and their sums. Nothing here waits for another warp.
#pragma once

#include "cuda/kernels/math.cuh"
#include "cuda/tower_args.h"

namespace ek
{

constexpr int TILE = EK_CUDA_TENSORS_TILE, SEGMENT = 256;
constexpr int K_DIMS = 8, LDK = SEGMENT + 4; // a slot of keys: [dim][key]

// The place of four queries, number `piece`, in a key's row of e: permuted by the key, so that lanes of different keys
// write to different banks.
__device__ __forceinline__ int piece_of(int piece, int key)
{
    return (piece ^ (key / 4 & 7)) * 4;
}

// Keys of a lane: number i.
__device__ __forceinline__ int key_of(int i)
{
    return threadIdx.x % 32 * 4 + i / 4 * 128 + i % 4;
}

// 12582912 + n as a float, with the n of exp_split(s) (math.cuh); s is clamped
__device__ __forceinline__ float whole_of(float s)
{
    return __fadd_rn(__fmul_rn(s, 1.44269504f), 12582912.0f);
}

__device__ __forceinline__ float clamped(float s)
{
    return fminf(fmaxf(s, -0x1p20f), 0x1p20f); // NaN becomes the lowest, as there
}

// Scores of the warp's 16 queries for 8 keys of a lane, then their weights.
struct __align__(16) scores
{
    float v[16][8];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int q = 0; q < 16; q++)
#pragma unroll
            for (int i = 0; i < 8; i++) v[q][i] = 0;
    }

    struct __align__(16) dim
    {
        float q[16], k[8];

        // q: the warp's queries of the dim; k: the lane's first key
        __device__ __forceinline__ void read(const float *from, const float *key)
        {
#pragma unroll
            for (int i = 0; i < 16; i += 4) *(float4 *)(q + i) = *(const float4 *)(from + i);
            *(float4 *)k = *(const float4 *)key, *(float4 *)(k + 4) = *(const float4 *)(key + 128);
        }
    };

    // Keys alternate their direction, so that operands stay in their registers from one instruction to the next.
    __device__ __forceinline__ void add(const dim &d)
    {
#pragma unroll
        for (int q = 0; q < 16; q++)
#pragma unroll
            for (int turn = 0; turn < 8; turn++) {
                const int i = q & 1 ? 7 - turn : turn;
                v[q][i] = fma_(d.q[q], d.k[i], v[q][i]);
            }
    }

    // A slot's dims: the next is read while one is added.
    __device__ __forceinline__ void add_slot(const float *q, const float *k)
    {
        dim d[2];
        d[0].read(q, k);
#pragma unroll 1
        for (int i = 0; i < K_DIMS; i += 2) {
            d[1].read(q + (i + 1) * TILE, k + (i + 1) * LDK);
            add(d[0]);
            if (i + 2 < K_DIMS) d[0].read(q + (i + 2) * TILE, k + (i + 2) * LDK);
            add(d[1]);
        }
    }

    // The largest score of a segment's first n keys, the visible ones, for each of the warp's queries, in the form of
    // whole_of.
    __device__ __forceinline__ void top_of(int n, int *m) const
    {
#pragma unroll
        for (int q = 0; q < 16; q++) {
            float top = bits(0xff800000u);
#pragma unroll
            for (int i = 0; i < 8; i++) top = n == SEGMENT || key_of(i) < n ? fmaxf(top, v[q][i]) : top;
#pragma unroll
            for (int apart = 1; apart < 32; apart *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, apart));
            if (threadIdx.x % 32 == 0) m[q] = (int)__float_as_uint(whole_of(clamped(top)));
        }
    }

    __device__ __forceinline__ void put(float(*e)[TILE], int piece) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int h = 0; h < 4; h++)
                *(float4 *)&e[key_of(i)][piece_of(piece + h, key_of(i))] = make_float4(
                    v[h * 4][i], v[h * 4 + 1][i], v[h * 4 + 2][i], v[h * 4 + 3][i]);
    }
};

// Turns the scores that the lane has put into e into weights. m: top_of. This is a loop over shared memory, because
// unrolled instructions would not stay in their cache.
__device__ __forceinline__ void weigh(float (*e)[TILE], int piece, int n, const int *m)
{
#pragma unroll 1
    for (int h = 0; h < 4; h++) {
        const int most[4] = {m[h * 4], m[h * 4 + 1], m[h * 4 + 2], m[h * 4 + 3]};
#pragma unroll 1
        for (int i0 = 0; i0 < 8; i0 += 4) {
            float x[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float4 *)x[i] = *(const float4 *)&e[key_of(i0 + i)][piece_of(piece + h, key_of(i0 + i))];
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    const float s = clamped(x[i][q]), whole = whole_of(s);
                    float r, p = exp_rest(s, __fadd_rn(whole, -12582912.0f), r);
                    p = __fadd_rn(fma_(p, __fmul_rn(r, r), r), 1.0f);
                    // p is in [0.7, 1.5): its exponent has room for -125
                    const int less = (int)__float_as_uint(whole) - most[q];
                    x[i][q] = less < -125 || key_of(i0 + i) >= n ? 0.0f : bits(__float_as_uint(p) + ((u32)less << 23));
                }
                *(float4 *)&e[key_of(i0 + i)][piece_of(piece + h, key_of(i0 + i))] = make_float4(x[i][0], x[i][1],
                                                                                                 x[i][2], x[i][3]);
            }
        }
    }
}

// The sums of weights of the warp's 16 queries; `piece` is their first piece in a key's row. Each lane of the
// definition adds its 16 weights, then the lanes are added.
__device__ __forceinline__ void sum_weights(const float (*e)[TILE], int piece, float *l)
{
    const int first = threadIdx.x % 32 / 4, own = piece + threadIdx.x % 4;
    float sum[2][4] = {};
#pragma unroll
    for (int key = 0; key < SEGMENT; key += 16)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int at = key + h * 8 + first;
            const float4 v = *(const float4 *)&e[at][piece_of(own, at)];
            sum[h][0] = sum[h][0] + v.x, sum[h][1] = sum[h][1] + v.y;
            sum[h][2] = sum[h][2] + v.z, sum[h][3] = sum[h][3] + v.w;
        }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        float all = sum[0][q] + sum[1][q];
#pragma unroll
        for (int apart = 16; apart >= 4; apart /= 2) all = all + __shfl_xor_sync(~0u, all, apart);
        if (first == 0) l[threadIdx.x % 4 * 4 + q] = all;
    }
}

} // namespace ek
