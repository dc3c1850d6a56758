/* The interface between picture decoders and their dispatch. Inside src/decode. */
#ifndef EK_DECODE_IMAGE_READ_H
#define EK_DECODE_IMAGE_READ_H

#include "media/header.h"
#include "media/limits.h"

/* Receives decoded pixels. Rows arrive in stored order, and are stored upright or go into a resize. */
typedef struct ek_image_sink {
    ek_image *out;
    struct ek_resizing *resizing; /* NULL: rows are stored in out */
    int next;                     /* the next expected row */
    int width, height;            /* as stored */
    int orientation;
    bool on_white;  /* transparency is blended on white (ek_sink_blend); otherwise it is dropped */
    uint8_t *whole; /* the memory of ek_sink_whole; NULL if it is out's */
} ek_image_sink;

/* Blends n pixels of red, green, blue and alpha on white. to may be rgba: the results move to the front. */
void ek_sink_blend(uint8_t *to, const uint8_t *rgba, int n);
/* Takes row y of the stored picture, width pixels; each row once, from the first to the last. */
void ek_sink_row(ek_image_sink *s, int y, const uint8_t *rgb);
/* Zeroed memory for the whole stored picture, for decoders that do not give rows in order; ek_sink_row is not called
 * then. NULL after ENOMEM. The pixels are passed on after decode, if it succeeds. */
uint8_t *ek_sink_whole(ek_image_sink *s);

/* A decoder. is: whether the bytes begin such a file. header: see above; sizes need no check, because the caller
 * refuses sizes below 1. decode: pixels of exactly the header's size, or an error. */
typedef struct ek_image_reader {
    bool (*is)(ek_media_bytes file);
    ek_err (*header)(ek_image_header *out, ek_media_bytes file);
    ek_err (*decode)(ek_image_sink *to, ek_media_bytes file);
} ek_image_reader;

extern const ek_image_reader ek_jpeg_reader, ek_png_reader, ek_webp_reader, ek_gif_reader, ek_heif_reader;

#endif
