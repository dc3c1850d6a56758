/* Frames as ffmpeg writes them: P6 with 255, one behind the other. What comes is a stranger's: sizes are checked before
 * memory is taken. */
#ifndef EK_MEDIA_VIDEO_PPM_H
#define EK_MEDIA_VIDEO_PPM_H

#include "media/image.h"

/* At most n bytes into to, *got of them; 0 at the end. */
typedef ek_err ek_ppm_read_fn(void *arg, void *to, size_t n, size_t *got);

/* The next frame; out->rgb is NULL where there is none any more. EPARSE, ETOOLARGE, ENOMEM, and what read says. Takes
 * no byte that is behind the frame. */
ek_err ek_ppm_read(ek_image *out, ek_ppm_read_fn *read, void *arg);

#endif
