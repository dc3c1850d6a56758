/* regex, pattern: random expressions against a matcher that walks their tree, which shares nothing with the
 * automaton; each construct by texts that match and texts that do not; each refusal by its sentence. */
#include <stdio.h>
#include <stdlib.h>

#include "../support/regex.h"
#include "base/alloc.h"
#include "helper.h"
#include "text/regex/regex.h"
#include "text/utf8.h"

static ek_regex *open_regex(const char *pattern)
{
    ek_regex *r;
    if (regex_open(&r, pattern, strlen(pattern))) fail_msg("%s: %s", pattern, ek_err_text());
    return r;
}

static bool matches(const ek_regex *r, const uint32_t *text, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n && s >= 0; i++) s = ek_regex_step(r, s, text[i]);
    return s >= 0 && r->accepts[s];
}

static int decode(const char *s, uint32_t *out)
{
    int n = 0;
    for (size_t i = 0, len = strlen(s); i < len;) i += (size_t)ek_utf8_next(s + i, len - i, &out[n++]);
    return n;
}

/* --- random expressions --- */

typedef enum kind { LETTER, SET, DOT, SEQUENCE, EITHER, REPEAT, BEGIN, END } kind;

typedef struct tree {
    kind kind;
    const uint32_t *chars; /* SET, LETTER */
    int n_chars, min, max; /* max -1: any number */
    bool negated;
    struct tree *a, *b;
} tree;

static const uint32_t alphabet[] = {'a', 'b', 'c', '"', '\\', '\n', 0xe9, 0x1f600};
enum { N_ALPHABET = sizeof alphabet / sizeof *alphabet, MAX_TEXT = 12, MOST_TEXT = 30 };

static void write_char(ek_buf *b, uint32_t c, dice *d)
{
    if (c == '\\') ek_buf_str(b, "\\\\");
    else if (c == '\n') ek_buf_str(b, roll(d, 2) ? "\\n" : "\\x0a");
    else if (c == 0x1f600 && roll(d, 2)) ek_buf_str(b, roll(d, 2) ? "\\u{1F600}" : "\\ud83d\\ude00");
    else ek_utf8_add(b, c);
}

/* Grows an expression and writes it. */
static tree *grow(dice *d, int depth, ek_buf *b)
{
    static const char *const counts[] = {"*", "+", "?", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0}", "*?"};
    static const int min[] = {0, 1, 0, 2, 0, 1, 2, 0, 0}, max[] = {-1, -1, 1, 2, 2, 3, -1, 0, -1};
    tree *t = ek_alloc(sizeof *t);
    int pick = (int)roll(d, depth > 0 ? 12 : 5);
    if (pick < 3) {
        t->kind = LETTER;
        t->chars = &alphabet[roll(d, N_ALPHABET)];
        t->n_chars = 1;
        write_char(b, *t->chars, d);
    } else if (pick == 3) {
        int first = (int)roll(d, N_ALPHABET - 2);
        t->kind = SET;
        t->chars = alphabet + first;
        t->n_chars = 1 + (int)roll(d, 3);
        if (first + t->n_chars > N_ALPHABET) t->n_chars = N_ALPHABET - first;
        t->negated = roll(d, 2);
        ek_buf_str(b, t->negated ? "[^" : "[");
        if (t->n_chars == 3 && first == 0) ek_buf_str(b, "a-c");
        else
            for (int i = 0; i < t->n_chars; i++) write_char(b, t->chars[i], d);
        ek_buf_char(b, ']');
    } else if (pick == 4) {
        t->kind = DOT;
        ek_buf_char(b, '.');
    } else if (pick < 8) {
        t->kind = SEQUENCE;
        t->a = grow(d, depth - 1, b);
        t->b = grow(d, depth - 1, b);
    } else if (pick < 11) {
        t->kind = pick == 8 ? EITHER : REPEAT;
        ek_buf_str(b, roll(d, 2) ? "(" : roll(d, 2) ? "(?:" : "(?<x>");
        t->a = grow(d, depth - 1, b);
        if (t->kind == EITHER) ek_buf_char(b, '|');
        if (t->kind == EITHER) t->b = grow(d, depth - 1, b);
        ek_buf_char(b, ')');
        if (t->kind == REPEAT) {
            uint32_t i = roll(d, 9);
            t->min = min[i], t->max = max[i];
            ek_buf_str(b, counts[i]);
        }
    } else {
        t->kind = roll(d, 2) ? BEGIN : END;
        ek_buf_char(b, t->kind == BEGIN ? '^' : '$');
    }
    return t;
}

static void fell(tree *t)
{
    if (!t) return;
    fell(t->a);
    fell(t->b);
    free(t);
}

/* Places (bit i: before character i) where t can end if it begins at one of `from`. */
static uint32_t ends(const tree *t, const uint32_t *text, int n, uint32_t from)
{
    uint32_t to = 0, all = 0;
    switch (t->kind) {
    case LETTER:
    case SET:
    case DOT:
        for (int i = 0; i < n; i++) {
            bool in = t->kind == DOT && text[i] != '\n';
            for (int k = 0; k < t->n_chars; k++) in |= text[i] == t->chars[k];
            if ((from >> i & 1) && in != t->negated) to |= 2u << i;
        }
        return to;
    case SEQUENCE: return ends(t->b, text, n, ends(t->a, text, n, from));
    case EITHER: return ends(t->a, text, n, from) | ends(t->b, text, n, from);
    case REPEAT:
        for (int i = 0; i <= (t->max < 0 ? t->min + n + 1 : t->max); i++) {
            if (i >= t->min) all |= from;
            from = ends(t->a, text, n, from);
        }
        return all;
    case BEGIN: return from & 1;
    default: return from & (1u << n);
    }
}

static bool found(const tree *t, const uint32_t *text, int n)
{
    return ends(t, text, n, (2u << n) - 1) != 0;
}

/* The nearest match from a state, following the automaton; appended to the text. */
static int complete(const ek_regex *r, int32_t s, uint32_t *text, int n)
{
    while (r->least[s] > 0) {
        int e = r->first[s];
        while (e < r->first[s + 1] && r->least[r->edge[e].to] + 1 != r->least[s]) e++;
        assert_true(e < r->first[s + 1]);
        text[n++] = r->edge[e].hi >= 'a' && r->edge[e].lo <= 'a' ? 'a' : r->edge[e].lo;
        s = r->edge[e].to;
    }
    return n;
}

static void the_automaton_is_the_expression(void **state)
{
    (void)state;
    dice d = {.seed = 11};
    int n_made = 0, n_matched = 0;
    for (int round = 0; round < 6000; round++) {
        ek_buf b = {0};
        tree *t = grow(&d, 5, &b);
        ek_regex *r;
        ek_err err = regex_open(&r, b.data, b.len);
        if (err && !strstr(ek_err_text(), "no text matches") && !strstr(ek_err_text(), "states"))
            fail_msg("%s: %s", b.data, ek_err_text());
        n_made += !err;
        for (int i = 0; i < 40; i++) {
            uint32_t text[MOST_TEXT];
            int n = (int)roll(&d, MAX_TEXT);
            for (int k = 0; k < n; k++) text[k] = alphabet[roll(&d, N_ALPHABET)];
            bool want = found(t, text, n);
            n_matched += want;
            if (err && want && strstr(ek_err_text(), "no text")) fail_msg("%s matches nothing, they say", b.data);
            if (err) continue;
            if (matches(r, text, n) != want) fail_msg("round %d: %s: text of %d", round, b.data, n);
            int32_t s = 0;
            int k = 0;
            while (k < n && ek_regex_step(r, s, text[k]) >= 0) s = ek_regex_step(r, s, text[k++]);
            if (k < n || n + (int)r->least[s] > MOST_TEXT) continue;
            n = complete(r, s, text, n);
            if (!found(t, text, n)) fail_msg("round %d: %s: a beginning leads to no match", round, b.data);
        }
        if (!err) ek_regex_close(r);
        fell(t);
        ek_buf_fini(&b);
    }
    assert_true(n_made > 4000 && n_matched > 30000);
}

/* Lengths: by counting the lengths that are possible, one after the other. */
static void lengths_are_followed_to_their_end(void **state)
{
    (void)state;
    dice d = {.seed = 12};
    for (int round = 0; round < 1500; round++) {
        ek_buf b = {0};
        fell(grow(&d, 4, &b));
        uint32_t min = roll(&d, 6), max = roll(&d, 2) ? UINT32_MAX : min + roll(&d, 6);
        ek_regex *r;
        ek_pattern *p;
        ek_err err = regex_open(&r, b.data, b.len);
        if (err) {
            ek_buf_fini(&b);
            continue;
        }
        bool can[64][128] = {{0}}; /* characters, state; enough for these */
        int n = r->n_states;
        if (n <= 128)
            for (int k = 0; k < 64; k++)
                for (int s = 0; s < n; s++) {
                    if (k == 0) can[k][s] = r->accepts[s];
                    else
                        for (int e = r->first[s]; e < r->first[s + 1]; e++) can[k][s] |= can[k - 1][r->edge[e].to];
                }
        err = ek_pattern_open(&p, r, min, max);
        for (int s = 0; s < n && n <= 60 && !err; s++)
            for (uint32_t from = 0; from <= (max == UINT32_MAX ? min : max); from++) {
                bool want = false;
                for (uint32_t k = 0; k < 64 && !want; k++) want = can[k][s] && from + k >= min && from + k <= max;
                if (ek_pattern_can_end(p, s, from) != want)
                    fail_msg("%s, %u to %u characters: state %d after %u", b.data, min, max, s, from);
            }
        if (err && n <= 60)
            for (uint32_t k = min; k <= max && k < 64; k++) assert_false(can[k][0]);
        ek_pattern_close(p);
        ek_buf_fini(&b);
    }
}

static void both_of_two_is_their_intersection(void **state)
{
    (void)state;
    dice d = {.seed = 13};
    int n_made = 0;
    for (int round = 0; round < 1000; round++) {
        ek_buf b = {0}, c = {0};
        fell(grow(&d, 4, &b));
        fell(grow(&d, 4, &c));
        ek_regex *x = NULL, *y = NULL, *both = NULL;
        if (!regex_open(&x, b.data, b.len) && !regex_open(&y, c.data, c.len)) {
            ek_err err = ek_regex_and(&both, x, y);
            n_made += !err;
            for (int i = 0; i < 40; i++) {
                uint32_t text[MAX_TEXT];
                int n = (int)roll(&d, MAX_TEXT);
                for (int k = 0; k < n; k++) text[k] = alphabet[roll(&d, N_ALPHABET)];
                bool want = matches(x, text, n) && matches(y, text, n);
                if (err ? want && err == EK_EINVAL : matches(both, text, n) != want)
                    fail_msg("%s and %s", b.data, c.data);
            }
        }
        ek_regex_close(x);
        ek_regex_close(y);
        ek_regex_close(both);
        ek_buf_fini(&b);
        ek_buf_fini(&c);
    }
    assert_true(n_made > 500);
}

/* --- constructs --- */

static const struct {
    const char *pattern, *good[6], *bad[6];
} constructs[] = {
    {"", {"", "x"}, {0}},
    {"b", {"b", "abc"}, {"", "a"}},
    {"^b", {"b", "bc"}, {"ab"}},
    {"b$", {"b", "ab"}, {"bc", "b\n"}},
    {"^$", {""}, {"a", "\n"}},
    {"^a|b$", {"ax", "xb", "ab"}, {"xa", "bx"}},
    {"(^a|x)b", {"ab", "cxb"}, {"cab"}},
    {"a^b|c", {"c"}, {"ab", "a^b"}},
    {"^\\d{5}(?:-\\d{4})?$", {"12345", "12345-6789"}, {"1234", "12345-", "123456", "1234\xD9\xA5"}},
    {"^\\w+\\s\\W\\S\\D$", {"a_9 -xy"}, {"\xC3\xA9 -xy", "a -x1"}},
    {"^\\s$", {" ", "\t", "\xC2\xA0", "\xEF\xBB\xBF", "\xE2\x80\xA9"}, {"", "x", "\xE2\x80\x8B"}},
    {"^.$", {"a", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xC2\x85"}, {"", "ab", "\n", "\r", "\xE2\x80\xA8"}},
    {"^[^]$", {"\n", "a"}, {"", "ab"}},
    {"^(?:a[]b|c)$", {"c"}, {"ab", "a[]b"}},
    {"^[a\\-z]$", {"a", "-", "z"}, {"b"}},
    {"^[\\w-.]$", {"a", "-", "."}, {",", "/"}},
    {"^[a-]$", {"a", "-"}, {"b"}},
    {"^[]a]$", {0}, {"]", "a", "]a"}},
    {"^[\\]\\\\^]$", {"]", "\\", "^"}, {"a"}},
    {"^[\\b]$", {"\b"}, {"b"}},
    {"^[^\\d\\s]$", {"a"}, {"1", " "}},
    {"^[\\D]$", {"a"}, {"1"}},
    {"^\\x41\\u0042\\u{43}\\cJ\\0\\t\\/\\.\\-$", {0}, {"ABC"}},
    {"^\\ud83d\\ude00$", {"\xF0\x9F\x98\x80"}, {""}},
    {"^a{2}$", {"aa"}, {"a", "aaa"}},
    {"^a{2,}$", {"aa", "aaaaaa"}, {"a"}},
    {"^a{1,2}b{0}$", {"a", "aa"}, {"", "aaa", "ab"}},
    {"^a{,2}$", {"a{,2}"}, {"a", "aa"}},
    {"^a{x}}]$", {"a{x}}]"}, {"a"}},
    {"^(?<year>\\d+)-(x|)$", {"1-", "1-x"}, {"-"}},
    {"^(?:(?:a*)*)*$", {"", "aaa"}, {"b"}},
    {"^(a?){3}$", {"", "a", "aaa"}, {"aaaa"}},
    {"^\xC3\xA9+?$", {"\xC3\xA9\xC3\xA9"}, {"e", "\xC3"}},
    {"(a|ab)(c|bcd)(d*)$", {"abcd", "acd"}, {"abd"}},
};

static void constructs_mean_what_they_do_elsewhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof constructs / sizeof *constructs; i++) {
        const char *pattern = constructs[i].pattern;
        ek_regex *r = NULL;
        uint32_t text[64];
        if (!strcmp(pattern, "^[]a]$")) { /* [] is nothing, and then a] */
            assert_int_equal(regex_open(&r, pattern, strlen(pattern)), EK_EINVAL);
            assert_string_equal(ek_err_text(), "no text matches it");
            continue;
        }
        r = open_regex(pattern);
        for (int k = 0; k < 6 && constructs[i].good[k]; k++)
            if (!matches(r, text, decode(constructs[i].good[k], text)))
                fail_msg("%s: %s", pattern, constructs[i].good[k]);
        for (int k = 0; k < 6 && constructs[i].bad[k]; k++)
            if (matches(r, text, decode(constructs[i].bad[k], text))) fail_msg("%s: %s", pattern, constructs[i].bad[k]);
        ek_regex_close(r);
    }
    ek_regex *r = open_regex("^\\x41\\u0042\\u{43}\\cJ\\0\\t\\/\\.\\-$");
    assert_true(matches(r, (const uint32_t[]){'A', 'B', 'C', '\n', 0, '\t', '/', '.', '-'}, 9));
    ek_regex_close(r);
}

static void formats_are_what_the_standards_say(void **state)
{
    (void)state;
    static const struct {
        const char *format, *good[6], *bad[6];
    } formats[] = {
        {"date",
         {"2026-11-22", "2024-02-29", "2000-02-29", "1999-12-31"},
         {"2023-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-1-1", "2026-00-10"}},
        {"time", {"00:00:00Z", "23:59:59.123+01:30"}, {"24:00:00Z", "12:00Z", "12:00:00", "12:60:00Z"}},
        {"date-time",
         {"2026-11-22T10:00:00Z"},
         {"2026-11-22 10:00:00Z", "2026-11-22T10:00:00", "2026-02-30T10:00:00Z"}},
        {"uuid", {"01234567-89ab-cdef-0123-456789abcdef"}, {"0123456789abcdef0123456789abcdef", ""}},
        {"ipv4", {"0.0.0.0", "255.249.199.99"}, {"256.1.1.1", "1.1.1", "01.1.1.1", "1.1.1.1."}},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        ek_regex *r = open_regex(ek_pattern_of_format(formats[i].format));
        uint32_t text[64];
        for (int k = 0; k < 6 && formats[i].good[k]; k++)
            if (!matches(r, text, decode(formats[i].good[k], text))) fail_msg("%s", formats[i].good[k]);
        for (int k = 0; k < 6 && formats[i].bad[k]; k++)
            if (matches(r, text, decode(formats[i].bad[k], text))) fail_msg("%s", formats[i].bad[k]);
        ek_regex_close(r);
    }
    assert_null(ek_pattern_of_format("uri"));
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *error;
    } refused[] = {
        {"a(?=b)", "at character 3: the lookahead (?= is not supported"},
        {"\xC3\xA9(?!b)", "at character 3: the lookahead (?! is not supported"},
        {"(?<=b)a", "at character 2: the lookbehind (?<= is not supported"},
        {"(?<!b)a", "at character 2: the lookbehind (?<! is not supported"},
        {"(a)\\1", "at character 5: the back reference \\1 is not supported"},
        {"(?<x>a)\\k<x>", "at character 9: the back reference \\k is not supported"},
        {"\\bx", "at character 2: the word boundary \\b is not supported"},
        {"\\p{L}", "at character 2: the property \\p{…} is not supported"},
        {"[\\P{L}]", "at character 3: the property \\P{…} is not supported"},
        {"\\A", "at character 2: the escape \\A is not supported"},
        {"(?i)a", "at character 2: groups of the form (?i are not supported"},
        {"(?P<x>a)", "at character 2: groups of the form (?P are not supported"},
        {"(?<x", "at character 5: a group's name has no end"},
        {"*", "at character 1: nothing to repeat"},
        {"a**", "at character 3: nothing to repeat"},
        {"^*", "at character 2: nothing to repeat"},
        {"a|{2}", "at character 3: nothing to repeat"},
        {"a{3,2}", "at character 7: at least 3 and at most 2 times"},
        {"(a", "at character 3: a group is not closed"},
        {"a)", "at character 2: a parenthesis is closed that was not opened"},
        {"[a", "at character 3: a bracket is not closed"},
        {"[b-a]", "at character 5: the range is out of order"},
        {"\\", "at character 2: nothing follows the backslash"},
        {"\\u12", "at character 3: \\u needs four hexadecimal digits"},
        {"\\u{110000}", "at character 10: \\u{…} needs a code point up to 10FFFF"},
        {"\\ud800", "at character 7: a lone surrogate is no character"},
        {"\\x4", "at character 3: \\x needs two hexadecimal digits"},
        {"\\c1", "at character 3: \\c needs a letter"},
        {"a^", "no text matches it"},
        {"[]", "no text matches it"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ek_regex *r;
        ek_err err = regex_open(&r, refused[i].pattern, strlen(refused[i].pattern));
        if (err != EK_EINVAL || strcmp(ek_err_text(), refused[i].error))
            fail_msg("%s\n  want %s\n  got  %d %s", refused[i].pattern, refused[i].error, err, ek_err_text());
        assert_null(r);
    }
}

static void large_expressions_end_at_a_limit(void **state)
{
    (void)state;
    ek_buf groups = {0}, name = {0};
    for (int i = 0; i < 65; i++) ek_buf_str(&groups, "(");
    ek_buf_str(&name, "(?:(?<");
    for (int i = 0; i < 60000; i++) ek_buf_char(&name, 'x');
    ek_buf_str(&name, ">a){1000}){9}");
    const struct {
        const char *pattern, *says;
    } large[] = {
        {"(a|b)*a(a|b){20}$", "states"},
        {"^a{5000}$", "states"},
        {"a{30000}", "parts with its repetitions"},
        {"(((a{100}){100}){100}){100}", "parts with its repetitions"},
        {"((){1000}){1000}", "parts with its repetitions"},
        {name.data, "steps"},
        {groups.data, "64 groups inside each other"},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        ek_regex *r;
        ek_err err = regex_open(&r, large[i].pattern, strlen(large[i].pattern));
        if (!err || !strstr(ek_err_text(), large[i].says)) fail_msg("%s: %d %s", large[i].says, err, ek_err_text());
    }
    ek_pattern *p;
    assert_int_equal(ek_pattern_open(&p, open_regex("^[a-z]{1,1000}$"), 5000, UINT32_MAX), EK_ETOOLARGE);
    assert_int_equal(ek_pattern_open(&p, open_regex("^[a-z]{1,10}$"), 11, UINT32_MAX), EK_EINVAL);
    assert_string_equal(ek_err_text(), "no text of 11 and more characters matches it");
    ek_buf_fini(&groups);
    ek_buf_fini(&name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_automaton_is_the_expression),    cmocka_unit_test(lengths_are_followed_to_their_end),
        cmocka_unit_test(both_of_two_is_their_intersection),  cmocka_unit_test(constructs_mean_what_they_do_elsewhere),
        cmocka_unit_test(formats_are_what_the_standards_say), cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(large_expressions_end_at_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
