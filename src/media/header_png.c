#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "media/header.h"

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
