#include "base/log.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The length of the well-formed character at s (RFC 3629); 0: there is none. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *c)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    static const uint32_t first[] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0 || len > n) return 0;
    *c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *c = *c << 6 | (s[i] & 0x3f);
    }
    return *c < first[len] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? 0 : len;
}

static bool speaks(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

size_t ek_plain_char(const char *s, size_t n, bool *plain)
{
    uint32_t c = 0;
    size_t len = decode((const unsigned char *)s, n, &c);
    *plain = len > 0 && !speaks(c);
    return len ? len : 1;
}

/* Writes one character in its printed form, which is shorter than 8 bytes. */
static size_t show(char out[8], const char *s, size_t n, size_t *took)
{
    bool plain;
    uint32_t c = 0;
    *took = ek_plain_char(s, n, &plain);
    if (plain) {
        memcpy(out, s, *took);
        return *took;
    }
    bool byte = *took == 1;
    if (byte) c = (unsigned char)*s;
    else decode((const unsigned char *)s, n, &c);
    return (size_t)snprintf(out, 8, byte ? "\\x%02x" : "\\u%04x", c & 0xffff);
}

size_t ek_plain(char *out, size_t size, const char *text, size_t n)
{
    size_t len = 0;
    for (size_t at = 0, took; at < n; at += took) {
        char one[8];
        size_t wrote;
        if (text[at] >= ' ' && text[at] < 0x7f) one[0] = text[at], wrote = took = 1; /* as most are */
        else wrote = show(one, text + at, n - at, &took);
        if (len + wrote >= size) break;
        memcpy(out + len, one, wrote);
        len += wrote;
    }
    out[len] = '\0';
    return len;
}

const char *ek_plain_name(char out[EK_PLAIN_NAME], const char *text)
{
    size_t len = 0, n = strlen(text), at = 0;
    for (size_t count = 0, took; at < n && count < 80; at += took, count++) {
        char one[8];
        size_t wrote = show(one, text + at, n - at, &took);
        memcpy(out + len, one, wrote);
        len += wrote;
    }
    snprintf(out + len, EK_PLAIN_NAME - len, "%s", at < n ? "\xe2\x80\xa6" : "");
    return out;
}
