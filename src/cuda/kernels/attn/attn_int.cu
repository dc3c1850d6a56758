// Attention in integers of few queries (contract: ops/attn/attn_int.h): a block of threads computes one segment of 256
// keys for a tile of up to 8 queries of one KV head.
//
// ek_attn_int_DIM finishes its queries, stores the new key and value, and joins its leaves in one launch. ek_attn_int
// takes any head, and first positions in another format; ek_heads, ek_kv_store and ek_attn_int_join then do the rest.
#include "cuda/kernels/attn/attn_int_end.cuh"
#include "cuda/kernels/attn/attn_int_heads.cuh"
#include "cuda/kernels/attn/attn_int_open.cuh"

using namespace ek;

template <int DIM> __device__ __forceinline__ void few(const ek_cuda_attn_args &a)
{
    __shared__ few_shared<DIM> sm;
    const ek_cuda_attn_start own_item = item_of(a), &item = sm.item;
    const ek_cuda_attn_tile &t = item.t;
    let_next_start();
    if (own_item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    const ek_cuda_kv kv = DIM ? a.kv : kv_at(a, own_item.seg * 4);
    fetch_segment(a, kv, own_item);
    const bool any = open(sm, a, kv, own_item);
    wait_for_previous();
    if (!any) return;
    __syncthreads();
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, dim = DIM ? DIM : kv.head_dim;
    const int own = (item.end - 1) / SEGMENT == item.seg ? (item.end - 1) % SEGMENT : -1;
    if (DIM && a.k && own >= 0) { // by warps without queries, or by both
        const int key_warp = t.n_q < WARPS ? t.n_q : 0, value_warp = t.n_q + 1 < WARPS ? t.n_q + 1 : 1;
        if (warp == key_warp || warp == value_warp)
            store_fresh<DIM ? DIM : 64>(a, t, (uint8_t *)page_of(a, kv, item, own / PAGE), own % PAGE,
                                        warp == key_warp);
    }
    code_query(sm, a, t, warp, dim, lane);
    __syncthreads();
    if (gridDim.x > FEW_BLOCKS) // values come while scores are computed
        for (int p = sm.first; p < sm.end; p++)
            for (int64_t i = tid * 128; i < kv.v_bytes; i += THREADS * 128) prefetch_line(sm.page[p] + kv.k_bytes + i);
    float s[1][2][4] = {};
    const uint8_t *page = sm.page[warp / 2];
    if (page) {
        if (kv.k_bits == 16) scores<16>(s[0], sm, page, dim, warp, lane);
        else scores<8>(s[0], sm, page, dim, warp, lane);
    }
    const bool alone = DIM && t.n_seg == 1;
    float v_scale[1][2][2] = {};
    if (page) load_scales(v_scale[0], page + kv.k_bytes, kv.v_bits, dim, warp % 2 * 32 + lane / 4 * 2);
    weigh(sm, a, s, v_scale, alone, warp, lane);
#pragma unroll 1
    for (int d0 = thread_again() / 32 * 32; d0 < dim; d0 += WARPS * 32) {
        if (kv.v_bits == 16) values<16>(sm, a, kv, alone, d0);
        else values<8>(sm, a, kv, alone, d0);
    }
    if constexpr (DIM > 0) {
        if (!join(sm, a, item)) return;
        __syncthreads();
        write_rows(sm, a, t);
    }
}

#define FEW(DIM, NAME)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                          \
        few<DIM>(a);                                                                                           \
    }
FEW(0, ek_attn_int)
FEW(64, ek_attn_int_64)
FEW(128, ek_attn_int_128)
FEW(256, ek_attn_int_256)
FEW(512, ek_attn_int_512)

// grid (tiles, tile), a thread per dim, rounded up to warps: T over the leaves of a query, or over nodes of 2^a.slots
// leaves each; R (o / l) / n.
extern "C" __global__ void __launch_bounds__(512) ek_attn_int_join(const __grid_constant__ ek_cuda_attn_args a)
{
    __shared__ float all[512];
    let_next_start();
    wait_for_previous();
    ek_cuda_attn_tile t = ((const ek_cuda_attn_tile *)a.tiles)[blockIdx.x];
    const int n = blockIdx.y, dim = a.kv.head_dim, d = threadIdx.x, block = dim & -dim, lane = d % 32;
    if (n >= t.n_q) return;
    t.seg0 += leaves_of(a, t, n) - 1 - ((leaves_of(a, t, n) - 1) >> a.slots); // each node counts as a leaf
    float value = d < dim ? finish(join_leaves(a, t, n, d)) : 0.0f;
#pragma unroll 1
    for (int h = 1; h < block; h *= 2) {
        float other;
        if (h < 32) other = __shfl_xor_sync(~0u, value, h);
        else {
            __syncthreads();
            all[d] = value;
            __syncthreads();
            other = all[d ^ h];
        }
        value = d & h ? other - value : value + other;
    }
    value = value * __fdiv_rn(1.0f, (float)block);
    const int row = row_of(a, t, n), place = head_of(a, t, n) * dim;
    if (d < dim) ((float *)a.o)[row * a.ldo + place + d] = value;
    if (!a.to.q) return;
    __syncthreads();
    all[d] = value;
    __syncthreads();
    const int g = d / 32;
    if (g * 64 >= dim) return;
    const float v[2] = {all[g * 64 + lane], all[g * 64 + lane + 32]};
    quantize_group(a.to, row, place / 64 + g, v);
}
