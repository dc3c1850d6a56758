// The kernels of mid_product.cuh for weights of one kind: alone, with their gate, and q, k and v in one launch; a
// block's tile and part, and the target of its sums.
#pragma once

#include "cuda/kernels/product/mid_product.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

namespace ek
{

// Panels, rows and units of block number `block`: tiles of rows change first, so that concurrent blocks share weights.
template <int LIMBS, int OCT, int A>
__device__ __forceinline__ mid_product<LIMBS, OCT, A> mid_open(const ek_cuda_linear_args &a, int block, int *group,
                                                               int *part)
{
    typedef mid_product<LIMBS, OCT, A> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const int tiles = (a.rows + product::ROWS - 1) / product::ROWS, item = block / tiles, units = a.x.k / 64;
    const int split = a.split ? a.split : units, parts = (units + split - 1) / split;
    *group = item / parts, *part = item % parts;
    const int first = *part * split, row0 = (block - item * tiles) * product::ROWS;
    return product{a,
                   base,
                   first,
                   min(split, units - first),
                   row0,
                   min(product::ROWS, a.rows - row0),
                   (int)threadIdx.x % 32,
                   (int)threadIdx.x / 32};
}

// Stores sums of a warp's panels, from panel p0 on, in the tile's rows of y.
template <class M> __device__ __forceinline__ void mid_store(const M &m, const float (&sum)[M::SUMS], int p0, float *y)
{
    const int row0 = m.first_row(), rows = m.all_rows();
#pragma unroll
    for (int p = 0; p < M::PANELS; p++)
#pragma unroll
        for (int o = 0; o < M::COLUMNS / 8; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < M::PER; c++) {
                    const int out = (p0 + p) * 16 + m.lane / 4 + h * 8, r = (o * 4 + m.lane % 4) * M::PER + c;
                    if (out < m.a.n && r < rows)
                        y[(int64_t)(row0 + r) * m.a.ldy + out] = sum[p * M::EACH + (o * 2 + h) * M::PER + c];
                }
}

template <int LIMBS, int OCT, int A> __device__ __forceinline__ void mid(const ek_cuda_linear_args &a, int block)
{
    typedef mid_product<LIMBS, OCT, A> product;
    int group, part;
    const product m = mid_open<LIMBS, OCT, A>(a, block, &group, &part);
    const int panels = (a.n + 15) / 16, units = a.x.k / 64, p0 = (group * product::WARPS + m.w) * product::PANELS;
    u64 code[product::PANELS], scale[product::PANELS];
#pragma unroll
    for (int p = 0; p < product::PANELS; p++) {
        const int64_t unit = (int64_t)min(p0 + p, panels - 1) * units;
        code[p] = a.codes + unit * product::CODE, scale[p] = a.scales + unit * product::SCALE;
    }
    float sum[product::SUMS];
    m.run(sum, code, scale);
    mid_store(m, sum, p0, (float *)a.y + (int64_t)part * a.rows * a.ldy);
}

// A block's sums of two matrices: gelu(the first's) times the second's, quantised, are group number `group` of 64
// outputs. They pass through shared memory to a warp per row, in a loop of little code: unrolled over a lane's sums it
// would take longer than the product, because instructions that run once must be fetched.
template <int A, class M>
__device__ __forceinline__ void mid_gate_end(const ek_cuda_warp_args &p, const M &m, const float (&sum)[M::SUMS],
                                             int group)
{
    constexpr int ROW = 68; // floats: rows 2 t begin in different banks
    const int row0 = m.first_row(), rows = m.all_rows();
    copy_wait<0>();
    __syncthreads();                     // the ring is free
    float *const sums = (float *)m.ring; // [matrix][row][output]
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int o = 0; o < M::COLUMNS / 8; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    sums[(i * M::ROWS + (o * 4 + m.lane % 4) * 2 + c) * ROW + m.w * 16 + h * 8 + m.lane / 4] =
                        sum[i * M::EACH + (o * 2 + h) * 2 + c];
    __syncthreads();
#pragma unroll 1
    for (int r = m.w; r < rows; r += M::WARPS) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *gate = sums + r * ROW + i * 32 + m.lane;
            v[i] = gelu_(*gate) * gate[M::ROWS * ROW];
        }
        if constexpr (A == 64) {
            quantize_group(p.to, row0 + r, group, v);
        } else {
            const float halves[2][2] = {{v[0], 0}, {v[1], 0}};
#pragma unroll
            for (int i = 0; i < 2; i++) quantize_group(p.to, row0 + r, group * 2 + i, halves[i]);
        }
    }
}

// A block has a group of 64 outputs of both.
template <int OCT, int A> __device__ __forceinline__ void mid_gate(const ek_cuda_warp_args &p)
{
    typedef mid_product<1, OCT, A> product;
    int group, part;
    const product m = mid_open<1, OCT, A>(p.a, blockIdx.x, &group, &part);
    const int64_t unit = (int64_t)(group * product::WARPS + m.w) * (p.a.x.k / 64);
    const u64 code[2] = {p.a.codes + unit * product::CODE, p.codes2 + unit * product::CODE},
              scale[2] = {p.a.scales + unit * product::SCALE, p.scales2 + unit * product::SCALE};
    float sum[product::SUMS];
    m.run(sum, code, scale);
    mid_gate_end<A>(p, m, sum, group);
}

// q with one limb, k and v with two.
template <int OCT, int A> __device__ __forceinline__ void mid_heads(const ek_cuda_warp_heads_args &h)
{
    int block = blockIdx.x - h.q_blocks;
    if (block < 0) {
        mid<1, OCT, A>(h.q, blockIdx.x);
        return;
    }
    ek_cuda_linear_args a = h.k;
    if (block >= h.k_blocks) block -= h.k_blocks, a.codes = h.v_codes, a.scales = h.v_scales, a.y = h.v;
    mid<2, OCT, A>(a, block);
}

} // namespace ek

// The kernels for groups of A inputs: NAME is the part of their names for bits and scales. A multiprocessor has three
// blocks; or two, if their own reading (mma.cuh) takes registers.
#define EK_MID_BOUNDS __launch_bounds__(128, EK_HAS_WGMMA ? 3 : 2)
#define EK_MID(NAME, LIMBS, OCT, A)                                                     \
    extern "C" __global__ void EK_MID_BOUNDS ek_product_mid_##NAME##_l##LIMBS##_o##OCT( \
        const __grid_constant__ ek_cuda_linear_args a)                                  \
    {                                                                                   \
        ek::mid<LIMBS, OCT, A>(a, blockIdx.x);                                          \
    }
#define EK_MID_WIDTH(NAME, OCT, A)                                                   \
    EK_MID(NAME, 1, OCT, A)                                                          \
    EK_MID(NAME, 2, OCT, A)                                                          \
    extern "C" __global__ void EK_MID_BOUNDS ek_product_mid_gate_##NAME##_l1_o##OCT( \
        const __grid_constant__ ek_cuda_warp_args p)                                 \
    {                                                                                \
        ek::mid_gate<OCT, A>(p);                                                     \
    }                                                                                \
    extern "C" __global__ void EK_MID_BOUNDS ek_product_mid_heads_##NAME##_o##OCT(   \
        const __grid_constant__ ek_cuda_warp_heads_args h)                           \
    {                                                                                \
        ek::mid_heads<OCT, A>(h);                                                    \
    }
#define EK_MID_KERNELS(NAME, A) \
    EK_MID_WIDTH(NAME, 1, A)    \
    EK_MID_WIDTH(NAME, 2, A)    \
    EK_MID_WIDTH(NAME, 4, A)
