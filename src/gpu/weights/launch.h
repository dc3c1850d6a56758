/* Launches of kernels by their names. */
#ifndef EK_GPU_WEIGHTS_LAUNCH_H
#define EK_GPU_WEIGHTS_LAUNCH_H

#include "gpu/weights/state.h"

/* The place of the kernel of that name, for the device's life; the driver is not asked. */
ek_gpu_kernel *ek_gpu_kernel_named(ek_gpu *g, const char *name);
/* Queues the kernel with its arguments, which are copied, unless g->err is set. Looks for it in the driver the first
 * time, and where the grid needs more shared memory than those before. */
void ek_gpu_launch_kernel(ek_gpu *g, ek_gpu_kernel *k, ek_cuda_grid grid, const void *args);
void ek_gpu_launch(ek_gpu *g, const char *name, ek_cuda_grid grid, const void *args); /* by name */
/* Notes a failure in g->err, the first of what is being queued. */
void ek_gpu_note(ek_gpu *g, ek_err err);

#endif
