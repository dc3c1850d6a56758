// Copies of whole pieces that all threads of a block make together where no thread alone can (device.cuh: EK_HAS_BULK):
// their arrivals are opened for all of them then, and behind the last piece stands arrival_of_copies.
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
