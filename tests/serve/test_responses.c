/* The Responses API: what its items mean to the chat template, what is refused, the order of a
 * stream's events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "serve/store/response_store.h"
#include "responses_case.h"
#include "text/json/json.h"

static const ek_dialect *const d = &ek_dialect_responses;

static void items(void **state)
{
    (void)state;
    gives(NULL, "\"input\":\"hi\",\"instructions\":\"s\"",
          "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    gives(
        NULL,
        "\"input\":[{\"role\":\"developer\",\"content\":\"x-anthropic-billing-header: 1\\nd\"},{\"type\":\"message\","
        "\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]",
        "[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"user\",\"content\":\"a\\nb\"}]");
    /* Reasoning, text and calls that follow each other are one message, in order; a call that was cut was never made.
     */
    gives(
        NULL,
        "\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"hm\"}]},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"output_text\",\"text\":\"t\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
        "\"{\\\"a\\\":1}\"},{\"type\":\"function_call\",\"call_id\":\"e\",\"name\":\"f\",\"arguments\":\"{\\\"a\",\"status\":"
        "\"incomplete\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"r\"}]",
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"t\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}]");
    /* A thought is read once, wherever it stands. */
    gives(
        NULL,
        "\"input\":[{\"type\":\"reasoning\",\"content\":[],\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]}]",
        "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\"}]");
    gives(NULL,
          "\"input\":[{\"type\":\"reasoning\",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}],\"summary\":["
          "{\"type\":\"summary_text\",\"text\":\"hm\"}],\"encrypted_content\":\"ek1+aG0=\"}]",
          "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\"}]");
    ek_buf sealed = {0}, body = {0};
    ek_seal(&sealed, "hm", 2);
    ek_buf_fmt(&body, "\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"%s\"}]", sealed.data);
    gives(NULL, body.data, "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\"}]");
    ek_buf_fini(&sealed);
    ek_buf_fini(&body);
}

#define SPACE_16 "nnnnnnnnnnnnnnnn"
#define SPACE_256                                                                                               \
    SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 SPACE_16 \
        SPACE_16 SPACE_16 SPACE_16 SPACE_16

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *says;
    } cases[] = {
        {"{}", "input", "a text or a list"},
        {"{\"input\":5}", "input", "a text or a list"},
        {"{\"input\":[]}", "input", "no message"},
        {"{\"input\":[5]}", "input", "input[0]: an object"},
        {"{\"input\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "input", "role"},
        {"{\"input\":[{\"role\":\"user\"}]}", "input", "a text or a list"},
        {"{\"input\":[{\"type\":\"item_reference\"}]}", "input", "input[0]: an item_reference needs an id"},
        {"{\"input\":[{\"type\":\"item_reference\",\"id\":5}]}", "input", "needs an id"},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}", "input", "\"input_image\""},
        {"{\"input\":[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]}", "input", "call_id"},
        {"{\"input\":[{\"type\":\"function_call_output\",\"output\":\"x\"}]}", "input", "call_id"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"}]}", "tools", "web_search"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]}", "tools", "name"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\"}]}", "tools", "a list of tools"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"shell\",\"name\":\"f\"}]}]}",
         "tools", "shell"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]},"
         "{\"type\":\"function\",\"name\":\"n.f\"}]}",
         "tools", "two functions are named \"n.f\""},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"" SPACE_256 "n\",\"tools\":[]}]}", "tools",
         "257 bytes, at most 256"},
        {"{\"input\":\"x\",\"metadata\":[]}", "metadata", "an object"},
        {"{\"input\":\"x\",\"metadata\":{\"k\":5}}", "metadata", "the value of \"k\" is not a text"},
        {"{\"input\":\"x\",\"background\":true}", "background", "store has to be true"},
        {"{\"input\":\"x\",\"conversation\":5}", "conversation", "an id, or an object"},
        {"{\"input\":\"x\",\"conversation\":{\"id\":\"c\"},\"previous_response_id\":\"r\"}", "conversation",
         "exclude each other"},
        {"{\"input\":\"x\",\"prompt\":{\"id\":\"p\"}}", "prompt", "not supported"},
        {"{\"input\":\"x\",\"max_output_tokens\":0}", "max_output_tokens", "from 1"},
        {"{\"input\":\"x\",\"top_logprobs\":21}", "top_logprobs", "from 0 to 20"},
        {"{\"input\":\"x\",\"include\":\"y\"}", "include", "list"},
        {"{\"input\":\"x\",\"text\":\"json_object\"}", "text", "an object is needed"},
        {"{\"input\":\"x\",\"reasoning\":{\"effort\":1}}", "reasoning", "text"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":true}}", "reasoning", "its summary must be a text"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":\"brief\"}}", "reasoning", "not \"brief\""},
        {"{\"input\":\"x\",\"instructions\":[]}", "instructions", "text"},
        {"{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", "previous_response_id", "stores none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        ek_err err = parse(&r, NULL, cases[i].body);
        int status = strcmp(cases[i].param, "previous_response_id") ? 400 : 404;
        if (!err || ek_err_http(err) != status || !strstr(ek_err_text(), cases[i].says))
            fail_msg("%s: %s", cases[i].body, err ? ek_err_text() : "taken");
        assert_string_equal(r.param, cases[i].param);
        ek_api_request_fini(&r);
    }
}

/* Parses {"input":"x", and a member that is n copies of part (#: the number) between head and tail. */
static ek_err parse_long(ek_api_request *r, const char *head, const char *part, int n, const char *tail)
{
    ek_buf b = {0};
    ek_buf_str(&b, "{\"input\":\"x\",");
    ek_buf_str(&b, head);
    for (int i = 0; i < n; i++)
        for (const char *c = part; *c; c++)
            if (*c == '#') ek_buf_fmt(&b, "%d", i);
            else ek_buf_char(&b, *c);
    ek_buf_str(&b, tail);
    ek_err err = parse(r, NULL, b.data);
    ek_buf_fini(&b);
    return err;
}

/* What is as long as it may be is taken; one more is refused with the numbers. */
static void lengths(void **state)
{
    (void)state;
    static const struct {
        const char *param, *head, *part;
        int max;
        const char *tail, *says;
    } cases[] = {
        {"metadata", "\"metadata\":{\"k\":\"\"", ",\"#\":\"v\"", 15, "}}", "17 pairs, at most 16"},
        {"metadata", "\"metadata\":{\"", "\xC3\xA4", 64, "\":\"v\"}}", "a key has 65 characters, at most 64"},
        {"metadata", "\"metadata\":{\"k\":\"", "\xC3\xA4", 512, "\"}}",
         "the value of \"k\" has 513 characters, at most 512"},
        {NULL, "\"user\":\"", "0123456789ABCDEF", 32742, "\"}", "bytes, at most 524288"},
        {NULL, "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"more\":\"", "0123456789ABCDEF", 32737, "\"}]}",
         "bytes, at most 524288"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        if (parse_long(&r, cases[i].head, cases[i].part, cases[i].max, cases[i].tail)) fail_msg("%s", ek_err_text());
        ek_api_request_fini(&r);
        int more = cases[i].param ? 1 : 30;
        ek_err err = parse_long(&r, cases[i].head, cases[i].part, cases[i].max + more, cases[i].tail);
        if (ek_err_http(err) != (cases[i].param ? 400 : 413) || !strstr(ek_err_text(), cases[i].says))
            fail_msg("%s: %s", cases[i].head, err ? ek_err_text() : "taken");
        if (cases[i].param) assert_string_equal(r.param, cases[i].param);
        ek_api_request_fini(&r);
    }
}

/* The model knows n.f; the client sends and gets n and f. */
static void namespaces(void **state)
{
    (void)state;
    static const char body[] =
        "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"namespace\":\"n\",\"arguments\":\"{}\"}],"
        "\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"description\":\"N.\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
        "\"description\":\"F.\"},{\"type\":\"function\",\"name\":\"g\",\"strict\":true}]},{\"type\":\"function\",\"name\":\"f\"}]}";
    for (int stream = 0; stream < 2; stream++) {
        scene t;
        open_reply(&t, NULL, "resp_1", body, stream);
        char *tools = json_dumps(t.req.tools, JSON_COMPACT);
        assert_string_equal(tools,
                            "[{\"type\":\"function\",\"function\":{\"name\":\"n.f\",\"description\":\"N.\\nF.\"}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"n.g\",\"strict\":true}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
        free(tools);
        assert_string_equal(ek_buf_text(&t.req.conversation.messages[0].blocks[0].name), "n.f");
        say_call(&t, "n.g", "{}", 0);
        say_call(&t, "f", "{}", 1);
        end_scene(&t, EK_END_CALLS);
        int n = 0, spaces = 0;
        for (const char *p = t.out.data; (p = strstr(p, "\"name\":\"g\",\"namespace\":\"n\",\"arguments\"")); p++) n++;
        for (const char *p = t.out.data; (p = strstr(p, "\"namespace\":")); p++) spaces++;
        assert_int_equal(n, stream ? 4 : 1); /* added, arguments.done, done, completed */
        assert_int_equal(spaces, n);
        assert_non_null(strstr(t.out.data, "\"name\":\"f\",\"arguments\""));
        close_scene(&t);
    }
}

static void order_of_events(void **state)
{
    (void)state;
    static const char want[] =
        "created in_progress "
        "output_item.added content_part.added reasoning_text.delta reasoning_text.done content_part.done output_item.done "
        "output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done "
        "output_item.done "
        "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done "
        "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done "
        "incomplete ";
    scene t;
    open_reply(&t, NULL, "resp_1", "{\"input\":\"x\"}", true);
    say(&t, EK_REPLY_REASONING, "hm", 0);
    say(&t, EK_REPLY_CONTENT, "a", 0);
    say(&t, EK_REPLY_CONTENT, "b", 0);
    say_call(&t, "f", "{}", 0);
    say(&t, EK_REPLY_CALL_START, "g", 1);
    say(&t, EK_REPLY_CALL_ARGS, "{\"x\":\"y", 1);
    say(&t, EK_REPLY_CALL_CUT, "\"}", 1);
    end_scene(&t, EK_END_MAX_TOKENS);
    ek_buf types = {0};
    int number = 0;
    json_t *last = NULL;
    for (const char *p = t.out.data; *p; number++) {
        const char *data = strstr(p, "\ndata: "), *stop = strstr(p, "\n\n");
        assert_true(data && stop && data < stop && !strncmp(p, "event: response.", 16));
        ek_buf_add(&types, p + 16, (size_t)(data - p) - 16);
        ek_buf_char(&types, ' ');
        json_decref(last);
        assert_int_equal(ek_json_read(&last, data + 7, (size_t)(stop - data) - 7, 0), EK_OK);
        assert_int_equal(json_integer_value(ek_json_get(last, "sequence_number")), number);
        assert_memory_equal(json_string_value(ek_json_get(last, "type")), p + 7, (size_t)(data - p) - 7);
        p = stop + 2;
    }
    assert_string_equal(types.data, want);
    assert_non_null(strstr(strstr(t.out.data, "\"incomplete\""), "event: response.incomplete")); /* in its item, too */
    /* The whole response has the same items, and says the same. */
    ek_buf whole = {0};
    json_t *v;
    t.r.stream = false;
    d->end(&whole, &t.r);
    assert_int_equal(ek_json_read(&v, whole.data, whole.len, 0), EK_OK);
    assert_true(json_equal(v, ek_json_get(last, "response")));
    const json_t *cut = json_array_get(ek_json_get(v, "output"), 3);
    assert_string_equal(json_string_value(ek_json_get(cut, "arguments")), "{\"x\":\"y"); /* what was written */
    assert_string_equal(json_string_value(ek_json_get(cut, "status")), "incomplete");
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(v, "incomplete_details"), "reason")),
                        "max_output_tokens");
    json_decref(v);
    json_decref(last);
    ek_buf_fini(&types);
    ek_buf_fini(&whole);
    close_scene(&t);
}

/* A reply with a thought: its item's text, as JSON, and, of a stream, the types of the events about the item. */
static ek_buf thought_of(const char *body, bool stream, ek_turn_end end, ek_buf *types)
{
    scene t;
    ek_buf item = {0};
    json_t *v;
    open_reply(&t, NULL, "resp_1", body, stream);
    say(&t, EK_REPLY_REASONING, "so", 0);
    say(&t, EK_REPLY_REASONING, "!", 0);
    if (end == EK_END_STOP) say(&t, EK_REPLY_CONTENT, "a", 0);
    end_scene(&t, end);
    const char *last = t.out.data;
    for (const char *p = t.out.data; stream && *p; p = strstr(p, "\n\n") + 2) {
        if (strstr(p, "reasoning") < strstr(p, "\n\n")) ek_buf_fmt(types, "%.*s ", (int)strcspn(p + 16, "\n"), p + 16);
        last = strstr(p, "\ndata: ") + 7;
    }
    assert_int_equal(ek_json_read(&v, last, strlen(last), 0), EK_OK);
    const json_t *response = stream ? ek_json_get(v, "response") : v;
    json_t *first = json_array_get(ek_json_get(response, "output"), 0);
    json_object_del(first, "id");
    ek_json_write(&item, first);
    ek_buf_char(&item, ' ');
    ek_json_write(&item, ek_json_get(response, "reasoning"));
    if (stream && end == EK_END_MAX_TOKENS)
        assert_true(!strstr(body, "auto") || strstr(t.out.data, "\"text\":\"so!\"},\"status\":\"incomplete\"}"));
    json_decref(v);
    close_scene(&t);
    return item;
}

/* The thought is the summary, where one is wanted, in whole replies and in streams, with the events that OpenAI's
 * servers send. */
static void summaries(void **state)
{
    (void)state;
    static const char as_content[] = "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
                                     "\"text\":\"so!\"}]} ",
                      as_summary[] =
                          "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"so!\"}],"
                          "\"content\":[]} ",
                      sealed[] = "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"so!\"}],"
                                 "\"content\":[],\"encrypted_content\":\"ek1+c28h\"} ";
    static const struct {
        const char *body, *item, *echo;
    } cases[] = {
        {"{\"input\":\"x\"}", as_content, "{\"effort\":null,\"summary\":null}"},
        {"{\"input\":\"x\",\"reasoning\":{\"effort\":\"low\",\"summary\":null}}", as_content,
         "{\"effort\":\"low\",\"summary\":null}"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":\"auto\"}}", as_summary, "{\"summary\":\"auto\"}"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":\"concise\"}}", as_summary, "{\"summary\":\"concise\"}"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":\"detailed\"}}", as_summary, "{\"summary\":\"detailed\"}"},
        {"{\"input\":\"x\",\"reasoning\":{\"generate_summary\":\"auto\"}}", as_summary,
         "{\"generate_summary\":\"auto\"}"},
        {"{\"input\":\"x\",\"reasoning\":{\"summary\":\"auto\"},\"include\":[\"reasoning.encrypted_content\"]}", sealed,
         "{\"summary\":\"auto\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 4; k++) {
            ek_buf types = {0}, want = {0};
            ek_buf got = thought_of(cases[i].body, k & 1, k & 2 ? EK_END_MAX_TOKENS : EK_END_STOP, &types);
            ek_buf_fmt(&want, "%s%s", cases[i].item, cases[i].echo);
            assert_string_equal(got.data, want.data);
            if (k & 1 && cases[i].item == as_summary)
                assert_non_null(strstr(types.data, "output_item.added reasoning_summary_part.added "
                                                   "reasoning_summary_text.delta reasoning_summary_text.delta "
                                                   "reasoning_summary_text.done reasoning_summary_part.done "
                                                   "output_item.done "));
            ek_buf_fini(&got);
            ek_buf_fini(&want);
            ek_buf_fini(&types);
        }
}

static void failures_have_a_beginning(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, NULL, "resp_1", "{\"input\":\"x\"}", false);
    say(&t, EK_REPLY_CONTENT, "went out before", 0);
    t.r.stream = true;
    t.result.end = EK_END_ERROR;
    d->failed(&t.out, &t.r, 0, "it broke");
    const char *created = strstr(t.out.data, "event: response.created"),
               *failed = strstr(t.out.data, "event: response.failed");
    assert_true(created == t.out.data && failed && strstr(failed, "\"message\":\"it broke\"") &&
                strstr(failed, "\"output\":[]"));
    close_scene(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items),      cmocka_unit_test(refusals),        cmocka_unit_test(lengths),
        cmocka_unit_test(namespaces), cmocka_unit_test(order_of_events), cmocka_unit_test(failures_have_a_beginning),
        cmocka_unit_test(summaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
