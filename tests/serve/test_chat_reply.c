/* Replies and chunks of the chat API: the exact bytes, and that every frame is JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/chat_reply.h"
#include "text/json.h"

static const ek_chat_head head = {"chatcmpl-1", "m\"x", "evenkeel-0", 1700000000, false};

/* The frames of a stream as a list of JSON values; "[DONE]" becomes the text DONE. */
static json_t *frames(const ek_buf *b)
{
    json_t *list = json_array();
    for (const char *p = b->data; *p;) {
        const char *end = strstr(p, "\n\n");
        assert_non_null(end);
        assert_memory_equal(p, "data: ", 6);
        json_t *v = NULL;
        if (!strncmp(p + 6, "[DONE]", 6)) v = json_string("DONE");
        else assert_int_equal(ek_json_read(&v, p + 6, (size_t)(end - p) - 6, 0), EK_OK);
        json_array_append_new(list, v);
        p = end + 2;
    }
    return list;
}

static const json_t *delta(const json_t *frame)
{
    return ek_json_get(json_array_get(ek_json_get(frame, "choices"), 0), "delta");
}

static void test_stream(void **state)
{
    (void)state;
    static const struct {
        ek_reply_kind kind;
        const char *text;
    } said[] = {
        {EK_REPLY_REASONING, "hm\n"},    {EK_REPLY_CONTENT, "a \"b\" \xC3\xA9"}, {EK_REPLY_CONTENT, ""},
        {EK_REPLY_CALL_START, "get\"w"}, {EK_REPLY_CALL_ARGS, "{\"a\":"},        {EK_REPLY_CALL_ARGS, "1}"},
        {EK_REPLY_CALL_END, ""},
    };
    ek_buf b = {0};
    ek_chat_chunk_role(&b, &head, 0);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        ek_reply_event e = {.kind = said[i].kind, .text = said[i].text, .n = strlen(said[i].text)};
        ek_chat_chunk_delta(&b, &head, 0, &e);
    }
    ek_chat_chunk_finish(&b, &head, 0, "tool_calls", "00ff", NULL);
    ek_chat_done(&b);
    json_t *f = frames(&b);
    assert_int_equal(json_array_size(f), 8); /* empty content and the call's end are no frames */
    for (size_t i = 0; i < 7; i++) {
        const json_t *x = json_array_get(f, i), *c = json_array_get(ek_json_get(x, "choices"), 0);
        assert_string_equal(json_string_value(ek_json_get(x, "object")), "chat.completion.chunk");
        assert_string_equal(json_string_value(ek_json_get(x, "model")), "m\"x");
        assert_null(ek_json_get(x, "usage"));
        assert_int_equal(json_is_null(ek_json_get(c, "finish_reason")), i < 6);
    }
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 0)), "role")), "assistant");
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 0)), "content")), "");
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 1)), "reasoning_content")), "hm\n");
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 2)), "content")), "a \"b\" \xC3\xA9");
    const json_t *call = json_array_get(ek_json_get(delta(json_array_get(f, 3)), "tool_calls"), 0);
    assert_string_equal(json_string_value(ek_json_get(call, "type")), "function");
    assert_int_equal(strlen(json_string_value(ek_json_get(call, "id"))), 29);
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(call, "function"), "name")), "get\"w");
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(call, "function"), "arguments")), "");
    const json_t *more = json_array_get(ek_json_get(delta(json_array_get(f, 4)), "tool_calls"), 0);
    assert_null(ek_json_get(more, "id")); /* never repeated */
    assert_null(ek_json_get(ek_json_get(more, "function"), "name"));
    const json_t *last = json_array_get(f, 6);
    assert_int_equal(json_object_size(delta(last)), 0);
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(last, "evenkeel"), "digest")), "00ff");
    assert_string_equal(json_string_value(json_array_get(f, 7)), "DONE");
    json_decref(f);
    ek_buf_fini(&b);
}

static void test_usage_when_asked(void **state)
{
    (void)state;
    ek_chat_head h = head;
    h.include_usage = true;
    ek_chat_usage u = {.prompt = 5, .cached = 2, .completion = 7, .reasoning = 3};
    ek_buf b = {0};
    ek_chat_chunk_role(&b, &h, 0);
    ek_chat_chunk_usage(&b, &h, &u);
    json_t *f = frames(&b);
    assert_true(json_is_null(ek_json_get(json_array_get(f, 0), "usage")));
    const json_t *last = json_array_get(f, 1), *got = ek_json_get(last, "usage");
    assert_int_equal(json_array_size(ek_json_get(last, "choices")), 0);
    assert_int_equal(json_integer_value(ek_json_get(got, "total_tokens")), 12);
    assert_int_equal(json_integer_value(ek_json_get(ek_json_get(got, "prompt_tokens_details"), "cached_tokens")), 2);
    assert_int_equal(json_integer_value(ek_json_get(ek_json_get(got, "completion_tokens_details"), "reasoning_tokens")),
                     3);
    json_decref(f);
    ek_buf_fini(&b);
}

static void test_failure_inside(void **state)
{
    (void)state;
    ek_buf b = {0};
    ek_chat_chunk_finish(&b, &head, 2, "error", NULL, "it \"broke\"");
    json_t *f = frames(&b);
    const json_t *x = json_array_get(f, 0), *c = json_array_get(ek_json_get(x, "choices"), 0);
    assert_int_equal(json_integer_value(ek_json_get(c, "index")), 2);
    assert_string_equal(json_string_value(ek_json_get(c, "finish_reason")), "error");
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(x, "error"), "message")), "it \"broke\"");
    json_decref(f);
    ek_buf_fini(&b);
}

static json_t *whole(ek_answer *a, const char *finish)
{
    ek_chat_choice c = {a, finish};
    ek_chat_usage u = {.prompt = 1, .completion = 1};
    ek_buf b = {0};
    json_t *v;
    ek_chat_whole(&b, &head, &c, 1, &u, NULL);
    assert_int_equal(ek_json_read(&v, b.data, b.len, 0), EK_OK);
    assert_null(ek_json_get(v, "evenkeel"));
    ek_buf_fini(&b);
    return v;
}

static void say(ek_answer *a, ek_reply_kind kind, const char *text, int call)
{
    ek_reply_event e = {.kind = kind, .text = text, .n = strlen(text), .call = call};
    ek_reply_collect(a, &e);
}

static const json_t *message_of(const json_t *reply)
{
    return ek_json_get(json_array_get(ek_json_get(reply, "choices"), 0), "message");
}

static void test_whole(void **state)
{
    (void)state;
    ek_answer a = {0};
    json_t *v = whole(&a, "stop");
    const json_t *m = message_of(v);
    assert_string_equal(json_string_value(ek_json_get(m, "content")), ""); /* a text, never left out */
    assert_true(json_is_null(ek_json_get(m, "refusal")));
    assert_null(ek_json_get(m, "tool_calls"));
    assert_null(ek_json_get(m, "reasoning_content"));
    json_decref(v);

    say(&a, EK_REPLY_REASONING, "think", 0);
    say(&a, EK_REPLY_CALL_START, "f", 0);
    say(&a, EK_REPLY_CALL_ARGS, "{}", 0);
    say(&a, EK_REPLY_CALL_END, "", 0);
    v = whole(&a, "tool_calls");
    m = message_of(v);
    assert_true(json_is_null(ek_json_get(m, "content"))); /* calls only */
    assert_string_equal(json_string_value(ek_json_get(m, "reasoning_content")), "think");
    const json_t *call = json_array_get(ek_json_get(m, "tool_calls"), 0);
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(call, "function"), "arguments")), "{}");
    json_decref(v);
    ek_answer_fini(&a);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type;
    } kinds[] = {{400, "invalid_request_error"},
                 {404, "not_found_error"},
                 {413, "invalid_request_error"},
                 {429, "rate_limit_error"},
                 {503, "server_error"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ek_buf b = {0};
        json_t *v;
        ek_error_body(&b, kinds[i].status, "bad \xff", i ? "p" : NULL, i ? "c" : NULL);
        assert_int_equal(ek_json_read(&v, b.data, b.len, 0), EK_OK);
        const json_t *e = ek_json_get(v, "error");
        assert_string_equal(json_string_value(ek_json_get(e, "type")), kinds[i].type);
        assert_string_equal(json_string_value(ek_json_get(e, "message")), "bad \xEF\xBF\xBD");
        assert_int_equal(json_is_null(ek_json_get(e, "param")), i == 0);
        assert_int_equal(json_is_null(ek_json_get(e, "code")), i == 0);
        json_decref(v);
        ek_buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream), cmocka_unit_test(test_usage_when_asked), cmocka_unit_test(test_failure_inside),
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
