/* Keeps the results of comparing a device's kernels with the definition (gpu/evidence) in files in the user's cache
 * folder. The first start with a card, driver, program and kind of model makes the comparisons. */
#ifndef EK_OPEN_PROVEN_H
#define EK_OPEN_PROVEN_H

#include "gpu/gpu.h"

/* Reads the result, or compares and keeps it; called before the model's weights are uploaded (ek_gpu_driver.prove). If
 * a comparison fails on a device with cooperative matrices, its kernels without matrices are compared, and used if they
 * agree. EUNSUPPORTED: a sentence names the kernel that differs. A folder that cannot be written is no error. */
ek_err ek_proven_take(ek_gpu *g, const ek_model *m);

#endif
