#include "decode/png_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "decode/exif.h"
#include "decode/inflate.h"

enum { MAX_TEXT = 1 << 20, MAX_INFLATED = 4 }; /* bytes of a text; texts of a picture */

static const char raw_key[] = "Raw profile type exif", xmp_key[] = "XML:com.adobe.xmp";

/* Three lines (nothing, "exif", the number of bytes), then hexadecimal digits in lines. */
static int read_raw(const uint8_t *s, size_t n)
{
    enum { MAX = 64 << 10 }; /* the first directory lies within it */
    size_t at = 0, made = 0;
    for (int lines = 0; lines < 3; lines++) {
        const uint8_t *end = memchr(s + at, '\n', n - at);
        if (!end) return 0;
        at = (size_t)(end - s) + 1;
    }
    uint8_t *bytes = ek_alloc(MAX);
    while (at < n && made < MAX) {
        const int byte = ek_hex_byte((const char *)s + at, n - at);
        if (byte >= 0) bytes[made++] = (uint8_t)byte, at += 2;
        else if (s[at] == '\n' || s[at] == '\r' || s[at] == ' ') at++;
        else break;
    }
    const int orientation = ek_exif_orientation(bytes, made);
    free(bytes);
    return orientation;
}

static void take_text(ek_png_texts *t, bool raw, const uint8_t *s, size_t n)
{
    if (!raw) t->xmp = ek_xmp_orientation(s, n);
    else t->has_raw = true, t->raw = read_raw(s, n);
}

static void take_packed(ek_png_texts *t, bool raw, const uint8_t *s, size_t n)
{
    if (t->n_inflated++ >= MAX_INFLATED) return;
    uint8_t *text = ek_alloc(MAX_TEXT);
    take_text(t, raw, text, ek_inflate(text, MAX_TEXT, s, n));
    free(text);
}

/* KEY, 0, then the text: as it is, behind a method, or behind two flags and two words with a 0 each. */
void ek_png_text(ek_png_texts *t, const uint8_t *name, const uint8_t *data, size_t n)
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

int ek_png_orientation(const ek_png_texts *t)
{
    return ek_orientation(t->has_exif ? t->exif : t->has_raw ? t->raw : 0, t->xmp);
}
