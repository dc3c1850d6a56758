/* Columns that text takes, and answers that are wrapped at words. */
#define _GNU_SOURCE /* posix_openpt */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/frame/terminal.h"

static void test_width(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int columns;
    } row[] = {{"", 0},     {"abc", 3}, {"größe", 5},    {"日本", 4},     {"e\u0301", 1},
               {"✅ ok", 5}, {"❌⭐⚡", 6}, {"🟢🚀", 4}, {"\xff\xfe", 1}, {"\xe6\x97", 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (ek_cli_width(row[i].text, strlen(row[i].text)) != row[i].columns)
            fail_msg("%s: %d columns", row[i].text, ek_cli_width(row[i].text, strlen(row[i].text)));
}

/* What a terminal of ten columns is sent. */
static void test_wrap(void **state)
{
    (void)state;
    static const char *const row[][2] = {{"one two three", "one two\nthree"},
                                         {"0123456789  \nnext", "0123456789\nnext"},
                                         {"ab  \ncd", "ab  \ncd"},
                                         {"12345678 ✅✅", "12345678\n✅✅"},
                                         {"abcdefghijklmno pq", "abcdefghijklmno pq"},
                                         {"日本日本日本", "日本日本日\n本"}};
    const int fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(fd >= 0 && !grantpt(fd) && !unlockpt(fd));
    FILE *to = fopen(ptsname(fd), "w");
    assert_non_null(to);
    assert_int_equal(setvbuf(to, NULL, _IOFBF, 1024), 0); /* one write, one read */
    struct termios raw;
    assert_int_equal(tcgetattr(fileno(to), &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(fileno(to), TCSANOW, &raw), 0);
    struct winsize size = {.ws_row = 24, .ws_col = 10};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char got[256] = "";
        assert_true(ek_cli_put_answer(to, row[i][0], strlen(row[i][0])));
        fflush(to);
        const ssize_t n = read(fd, got, sizeof got - 1);
        if (n < 0 || strcmp(got, row[i][1]) != 0) fail_msg("%s: %s", row[i][0], got);
    }
    fclose(to);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
