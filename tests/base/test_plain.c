/* Text from outside in the form that a terminal can be given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"

static const struct {
    const char *text, *shown;
} row[] = {
    {"", ""},
    {"a b \"c\" \\x", "a b \"c\" \\x"},
    {"gr\xc3\xbc\xc3\x9f"
     "e \xe2\x96\x81 \xf0\x9f\x98\x80",
     "gr\xc3\xbc\xc3\x9f"
     "e \xe2\x96\x81 \xf0\x9f\x98\x80"},
    {"\x1b[31m", "\\x1b[31m"},
    {"a\nb\rc\td\be\af\x7f", "a\\x0ab\\x0dc\\x09d\\x08e\\x07f\\x7f"},
    /* CSI, OSC and NEL of ISO 6429, as UTF-8 and as single bytes */
    {"\xc2\x9b"
     "31m \xc2\x9d"
     "0;t\xc2\x9c \xc2\x85",
     "\\u009b31m \\u009d0;t\\u009c \\u0085"},
    {"\x9b"
     "31m",
     "\\x9b31m"},
    {"\xc2\xa0 \xc2\xa1", "\xc2\xa0 \xc2\xa1"}, /* the first above C1 */
    {"a\xe2\x80\xa8"
     "b\xe2\x80\xa9"
     "c",
     "a\\u2028b\\u2029c"},
    {"\xe2\x80\xaegpj.exe\xe2\x81\xa6", "\\u202egpj.exe\\u2066"},
    /* no UTF-8: cut, overlong, surrogates, beyond U+10FFFF, a lone continuation */
    {"\xe2\x96", "\\xe2\\x96"},
    {"\xc0\x9b \xe0\x82\x9b", "\\xc0\\x9b \\xe0\\x82\\x9b"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
    {"\xf4\x90\x80\x80 \xff", "\\xf4\\x90\\x80\\x80 \\xff"},
};

static void text_is_shown_as_the_table_says(void **state)
{
    (void)state;
    char out[256], name[EK_PLAIN_NAME];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ek_plain(out, sizeof out, row[i].text, strlen(row[i].text)), strlen(row[i].shown));
        assert_string_equal(out, row[i].shown);
        assert_string_equal(ek_plain_name(name, row[i].text), row[i].shown);
    }
}

/* In less room it is the beginning of the same text, with no character and no escape in parts. */
static void what_does_not_fit_is_cut_between_characters(void **state)
{
    (void)state;
    const char *text = "a\x1b\xc3\xbc\xc2\x9bz", *shown = "a\\x1b\xc3\xbc\\u009bz";
    static const size_t edges[] = {0, 1, 5, 7, 13, 14};
    for (size_t size = 1; size < 20; size++) {
        char *out = malloc(size); /* of just that size, for the address sanitizer */
        size_t want = 0, len = ek_plain(out, size, text, strlen(text));
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
            if (edges[i] < size) want = edges[i];
        assert_int_equal(len, want);
        assert_memory_equal(out, shown, len);
        assert_int_equal(out[len], 0);
        free(out);
    }
}

static void a_name_is_cut_behind_80_characters(void **state)
{
    (void)state;
    char text[600] = "", want[EK_PLAIN_NAME] = "", out[EK_PLAIN_NAME];
    for (int i = 0; i < 80; i++) strcat(text, "\xc2\x9b"), strcat(want, "\\u009b");
    assert_string_equal(ek_plain_name(out, text), want);
    strcat(text, "x");
    strcat(want, "\xe2\x80\xa6");
    assert_string_equal(ek_plain_name(out, text), want);
}

/* Every pair of bytes: what is shown holds none of what a terminal obeys. */
static void no_pair_of_bytes_speaks(void **state)
{
    (void)state;
    for (int a = 1; a < 256; a++)
        for (int b = 1; b < 256; b++) {
            char text[3] = {(char)a, (char)b, '\0'}, out[16];
            size_t n = ek_plain(out, sizeof out, text, 2);
            for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)out[i];
                bool c1 = c >= 0x80 && c < 0xa0 && (i == 0 || (unsigned char)out[i - 1] < 0xc3);
                if (c < 0x20 || c == 0x7f || c1) fail_msg("%02x %02x: byte %02x of what is shown", a, b, c);
            }
        }
}

static void errors_quote_names_escaped(void **state)
{
    (void)state;
    ek_fail(EK_EIO, "%s",
            "no \xc2\x9b"
            "2J and \x9d");
    assert_string_equal(ek_err_text(), "no \\u009b2J and \\x9d");
    ek_fail_in(EK_EIO, "%s", "\x1b");
    assert_string_equal(ek_err_text(), "\\x1b: no \\u009b2J and \\x9d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_shown_as_the_table_says),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
        cmocka_unit_test(a_name_is_cut_behind_80_characters),
        cmocka_unit_test(no_pair_of_bytes_speaks),
        cmocka_unit_test(errors_quote_names_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
