/* What /render says is what the same conversation's prompt is, whichever API it comes through: a router asks in the
 * form of chat completions for all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "chat/order.h"
#include "serve/api/dialect.h"
#include "text/json/json.h"

static ek_chat_model model;

static int open_model(void **state)
{
    (void)state;
    return ek_chat_model_open(&model, "models/pocket") ? -1 : 0;
}

static int close_model(void **state)
{
    (void)state;
    ek_chat_model_close(&model);
    return 0;
}

static ek_err prepare(const ek_dialect *d, ek_api_request *r, ek_turn_prompt *p, const char *body)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                            .n_vocab = ek_tokenizer_size(model.tokenizer),
                            .ctx_tokens = 4096};
    return ek_api_prepare(r, p, d, &model, body, strlen(body), &limits);
}

/* {"token_ids":[…]} of the prompts that a path which generates something makes of the body. */
static ek_buf ids_of(const ek_dialect *d, const char *body, bool list)
{
    ek_api_request r;
    ek_turn_prompt p;
    ek_buf out = {0};
    if (prepare(d, &r, &p, body)) fail_msg("%s: %s", ek_err_text(), body);
    if (list) ek_buf_char(&out, '[');
    for (int k = 0; k <= r.n_more; k++) {
        const ek_ids *ids = k ? &r.more[k - 1].ids : &p.ids;
        ek_buf_str(&out, k ? ",{\"token_ids\":[" : "{\"token_ids\":[");
        for (size_t i = 0; i < ids->len; i++) ek_buf_fmt(&out, i ? ",%d" : "%d", ids->data[i]);
        ek_buf_str(&out, "]}");
    }
    if (list) ek_buf_char(&out, ']');
    ek_turn_prompt_fini(&p);
    ek_api_request_fini(&r);
    return out;
}

static void is_rendered(const ek_dialect *render, const char *asked, const ek_dialect *real, const char *body)
{
    ek_api_request r;
    ek_turn_prompt p;
    if (prepare(render, &r, &p, asked)) fail_msg("%s: %s", ek_err_text(), asked);
    ek_buf want = ids_of(real, body, render == &ek_dialect_completions_render);
    assert_string_equal(r.answer.data, want.data);
    ek_buf_fini(&want);
    ek_turn_prompt_fini(&p);
    ek_api_request_fini(&r);
}

/* The bodies as they are, with what says how to answer. */
static void the_same_body(void **state)
{
    (void)state;
    static const char *const chats[] = {
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi <|turn>\"}],\"stream\":true,\"max_tokens\":5,"
        "\"stream_options\":{\"include_usage\":true},\"n\":2,\"logprobs\":true,\"provider\":[1]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}],"
        "\"reasoning_effort\":\"high\",\"response_format\":{\"type\":\"json_object\"}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}],"
        "\"add_generation_prompt\":false,\"continue_final_message\":true}",
    };
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        is_rendered(&ek_dialect_chat_render, chats[i], &ek_dialect_openai_chat, chats[i]);
    static const char *const texts[] = {
        "{\"prompt\":\"a b\",\"max_tokens\":5,\"stream\":true}",
        "{\"prompt\":[\"a\",\"<bos>b <|turn>\",\"c\"],\"n\":2}",
        "{\"prompt\":[[5,6],[7]],\"echo\":true}",
        "{\"prompt\":[5,6,7],\"add_special_tokens\":true}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        is_rendered(&ek_dialect_completions_render, texts[i], &ek_dialect_openai_completions, texts[i]);
}

#define TOOL_CHAT                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"The weather.\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]"
#define TOOL_ANTHROPIC                                                                        \
    "\"max_tokens\":9,\"tools\":[{\"name\":\"get_weather\",\"description\":\"The weather.\"," \
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}]"
#define TOOL_RESPONSES                                                                             \
    "\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\",\"description\":\"The weather.\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}]"

/* Conversations in three forms. */
static const struct {
    const char *chat, *anthropic, *responses;
} same[] = {
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}",
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}", "{\"input\":\"Hello\"}"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":"
     "\"assistant\",\"content\":\"Hi.\"},{\"role\":\"user\",\"content\":\"And?\"}]}",
     "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"}],\"messages\":[{\"role\":\"user\",\"content\":"
     "\"Hello\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Hi.\"}]},{\"role\":\"user\",\"content\":"
     "[{\"type\":\"text\",\"text\":\"And?\"}]}]}",
     "{\"instructions\":\"Be brief.\",\"input\":[{\"role\":\"user\",\"content\":\"Hello\"},{\"type\":\"message\",\"role\":"
     "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi.\",\"annotations\":[]}]},{\"role\":\"user\","
     "\"content\":[{\"type\":\"input_text\",\"text\":\"And?\"}]}]}"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"Oslo and Rome?\"},{\"role\":\"assistant\",\"content\":\"Let me see.\","
     "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"
     "\"{\\\"city\\\": \\\"Oslo\\\"}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
     "\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"4 C\"},{\"role\":"
     "\"tool\",\"tool_call_id\":\"c2\",\"content\":\"20 C\"}]," TOOL_CHAT "}",
     "{" TOOL_ANTHROPIC
     ",\"messages\":[{\"role\":\"user\",\"content\":\"Oslo and Rome?\"},{\"role\":\"assistant\",\"content\":["
     "{\"type\":\"text\",\"text\":\"Let me see.\"},{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"get_weather\",\"input\":"
     "{\"city\":\"Oslo\"}},{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"get_weather\",\"input\":{\"city\":\"Rome\"}}]},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"4 C\"},{\"type\":"
     "\"tool_result\",\"tool_use_id\":\"c2\",\"content\":[{\"type\":\"text\",\"text\":\"20 C\"}]}]}]}",
     "{" TOOL_RESPONSES
     ",\"input\":[{\"role\":\"user\",\"content\":\"Oslo and Rome?\"},{\"role\":\"assistant\",\"content\":"
     "\"Let me see.\"},{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"get_weather\",\"arguments\":"
     "\"{\\\"city\\\":\\\"Oslo\\\"}\"},{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"get_weather\",\"arguments\":"
     "\"{\\\"city\\\":\\\"Rome\\\"}\"},{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"4 C\"},{\"type\":"
     "\"function_call_output\",\"call_id\":\"c2\",\"output\":\"20 C\"}]}"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"Oslo?\"},{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":"
     "\"A call.\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"
     "\"{\\\"city\\\":\\\"Oslo\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"4 C\"}],"
     "\"reasoning_effort\":\"high\"," TOOL_CHAT "}",
     "{" TOOL_ANTHROPIC ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"messages\":[{\"role\":\"user\","
     "\"content\":\"Oslo?\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"A call.\","
     "\"signature\":\"\"},{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"get_weather\",\"input\":{\"city\":\"Oslo\"}}]},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"4 C\"}]}]}",
     "{" TOOL_RESPONSES
     ",\"reasoning\":{\"effort\":\"high\"},\"input\":[{\"role\":\"user\",\"content\":\"Oslo?\"},{\"type\":"
     "\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"A call.\"}]},{\"type\":\"function_call\",\"call_id\":"
     "\"c1\",\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Oslo\\\"}\"},{\"type\":\"function_call_output\","
     "\"call_id\":\"c1\",\"output\":\"4 C\"}]}"},
};

static void the_same_conversation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        is_rendered(&ek_dialect_chat_render, same[i].chat, &ek_dialect_openai_chat, same[i].chat);
        is_rendered(&ek_dialect_chat_render, same[i].chat, &ek_dialect_anthropic, same[i].anthropic);
        is_rendered(&ek_dialect_chat_render, same[i].chat, &ek_dialect_responses, same[i].responses);
    }
}

#define CALL(id, name) "{" id "\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":{}}}"
#define ID(id)         "\"id\":\"" id "\","
#define OF(id)         "\"tool_call_id\":\"" id "\","
#define RESULT(of, s)  "{\"role\":\"tool\"," of "\"content\":\"" s "\"}"
#define ASKED          "{\"role\":\"user\",\"content\":\"u\"},"
#define CALLS(list)    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" list "]}"

/* The command `render` gives the same text: results of one id answer calls in turn. */
static void results_of_one_id(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        bool apart; /* ids are shared */
    } cases[] = {
        {ASKED CALLS(CALL(ID("x"), "f") "," CALL(ID("x"), "g") "," CALL(ID("x"), "h")) "," RESULT(
             OF("x"), "1") "," RESULT(OF("x"), "2") "," RESULT(OF("x"), "3"),
         true},
        {ASKED CALLS(CALL(ID("x"), "f") "," CALL(ID("y"), "g") "," CALL(ID("x"), "h")) "," RESULT(
             OF("x"), "1") "," RESULT(OF("y"), "2") "," RESULT(OF("x"), "3"),
         true},
        {ASKED CALLS(CALL("", "f") "," CALL("", "g")) "," RESULT("", "1") "," RESULT("", "2"), true},
        {ASKED CALLS(CALL(ID("x"), "f") "," CALL(ID("x"), "g")) "," RESULT(OF("x"), "1") "," RESULT(
             OF("x"), "2") "," CALLS(CALL(ID("x"), "h")) "," RESULT(OF("x"), "3"),
         true},
        {ASKED CALLS(CALL(ID("x"), "f") "," CALL(ID("y"), "g")) "," RESULT(OF("y"), "1") "," RESULT(OF("x"), "2"),
         false},
        {ASKED CALLS(CALL(ID("x"), "f")) "," RESULT(OF("x"), "1") "," CALLS(CALL(ID("x"), "g")) "," RESULT(OF("x"),
                                                                                                           "2"),
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf body = {0};
        ek_buf_fmt(&body, "{\"add_generation_prompt\":true,\"messages\":[%s]}", cases[i].messages);
        ek_buf want = ids_of(&ek_dialect_openai_chat, body.data, false), got = {0};
        json_t *request;
        assert_int_equal(ek_json_read(&request, body.data, body.len, 0), EK_OK);
        json_t *apart = ek_same_ids_apart(request);
        assert_int_equal(apart != NULL, cases[i].apart);
        ek_prompt p = {0};
        ek_ids ids = {0};
        assert_int_equal(ek_chat_render_request(&p, apart ? apart : request, model.variant), EK_OK);
        assert_int_equal(ek_encode(model.tokenizer, p.text.data, p.text.len, p.control, p.n_control, &ids), EK_OK);
        ek_buf_str(&got, "{\"token_ids\":[");
        for (size_t k = 0; k < ids.len; k++) ek_buf_fmt(&got, k ? ",%d" : "%d", ids.data[k]);
        ek_buf_str(&got, "]}");
        if (strcmp(got.data, want.data)) fail_msg("%s: %s", body.data, p.text.data);
        ek_prompt_fini(&p);
        ek_ids_fini(&ids);
        ek_buf_fini(&got), ek_buf_fini(&want), ek_buf_fini(&body);
        json_decref(request), json_decref(apart);
    }
}

/* A result without a call: the request is the template's. */
static void a_result_without_a_call(void **state)
{
    (void)state;
    json_t *request;
    static const char text[] = "{\"messages\":[" ASKED CALLS(CALL(ID("x"), "f") "," CALL(ID("x"), "g")) "," RESULT(
        OF("z"), "1") "]}";
    assert_int_equal(ek_json_read(&request, text, sizeof text - 1, 0), EK_OK);
    assert_null(ek_same_ids_apart(request));
    json_decref(request);
}

/* And the counts. */
static void counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        ek_api_request r, q;
        ek_turn_prompt p, real;
        ek_buf want = {0};
        assert_int_equal(prepare(&ek_dialect_responses_count, &r, &p, same[i].responses), EK_OK);
        assert_int_equal(prepare(&ek_dialect_responses, &q, &real, same[i].responses), EK_OK);
        ek_buf_fmt(&want, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", real.ids.len);
        assert_string_equal(r.answer.data, want.data);
        ek_buf_fini(&want);
        ek_turn_prompt_fini(&p);
        ek_turn_prompt_fini(&real);
        ek_api_request_fini(&r);
        ek_api_request_fini(&q);
    }
    ek_api_request r;
    ek_turn_prompt p;
    assert_int_equal(prepare(&ek_dialect_responses_count, &r, &p, "{\"instructions\":\"Be brief.\"}"), EK_OK);
    ek_turn_prompt_fini(&p);
    ek_api_request_fini(&r);
    assert_int_equal(prepare(&ek_dialect_responses_count, &r, &p, "{}"), EK_EINVAL);
    ek_turn_prompt_fini(&p);
    ek_api_request_fini(&r);
}

/* What does not fit is refused with its true length, whichever API it comes through. */
static void too_long(void **state)
{
    (void)state;
    static const int words[] = {4096, 6000, 100000};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ek_buf text = {0};
        for (int k = 0; k < words[i]; k++) ek_buf_str(&text, k % 3 ? "word " : "Oslo, ");
        const struct {
            const ek_dialect *real, *count;
            const char *before, *behind, *param;
        } cases[] = {
            {&ek_dialect_openai_chat, &ek_dialect_chat_render, "{\"messages\":[{\"role\":\"user\",\"content\":\"",
             "\"}]}", "messages"},
            {&ek_dialect_responses, &ek_dialect_responses_count, "{\"input\":\"", "\"}", "input"},
            {&ek_dialect_anthropic, &ek_dialect_anthropic_count,
             "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}", "messages"},
            {&ek_dialect_openai_completions, &ek_dialect_completions_render, "{\"prompt\":\"", "\"}", "prompt"},
            {&ek_dialect_openai_completions, &ek_dialect_completions_render, "{\"prompt\":[\"a\",\"<bos>", "\"]}",
             "prompt"},
        };
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            ek_buf body = {0}, want = {0};
            ek_api_request r, q;
            ek_turn_prompt p, none;
            ek_buf_fmt(&body, "%s%s%s", cases[k].before, text.data, cases[k].behind);
            assert_int_equal(prepare(cases[k].count, &r, &p, body.data), EK_OK);
            size_t n = r.n_more ? r.more[0].ids.len : p.ids.len;
            ek_buf_fmt(&want, "prompt is too long: %zu tokens > 4095 maximum", n);
            assert_int_equal(prepare(cases[k].real, &q, &none, body.data), EK_ETOOLONG);
            assert_string_equal(ek_err_text(), want.data);
            assert_string_equal(q.param, cases[k].param);
            ek_turn_prompt_fini(&p);
            ek_turn_prompt_fini(&none);
            ek_api_request_fini(&r);
            ek_api_request_fini(&q);
            ek_buf_fini(&body);
            ek_buf_fini(&want);
        }
        ek_buf_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_body),
        cmocka_unit_test(the_same_conversation),
        cmocka_unit_test(results_of_one_id),
        cmocka_unit_test(a_result_without_a_call),
        cmocka_unit_test(counts),
        cmocka_unit_test(too_long),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
