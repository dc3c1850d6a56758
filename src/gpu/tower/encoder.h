/* The encoder of a device's executor: images and sounds by the towers on the device, what its kernels lack (said in the
 * log) on the host's processors. */
#ifndef EK_GPU_TOWER_ENCODER_H
#define EK_GPU_TOWER_ENCODER_H

#include "engine/executor.h"
#include "gpu/weights/state.h"

/* Gives the executor of g its encoder, and takes from its room what the towers' weights and the largest content need; t
 * is borrowed. Weights are copied when it is loaded. Without towers nothing changes. */
ek_err ek_gpu_encoder_open(ek_executor *on, ek_gpu *g, ek_towers *t);

#endif
