/* Encoders of images and sounds on a CUDA device, with the CPU's bits. */
#ifndef EK_GPU_TOWER_TOWERS_H
#define EK_GPU_TOWER_TOWERS_H

#include "engine/executor.h"
#include "gpu/weights/weights.h"
#include "media/part/part.h"
#include "model/tower/tower_part.h"

/* An encoder of images or sounds on a CUDA device, with the CPU's bits (model/tower/tower.h). Its weights are copied
 * there. It encodes one content at a time, in slices of whole layers. */

typedef struct ek_gpu_tower ek_gpu_tower;

/* Copies the packed weights of p (ek_towers_image_part, ek_towers_sound_part), which is borrowed. EUNSUPPORTED: the
 * kernels lack support for it; ENOMEM has the numbers. */
ek_err ek_gpu_tower_open(ek_gpu_tower **out, ek_gpu *g, const ek_tower_part *p);
void ek_gpu_tower_close(ek_gpu_tower *t); /* NULL is allowed */

/* Begins a content of the encoder's sense; it is borrowed until it is done or dropped. rows: tokens x hidden floats,
 * written at the end. EINVAL as for ek_tower_cost_image and ek_sound_tokens; ENOMEM. */
ek_err ek_gpu_tower_begin(ek_gpu_tower *t, const ek_media *m, float *rows);
/* Continues for about `macs` multiply-adds, at least for a layer, and waits for them. An error drops the content. */
ek_err ek_gpu_tower_advance(ek_gpu_tower *t, double macs, bool *done);
void ek_gpu_tower_drop(ek_gpu_tower *t);

/* --- the encoder of a device's executor: images and sounds by the device's towers; senses without kernels are logged
 * and encoded on the host's processors --- */

/* Bytes of a device for the towers' weights and the largest content; one content is encoded at a time. */
double ek_gpu_encoder_bytes(ek_towers *t);
/* Reserves this memory in the executors of g (or of devices whose first is g). Call it before they are made. */
void ek_gpu_encoder_reserve(ek_gpu *g, ek_towers *t);
/* Gives such an executor its encoder; t is borrowed. Weights are copied when a sense is loaded. Without towers nothing
 * changes. */
ek_err ek_gpu_encoder_open(ek_executor *on, ek_gpu *g, ek_towers *t);

#endif
