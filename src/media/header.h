/* Headers of pictures that need no library: JPEG, PNG, and the orientation in EXIF and XMP. The server reads them
 * itself, because a process per header costs more than the header; the decoders read them again. Walks over the bytes,
 * linear in the file and bounded by it. Inside src/media, src/decode and their tests. */
#ifndef EK_MEDIA_HEADER_H
#define EK_MEDIA_HEADER_H

#include "media/image.h"

typedef struct ek_media_bytes {
    const uint8_t *p;
    size_t n;
} ek_media_bytes;

typedef struct ek_image_header {
    const char *format;
    int64_t width, height; /* as stored */
    int orientation;       /* 1 to 8; 0 if the file does not say */
    bool animated;
    bool unread; /* a compressed text may hold the orientation, and no inflate function was given */
    int memory;  /* bytes per pixel that decoding takes besides the result, at its peak */
    int held;    /* the same if rows are resized as they arrive, including buffers for whole pictures */
} ek_image_header;

/* Checks the bytes of a received file; what: "picture". EINVAL if there are none, ETOOLARGE. */
ek_err ek_media_check_bytes(const char *what, size_t n);
/* Checks the limits of a picture (media/limits.h). EPARSE, ETOOLARGE. */
ek_err ek_image_header_check(const ek_image_header *h);
/* For a checked header. */
ek_image_info ek_image_header_info(const ek_image_header *h);
ek_err ek_image_damaged(const char *format, const char *why); /* makes the sentence; returns EPARSE */

bool ek_is_jpeg(ek_media_bytes file);
bool ek_is_png(ek_media_bytes file);
/* *out is zeroed before. EPARSE; EINVAL for kinds that no decoder here reads. Sizes are not checked yet. */
ek_err ek_jpeg_header(ek_image_header *out, ek_media_bytes file);
/* zlib's inflate: returns the bytes written to `to`, at most max; fewer if the data end or are damaged. */
typedef size_t ek_inflate_fn(uint8_t *to, size_t max, const uint8_t *from, size_t n);
/* The orientation is in an EXIF chunk, in EXIF as text (ImageMagick), or in XMP, in the order of Pillow's
 * exif_transpose. inflate reads compressed texts; NULL: out->unread reports that there is one. */
ek_err ek_png_header(ek_image_header *out, ek_media_bytes file, ek_inflate_fn *inflate);

/* The orientation (tag 0x0112 of the first directory), 1 to 8, from n bytes of TIFF with or without "Exif" and two
 * zeros in front. 0: none; -1: an invalid one. 1 is upright; 2 mirrored; 3 rotated by 180 degrees; 4 mirrored upside
 * down; 5 transposed; 6 needs a rotation by 90 degrees clockwise; 7 is transposed along the other diagonal; 8 needs a
 * rotation counterclockwise. */
int ek_exif_orientation(const uint8_t *tiff, size_t n);
/* The same from XMP: the first tiff:Orientation="N" or tiff:Orientation>N; 0 without a valid one. */
int ek_xmp_orientation(const uint8_t *xmp, size_t n);
/* The orientation from both: EXIF's, or else XMP's. 0: none. */
int ek_orientation(int exif, int xmp);

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
