/* The resize of Gemma's processors: bicubic with a = -1/2, widened for reductions, over 8-bit samples; rows first, 8
 * bits between the passes. */
#ifndef EK_MEDIA_RESIZE_H
#define EK_MEDIA_RESIZE_H

#include "media/image.h"

typedef enum ek_resizer {
    EK_RESIZE_TORCH, /* torchvision's: 16-bit weights, as precise as the largest weight of a pass allows */
    EK_RESIZE_PILLOW /* Pillow's: weights with 22 fractional bits */
} ek_resizer;

/* Resizes in to width x height > 0; in must not be out. The weights are float64 sums in a fixed order, and the rest is
 * integers: the bytes equal those of torch's and Pillow's own kernels, on any machine. ENOMEM. */
ek_err ek_image_resize(ek_image *out, const ek_image *in, int width, int height, ek_resizer how);

/* A resize that receives a picture row by row and never holds it whole. */
typedef struct ek_resizing ek_resizing;

/* width x height: the stored picture, with EXIF orientation 1 to 8. to: its upright size > 0; its rgb is allocated
 * here, or used if not NULL, and complete after the last row. The caller owns `to`, also after an error. ENOMEM. */
ek_err ek_resizing_begin(ek_resizing **out, ek_image *to, int width, int height, int orientation, ek_resizer how);
void ek_resizing_row(ek_resizing *r, const uint8_t *rgb); /* the next stored row, width pixels */
void ek_resizing_end(ek_resizing *r);                     /* at any time; NULL is allowed */
/* Upper bound of its bytes at the peak, with its result. It grows with the picture's sides, not with their product. */
size_t ek_resizing_memory(int width, int height, int orientation, int to_width, int to_height);

/* Equals ek_image_decode followed by ek_image_resize, byte for byte, without the picture in between: for a file that is
 * decoded row by row, only some rows are held (ek_image_info.held). info: ek_image_probe's result for the same bytes;
 * NULL: it is called. */
ek_err ek_image_decode_resized(ek_image *out, const void *bytes, size_t n, const ek_image_info *info, ek_alpha alpha,
                               int width, int height, ek_resizer how);

#endif
