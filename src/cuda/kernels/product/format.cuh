// Weights of Form Q in groups of 64, 32 or 16 as kernels read them (layout: cuda/product/layout.h): the sizes of codes,
// scales and biases of a unit and of a chunk, and their conversion to numbers.
#pragma once

#include "cuda/kernels/product/product_fragment.cuh"
#include "cuda/model_args.h"

namespace ek
{

enum weight_scales {
    SCALES_F16,
    SCALES_BF16,
    SCALES_F32,
    SCALES_BIASED = 4
}; // SCALES_BIASED + one of them: a bias after each scale

// GROUPS_: per chunk.
template <int BITS_, int A_, int SCALES, int GROUPS_ = EK_CUDA_WARP_GROUPS> struct weight_format {
    static constexpr int BITS = BITS_, A = A_, SUB = 64 / A, KIND = SCALES % SCALES_BIASED;
    static constexpr bool BIASED = SCALES >= SCALES_BIASED;
    static constexpr int CODE = BITS * 128,
                         LANE = (KIND == SCALES_F32 ? 8 : 4) *
                                (BIASED ? 2 : 1); // bytes of a unit's codes; of a lane's scales
    static constexpr int GROUPS = GROUPS_, UNITS = GROUPS / SUB, CODES = UNITS * CODE,
                         SCALE = 8 * LANE; // of a chunk; of a group
    static constexpr int CHUNK = CODES + GROUPS * SCALE,
                         LEAF = 1024 / (GROUPS * A); // bytes; chunks of a leaf

    static __device__ __forceinline__ float2 two(u32 v)
    {
        return KIND == SCALES_F16 ? __half22float2(*(const __half2 *)&v)
                                  : make_float2(bits(v << 16), bits(v & 0xffff0000u));
    }

    // s and b' = fma(zero, s, b) of outputs g and g + 8
    static __device__ __forceinline__ void read(const uint8_t *at, float zero, float (&s)[2], float (&b)[2])
    {
        b[0] = b[1] = 0;
        if (KIND == SCALES_F32 && BIASED) {
            const float4 v = *(const float4 *)at;
            s[0] = v.x, b[0] = fma_(zero, v.x, v.y), s[1] = v.z, b[1] = fma_(zero, v.z, v.w);
        } else if (KIND == SCALES_F32) {
            const float2 v = *(const float2 *)at;
            s[0] = v.x, s[1] = v.y;
        } else if (BIASED) {
            const uint2 v = *(const uint2 *)at;
            const float2 low = two(v.x), high = two(v.y);
            s[0] = low.x, b[0] = fma_(zero, low.x, low.y), s[1] = high.x, b[1] = fma_(zero, high.x, high.y);
        } else {
            const float2 v = two(*(const u32 *)at);
            s[0] = v.x, s[1] = v.y;
        }
    }
};

} // namespace ek
