/* The vision tower on a CUDA device (model/tower/tower_vision.h), with the CPU's bits: its weights copied there, one
 * picture at a time, in slices of whole layers. */
#ifndef EK_GPU_TOWER_VISION_H
#define EK_GPU_TOWER_VISION_H

#include "gpu/weights/state.h"
#include "model/tower/tower_vision.h"

typedef struct ek_gpu_vision ek_gpu_vision;

/* Bytes that the largest picture of the published towers takes while it is encoded. */
#define EK_GPU_VISION_SCRATCH 900e6

/* EK_OK, or EUNSUPPORTED: what the kernels lack for it. */
ek_err ek_gpu_vision_check(const ek_vision *v);

/* Copies the packed weights of v, which is borrowed. ENOMEM has the numbers; EUNSUPPORTED as above. */
ek_err ek_gpu_vision_open(ek_gpu_vision **out, ek_gpu *g, const ek_vision *v);
void ek_gpu_vision_close(ek_gpu_vision *x); /* NULL is fine */

/* Begins a picture that was cut for the tower; it is borrowed until it is done or dropped. rows: tokens x hidden
 * floats, written when it is done. */
ek_err ek_gpu_vision_begin(ek_gpu_vision *x, const ek_picture *picture, float *rows);
/* Goes on by about so many multiply-adds, at least by a layer, and waits for them. After an error it is dropped. */
ek_err ek_gpu_vision_advance(ek_gpu_vision *x, double macs, bool *done);
void ek_gpu_vision_drop(ek_gpu_vision *x);

#endif
