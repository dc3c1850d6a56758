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

/* A resize under way, which is given a picture row by row and never has it whole. */
typedef struct ek_resizing ek_resizing;

/* A stored picture of width x height and what its EXIF says of it, 1 to 8; to: its size upright > 0, its pixels are
 * made here, or where its rgb already has room, and complete behind the last row. to stays the caller's, also after a
 * failure. ENOMEM. */
ek_err ek_resizing_begin(ek_resizing **out, ek_image *to, int width, int height, int orientation, ek_resizer how);
void ek_resizing_row(ek_resizing *r, const uint8_t *rgb); /* the next stored row, width pixels */
void ek_resizing_end(ek_resizing *r);                     /* at any time; NULL is allowed */
/* Bytes that it takes at its peak, its result included; an upper bound. It grows with the sides of the picture, not
 * with their product. */
size_t ek_resizing_memory(int width, int height, int orientation, int to_width, int to_height);

/* As ek_image_decode_on and ek_image_resize behind it, byte for byte, without the picture between them: of a file whose
 * decoder goes row by row only some rows are held (ek_image_info.held). */
ek_err ek_image_decode_resized(ek_image *out, const void *bytes, size_t n, ek_alpha alpha, int width, int height,
                               ek_resizer how);
/* The same of a file whose ek_image_probe is known, so that it is not asked again. */
ek_err ek_image_decode_known(ek_image *out, const void *bytes, size_t n, const ek_image_info *info, ek_alpha alpha,
                             int width, int height, ek_resizer how);

#endif
