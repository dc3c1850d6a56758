/* Replies of other servers, as bench --compare reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench/traffic.h"
#include "cli/bench/traffic_reply.h"

#define EVENT(TEXT) "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" TEXT "\"}}]}\n\n"
static const char stream[] =
    ": ping\r\n\r\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n" EVENT("One") EVENT(
        " two") "event: chunk\ndata:{\"choices\":[{\"delta\":{\"reasoning\":\"why\",\"content\":null}}],\"usage\":null}\n\n"
                "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";

static void feed(ek_traffic_reply *r, const char *text, size_t piece)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i += piece)
        ek_traffic_reply_feed(r, text + i, piece < n - i ? piece : n - i, r->begun + 1 + (double)i);
}

static void test_counts(void **state)
{
    (void)state;
    ek_traffic_reply whole = {.begun = 1};
    feed(&whole, stream, sizeof stream);
    assert_string_equal(whole.error, "");
    assert_true(whole.done);
    assert_int_equal(whole.pieces, 3); /* the empty first delta is none */
    assert_int_equal(whole.n_gaps, 2);
    assert_int_equal(whole.prompt_tokens, 7);
    assert_int_equal(whole.tokens, 3);
    for (size_t piece = 1; piece < 40; piece++) {
        ek_traffic_reply cut = {.begun = 1};
        feed(&cut, stream, piece);
        assert_int_equal(cut.pieces, 3);
        assert_true(cut.text == whole.text && cut.done && cut.tokens == 3);
        assert_true(cut.first > 1 && cut.last > cut.first);
        ek_traffic_reply_fini(&cut);
    }
    ek_traffic_reply_fini(&whole);
}

/* Where a server cuts the text does not make it another text; the text, and what is reasoning of it, does. */
static void test_text(void **state)
{
    (void)state;
    static const char *const streams[] = {EVENT("One two"),
                                          EVENT("One") EVENT(" two"),
                                          EVENT("One twO"),
                                          "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"One two\"}}]}\n\n",
                                          "data: {\"choices\":[{\"delta\":{\"reasoning\":\"One two\"}}]}\n\n",
                                          "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"One two\","
                                          "\"reasoning\":\"One two\"}}]}\n\n"};
    uint64_t text[6];
    for (int i = 0; i < 6; i++) {
        ek_traffic_reply r = {.begun = 1};
        feed(&r, streams[i], 1000);
        text[i] = r.text;
        ek_traffic_reply_fini(&r);
    }
    assert_true(text[0] == text[1]);
    assert_true(text[0] != text[2] && text[0] != text[3]);
    assert_true(text[3] == text[4] && text[3] == text[5]); /* the same under two names is said once */
    assert_int_equal(ek_traffic_agree(text, 5), 2);
    assert_int_equal(ek_traffic_agree(text, 0), 0);
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"data: {\"choices\":[\n\n", "an event is not JSON: "},
        {"data: {\"error\":{\"message\":\"out of slots\"}}\n\n", "the server reports: out of slots"},
        {"data: {\"error\":\"x\"}\n\n", "the server reports: an error without a message"},
    };
    for (int i = 0; i < 3; i++) {
        ek_traffic_reply r = {.begun = 1};
        feed(&r, bad[i][0], 5);
        feed(&r, EVENT("late"), 1000);
        assert_memory_equal(r.error, bad[i][1], strlen(bad[i][1]));
        assert_int_equal(r.pieces, 0);
        ek_traffic_reply_fini(&r);
    }
    static char endless[4096];
    memset(endless, 'x', sizeof endless);
    ek_traffic_reply r = {.begun = 1};
    for (int i = 0; i < 1000; i++) ek_traffic_reply_feed(&r, endless, sizeof endless, 2);
    assert_string_equal(r.error, "an event is longer than 1 MiB");
    assert_true(r.line.cap <= 2 * EK_TRAFFIC_LINE + 16);
    ek_traffic_reply_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
