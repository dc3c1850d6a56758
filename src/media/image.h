/* Pictures: from a file's bytes to RGB. JPEG, PNG, WebP and GIF (the first frame of animated ones); HEIC and AVIF if
 * the build had libheif.
 *
 * Everything is a pure function of the bytes; no file, clock or global is read. Any thread, several at once. Errors are
 * one sentence with the numbers: EINVAL for bytes that are no picture readable by this build, EPARSE for a damaged or
 * truncated one, ETOOLARGE for one beyond limits.h, ENOMEM. */
#ifndef EK_MEDIA_IMAGE_H
#define EK_MEDIA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The contents of the header. */
typedef struct ek_image_info {
    const char *format; /* "JPEG", "PNG", "WebP", "GIF", "HEIC" or "AVIF" */
    int width, height;  /* pixels as shown, after the orientation */
    int orientation;    /* EXIF 1 to 8, of the stored pixels; 1 if the file does not say */
    bool animated;      /* more frames may follow the first */
    size_t memory;      /* upper bound of ek_image_decode's bytes at its peak, with its result */
    size_t held; /* upper bound of the bytes that the decoder itself holds while it gives rows: a few rows for JPEG in
                    one scan, PNG and GIF that are not interlaced; the whole picture otherwise */
} ek_image_info;

/* Reads the header and checks every limit. Takes no memory that grows with the header's numbers. */
ek_err ek_image_probe(ek_image_info *out, const void *bytes, size_t n);

/* height rows of width pixels of 3 bytes, red, green, blue, without gaps. */
typedef struct ek_image {
    int width, height; /* > 0 */
    uint8_t *rgb;      /* owned */
} ek_image;

/* The handling of transparency. */
typedef enum ek_alpha {
    EK_ALPHA_DROP, /* keeps the colour stored under it, like transformers' processors */
    EK_ALPHA_WHITE /* blends on white, like a browser that shows a screenshot or drawing with a transparent ground */
} ek_alpha;

/* Probes, decodes and rotates upright. Colours are those of Pillow's convert("RGB"): a transparent index has the
 * palette's colour; CMYK goes through 255 - K; colour profiles are ignored. Of 16 bits per sample the upper 8 are used.
 * A truncated file fails, even if its decoder would fill the rest with grey. On white, a sample v with alpha a becomes
 * (v a + 255 (255 - a)) / 255, rounded to nearest, as in Pillow's paste through a mask; a transparent index is white,
 * and so is the part of an animated WebP that its frame does not cover. */
ek_err ek_image_decode(ek_image *out, const void *bytes, size_t n, ek_alpha alpha);

/* Allocates a picture whose size is within the limits; not initialised. ENOMEM. */
ek_err ek_image_make(ek_image *out, int width, int height);
size_t ek_image_bytes(const ek_image *image);
void ek_image_free(ek_image *image); /* a zeroed one is allowed */

#endif
