/* Sets of characters in all their spellings: a character, an escape, a dot, brackets. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "text/regex/regex_work.h"
#include "text/utf8.h"

ek_err ek_regex_refuse(const ek_regex_reader *p, const char *fmt, ...)
{
    char text[160];
    size_t character = 1;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (size_t i = 0; i < p->at && i < p->n; i++) character += ((uint8_t)p->s[i] & 0xc0) != 0x80;
    return ek_fail(EK_EINVAL, "at character %zu: %s", character, text);
}

static ek_err next_char(ek_regex_reader *p, uint32_t *cp)
{
    int len = ek_utf8_next(p->s + p->at, p->n - p->at, cp);
    if (len < 0) return ek_regex_refuse(p, "no valid UTF-8");
    p->at += (size_t)len;
    return EK_OK;
}

static const ek_regex_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                            spaces[] = {{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                        {0x3000, 0x3000}, {0xfeff, 0xfeff}},
                            lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

static ek_err add_range(ek_regex_reader *p, uint32_t lo, uint32_t hi)
{
    ek_regex_work *w = p->w;
    EK_TRY(ek_regex_spend(w, 1));
    if (w->n_ranges == EK_REGEX_NODES) return ek_fail(EK_ETOOLARGE, "it has more than %d ranges", EK_REGEX_NODES);
    if (w->n_ranges == w->cap_ranges) {
        w->cap_ranges = w->cap_ranges ? 2 * w->cap_ranges : 64;
        w->range = ek_realloc(w->range, sizeof *w->range * (size_t)w->cap_ranges);
    }
    w->range[w->n_ranges++] = (ek_regex_range){lo, hi};
    return EK_OK;
}

static ek_err add_ranges(ek_regex_reader *p, const ek_regex_range *r, int n, bool negated)
{
    uint32_t from = 0;
    for (int i = 0; i < n; i++) {
        if (!negated) EK_TRY(add_range(p, r[i].lo, r[i].hi));
        else if (r[i].lo > from) EK_TRY(add_range(p, from, r[i].lo - 1));
        from = r[i].hi + 1;
    }
    return negated && from <= EK_REGEX_LAST ? add_range(p, from, EK_REGEX_LAST) : EK_OK;
}

static int by_lo(const void *x, const void *y)
{
    const ek_regex_range *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* Makes the ranges from `first` on a set, ascending and separate; or their complement. */
static ek_err end_set(ek_regex_reader *p, int32_t first, bool negated, size_t at, int32_t *out)
{
    ek_regex_work *w = p->w;
    int n = 0, was = w->n_ranges - first;
    if (was > 1) qsort(w->range + first, (size_t)was, sizeof *w->range, by_lo);
    for (int i = first; i < w->n_ranges; i++) {
        ek_regex_range r = w->range[i], *last = n ? &w->range[first + n - 1] : NULL;
        if (last && r.lo <= last->hi + 1) last->hi = r.hi > last->hi ? r.hi : last->hi;
        else w->range[first + n++] = r;
    }
    w->n_ranges = first + n;
    int32_t end = w->n_ranges;
    uint32_t from = 0;
    for (int i = first; i < end && negated; i++) { /* the complement is written behind them and then moved */
        ek_regex_range r = w->range[i];
        if (r.lo > from) EK_TRY(add_range(p, from, r.lo - 1));
        from = r.hi + 1;
    }
    if (negated && from <= EK_REGEX_LAST) EK_TRY(add_range(p, from, EK_REGEX_LAST));
    int32_t source = negated ? end : first, n_source = w->n_ranges - source;
    if (negated) {
        memmove(w->range + first, w->range + source, sizeof *w->range * (size_t)n_source);
        w->n_ranges = first + n_source;
    }
    if (w->n_sets == w->cap_sets) {
        w->cap_sets = w->cap_sets ? 2 * w->cap_sets : 16;
        w->set = ek_realloc(w->set, sizeof *w->set * (size_t)w->cap_sets);
    }
    w->set[w->n_sets] = (ek_regex_set){first, w->n_ranges - first, at, p->at};
    *out = w->n_sets++;
    return EK_OK;
}

/* The set that was read here before, if any; the parser then skips it. */
static bool known_set(ek_regex_reader *p, int32_t *out)
{
    int lo = 0, hi = p->w->n_sets;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (p->w->set[mid].at < p->at + 1) lo = mid + 1;
        else hi = mid;
    }
    if (lo == p->w->n_sets || p->w->set[lo].at != p->at + 1) return false;
    *out = lo;
    p->at = p->w->set[lo].end;
    return true;
}

/* --- escapes --- */

static bool read_hex(ek_regex_reader *p, int n, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < n; i++) {
        int d = ek_hex_digit(ek_regex_peek(p, (size_t)i));
        if (d < 0) return false;
        *cp = *cp << 4 | (uint32_t)d;
    }
    p->at += (size_t)n;
    return true;
}

/* Behind \u. */
static ek_err unicode(ek_regex_reader *p, uint32_t *cp)
{
    uint32_t low;
    if (ek_regex_peek(p, 0) == '{') {
        *cp = 0;
        size_t from = ++p->at;
        for (int d; (d = ek_hex_digit(ek_regex_peek(p, 0))) >= 0 && *cp <= EK_REGEX_LAST; p->at++)
            *cp = *cp << 4 | (uint32_t)d;
        if (ek_regex_peek(p, 0) != '}' || p->at == from || *cp > EK_REGEX_LAST)
            return ek_regex_refuse(p, "\\u{…} needs a code point up to 10FFFF");
        p->at++;
    } else if (!read_hex(p, 4, cp)) {
        return ek_regex_refuse(p, "\\u needs four hexadecimal digits");
    } else if (*cp >= 0xd800 && *cp < 0xdc00 && ek_regex_peek(p, 0) == '\\' && ek_regex_peek(p, 1) == 'u') {
        size_t at = p->at;
        p->at += 2;
        if (read_hex(p, 4, &low) && low >= 0xdc00 && low < 0xe000)
            *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        else p->at = at;
    }
    return *cp >= 0xd800 && *cp < 0xe000 ? ek_regex_refuse(p, "a lone surrogate is no character") : EK_OK;
}

/* \d and the like: adds their ranges. */
static bool class_escape(int c, const ek_regex_range **r, int *n)
{
    switch (c | 32) {
    case 'd': *r = digits, *n = COUNT(digits); return true;
    case 'w': *r = words, *n = COUNT(words); return true;
    case 's': *r = spaces, *n = COUNT(spaces); return true;
    default: return false;
    }
}

/* A single character behind a backslash. */
static ek_err escape(ek_regex_reader *p, bool in_class, uint32_t *cp)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    int c = ek_regex_peek(p, 0);
    const char *simple = c > 0 ? strchr(from, c) : NULL;
    if (c < 0) return ek_regex_refuse(p, "nothing follows the backslash");
    if (simple) *cp = (uint8_t)to[simple - from];
    else if (c == '0' && !(ek_regex_peek(p, 1) >= '0' && ek_regex_peek(p, 1) <= '9')) *cp = 0;
    else if (c == 'b' && in_class) *cp = 8;
    else if (c == 'b' || c == 'B') return ek_regex_refuse(p, "the word boundary \\%c is not supported", c);
    else if ((c >= '0' && c <= '9') || c == 'k')
        return ek_regex_refuse(p, "the back reference \\%c is not supported", c);
    else if (c == 'p' || c == 'P') return ek_regex_refuse(p, "the property \\%c{…} is not supported", c);
    else if (c == 'x' || c == 'u' || c == 'c') {
        p->at++;
        if (c == 'u') return unicode(p, cp);
        if (c == 'x') return read_hex(p, 2, cp) ? EK_OK : ek_regex_refuse(p, "\\x needs two hexadecimal digits");
        c = ek_regex_peek(p, 0);
        if ((c | 32) < 'a' || (c | 32) > 'z') return ek_regex_refuse(p, "\\c needs a letter");
        *cp = (uint32_t)c & 31;
    } else if ((c | 32) >= 'a' && (c | 32) <= 'z') return ek_regex_refuse(p, "the escape \\%c is not supported", c);
    else return next_char(p, cp);
    p->at++;
    return EK_OK;
}

/* After the backslash: skips a property, which then stands for any character. */
static bool skip_property(ek_regex_reader *p)
{
    if (!p->w->lenient || (ek_regex_peek(p, 0) | 32) != 'p') return false;
    p->w->cut = true;
    p->at++;
    if (ek_regex_peek(p, 0) == '{')
        while (p->at < p->n && p->s[p->at++] != '}') continue;
    return true;
}

/* --- sets in brackets --- */

/* Reads one member: a character in *cp, or a whole class, which is added (*single false). *any: it may be any
 * character. */
static ek_err class_atom(ek_regex_reader *p, uint32_t *cp, bool *single, bool *any)
{
    const ek_regex_range *r;
    int n;
    *single = true;
    if (ek_regex_peek(p, 0) != '\\') return next_char(p, cp);
    p->at++;
    if (skip_property(p)) {
        *single = false;
        *any = true;
        return EK_OK;
    }
    if (!class_escape(ek_regex_peek(p, 0), &r, &n)) return escape(p, true, cp);
    *single = false;
    bool negated = ek_regex_peek(p, 0) < 'a';
    p->at++;
    return add_ranges(p, r, n, negated);
}

/* Reads the rest of a set; at stands behind the opening bracket. */
static ek_err brackets(ek_regex_reader *p, size_t at, int32_t *out)
{
    int32_t first = p->w->n_ranges;
    bool negated = ek_regex_peek(p, 0) == '^', any = false;
    p->at += negated;
    while (ek_regex_peek(p, 0) != ']') {
        uint32_t lo = 0, hi = 0;
        bool single, single_hi;
        if (p->at == p->n) return ek_regex_refuse(p, "a bracket is not closed");
        EK_TRY(class_atom(p, &lo, &single, &any));
        if (ek_regex_peek(p, 0) == '-' && ek_regex_peek(p, 1) != ']' && ek_regex_peek(p, 1) >= 0) {
            p->at++;
            EK_TRY(class_atom(p, &hi, &single_hi, &any));
            if (single && single_hi && hi < lo) return ek_regex_refuse(p, "the range is out of order");
            if (!single || !single_hi) { /* [\w-x]: a hyphen, as without the flag u */
                EK_TRY(add_range(p, '-', '-'));
                if (single) hi = lo;
                else lo = hi;
                single |= single_hi;
            }
        } else {
            hi = lo;
        }
        if (single) EK_TRY(add_range(p, lo, hi));
    }
    p->at++;
    if (any) { /* a property as a member: any character may be in the set, and in its complement */
        p->w->n_ranges = first;
        negated = true;
    }
    return end_set(p, first, negated, at, out);
}

/* Reads a set of characters in any spelling. */
ek_err ek_regex_read_set(ek_regex_reader *p, int32_t *out)
{
    const ek_regex_range *r;
    int n, c = ek_regex_peek(p, 0);
    if (known_set(p, out)) return EK_OK;
    size_t at = p->at + 1;
    int32_t first = p->w->n_ranges;
    uint32_t cp;
    if (c == '[' || c == '.' || c == '\\') p->at++;
    if (c == '[') return brackets(p, at, out);
    if (c == '.') {
        EK_TRY(add_ranges(p, lines, COUNT(lines), true));
    } else if (c == '\\' && skip_property(p)) {
        return end_set(p, first, true, at, out);
    } else if (c == '\\' && class_escape(ek_regex_peek(p, 0), &r, &n)) {
        EK_TRY(add_ranges(p, r, n, ek_regex_peek(p, 0) < 'a'));
        p->at++;
    } else {
        if (c == '\\') EK_TRY(escape(p, false, &cp));
        else EK_TRY(next_char(p, &cp));
        EK_TRY(add_range(p, cp, cp));
    }
    return end_set(p, first, false, at, out);
}

ek_err ek_regex_any_set(ek_regex_reader *p, int32_t *out)
{
    return end_set(p, p->w->n_ranges, true, 0, out);
}
