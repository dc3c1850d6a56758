/* Pictures: bytes of a file to RGB. JPEG, PNG, WebP and GIF, of animated ones the first frame; HEIC and AVIF if the
 * build had libheif.
 *
 * Everything is a pure function of the bytes; no file, clock or global is read. Functions may run on any thread, on
 * several at once. Errors are one sentence with the numbers: EINVAL for what is no picture that this build reads,
 * EPARSE for a damaged or cut one, ETOOLARGE for one beyond limits.h, ENOMEM. */
#ifndef EK_MEDIA_IMAGE_H
#define EK_MEDIA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What the header says. */
typedef struct ek_image_info {
    const char *format; /* "JPEG", "PNG", "WebP", "GIF", "HEIC" or "AVIF" */
    int width, height;  /* pixels as shown: behind the orientation */
    int orientation;    /* EXIF 1 to 8, of the pixels as stored; 1 if the file says none */
    bool animated;      /* more frames may follow the first */
    size_t memory;      /* bytes that ek_image_decode takes at its peak, what it returns included; an upper bound */
    size_t held;        /* those that the decoder keeps by itself while rows come out of it: some rows of JPEG in one
                           scan, PNG and GIF that are not interlaced; all of the picture of others; an upper bound */
} ek_image_info;

/* Reads the header and checks every limit. Takes no memory that grows with what the header claims. */
ek_err ek_image_probe(ek_image_info *out, const void *bytes, size_t n);

/* height rows of width pixels of 3 bytes, red, green, blue, without gaps. */
typedef struct ek_image {
    int width, height; /* > 0 */
    uint8_t *rgb;      /* owned */
} ek_image;

/* What becomes of transparency. */
typedef enum ek_alpha {
    EK_ALPHA_DROP, /* the colour that is stored under it, as transformers' processors show it */
    EK_ALPHA_WHITE /* blended on white: what a browser shows of a screenshot or a drawing with a transparent ground */
} ek_alpha;

/* Probes, decodes and turns upright. Colours as Pillow's convert("RGB") has them: alpha is dropped, not blended; the
 * palette's colour where an index is transparent; CMYK through 255 - K; colour profiles are ignored. Of 16 bits per
 * sample the upper 8 are taken. A file that ends early fails, also where its decoder would fill the rest with grey. */
ek_err ek_image_decode(ek_image *out, const void *bytes, size_t n);
/* The same with the transparency that is asked for. On white a sample v of alpha a becomes (v a + 255 (255 - a)) / 255,
 * rounded to nearest, as Pillow's paste through a mask has it; a transparent index is white, and of an animated WebP
 * what its frame does not cover. */
ek_err ek_image_decode_on(ek_image *out, const void *bytes, size_t n, ek_alpha alpha);

/* Room for a picture whose size is within the limits; not initialised. ENOMEM. */
ek_err ek_image_make(ek_image *out, int width, int height);
size_t ek_image_bytes(const ek_image *image);
void ek_image_free(ek_image *image); /* also of a zeroed one */

/* "JPEG, PNG, WebP, GIF", and the others that this build reads. */
const char *ek_image_formats(void);

#endif
