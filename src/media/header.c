#define _GNU_SOURCE /* memmem */
#include "media/header.h"

#include <string.h>

#include "media/limits.h"

ek_err ek_image_damaged(const char *format, const char *why)
{
    return ek_fail(EK_EPARSE, "damaged %s picture: %s", format, why);
}

ek_err ek_image_header_check(const ek_image_header *h)
{
    if (h->width < 1 || h->height < 1)
        return ek_fail(EK_EPARSE, "damaged %s picture: %lld x %lld pixels", h->format, (long long)h->width,
                       (long long)h->height);
    if (h->width > EK_IMAGE_MAX_SIDE || h->height > EK_IMAGE_MAX_SIDE)
        return ek_fail(EK_ETOOLARGE, "%s picture of %lld x %lld pixels, a side has at most %d", h->format,
                       (long long)h->width, (long long)h->height, EK_IMAGE_MAX_SIDE);
    if (h->width * h->height > EK_IMAGE_MAX_PIXELS)
        return ek_fail(EK_ETOOLARGE, "%s picture of %lld x %lld pixels, %lld together, at most %d", h->format,
                       (long long)h->width, (long long)h->height, (long long)(h->width * h->height),
                       EK_IMAGE_MAX_PIXELS);
    return EK_OK;
}

ek_image_info ek_image_header_info(const ek_image_header *h)
{
    const int orientation = h->orientation ? h->orientation : 1;
    const bool turned = orientation >= 5;
    const size_t pixels = (size_t)(h->width * h->height);
    /* The result, a copy for rotation, the decoder's memory, and its tables. */
    const size_t per_pixel = 3 + (orientation > 1 ? 3u : 0u) + (size_t)h->memory;
    return (ek_image_info){.format = h->format,
                           .width = (int)(turned ? h->height : h->width),
                           .height = (int)(turned ? h->width : h->height),
                           .orientation = orientation,
                           .animated = h->animated,
                           .memory = pixels * per_pixel + ((size_t)16 << 20),
                           /* Some rows of every component, and the libraries' own memory. */
                           .held = pixels * (size_t)h->held + (size_t)h->width * 128 + ((size_t)2 << 20)};
}

/* --- orientation --- */

enum { ORIENTATION = 0x0112, BYTE = 1, SHORT = 3, LONG = 4 };

/* A walk through one directory of TIFF 6.0, bounded by the block and by 65,535 entries of 12 bytes. */
int ek_exif_orientation(const uint8_t *tiff, size_t n)
{
    if (n >= 6 && memcmp(tiff, "Exif\0\0", 6) == 0) tiff += 6, n -= 6;
    if (n < 8) return 0;
    bool little = memcmp(tiff, "II*\0", 4) == 0;
    if (!little && memcmp(tiff, "MM\0*", 4) != 0) return 0;
    size_t at = little ? ek_le32(tiff + 4) : ek_be32(tiff + 4);
    if (at > n - 2) return 0;
    unsigned entries = little ? ek_le16(tiff + at) : ek_be16(tiff + at);
    at += 2;
    for (unsigned i = 0; i < entries && n - at >= 12; i++, at += 12) {
        const uint8_t *e = tiff + at;
        if ((little ? ek_le16(e) : ek_be16(e)) != ORIENTATION) continue;
        if ((little ? ek_le32(e + 4) : ek_be32(e + 4)) != 1) return -1;
        unsigned type = little ? ek_le16(e + 2) : ek_be16(e + 2);
        uint32_t value = type == BYTE    ? e[8]
                         : type == SHORT ? (little ? ek_le16(e + 8) : ek_be16(e + 8))
                         : type == LONG  ? (little ? ek_le32(e + 8) : ek_be32(e + 8))
                                         : 0;
        return value >= 1 && value <= 8 ? (int)value : -1;
    }
    return 0;
}

int ek_xmp_orientation(const uint8_t *xmp, size_t n)
{
    static const char key[] = "tiff:Orientation";
    const size_t len = sizeof key - 1;
    const uint8_t *end = xmp + n;
    while ((xmp = memmem(xmp, (size_t)(end - xmp), key, len))) {
        xmp += len;
        const size_t skip = end - xmp >= 2 && xmp[0] == '=' && xmp[1] == '"' ? 2
                            : end - xmp >= 1 && xmp[0] == '>'                ? 1
                                                                             : 0;
        if (skip == 0 || (size_t)(end - xmp) <= skip || xmp[skip] < '0' || xmp[skip] > '9') continue;
        return xmp[skip] >= '1' && xmp[skip] <= '8' ? xmp[skip] - '0' : 0;
    }
    return 0;
}

int ek_orientation(int exif, int xmp)
{
    return exif > 0 ? exif : exif < 0 ? 0 : xmp;
}
