/* The forward pass on the device: the steps of src/model/forward.c as kernels in one stream, by recipes. */
#ifndef EK_GPU_RECIPE_PASS_H
#define EK_GPU_RECIPE_PASS_H

#include "gpu/step/run.h"

/* Queues the forward pass of the rows in the block, up to the logits of the n_want rows: on one device, or on n whose
 * outputs are cut and whose rows are the same. */
void ek_gpu_forward(ek_gpu_run *const *x, int n);

/* Of a drafter's run: what is queued once for a draft, and for each of its tokens. */
void ek_gpu_draft_first(ek_gpu_run *x);
void ek_gpu_draft_token(ek_gpu_run *x);

#endif
