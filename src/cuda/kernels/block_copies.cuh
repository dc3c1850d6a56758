// Copies of whole pieces by all threads of a block, for devices where no single thread can make them (device.cuh:
// EK_HAS_BULK). Arrivals are opened for all threads, and arrival_of_copies follows the last piece.
#pragma once

#include "cuda/kernels/device.cuh"

namespace ek
{

__device__ __forceinline__ bool by_block()
{
    return copies_here(1); // no lane of a warp is left out
}

__device__ __forceinline__ void copy_piece_of_block(void *to, const void *from, u32 bytes, u64 *arrived)
{
    if (!by_block()) {
        copy_piece(to, from, bytes, arrived);
        return;
    }
    for (u32 at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
        copy_async<16>((uint8_t *)to + at, (const uint8_t *)from + at);
}

} // namespace ek
