/* A matrix in the device's layout (cuda/product/layout.h), written on the CPU: what ek_pack_q and ek_pack_planes make
 * of it, for tests that compare these or need no device's memory. */
#ifndef EK_TESTS_SUPPORT_DEVICE_PACK_H
#define EK_TESTS_SUPPORT_DEVICE_PACK_H

#include "cuda/product/layout.h"

/* Writes panels [p0, p1) of w to `to`, which has room for l->bytes; panels in any order, by any threads. */
void device_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1);
/* The same for all panels, as the chip's kernels read them: those of Vulkan have a step's quads in another order. */
void device_pack_for(const ek_cuda_chip *chip, const ek_cuda_linear *l, const ek_linear *w, uint8_t *to);

#endif
