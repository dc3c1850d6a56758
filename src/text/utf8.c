#include "text/utf8.h"

#include <string.h>

int ek_utf8_next(const char *s, size_t n, uint32_t *cp)
{
    const uint8_t *b = (const uint8_t *)s;
    if (b[0] < 0x80) {
        *cp = b[0];
        return 1;
    }
    /* The second byte's range depends on the first (Unicode 15, table 3-7). */
    int need;
    uint8_t low = 0x80, high = 0xBF;
    uint32_t c;
    if (b[0] >= 0xC2 && b[0] <= 0xDF) {
        need = 1;
        c = b[0] & 0x1F;
    } else if (b[0] >= 0xE0 && b[0] <= 0xEF) {
        need = 2;
        c = b[0] & 0x0F;
        if (b[0] == 0xE0) low = 0xA0;
        if (b[0] == 0xED) high = 0x9F;
    } else if (b[0] >= 0xF0 && b[0] <= 0xF4) {
        need = 3;
        c = b[0] & 0x07;
        if (b[0] == 0xF0) low = 0x90;
        if (b[0] == 0xF4) high = 0x8F;
    } else {
        *cp = 0xFFFD;
        return -1;
    }
    for (int i = 1; i <= need; i++) {
        if ((size_t)i >= n || b[i] < low || b[i] > high) {
            *cp = 0xFFFD;
            return -i;
        }
        c = c << 6 | (b[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *cp = c;
    return need + 1;
}

/* Length of the well-formed prefix of a scalar at the end of s, 0..3: what more bytes could still complete. */
static int incomplete_tail(const char *s, size_t n)
{
    for (size_t len = n < 3 ? n : 3; len > 0; len--) {
        uint32_t cp;
        const uint8_t first = (uint8_t)s[n - len];
        size_t whole = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        /* Ill-formed only because the text ends here: the whole of it is one subpart. */
        if (first >= 0xC2 && first <= 0xF4 && len < whole && ek_utf8_next(s + n - len, len, &cp) == -(int)len)
            return (int)len;
    }
    return 0;
}

int ek_utf8_put(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

void ek_utf8_add(ek_buf *out, uint32_t cp)
{
    char b[4];
    ek_buf_add(out, b, (size_t)ek_utf8_put(b, cp));
}

bool ek_utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (len < 0) return false;
        i += (size_t)len;
    }
    return true;
}

size_t ek_utf8_count(const char *s, size_t n)
{
    size_t scalars = 0;
    for (size_t i = 0; i < n; i++) scalars += ((uint8_t)s[i] & 0xC0) != 0x80;
    return scalars;
}

void ek_utf8_clean(ek_buf *out, const char *s, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (len > 0) {
            i += (size_t)len;
            continue;
        }
        ek_buf_add(out, s + from, i - from);
        ek_buf_add(out, EK_UTF8_BAD, 3);
        i += (size_t)-len;
        from = i;
    }
    ek_buf_add(out, s + from, n - from);
}

void ek_utf8_stream_add(ek_utf8_stream *u, ek_buf *out, const char *s, size_t n)
{
    /* Join what waits with as many bytes as complete or refute it. */
    while (u->n > 0 && n > 0) {
        u->pending[u->n++] = *s++;
        n--;
        if (incomplete_tail(u->pending, (size_t)u->n) == u->n) continue;
        uint32_t cp;
        int len = ek_utf8_next(u->pending, (size_t)u->n, &cp);
        if (len < 0) { /* the last byte does not belong to it: it starts anew */
            ek_buf_add(out, EK_UTF8_BAD, 3);
            s -= u->n + len;
            n += (size_t)(u->n + len);
        } else {
            ek_buf_add(out, u->pending, (size_t)len);
        }
        u->n = 0;
    }
    int tail = incomplete_tail(s, n);
    ek_utf8_clean(out, s, n - (size_t)tail);
    if (tail > 0) {
        memcpy(u->pending, s + n - (size_t)tail, (size_t)tail);
        u->n = tail;
    }
}

void ek_utf8_stream_end(ek_utf8_stream *u, ek_buf *out)
{
    if (u->n > 0) ek_buf_add(out, EK_UTF8_BAD, 3);
    u->n = 0;
}
