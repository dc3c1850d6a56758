/* Draws on the device: samples into the step's block, kernels, tokens from what came back. */
#ifndef EK_GPU_STEP_SAMPLE_H
#define EK_GPU_STEP_SAMPLE_H

#include "engine/executor.h"

typedef struct ek_gpu_run ek_gpu_run;
typedef struct ek_gpu_flight ek_gpu_flight;

size_t ek_gpu_samples_bytes(const ek_gpu_run *x); /* room in the block that any step needs */
/* Rows of draws that are left to the CPU are marked in shown. */
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown);
/* The masks, once they are made, into the places that samples gave them. */
ek_err ek_gpu_put_masks(ek_gpu_run *x, const ek_step *s);
void ek_gpu_draw(ek_gpu_run *x); /* queues the kernels */
/* The tokens of a step that ended, whose flight is f. */
ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f);

#endif
