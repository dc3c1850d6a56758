/* The resize of Gemma's processors: bicubic with a = -1/2, widened where it reduces, over 8-bit samples; rows first, 8
 * bits between the passes. */
#ifndef EK_MEDIA_RESIZE_H
#define EK_MEDIA_RESIZE_H

#include "media/image.h"

typedef enum ek_resizer {
    EK_RESIZE_TORCH, /* torchvision's: weights of 16 bits, as precise as the largest of a pass allows */
    EK_RESIZE_PILLOW /* Pillow's: weights with 22 bits behind the point */
} ek_resizer;

/* Brings in to width x height > 0; in == out is not allowed. The weights are float64 sums in a written order, the
 * rest is integers: the bytes are those of torch's and Pillow's own kernels, on any machine. ENOMEM. */
ek_err ek_image_resize(ek_image *out, const ek_image *in, int width, int height, ek_resizer how);

#endif
