/* A grammar is read into tokens, and definitions are ranges of them. The pattern is written by following the tokens of
 * `start` and of each name in them. */
#include "text/regex/regex.h"

#include <stdio.h>

#include "base/encoding.h"
#include "text/regex/lark_work.h"
#include "text/utf8.h"

static ek_err put_expansions(ek_lark *l, int *at, bool terminal);

static ek_err put(ek_lark *l, const char *s, size_t n)
{
    if (l->out->len + n > l->limit)
        return ek_fail(EK_ETOOLARGE, "the lark grammar written out has more than %d bytes", EK_LARK_PATTERN_BYTES);
    ek_buf_add(l->out, s, n);
    return EK_OK;
}

static ek_err put_str(ek_lark *l, const char *s)
{
    return put(l, s, strlen(s));
}

static ek_err put_char(ek_lark *l, uint32_t cp, bool folds, const ek_lark_token *t)
{
    char s[8];
    int n = 0;
    if (folds && cp >= 0x80) return ek_lark_wrong(t, "the flag i is supported for ASCII alone");
    if (folds && ek_lark_is_letter((char)cp) && cp != '_') {
        snprintf(s, sizeof s, "[%c%c]", (int)(cp & ~0x20U), (int)(cp | 0x20));
        return put_str(l, s);
    }
    if (cp < 0x80 && cp && strchr("^$\\.*+?()[]{}|/", (int)cp)) s[n++] = '\\';
    n += ek_utf8_put(s + n, cp);
    return put(l, s, (size_t)n);
}

/* One character of a text, with its escapes. */
static ek_err next_char(const ek_lark_token *t, size_t *i, uint32_t *cp)
{
    static const char from[] = "nrtfv0\\\"'/", to[] = "\n\r\t\f\v\0\\\"'/";
    if (t->s[*i] != '\\') {
        int n = ek_utf8_next(t->s + *i, t->n - *i, cp);
        *i += (size_t)(n < 0 ? -n : n);
        return EK_OK;
    }
    char c = ++*i < t->n ? t->s[(*i)++] : '\0';
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        *cp = (uint8_t)to[at - from];
        return EK_OK;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    *cp = 0;
    for (int k = 0; k < digits; k++) {
        int d = *i < t->n ? ek_hex_digit(t->s[(*i)++]) : -1;
        if (d < 0) return ek_lark_wrong(t, "an escape in a text lacks digits");
        *cp = *cp << 4 | (uint32_t)d;
    }
    if (!digits || *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000))
        return ek_lark_wrong(t, "an escape in a text has no meaning");
    return EK_OK;
}

static ek_err put_text(ek_lark *l, const ek_lark_token *t)
{
    for (size_t i = 0; i < t->n;) {
        uint32_t cp;
        EK_TRY(next_char(t, &i, &cp));
        EK_TRY(put_char(l, cp, t->folds, t));
    }
    return EK_OK;
}

/* "a".."z" */
static ek_err put_range(ek_lark *l, const ek_lark_token *from, const ek_lark_token *to)
{
    uint32_t lo, hi;
    size_t a = 0, b = 0;
    if (from->n == 0 || to->kind != EK_LARK_TEXT || to->n == 0)
        return ek_lark_wrong(from, "a range needs two characters");
    EK_TRY(next_char(from, &a, &lo));
    EK_TRY(next_char(to, &b, &hi));
    if (a < from->n || b < to->n || hi < lo) return ek_lark_wrong(from, "a range needs two characters in order");
    char s[48];
    snprintf(s, sizeof s, "[\\u{%x}-\\u{%x}]", (unsigned)lo, (unsigned)hi);
    return put_str(l, s);
}

static ek_err put_ignorable(ek_lark *l, bool terminal)
{
    if (terminal || l->ignored.len == 0) return EK_OK;
    EK_TRY(put_str(l, "(?:"));
    EK_TRY(put(l, l->ignored.data, l->ignored.len));
    return put_str(l, ")*");
}

static ek_err put_name(ek_lark *l, const ek_lark_token *t, bool terminal)
{
    const json_t *number = json_object_getn(l->names, t->s, t->n);
    if (!number) return ek_lark_wrong_name(t, "", " is not defined");
    int i = (int)json_integer_value(number), at = l->rules[i].at;
    bool is_terminal = t->s[0] == '_' && t->n > 1 ? t->s[1] < 'a' : t->s[0] < 'a';
    if (terminal && !is_terminal) return ek_lark_wrong_name(t, "a terminal has the rule ", " in it");
    if (is_terminal) EK_TRY(put_ignorable(l, terminal));
    if (l->rules[i].pattern) {
        EK_TRY(put_str(l, "(?:"));
        EK_TRY(put_str(l, l->rules[i].pattern));
        return put_str(l, ")");
    }
    if (l->rules[i].active)
        return ek_lark_wrong_name(t, "", " comes to itself again; only grammars without recursion are supported");
    l->rules[i].active = true;
    EK_TRY(put_expansions(l, &at, is_terminal));
    l->rules[i].active = false;
    const ek_lark_token *end = &l->t[at];
    return end->kind == EK_LARK_NEWLINE || end->kind == EK_LARK_END
               ? EK_OK
               : ek_lark_wrong_name(end, "", " has no meaning here");
}

static ek_err put_atom(ek_lark *l, int *at, bool terminal)
{
    const ek_lark_token *t = &l->t[(*at)++];
    if (t->kind == EK_LARK_NAME) {
        if (ek_lark_is_sign(t + 1, '{')) return ek_lark_wrong_name(t, "the template ", " is not supported");
        return put_name(l, t, terminal);
    }
    if (ek_lark_is_sign(t, '(') || ek_lark_is_sign(t, '[')) {
        EK_TRY(put_expansions(l, at, terminal));
        if (!ek_lark_is_sign(&l->t[(*at)++], *t->s == '(' ? ')' : ']'))
            return ek_lark_wrong(t, "a bracket is not closed");
        return *t->s == '[' ? put_str(l, "?") : EK_OK;
    }
    EK_TRY(put_ignorable(l, terminal));
    if (t->kind == EK_LARK_TEXT && t[1].kind == EK_LARK_DOTS) {
        *at += 2;
        return put_range(l, t, t + 2);
    }
    if (t->kind == EK_LARK_TEXT) return put_text(l, t);
    EK_TRY(put_str(l, "(?:"));
    EK_TRY(put(l, t->s, t->n));
    return put_str(l, ")");
}

static ek_err put_times(ek_lark *l, int *at)
{
    const ek_lark_token *t = &l->t[*at];
    if (ek_lark_is_sign(t, '?') || ek_lark_is_sign(t, '*') || ek_lark_is_sign(t, '+')) {
        ++*at;
        return put(l, t->s, 1);
    }
    if (!ek_lark_is_sign(t, '~')) return EK_OK;
    bool range = t[1].kind == EK_LARK_NUMBER && t[2].kind == EK_LARK_DOTS;
    const ek_lark_token *max = range ? t + 3 : t + 1;
    if (max->kind != EK_LARK_NUMBER || t[1].n > 6 || max->n > 6)
        return ek_lark_wrong(t, "a number below a million is needed behind ~");
    *at += range ? 4 : 2;
    char s[32];
    snprintf(s, sizeof s, range ? "{%.*s,%.*s}" : "{%.*s}", (int)t[1].n, t[1].s, (int)max->n, max->s);
    return put_str(l, s);
}

static bool begins_atom(const ek_lark_token *t)
{
    return t->kind == EK_LARK_NAME || t->kind == EK_LARK_TEXT || t->kind == EK_LARK_PATTERN ||
           ek_lark_is_sign(t, '(') || ek_lark_is_sign(t, '[');
}

/* Writes expansions up to a token that ends them: a bracket, or the end of the definition. */
static ek_err put_expansions(ek_lark *l, int *at, bool terminal)
{
    if (++l->depth > EK_LARK_DEPTH)
        return ek_fail(EK_ETOOLARGE, "the lark grammar has more than %d names and brackets inside each other",
                       EK_LARK_DEPTH);
    EK_TRY(put_str(l, "(?:"));
    for (;;) {
        int next = *at;
        if (begins_atom(&l->t[next])) {
            EK_TRY(put_str(l, "(?:"));
            EK_TRY(put_atom(l, at, terminal));
            EK_TRY(put_str(l, ")"));
            EK_TRY(put_times(l, at));
            continue;
        }
        if (l->t[next].kind == EK_LARK_ARROW) {
            if (l->t[next + 1].kind != EK_LARK_NAME) return ek_lark_wrong(&l->t[next], "a name is needed behind ->");
            *at += 2;
            continue;
        }
        while (l->t[next].kind == EK_LARK_NEWLINE) next++;
        if (!ek_lark_is_sign(&l->t[next], '|')) break;
        EK_TRY(put_str(l, "|"));
        *at = next + 1;
    }
    l->depth--;
    return put_str(l, ")");
}

/* %ignore NAME, or any expansions; written once, when all names are known. */
static ek_err put_ignored(ek_lark *l, int at)
{
    ek_buf *out = l->out, one = {0};
    l->out = &one;
    ek_err err = put_expansions(l, &at, true);
    l->out = out;
    if (!err && l->ignored.len) ek_buf_char(&l->ignored, '|');
    if (!err) ek_buf_add(&l->ignored, one.data, one.len);
    ek_buf_fini(&one);
    return err;
}

static ek_err put_all_ignored(ek_lark *l)
{
    for (int at = 0; l->t[at].kind != EK_LARK_END;) {
        if (ek_lark_is_word(&l->t[at], "%ignore")) EK_TRY(put_ignored(l, at + 1));
        at = l->t[at].kind == EK_LARK_NEWLINE ? at + 1 : ek_lark_end_of(l, at + 1);
    }
    return EK_OK;
}

static ek_err put_start(ek_lark *l)
{
    static const ek_lark_token start = {.kind = EK_LARK_NAME, .s = "start", .n = 5, .line = 1};
    if (!json_object_get(l->names, "start")) return ek_fail(EK_EINVAL, "lark grammar: there is no rule start");
    EK_TRY(put_str(l, "^"));
    EK_TRY(put_name(l, &start, false));
    EK_TRY(put_ignorable(l, false));
    return put_str(l, "$");
}

ek_err ek_lark_pattern(ek_buf *out, const char *grammar, size_t n)
{
    ek_lark l = {.out = out, .limit = out->len + EK_LARK_PATTERN_BYTES};
    if (n > EK_LARK_PATTERN_BYTES)
        return ek_fail(EK_ETOOLARGE, "the lark grammar has %zu bytes, at most %d are allowed", n,
                       EK_LARK_PATTERN_BYTES);
    ek_err err = ek_lark_read(&l, grammar, n);
    if (!err) err = put_all_ignored(&l);
    if (!err) err = put_start(&l);
    ek_lark_fini(&l);
    return err;
}
