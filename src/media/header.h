/* Headers of pictures that need no library: JPEG's, PNG's, and the orientation in EXIF and XMP. The server reads them
 * itself, because a process per header costs more than the header; the decoders read them again. Walks over bytes,
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
    int orientation;       /* 1 to 8; 0 if the file says none */
    bool animated;
    bool unread; /* a compressed text may say how it is turned, and nothing was there to read it */
    int memory;  /* bytes per pixel that decoding takes beside the result, at its peak */
    int held;    /* the same where rows are resized as they come: room for whole pictures included */
} ek_image_header;

/* Is it a picture within the limits (media/limits.h)? EPARSE, ETOOLARGE. */
ek_err ek_image_header_check(const ek_image_header *h);
/* Of one that is checked. */
ek_image_info ek_image_header_info(const ek_image_header *h);
ek_err ek_image_damaged(const char *format, const char *why); /* the sentence, EPARSE */

bool ek_is_jpeg(ek_media_bytes file);
bool ek_is_png(ek_media_bytes file);
/* *out is zeroed before. EPARSE; EINVAL for what no decoder here reads. Sizes are not checked yet. */
ek_err ek_jpeg_header(ek_image_header *out, ek_media_bytes file);
/* zlib's: bytes written to `to`, max at most; fewer where the data end or are damaged. */
typedef size_t ek_inflate_fn(uint8_t *to, size_t max, const uint8_t *from, size_t n);
/* The orientation is in a chunk of EXIF, in EXIF as text (ImageMagick), or in XMP; their order is that of Pillow's
 * exif_transpose. inflate reads compressed texts; NULL: out->unread says that there is one. */
ek_err ek_png_header(ek_image_header *out, ek_media_bytes file, ek_inflate_fn *inflate);

/* The orientation (tag 0x0112 of the first directory), 1 to 8; 0 if the block, n bytes of TIFF with or without "Exif"
 * and two zeros in front, says none, -1 if it says one that is none of these. 1 is upright; 2 mirrored; 3 turned by 180
 * degrees; 4 upside down in a mirror; 5 transposed; 6 to be turned by 90 degrees clockwise; 7 transposed along the
 * other diagonal; 8 to be turned counterclockwise. */
int ek_exif_orientation(const uint8_t *tiff, size_t n);
/* The same of XMP: the first tiff:Orientation="N" or tiff:Orientation>N; 0 where there is none that is valid. */
int ek_xmp_orientation(const uint8_t *xmp, size_t n);
/* The orientation of both: XMP's where EXIF says nothing. 0: none. */
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
