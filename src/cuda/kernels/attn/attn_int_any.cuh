// Scores and values of attention in integers of few queries whose heads have any number of dims (attn_int.cu): codes
// come from the page, a step at a time.
#pragma once

#include "cuda/kernels/attn/attn_int_few.cuh"

namespace ek
{

// at: the lane's columns of the step's first row, of `rows`
template <int BITS>
__device__ __forceinline__ void load_any(two_tiles<BITS> &two, const uint8_t *at0, const uint8_t *at1, int ld, int rows,
                                         int lane)
{
#pragma unroll
    for (int i = 0; i < BITS / 4; i++) {
        const int64_t row = (int64_t)min(fragment<BITS>::row(i, lane % 4), rows - 1) * ld;
        two.x[0].w[i] = *(const uint2 *)(at0 + row), two.x[1].w[i] = *(const uint2 *)(at1 + row);
    }
}

// Scores of the warp's 32 keys, whose page is there.
template <int BITS>
__device__ __forceinline__ void scores_any(float (&s)[2][4], const few_shared<0> &sm, const uint8_t *page, int dim,
                                           int warp, int lane)
{
    two_tiles<BITS> two;
    const int column = warp % 2 * 32 + lane / 4 * 2, ld = PAGE * 4, rows = dim * BITS / 32, steps = (dim + 31) / 32;
    const uint8_t *at = page + column * 4;
#pragma unroll 1
    for (int step = 0; step < steps; step++, at += two.ROWS * ld) {
        load_any(two, at, at + 64, ld, rows - step * two.ROWS, lane);
        two.add(sm.q[step], lane);
    }
    scale_scores(s, sm, (const float *)(page + rotated_codes(BITS, dim)) + column, lane,
                 [&](int m, int i) { return two.score(m, i); });
}

// Sums of values at dims [d0, d0 + 32) over the pages that are seen, to a leaf.
template <int BITS>
__device__ __forceinline__ void values_any(few_shared<0> &sm, const ek_cuda_attn_args &a, const ek_cuda_kv &kv, int d0)
{
    two_tiles<BITS> two;
    const int lane = thread_again() % 32, dim = kv.head_dim, ld = dim * 4, column = d0 + lane / 4 * 2;
    const int at0 = (column < dim ? column : 0) * 4, at1 = (column + 16 < dim ? column + 16 : 0) * 4;
#pragma unroll 1
    for (int step = sm.first * 2; step < sm.end * 2; step++) {
        const uint8_t *const v = sm.page[step / 2] + kv.k_bytes + step % 2 * two.ROWS * ld;
        load_any(two, v + at0, v + at1, ld, two.ROWS, lane);
        two.add(sm.p[step], lane);
    }
    keep_values(sm, a, two, false, dim, column, lane);
}

} // namespace ek
