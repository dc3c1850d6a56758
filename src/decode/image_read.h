/* What one decoder gives to the others' dispatch. Inside src/decode. */
#ifndef EK_DECODE_IMAGE_READ_H
#define EK_DECODE_IMAGE_READ_H

#include "media/header.h"
#include "media/limits.h"

/* Where decoded pixels go. Rows arrive in stored order and are laid down upright, or go into a resize. */
typedef struct ek_image_sink {
    ek_image *out;
    struct ek_resizing *resizing; /* NULL: they are laid down in out */
    int next;                     /* the row that it needs next */
    int width, height;            /* as stored */
    int orientation;
    bool on_white;  /* transparency is blended on white: ek_sink_blend; otherwise it is dropped */
    uint8_t *whole; /* ek_sink_whole's own room; NULL if it is out's */
} ek_image_sink;

/* n pixels of red, green, blue and alpha on white. to may be rgba: then they move to the front. */
void ek_sink_blend(uint8_t *to, const uint8_t *rgba, int n);
/* Row y of the stored picture, width pixels; each row once, from the first to the last. */
void ek_sink_row(ek_image_sink *s, int y, const uint8_t *rgb);
/* Room for the stored picture at once, zeroed, for decoders that do not go row by row from the first to the last: then
 * no row is given by itself. NULL after ENOMEM. ek_sink_done afterwards, also without it. */
uint8_t *ek_sink_whole(ek_image_sink *s);
void ek_sink_done(ek_image_sink *s, bool good); /* hands ek_sink_whole's pixels on if good, and frees it */

/* A decoder. is: whether these bytes begin such a file. header: see above; sizes need no check, a negative
 * or zero one is refused by the caller. decode: pixels of exactly the header's size, or an error. */
typedef struct ek_image_reader {
    bool (*is)(ek_media_bytes file);
    ek_err (*header)(ek_image_header *out, ek_media_bytes file);
    ek_err (*decode)(ek_image_sink *to, ek_media_bytes file);
} ek_image_reader;

extern const ek_image_reader ek_jpeg_reader, ek_png_reader, ek_webp_reader, ek_gif_reader, ek_heif_reader;

#endif
