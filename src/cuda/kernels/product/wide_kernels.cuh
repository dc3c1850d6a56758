// The kernels of wide_product.cuh for weights of one kind, and the arrangement of their rows: NAME is the part of their
// names for bits and scales, GROUP is for groups of A inputs.
#pragma once

#include "cuda/operand_args.h"
#include "cuda/kernels/arrange.cuh"
#include "cuda/kernels/product/wide_product.cuh"
#include "cuda/tiles.h"

namespace ek
{

constexpr int JOB_SHORT = 32; // columns of an expert's last job, if they suffice; with prompts of 512 rows, that job
                              // has half of an expert's rows

template <int BITS, int LIMBS, int A, bool GATE = false, int PART = 0, int SHORT = 0, int TALL = EK_CUDA_WIDE_TALL>
using wide = wide_product<BITS, LIMBS, EK_CUDA_WIDE_GROUPS, TALL, EK_CUDA_WIDE_COLUMNS, 64, EK_CUDA_WIDE_UNITS(BITS),
                          EK_CUDA_WIDE_SLOTS, GATE, A, PART, SHORT>;

} // namespace ek

#define EK_WIDE_BOUNDS __launch_bounds__(EK_CUDA_WIDE_GROUPS * 128, EK_CUDA_WIDE_BLOCKS)

// A matrix; experts, of one matrix or two.
#define EK_WIDE(NAME, BITS, LIMBS, A)                                               \
    static_assert(wide<BITS, LIMBS, A>::PAIR == EK_CUDA_WIDE_PAIR &&                \
                      wide<BITS, LIMBS, A>::SHARED <= EK_CUDA_WIDE_SHARED(BITS),    \
                  "args.h says what a launch must ask for");                        \
    extern "C" __global__ void EK_WIDE_BOUNDS ek_product_##NAME##_l##LIMBS##_wide(  \
        const __grid_constant__ ek_cuda_linear_args a)                              \
    {                                                                               \
        EK_DYNAMIC_SHARED(uint8_t, base);                                           \
        wide<BITS, LIMBS, A>{a, 0, base}.run(blockIdx.x);                           \
    }                                                                               \
    extern "C" __global__ void EK_WIDE_BOUNDS ek_products_##NAME##_l##LIMBS##_wide( \
        const __grid_constant__ ek_cuda_products_args p)                            \
    {                                                                               \
        EK_DYNAMIC_SHARED(uint8_t, base);                                           \
        wide<BITS, LIMBS, A, false, 0, JOB_SHORT>{p.a, &p, base}.run(blockIdx.x);   \
    }

// Two matrices and their gate, with a loop for few columns or without.
#define EK_WIDE_GATE(NAME, A, SHORT)                                                                              \
    extern "C" __global__ void EK_WIDE_BOUNDS ek_products_##NAME(const __grid_constant__ ek_cuda_products_args p) \
    {                                                                                                             \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                         \
        wide<4, 1, A, true, 0, SHORT>{p.a, &p, base}.run(blockIdx.x);                                             \
    }

// A matrix by tiles with half of the outputs. If there are few tiles, all multiprocessors get equally many.
#define EK_WIDE_SHORT(NAME, LIMBS, A)                                                             \
    static_assert(wide<4, LIMBS, A, false, 0, 0, 1>::SHARED <= EK_CUDA_SHORT_SHARED,              \
                  "tiles.h says what a launch must ask for");                                     \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_WIDE_GROUPS * 128, EK_CUDA_SHORT_BLOCKS) \
        ek_product_##NAME##_l##LIMBS##_wide_short(const __grid_constant__ ek_cuda_linear_args a)  \
    {                                                                                             \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                         \
        wide<4, LIMBS, A, false, 0, 0, 1>{a, 0, base}.run(blockIdx.x);                            \
    }

// k, v and q, of which any may be missing: keys and values have two limbs, queries one. All tiles are distributed over
// the blocks in turn.
#define EK_WIDE_HEADS(NAME, BITS, A)                                                                                \
    static_assert(sizeof(wide<BITS, 1, A>::control) <= EK_CUDA_WIDE_CONTROL, "args.h says how far apart they lie"); \
    extern "C" __global__ void EK_WIDE_BOUNDS ek_product_heads_##NAME##_wide(                                       \
        const __grid_constant__ ek_cuda_wide_heads_args h)                                                          \
    {                                                                                                               \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                           \
        int first = blockIdx.x;                                                                                     \
        if (h.k.rows) first = wide<BITS, 2, A, false, 0>{h.k, 0, base}.run(first);                                  \
        if (h.v.rows) first = wide<BITS, 2, A, false, 1>{h.v, 0, base}.run(first);                                  \
        if (h.q.rows) wide<BITS, 1, A, false, 2>{h.q, 0, base}.run(first);                                          \
    }

#define EK_ARRANGE(GROUP, LIMBS, A)                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                \
        ek_arrange##GROUP##_l##LIMBS(const __grid_constant__ ek_cuda_arrange_args a) \
    {                                                                                \
        arrange<LIMBS, EK_CUDA_WIDE_COLUMNS, A>(a);                                  \
    }
