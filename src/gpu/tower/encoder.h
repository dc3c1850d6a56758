/* The encoder of a device's executor: images and sounds by the towers on the device, what its kernels lack (said in the
 * log) on the host's processors. */
#ifndef EK_GPU_TOWER_ENCODER_H
#define EK_GPU_TOWER_ENCODER_H

#include "engine/executor.h"
#include "gpu/weights/state.h"

/* Bytes that the towers' weights take of a device, and the largest content that they encode, one at a time. */
double ek_gpu_encoder_bytes(ek_towers *t);
/* Keeps from executors of g, or of devices of which g is the first, the room that the towers' weights and the largest
 * content need, of which one is encoded at a time: before they are made. */
void ek_gpu_encoder_reserve(ek_gpu *g, ek_towers *t);
/* Gives such an executor its encoder; t is borrowed. Weights are copied when it is loaded. Without towers nothing
 * changes. */
ek_err ek_gpu_encoder_open(ek_executor *on, ek_gpu *g, ek_towers *t);

#endif
