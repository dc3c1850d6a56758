/* Inside src/gpu/tower: the kernels of the vision tower, in order. */
#ifndef EK_GPU_TOWER_VISION_RUN_H
#define EK_GPU_TOWER_VISION_RUN_H

#include "gpu/tower/vision_state.h"

/* Queue the kernels of the patches' embedding, of a layer, of soft tokens; failures are noted in g->err. */
void ek_gpu_vision_embed(ek_gpu_vision *x);
void ek_gpu_vision_layer_of(ek_gpu_vision *x, int layer);
void ek_gpu_vision_tokens(ek_gpu_vision *x);
/* Bytes of stack that any of them needs. */
size_t ek_gpu_vision_stack(const ek_gpu_vision *x);

#endif
