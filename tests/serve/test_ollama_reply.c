/* Replies of Ollama's API: the lines of a stream, and that a client that puts them together has the reply in one
 * piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reply_case.h"
#include "text/json/json.h"

static void open_reply(scene *t, const ek_dialect *d)
{
    static const char body[] =
        "{\"model\":\"m\",\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    ek_api_limits limits = {.n_vocab = 10};
    open_scene(t, d, body, &limits, "ollama-1", true);
    t->r.model = "m\"x";
    t->r.created = 1700000000;
    t->r.times = (ek_api_times){0.5, 0.25, 2};
    t->result.n_prompt = 12;
    d->heartbeat(&t->out); /* while the prompt is read */
    assert_null(d->begin);
}

static void finish(scene *t, ek_turn_end end)
{
    t->result.n_tokens = 7;
    t->d->heartbeat(&t->out);
    end_scene(t, end);
}

/* Every line is JSON, none is empty: what clients do with lines fails at an empty one. */
static json_t *lines(const ek_buf *b)
{
    json_t *list = json_array(), *v;
    for (const char *p = b->data; *p;) {
        const char *end = strchr(p, '\n');
        assert_non_null(end);
        if (ek_json_read(&v, p, (size_t)(end - p), 0)) fail_msg("%.*s: %s", (int)(end - p), p, ek_err_text());
        assert_string_equal(json_string_value(ek_json_get(v, "model")), "m\"x");
        assert_string_equal(json_string_value(ek_json_get(v, "created_at")), "2023-11-14T22:13:20Z");
        json_array_append_new(list, v);
        p = end + 1;
    }
    return list;
}

static void append(ek_buf *out, const json_t *v, const char *key)
{
    const json_t *s = ek_json_get(v, key);
    if (s) ek_buf_add(out, json_string_value(s), json_string_length(s));
}

/* The last line with what all lines said. */
static json_t *joined(const json_t *list, bool generate)
{
    ek_buf content = {0}, thinking = {0};
    json_t *calls = json_array(), *last = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *line = json_array_get(list, i);
        const json_t *m = generate ? line : ek_json_get(line, "message");
        append(&content, m, generate ? "response" : "content");
        append(&thinking, m, "thinking");
        json_array_extend(calls, json_object_get(m, "tool_calls"));
        bool done = json_is_true(ek_json_get(line, "done"));
        assert_int_equal(done, i + 1 == json_array_size(list));
        last = line;
    }
    json_t *whole = json_deep_copy(last), *m = generate ? whole : json_object_get(whole, "message");
    json_object_set_new(m, generate ? "response" : "content", json_string(ek_buf_text(&content)));
    if (thinking.len) json_object_set_new(m, "thinking", json_string(thinking.data));
    if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    ek_buf_fini(&content);
    ek_buf_fini(&thinking);
    return whole;
}

static void check(scene *t)
{
    ek_buf whole = {0};
    json_t *list = lines(&t->out), *want = joined(list, t->d == &ek_dialect_ollama_generate), *got;
    t->r.stream = false;
    t->d->end(&whole, &t->r);
    if (ek_json_read(&got, whole.data, whole.len, 0)) fail_msg("%s: %s", whole.data, ek_err_text());
    if (!json_equal(got, want)) fail_msg("%s is not what %s says", whole.data, t->out.data);
    json_decref(list);
    json_decref(want);
    json_decref(got);
    ek_buf_fini(&whole);
}

static void a_chat(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, &ek_dialect_ollama_chat);
    say(&t, EK_REPLY_REASONING, "a \"thought\"", 0);
    say(&t, EK_REPLY_CONTENT, "text\n", 0);
    say(&t, EK_REPLY_CALL_START, "f", 0);
    say(&t, EK_REPLY_CALL_ARGS, "{\"a\":", 0);
    say(&t, EK_REPLY_CALL_ARGS, "1}", 0);
    say(&t, EK_REPLY_CALL_END, "", 0);
    finish(&t, EK_END_CALLS);
    assert_string_equal(
        t.out.data,
        " {\"model\":\"m\\\"x\",\"created_at\":\"2023-11-14T22:13:20Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\","
        "\"thinking\":\"a \\\"thought\\\"\"},\"done\":false}\n"
        "{\"model\":\"m\\\"x\",\"created_at\":\"2023-11-14T22:13:20Z\",\"message\":{\"role\":\"assistant\",\"content\":\"text\\n\"},"
        "\"done\":false}\n"
        "{\"model\":\"m\\\"x\",\"created_at\":\"2023-11-14T22:13:20Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
        "{\"id\":\"call_63bab77f96c8b8591fa3afc2\",\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1}}}]},\"done\":false}\n"
        " {\"model\":\"m\\\"x\",\"created_at\":\"2023-11-14T22:13:20Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
        "\"done_reason\":\"stop\",\"total_duration\":2750000003,\"load_duration\":500000001,\"prompt_eval_count\":12,"
        "\"prompt_eval_duration\":250000001,\"eval_count\":7,\"eval_duration\":2000000001,\"id\":\"ollama-1\"}\n");
    check(&t);
    close_scene(&t);
}

/* Arguments of a call that the token limit cut are an object all the same; clients read them as one. */
static void a_cut_call(void **state)
{
    (void)state;
    scene t;
    open_reply(&t, &ek_dialect_ollama_chat);
    say(&t, EK_REPLY_CALL_START, "f", 0);
    say(&t, EK_REPLY_CALL_ARGS, "{}", 0);
    say(&t, EK_REPLY_CALL_END, "", 0);
    say(&t, EK_REPLY_CALL_START, "g", 1);
    say(&t, EK_REPLY_CALL_ARGS, "{\"a\":", 1);
    say(&t, EK_REPLY_CALL_CUT, "null}", 1);
    finish(&t, EK_END_MAX_TOKENS);
    assert_non_null(strstr(t.out.data, "\"index\":1,\"name\":\"g\",\"arguments\":{\"a\":null}"));
    assert_non_null(strstr(t.out.data, "\"done_reason\":\"length\""));
    check(&t);
    close_scene(&t);
}

static void a_text(void **state)
{
    (void)state;
    static const struct {
        ek_turn_end end;
        const char *reason;
    } ends[] = {
        {EK_END_STOP, "stop"}, {EK_END_STOP_STRING, "stop"}, {EK_END_MAX_TOKENS, "length"}, {EK_END_CONTEXT, "length"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        scene t;
        uint64_t seed = 5;
        open_reply(&t, &ek_dialect_ollama_generate);
        t.r.seed = &seed;
        t.r.digest = "00000000000000ff";
        say(&t, EK_REPLY_CONTENT, "a", 0);
        say(&t, EK_REPLY_CONTENT, "", 0);
        t.d->step(&t.out, &t.r);
        t.d->step(&t.out, &t.r); /* nothing more to say */
        say(&t, EK_REPLY_CONTENT, "b", 0);
        say(&t, EK_REPLY_CONTENT, "c", 0); /* of the same step */
        say(&t, EK_REPLY_STOP, "", 0);
        finish(&t, ends[i].end);
        json_t *list = lines(&t.out);
        assert_int_equal(json_array_size(list), 3);
        assert_string_equal(json_string_value(ek_json_get(json_array_get(list, 1), "response")), "bc");
        const json_t *last = json_array_get(list, 2), *ours = ek_json_get(last, "evenkeel");
        assert_string_equal(json_string_value(ek_json_get(last, "done_reason")), ends[i].reason);
        assert_string_equal(json_string_value(ek_json_get(ours, "digest")), "00000000000000ff");
        assert_int_equal(json_integer_value(ek_json_get(ours, "seed")), 5);
        json_decref(list);
        check(&t);
        close_scene(&t);
    }
}

static void errors(void **state)
{
    (void)state;
    scene t;
    ek_buf b = {0};
    open_reply(&t, &ek_dialect_ollama_chat);
    ek_buf_clear(&t.out);
    t.d->failed(&t.out, &t.r, 0, "it \"broke\"");
    assert_string_equal(t.out.data, "{\"error\":\"it \\\"broke\\\"\"}\n");
    t.d->error(&b, 404, "no", "model", "code");
    assert_string_equal(b.data, "{\"error\":\"no\"}");
    ek_buf_fini(&b);
    close_scene(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat),
        cmocka_unit_test(a_cut_call),
        cmocka_unit_test(a_text),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
