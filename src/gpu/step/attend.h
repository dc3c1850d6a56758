/* Attention over the work lists of a step. */
#ifndef EK_GPU_STEP_ATTEND_H
#define EK_GPU_STEP_ATTEND_H

#include "cuda/args.h"
#include "gpu/step/run.h"

/* Whether its kernel, ek_attn_half or ek_attn_int_DIM, finishes queries itself. */
bool ek_gpu_finishes(const ek_gpu_list *list);
/* Queues the kernels over the tiles of the list; a has all but what the list decides. */
void ek_gpu_attend(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list);

#endif
