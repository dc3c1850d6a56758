/* Experts that a device has no room for: of the rows behind attention the host computes router and experts, while the
 * device computes the dense MLP, and the rows' sums go back. Rows go by way of pinned memory, and the host waits for
 * them, so a step with such layers is queued by the kernel and ends where it is queued. */
#ifndef EK_GPU_STEP_HOST_H
#define EK_GPU_STEP_HOST_H

#include "gpu/step/run.h"

/* Memory for it, where x's device has such layers; the model's weights are packed then. */
ek_err ek_gpu_host_open(ek_gpu_run *x);
void ek_gpu_host_close(ek_gpu_run *x);

/* Queues the copy of n rows of h to the host. */
ek_err ek_gpu_host_ask(ek_gpu_run *x, int n);
/* Waits for them, computes layer i's experts, and queues the copy of their sums to x->pair_out, one row each. */
ek_err ek_gpu_host_answer(ek_gpu_run *x, int i, int n);

#endif
