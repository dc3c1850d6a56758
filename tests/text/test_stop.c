#include "helper.h"

#include "text/reply/reply.h"

static ek_stop *open_stop(const char *const *strings, int n)
{
    size_t lengths[8];
    for (int i = 0; i < n; i++) lengths[i] = strlen(strings[i]);
    ek_stop *s;
    assert_int_equal(ek_stop_open(&s, strings, lengths, n), EK_OK);
    return s;
}

static void holds_back_and_cuts(void **state)
{
    (void)state;
    static const char *const strings[] = {"STOP", "", "###"};
    ek_stop *s = open_stop(strings, 3);
    ek_buf b = {0};
    assert_int_equal(ek_stop_feed(s, "a#b##", 5, &b), -1);
    check_buf(&b, "a#b");
    assert_int_equal(ek_stop_feed(s, "c S", 3, &b), -1);
    check_buf(&b, "a#b##c ");
    assert_int_equal(ek_stop_feed(s, "T", 1, &b), -1);
    assert_int_equal(ek_stop_feed(s, "STOP and more", 13, &b), 0);
    check_buf(&b, "a#b##c ST");
    assert_int_equal(ek_stop_feed(s, "x", 1, &b), 0);
    ek_stop_end(s, &b);
    check_buf(&b, "a#b##c ST");
    ek_stop_close(s);
    ek_buf_fini(&b);
}

static void gives_back_at_the_end(void **state)
{
    (void)state;
    static const char *const strings[] = {"\n\nHuman:"};
    ek_stop *s = open_stop(strings, 1);
    ek_buf b = {0};
    assert_int_equal(ek_stop_feed(s, "ok\n\nHum", 7, &b), -1);
    check_buf(&b, "ok");
    ek_stop_end(s, &b);
    check_buf(&b, "ok\n\nHum");
    ek_stop_close(s);
    assert_int_equal(ek_stop_feed(NULL, "abc", 3, &b), -1);
    check_buf(&b, "ok\n\nHumabc");
    ek_stop_end(NULL, &b);
    ek_buf_fini(&b);
}

/* The definition: the match that ends first, of those the longest. */
static int expected(const char *text, const char *const *strings, int n, size_t *cut)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            size_t len = strlen(strings[i]);
            if (len == 0 || len > end || memcmp(text + end - len, strings[i], len) != 0) continue;
            if (best < 0 || len > strlen(strings[best])) best = i;
        }
        if (best < 0) continue;
        *cut = end - strlen(strings[best]);
        return best;
    }
    *cut = strlen(text);
    return -1;
}

static void cuts_do_not_matter(void **state)
{
    (void)state;
    dice d = {.seed = 11};
    for (int run = 0; run < 20000; run++) {
        char strings[3][6] = {{0}}, text[20] = {0};
        const char *list[3];
        int n = 1 + (int)roll(&d, 3);
        for (int i = 0; i < n; i++) {
            for (uint32_t k = roll(&d, 5) + (i == 0); k > 0; k--) strings[i][k - 1] = (char)('a' + roll(&d, 2));
            list[i] = strings[i];
        }
        for (uint32_t k = 0, len = roll(&d, 19); k < len; k++) text[k] = (char)('a' + roll(&d, 2));
        size_t cut;
        int want = expected(text, list, n, &cut), got = -1;
        ek_stop *s = open_stop(list, n);
        ek_buf b = {0};
        for (size_t at = 0; at < strlen(text);) {
            size_t k = 1 + roll(&d, 4);
            if (k > strlen(text) - at) k = strlen(text) - at;
            got = ek_stop_feed(s, text + at, k, &b);
            at += k;
        }
        ek_stop_end(s, &b);
        if (got >= 0 && want >= 0) assert_string_equal(list[got], list[want]); /* equal strings may share the hit */
        else assert_int_equal(got, want);
        check_bytes(ek_buf_text(&b), b.len, text, cut, __FILE__, __LINE__);
        ek_stop_close(s);
        ek_buf_fini(&b);
    }
}

static void has_limits(void **state)
{
    (void)state;
    ek_stop *s;
    const char *one = "x";
    size_t length = EK_STOP_BYTES + 1;
    assert_int_equal(ek_stop_open(&s, &one, &length, 1), EK_EINVAL);
    assert_int_equal(ek_stop_open(&s, NULL, NULL, EK_STOP_MAX + 1), EK_EINVAL);
    assert_int_equal(ek_stop_open(&s, NULL, NULL, 0), EK_OK);
    ek_stop_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(holds_back_and_cuts), cmocka_unit_test(gives_back_at_the_end),
                                       cmocka_unit_test(cuts_do_not_matter), cmocka_unit_test(has_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
