/* How a PNG says that it is to be turned: in a chunk of EXIF, in texts as ImageMagick writes EXIF, in XMP; what counts
 * of them is as Pillow's exif_transpose has it. Inside src/decode. */
#ifndef EK_DECODE_PNG_TEXT_H
#define EK_DECODE_PNG_TEXT_H

#include <stdbool.h>

#include "decode/image_read.h"

typedef struct ek_png_texts {
    bool has_exif, has_raw; /* eXIf; "Raw profile type exif" */
    int exif, raw, xmp;     /* what they say (decode/exif.h) */
    int n_inflated;         /* texts so far that were compressed */
} ek_png_texts;

/* A chunk of n bytes; `name` has 4. Other chunks are ignored. */
void ek_png_text(ek_png_texts *t, const uint8_t *name, const uint8_t *data, size_t n);
int ek_png_orientation(const ek_png_texts *t); /* 1 to 8; 0: the PNG names none */

#endif
