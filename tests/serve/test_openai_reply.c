/* Replies and chunks of chat completions: their members, and that every frame is JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "text/json/json.h"

static const ek_dialect *const d = &ek_dialect_openai_chat;

/* A reply whose request said nothing of how to deliver it, or include_usage. */
typedef struct scene {
    ek_api_request req;
    ek_turn_result result[3];
    const ek_turn_result *choices[3];
    ek_api_reply r;
} scene;

static void open_with(scene *t, int n, bool stream, const char *more, bool whole_calls)
{
    ek_buf body = {0};
    ek_api_limits limits = {.n_vocab = 10, .whole_calls = whole_calls};
    ek_buf_fmt(&body, "{\"messages\":[{\"role\":\"user\"}],%s}", more);
    *t = (scene){0};
    assert_int_equal(ek_api_parse(&t->req, d, body.data, body.len, &limits), EK_OK);
    for (int i = 0; i < 3; i++) t->choices[i] = &t->result[i];
    t->r = (ek_api_reply){.id = "chatcmpl-1",
                          .model = "m\"x",
                          .fingerprint = "evenkeel-0",
                          .created = 1700000000,
                          .stream = stream,
                          .n = n,
                          .choices = t->choices,
                          .own = t->req.own,
                          .turn = &t->req.turn};
    ek_buf_fini(&body);
}

static void open_reply(scene *t, int n, bool stream, bool usage)
{
    open_with(t, n, stream, usage ? "\"stream_options\":{\"include_usage\":true}" : "\"stream_options\":{}", false);
}

static void close_reply(scene *t)
{
    for (int i = 0; i < 3; i++) ek_answer_fini(&t->result[i].answer);
    ek_api_request_fini(&t->req);
}

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
    } events[] = {
        {EK_REPLY_REASONING, "hm\n"},    {EK_REPLY_CONTENT, "a \"b\" \xC3\xA9"}, {EK_REPLY_CONTENT, ""},
        {EK_REPLY_CALL_START, "get\"w"}, {EK_REPLY_CALL_ARGS, "{\"a\":"},        {EK_REPLY_CALL_ARGS, "1}"},
        {EK_REPLY_CALL_END, ""},
    };
    ek_buf b = {0};
    scene t;
    open_reply(&t, 1, true, false);
    d->begin(&b, &t.r, 0);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        ek_reply_event e = {.kind = events[i].kind, .text = events[i].text, .n = strlen(events[i].text)};
        d->event(&b, &t.r, 0, &e);
    }
    t.result[0].end = EK_END_CALLS;
    t.r.digest = "00ff";
    d->finish(&b, &t.r, 0);
    d->end(&b, &t.r);
    close_reply(&t);
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
    assert_true(json_is_null(ek_json_get(delta(json_array_get(f, 0)), "content"))); /* no text has begun */
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 1)), "reasoning_content")), "hm\n");
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 1)), "reasoning")), "hm\n");
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

/* Two calls, the second cut by the token limit: a delta for each, with everything that it has. */
static void whole_calls(const char *more, bool by_default)
{
    static const ek_reply_event events[] = {
        {.kind = EK_REPLY_CALL_START, .text = "f", .n = 1},
        {.kind = EK_REPLY_CALL_ARGS, .text = "{\"a\":", .n = 5},
        {.kind = EK_REPLY_CALL_ARGS, .text = "1}", .n = 2},
        {.kind = EK_REPLY_CALL_END, .text = ""},
        {.kind = EK_REPLY_CONTENT, .text = "so", .n = 2},
        {.kind = EK_REPLY_CALL_START, .text = "g", .n = 1, .call = 1},
        {.kind = EK_REPLY_CALL_ARGS, .text = "{\"b", .n = 3, .call = 1},
        {.kind = EK_REPLY_CALL_CUT, .text = "\":null}", .n = 7, .call = 1},
    };
    static const char *const name[] = {"f", "g"}, *const args[] = {"{\"a\":1}", "{\"b"};
    ek_buf b = {0};
    scene t;
    open_with(&t, 1, true, more, by_default);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        ek_reply_collect(&t.result[0].answer, &events[i]);
        d->event(&b, &t.r, 0, &events[i]);
    }
    json_t *f = frames(&b);
    assert_int_equal(json_array_size(f), 3);
    for (size_t i = 0; i < 2; i++) {
        const json_t *list = ek_json_get(delta(json_array_get(f, 2 * i)), "tool_calls"),
                     *call = json_array_get(list, 0);
        const json_t *function = ek_json_get(call, "function");
        assert_int_equal(json_array_size(list), 1);
        assert_int_equal(json_integer_value(ek_json_get(call, "index")), i);
        assert_int_equal(strlen(json_string_value(ek_json_get(call, "id"))), 29);
        assert_string_equal(json_string_value(ek_json_get(call, "type")), "function");
        assert_string_equal(json_string_value(ek_json_get(function, "name")), name[i]);
        assert_string_equal(json_string_value(ek_json_get(function, "arguments")), args[i]);
    }
    assert_string_equal(json_string_value(ek_json_get(delta(json_array_get(f, 1)), "content")), "so");
    json_decref(f);
    close_reply(&t);
    ek_buf_fini(&b);
}

static void test_whole_calls(void **state)
{
    (void)state;
    whole_calls("\"evenkeel\":{\"whole_calls\":true}", false);
    whole_calls("\"evenkeel\":{\"digest\":true}", true);
}

static void test_usage_when_asked(void **state)
{
    (void)state;
    ek_buf b = {0};
    scene t;
    open_reply(&t, 2, true, true);
    t.result[0] = (ek_turn_result){.n_prompt = 5,
                                   .n_cached = 2,
                                   .n_tokens = 3,
                                   .n_reasoning = 3,
                                   .n_images = 3,
                                   .n_images_kept = 1,
                                   .n_sounds = 1};
    t.result[1] = (ek_turn_result){.n_prompt = 5, .n_cached = 2, .n_tokens = 4};
    d->begin(&b, &t.r, 0);
    d->end(&b, &t.r);
    close_reply(&t);
    json_t *f = frames(&b);
    assert_true(json_is_null(ek_json_get(json_array_get(f, 0), "usage")));
    const json_t *last = json_array_get(f, 1), *got = ek_json_get(last, "usage");
    assert_int_equal(json_array_size(ek_json_get(last, "choices")), 0);
    assert_int_equal(json_integer_value(ek_json_get(got, "total_tokens")), 12);
    const json_t *details = ek_json_get(got, "prompt_tokens_details");
    assert_int_equal(json_object_size(details), 5);
    assert_int_equal(json_integer_value(ek_json_get(details, "cached_tokens")), 2);
    assert_int_equal(json_integer_value(ek_json_get(details, "image_tokens")), 3);
    assert_int_equal(json_integer_value(ek_json_get(details, "cached_image_tokens")), 1);
    assert_int_equal(json_integer_value(ek_json_get(details, "audio_tokens")), 1);
    assert_int_equal(json_integer_value(ek_json_get(details, "cached_audio_tokens")), 0);
    assert_int_equal(json_integer_value(ek_json_get(ek_json_get(got, "completion_tokens_details"), "reasoning_tokens")),
                     3);
    json_decref(f);
    ek_buf_fini(&b);
}

static void test_failure_inside(void **state)
{
    (void)state;
    ek_buf b = {0};
    scene t;
    open_reply(&t, 3, true, false);
    d->failed(&b, &t.r, 2, "it \"broke\"");
    close_reply(&t);
    json_t *f = frames(&b);
    const json_t *x = json_array_get(f, 0), *c = json_array_get(ek_json_get(x, "choices"), 0);
    assert_int_equal(json_integer_value(ek_json_get(c, "index")), 2);
    assert_string_equal(json_string_value(ek_json_get(c, "finish_reason")), "error");
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(x, "error"), "message")), "it \"broke\"");
    assert_int_equal(json_array_size(f), 3); /* and as a frame of its own: strict parsers drop the one in the chunk */
    x = json_array_get(f, 1);
    assert_int_equal(json_object_size(x), 1);
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(x, "error"), "message")), "it \"broke\"");
    assert_string_equal(json_string_value(json_array_get(f, 2)), "DONE");
    json_decref(f);
    ek_buf_fini(&b);
}

static json_t *whole(scene *t)
{
    ek_buf b = {0};
    json_t *v;
    d->end(&b, &t->r);
    assert_int_equal(ek_json_read(&v, b.data, b.len, 0), EK_OK);
    assert_null(ek_json_get(v, "evenkeel"));
    ek_buf_fini(&b);
    return v;
}

static void add(ek_answer *a, ek_reply_kind kind, const char *text, int call)
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
    scene t;
    open_reply(&t, 1, false, false);
    ek_answer *a = &t.result[0].answer;
    t.result[0].end = EK_END_STOP;
    json_t *v = whole(&t);
    const json_t *m = message_of(v);
    assert_string_equal(json_string_value(ek_json_get(m, "content")), ""); /* a text, never left out */
    assert_true(json_is_null(ek_json_get(m, "refusal")));
    assert_null(ek_json_get(m, "tool_calls"));
    assert_null(ek_json_get(m, "reasoning_content"));
    assert_null(ek_json_get(m, "reasoning"));
    json_decref(v);

    add(a, EK_REPLY_REASONING, "think", 0);
    add(a, EK_REPLY_CALL_START, "f", 0);
    add(a, EK_REPLY_CALL_ARGS, "{}", 0);
    add(a, EK_REPLY_CALL_END, "", 0);
    t.result[0].end = EK_END_CALLS;
    v = whole(&t);
    m = message_of(v);
    assert_true(json_is_null(ek_json_get(m, "content"))); /* calls only */
    assert_string_equal(json_string_value(ek_json_get(m, "reasoning_content")), "think");
    assert_string_equal(json_string_value(ek_json_get(m, "reasoning")), "think"); /* under both names */
    const json_t *call = json_array_get(ek_json_get(m, "tool_calls"), 0);
    assert_string_equal(json_string_value(ek_json_get(ek_json_get(call, "function"), "arguments")), "{}");
    json_decref(v);
    close_reply(&t);
}

/* The first delta says which part comes first: text, as OpenAI an empty one, or none yet. */
static void test_first_delta(void **state)
{
    (void)state;
    static const struct {
        ek_reply_event e;
        const char *want;
    } cases[] = {
        {{.kind = EK_REPLY_CONTENT, .text = "a", .n = 1}, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"},
        {{.kind = EK_REPLY_REASONING, .text = "a", .n = 1}, "\"delta\":{\"role\":\"assistant\",\"content\":null}"},
        {{.kind = EK_REPLY_CALL_START, .text = "a", .n = 1}, "\"delta\":{\"role\":\"assistant\",\"content\":null}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf b = {0};
        scene t;
        open_reply(&t, 1, true, false);
        ek_reply_collect(&t.result[0].answer, &cases[i].e);
        d->begin(&b, &t.r, 0);
        if (!strstr(b.data, cases[i].want)) fail_msg("%s", b.data);
        close_reply(&t);
        ek_buf_fini(&b);
    }
}

static void test_finish_reasons(void **state)
{
    (void)state;
    static const struct {
        ek_turn_end end;
        const char *reason;
    } cases[] = {{EK_END_STOP, "stop"},
                 {EK_END_STOP_STRING, "stop"},
                 {EK_END_CALLS, "tool_calls"},
                 {EK_END_MAX_TOKENS, "length"},
                 {EK_END_CONTEXT, "length"}};
    scene t;
    open_reply(&t, 1, false, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.result[0].end = cases[i].end;
        json_t *v = whole(&t);
        const json_t *c = json_array_get(ek_json_get(v, "choices"), 0);
        assert_string_equal(json_string_value(ek_json_get(c, "finish_reason")), cases[i].reason);
        json_decref(v);
    }
    close_reply(&t);
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
        d->error(&b, kinds[i].status, "bad \xff", i ? "p" : NULL, i ? "c" : NULL);
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
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_whole_calls),
        cmocka_unit_test(test_usage_when_asked),
        cmocka_unit_test(test_failure_inside),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_first_delta),
        cmocka_unit_test(test_finish_reasons),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
