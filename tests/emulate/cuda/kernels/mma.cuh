// In place of src/cuda/kernels/mma.cuh on a CPU: all products are there at once.
#pragma once

#include "cuda/kernels/device.cuh"

void ek_emulated_mma(int (&d)[4], const uint32_t *a, uint32_t b0, uint32_t b1);
void ek_emulated_wgmma(int *d, int columns, bool kept, const uint32_t *a, const void *b);

namespace ek
{

static inline void mma(int (&d)[4], const u32 *a, u32 b0, u32 b1)
{
    ek_emulated_mma(d, a, b0, b1);
}

static inline void mma_from(int (&d)[4], int start, const u32 *a, u32 b0, u32 b1)
{
    for (int i = 0; i < 4; i++) d[i] = start;
    ek_emulated_mma(d, a, b0, b1);
}

static inline void wgmma_fence()
{
}

static inline void wgmma_commit()
{
}

template <int LEFT> static inline void wgmma_wait()
{
}

template <class T, int N> static inline void wgmma_pin(T (&)[N])
{
}

template <int KEPT, int N> static inline void wgmma(int (&d)[N], const u32 *a, const void *b)
{
    ek_emulated_wgmma(d, 2 * N, KEPT, a, b);
}

static inline void mma_half(int (&d)[4], const u32 *a, u32 b)
{
    const u32 whole[4] = {a[0], a[1], 0, 0}; // inputs 16 and more are zeros
    ek_emulated_mma(d, whole, b, 0);
}

} // namespace ek
