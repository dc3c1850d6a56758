/* Runs of an executor on one device: its memory, and drafts. */
#ifndef EK_GPU_RUNS_H
#define EK_GPU_RUNS_H

#include "engine/executor.h"
#include "gpu/step/run.h"

/* The memory of an executor: pages, a step's buffers on the device, and what it fills and reads on the host. */

/* ek_executor.open and close. */
ek_err ek_gpu_run_open(void *run, const ek_executor_sizes *z);
void ek_gpu_run_close(void *run);

/* Drafts by a drafter model on the device. */

/* ek_executor.draft. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n);

#endif
