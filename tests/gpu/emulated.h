/* The device that tests/emulate makes of the CPU, with the real kernels. */
#ifndef EK_TESTS_GPU_EMULATED_H
#define EK_TESTS_GPU_EMULATED_H

#include "gpu/gpu.h"

ek_gpu_driver emulated(void);

#endif
