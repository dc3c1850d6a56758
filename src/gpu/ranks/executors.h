/* The executors over devices: of whole layers on each, and of outputs cut over all. */
#ifndef EK_GPU_RANKS_EXECUTORS_H
#define EK_GPU_RANKS_EXECUTORS_H

#include "gpu/ranks/state.h"

ek_executor ek_ranks_by_layers(ek_ranks *r);
ek_executor ek_ranks_by_outputs(ek_ranks *r);

#endif
