/* Bodies of chat completions: what they mean, and what is refused with which field named. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "template_gets.h"
#include "text/json/json.h"

enum { VOCAB = 1000 };
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static ek_err parse(ek_api_request *r, const char *body)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1},
                            .n_vocab = VOCAB,
                            .ctx_tokens = 512};
    *r = (ek_api_request){0};
    return ek_api_parse(r, &ek_dialect_openai_chat, body, strlen(body), &limits);
}

static void test_defaults(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(parse(&r, "{" USER "}"), EK_OK);
    assert_int_equal(r.conversation.n_messages, 1);
    assert_null(r.model);
    assert_null(r.tools);
    assert_false(r.turn.tools_active);
    assert_false(r.stream);
    assert_int_equal(r.prompt.thinking, EK_THINKING_UNSET);
    assert_true(r.prompt.add_generation_prompt);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.turn.max_tokens, INT_MAX);
    assert_int_equal(r.turn.sampling.top_k, 64);
    assert_false(r.has_seed);
    assert_true(r.turn.cache_salt == 0);
    ek_api_request_fini(&r);
    /* null is absent */
    assert_int_equal(parse(&r, "{" USER ",\"tools\":null,\"temperature\":null,\"stop\":null,\"n\":null,\"seed\":null}"),
                     EK_OK);
    assert_true(r.turn.sampling.temperature == 1);
    ek_api_request_fini(&r);
}

/* Asked of a server with a key, without one, and in a batch. */
static void test_receipts(void **state)
{
    static const struct {
        const char *value;
        bool good, wanted;
        const char *nonce;
    } row[] = {{"true", true, true, ""},
               {"false", true, false, ""},
               {"null", true, false, ""},
               {"{}", true, true, ""},
               {"{\"nonce\":\"a b\"}", true, true, "a b"},
               {"{\"nonce\":\"\"}", false, false, ""},
               {"{\"nonce\":\"\\u00e9\"}", false, false, ""},
               {"{\"nonce\":7}", false, false, ""},
               {"1", false, false, ""},
               {"\"true\"", false, false, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int how = 0; how < 3; how++) {
            ek_api_limits limits = {.n_vocab = VOCAB, .ctx_tokens = 512, .receipts = how == 0};
            ek_api_request r = {0};
            char body[200];
            if (how == 2) limits.receipts = true, ek_api_limits_batch(&limits);
            snprintf(body, sizeof body, "{" USER ",\"evenkeel\":{\"receipt\":%s}}", row[i].value);
            const ek_err err = ek_api_parse(&r, &ek_dialect_openai_chat, body, strlen(body), &limits);
            assert_int_equal(err, row[i].good && (how == 0 || !row[i].wanted) ? EK_OK : EK_EINVAL);
            if (err) assert_memory_equal(r.param, "evenkeel.receipt", 16);
            else assert_int_equal(r.turn.receipt, row[i].wanted);
            if (!err) assert_string_equal(r.nonce, row[i].nonce);
            ek_api_request_fini(&r);
        }
}

static void test_everything(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(
        parse(
            &r,
            "{" USER "," TOOL ",\"model\":\"m/x\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
            "\"max_tokens\":5,\"max_completion_tokens\":7,\"temperature\":0,\"top_p\":0.5,\"top_k\":-1,\"min_p\":0.1,"
            "\"seed\":-3,\"stop\":[\"a\",\"bc\"],\"logit_bias\":{\"5\":-100,\"7\":2.5},\"presence_penalty\":1,"
            "\"frequency_penalty\":-1,\"repetition_penalty\":1.5,\"n\":3,\"ignore_eos\":true,"
            "\"parallel_tool_calls\":false,\"evenkeel\":{\"digest\":true},\"cache_salt\":\"s\",\"user\":\"u\",\"store\":true}"),
        EK_OK);
    assert_string_equal(r.model, "m/x");
    assert_true(r.turn.cache_salt != 0);
    assert_true(r.stream && r.turn.ignore_eos && r.turn.one_call && r.turn.digest && r.turn.tools_active && r.has_seed);
    assert_int_equal(r.turn.max_tokens, 7);
    assert_int_equal(r.turn.sampling.top_k, 0);
    assert_true(r.turn.sampling.seed == (uint64_t)-3);
    assert_int_equal(r.turn.n_stop, 2);
    assert_int_equal(r.turn.stop_len[1], 2);
    assert_int_equal(r.turn.sampling.n_bias, 2);
    assert_true(isinf(r.turn.sampling.bias[0].bias) && r.turn.sampling.bias[0].token == 5);
    assert_true(r.turn.sampling.bias[1].bias == 2.5f);
    assert_int_equal(r.n, 3);
    ek_api_request_fini(&r);
}

static void test_thinking(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        ek_thinking thinking;
    } cases[] = {
        {"", EK_THINKING_UNSET},
        {",\"reasoning_effort\":\"none\"", EK_THINKING_OFF},
        {",\"reasoning_effort\":\"minimal\"", EK_THINKING_OFF},
        {",\"reasoning_effort\":\"high\"", EK_THINKING_ON},
        {",\"chat_template_kwargs\":{\"enable_thinking\":true}", EK_THINKING_ON},
        {",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"enable_thinking\":false}", EK_THINKING_OFF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "{" USER "%s}", cases[i].more);
        ek_api_request r;
        assert_int_equal(parse(&r, b.data), EK_OK);
        assert_int_equal(r.prompt.thinking, cases[i].thinking);
        ek_api_request_fini(&r);
        ek_buf_fini(&b);
    }
}

static void test_tool_choice_none(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(parse(&r, "{" USER "," TOOL ",\"tool_choice\":\"none\"}"), EK_OK);
    assert_non_null(r.tools); /* declared as always, so that the prompt stays the same */
    assert_false(r.turn.tools_active);
    ek_api_request_fini(&r);
    assert_int_equal(parse(&r, "{" USER ",\"tools\":[],\"tool_choice\":\"auto\"}"), EK_OK);
    assert_null(r.tools);
    ek_api_request_fini(&r);
}

static void test_absurd_sizes(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(parse(&r, "{" USER ",\"max_tokens\":1000000000000}"), EK_OK);
    assert_int_equal(r.turn.max_tokens, INT_MAX);
    ek_api_request_fini(&r);
    assert_int_equal(parse(&r, "{" USER ",\"max_tokens\":1e12}"), EK_OK);
    assert_int_equal(r.turn.max_tokens, INT_MAX);
    ek_api_request_fini(&r);
    ek_buf deep = {0};
    for (int i = 0; i < 100000; i++) ek_buf_char(&deep, '[');
    assert_int_equal(parse(&r, deep.data), EK_EPARSE);
    ek_api_request_fini(&r);
    ek_buf_fini(&deep);
}

/* What the template gets of messages. */
static void check_messages(const char *messages, const char *want)
{
    ek_api_request r;
    ek_buf body = {0};
    ek_buf_fmt(&body, "{\"messages\":%s}", messages);
    if (parse(&r, body.data)) fail_msg("%s in %s", ek_err_text(), messages);
    template_gets(&r, want);
    ek_buf_fini(&body);
}

#define ARGS(name, args) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":" args "}}"

static void test_messages(void **state)
{
    (void)state;
    /* Arguments as text, read leniently; ids of any kind. */
    check_messages(
        "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\\\"b\\\":1,\\\"a\\\":\\\"\\\\d\\\"}\"}},{\"function\":{\"name\":\"g\",\"arguments\":\" \"}},"
        "{\"function\":{\"name\":\"h\",\"arguments\":{\"x\":1}}},{\"function\":{\"name\":\"i\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":1,\"content\":[{\"type\":\"text\",\"text\":\"r\"}]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"b\":1,\"a\":\"\\\\d\"}}}," ARGS("g", "{}") "," ARGS("h", "{\"x\":1}") "," ARGS(
            "i",
            "{}") "]},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}],\"tool_call_id\":\"1\"}]");
    /* The legacy form. */
    check_messages("[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                   "{\"role\":\"function\",\"name\":\"f\",\"content\":\"1\"}]",
                   "[{\"role\":\"assistant\",\"tool_calls\":[" ARGS(
                       "f", "{}") "]},{\"role\":\"tool\",\"name\":\"f\",\"content\":\"1\"}]");
    /* Reasoning under both names; refusals have no text; the template's own results. */
    check_messages(
        "[{\"role\":\"assistant\",\"reasoning\":\"a\",\"reasoning_content\":\"a\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"b\",\"tool_responses\":[{\"name\":\"f\",\"response\":{\"k\":1}},{}]}]",
        "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"\"}],\"reasoning_content\":\"a\"},{\"role\":\"assistant\","
        "\"reasoning_content\":\"b\",\"tool_responses\":[{\"name\":\"f\",\"response\":{\"k\":1}},{}]}]");
    /* The billing line, where it is one. */
    check_messages(
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=1;\"},"
        "{\"type\":\"text\",\"text\":\"A\"}]}]",
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"A\"}]}]");
    check_messages(
        "[{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: cch=1;\\nYou\"},"
        "{\"role\":\"user\",\"content\":\"x-anthropic-billing-header: y\"}]",
        "[{\"role\":\"system\",\"content\":\"You\"},{\"role\":\"user\",\"content\":\"x-anthropic-billing-header: y\"}]");
}

static void test_form(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        ek_reply_form form;
        int n_only;
        bool schema, active, one;
    } cases[] = {
        {"", {0}, 0, false, true, false},
        {",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false", {0}, 0, false, true, true},
        {",\"tool_choice\":\"required\"", {.calls_required = true}, 0, false, true, false},
        {",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
         {.calls_required = true},
         1,
         false,
         true,
         true},
        {",\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", {.calls_required = true}, 1, false, true, true},
        {",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\","
         "\"function\":{\"name\":\"f\"}}]}}",
         {0},
         1,
         false,
         true,
         false},
        {",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}",
         {.calls_required = true},
         1,
         false,
         true,
         false},
        {",\"response_format\":{\"type\":\"text\"}", {0}, 0, false, true, false},
        {",\"response_format\":null", {0}, 0, false, true, false},
        {",\"response_format\":{\"type\":\"json_object\"}", {.text = EK_TEXT_JSON_OBJECT}, 0, false, true, false},
        {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{}}}",
         {.text = EK_TEXT_JSON_SCHEMA, .lenient = true},
         0,
         true,
         true,
         false},
        {",\"response_format\":{\"type\":\"json_object\",\"schema\":{}}",
         {.text = EK_TEXT_JSON_SCHEMA, .lenient = true},
         0,
         true,
         true,
         false},
        {",\"guided_json\":\"{}\",\"guided_regex\":null,\"grammar\":\"\"",
         {.text = EK_TEXT_JSON_SCHEMA, .lenient = true},
         0,
         true,
         true,
         false},
        {",\"json_schema\":{}", {.text = EK_TEXT_JSON_SCHEMA, .lenient = true}, 0, true, true, false},
        {",\"structured_outputs\":{\"json\":{},\"regex\":null,\"disable_any_whitespace\":false}",
         {.text = EK_TEXT_JSON_SCHEMA, .lenient = true},
         0,
         true,
         true,
         false},
        {",\"structured_outputs\":{\"json_object\":true}", {.text = EK_TEXT_JSON_OBJECT}, 0, false, true, false},
        {",\"guided_choice\":[\"a\",\"b c\"]", {.text = EK_TEXT_CHOICE}, 0, true, true, false},
        {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":{}}}",
         {.text = EK_TEXT_JSON_SCHEMA},
         0,
         true,
         true,
         false},
        {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":false,\"schema\":{}}}",
         {.text = EK_TEXT_JSON_SCHEMA, .lenient = true},
         0,
         true,
         true,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "{" USER "," TOOL "%s}", cases[i].more);
        ek_api_request r;
        if (parse(&r, b.data) != EK_OK) fail_msg("%s: %s", b.data, ek_err_text());
        assert_int_equal(r.form.text, cases[i].form.text);
        assert_int_equal(r.form.lenient, cases[i].form.lenient);
        assert_int_equal(r.form.calls_required, cases[i].form.calls_required);
        assert_int_equal(json_array_size(r.only), cases[i].n_only);
        assert_int_equal(r.schema != NULL, cases[i].schema);
        assert_int_equal(r.turn.tools_active, cases[i].active);
        assert_int_equal(r.turn.one_call, cases[i].one);
        ek_api_request_fini(&r);
        ek_buf_fini(&b);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *says;
    } bad[] = {
        {"", NULL, "the body cannot be read: JSON, line 1 column 1: "},
        {"{", NULL, "the body cannot be read: JSON, line 1 column 2: "},
        {"[]", NULL, "JSON object"},
        {"{}", "messages", "at least one"},
        {"{\"messages\":[]}", "messages", "at least one"},
        {"{\"messages\":[1]}", "messages", "messages[0]"},
        {"{\"messages\":[{\"role\":\"wizard\",\"content\":\"\"}]}", "messages", "role"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages", "content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages", "image_url"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "messages", "text"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":\"x\"}]}", "messages", "not a list"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "messages", "has no function"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]}", "messages", "function name"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_responses\":\"x\"}]}", "messages", "not a list"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning\":5}]}", "messages", "reasoning"},
        {"{\"messages\":[{\"role\":\"tool\",\"name\":5}]}", "messages", "name"},
        {"{" USER ",\"temperature\":\"hot\"}", "temperature", "from 0 to 100"},
        {"{" USER ",\"temperature\":-1}", "temperature", "from 0"},
        {"{" USER ",\"top_p\":1.5}", "top_p", "from 0 to 1"},
        {"{" USER ",\"max_tokens\":-2}", "max_tokens", "from -1"},
        {"{" USER ",\"max_tokens\":1.5}", "max_tokens", "whole"},
        {"{" USER ",\"n\":1000000}", "n", "from 1"},
        {"{" USER ",\"seed\":1.5}", "seed", "whole"},
        {"{" USER ",\"stop\":5}", "stop", "text"},
        {"{" USER ",\"logit_bias\":{\"1000\":1}}", "logit_bias", "\"1000\""},
        {"{" USER ",\"logit_bias\":{\"x\\n\":1}}", "logit_bias", "\"x\\n\""},
        {"{" USER ",\"logit_bias\":{\"1\":500}}", "logit_bias", "-100"},
        {"{" USER ",\"stream\":1}", "stream", "true or false"},
        {"{" USER ",\"tools\":{}}", "tools", "list"},
        {"{" USER ",\"tools\":[{\"type\":\"custom\"}]}", "tools", "function"},
        {"{" USER ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools", "name"},
        {"{" USER ",\"tool_choice\":\"required\"}", "tool_choice", "no tools"},
        {"{" USER "," TOOL ",\"tool_choice\":5}", "tool_choice", "needed"},
        {"{" USER "," TOOL ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice", "needed"},
        {"{" USER "," TOOL ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}}", "tool_choice",
         "\"x\""},
        {"{" USER "," TOOL ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\"}}", "tool_choice",
         "list of tools"},
        {"{" USER "," TOOL ",\"tool_choice\":\"maybe\"}", "tool_choice", "needed"},
        {"{" USER ",\"response_format\":{\"type\":\"xml\"}}", "response_format", "json_schema"},
        {"{" USER ",\"response_format\":5}", "response_format", "json_schema"},
        {"{" USER ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}", "response_format", "schema"},
        {"{" USER ",\"modalities\":\"audio\"}", "modalities", "a list is needed"},
        {"{" USER ",\"top_logprobs\":3}", "top_logprobs", "logprobs must be true"},
        {"{" USER ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "from 0 to 20"},
        {"{" USER ",\"model\":5}", "model", "text"},
        {"{" USER ",\"reasoning_effort\":5}", "reasoning_effort", "text"},
        {"{" USER ",\"chat_template_kwargs\":{\"enable_thinking\":\"yes\"}}", "enable_thinking", "true or false"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_api_request r;
        ek_err err = parse(&r, bad[i].body);
        if (err == EK_OK || ek_err_http(err) != 400 || !strstr(ek_err_text(), bad[i].says))
            print_error("%s: %d %s\n", bad[i].body, err, ek_err_text());
        assert_true(err != EK_OK && ek_err_http(err) == 400);
        assert_non_null(strstr(ek_err_text(), bad[i].says));
        if (bad[i].param) assert_string_equal(r.param, bad[i].param);
        ek_api_request_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receipts),     cmocka_unit_test(test_defaults),         cmocka_unit_test(test_everything),
        cmocka_unit_test(test_thinking),     cmocka_unit_test(test_tool_choice_none), cmocka_unit_test(test_form),
        cmocka_unit_test(test_absurd_sizes), cmocka_unit_test(test_messages),         cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
