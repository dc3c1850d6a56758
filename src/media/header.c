#define _GNU_SOURCE /* memmem */
#include "media/header.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "media/limits.h"

ek_err ek_image_damaged(const char *format, const char *why)
{
    return ek_fail(EK_EPARSE, "damaged %s picture: %s", format, why);
}

ek_err ek_media_check_bytes(const char *what, size_t n)
{
    if (n > EK_MEDIA_MAX_BYTES)
        return ek_fail(EK_ETOOLARGE, "%s of %zu bytes, at most %d", what, n, EK_MEDIA_MAX_BYTES);
    return n == 0 ? ek_fail(EK_EINVAL, "empty %s: it has 0 bytes", what) : EK_OK;
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

/* --- JPEG --- */

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

/* --- PNG --- */

/* The chunks with the orientation. */
typedef struct texts {
    ek_inflate_fn *inflate;
    bool has_exif, has_raw; /* has_exif: eXIf; has_raw: "Raw profile type exif" */
    bool unread;            /* as in ek_image_header */
    int exif, raw, xmp;     /* their orientations */
    int n_inflated;         /* number of compressed texts so far */
} texts;

enum { MAX_TEXT = 1 << 20, MAX_INFLATED = 4 }; /* MAX_TEXT: bytes of a text; MAX_INFLATED: texts of a picture */

static const char raw_key[] = "Raw profile type exif", xmp_key[] = "XML:com.adobe.xmp";

/* Three lines (nothing, "exif", the number of bytes), then hexadecimal digits in lines. */
static int read_raw(const uint8_t *s, size_t n)
{
    enum { MAX = 64 << 10 }; /* the first directory lies within these bytes */
    size_t at = 0, made = 0;
    for (int lines = 0; lines < 3; lines++) {
        const uint8_t *end = memchr(s + at, '\n', n - at);
        if (!end) return 0;
        at = (size_t)(end - s) + 1;
    }
    const size_t room = (n - at) / 2 < MAX ? (n - at) / 2 : MAX; /* a file may have a million texts */
    uint8_t *bytes = ek_alloc(room);
    while (at < n && made < room) {
        const int byte = ek_hex_byte((const char *)s + at, n - at);
        if (byte >= 0) bytes[made++] = (uint8_t)byte, at += 2;
        else if (s[at] == '\n' || s[at] == '\r' || s[at] == ' ') at++;
        else break;
    }
    const int orientation = ek_exif_orientation(bytes, made);
    free(bytes);
    return orientation;
}

static void take_text(texts *t, bool raw, const uint8_t *s, size_t n)
{
    if (!raw) t->xmp = ek_xmp_orientation(s, n);
    else t->has_raw = true, t->raw = read_raw(s, n);
}

static void take_packed(texts *t, bool raw, const uint8_t *s, size_t n)
{
    if (t->n_inflated++ >= MAX_INFLATED) return;
    if (!t->inflate) {
        t->unread = true;
        return;
    }
    uint8_t *text = ek_alloc(MAX_TEXT);
    take_text(t, raw, text, t->inflate(text, MAX_TEXT, s, n));
    free(text);
}

/* Takes a chunk of n bytes; `name` has 4. The text comes after KEY and 0: as it is, after a method, or after two flags
 * and two words with a 0 each. */
static void take_chunk(texts *t, const uint8_t *name, const uint8_t *data, size_t n)
{
    if (memcmp(name, "eXIf", 4) == 0) {
        t->has_exif = true;
        t->exif = ek_exif_orientation(data, n);
        return;
    }
    const bool plain = memcmp(name, "tEXt", 4) == 0, packed = memcmp(name, "zTXt", 4) == 0;
    if (!plain && !packed && memcmp(name, "iTXt", 4) != 0) return;
    const bool raw = n >= sizeof raw_key && memcmp(data, raw_key, sizeof raw_key) == 0;
    if (!raw && (n < sizeof xmp_key || memcmp(data, xmp_key, sizeof xmp_key) != 0)) return;
    size_t at = raw ? sizeof raw_key : sizeof xmp_key;
    if (plain) {
        take_text(t, raw, data + at, n - at);
    } else if (packed) {
        if (n > at && data[at] == 0) take_packed(t, raw, data + at + 1, n - at - 1);
    } else if (n - at >= 2) {
        const bool coded = data[at] == 1 && data[at + 1] == 0;
        if (data[at] > 1 || (data[at] == 1 && !coded)) return;
        at += 2;
        for (int words = 0; words < 2; words++) {
            const uint8_t *end = memchr(data + at, 0, n - at);
            if (!end) return;
            at = (size_t)(end - data) + 1;
        }
        if (coded) take_packed(t, raw, data + at, n - at);
        else take_text(t, raw, data + at, n - at);
    }
}

static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool ek_is_png(ek_media_bytes f)
{
    return f.n >= 8 && memcmp(f.p, signature, 8) == 0;
}

static ek_err read_size(ek_image_header *h, const uint8_t *p, size_t n)
{
    if (n != 13) return ek_image_damaged(h->format, "its header has not 13 bytes");
    h->width = ek_be32(p);
    h->height = ek_be32(p + 4);
    if (p[8] > 16 || p[9] > 6) return ek_image_damaged(h->format, "its colour type is unknown");
    h->memory = p[12] ? 4 : 1; /* interlaced: whole passes are kept, with alpha if it is blended */
    h->held = p[12] ? 4 : 0;
    return EK_OK;
}

/* Reads chunks up to the end of the file, without their data except for a few texts. Each chunk has at least 12
 * bytes. */
ek_err ek_png_header(ek_image_header *h, ek_media_bytes f, ek_inflate_fn *inflate)
{
    texts t = {.inflate = inflate};
    h->format = "PNG";
    for (size_t at = 8; f.n - at >= 12;) {
        size_t n = ek_be32(f.p + at);
        const uint8_t *name = f.p + at + 4, *data = f.p + at + 8;
        if (at == 8 && memcmp(name, "IHDR", 4) != 0) return ek_image_damaged(h->format, "it does not begin with IHDR");
        if (n > f.n - at - 12) break;
        if (at == 8) EK_TRY(read_size(h, data, n));
        take_chunk(&t, name, data, n);
        if (memcmp(name, "acTL", 4) == 0) h->animated = true;
        if (memcmp(name, "IEND", 4) == 0) break;
        at += 12 + n;
    }
    h->orientation = ek_orientation(t.has_exif ? t.exif : t.has_raw ? t.raw : 0, t.xmp);
    h->unread = t.unread;
    return h->width || h->height ? EK_OK : ek_image_damaged(h->format, "it ends before its size");
}
