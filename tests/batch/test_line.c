/* One line of a batch: which are requests, what the others are told, what follows from a line's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "batch/line.h"

#define CHAT "\"method\":\"POST\",\"url\":\"/v1/chat/completions\""

static void requests_are_found_in_either_form(void **state)
{
    static const struct {
        const char *line, *name, *body;
        const ek_dialect *dialect;
        bool anthropic;
    } cases[] = {
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"x\":[1,\"}\"]}}", "a", "{\"x\":[1,\"}\"]}", &ek_dialect_openai_chat,
         false},
        {" { \"body\" : {} , \"url\":\"/v1/completions\",\"method\":\"POST\",\"custom_id\":\"b\\u00e9\" } ",
         "b\xc3\xa9", "{}", &ek_dialect_openai_completions, false},
        {"{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":{\"s\":\"\\\"\"},\"more\":null}",
         "c", "{\"s\":\"\\\"\"}", &ek_dialect_responses, false},
        {"{\"custom_id\":\"d\",\"params\":{\"max_tokens\":1}}", "d", "{\"max_tokens\":1}", &ek_dialect_anthropic, true},
        {"{\"custom_id\":\"e\",\"params\":{\"a\":\"\\d\"},\"body\":null}", "e", "{\"a\":\"\\d\"}",
         &ek_dialect_anthropic, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_batch_line l;
        ek_batch_line_read(&l, cases[i].line, strlen(cases[i].line));
        if (!l.dialect) fail_msg("%s: %s", cases[i].line, l.why);
        assert_ptr_equal(l.dialect, cases[i].dialect);
        assert_int_equal(l.anthropic, cases[i].anthropic);
        assert_string_equal(l.name, cases[i].name);
        assert_int_equal(l.n_body, strlen(cases[i].body));
        assert_memory_equal(l.body, cases[i].body, l.n_body);
        ek_batch_line_fini(&l);
    }
}

static void others_learn_why(void **state)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "no JSON object"},
        {"[]", "no JSON object"},
        {"not json", "no JSON object"},
        {"{", "a name in quotes"},
        {"{}", "custom_id is needed"},
        {"{\"custom_id\":\"a\"", "breaks off"},
        {"{\"custom_id\":\"a", "breaks off"},
        {"{\"custom_id\" \"a\"}", "breaks off"},
        {"{\"custom_id\":\"a\"}}", "more than one"},
        {"{\"custom_id\":\"a\"} {}", "more than one"},
        {"{\"custom_id\":\"a\" \"x\":1}", "comma is missing"},
        {"{\"custom_id\":\"a\",\"custom_id\":\"b\"}", "custom_id is there twice"},
        {"{\"custom_id\":7," CHAT ",\"body\":{}}", "custom_id is needed"},
        {"{\"custom_id\":\"\"," CHAT ",\"body\":{}}", "custom_id has 0 bytes"},
        {"{\"custom_id\":\"a\"," CHAT "}", "body must be an object"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":[]}", "body must be an object"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"x\":[}}", "brackets do not fit"},
        {"{\"custom_id\":\"a\",\"params\":7}", "params must be an object"},
        {"{\"custom_id\":\"a\"," CHAT ",\"params\":{}}", "one of both"},
        {"{\"custom_id\":\"a\",\"url\":\"/v1/chat/completions\",\"body\":{}}", "method must be POST, not nothing"},
        {"{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}",
         "method must be POST, not \"GET\""},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}", "not \"/v1/embeddings\""},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"body\":{}}", "/v1/responses, not nothing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_batch_line l;
        ek_batch_line_read(&l, cases[i].line, strlen(cases[i].line));
        if (l.dialect || !strstr(l.why, cases[i].why)) fail_msg("%s: \"%s\"", cases[i].line, l.why);
        ek_batch_line_fini(&l);
    }
}

static void bodies_beyond_a_servers_limits_are_none(void **state)
{
    ek_buf b = {0};
    ek_batch_line l;
    (void)state;
    ek_buf_str(&b, "{\"custom_id\":\"a\"," CHAT ",\"body\":{\"messages\":[{}");
    for (int i = 0; i < 65536; i++) ek_buf_str(&b, ",{}");
    ek_buf_str(&b, "]}}");
    ek_batch_line_read(&l, b.data, b.len);
    assert_null(l.dialect);
    assert_non_null(strstr(l.why, "a list of 65537 objects"));
    ek_batch_line_fini(&l);
    ek_buf_clear(&b);
    ek_buf_str(&b, "{\"custom_id\":\"a\"," CHAT ",\"body\":");
    for (int i = 0; i < 300; i++) ek_buf_char(&b, '[');
    ek_batch_line_read(&l, b.data, b.len);
    assert_null(l.dialect);
    ek_batch_line_fini(&l);
    ek_buf_fini(&b);
    ek_batch_line_too_long(&l, 1u << 30);
    assert_non_null(strstr(l.why, "1073741824 bytes"));
}

static void what_a_line_decides_follows_from_its_bytes(void **state)
{
    char id[EK_BATCH_ID];
    ek_batch_line l = {.name = (char *)(uintptr_t) "a", .n_name = 1};
    (void)state;
    ek_batch_line_id(id, "abc", 3);
    assert_string_equal(id, "ba7816bf8f01cfea414140de"); /* FIPS 180-4's SHA-256 of "abc" */
    /* SHA-256 of "evenkeel.batch", eight bytes of the seed and "a", by another program. */
    assert_int_equal(ek_batch_line_seed(0, &l), 5581695546367473u);
    assert_int_equal(ek_batch_line_seed(-1, &l), 3580569210057433u);
}

static char *result(const ek_batch_line *l, int status, const char *body)
{
    ek_buf out = {0}, b = {0};
    ek_buf_str(&b, body);
    const bool error = ek_batch_put(&out, l, "000000000000000000000001", status, &b);
    assert_int_equal(error, status != 200 || !l->dialect);
    ek_buf_fini(&b);
    return out.data;
}

static void results_have_the_form_of_their_api(void **state)
{
    ek_batch_line l = {.dialect = &ek_dialect_openai_chat, .name = (char *)(uintptr_t) "x\"y", .n_name = 3};
    char *s = result(&l, 200, "{}");
    (void)state;
    assert_string_equal(s, "{\"id\":\"batch_req_000000000000000000000001\",\"custom_id\":\"x\\\"y\",\"response\":{"
                           "\"status_code\":200,\"request_id\":\"req_000000000000000000000001\",\"body\":{}},\"error\":"
                           "null}");
    free(s);
    l.dialect = NULL;
    strcpy(l.why, "no");
    s = result(&l, 200, "");
    assert_string_equal(s, "{\"id\":\"batch_req_000000000000000000000001\",\"custom_id\":\"x\\\"y\",\"response\":null,"
                           "\"error\":{\"code\":\"invalid_line\",\"message\":\"no\"}}");
    free(s);
    l.anthropic = true;
    s = result(&l, 0, "");
    assert_string_equal(s, "{\"custom_id\":\"x\\\"y\",\"result\":{\"type\":\"errored\",\"error\":{\"type\":\"error\","
                           "\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}}}");
    free(s);
    l.dialect = &ek_dialect_anthropic;
    s = result(&l, 200, "{\"m\":1}");
    assert_string_equal(s, "{\"custom_id\":\"x\\\"y\",\"result\":{\"type\":\"succeeded\",\"message\":{\"m\":1}}}");
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_found_in_either_form),
        cmocka_unit_test(others_learn_why),
        cmocka_unit_test(bodies_beyond_a_servers_limits_are_none),
        cmocka_unit_test(what_a_line_decides_follows_from_its_bytes),
        cmocka_unit_test(results_have_the_form_of_their_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
