// The beginning of a block of attention in integers of few queries (attn_int.cu, attn_int_own.cu): its item, its pages,
// and its queries' visible keys.
#pragma once

#include "cuda/kernels/attn/attn_int_few.cuh"

namespace ek
{

// The block's item: from `starts` as one record, otherwise the visible range of the first row.
__device__ __forceinline__ ek_cuda_attn_start item_of(const ek_cuda_attn_args &a)
{
    if (a.starts) {
        const int4 *const from = (const int4 *)a.items + blockIdx.x * (sizeof(ek_cuda_attn_start) / sizeof(int4));
        const int4 x = from[0], y = from[1], z = from[2], p = from[3];
        return {{x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}, z.x, z.y, z.z, z.w, {p.x, p.y, p.z, p.w}};
    }
    const ek_cuda_attn_item item = ((const ek_cuda_attn_item *)a.items)[blockIdx.x];
    ek_cuda_attn_start s = {((const ek_cuda_attn_tile *)a.tiles)[max(item.tile, 0)], item.tile, item.seg, 0, 0, {}};
    const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[s.t.row];
    s.lo = row.lo, s.end = row.end;
    return s;
}

// The head's part of the segment's page p; 0: no page.
__device__ __forceinline__ u64 page_of(const ek_cuda_attn_args &a, const ek_cuda_kv &kv, const ek_cuda_attn_start &item,
                                       int p)
{
    const int of_record = p & 2 ? p & 1 ? item.page[3] : item.page[2] : p & 1 ? item.page[1] : item.page[0];
    const int number = a.starts ? of_record : ((const int32_t *)kv.pages)[item.t.view * kv.ld_pages + item.seg * 4 + p];
    return number < 0 ? 0 : kv.base + (u64)kv.stride * (u32)number + item.t.kv_head * (kv.k_bytes + kv.v_bytes);
}

// Few blocks wait for memory, so keys and values of the segment are fetched into the second-level cache while the
// previous kernels run.
__device__ __forceinline__ void fetch_segment(const ek_cuda_attn_args &a, const ek_cuda_kv &kv,
                                              const ek_cuda_attn_start &item)
{
    if (gridDim.x > FEW_BLOCKS) return;
#pragma unroll 1
    for (int p = 0; p < SEGMENT / PAGE; p++) {
        const int key = item.seg * SEGMENT + p * PAGE;
        const uint8_t *const page = key < item.end && key + PAGE > item.lo ? (const uint8_t *)page_of(a, kv, item, p)
                                                                           : 0;
        if (!page) continue;
#pragma unroll 1
        for (int64_t i = threadIdx.x * 128; i < kv.k_bytes + kv.v_bytes; i += THREADS * 128) prefetch_line(page + i);
    }
}

// The part of the segment that the block's queries see, and its pages. False: nothing is visible.
template <int DIM, int W>
__device__ __forceinline__ bool open(few_shared<DIM, W> &sm, const ek_cuda_attn_args &a, const ek_cuda_kv &kv,
                                     const ek_cuda_attn_start &item)
{
    const ek_cuda_attn_tile &t = item.t;
    const int tid = threadIdx.x, lane = tid % 32;
    int from = SEGMENT, to = 0; // lane n: of query n
    if (lane < t.n_q) {
        ek_cuda_attn_row row = {item.lo, item.end};
        if (t.head + t.n_q > a.ratio) row = ((const ek_cuda_attn_row *)a.rows)[row_of(a, t, lane)];
        from = clamp_key(row.lo - item.seg * SEGMENT), to = clamp_key(row.end - item.seg * SEGMENT);
        if (tid < N) sm.leaves[lane] = (row.end - 1) / SEGMENT - t.seg0 + 1;
    }
    if (tid < N) sm.from[lane] = from, sm.to[lane] = to;
    const bool any = from < to;
    const int all_from = -__reduce_max_sync(~0u, any ? -from : -SEGMENT), all_to = __reduce_max_sync(~0u, any ? to : 0);
    if (all_from >= all_to) return false;
    const int first = all_from / PAGE, end = (all_to - 1) / PAGE + 1;
    if (tid == 0) sm.item = item, sm.first = first, sm.end = end;
    if (tid < SEGMENT / PAGE) {
        u64 page = tid >= first && tid < end ? page_of(a, kv, item, tid) : 0;
        if (!page && tid > first && tid < end) page = page_of(a, kv, item, first); // nobody sees it
        sm.page[tid] = (const uint8_t *)page;
    }
    return true;
}

} // namespace ek
