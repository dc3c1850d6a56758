/* The Unicode properties of utf8.h, from the tables of unicode_table.h. */
#include "text/unicode_table.h"
#include "text/utf8.h"

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
