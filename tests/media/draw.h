/* Files of pictures and sounds, drawn and encoded by the tests themselves. */
#ifndef EK_TESTS_MEDIA_DRAW_H
#define EK_TESTS_MEDIA_DRAW_H

#include <stdbool.h>

#include "base/buf.h"
#include "media/image.h"

/* Every test's picture: sample c of pixel (x, y) is (7x + 13y + 29c + (xy >> 3)) mod 256. */
ek_image draw(int width, int height);

/* PNG's colour types, depths and Adam7; rows are packed as the file has them. exif: an orientation, 0 for no chunk. */
void put_png(ek_buf *to, const uint8_t *rows, int width, int height, int type, int depth, bool interlaced, int exif);
/* components 1, 3 or 4 per pixel; orientation 0 for no EXIF; motorola: its byte order. */
void put_jpeg(ek_buf *to, const uint8_t *px, int width, int height, int components, int orientation, bool motorola,
              bool progressive);
void put_webp(ek_buf *to, const ek_image *image); /* lossless */
/* The extended container. Still: with an EXIF chunk behind the pixels. Animated: image at (2, 4) of a canvas that is
 * larger by 6 and 8, then a second frame. */
void put_webp_still(ek_buf *to, const ek_image *image, int orientation);
void put_webp_animated(ek_buf *to, const ek_image *image);
/* One frame of width x height at (left, top) of a screen; indices are (x + 3y) mod colours of a palette (i, 2i, 255 -
 * i). */
void put_gif(ek_buf *to, int screen_w, int screen_h, int left, int top, int width, int height, bool interlaced,
             int transparent);

/* HEIC or AVIF. alpha: NULL, or one for each pixel. False where there is no libheif, or it has no encoder for it. */
bool put_heif(ek_buf *to, const ek_image *image, const uint8_t *alpha, bool avif);

/* A RIFF/WAVE file of n bytes of data. */
void put_wav(ek_buf *to, unsigned codec, unsigned channels, unsigned rate, unsigned bits, const void *data, size_t n);

/* Whether a picture is read, and equals want. */
void assert_pixels(const ek_buf *file, const ek_image *want);
/* Whether reading fails with this error and a sentence that has these words in it; also when only the header is read,
 * if header is set. */
void assert_refused(const ek_buf *file, ek_err err, const char *words, bool header);

#endif
