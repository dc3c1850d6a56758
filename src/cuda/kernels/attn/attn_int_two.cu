// Attention in integers of 12 bits for two queries, if blocks of threads are many (contract: ops/attn/attn_int.h;
// choice: cuda/attn_work.h): the bits of ek_attn_int_DIM by blocks of four warps. Two queries, their key and their
// value are four heads, and few keys are work for four warps, so half as many wait in vain; four blocks share a
// multiprocessor.
#include "cuda/kernels/attn/attn_int_end.cuh"
#include "cuda/kernels/attn/attn_int_heads.cuh"
#include "cuda/kernels/attn/attn_int_open.cuh"

using namespace ek;

constexpr int FOUR = 4, PARTS = WARPS / FOUR; // warps of a block; groups of 32 keys of a warp

template <int DIM> __device__ __forceinline__ void two(const ek_cuda_attn_args &a)
{
    __shared__ few_shared<DIM, FOUR> sm;
    const ek_cuda_attn_start own_item = item_of(a), &item = sm.item;
    let_next_start();
    if (own_item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    const ek_cuda_kv &kv = a.kv;
    const bool any = open(sm, a, kv, own_item);
    wait_for_previous();
    if (!any) return;
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool alone = item.t.n_seg == 1;
    head_by_warp(sm, a, (item.end - 1) / SEGMENT == item.seg ? (item.end - 1) % SEGMENT : -1, warp);
    __syncthreads();
    for (int p = sm.first; p < sm.end; p++) // values come while scores are computed
        for (int64_t i = threadIdx.x * 128; i < kv.v_bytes; i += FOUR * 32 * 128)
            prefetch_line(sm.page[p] + kv.k_bytes + i);
    float s[PARTS][2][4] = {}, v_scale[PARTS][2][2] = {};
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        const int of = warp + j * FOUR;
        const uint8_t *const page = sm.page[of / 2];
        if (!page) continue;
        scores<16>(s[j], sm, page, DIM, of, lane);
        load_scales(v_scale[j], page + kv.k_bytes, 16, DIM, of % 2 * 32 + lane / 4 * 2);
    }
    weigh(sm, a, s, v_scale, alone, warp, lane);
#pragma unroll 1
    for (int d0 = thread_again() / 32 * 32; d0 < DIM; d0 += FOUR * 32) values<16>(sm, a, kv, alone, d0);
    if (!join(sm, a, item)) return;
    __syncthreads();
    write_two_rows(sm, a, item.t);
}

#define TWO(DIM)                                                           \
    extern "C" __global__ void __launch_bounds__(FOUR * 32, 4)             \
        ek_attn_int_two_##DIM(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                      \
        two<DIM>(a);                                                       \
    }
TWO(64)
TWO(128)
TWO(256)
TWO(512)
