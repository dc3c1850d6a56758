/* Where the layers of one device end and those of the next begin: hidden states of all rows are copied, one float row
 * each, and the tokens that a step begun behind another follows go back to the devices that look them up. The copies
 * are queued; devices wait for each other's events, the host for none. */
#ifndef EK_GPU_STEP_BORDER_H
#define EK_GPU_STEP_BORDER_H

#include "gpu/step/run.h"

/* Queued behind a step's lists and in front of its kernels: its rows, and its tokens. The device in front has begun the
 * step, and the one behind has not. */
ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s);

#endif
