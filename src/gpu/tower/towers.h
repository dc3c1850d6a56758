/* Encoders of images and sounds on a CUDA device, with the CPU's bits. */
#ifndef EK_GPU_TOWER_TOWERS_H
#define EK_GPU_TOWER_TOWERS_H

#include "engine/executor.h"
#include "gpu/weights/state.h"
#include "media/part/part.h"
#include "model/tower/tower_part.h"

/* An encoder of images or sounds on a CUDA device, with the CPU's bits (model/tower/tower.h): its weights copied there,
 * one content at a time, in slices of whole layers. */

typedef struct ek_gpu_tower ek_gpu_tower;

/* Bytes that the largest content of the published towers takes while it is encoded: an image of 1,120 tokens, 30 s of
 * sound. */
#define EK_GPU_IMAGE_SCRATCH 1.1e9
#define EK_GPU_SOUND_SCRATCH 0.3e9

/* Copies the packed weights of p (ek_towers_image_part, ek_towers_sound_part), which is borrowed. EUNSUPPORTED: what
 * the kernels lack for it; ENOMEM has the numbers. */
ek_err ek_gpu_tower_open(ek_gpu_tower **out, ek_gpu *g, const ek_tower_part *p);
void ek_gpu_tower_close(ek_gpu_tower *t); /* NULL is fine */

/* Begins a content of the encoder's sense; it is borrowed until it is done or dropped. rows: tokens x hidden floats,
 * written when it is done. EINVAL as of ek_tower_cost_image and ek_sound_tokens; ENOMEM. */
ek_err ek_gpu_tower_begin(ek_gpu_tower *t, const ek_media *m, float *rows);
/* Goes on by about so many multiply-adds, at least by a layer, and waits for them. After an error it is dropped. */
ek_err ek_gpu_tower_advance(ek_gpu_tower *t, double macs, bool *done);
void ek_gpu_tower_drop(ek_gpu_tower *t);

/* The encoder of a device's executor: images and sounds by the towers on the device, what its kernels lack (said in the
 * log) on the host's processors. */

/* Bytes that the towers' weights take of a device, and the largest content that they encode, one at a time. */
double ek_gpu_encoder_bytes(ek_towers *t);
/* Keeps from executors of g, or of devices of which g is the first, the room that the towers' weights and the largest
 * content need, of which one is encoded at a time: before they are made. */
void ek_gpu_encoder_reserve(ek_gpu *g, ek_towers *t);
/* Gives such an executor its encoder; t is borrowed. Weights are copied when it is loaded. Without towers nothing
 * changes. */
ek_err ek_gpu_encoder_open(ek_executor *on, ek_gpu *g, ek_towers *t);

#endif
