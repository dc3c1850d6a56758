/* Devices that wait for each other: how the host waits for them, and how they are released where one does not come. */
#ifndef EK_GPU_PEERS_H
#define EK_GPU_PEERS_H

#include "gpu/step/run.h"

/* Waits until step number `step` has ended on all n. The error of one that failed; then the others were released. */
ek_err ek_gpu_await(ek_gpu_run *const *x, int n, uint64_t step);

/* Ends all that is queued on n devices, whatever of it waits for one that does not come: of steps that were begun whole
 * first, unless a device is broken. What is queued behind that finds exchanges as they were at first. */
void ek_gpu_release(ek_gpu_run *const *x, int n);

/* Gives a step that is about to be queued on n devices a number for its exchanges, which none that was begun before
 * has, ended or not. */
ek_err ek_gpu_number(ek_gpu_run *const *x, int n);

#endif
