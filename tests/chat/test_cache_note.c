/* chat: the line of --verbose=cache. */
#include "helper.h"

#include "chat/turn.h"

static void a_miss_is_explained(void **state)
{
    (void)state;
    ek_ids here = ids_of("<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nToday is \"Monday\" here.<turn|>\n");
    ek_ids cached = ids_of("<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nToday is \"Sunday\" here.<turn|>\n");
    int at = 0;
    while (here.data[at] == cached.data[at]) at++;
    ek_cache_report r = {.tokens = here.data,
                         .n_prompt = (int)here.len,
                         .n_found = at,
                         .n_used = at - 1,
                         .other = cached.data + 3, /* the page there begins at position 3 */
                         .other_first = 3,
                         .n_other = (int)cached.len - 3};
    ek_buf want = {0}, got = {0};
    ek_cache_note(&got, pocket(), &r);
    ek_buf_fmt(
        &want,
        "cache: %d of %d prompt tokens cached, %d of them used; first difference at position %d, message 2: token "
        "%d here, %d cached; here ",
        at, (int)here.len, at - 1, at, here.data[at], cached.data[at]);
    assert_memory_equal(ek_buf_text(&got), ek_buf_text(&want), want.len);
    const char *rest = ek_buf_text(&got) + want.len;
    assert_non_null(strstr(rest, "\\nToday is \\\"\" then \"M")); /* quotes and newlines are escaped: one line */
    assert_non_null(strstr(rest, "is \\\"\" then \"S"));
    assert_null(strchr(rest, '\n'));
    ek_buf_fini(&want);
    ek_buf_fini(&got);
    ek_ids_fini(&here);
    ek_ids_fini(&cached);
}

static void nothing_differs(void **state)
{
    (void)state;
    ek_ids ids = ids_of("<bos><|turn>user\nHello");
    ek_cache_report r = {.tokens = ids.data, .n_prompt = (int)ids.len, .n_found = 2, .n_used = 2};
    ek_buf got = {0};
    ek_cache_note(&got, pocket(), &r); /* longer than what is cached, which just ends */
    assert_non_null(strstr(ek_buf_text(&got), "cache: 2 of "));
    assert_null(strstr(ek_buf_text(&got), "difference"));
    ek_buf_fini(&got);
    r.n_found = r.n_prompt, r.n_used = r.n_prompt - 1, r.other = ids.data, r.n_other = r.n_prompt;
    ek_cache_note(&got, pocket(), &r);
    assert_null(strstr(ek_buf_text(&got), "difference"));
    ek_buf_fini(&got);
    /* the difference is the last cached token, and the first of its page */
    r.n_found = 3, r.other_first = 3, r.n_other = 1;
    ek_cache_note(&got, pocket(), &r);
    assert_non_null(strstr(ek_buf_text(&got), "position 3"));
    ek_buf_fini(&got);
    ek_ids_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_miss_is_explained), cmocka_unit_test(nothing_differs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
