#include <string.h>

#include "media/header.h"

bool ek_is_jpeg(ek_media_bytes f)
{
    return f.n >= 3 && f.p[0] == 0xFF && f.p[1] == 0xD8 && f.p[2] == 0xFF;
}

/* SOF0 to SOF15, without DHT, JPG and DAC, which have numbers between them. */
static bool is_frame(uint8_t marker)
{
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* The decoder keeps a picture with several scans as coefficients of two bytes. Other pictures need only rows. */
static void keep_coefficients(ek_image_header *h, int components)
{
    h->memory = h->held = 2 * components + 1;
}

static ek_err read_frame(ek_image_header *h, int *components, const uint8_t *p, size_t n, uint8_t marker)
{
    if (n < 6) return ek_image_damaged(h->format, "its frame header is too short");
    if (p[0] != 8) return ek_fail(EK_EINVAL, "JPEG picture of %d bits per sample, 8 are read", p[0]);
    if (p[5] != 1 && p[5] != 3 && p[5] != 4)
        return ek_fail(EK_EINVAL, "JPEG picture of %d components, 1, 3 or 4 are read", p[5]);
    h->height = ek_be16(p + 1);
    h->width = ek_be16(p + 3);
    h->memory = 1;
    if (marker == 0xC2 || marker == 0xCA) keep_coefficients(h, p[5]);
    *components = p[5];
    return EK_OK;
}

static void read_app1(int *exif, int *xmp, const uint8_t *p, size_t n)
{
    static const char name[] = "http://ns.adobe.com/xap/1.0/"; /* with its zero at the end */
    if (*exif == 0 && n >= 6 && memcmp(p, "Exif\0\0", 6) == 0) *exif = ek_exif_orientation(p, n);
    if (n > sizeof name && memcmp(p, name, sizeof name) == 0)
        *xmp = ek_xmp_orientation(p + sizeof name, n - sizeof name);
}

/* Reads markers up to the first scan. */
ek_err ek_jpeg_header(ek_image_header *h, ek_media_bytes f)
{
    h->format = "JPEG";
    size_t at = 2;
    int components = 0, exif = 0, xmp = 0;
    while (f.n - at >= 4) {
        uint8_t marker = f.p[at + 1];
        if (f.p[at] != 0xFF || marker == 0xFF || marker == 0) { /* stray bytes, which the library also skips */
            at++;
            continue;
        }
        if (marker == 0xDA && f.n - at > 4 && f.p[at + 4] < components) keep_coefficients(h, components);
        if (marker == 0xDA || marker == 0xD9) break;
        at += 2;
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue; /* without a length */
        size_t n = ek_be16(f.p + at);
        if (n < 2 || n > f.n - at) return ek_image_damaged(h->format, "it ends inside a segment of its header");
        const uint8_t *p = f.p + at + 2;
        if (is_frame(marker)) {
            if (h->width) return ek_image_damaged(h->format, "it has two frame headers");
            EK_TRY(read_frame(h, &components, p, n - 2, marker));
        }
        if (marker == 0xE1) read_app1(&exif, &xmp, p, n - 2);
        at += n;
    }
    h->orientation = ek_orientation(exif, xmp);
    return h->width ? EK_OK : ek_image_damaged(h->format, "it ends before its size");
}
