/* Quantised weights with their file's own scales (ops/planes.h: GGUF) in the device's layout of Form Q (cuda/linear.h):
 * codes of up to 4 bits with groups of 32 in nibbles, all others in bytes, a codebook's as its values. Scales:
 *   SCALE_PLAIN  f16 s and b as they are
 *   SCALE_E8M0   bf16, which holds every power of two that there is
 *   others       the f32 that ops/planes.h makes of them
 * Panels come to the device as the CPU packed them, and ek_pack_planes writes them there; ek_cuda_planes_pack is the
 * same on the CPU, for tests. */
#ifndef EK_CUDA_PLANES_H
#define EK_CUDA_PLANES_H

#include "cuda/linear.h"
#include "cuda/model_args.h"

/* Fills what the form decides of l: bits and scales. EUNSUPPORTED for a rule of scales that the kernels lack. */
ek_err ek_cuda_planes_plan(ek_cuda_linear *l, const ek_linear *w);
void ek_cuda_planes_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1);
/* The fields of args that the matrix decides. */
void ek_cuda_planes_args(ek_cuda_pack_planes_args *args, const ek_cuda_linear *l, const ek_linear *w);

#endif
