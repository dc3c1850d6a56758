/* Loops: what is found is compared with the plain definition, and nothing but the end of a reply changes. */
#include "helper.h"

#include <stdlib.h>

#include "chat/loops.h"
#include "text/json/json.h"

/* The shortest period of the last EK_LOOP_TOKENS of n tokens, by its definition; 0: none. */
static int period_of(const int32_t *tokens, int n)
{
    for (int p = 1; n >= EK_LOOP_TOKENS && p <= EK_LOOP_PERIOD; p++) {
        int i = n - EK_LOOP_TOKENS + p;
        while (i < n && tokens[i] == tokens[i - p]) i++;
        if (i == n) return p;
    }
    return 0;
}

static void periods(void **state)
{
    (void)state;
    enum { N = 1500 };
    static int32_t tokens[N];
    int found = 0;
    for (int seed = 0; seed < 300; seed++) {
        unsigned s = (unsigned)seed * 2654435761u + 1;
        const int from = seed % 400, p = 1 + seed % 60, broken = from + 150 + seed % 200;
        for (int i = 0; i < N; i++) {
            s = s * 1664525u + 1013904223u;
            const int32_t fresh = (int32_t)(s >> 16) % (seed % 3 ? 1000 : 3);
            tokens[i] = i >= from + p && i != broken ? tokens[i - p] : fresh;
        }
        ek_loops l = {0};
        for (int i = 0; i < N; i++) {
            const int got = ek_loops_token(&l, tokens[i]), want = period_of(tokens, i + 1);
            if (got != want) fail_msg("seed %d, token %d: period %d, not %d", seed, i, got, want);
            found += got > 0;
        }
    }
    assert_true(found > 10000);
    /* The first 199 of one token are none; the longest period is one. */
    ek_loops l = {0};
    for (int i = 1; i < 200; i++) assert_int_equal(ek_loops_token(&l, 7), 0);
    assert_int_equal(ek_loops_token(&l, 7), 1);
    for (int p = EK_LOOP_PERIOD; p <= EK_LOOP_PERIOD + 1; p++) {
        l = (ek_loops){0};
        for (int i = 0; i < 400; i++) assert_int_equal(ek_loops_token(&l, i % p) == p, i >= 199 && p == EK_LOOP_PERIOD);
    }
}

static void calls(void **state)
{
    (void)state;
    static const char args[] = "{\"b\":[1,2],\"a\":\"x\"}";
    ek_conversation c = {0};
    ek_past_calls past;
    ek_loops l = {0};
    for (int i = 0; i < 3; i++) {
        ek_message *m = ek_conversation_add(&c, EK_ROLE_ASSISTANT);
        add_call(m, "1", "f", i == 1 ? "{ \"a\": \"x\", \"b\": [1, 2] }" : args);
        add_call(m, "2", "g", args);
        add_call(m, "3", "f", i ? "{\"a\":\"x\",\"b\":[2,1]}" : "{\"a\":\"x\"}");
    }
    ek_past_calls_make(&past, &c);
    assert_int_equal(past.n, 9);
    for (int i = 1; i < past.n; i++) assert_true(past.of[i - 1] <= past.of[i]);
    assert_false(ek_loops_call(&l, &past, "h", args, strlen(args)));
    assert_false(ek_loops_call(&l, &past, "f", "{\"a\":\"y\",\"b\":[1,2]}", 19));
    assert_false(ek_loops_call(&l, &past, "f", "{\"a\":\"x\",\"b\":[2,1]}", 19)); /* the third */
    assert_true(
        ek_loops_call(&l, &past, "f", "{\"a\":\"x\",\"b\":[2,1]}", 19)); /* the fourth, of this reply the second */
    assert_true(ek_loops_call(&l, &past, "f", "{\"a\":\"x\",\"b\": [1,2]}", 20));
    assert_true(ek_loops_call(&l, &past, "g", args, strlen(args)));
    ek_past_calls_fini(&past);
    l = (ek_loops){0}; /* without a past */
    for (int i = 0; i < 3; i++) assert_false(ek_loops_call(&l, NULL, "f", "cut {", 5));
    assert_true(ek_loops_call(&l, NULL, "f", "cut {", 5));
    ek_conversation_fini(&c);
}

static void ignore(void *arg, const ek_reply_event *e)
{
    (void)arg, (void)e;
}

/* A turn that is fed these tokens; it is closed by the caller. */
static ek_turn *turn_of(const ek_turn_prompt *prompt, const ek_turn_opts *opts, const ek_ids *tokens, int times)
{
    ek_turn *t;
    assert_int_equal(ek_turn_open(&t, pocket(), prompt, opts, ignore, NULL), EK_OK);
    for (int k = 0; k < times; k++)
        for (size_t i = 0; i < tokens->len && ek_turn_result_of(t)->end == EK_END_NONE; i++) {
            const ek_turn_news news = {.token = tokens->data[i], .n_prompt = (int)prompt->ids.len};
            ek_turn_feed(t, &news);
        }
    return t;
}

static void a_turn_ends_where_it_loops(void **state)
{
    (void)state;
    ek_turn_prompt prompt = {.ids = ids_of("<bos>Hello")};
    ek_ids words = ids_of(" one two three");
    ek_turn_opts opts = {.max_tokens = 5000, .sampling = ek_sampling_greedy()};
    for (int stops = 0; stops < 2; stops++) {
        opts.stop_loops = stops;
        ek_turn *t = turn_of(&prompt, &opts, &words, 300);
        const ek_turn_result *r = ek_turn_result_of(t);
        assert_int_equal(r->loop, EK_LOOP_OF_TOKENS);
        assert_int_equal(r->loop_period, (int)words.len);
        assert_int_equal(r->loop_at, EK_LOOP_TOKENS);
        assert_int_equal(r->end, stops ? EK_END_LOOP : EK_END_NONE);
        assert_int_equal(r->n_tokens, stops ? EK_LOOP_TOKENS : 300 * (int)words.len);
        assert_true(r->answer.content.len > 0);
        ek_turn_close(t);
    }
    ek_ids_fini(&words);
    ek_ids_fini(&prompt.ids);
}

static void a_turn_ends_with_its_fourth_call(void **state)
{
    (void)state;
    ek_turn_prompt prompt = {.ids = ids_of("<bos>Hello")};
    ek_ids call = ids_of("<|tool_call>call:f{a:1}<tool_call|>");
    json_t *tools;
    static const char text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"a\":{\"type\":\"integer\"}}}}}]";
    assert_int_equal(ek_json_read(&tools, text, strlen(text), 0), EK_OK);
    ek_conversation c = {0};
    ek_past_calls past;
    for (int i = 0; i < 2; i++) add_call(ek_conversation_add(&c, EK_ROLE_ASSISTANT), "", "f", "{\"a\":1}");
    ek_past_calls_make(&past, &c);
    ek_turn_opts opts = {.max_tokens = 5000,
                         .sampling = ek_sampling_greedy(),
                         .tools = tools,
                         .tools_active = true,
                         .past_calls = &past};
    for (int stops = 0; stops < 2; stops++) {
        opts.stop_loops = stops;
        ek_turn *t = turn_of(&prompt, &opts, &call, 4);
        const ek_turn_result *r = ek_turn_result_of(t);
        assert_int_equal(r->loop, EK_LOOP_OF_CALLS);
        assert_int_equal(r->loop_at, 2 * (int)call.len);
        assert_int_equal(r->end, stops ? EK_END_LOOP : EK_END_NONE);
        assert_int_equal(r->answer.n_calls, stops ? 2 : 4);
        ek_turn_close(t);
    }
    ek_past_calls_fini(&past);
    ek_conversation_fini(&c);
    json_decref(tools);
    ek_ids_fini(&call);
    ek_ids_fini(&prompt.ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(periods),
        cmocka_unit_test(calls),
        cmocka_unit_test(a_turn_ends_where_it_loops),
        cmocka_unit_test(a_turn_ends_with_its_fourth_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
