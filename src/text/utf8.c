#include "text/utf8.h"

#include <string.h>

#include "text/unicode_table.h"

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

/* --- Unicode properties, from the tables --- */

#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

static bool in_ranges(const range *r, int n, uint32_t cp)
{
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (cp > r[mid].last) low = mid + 1;
        else high = mid;
    }
    return low < n && cp >= r[low].first;
}

bool ek_utf8_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

bool ek_utf8_is_printable(uint32_t cp)
{
    return !in_ranges(unprintable, COUNT(unprintable), cp);
}

bool ek_utf8_is_word(uint32_t cp)
{
    return in_ranges(word, COUNT(word), cp);
}

void ek_utf8_strip(const char **s, size_t *n)
{
    uint32_t cp;
    while (*n > 0) {
        int len = ek_utf8_next(*s, *n, &cp);
        if (len < 0 || !ek_utf8_is_space(cp)) break;
        *s += len;
        *n -= (size_t)len;
    }
    while (*n > 0) {
        size_t at = *n - 1;
        while (at > 0 && *n - at < 4 && ((uint8_t)(*s)[at] & 0xC0) == 0x80) at--;
        if (ek_utf8_next(*s + at, *n - at, &cp) != (int)(*n - at) || !ek_utf8_is_space(cp)) break;
        *n = at;
    }
}

static bool map_one(ek_buf *out, uint32_t cp, const shift *s, int n_s, const expand *e, int n_e)
{
    for (int i = 0; i < n_e; i++) {
        if (e[i].from != cp) continue;
        ek_utf8_add(out, e[i].a);
        if (e[i].b) ek_utf8_add(out, e[i].b);
        if (e[i].c) ek_utf8_add(out, e[i].c);
        return true;
    }
    int low = 0, high = n_s;
    while (low < high) {
        int mid = (low + high) / 2;
        if (cp < s[mid].first) high = mid;
        else low = mid + 1;
    }
    if (low-- == 0 || cp > s[low].last || (cp - s[low].first) % (uint32_t)s[low].step) return false;
    ek_utf8_add(out, (uint32_t)((int)cp + s[low].delta));
    return true;
}

/* A capital sigma is final after a cased character and not before one, case-ignorable
 * characters between not counting (Unicode 3.13, Final_Sigma). */
static bool sigma_is_final(const char *s, size_t n, size_t at, bool cased_before)
{
    uint32_t cp;
    for (size_t i = at; i < n;) {
        int len = ek_utf8_next(s + i, n - i, &cp);
        i += (size_t)(len < 0 ? -len : len);
        if (in_ranges(case_ignorable, COUNT(case_ignorable), cp)) continue;
        return cased_before && !in_ranges(cased, COUNT(cased), cp);
    }
    return cased_before;
}

void ek_utf8_lower(ek_buf *out, const char *s, size_t n)
{
    bool cased_before = false;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (len < 0) len = -len;
        const char *from = s + i;
        i += (size_t)len;
        if (cp == 0x3A3) {
            ek_utf8_add(out, sigma_is_final(s, n, i, cased_before) ? 0x3C2 : 0x3C3);
        } else if (cp < 0x80) {
            ek_buf_char(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
        } else if (!map_one(out, cp, lower_shifts, COUNT(lower_shifts), lower_expands, COUNT(lower_expands))) {
            ek_buf_add(out, from, (size_t)len);
        }
        if (!in_ranges(case_ignorable, COUNT(case_ignorable), cp)) cased_before = in_ranges(cased, COUNT(cased), cp);
    }
}

void ek_utf8_upper(ek_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (len < 0) len = -len;
        if (cp < 0x80) ek_buf_char(out, (char)(cp >= 'a' && cp <= 'z' ? cp - 32 : cp));
        else if (!map_one(out, cp, upper_shifts, COUNT(upper_shifts), upper_expands, COUNT(upper_expands)))
            ek_buf_add(out, s + i, (size_t)len);
        i += (size_t)len;
    }
}
