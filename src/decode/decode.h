/* The helper program's decoding of an untrusted file, in the calling process: bytes to pixels and samples, by the
 * libraries of each format. Contracts and errors are those of media/image.h, media/resize.h and media/sound.h,
 * which ask the helper. Only the helper and the fuzzers call these. */
#ifndef EK_DECODE_DECODE_H
#define EK_DECODE_DECODE_H

#include "base/buf.h"
#include "media/image.h"
#include "media/resize.h"
#include "media/sound.h"

ek_err ek_decode_image_probe(ek_image_info *out, const void *bytes, size_t n);
ek_err ek_decode_image(ek_image *out, const void *bytes, size_t n, ek_alpha alpha);
/* out->rgb: memory for width x height pixels; NULL: it is allocated. */
ek_err ek_decode_image_resized(ek_image *out, const void *bytes, size_t n, ek_alpha alpha, int width, int height,
                               ek_resizer how);
void ek_decode_image_formats(ek_buf *out); /* formats whose library is present: "JPEG, PNG" */

ek_err ek_decode_sound_probe(ek_sound_info *out, const void *bytes, size_t n, int max_seconds);
ek_err ek_decode_sound(ek_sound *out, const void *bytes, size_t n, int max_seconds);

#endif
