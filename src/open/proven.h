/* Which devices have given the definition's bits for which kernels (gpu/evidence), kept in a file in the user's cache
 * folder. The comparisons are made at the first start on a (card, driver, program) and kind of model. */
#ifndef EK_OPEN_PROVEN_H
#define EK_OPEN_PROVEN_H

#include "gpu/gpu.h"

/* For a device in front of a model's weights (ek_gpu_driver.prove). EUNSUPPORTED: the kernel that differs. A folder
 * that cannot be written is no error. */
ek_err ek_proven_take(ek_gpu *g, const ek_model *m);

#endif
