// In front of a file of kernels: those of a device before 9.0, whose threads have fewer registers for products of few
// rows (cuda/kernels/product/warp_chunk.cuh). The others are compiled as for 9.0, so that both are tried.
#pragma once

#include "cuda/kernels/device.cuh"

#undef EK_HAS_WGMMA
#undef EK_HAS_BULK
#define EK_HAS_WGMMA 0
#define EK_HAS_BULK  0
