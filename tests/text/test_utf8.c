#include "helper.h"

#include "text/utf8.h"

static void reads_scalars(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t n;
        int len;
        uint32_t cp;
    } cases[] = {
        {"a", 1, 1, 'a'},
        {"\0", 1, 1, 0},
        {"\xC3\xA9", 2, 2, 0xE9},
        {"\xE2\x96\x81", 3, 3, 0x2581},
        {"\xF0\x9F\x9A\x80", 4, 4, 0x1F680},
        {"\xF4\x8F\xBF\xBF", 4, 4, 0x10FFFF},
        {"\x80", 1, -1, 0xFFFD},
        {"\xC0\x80", 2, -1, 0xFFFD},
        {"\xC1\xBF", 2, -1, 0xFFFD},
        {"\xE0\x80\x80", 3, -1, 0xFFFD}, /* overlong: E0 stands alone */
        {"\xED\xA0\x80", 3, -1, 0xFFFD}, /* a surrogate */
        {"\xF4\x90\x80\x80", 4, -1, 0xFFFD},
        {"\xF5", 1, -1, 0xFFFD},
        {"\xFF", 1, -1, 0xFFFD},
        {"\xE2\x96"
         "a",
         3, -2, 0xFFFD},
        {"\xF0\x9F\x9A", 3, -3, 0xFFFD},
        {"\xC3", 1, -1, 0xFFFD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t cp;
        assert_int_equal(ek_utf8_next(cases[i].s, cases[i].n, &cp), cases[i].len);
        assert_int_equal(cp, cases[i].cp);
    }
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        char b[4];
        uint32_t back;
        int n = ek_utf8_put(b, cp);
        assert_int_equal(ek_utf8_next(b, (size_t)n, &back), n);
        assert_int_equal(back, cp);
    }
}

static void cleans(void **state)
{
    (void)state;
    ek_buf b = {0};
    /* Unicode 15, table 3-8 */
    static const char bad[] = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    ek_utf8_clean(&b, bad, sizeof bad - 1);
    check_buf(&b, "a" EK_UTF8_BAD EK_UTF8_BAD EK_UTF8_BAD "b" EK_UTF8_BAD "c" EK_UTF8_BAD EK_UTF8_BAD "d");
    ek_buf_fini(&b);
}

static void cuts_do_not_matter(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {'a',  0x80, 0xBF, 0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xED,
                                    0xA0, 0xF0, 0x9F, 0x9A, 0xF4, 0x90, 0xFF, 0xE0};
    dice d = {.seed = 1};
    for (int run = 0; run < 4000; run++) {
        char s[24];
        size_t n = roll(&d, sizeof s);
        for (size_t i = 0; i < n; i++) s[i] = (char)bytes[roll(&d, sizeof bytes)];
        ek_buf whole = {0}, parts = {0};
        ek_utf8_clean(&whole, s, n);
        ek_utf8_stream u = {{0}, 0};
        for (size_t at = 0; at < n;) {
            size_t k = 1 + roll(&d, 4);
            if (k > n - at) k = n - at;
            ek_utf8_stream_add(&u, &parts, s + at, k);
            assert_true(u.n < 4);
            at += k;
        }
        ek_utf8_stream_end(&u, &parts);
        check_bytes(ek_buf_text(&parts), parts.len, ek_buf_text(&whole), whole.len, __FILE__, __LINE__);
        assert_true(ek_utf8_valid(ek_buf_text(&whole), whole.len));
        ek_buf_fini(&whole);
        ek_buf_fini(&parts);
    }
}

static void emits_at_once(void **state)
{
    (void)state;
    ek_utf8_stream u = {{0}, 0};
    ek_buf b = {0};
    ek_utf8_stream_add(&u, &b, "\xF0\x9F", 2);
    check_buf(&b, "");
    ek_utf8_stream_add(&u, &b, "\x9A\x80x", 3);
    check_buf(&b, "\xF0\x9F\x9A\x80x");
    ek_utf8_stream_add(&u, &b, "\xE2", 1);
    ek_utf8_stream_end(&u, &b);
    check_buf(&b, "\xF0\x9F\x9A\x80x" EK_UTF8_BAD);
    ek_buf_fini(&b);
}

#define check_map(f, in, want)  \
    do {                        \
        ek_buf b_ = {0};        \
        f(&b_, in, strlen(in)); \
        check_buf(&b_, want);   \
        ek_buf_fini(&b_);       \
    } while (0)

static void changes_case_like_python(void **state)
{
    (void)state;
    check_map(ek_utf8_lower, "ABCxyz09_", "abcxyz09_");
    check_map(ek_utf8_lower, "ÀÉÖØÞŸ", "àéöøþÿ");
    check_map(ek_utf8_lower, "ΑΣ", "ας");       /* final sigma */
    check_map(ek_utf8_lower, "ΑΣΑ Σ", "ασα σ"); /* inside, and alone */
    check_map(ek_utf8_lower, "ΑΣ.", "ας.");     /* a full stop does not count */
    check_map(ek_utf8_lower, "İ", "i\xCC\x87");
    check_map(ek_utf8_lower, "ǅЖ𐐀", "ǆж𐐨");
    check_map(ek_utf8_upper, "straße ﬁ ŉ", "STRASSE FI ʼN");
    check_map(ek_utf8_upper, "object ǆ ÿ ж 𐐨 ᾳ", "OBJECT Ǆ Ÿ Ж 𐐀 ΑΙ");
}

static void strips_like_python(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {{" \t\n\v\f\r\x1c\x1f x y \xC2\x85\xC2\xA0", "x y"},
                 {"\xE3\x80\x80\xE2\x80\xA8z\xE1\x9A\x80", "z"},
                 {"\xE2\x80\x8Bq\xEF\xBB\xBF", "\xE2\x80\x8Bq\xEF\xBB\xBF"}, /* U+200B and U+FEFF are not white space */
                 {"   ", ""},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i].in;
        size_t n = strlen(s);
        ek_utf8_strip(&s, &n);
        check_text(s, n, cases[i].want);
    }
    assert_true(ek_utf8_is_printable('a') && ek_utf8_is_printable(' ') && ek_utf8_is_printable(0x1F680));
    assert_false(ek_utf8_is_printable(0x7F) || ek_utf8_is_printable(0xA0) || ek_utf8_is_printable(0x200B));
    assert_true(ek_utf8_is_word('_') && ek_utf8_is_word(0xE9) && ek_utf8_is_word(0x301));
    assert_false(ek_utf8_is_word('-') || ek_utf8_is_word(' ') || ek_utf8_is_word(0x2581));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_scalars),
                                       cmocka_unit_test(writes_what_it_reads),
                                       cmocka_unit_test(cleans),
                                       cmocka_unit_test(cuts_do_not_matter),
                                       cmocka_unit_test(emits_at_once),
                                       cmocka_unit_test(changes_case_like_python),
                                       cmocka_unit_test(strips_like_python)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
