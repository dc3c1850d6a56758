/* What keeps large input cheap: the size of a JSON text before it is read, rendering in linear time and to a limit,
 * encoding to a limit. */
#include "helper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "text/json/json.h"
#include "text/template/chat.h"

static size_t count(const json_t *v, size_t *containers)
{
    size_t n = 1;
    const char *key;
    json_t *member;
    *containers += json_is_object(v) || json_is_array(v);
    for (size_t i = 0; i < json_array_size(v); i++) n += count(json_array_get(v, i), containers);
    json_object_foreach((json_t *)(uintptr_t)v, key, member) n += 1 + count(member, containers);
    return n;
}

static void scan_counts_what_is_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "1",
        " [ ] ",
        "{\"a\":[1,2.5e3,-1,\"x\\\"]\",{}],\"b\":{\"c\":null,\"d\":true}}",
        "[[[[]]],\"\\\\\",[\"{\"]]",
        "{\"messages\":[{\"a\":{}},{\"b\":[{},{}]}, 3 ,{}],\"x\":[{}]}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *v = read_json(texts[i]);
        size_t containers = 0, values = count(v, &containers);
        ek_json_size s;
        ek_json_scan(&s, texts[i], strlen(texts[i]));
        assert_int_equal(s.values, values);
        assert_int_equal(s.containers, containers);
        json_decref(v);
    }
    ek_json_size s;
    ek_json_scan(&s, texts[4], strlen(texts[4]));
    assert_int_equal(s.max_list, 3);
    assert_int_equal(s.depth, 5);
    assert_int_equal(s.growth, 0);
    static const char grows[] = "{\"a\": \"b\\nc\n\x01\",\n\"d\": \"\xC3\xA4\"}";
    ek_json_scan(&s, grows, sizeof grows - 1);
    assert_int_equal(s.growth, 2 * 5); /* the escape and what stands between strings do not */
    ek_json_scan(&s, "\"\xFF\"", 3);
    assert_int_equal(s.growth, 2 * 3);
    ek_json_scan(&s, "\"\\", 2); /* a string that ends in the middle of an escape */
    assert_int_equal(s.values, 1);
    ek_json_scan(&s, "]]}[", 4);
    assert_int_equal(s.depth, 1);
}

/* What looks like a file in base64: long, and without blanks, escapes and bytes beyond ASCII. */
static void scan_tells_files_from_text(void **state)
{
    (void)state;
    enum { LONG = 4096 };
    static const struct {
        const char *end; /* of LONG digits */
        size_t coded;
    } rows[] = {{"", LONG}, {"==", LONG + 2}, {" x", 0}, {"\\/x", 0}, {"\xC3\xA4", 0}};
    char text[LONG + 16];
    ek_json_size s;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        text[0] = '"';
        memset(text + 1, 'A', LONG);
        int n = snprintf(text + 1 + LONG, 15, "%s\"", rows[i].end);
        ek_json_scan(&s, text, 1 + LONG + (size_t)n);
        assert_int_equal(s.coded, rows[i].coded);
    }
    ek_json_scan(&s, text + 2, LONG - 1); /* no string at all */
    assert_int_equal(s.coded, 0);
    text[1] = '"';
    ek_json_scan(&s, text + 1, LONG - 1); /* one that does not end, and is too short */
    assert_int_equal(s.coded, 0);
}

static json_t *calls_and_results(int n)
{
    json_t *messages = json_array(), *call = json_array();
    char id[32];
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "call_%d", i);
        json_array_append_new(call, json_pack("{s:s,s:{s:s,s:{}}}", "id", id, "function", "name",
                                              i == n / 2 ? "half" : "f", "arguments"));
    }
    json_array_append_new(messages, json_pack("{s:s,s:o}", "role", "assistant", "tool_calls", call));
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "call_%d", i);
        json_array_append_new(messages, json_pack("{s:s,s:s,s:s}", "role", "tool", "tool_call_id", id, "content", "r"));
    }
    return messages;
}

static void results_find_their_calls_at_once(void **state)
{
    (void)state;
    enum { N = 20000 }; /* the product took 24 s */
    json_t *messages = calls_and_results(N);
    ek_prompt p = {0};
    double begin = ek_thread_time();
    assert_int_equal(ek_chat_render(&p, messages, NULL, &(ek_chat_opts){0}), EK_OK);
    double took = ek_thread_time() - begin;
    print_message("measured: %d calls and results in %.0f ms\n", N, took * 1e3);
    assert_true(took < 3);
    assert_non_null(strstr(p.text.data, "response:half{value:"));
    assert_null(strstr(p.text.data, "unknown"));
    ek_prompt_fini(&p);
    json_decref(messages);
}

static void ids_of_any_kind_find_their_calls(void **state)
{
    (void)state;
    json_t *v = read_json(
        "[{\"role\":\"assistant\",\"tool_calls\":["
        "{\"id\":\"a\",\"function\":{\"name\":\"first\",\"arguments\":{}}},{\"id\":\"a\",\"function\":{\"name\":\"last\",\"arguments\":{}}},"
        "{\"function\":{\"name\":\"bare\",\"arguments\":{}}},{\"id\":1,\"function\":{\"name\":\"one\",\"arguments\":{}}},"
        "{\"id\":[2],\"function\":{\"name\":\"list\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"\"},{\"role\":\"tool\",\"content\":\"\"},"
        "{\"role\":\"tool\",\"tool_call_id\":true,\"content\":\"\"},{\"role\":\"tool\",\"tool_call_id\":[2],\"content\":\"\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"own\",\"content\":\"\"},{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"\"}]");
    ek_prompt p = {0};
    assert_int_equal(ek_chat_render(&p, v, NULL, &(ek_chat_opts){0}), EK_OK);
    const char *at = p.text.data;
    static const char *const names[] = {"last", "bare", "one", "list", "own", "unknown"};
    for (int i = 0; i < 6; i++) {
        at = strstr(at, "<|tool_response>response:");
        assert_non_null(at);
        at += strlen("<|tool_response>response:");
        if (strncmp(at, names[i], strlen(names[i])) != 0) fail_msg("result %d: %.40s", i, at);
    }
    ek_prompt_fini(&p);
    json_decref(v);
}

/* Every kind of input that makes much text of little stops at the limit. */
static void rendering_stops_at_the_limit(void **state)
{
    (void)state;
    enum { N = 100000, MAX = 10000 };
    ek_buf chars = {0};
    for (int i = 0; i < N; i++) ek_buf_char(&chars, 'x');
    json_t *zeros = json_array(), *keys = json_object();
    char key[16];
    for (int i = 0; i < N; i++) {
        json_array_append_new(zeros, json_integer(0));
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(keys, key, json_object());
    }
    json_t *results = calls_and_results(N / 4);
    json_t *cases[] = {
        json_pack("[{s:s,s:s}]", "role", "assistant", "tool_responses", chars.data),
        json_pack("[{s:s,s:O}]", "role", "assistant", "tool_responses", zeros),
        json_pack("[{s:s,s:[{s:{s:s,s:O}}]}]", "role", "assistant", "tool_calls", "function", "name", "f", "arguments",
                  keys),
        json_pack("[{s:s,s:[{s:O}]}]", "role", "assistant", "tool_responses", "response", zeros),
        json_incref(results),
        json_pack("[{s:s,s:s}]", "role", "user", "content", chars.data),
    };
    json_t *tools = json_pack("[{s:{s:s,s:s,s:{s:O}}}]", "function", "name", "f", "description", "d", "parameters",
                              "properties", keys);
    ek_chat_opts opts = {.max_bytes = MAX};
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        bool tool = i == sizeof cases / sizeof *cases;
        json_t *none = json_array();
        ek_prompt p = {0};
        ek_err err = ek_chat_render(&p, tool ? none : cases[i], tool ? tools : NULL, &opts);
        if (err != EK_ETOOLONG) fail_msg("case %zu: %d %s", i, (int)err, ek_err_text());
        assert_true(p.text.len <= (i == 5 ? MAX + N : MAX + 200)); /* never more than the limit and one text */
        ek_prompt_fini(&p);
        json_decref(none);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) json_decref(cases[i]);
    json_decref(tools);
    json_decref(results);
    json_decref(zeros);
    json_decref(keys);
    ek_buf_fini(&chars);
}

static void encoding_stops_at_the_limit(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    ek_buf text = {0};
    for (int i = 0; i < 20000; i++) ek_buf_str(&text, "a b\n");
    ek_ids all = {0};
    assert_int_equal(ek_encode(t, text.data, text.len, NULL, 0, &all), EK_OK);
    static const size_t limits[] = {0, 1, 100, 39999};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        ek_ids some = {0};
        assert_int_equal(ek_encode_max(t, text.data, text.len, NULL, 0, limits[i], &some), EK_OK);
        assert_true(some.len > limits[i] && some.len <= all.len);
        assert_memory_equal(some.data, all.data, some.len * sizeof *some.data);
        ek_ids_fini(&some);
    }
    ek_ids same = {0};
    assert_int_equal(ek_encode_max(t, text.data, text.len, NULL, 0, all.len, &same), EK_OK);
    assert_int_equal(same.len, all.len);
    ek_ids_fini(&same);
    ek_ids_fini(&all);
    ek_buf_fini(&text);
    ek_tokenizer_close(t);
}

static bool after_ten(void *arg)
{
    return ++*(int *)arg == 10;
}

/* Counting reads the text in pieces, and finds what encoding all of it finds, wherever these are cut. */
static void counts_are_lengths(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "a ",    "b\n",          "  ",    "\n\n\n",           "ab",        "\xC3\xA9",       "\xFF",
        " \xC3", "\xE2\x96\x81", "<eos>", "\xF0\x9F\x98\x80", "\xE2\x96 ", "a\xE2\x96\x81 b"};
    ek_tokenizer *t;
    ek_buf file = {0};
    assert_int_equal(ek_file_read(&file, "models/pocket/tokenizer.json", (size_t)1 << 28), EK_OK);
    assert_int_equal(ek_tokenizer_parse(&t, file.data, file.len), EK_OK);
    ek_buf_fini(&file);
    uint64_t rng = 1;
    for (int round = 0; round < 12; round++) {
        ek_buf text = {0};
        ek_ids all = {0};
        while (text.len < (round < 11 ? 300000 : 3000000)) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            ek_buf_str(&text, parts[(rng >> 33) % (round % 2 ? 4 : sizeof parts / sizeof *parts)]);
        }
        size_t control = round % 3 ? 0 : EK_CONTROL_ALL;
        assert_int_equal(ek_encode(t, text.data, text.len, NULL, control, &all), EK_OK);
        ek_count c = {0};
        ek_encode_count(t, text.data, text.len, NULL, control, &c);
        assert_true(c.exact);
        assert_int_equal(c.bytes, text.len);
        assert_int_equal(c.ids, all.len);
        for (size_t piece = 1; piece < 100 && round < 3; piece += 7) {
            ek_count small = {.piece = piece};
            ek_encode_count(t, text.data, text.len, NULL, control, &small);
            assert_true(!small.exact || small.ids == all.len);
        }
        int asked = 0; /* it ends when it is told to, and says where */
        ek_count some = {.stop = after_ten, .arg = &asked};
        ek_encode_count(t, text.data, text.len, NULL, control, &some);
        if (round == 11) {
            assert_int_equal(asked, 10);
            assert_false(some.exact);
            assert_true(some.bytes >= 600000 && some.bytes < 800000 && some.ids < all.len);
        }
        ek_ids_fini(&all);
        ek_buf_fini(&text);
    }
    ek_buf word = {0};
    for (int i = 0; i < 1000000; i++) ek_buf_str(&word, i % 7 ? "a" : "b");
    ek_ids all = {0};
    ek_count c = {0};
    assert_int_equal(ek_encode(t, word.data, word.len, NULL, 0, &all), EK_OK);
    ek_encode_count(t, word.data, word.len, NULL, 0, &c);
    assert_false(c.exact); /* a word that is longer than what is read at once */
    assert_int_equal(c.bytes, word.len);
    assert_true(c.ids >= all.len && c.ids < all.len + 10);
    ek_ids_fini(&all);
    ek_buf_fini(&word);
    ek_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_counts_what_is_read),         cmocka_unit_test(scan_tells_files_from_text),
        cmocka_unit_test(results_find_their_calls_at_once), cmocka_unit_test(counts_are_lengths),
        cmocka_unit_test(ids_of_any_kind_find_their_calls), cmocka_unit_test(rendering_stops_at_the_limit),
        cmocka_unit_test(encoding_stops_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
