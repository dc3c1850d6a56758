// A unit of a tile of wide_product.cuh: its products, and the floats of the previous columns added to the chains
// (wide_floats.cuh) while the next columns are multiplied.
#pragma once

#include "cuda/kernels/product/wide_floats.cuh"

namespace ek
{

// codes, scales, acts and x: this lane's addresses of the unit in a slot that holds UNITS of each panel.
template <int BITS, int LIMBS, int TALL, int COLUMNS, int CHUNK, int UNITS, int SHORT> struct wide_unit {
    static constexpr int CODE = BITS * 128, SCALE = 64, OCTETS = COLUMNS / 8,
                         SUMS = TALL * OCTETS * 2 * (LIMBS == 1 ? 2 : 1), SX = COLUMNS / LIMBS * 8;

    typedef int accumulators[TALL][CHUNK / 2];

    template <int N>
    static __device__ __forceinline__ void issue(int (&d)[TALL][N], const u32 (&code)[TALL][8], const uint8_t *b)
    {
#pragma unroll
        for (int m = 0; m < TALL; m++) wgmma_pin(d[m]);
        wgmma_fence();
#pragma unroll
        for (int m = 0; m < TALL; m++) wgmma<0>(d[m], code[m], b), wgmma<1>(d[m], code[m] + 4, b + 32);
        wgmma_commit();
    }

    // As one group of 64 with biases. FEW: only SHORT columns; otherwise all, or without `all` three quarters of a
    // chunk's floats.
    template <bool FEW>
    static __device__ __forceinline__ void add_64(int zero_code, float (&sum)[SUMS],
                                                  accumulators (&d)[COLUMNS / CHUNK > 1 ? 2 : 1], const uint8_t *codes,
                                                  const uint8_t *scales, const uint8_t *acts, const uint8_t *x,
                                                  bool all)
    {
        const float zero = (float)zero_code;
        u32 code[TALL][8];
        float s[TALL][2], b[TALL][2];
        constexpr float UNIT = BITS == 4 ? 0.0625f : 1; // codes of 4 bits come as 16 c; s / 16 is exact in bf16's range
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            read_codes<BITS>(codes + m * UNITS * CODE, code[m]);
            wgmma_pin(code[m]);
        }
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            const uint2 v = *(const uint2 *)(scales + m * UNITS * SCALE);
            s[m][0] = bits(v.x << 16), b[m][0] = fma_(zero, s[m][0], bits(v.x & 0xffff0000u));
            s[m][1] = bits(v.y << 16), b[m][1] = fma_(zero, s[m][1], bits(v.y & 0xffff0000u));
            s[m][0] *= UNIT, s[m][1] *= UNIT;
        }
        constexpr int CHUNKS = COLUMNS / CHUNK;
        if constexpr (FEW) {
            int few[TALL][SHORT / 2];
            issue(few, code, acts);
            wgmma_wait<0>();
            wide_floats<LIMBS, TALL, SHORT, OCTETS>(sum, few, 0, s, b, x);
            return;
        }
        issue(d[0], code, acts);
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            if (i + 1 < CHUNKS) {
                issue(d[(i + 1) % 2], code, acts + (i + 1) * CHUNK * 128);
                wgmma_wait<1>();
            } else {
                wgmma_wait<0>();
            }
            wide_floats<LIMBS, TALL, CHUNK, OCTETS>(sum, d[CHUNKS > 1 ? i % 2 : 0], i, s, b, x, all);
        }
    }

    // As two groups of 32 without biases, for the first columns, as many as d has sums for. x: sx of the lane's
    // columns; that of the second group is SX / 2 after it. Unless `all`, only three quarters of the floats.
    template <int N>
    static __device__ __forceinline__ void add_32(float (&sum)[SUMS], int (&d)[TALL][N], const uint8_t *codes,
                                                  const uint8_t *scales, const uint8_t *acts, const uint8_t *x,
                                                  bool all)
    {
        constexpr float UNIT = BITS == 4 ? 0.0625f : 1;
        u32 code[TALL][8];
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            read_codes<BITS>(codes + m * UNITS * CODE, code[m]);
            wgmma_pin(code[m]);
        }
#pragma unroll
        for (int g = 0; g < 2; g++) {
#pragma unroll
            for (int m = 0; m < TALL; m++) wgmma_pin(d[m]);
            wgmma_fence();
#pragma unroll
            for (int m = 0; m < TALL; m++) wgmma<0>(d[m], code[m] + g * 4, acts + g * 32);
            wgmma_commit();
            float2 s[TALL];
#pragma unroll
            for (int m = 0; m < TALL; m++) {
                s[m] = __half22float2(*(const __half2 *)(scales + m * UNITS * SCALE + g * 32));
                s[m].x *= UNIT, s[m].y *= UNIT;
            }
            wgmma_wait<0>();
            wide_floats_32<LIMBS, TALL, OCTETS>(sum, d, s, x + g * (SX / 2), all);
        }
    }
};

} // namespace ek
