/* The memory of an executor: pages, a step's buffers on the device, and what it fills and reads on the host. */
#ifndef EK_GPU_MEMORY_H
#define EK_GPU_MEMORY_H

#include "gpu/step/run.h"

/* ek_executor.open and close. */
ek_err ek_gpu_run_open(void *run, const ek_executor_sizes *z);
void ek_gpu_run_close(void *run);

#endif
