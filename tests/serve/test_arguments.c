/* Arguments of calls that clients send back: none is refused, in any API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "template_gets.h"
#include "text/json/json.h"

static void check(const ek_dialect *d, const char *before, const char *arguments, const char *after, const char *want)
{
    ek_api_limits limits = {.n_vocab = 1000, .ctx_tokens = 512};
    ek_api_request r = {0};
    ek_buf body = {0}, all = {0};
    ek_buf_fmt(&body, "{%s%s%s}", before, arguments, after);
    if (ek_api_parse(&r, d, body.data, body.len, &limits)) fail_msg("%s: %s in %s", d->path, ek_err_text(), body.data);
    ek_buf_fmt(
        &all,
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":%s}}]}]",
        want);
    template_gets(&r, all.data);
    ek_buf_fini(&body);
    ek_buf_fini(&all);
}

static void gives(const char *arguments, const char *want)
{
    check(
        &ek_dialect_openai_chat,
        "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":",
        arguments, "}}]}]", want);
    check(
        &ek_dialect_tokenize,
        "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":",
        arguments, "}}]}]", want);
    check(&ek_dialect_responses,
          "\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":", arguments, "}]",
          want);
    check(
        &ek_dialect_anthropic,
        "\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\","
        "\"input\":",
        arguments, "}]}]", want);
}

static void values(void **state)
{
    (void)state;
    gives("\"{\\\"b\\\":1,\\\"a\\\":[]}\"", "{\"b\":1,\"a\":[]}");
    gives("{\"b\":1}", "{\"b\":1}");
    const char *const empty[] = {"null",   "\"\"",         "\" \\n\"", "\"null\"", "[]",
                                 "\"[]\"", "\"\\\"\\\"\"", "{}",       "\"{}\"",   "\" { } \""};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) gives(empty[i], "{}");
    /* No object: the text that it is. */
    gives("\"Oslo\"", "\"Oslo\"");
    gives("\"\\\"Oslo\\\"\"", "\"\\\"Oslo\\\"\"");
    gives("\"5\"", "\"5\"");
    gives("5", "\"5\"");
    gives("1.5e300", "\"1.5e+300\"");
    gives("123456789012345678901", "\"123456789012345678901\"");
    gives("true", "\"true\"");
    gives("[1,{\"a\":2}]", "\"[1,{\\\"a\\\":2}]\"");
    gives("\"[1, 2\"", "\"[1, 2\"");
    gives("\" {\\\"a\\\":1}{\\\"b\\\":2} \"", "\"{\\\"a\\\":1}{\\\"b\\\":2}\"");
}

static void damage(void **state)
{
    (void)state;
    gives("\"{\\\"city\\\":\\\"Par\"", "{\"city\":\"Par\"}"); /* cut by the token limit */
    gives("\"{\\\"city\\\":\"", "{\"city\":null}");
    gives("\"{\\\"a\\\":[1,2,],}\"", "{\"a\":[1,2]}");
    gives("\"{'a': True, 'b': None}\"", "{\"a\":true,\"b\":null}");
    gives("\"{\\\"a\\\":1}}\"", "{\"a\":1}");
    gives("\"\\\"{\\\\\\\"a\\\\\\\":1}\\\"\"", "{\"a\":1}"); /* an object in a text in a text */
    gives("\"\\\"{\\\\\\\"a\\\\\\\":1,}\\\"\"", "{\"a\":1}");
    ek_buf deep = {0}, want = {0}; /* nested deeper than is read */
    ek_buf_char(&deep, '"');
    ek_buf_char(&want, '"');
    for (int i = 0; i < 300; i++) {
        ek_buf_str(&deep, "{\\\"a\\\":");
        ek_buf_str(&want, "{\\\"a\\\":");
    }
    ek_buf_char(&deep, '"');
    ek_buf_char(&want, '"');
    gives(deep.data, want.data);
    ek_buf_fini(&deep);
    ek_buf_fini(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
