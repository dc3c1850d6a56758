/* Regular expressions of schemas. Input: a byte of lengths, a pattern, NUL, a text. Properties: a refusal is one line;
 * from every state that the text reaches a match is as near as is said; expressions that mean the same take the same
 * texts; what both of two take is what each takes. */
#include <string.h>

#include "../tests/support/regex.h"
#include "base/buf.h"
#include "text/regex/regex.h"
#include "text/utf8.h"

enum { MAX_TEXT = 64, MAX_PATTERN = 400 };

static ek_regex *open_regex(const char *before, const char *pattern, size_t n, const char *after)
{
    ek_buf b = {0};
    ek_regex *r;
    ek_buf_str(&b, before);
    ek_buf_add(&b, pattern, n);
    ek_buf_str(&b, after);
    ek_err err = regex_open(&r, b.data, b.len);
    ek_buf_fini(&b);
    if (!err) return r;
    if ((err != EK_EINVAL && err != EK_ETOOLARGE) || r || !*ek_err_text() || strchr(ek_err_text(), '\n'))
        __builtin_trap();
    return NULL;
}

/* The state behind the text, or -1. */
static int32_t follow(const ek_regex *r, const uint32_t *text, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n && s >= 0; i++) s = ek_regex_step(r, s, text[i]);
    return s;
}

static bool matches(const ek_regex *r, const uint32_t *text, int n)
{
    int32_t s = follow(r, text, n);
    return s >= 0 && r->accepts[s];
}

static void check_least(const ek_regex *r, int32_t s)
{
    for (uint32_t least = r->least[s]; least > 0; least--) {
        int32_t next = -1;
        for (int e = r->first[s]; e < r->first[s + 1] && next < 0; e++)
            if (r->least[r->edge[e].to] == least - 1) next = r->edge[e].to;
        if (next < 0) __builtin_trap();
        s = next;
    }
    if (!r->accepts[s]) __builtin_trap();
}

static void check_same(ek_regex *other, const ek_regex *r, const uint32_t *text, int n)
{
    if (other && matches(other, text, n) != matches(r, text, n)) __builtin_trap();
    ek_regex_close(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t text[MAX_TEXT];
    int n = 0;
    if (size < 1) return 0;
    const char *pattern = (const char *)data + 1;
    size_t n_pattern = strnlen(pattern, size - 1);
    for (size_t i = n_pattern + 2; i < size && n < MAX_TEXT;) {
        int len = ek_utf8_next((const char *)data + i, size - i, &text[n++]);
        i += (size_t)(len < 0 ? -len : len);
    }
    if (n_pattern > MAX_PATTERN) n_pattern = MAX_PATTERN;
    ek_regex *r = open_regex("", pattern, n_pattern, ""), *both, *whole;
    if (!r) return 0;
    for (int i = 0; i <= n; i++)
        if (follow(r, text, i) >= 0) check_least(r, follow(r, text, i));
    check_same(open_regex("(?:", pattern, n_pattern, ")"), r, text, n);
    check_same(open_regex("(", pattern, n_pattern, "){1}|[]"), r, text, n);
    whole = open_regex("^(?:", pattern, n_pattern, ")$");
    if (whole && matches(whole, text, n) && !matches(r, text, n)) __builtin_trap();
    if (whole && !ek_regex_and(&both, r, whole)) check_same(both, whole, text, n);
    ek_regex_close(whole);
    uint32_t min = data[0] & 15, max = data[0] >> 4 ? min + (data[0] >> 4) - 1 : UINT32_MAX;
    ek_pattern *p;
    bool yes = matches(r, text, n) && (uint32_t)n >= min && (uint32_t)n <= max;
    if (ek_pattern_open(&p, r, min, max)) return yes ? __builtin_trap(), 0 : 0;
    for (int i = 0, s = 0; i <= n && yes; i++) { /* the beginning of a good text can end */
        if (!ek_pattern_can_end(p, s, (uint32_t)i)) __builtin_trap();
        if (i < n) s = ek_regex_step(p->regex, s, text[i]);
    }
    ek_pattern_close(p);
    return 0;
}
