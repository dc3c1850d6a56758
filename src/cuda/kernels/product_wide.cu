// Products of Form Q for many rows by wgmma, and the rows as they read them (contract: ops/linear.h).
#include "cuda/kernels/arrange.cuh"
#include "cuda/kernels/product_wide.cuh"

using namespace ek;

template <int BITS, int LIMBS>
using wide = wide_product<BITS, LIMBS, EK_CUDA_WIDE_GROUPS, EK_CUDA_WIDE_TALL, EK_CUDA_WIDE_COLUMNS, 64,
                          EK_CUDA_WIDE_UNITS(BITS), EK_CUDA_WIDE_STAGES>;

#define WIDE(BITS, LIMBS)                                                                                             \
    static_assert(wide<BITS, LIMBS>::PAIR == EK_CUDA_WIDE_PAIR && wide<BITS, LIMBS>::SHARED <= EK_CUDA_WIDE_SHARED(BITS), "args.h says what a launch must ask for"); \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_WIDE_GROUPS * 128, EK_CUDA_WIDE_BLOCKS)                                        \
        ek_product_q##BITS##_l##LIMBS##_wide(const __grid_constant__ ek_cuda_linear_args a)                           \
    {                                                                                                                 \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                             \
        wide<BITS, LIMBS>{a, 0, base}.run();                                                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_WIDE_GROUPS * 128, EK_CUDA_WIDE_BLOCKS)                                        \
        ek_products_q##BITS##_l##LIMBS##_wide(const __grid_constant__ ek_cuda_products_args p)                        \
    {                                                                                                                 \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                             \
        wide<BITS, LIMBS>{p.a, &p, base}.run();                                                                       \
    }
WIDE(4, 1)
WIDE(4, 2)
WIDE(8, 1)
WIDE(8, 2)

template <int BITS>
using wide_gate = wide_product<BITS, 1, EK_CUDA_WIDE_GROUPS, EK_CUDA_WIDE_TALL, EK_CUDA_WIDE_COLUMNS, 64, EK_CUDA_WIDE_UNITS(BITS),
                               EK_CUDA_WIDE_STAGES, true>;

#define GATE(BITS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_WIDE_GROUPS * 128, EK_CUDA_WIDE_BLOCKS)                      \
        ek_products_q##BITS##_l1_wide_gate(const __grid_constant__ ek_cuda_products_args p)                           \
    {                                                                                                                 \
        EK_DYNAMIC_SHARED(uint8_t, base);                                                                             \
        wide_gate<BITS>{p.a, &p, base}.run();                                                                         \
    }
GATE(4)

#define ARRANGE(LIMBS)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) ek_arrange_l##LIMBS(const __grid_constant__ ek_cuda_arrange_args a) \
    {                                                                                                                 \
        arrange<LIMBS, EK_CUDA_WIDE_COLUMNS>(a);                                                               \
    }
ARRANGE(1)
ARRANGE(2)
