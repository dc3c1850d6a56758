/* What one decoder gives to the others' dispatch. Inside src/decode. */
#ifndef EK_DECODE_IMAGE_READ_H
#define EK_DECODE_IMAGE_READ_H

#include "media/image.h"
#include "media/limits.h"

typedef struct ek_media_bytes {
    const uint8_t *p;
    size_t n;
} ek_media_bytes;

/* What a decoder finds in a header; the dispatch checks it. */
typedef struct ek_image_header {
    const char *format;
    int64_t width, height; /* as stored */
    int orientation;       /* 1 to 8; 0 if the file says none */
    bool animated;
    int memory; /* bytes per pixel that decoding takes beside the result, at its peak */
    int held;   /* the same where rows are resized as they come: room for whole pictures included */
} ek_image_header;

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

/* The sentence of a decoder, EPARSE. */
ek_err ek_image_damaged(const char *format, const char *why);

static inline unsigned ek_be16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static inline uint32_t ek_be32(const uint8_t *p)
{
    return (uint32_t)ek_be16(p) << 16 | ek_be16(p + 2);
}

static inline unsigned ek_le16(const uint8_t *p)
{
    return (unsigned)p[1] << 8 | p[0];
}

static inline uint32_t ek_le32(const uint8_t *p)
{
    return (uint32_t)ek_le16(p + 2) << 16 | ek_le16(p);
}

#endif
