/* grammar: tool calls in Gemma's notation, thoughts, and what of these may stand in one reply. */
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "validate.h"

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

static json_t *tool(const char *name, json_t *parameters, int strict)
{
    json_t *f = json_pack("{s:s}", "name", name);
    if (parameters) json_object_set_new(f, "parameters", parameters);
    if (strict >= 0) json_object_set_new(f, "strict", json_boolean(strict));
    return json_pack("{s:s,s:o}", "type", "function", "function", f);
}

static const json_t *tool_named(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (!strcmp(json_string_value(json_object_get(f, "name")), name)) return f;
    }
    fail_msg("the tool \"%s\" was called, which does not exist", name);
    return NULL;
}

static void check_calls(const ek_answer *a, const json_t *tools, bool all_strict)
{
    for (int i = 0; i < a->n_calls; i++) {
        const json_t *f = tool_named(tools, a->calls[i].name), *schema = json_object_get(f, "parameters");
        json_t *v;
        const char *why;
        if (ek_json_read(&v, ek_buf_text(&a->calls[i].args), a->calls[i].args.len, 0)) fail_msg("%s", ek_err_text());
        assert_true(json_is_object(v));
        if (schema && (all_strict || json_is_true(json_object_get(f, "strict"))) &&
            !is_valid(schema, schema, v, &why)) {
            char *s = json_dumps(schema, JSON_COMPACT);
            fail_msg("%s: %s under %s", why, ek_buf_text(&a->calls[i].args), s);
        }
        if (!schema && all_strict) assert_int_equal(json_object_size(v), 0);
        json_decref(v);
    }
}

static json_t *random_tools(dice *d, bool strict)
{
    static const char *const names[] = {"a", "ab", "get_weather", "mcp.x:y/z-1", "\xC3\xA9"};
    json_t *tools = json_array();
    for (int i = 0; i < 5; i++) {
        if (roll(d, 3) == 0) continue;
        json_array_append_new(
            tools, tool(names[i], roll(d, 6) ? random_document(d) : NULL, strict ? (int)roll(d, 3) - 1 : -1));
    }
    if (json_array_size(tools) == 0) json_array_append_new(tools, tool("only", random_document(d), -1));
    return tools;
}

static void run(const ek_reply_form *form, const json_t *tools, bool one_call, dice *d, reply *r, bool *made)
{
    static const char *const prompts[] = {"<|turn>model\n", "<|turn>model\n<|channel>thought\n<channel|>",
                                          "<tool_response|><|channel>thought\n"};
    ek_grammar *g;
    ek_err err = ek_grammar_open(&g, vocab, form, tools, one_call);
    *made = !err && g;
    if (!*made) return;
    simulate(r, g, vocab, tokenizer, tools, prompts[roll(d, 3)], roll(d, 2), (int)roll(d, 200), d);
    assert_int_equal(r->n_malformed, 0);
    ek_grammar_close(g);
}

static int seeds(void)
{
    return getenv("SEEDS") ? atoi(getenv("SEEDS")) : 300;
}

static void required_calls_fit_their_schemas(void **state)
{
    (void)state;
    int runs = 0, many = 0;
    for (uint64_t seed = 0; seed < (uint64_t)seeds(); seed++) {
        dice d = {seed + 5000, 0};
        json_t *tools = random_tools(&d, false);
        bool one = roll(&d, 2), made;
        const char *name = NULL;
        if (roll(&d, 3) == 0)
            name = json_string_value(json_object_get(json_object_get(json_array_get(tools, 0), "function"), "name"));
        json_t *only = name ? json_pack("[s]", name) : NULL;
        ek_reply_form form = {.calls_required = true, .only = only};
        reply r;
        run(&form, tools, one, &d, &r, &made);
        if (made) {
            runs++;
            assert_true(r.answer.n_calls >= 1);
            if (one) assert_int_equal(r.answer.n_calls, 1);
            many += r.answer.n_calls > 1;
            assert_int_equal(r.answer.content.len, 0);
            for (int i = 0; name && i < r.answer.n_calls; i++) assert_string_equal(r.answer.calls[i].name, name);
            check_calls(&r.answer, tools, true);
            reply_fini(&r);
        }
        json_decref(only);
        json_decref(tools);
    }
    assert_true(runs > seeds() / 3 && many > 3);
}

static void strict_tools_leave_text_free(void **state)
{
    (void)state;
    int calls = 0;
    for (uint64_t seed = 0; seed < (uint64_t)seeds(); seed++) {
        dice d = {seed + 9000, 0};
        json_t *tools = random_tools(&d, true);
        ek_reply_form form = {0};
        reply r;
        bool made;
        run(&form, tools, false, &d, &r, &made);
        if (made) {
            calls += r.answer.n_calls;
            check_calls(&r.answer, tools, false);
            reply_fini(&r);
        }
        json_decref(tools);
    }
    assert_true(calls > seeds() / 10);
}

static void json_or_calls(void **state)
{
    (void)state;
    int texts = 0, calls = 0;
    for (uint64_t seed = 0; seed < (uint64_t)seeds(); seed++) {
        dice d = {seed + 20000, 0};
        json_t *tools = random_tools(&d, true), *schema = random_schema(&d, 2), *v;
        ek_reply_form form = {.text = roll(&d, 2) ? EK_TEXT_JSON_OBJECT : EK_TEXT_JSON_SCHEMA, .schema = schema};
        reply r;
        bool made;
        const char *why;
        run(&form, tools, false, &d, &r, &made);
        if (made) {
            check_calls(&r.answer, tools, false);
            calls += r.answer.n_calls > 0;
            texts += r.answer.content.len > 0;
            assert_true((r.answer.n_calls > 0) != (r.answer.content.len > 0));
            if (r.answer.content.len > 0) {
                if (ek_json_read(&v, r.answer.content.data, r.answer.content.len, 0)) fail_msg("%s", ek_err_text());
                if (form.text == EK_TEXT_JSON_OBJECT) assert_true(json_is_object(v));
                else if (!is_valid(schema, schema, v, &why)) fail_msg("%s: %s", why, r.answer.content.data);
                json_decref(v);
            }
            reply_fini(&r);
        }
        json_decref(schema);
        json_decref(tools);
    }
    assert_true(texts > seeds() / 8 && calls > seeds() / 20);
}

static void no_grammar_where_none_is_needed(void **state)
{
    (void)state;
    ek_grammar *g;
    json_t *tools = json_array();
    json_array_append_new(tools, tool("a", NULL, -1));
    json_array_append_new(tools, tool("b", json_pack("{s:s}", "pattern", "(?=x)"), 0));
    assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){0}, NULL, true), EK_OK);
    assert_null(g);
    json_t *odd = json_array(); /* a name that no call can have is left alone where nothing is asked for */
    json_array_append_new(odd, tool("a{b", NULL, -1));
    assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){0}, odd, false), EK_OK);
    assert_null(g);
    json_decref(odd);
    /* tools that are not strict: their calls are kept well-formed, their schemas are not read */
    assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){0}, tools, false), EK_OK);
    assert_non_null(g);
    ek_grammar_close(g);
    json_decref(tools);
}

/* Any text, and calls of any of the tools: what is streamed of a call is never taken back. */
static void calls_of_any_tools_are_well_formed(void **state)
{
    (void)state;
    dice d = {.seed = 77};
    int calls = 0;
    for (int i = 0; i < (int)seeds(); i++) {
        json_t *tools = json_array();
        json_array_append_new(tools, tool("a", random_document(&d), -1));
        json_array_append_new(tools, tool("get weather", NULL, -1));
        json_array_append_new(tools, tool("mcp.x:y/z-1", NULL, 0));
        ek_grammar *g;
        reply r;
        assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){0}, tools, false), EK_OK);
        simulate(&r, g, vocab, tokenizer, tools, "", roll(&d, 2), 30 + (int)roll(&d, 60), &d);
        if (r.n_malformed) fail_msg("round %d: %s", i, ek_buf_text(&r.answer.content));
        calls += r.answer.n_calls;
        reply_fini(&r);
        ek_grammar_close(g);
        json_decref(tools);
    }
    assert_true(calls > (int)seeds() / 20);
}

static void wrong_tools_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *tools, *error;
    } wrong[] = {
        {"[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{\"zip\":{\"pattern\":\"(?=x)\"}}}}}]",
         "the parameters of the tool \"f\": #/properties/zip: \"pattern\": at character 2: the lookahead (?= is not supported"},
        {"[{\"function\":{\"name\":\"f g\",\"strict\":true}}]", "a tool named \"f g\" cannot be called"},
        {"[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"string\"}}}]",
         "the parameters of the tool \"f\" must be an object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ek_grammar *g;
        json_t *tools = read_json(wrong[i].tools);
        assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){0}, tools, false), EK_EINVAL);
        assert_null(g);
        assert_string_equal(ek_err_text(), wrong[i].error);
        json_decref(tools);
    }
    ek_grammar *g;
    assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){.calls_required = true}, NULL, false), EK_EINVAL);
    assert_string_equal(ek_err_text(), "a call is required, but no tool may be called");
}

/* Rows of one prompt and draft, spelled out. */
static void what_may_come(const ek_grammar *g, const char *prompt, bool thinking, const char *so_far, const char *may)
{
    uint64_t row[128];
    bool all;
    ek_ids ids = {0}, want = {0};
    assert_int_equal(ek_encode(tokenizer, prompt, strlen(prompt), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    ek_grammar_state *s = ek_grammar_state_open(g, vocab, ids.data, ids.len, thinking);
    ids.len = 0;
    assert_int_equal(ek_encode(tokenizer, so_far, strlen(so_far), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    for (size_t i = 0; i < ids.len; i++) ek_grammar_accept(s, ids.data[i]);
    ek_grammar_look(s, NULL, 0, 128, row, &all);
    assert_false(all);
    ek_buf got = {0};
    ek_buf_str(&got, "");
    for (int32_t id = 0; id < ek_tokenizer_size(tokenizer); id++) {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(tokenizer, id, &n);
        if (!(row[id / 64] >> id % 64 & 1)) continue;
        if (got.len) ek_buf_char(&got, ' ');
        ek_buf_add(&got, bytes, n);
    }
    check_buf(&got, may);
    ek_buf_fini(&got);
    ek_ids_fini(&want);
    ek_ids_fini(&ids);
    ek_grammar_state_close(s);
}

static void the_first_token_is_constrained(void **state)
{
    (void)state;
    json_t *tools = json_array(), *boolean = json_pack("{s:s}", "type", "boolean");
    json_array_append_new(
        tools, tool("a", json_pack("{s:{s:{s:s}},s:[s]}", "properties", "b", "type", "null", "required", "b"), -1));
    ek_grammar *call, *text;
    assert_int_equal(ek_grammar_open(&call, vocab, &(ek_reply_form){.calls_required = true}, tools, false), EK_OK);
    assert_int_equal(
        ek_grammar_open(&text, vocab, &(ek_reply_form){EK_TEXT_JSON_SCHEMA, boolean, false, false, NULL}, NULL, false),
        EK_OK);
    what_may_come(call, "<|turn>model\n", false, "", "<|tool_call>");
    what_may_come(call, "<|turn>model\n", true, "", "<|tool_call> <|channel>");
    what_may_come(call, "<|turn>model\n", true, "<|channel>", "t thought thought\n");
    what_may_come(call, "<tool_response|><|channel>", true, "", "t thought thought\n");
    what_may_come(call, "<tool_response|><|channel>thought\n", true, "hm<channel|>", "<|tool_call>");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>", "c call call: call:a{");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>call:a{", "b b:");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>call:a{b:", "n null");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>call:a{b:null", "}");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>call:a{b:null}", "<tool_call|>");
    what_may_come(call, "<|turn>model\n", false, "<|tool_call>call:a{b:null}<tool_call|>",
                  "<eos> <|tool_call> <|tool_response> <turn|>");
    what_may_come(text, "<|turn>model\n", false, "", "f t true false");
    what_may_come(text, "<|turn>model\n", false, "true", "<eos> <turn|>");
    ek_grammar_close(call);
    ek_grammar_close(text);
    json_decref(tools);
    json_decref(boolean);
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_calls_fit_their_schemas),
        cmocka_unit_test(strict_tools_leave_text_free),
        cmocka_unit_test(json_or_calls),
        cmocka_unit_test(no_grammar_where_none_is_needed),
        cmocka_unit_test(calls_of_any_tools_are_well_formed),
        cmocka_unit_test(wrong_tools_are_refused),
        cmocka_unit_test(the_first_token_is_constrained),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
