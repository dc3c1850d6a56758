/* Replies of Anthropic's Messages API: the exact order of a stream's events, and that a client that puts the stream
 * together has the blocks of the reply in one piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reply_case.h"
#include "text/json/json.h"

static const ek_dialect *const d = &ek_dialect_anthropic;

static void open_reply(scene *t, const char *more)
{
    ek_buf body = {0};
    ek_api_limits limits = {.n_vocab = 10};
    ek_buf_fmt(&body, "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]%s}", more);
    open_scene(t, d, body.data, &limits, "msg_1", true);
    t->r.model = "m\"x";
    t->result.n_prompt = 12;
    t->result.n_cached = 5;
    t->result.n_images = 4, t->result.n_images_kept = 3;
    d->begin(&t->out, &t->r, 0);
    ek_buf_fini(&body);
}

static void finish(scene *t, ek_turn_end end)
{
    t->result.n_tokens = 7;
    end_scene(t, end);
}

/* The events as a list of their data; each event has its own name before it. */
static json_t *events(const ek_buf *b)
{
    json_t *list = json_array();
    for (const char *p = b->data; *p;) {
        const char *data = strstr(p, "\ndata: "), *stop = strstr(p, "\n\n");
        assert_true(data && stop && data < stop && !strncmp(p, "event: ", 7));
        json_t *v;
        assert_int_equal(ek_json_read(&v, data + 7, (size_t)(stop - data) - 7, 0), EK_OK);
        const char *type = json_string_value(ek_json_get(v, "type"));
        assert_int_equal(strlen(type), data - p - 7);
        assert_memory_equal(type, p + 7, strlen(type));
        json_array_append_new(list, v);
        p = stop + 2;
    }
    return list;
}

static void append(json_t *block, const char *key, const json_t *text)
{
    ek_buf b = {0};
    ek_buf_str(&b, json_string_value(json_object_get(block, key)));
    ek_buf_str(&b, json_string_value(text));
    json_object_set_new_nocheck(block, key, json_string_nocheck(ek_buf_text(&b)));
    ek_buf_fini(&b);
}

/* Puts the blocks together as the SDK does, strictly. */
static json_t *blocks_of(const json_t *list)
{
    json_t *blocks = json_array(), *open = NULL;
    ek_buf input = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i), *delta = ek_json_get(e, "delta");
        const char *type = json_string_value(ek_json_get(e, "type")), *kind;
        if (!strcmp(type, "content_block_start")) {
            assert_null(open);
            assert_int_equal(json_integer_value(ek_json_get(e, "index")), json_array_size(blocks));
            open = json_incref((json_t *)(uintptr_t)ek_json_get(e, "content_block"));
            json_array_append_new(blocks, open);
            ek_buf_clear(&input);
        } else if (!strcmp(type, "content_block_delta")) {
            assert_non_null(open);
            assert_int_equal(json_integer_value(ek_json_get(e, "index")), json_array_size(blocks) - 1);
            kind = json_string_value(ek_json_get(delta, "type"));
            if (!strcmp(kind, "text_delta")) append(open, "text", ek_json_get(delta, "text"));
            else if (!strcmp(kind, "thinking_delta")) append(open, "thinking", ek_json_get(delta, "thinking"));
            else if (!strcmp(kind, "signature_delta")) append(open, "signature", ek_json_get(delta, "signature"));
            else ek_buf_str(&input, json_string_value(ek_json_get(delta, "partial_json")));
        } else if (!strcmp(type, "content_block_stop")) {
            json_t *v;
            assert_non_null(open);
            if (input.len) {
                if (ek_json_read(&v, input.data, input.len, 0)) fail_msg("input %s", input.data);
                json_object_set_new_nocheck(open, "input", v);
            }
            open = NULL;
            ek_buf_clear(&input);
        }
    }
    assert_null(open);
    ek_buf_fini(&input);
    return blocks;
}

/* Closes the scene. want: types of the events without ping. The stream's blocks must be those of the whole. */
static void check(scene *t, const char *want, const char *want_blocks)
{
    ek_buf types = {0}, whole = {0}, one = {0}, two = {0};
    json_t *list = events(&t->out), *blocks = blocks_of(list), *v;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(ek_json_get(json_array_get(list, i), "type"));
        if (!strcmp(type, "ping")) continue;
        if (!strncmp(type, "content_block_", 14)) type += 14;
        ek_buf_fmt(&types, "%s%s", types.len ? " " : "", type);
    }
    if (want) assert_string_equal(types.data, want);
    t->r.stream = false;
    d->end(&whole, &t->r);
    assert_int_equal(ek_json_read(&v, whole.data, whole.len, 0), EK_OK);
    ek_json_write(&one, blocks);
    ek_json_write(&two, ek_json_get(v, "content"));
    assert_string_equal(one.data, two.data);
    if (want_blocks) assert_string_equal(two.data, want_blocks);
    /* What the stream says of the whole message, it says at its ends. */
    const json_t *delta = json_array_get(list, json_array_size(list) - 2);
    assert_true(json_equal(ek_json_get(v, "usage"), ek_json_get(delta, "usage")));
    assert_true(json_equal(ek_json_get(v, "stop_reason"), ek_json_get(ek_json_get(delta, "delta"), "stop_reason")));
    json_decref(v);
    json_decref(list);
    json_decref(blocks);
    ek_buf *all[] = {&types, &whole, &one, &two, &t->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_buf_fini(all[i]);
    ek_answer_fini(&t->result.answer);
    ek_api_request_fini(&t->req);
}

static void thinking_text_and_calls(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, "");
    say(&t, EK_REPLY_REASONING, "h\"", 0);
    say(&t, EK_REPLY_REASONING, "m", 0);
    say(&t, EK_REPLY_CONTENT, " ", 0);
    say(&t, EK_REPLY_CONTENT, "\xC3\xA9", 0);
    say(&t, EK_REPLY_CALL_START, "f", 0);
    say(&t, EK_REPLY_CALL_ARGS, "{\"a\":", 0);
    say(&t, EK_REPLY_CALL_ARGS, "1}", 0);
    say(&t, EK_REPLY_CALL_END, "", 0);
    say(&t, EK_REPLY_CALL_START, "g", 1);
    say(&t, EK_REPLY_CALL_ARGS, "{}", 1);
    say(&t, EK_REPLY_CALL_END, "", 1);
    finish(&t, EK_END_CALLS);
    json_t *list = events(&t.out);
    const json_t *start = ek_json_get(json_array_get(list, 0), "message"), *u = ek_json_get(start, "usage");
    assert_string_equal(json_string_value(ek_json_get(start, "id")), "msg_1");
    assert_string_equal(json_string_value(ek_json_get(start, "role")), "assistant");
    assert_string_equal(json_string_value(ek_json_get(start, "model")), "m\"x");
    assert_true(json_is_null(ek_json_get(start, "stop_reason")));
    assert_int_equal(json_array_size(ek_json_get(start, "content")), 0);
    assert_int_equal(json_integer_value(ek_json_get(u, "input_tokens")), 7);
    assert_int_equal(json_integer_value(ek_json_get(u, "cache_read_input_tokens")), 5);
    assert_int_equal(json_integer_value(ek_json_get(u, "image_tokens")), 4);
    assert_int_equal(json_integer_value(ek_json_get(u, "cached_image_tokens")), 3);
    const json_t *signature = ek_json_get(ek_json_get(json_array_get(list, 5), "delta"), "signature");
    assert_true(json_string_length(signature) > 8); /* before the block's stop, never empty */
    json_decref(list);
    json_t *blocks = events(&t.out);
    json_t *b = blocks_of(blocks);
    assert_int_equal(json_array_size(b), 4);
    assert_string_equal(json_string_value(ek_json_get(json_array_get(b, 0), "thinking")), "h\"m");
    assert_string_equal(json_string_value(ek_json_get(json_array_get(b, 1), "text")), " \xC3\xA9");
    assert_memory_equal(json_string_value(ek_json_get(json_array_get(b, 2), "id")), "toolu_", 6);
    json_decref(b);
    json_decref(blocks);
    check(&t,
          "message_start start delta delta delta stop start delta stop start delta delta stop start delta stop "
          "message_delta message_stop",
          NULL);
}

static void blanks_are_no_block(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, "");
    say(&t, EK_REPLY_REASONING, "x", 0);
    say(&t, EK_REPLY_CONTENT, "\n", 0);
    say(&t, EK_REPLY_CONTENT, "\n", 0);
    say(&t, EK_REPLY_CALL_START, "f", 0);
    say(&t, EK_REPLY_CALL_ARGS, "{}", 0);
    say(&t, EK_REPLY_CALL_END, "", 0);
    say(&t, EK_REPLY_CONTENT, "after", 0);
    finish(&t, EK_END_CALLS);
    check(&t, "message_start start delta delta stop start delta stop start delta stop message_delta message_stop",
          NULL);
    open_reply(&t, "");
    say(&t, EK_REPLY_CONTENT, " ", 0);
    finish(&t, EK_END_STOP);
    check(&t, "message_start message_delta message_stop", "[]");
    open_reply(&t, "");
    finish(&t, EK_END_STOP);
    check(&t, "message_start message_delta message_stop", "[]");
}

/* A call that the limit cut: the same input streamed and whole, and valid. */
static void cut_calls(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, "");
    say(&t, EK_REPLY_CALL_START, "f", 0);
    say(&t, EK_REPLY_CALL_ARGS, "{\"city\":\"Os", 0);
    say(&t, EK_REPLY_CALL_CUT, "\"}", 0);
    finish(&t, EK_END_MAX_TOKENS);
    assert_non_null(strstr(t.out.data, "\"stop_reason\":\"max_tokens\""));
    ek_buf want = {0};
    char id[32];
    ek_call_id(id, "toolu_", "msg_1", 0);
    ek_buf_fmt(&want, "[{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":\"f\",\"input\":{\"city\":\"Os\"}}]", id);
    check(&t, "message_start start delta delta stop message_delta message_stop", want.data);
    ek_buf_fini(&want);
}

static void omitted_thinking_is_in_the_signature(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}");
    say(&t, EK_REPLY_REASONING, "secret", 0);
    say(&t, EK_REPLY_CONTENT, "x", 0);
    finish(&t, EK_END_STOP);
    assert_null(strstr(t.out.data, "secret"));
    assert_null(strstr(t.out.data, "thinking_delta"));
    check(&t, "message_start start delta stop start delta stop message_delta message_stop",
          "[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"ek1+c2VjcmV0\"},"
          "{\"type\":\"text\",\"text\":\"x\"}]");
}

static void ends(void **state)
{
    (void)state;
    static const struct {
        ek_turn_end end;
        const char *says;
    } cases[] = {{EK_END_STOP, "\"stop_reason\":\"end_turn\",\"stop_sequence\":null"},
                 {EK_END_STOP_STRING, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"b\\\"\""},
                 {EK_END_CALLS, "\"stop_reason\":\"tool_use\""},
                 {EK_END_MAX_TOKENS, "\"stop_reason\":\"max_tokens\""},
                 {EK_END_CONTEXT, "\"stop_reason\":\"model_context_window_exceeded\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene t;
        open_reply(&t, ",\"stop_sequences\":[\"a\",\"b\\\"\"]");
        t.result.stop_string = 1;
        finish(&t, cases[i].end);
        assert_non_null(strstr(t.out.data, cases[i].says));
        check(&t, NULL, "[]");
    }
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type;
    } kinds[] = {{400, "invalid_request_error"},
                 {401, "authentication_error"},
                 {403, "permission_error"},
                 {404, "not_found_error"},
                 {413, "request_too_large"},
                 {429, "rate_limit_error"},
                 {500, "api_error"},
                 {503, "overloaded_error"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ek_buf b = {0}, want = {0};
        d->error(&b, kinds[i].status, "bad \"x\"", "p", NULL);
        ek_buf_fmt(&want, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"bad \\\"x\\\"\"}}",
                   kinds[i].type);
        assert_string_equal(b.data, want.data);
        ek_buf_fini(&b);
        ek_buf_fini(&want);
    }
    scene t;
    open_reply(&t, "");
    ek_buf_clear(&t.out);
    d->failed(&t.out, &t.r, 0, "it broke");
    json_t *list = events(&t.out);
    assert_int_equal(json_array_size(list), 1);
    json_decref(list);
    ek_buf_fini(&t.out);
    ek_api_request_fini(&t.req);
}

static void a_ping_says_how_far_the_prompt_is_read(void **state)
{
    (void)state;
    ek_buf b = {0};
    ek_dialect_anthropic.heartbeat_progress(&b, &(ek_api_progress){.total = 9, .cached = 2, .read = 5, .seconds = 1.5});
    assert_string_equal(b.data, "event: ping\ndata: {\"type\":\"ping\",\"prompt_progress\":{\"total\":9,\"cache\":2,"
                                "\"processed\":5,\"time_ms\":1500}}\n\n");
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ping_says_how_far_the_prompt_is_read),
        cmocka_unit_test(thinking_text_and_calls),
        cmocka_unit_test(blanks_are_no_block),
        cmocka_unit_test(cut_calls),
        cmocka_unit_test(omitted_thinking_is_in_the_signature),
        cmocka_unit_test(ends),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
