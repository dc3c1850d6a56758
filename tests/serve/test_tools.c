/* Tools that a conversation makes known: which the prompt begins with, where the others stand, which may be called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "chat/order.h"
#include "serve/api/dialect.h"
#include "text/json/json.h"

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    ek_api_limits limits = {
        .defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1}, .n_vocab = 1000, .ctx_tokens = 512};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

/* What may be called, and the text of the prompt. */
static void reads(const ek_dialect *d, const char *body, const char *callable, ek_buf *prompt)
{
    ek_api_request r;
    ek_prompt p = {0};
    bool mark;
    ek_buf names = {0};
    const ek_chat_opts o = {.add_generation_prompt = true};
    if (parse(d, &r, body)) fail_msg("%s in %s", ek_err_text(), body);
    for (size_t i = 0; i < json_array_size(r.tools); i++)
        ek_buf_fmt(&names, "%s%s", i ? "," : "",
                   ek_json_get_text(ek_json_get(json_array_get(r.tools, i), "function"), "name", NULL));
    assert_string_equal(ek_buf_text(&names), callable);
    assert_int_equal(r.turn.tools_active, *callable != 0);
    json_t *messages;
    if (ek_template_messages(&messages, &r.conversation, &mark)) fail_msg("%s", ek_err_text());
    if (ek_chat_render(&p, messages, r.declared ? r.declared : r.tools, &o)) fail_msg("%s", ek_err_text());
    ek_buf_clear(prompt);
    ek_buf_add(prompt, p.text.data, p.text.len);
    json_decref(messages);
    ek_prompt_fini(&p);
    ek_buf_fini(&names);
    ek_api_request_fini(&r);
}

static bool begins(const ek_buf *text, const ek_buf *with, size_t but)
{
    return text->len > with->len && !memcmp(text->data, with->data, with->len - but);
}

#define FIND "{\"name\":\"find\",\"description\":\"F\",\"input_schema\":{\"type\":\"object\"}}"
#define LATER(n) \
    "{\"name\":\"" n "\",\"description\":\"D\",\"input_schema\":{\"type\":\"object\"},\"defer_loading\":true}"
#define DECLARED(n) "<|tool>declaration:" n "{description:<|\"|>D<|\"|>,parameters:{type:<|\"|>OBJECT<|\"|>}}<tool|>"
#define ASK         "{\"role\":\"user\",\"content\":\"q\"}"
#define CALLED(id) \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"find\",\"input\":{}}]}"
#define RESULT(id, content) \
    "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\",\"content\":[" content "]}]}"
#define REFERS(n)      "{\"type\":\"tool_reference\",\"tool_name\":\"" n "\"}"
#define BODY(messages) "{\"tools\":[" LATER("a") "," FIND "," LATER("b") "],\"messages\":[" messages "]}"
#define COUNT          &ek_dialect_anthropic_count

/* A tool that is loaded later changes nothing of the prompt before the reference to it. */
static void references(void **state)
{
    (void)state;
    ek_buf first = {0}, second = {0}, third = {0};
    reads(COUNT, BODY(ASK), "find", &first);
    assert_non_null(strstr(first.data, "declaration:find{"));
    assert_null(strstr(first.data, "declaration:a{"));
    reads(COUNT, BODY(ASK "," CALLED("1") "," RESULT("1", "{\"type\":\"text\",\"text\":\"one\"}," REFERS("b"))),
          "find,b", &second);
    assert_true(begins(&second, &first, 0));
    assert_non_null(strstr(second.data, "response:find{tools:" DECLARED("b") ",value:<|\"|>one<|\"|>}"));
    reads(COUNT,
          BODY(ASK "," CALLED("1") "," RESULT("1", "{\"type\":\"text\",\"text\":\"one\"}," REFERS("b")) "," CALLED(
              "2") "," RESULT("2", REFERS("a") "," REFERS("b"))),
          "a,find,b", &third);
    assert_true(begins(&third, &second, 0));
    assert_non_null(strstr(third.data + second.len, "response:find{tools:" DECLARED("a") DECLARED("b") "}"));
    /* All of them are loaded later: no system turn, nothing to call. */
    reads(COUNT, "{\"tools\":[" LATER("a") "],\"messages\":[" ASK "]}", "", &first);
    assert_null(strstr(first.data, "<|turn>system"));
    ek_buf_fini(&first);
    ek_buf_fini(&second);
    ek_buf_fini(&third);
}

#define CHANGE(kind, tool) "{\"type\":\"" kind "\",\"tool\":" tool "}"
#define NAMED(n)           "{\"type\":\"tool_reference\",\"name\":\"" n "\"}"

static void changes(void **state)
{
    (void)state;
    ek_buf first = {0}, second = {0};
    reads(COUNT, BODY(ASK), "find", &first);
    reads(COUNT, BODY(ASK ",{\"role\":\"system\",\"content\":[" CHANGE("tool_addition", NAMED("a")) "]}"), "a,find",
          &second);
    assert_non_null(strstr(second.data, "<|turn>user\nq<turn|>\n<|turn>system\n" DECLARED("a") "<turn|>"));
    reads(COUNT,
          BODY(ASK ",{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"s\"}," CHANGE(
              "tool_addition",
              "{\"type\":\"tool_definition\",\"definition\":{\"name\":\"c\",\"description\":\"D\",\"input_schema\":{"
              "\"type\":\"object\"}}}") "," CHANGE("tool_removal", NAMED("find")) "]}"),
          "c", &second);
    assert_non_null(strstr(second.data, "declaration:find{")); /* the prompt's beginning stays */
    assert_non_null(strstr(second.data, "<|turn>system\ns" DECLARED("c") "<turn|>"));
    ek_buf_fini(&first);
    ek_buf_fini(&second);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *says;
    } rows[] = {
        {BODY(ASK "," CALLED("1") "," RESULT("1", REFERS("b") "," REFERS("none"))), "messages",
         "messages[2]: the reference to the tool \"none\""},
        {"{\"messages\":[" ASK "," CALLED("1") "," RESULT("1", REFERS("x\\ny")) "]}", "messages",
         "\"x\\ny\": tools has none"},
        {BODY(ASK "," CALLED("1") "," RESULT("1", "{\"type\":\"tool_reference\"}")), "messages",
         "needs a text tool_name"},
        {BODY(ASK ",{\"role\":\"user\",\"content\":[" REFERS("a") "]}"), "messages",
         "blocks of type \"tool_reference\""},
        {BODY(ASK ",{\"role\":\"system\",\"content\":[" CHANGE("tool_removal", NAMED("none")) "]}"), "messages",
         "\"none\""},
        {BODY(ASK ",{\"role\":\"system\",\"content\":[" CHANGE(
             "tool_addition", "{\"type\":\"mcp_toolset_reference\",\"server_name\":\"s\"}") "]}"),
         "messages", "\"mcp_toolset_reference\""},
        {"{\"tools\":[{\"name\":\"a\",\"defer_loading\":1}],\"messages\":[" ASK "]}", "defer_loading", "true or false"},
        /* What is not loaded cannot be forced. */
        {"{\"tools\":[" FIND "," LATER("a") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"a\"},\"messages\":[" ASK
                                            "]}",
         "tool_choice", "no tool is named \"a\""},
        {"{\"tools\":[" LATER("a") "],\"tool_choice\":{\"type\":\"any\"},\"messages\":[" ASK "]}", "tool_choice",
         "no tools"},
        {"{\"tools\":[{\"type\":\"tool_search_tool_regex_20251119\",\"name\":\"tool_search_tool_regex\"}],\"messages\":[" ASK
         "]}",
         "tools", "\"tool_search_tool_regex_20251119\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        ek_err err = parse(COUNT, &r, rows[i].body);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), rows[i].says))
            fail_msg("%s: %s", rows[i].body, err ? ek_err_text() : "taken");
        if (ek_err_text()[strlen(ek_err_text()) - 1] == ' ') fail_msg("a blank at the end: \"%s\"", ek_err_text());
        assert_string_equal(r.param, rows[i].param);
        ek_api_request_fini(&r);
    }
}

static size_t counted;

static ek_err count(void *arg, const ek_json_size *size, size_t n, size_t n_new)
{
    (void)size, (void)n;
    counted += n_new;
    return counted <= *(size_t *)arg ? EK_OK : ek_fail(EK_ETOOLARGE, "too much");
}

/* A reference of 50 bytes may stand for a declaration of any size: each is counted. */
static void are_counted(void **state)
{
    (void)state;
    size_t max = 1000000;
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                            .n_vocab = 1000,
                            .ctx_tokens = 512,
                            .count = count,
                            .count_arg = &max};
    ek_buf b = {0};
    ek_api_request r = {0};
    ek_buf_str(&b, "{\"tools\":[{\"name\":\"a\",\"defer_loading\":true,\"description\":\"");
    for (int i = 0; i < 10000; i++) ek_buf_char(&b, 'd');
    ek_buf_str(&b,
               "\"}],\"messages\":[" ASK "," CALLED("1") ","
                                                         "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
                                                         "\"tool_use_id\":\"1\",\"content\":[");
    for (int i = 0; i < 1000; i++) ek_buf_str(&b, i ? "," REFERS("a") : REFERS("a"));
    ek_buf_str(&b, "]}]}]}");
    assert_int_equal(ek_api_parse(&r, &ek_dialect_anthropic_count, b.data, b.len, &limits), EK_ETOOLARGE);
    assert_in_range(counted, max, max + 11000);
    ek_api_request_fini(&r);
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references),
        cmocka_unit_test(changes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
