/* Steps of the executor of a device, and of several whose outputs are cut, which take them together. */
#ifndef EK_GPU_EXECUTOR_H
#define EK_GPU_EXECUTOR_H

#include "gpu/step/run.h"

/* ek_executor.begin and end of n runs. Behind begin's error nothing of the step is queued anywhere. */
ek_err ek_gpu_begin(ek_gpu_run *const *x, int n, const ek_step *s);
ek_err ek_gpu_end(ek_gpu_run *const *x, int n, const ek_step *s);

#endif
