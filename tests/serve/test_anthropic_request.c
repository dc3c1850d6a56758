/* Bodies of Anthropic's Messages API: what they mean to the chat template, and what is refused. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "template_gets.h"
#include "text/json/json.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL "\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}]"

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1},
                            .n_vocab = 1000,
                            .ctx_tokens = 512};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

static void test_fields(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(
        parse(&ek_dialect_anthropic, &r,
              "{" USER "," TOOL ",\"model\":\"m\",\"max_tokens\":9,\"stream\":true,\"temperature\":0.5,\"top_k\":7,"
              "\"top_p\":0.25,\"stop_sequences\":[\"a\",\"\"],\"tool_choice\":{\"type\":\"auto\","
              "\"disable_parallel_tool_use\":true},\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},"
              "\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"container\":null,\"betas\":[\"x\"]}"),
        EK_OK);
    assert_string_equal(r.model, "m");
    assert_true(r.stream && r.turn.one_call && r.turn.tools_active);
    assert_int_equal(r.turn.max_tokens, 9);
    assert_int_equal(r.turn.sampling.top_k, 7);
    assert_true(r.turn.sampling.temperature == 0.5f && r.turn.sampling.top_p == 0.25f);
    assert_int_equal(r.turn.n_stop, 1);
    assert_int_equal(r.prompt.thinking, EK_THINKING_ON);
    assert_true(r.prompt.add_generation_prompt && !r.prompt.continue_final);
    ek_buf b = {0};
    ek_json_write(&b, r.tools);
    assert_string_equal(b.data, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
                                "\"parameters\":{\"type\":\"object\"}}}]");
    ek_buf_fini(&b);
    ek_api_request_fini(&r);
    /* Its tools stay declared, so that the prompt stays the same. */
    assert_int_equal(parse(&ek_dialect_anthropic, &r,
                           "{" USER "," TOOL ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"none\"},"
                           "\"thinking\":{\"type\":\"disabled\"}}"),
                     EK_OK);
    assert_true(r.tools && !r.turn.tools_active);
    assert_int_equal(r.prompt.thinking, EK_THINKING_OFF);
    ek_api_request_fini(&r);
    assert_int_equal(parse(&ek_dialect_anthropic, &r,
                           "{" USER "," TOOL ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"any\"},\"output_config\":{"
                           "\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}}"),
                     EK_OK);
    assert_true(r.form.calls_required && !r.only && !r.turn.one_call && r.form.text == EK_TEXT_JSON_SCHEMA && r.schema);
    ek_api_request_fini(&r);
    assert_int_equal(parse(&ek_dialect_anthropic, &r,
                           "{" USER "," TOOL ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}"),
                     EK_OK);
    assert_true(r.form.calls_required && json_array_size(r.only) == 1 && r.turn.one_call);
    ek_api_request_fini(&r);
    /* max_tokens is for replies alone. */
    assert_int_equal(parse(&ek_dialect_anthropic_count, &r, "{" USER "," TOOL "}"), EK_OK);
    ek_api_request_fini(&r);
}

/* What the template gets of system and messages; "" for want: refused. */
static void gives(const char *members, const char *want, bool beginning)
{
    ek_api_request r;
    ek_buf body = {0};
    ek_buf_fmt(&body, "{%s}", members);
    ek_err err = parse(&ek_dialect_anthropic_count, &r, body.data);
    if (err) fail_msg("%s in %s", ek_err_text(), members);
    assert_int_equal(r.prompt.continue_final, beginning);
    template_gets(&r, want);
    ek_buf_fini(&body);
}

#define HI      "{\"role\":\"user\",\"content\":\"hi\"}"
#define TEXT(s) "{\"type\":\"text\",\"text\":\"" s "\"}"

static void test_system(void **state)
{
    (void)state;
    const char *one = "[{\"role\":\"system\",\"content\":\"a\\nb\"}," HI "]", *none = "[" HI "]";
    gives("\"system\":\"a\\nb\"," USER, one, false);
    gives("\"system\":[" TEXT("a") "," TEXT("b") "]," USER, one, false);
    gives("\"system\":\"\"," USER, none, false);
    /* The billing line, as a block of its own or not, and marks for caching: nothing of them is in the prompt. */
    gives(
        "\"system\":[" TEXT(
            "x-anthropic-billing-header: cc_version=2.1.29.5cb; cch=1a2b3;") ",{\"type\":\"text\","
                                                                             "\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}}," TEXT(
                                                                                 "b") "]," USER,
        one, false);
    gives("\"system\":[" TEXT("x-anthropic-billing-header: cch=00000;\\na\\nb") "]," USER, one, false);
    gives("\"system\":[" TEXT("x-anthropic-billing-header: cch=00000;") "]," USER, none, false);
    gives("\"system\":\"a\\nb\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\","
          "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}]}]",
          one, false);
    /* A system message among the messages stays where it is. */
    gives("\"messages\":[" HI ",{\"role\":\"system\",\"content\":[" TEXT("s") "]}]",
          "[" HI ",{\"role\":\"system\",\"content\":\"s\"}]", false);
}

static void test_results_come_before_text(void **state)
{
    (void)state;
    gives(
        "\"messages\":[" HI ",{\"role\":\"assistant\",\"content\":[" TEXT("Let me ") "," TEXT(
            "see.") ",{\"type\":"
                    "\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"b\":1,\"a\":[]}},{\"type\":\"tool_use\",\"id\":\"t2\","
                    "\"name\":\"g\",\"input\":{}}]},{\"role\":\"user\",\"content\":[" TEXT(
                        "and now?") ",{\"type\":\"tool_result\","
                                    "\"tool_use_id\":\"t1\",\"content\":\"one\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,"
                                    "\"content\":[" TEXT("two") "," TEXT("lines") "]}," TEXT("Well?") "]}]",
        "[" HI ",{\"role\":\"assistant\",\"content\":\"Let me see.\"},{\"role\":\"assistant\",\"tool_calls\":["
        "{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":[]}}},"
        "{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"one\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"Error: two\\nlines\"},"
        "{\"role\":\"user\",\"content\":\"and now?\\nWell?\"}]",
        false);
#define USE "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}]}"
#define USED                                                                                                    \
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"t\",\"type\":\"function\",\"function\":{\"name\":\"f\"," \
    "\"arguments\":{}}}]}"
    gives("\"messages\":[" USE
          ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"is_error\":true,"
          "\"content\":\"Error: no\"}]}]",
          "[" USED ",{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":\"Error: no\"}]", false);
    gives("\"messages\":[" USE ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\"}]}]",
          "[" USED ",{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":\"\"}]", false);
}

static void test_thinking_comes_back(void **state)
{
    (void)state;
    ek_buf sealed = {0}, body = {0};
    const char *want = "[" HI ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\\n\",\"content\":\"a\"}," HI "]";
    gives("\"messages\":[" HI ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\\n\","
          "\"signature\":\"whatever\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"}," TEXT("a") "]}," HI "]",
          want, false);
    ek_seal(&sealed, "hm\n", 3); /* display "omitted": the text is in the signature alone */
    ek_buf_fmt(&body,
               "\"messages\":[" HI ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\","
               "\"signature\":\"%s\"}," TEXT("a") "]}," HI "]",
               sealed.data);
    gives(body.data, want, false);
    ek_buf_fini(&sealed);
    ek_buf_fini(&body);
}

static void test_seals(void **state)
{
    (void)state;
    static const char text[] = "\0abc\xC3\xA9 def\xff";
    for (size_t n = 0; n < sizeof text; n++) {
        ek_buf sealed = {0}, back = {0};
        ek_seal(&sealed, text, n);
        assert_true(ek_unseal(&back, sealed.data, sealed.len));
        assert_int_equal(back.len, n);
        assert_memory_equal(ek_buf_text(&back), text, n);
        assert_false(n > 0 && ek_unseal(&back, sealed.data, sealed.len - 1));
        ek_buf_fini(&sealed);
        ek_buf_fini(&back);
    }
    ek_buf b = {0};
    static const char *const no[] = {
        "", "ek1+a", "ek1+a===", "ek1+====", "ek1+ab=c", "ek1+ab==abcd", "ek0+0123456789abcdef", "x"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(ek_unseal(&b, no[i], strlen(no[i])));
    assert_int_equal(b.len, 0);
    ek_buf_fini(&b);
}

static void test_beginnings(void **state)
{
    (void)state;
    gives("\"messages\":[" HI ",{\"role\":\"assistant\",\"content\":\"The\"}]",
          "[" HI ",{\"role\":\"assistant\",\"content\":\"The\"}]", true);
    gives("\"messages\":[" HI ",{\"role\":\"assistant\",\"content\":[]}]", "[" HI ",{\"role\":\"assistant\"}]", false);
    /* Escapes that JSON does not know are taken as they stand. */
    gives("\"messages\":[{\"role\":\"user\",\"content\":\"\\s\\\\s\\d\"}]",
          "[{\"role\":\"user\",\"content\":\"\\\\s\\\\s\\\\d\"}]", false);
}

static void test_refusals(void **state)
{
    (void)state;
#define MESSAGE(role, content) "\"max_tokens\":1,\"messages\":[{\"role\":\"" role "\",\"content\":" content "}]"
    static const struct {
        const char *body, *param, *says;
    } cases[] = {
        {"{" USER "}", "max_tokens", "required"},
        {"{" USER ",\"max_tokens\":1.5}", "max_tokens", "whole number"},
        {"{\"max_tokens\":1}", "messages", "list"},
        {"{\"max_tokens\":1,\"messages\":[]}", "messages", "at least one"},
        {"{" MESSAGE("tool", "\"x\"") "}", "messages", "messages[0]: role"},
        {"{" MESSAGE("user", "\"\"") "}", "messages", "empty"},
        {"{" MESSAGE("user", "[]") "}", "messages", "empty"},
        {"{" MESSAGE("user", "[{\"type\":\"image\",\"source\":{}}]") "}", "messages", "\"image\" are not taken"},
        {"{" MESSAGE("user", "[{\"type\":\"document\"}]") "}", "messages", "\"document\""},
        {"{" MESSAGE("user", "[{\"type\":\"tool_result\",\"content\":\"x\"}]") "}", "messages", "tool_use_id"},
        {"{" MESSAGE("user",
                     "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"image\"}]}]") "}",
         "messages", "a tool_result"},
        {"{" MESSAGE("user", "[{\"type\":\"text\"}]") "}", "messages", "needs a text text"},
        {"{" MESSAGE("user", "[5]") "}", "messages", "not taken"},
        {"{" MESSAGE("user", "5") "}", "messages", "content"},
        {"{" MESSAGE("assistant", "[{\"type\":\"tool_use\",\"id\":\"a\",\"input\":{}}]") "}", "messages", "name"},
        {"{" MESSAGE("assistant", "[{\"type\":\"server_tool_use\"}]") "}", "messages", "server_tool_use"},
        {"{" MESSAGE("assistant", "[{\"type\":\"thinking\"}]") "}", "messages", "thinking"},
        {"{" USER ",\"max_tokens\":1,\"output_config\":\"x\"}", "output_config", "object"},
        {"{" USER ",\"max_tokens\":1,\"system\":5}", "system", "system"},
        {"{" USER ",\"max_tokens\":1,\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}]}", "tools",
         "web_search"},
        {"{" USER ",\"max_tokens\":1,\"tools\":[{\"description\":\"w\"}]}", "tools", "name"},
        {"{" USER ",\"max_tokens\":1,\"tool_choice\":\"auto\"}", "tool_choice", "type"},
        {"{" USER "," TOOL ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}}", "tool_choice",
         "\"g\""},
        {"{" USER ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"any\"}}", "tool_choice", "no tools"},
        {"{" USER ",\"max_tokens\":1,\"thinking\":{\"type\":\"hard\"}}", "thinking", "type"},
        {"{" USER ",\"max_tokens\":1,\"mcp_servers\":[{}]}", "mcp_servers", "no others"},
        {"{" USER ",\"max_tokens\":1,\"temperature\":-1}", "temperature", "number"},
        {"{" USER ",\"max_tokens\":1,\"stop_sequences\":[1]}", "stop_sequences", "text"},
        {"{" USER ",\"max_tokens\":1,\"stream\":1}", "stream", "true or false"},
        {"[]", NULL, "object"},
        {"{", NULL, "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        ek_err err = parse(&ek_dialect_anthropic, &r, cases[i].body);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), cases[i].says))
            fail_msg("%s: %d %s", cases[i].body, (int)err, err ? ek_err_text() : "taken");
        if (cases[i].param) assert_string_equal(r.param, cases[i].param);
        else assert_null(r.param);
        ek_api_request_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_results_come_before_text),
        cmocka_unit_test(test_thinking_comes_back),
        cmocka_unit_test(test_seals),
        cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
