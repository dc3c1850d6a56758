/* A stream and a reply in one piece say the same, in every API, whatever the model wrote: random replies with
 * malformed calls of every kind, ended by a stop marker or by the token limit. The stream is put together as clients
 * do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash/rng.h"
#include "reply_case.h"
#include "text/json/json.h"

enum { ROUNDS = 4000, MAX_PARTS = 24 };

/* Beginnings, ends and contents of calls, and what spoils them (docs of the reply parser's tests name the sources). */
static const char *const crumbs[] = {"<|tool_call>call:f{",
                                     "<|tool_call>call:get_weather{",
                                     "<|tool_call>",
                                     "}<tool_call|>",
                                     "}<tool_call|>",
                                     "}<tool_call|>",
                                     "<tool_call|>",
                                     "<tool_call|>",
                                     "a:",
                                     "city:<|\"|>Oslo<|\"|>",
                                     ",",
                                     ",b:",
                                     "<|\"|>",
                                     "1",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     "'x'",
                                     "\"y\"",
                                     "k='v'",
                                     "call:f:BEGIN_ARG x END_ARG",
                                     "<|tool_call>call:f(k=\"v\")",
                                     " text ",
                                     "\n",
                                     "\xC3\xA9\xF0\x9F\x98\x80",
                                     "True",
                                     "<|channel>thought\n",
                                     "<channel|>",
                                     "<|tool_response>",
                                     "<turn|>",
                                     "NaN",
                                     "word"};
enum { N_CRUMBS = sizeof crumbs / sizeof *crumbs };

static const struct {
    const ek_dialect *d;
    const char *body;
} apis[] = {{&ek_dialect_openai_chat, "{\"messages\":[{\"role\":\"user\"}]}"},
            {&ek_dialect_responses, "{\"input\":\"x\",\"store\":false}"},
            {&ek_dialect_anthropic, "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"}};

static int n_dropped; /* calls of the reply */

static void open_api(scene *t, size_t api, bool stream)
{
    const ek_api_limits limits = {.n_vocab = 10, .ctx_tokens = 100};
    open_scene(t, apis[api].d, apis[api].body, &limits, "id_1", stream);
    n_dropped = 0;
}

static void on_event(void *arg, const ek_reply_event *e)
{
    n_dropped += e->kind == EK_REPLY_CALL_DROP;
    say_event(arg, e);
}

/* The reply to text. */
static void reply(scene *t, const char *text, bool limit)
{
    ek_reply_opts o = {.tools_active = true, .sink = on_event, .arg = t};
    ek_reply *r = ek_reply_open(NULL, &o);
    if (t->r.stream && t->d->begin) t->d->begin(&t->out, &t->r, 0);
    ek_reply_feed_text(r, text, strlen(text));
    ek_reply_end(r, limit);
    end_scene(t, limit && !ek_reply_stopped(r) ? EK_END_MAX_TOKENS
                 : ek_reply_calls(r) > 0       ? EK_END_CALLS
                                               : EK_END_STOP);
    ek_reply_close(r);
}

/* --- what a client makes of it --- */

static const json_t *at(const json_t *v, const char *key)
{
    return ek_json_get(v, key);
}

static const char *text_of(const json_t *v)
{
    return json_is_string(v) ? json_string_value(v) : "";
}

/* The frames that carry JSON. */
static json_t *frames(const ek_buf *b)
{
    json_t *list = json_array();
    for (const char *p = b->data; p && (p = strstr(p, "data: ")); p = strstr(p, "\n\n")) {
        const char *end = strstr(p, "\n\n");
        json_t *v;
        if (!ek_json_read(&v, p + 6, (size_t)(end - p) - 6, 0)) json_array_append_new(list, v);
    }
    return list;
}

static json_t *read_whole(const ek_buf *b)
{
    json_t *v;
    assert_int_equal(ek_json_read(&v, ek_buf_text(b), b->len, 0), EK_OK);
    return v;
}

enum { TEXTS = 64 };

/* Texts of one reply by where they belong, in the order in which they began. */
typedef struct said {
    struct {
        char name[80];
        ek_buf text;
    } at[TEXTS];
    int n;
} said;

static void add(said *s, const char *name, const char *text)
{
    int i = 0;
    while (i < s->n && strcmp(s->at[i].name, name) != 0) i++;
    assert_true(i < TEXTS);
    if (i == s->n) snprintf(s->at[s->n++].name, sizeof s->at[0].name, "%s", name);
    ek_buf_str(&s->at[i].text, text);
}

__attribute__((format(printf, 3, 4))) static void add_at(said *s, const char *text, const char *fmt, ...)
{
    char name[80];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    add(s, name, text);
}

static void forget(said *s)
{
    for (int i = 0; i < s->n; i++) ek_buf_fini(&s->at[i].text);
    s->n = 0;
}

static void add_chat_calls(said *s, const json_t *calls, bool stream)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *c = json_array_get(calls, i), *f = at(c, "function");
        int index = stream ? (int)json_integer_value(at(c, "index")) : (int)i;
        add_at(s, text_of(at(c, "id")), "call %d id", index);
        add_at(s, text_of(at(f, "name")), "call %d name", index);
        add_at(s, text_of(at(f, "arguments")), "call %d arguments", index);
    }
}

static void chat_message(said *s, const json_t *choice, const char *key, bool stream)
{
    const json_t *m = at(choice, key);
    add(s, "reasoning", text_of(at(m, "reasoning_content")));
    add(s, "content", text_of(at(m, "content")));
    add_chat_calls(s, at(m, "tool_calls"), stream);
    add(s, "end", text_of(at(choice, "finish_reason")));
}

static void hear_chat(said *s, const ek_buf *b, bool stream)
{
    json_t *v = stream ? frames(b) : read_whole(b);
    if (!stream) chat_message(s, json_array_get(at(v, "choices"), 0), "message", false);
    for (size_t i = 0; stream && i < json_array_size(v); i++)
        chat_message(s, json_array_get(at(json_array_get(v, i), "choices"), 0), "delta", true);
    json_decref(v);
}

static void response_items(said *s, const json_t *response)
{
    const json_t *output = at(response, "output");
    add(s, "end", text_of(at(response, "status")));
    for (size_t i = 0; i < json_array_size(output); i++) {
        const json_t *item = json_array_get(output, i), *part = json_array_get(at(item, "content"), 0);
        add_at(s, text_of(at(item, "type")), "%zu type", i);
        add_at(s, text_of(at(item, "status")), "%zu status", i);
        add_at(s, text_of(at(item, "name")), "%zu name", i);
        add_at(s, text_of(at(item, "call_id")), "%zu id", i);
        add_at(s, text_of(at(item, "arguments")), "%zu arguments", i);
        add_at(s, text_of(at(part, "text")), "%zu text", i);
    }
}

/* The last event has the whole response; what the deltas add up to has to be in it. */
static void hear_responses(said *s, const ek_buf *b, bool stream)
{
    json_t *v = stream ? frames(b) : read_whole(b);
    said deltas = {0};
    if (!stream) response_items(s, v);
    for (size_t i = 0; stream && i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i);
        const char *type = text_of(at(e, "type")), *delta = text_of(at(e, "delta"));
        int index = (int)json_integer_value(at(e, "output_index"));
        bool args = !strcmp(type, "response.function_call_arguments.delta");
        if (args || strstr(type, "_text.delta")) add_at(&deltas, delta, "%d %s", index, args ? "arguments" : "text");
        if (i + 1 == json_array_size(v)) response_items(s, at(e, "response"));
    }
    for (int i = 0; i < deltas.n; i++) {
        int k = 0;
        while (k < s->n && strcmp(s->at[k].name, deltas.at[i].name) != 0) k++;
        assert_true(k < s->n);
        assert_string_equal(ek_buf_text(&s->at[k].text), ek_buf_text(&deltas.at[i].text));
    }
    forget(&deltas);
    json_decref(v);
}

static void add_input(said *s, int index, const json_t *input)
{
    ek_buf b = {0};
    ek_json_write(&b, input);
    add_at(s, ek_buf_text(&b), "%d input", index);
    ek_buf_fini(&b);
}

static void anthropic_block(said *s, int index, const json_t *block)
{
    static const char *const keys[] = {"type", "id", "name", "text", "thinking"};
    for (int k = 0; k < 5; k++) add_at(s, text_of(at(block, keys[k])), "%d %s", index, keys[k]);
}

static void hear_anthropic(said *s, const ek_buf *b, bool stream)
{
    json_t *v = stream ? frames(b) : read_whole(b);
    const json_t *content = at(v, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        anthropic_block(s, (int)i, json_array_get(content, i));
        if (at(json_array_get(content, i), "input")) add_input(s, (int)i, at(json_array_get(content, i), "input"));
    }
    ek_buf input = {0};
    for (size_t i = 0; stream && i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i), *delta = at(e, "delta");
        const char *type = text_of(at(e, "type"));
        int index = (int)json_integer_value(at(e, "index"));
        if (!strcmp(type, "content_block_start")) anthropic_block(s, index, at(e, "content_block"));
        if (!strcmp(type, "content_block_start")) ek_buf_clear(&input);
        if (!strcmp(type, "content_block_delta")) {
            add_at(s, text_of(at(delta, "text")), "%d text", index);
            add_at(s, text_of(at(delta, "thinking")), "%d thinking", index);
            ek_buf_str(&input, text_of(at(delta, "partial_json")));
        }
        if (!strcmp(type, "content_block_stop") && input.len > 0) {
            json_t *whole = read_whole(&input);
            add_input(s, index, whole);
            json_decref(whole);
        }
        if (!strcmp(type, "message_delta")) add(s, "end", text_of(at(delta, "stop_reason")));
    }
    if (!stream) add(s, "end", text_of(at(v, "stop_reason")));
    ek_buf_fini(&input);
    json_decref(v);
}

static void hear(said *s, size_t api, const ek_buf *b, bool stream)
{
    if (api == 0) hear_chat(s, b, stream);
    else if (api == 1) hear_responses(s, b, stream);
    else hear_anthropic(s, b, stream);
}

static void a_stream_says_what_the_whole_says(void **state)
{
    (void)state;
    int n_malformed = 0, n_calls = 0, n_cut = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        ek_buf text = {0};
        int n = 1 + (int)(ek_mix64(round) % MAX_PARTS);
        for (int i = 0; i < n; i++) ek_buf_str(&text, crumbs[ek_mix64(round * 1000 + (uint64_t)i) % N_CRUMBS]);
        bool limit = ek_mix64(~round) & 1;
        for (size_t api = 0; api < sizeof apis / sizeof *apis; api++) {
            scene stream, whole;
            said a = {0}, b = {0};
            open_api(&stream, api, true);
            open_api(&whole, api, false);
            reply(&stream, text.data, limit);
            reply(&whole, text.data, limit);
            hear(&a, api, &stream.out, true);
            hear(&b, api, &whole.out, false);
            assert_int_equal(n_dropped, 0);
            for (int i = 0; i < b.n; i++) {
                int k = 0;
                while (k < a.n && strcmp(a.at[k].name, b.at[i].name) != 0) k++;
                const char *streamed = k < a.n ? ek_buf_text(&a.at[k].text) : "";
                if (strcmp(streamed, ek_buf_text(&b.at[i].text)) != 0)
                    fail_msg("%s, %s: streamed %s, whole %s, of %s", stream.d->path, b.at[i].name, streamed,
                             ek_buf_text(&b.at[i].text), text.data);
            }
            for (int i = 0; i < a.n; i++) { /* and nothing else */
                int k = 0;
                while (k < b.n && strcmp(a.at[i].name, b.at[k].name) != 0) k++;
                if (k == b.n && a.at[i].text.len > 0) fail_msg("%s: %s only streamed", stream.d->path, a.at[i].name);
            }
            n_calls += whole.result.answer.n_calls;
            n_malformed += strstr(ek_buf_text(&whole.result.answer.content), "<|tool_call>") != NULL;
            for (int i = 0; i < whole.result.answer.n_calls; i++) n_cut += whole.result.answer.calls[i].closing.len > 0;
            forget(&a);
            forget(&b);
            close_scene(&stream);
            close_scene(&whole);
        }
        ek_buf_fini(&text);
    }
    assert_true(n_malformed > ROUNDS / 4 && n_calls > ROUNDS / 4 && n_cut > ROUNDS / 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stream_says_what_the_whole_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
