// Scores and values of attention in integers of few queries, heads of 64, 128, 256 or 512 dims (attn_int.cu): a warp
// copies the codes that it reads, in steps of 32 inputs of its 32 columns, into a ring of its own, which runs on from
// keys to values.
//
// Where every view has one row in the step (a.single) copies begin while the kernels in front still run: of what lies
// in pages only the row's own key and value are new, and those are put into the ring behind their copies. Where few
// blocks have a multiprocessor each, all that a short segment has is there before the kernel in front has ended; where
// one or two pages are seen, two or four warps share out the dims of their keys: scores are sums of integers.
//
// Model, H100: 13 bytes a clock and multiprocessor at 3 TB/s, an answer after 800 to 2,000 clocks: 10 to 26 KB must be
// on their way; two blocks of 8 warps with 4 steps of 2 KB have 128. A step is some 70 instructions of a warp: 117
// bytes a clock.
#pragma once

#include "cuda/attn_int_args.h"
#include "cuda/kernels/attn/attn_int_few.cuh"

namespace ek
{

// Bytes from row to row of a step, so that a warp's reads meet no bank twice; of 8 pieces of 16 each.
template <int BITS> constexpr int RING_ROW = BITS == 16 ? 144 : 160;
static_assert(EK_CUDA_ATTN_INT_STEP16 == 16 * RING_ROW<16> && EK_CUDA_ATTN_INT_STEP8 == 8 * RING_ROW<8>, "");

__device__ __forceinline__ int step_bytes(const ek_cuda_kv &kv)
{
    return max(kv.k_bits, kv.v_bits) == 16 ? EK_CUDA_ATTN_INT_STEP16 : EK_CUDA_ATTN_INT_STEP8;
}

// A warp's ring. What does not change lies in shared memory or is computed anew, for registers are needed for codes.
template <int DIM> struct code_ring {
    static constexpr int CHUNKS = DIM > 256 ? DIM / 256 : 1; // of 32 dims of values, of a warp
    const few_shared<DIM> &sm;
    const ek_cuda_attn_args &a;
    uint8_t *const base;  // the warp's
    int done = 0, at = 0; // steps that were read; slot of the next

    // Step i into slot `to`, or nothing.
    __device__ __forceinline__ void issue(int i, int to) const
    {
        const int tid = thread_again(), warp = tid / 32, lane = tid % 32, keys = sm.keys[warp],
                  each = warp * 32 < DIM ? (sm.end - sm.first) * 2 : 0;
        if (i < keys + each * CHUNKS) {
            const bool key = i < keys;
            const int bits = key ? a.kv.k_bits : a.kv.v_bits, row = bits == 16 ? RING_ROW<16> : RING_ROW<8>;
            const uint8_t *from;
            int ld = PAGE * 4;
            if (key) from = sm.key[warp] + i * bits * PAGE * 4; // a step has as many rows as a code has bits
            else {
                int v = i - keys, d0 = warp * 32;
                if (CHUNKS > 1 && v >= each) v -= each, d0 += 256;
                v += sm.first * 2, ld = DIM * 4;
                from = sm.page[v / 2] + a.kv.k_bytes + v % 2 * bits * ld + d0 * 4;
            }
            uint8_t *const slot = base + to * step_bytes(a.kv) + lane / 8 * row + lane % 8 * 16;
            from += lane / 8 * ld + lane % 8 * 16;
#pragma unroll
            for (int p = 0; p < 4; p++)
                if (p * 4 < bits) copy_async<16>(slot + p * 4 * row, from + p * 4 * ld);
        }
        copy_commit();
    }

    // The block's pages are known. share: warps that share out the dims of 32 keys.
    __device__ __forceinline__ void begin() const
    {
#pragma unroll 1
        for (int i = 0; i < a.slots; i++) issue(i, i);
    }

    // The next step is there for all lanes.
    __device__ __forceinline__ uint8_t *wait() const
    {
        if (a.slots >= 8) { // as many as int_plan of cuda/attn_work.c may choose
            if (a.slots >= 16) copy_wait<15>();
            else if (a.slots >= 9) copy_wait<8>();
            else copy_wait<7>();
        } else if (a.slots >= 4) {
            if (a.slots >= 5) copy_wait<4>();
            else copy_wait<3>();
        } else {
            if (a.slots >= 2) copy_wait<1>();
            else copy_wait<0>();
        }
        __syncwarp();
        return base + at * step_bytes(a.kv);
    }

    // All lanes have read it: another comes in its place.
    __device__ __forceinline__ void next()
    {
        __syncwarp();
        issue(done + a.slots, at);
        done++, at = at + 1 < a.slots ? at + 1 : 0;
    }
};

// Which keys a warp has, and where its first step of them lies. share: warps that share out the dims of 32 keys, where
// that many of the block would have none.
template <int DIM>
__device__ __forceinline__ void share_keys(few_shared<DIM> &sm, const ek_cuda_kv &kv, int share, int warp)
{
    const int own = share > 1 ? sm.first * 2 + warp % (WARPS / share) : warp, part = warp / (WARPS / share);
    const uint8_t *const page = sm.page[own / 2];
    const int keys = page ? DIM / 32 / share : 0;
    sm.keys[warp] = keys;
    sm.key[warp] = page + own % 2 * 128 + (share > 1 ? part : 0) * keys * (kv.k_bits * PAGE * 4);
}

template <int BITS> __device__ __forceinline__ void load_step(two_tiles<BITS> &two, const uint8_t *slot, int lane)
{
    slot += fragment<BITS>::row(0, lane % 4) * RING_ROW<BITS> + lane / 4 * 8;
#pragma unroll
    for (int i = 0; i < BITS / 4; i++) {
        const uint8_t *const at = slot + fragment<BITS>::row(i, 0) * RING_ROW<BITS>;
        two.x[0].w[i] = *(const uint2 *)at, two.x[1].w[i] = *(const uint2 *)(at + 64);
    }
}

// Scores of the warp's keys; where warps share keys, over its part of the dims. fresh: the new key, or -1. Not real:
// for the code alone, over what lies in the ring.
template <int BITS, int DIM>
__device__ __forceinline__ void scores(float (&s)[2][4], few_shared<DIM> &sm, code_ring<DIM> &ring, int share,
                                       int fresh, bool real)
{
    two_tiles<BITS> two;
    const int lane = thread_again() % 32, warp = thread_again() / 32, keys = real ? sm.keys[warp] : 1,
              groups = WARPS / share, own = share > 1 ? sm.first * 2 + warp % groups : warp,
              d0 = share > 1 ? warp / groups * keys : 0;
    const bool puts = real && fresh >> 5 == own && keys;
#pragma unroll 1
    for (int i = 0; i < keys; i++) {
        uint8_t *const slot = real ? ring.wait() : ring.base;
        if (puts) {
            if (lane < two.ROWS)
                *(u32 *)(slot + lane * RING_ROW<BITS> + fresh % 32 * 4) = sm.fresh[0][(d0 + i) * two.ROWS + lane];
            __syncwarp();
        }
        load_step(two, slot, lane);
        if (real) ring.next();
        two.add(sm.q[d0 + i], lane);
    }
    int *const parts = (int *)sm.all + lane; // [warp][8][32]
    if (share > 1) {
#pragma unroll
        for (int i = 0; i < 8; i++) parts[(warp * 8 + i) * 32] = two.score(i / 4, i % 4);
        __syncthreads();
    }
    const uint8_t *const page = real ? sm.page[warp / 2] : ring.base;
    if (!page) return;
    const float *const scale = (const float *)(page + (real ? rotated_codes(BITS, DIM) : 0)) + warp % 2 * 32 +
                               lane / 4 * 2;
    scale_scores(s, sm, scale, lane, [&](int m, int i) {
        if (share == 1) return two.score(m, i);
        int sum = 0;
        for (int part = 0; part < share; part++)
            sum += parts[((part * groups + warp - sm.first * 2) * 8 + m * 4 + i) * 32];
        return sum;
    });
}

// Sums of the warp's values over the pages that are seen.
template <int BITS, int DIM>
__device__ __forceinline__ void values(few_shared<DIM> &sm, const ek_cuda_attn_args &a, code_ring<DIM> &ring,
                                       bool alone, int fresh, bool real)
{
    const int lane = thread_again() % 32, end = real ? sm.end * 2 : sm.first * 2 + 1;
#pragma unroll 1
    for (int d0 = thread_again() / 32 * 32; d0 < DIM; d0 += real ? WARPS * 32 : DIM) {
        two_tiles<BITS> two;
#pragma unroll 1
        for (int i = sm.first * 2; i < end; i++) {
            uint8_t *const slot = real ? ring.wait() : ring.base;
            if (real && fresh >> 5 == i) { // the place of its page's token: ek_kv_int_place
                const int of = fresh % 32;
                if (BITS == 16)
                    ((int16_t *)(slot + of / 2 * RING_ROW<BITS> + lane * 4))[of % 2] =
                        ((int16_t *)sm.fresh[1])[d0 + lane];
                else
                    ((int8_t *)(slot + of / 4 * RING_ROW<BITS> + lane * 4))[(of & 1) * 2 + (of >> 1 & 1)] =
                        ((int8_t *)sm.fresh[1])[d0 + lane];
                __syncwarp();
            }
            load_step(two, slot, lane);
            if (real) ring.next();
            two.add(sm.p[i], lane);
        }
        keep_values(sm, a, two, alone, DIM, d0 + lane / 4 * 2, lane);
    }
}

} // namespace ek
