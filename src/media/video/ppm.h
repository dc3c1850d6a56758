/* Frames in ffmpeg's output: P6 with 255, one after the other. The bytes are untrusted: sizes are checked before memory
 * is taken. */
#ifndef EK_MEDIA_VIDEO_PPM_H
#define EK_MEDIA_VIDEO_PPM_H

#include "media/image.h"

/* Reads at most n bytes to `to`; *got: their number, 0 at the end. */
typedef ek_err ek_ppm_read_fn(void *arg, void *to, size_t n, size_t *got);

/* Reads the next frame; out->rgb is NULL at the end. EPARSE, ETOOLARGE, ENOMEM, and read's errors. Takes no byte after
 * the frame. */
ek_err ek_ppm_read(ek_image *out, ek_ppm_read_fn *read, void *arg);

#endif
