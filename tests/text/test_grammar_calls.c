/* grammar: tool calls in Gemma's notation, thoughts, and what of these may stand in one reply. */
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "text/reply/call_args.h"
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

/* --- names of arguments that look like syntax --- */

/* Whether the call can be written: token by token all of it is allowed. `S` in text, a byte 0xff, is <|"|>. */
static bool can_write(const ek_grammar *g, const ek_buf *text, bool bytes, ek_ids *ids)
{
    int32_t quote = ek_tokenizer_id(tokenizer, "<|\"|>");
    ids->len = 0;
    assert_int_equal(ek_encode(tokenizer, "<|tool_call>", 12, NULL, EK_CONTROL_ALL, ids), EK_OK);
    for (size_t i = 0; i < text->len;) {
        size_t n = 0;
        while (i + n < text->len && text->data[i + n] != '\xff') n++;
        for (size_t k = 0; bytes && k < n; k++) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", (uint8_t)text->data[i + k]);
            ek_ids_add(ids, ek_tokenizer_id(tokenizer, name));
        }
        if (!bytes && n) assert_int_equal(ek_encode(tokenizer, text->data + i, n, NULL, 0, ids), EK_OK);
        if (i + n < text->len) ek_ids_add(ids, quote);
        i += n + 1;
    }
    ek_ids_add(ids, ek_tokenizer_id(tokenizer, "<tool_call|>"));
    ek_grammar_state *s = ek_grammar_state_open(g, vocab, NULL, 0, false);
    bool allowed = true;
    for (size_t i = 0; i < ids->len && allowed; i++) {
        uint64_t row[128];
        bool all;
        ek_grammar_look(s, NULL, 0, 128, row, &all);
        allowed = all || row[ids->data[i] / 64] >> ids->data[i] % 64 & 1;
        ek_grammar_accept(s, ids->data[i]);
    }
    ek_grammar_state_close(s);
    return allowed;
}

/* What the reply parser makes of the tokens: the arguments of the one call. A new reference. */
static json_t *arguments_of(const ek_ids *ids, const json_t *tools, bool stream)
{
    ek_answer answer = {0};
    ek_reply_opts o = {
        .tools_active = true, .stream_calls = stream, .tools = tools, .sink = ek_reply_collect, .arg = &answer};
    ek_reply *r = ek_reply_open(tokenizer, &o);
    for (size_t i = 0; i < ids->len; i++) ek_reply_feed(r, ids->data[i]);
    ek_reply_end(r, false);
    json_t *v = NULL;
    if (answer.n_calls == 1) ek_json_read(&v, ek_buf_text(&answer.calls[0].args), answer.calls[0].args.len, 0);
    ek_reply_close(r);
    ek_answer_fini(&answer);
    return v;
}

static void put_name(ek_buf *b, const char *s, size_t n, bool quoted)
{
    if (quoted) ek_buf_char(b, '\xff');
    ek_buf_add(b, s, n);
    if (quoted) ek_buf_char(b, '\xff');
    ek_buf_char(b, ':');
}

/* A name, and what follows: a value of a kind, and another member. */
static void put_call(ek_buf *b, const char *s, size_t n, bool quoted, int kind)
{
    static const char *const values[] = {"\xffv:w}\xff", "-1.5e3", "true", "{}", "[{},[\xffx\xff]]"};
    ek_buf_clear(b);
    ek_buf_str(b, "call:f{in:{");
    put_name(b, s, n, quoted);
    ek_buf_fmt(b, "%s}}", values[kind]);
}

typedef struct place {
    const char *what;
    bool required, strict, declared, more; /* more: other names may stand beside it */
} place;

static const place places[] = {
    {"auto", false, false, true, true},
    {"strict", false, true, true, false},
    {"strict, open", false, true, true, true},
    {"forced", true, false, true, false},
    {"forced, open", true, false, true, true},
    {"dictionary", true, false, false, true},
    {"auto dictionary", false, false, false, true},
};

static json_t *tools_with(const place *p, const char *name, size_t n)
{
    json_t *inner = json_pack("{s:s}", "type", "object");
    if (p->declared) {
        json_t *properties = json_object();
        json_object_setn_new_nocheck(properties, name, n, json_object());
        json_object_set_new(inner, "properties", properties);
        if (p->more) json_object_set_new(inner, "additionalProperties", json_true());
    }
    json_t *outer = json_pack("{s:s,s:{s:o},s:b}", "type", "object", "properties", "in", inner, "additionalProperties",
                              0);
    json_t *tools = json_array();
    json_array_append_new(tools, tool("f", outer, p->strict ? 1 : -1));
    return tools;
}

static void check_name(const place *p, const char *name, size_t n, bool bare_too)
{
    json_t *tools = tools_with(p, name, n);
    ek_grammar *g;
    ek_reply_form form = {.calls_required = p->required};
    assert_int_equal(ek_grammar_open(&g, vocab, &form, tools, false), EK_OK);
    ek_buf text = {0};
    ek_ids ids = {0};
    bool bare_was = true;
    for (int k = 0; k < 2 * 2 * 2 * 5; k++) {
        bool quoted = k & 1, bytes = k & 2;
        put_call(&text, name, n, quoted, k / 8);
        bool allowed = can_write(g, &text, bytes, &ids);
        if (!allowed && (quoted ? !bare_was || (p->more && bare_too) : bare_too))
            fail_msg("%s: the name %s cannot be written%s in %s", p->what, name, quoted ? " with quotes" : "",
                     text.data);
        if (!quoted) bare_was = allowed && ek_call_name_is_bare(name, n);
        if (!quoted && !ek_call_name_is_bare(name, n)) continue; /* it means something else */
        if (!allowed) continue;
        json_t *v = arguments_of(&ids, tools, k & 4);
        const json_t *in = json_object_get(v, "in");
        if (json_object_size(in) != 1 || !json_object_getn(in, name, n)) {
            char *got = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
            fail_msg("%s: %s is read as %s", p->what, text.data, got ? got : "nothing");
        }
        json_decref(v);
    }
    ek_ids_fini(&ids);
    ek_buf_fini(&text);
    ek_grammar_close(g);
    json_decref(tools);
}

static void names_are_written_as_they_are_declared(void **state)
{
    (void)state;
    static const char *const bare[] =
        {"x=y",  "filter[status]", "f(a, b)", "a]b",   "(",    "[x",  "a\\b", "`a`",
         "a\"b", "it's",           "a b",     "x=y=z", "$ref", "@id", "a/b",  "\xC3\xA9[\xE6\x97\xA5]",
         "p=[1]"},
                             *const known[] = {"",   " a",  "a ", "a:b",  "a:1", "a:true", "=",     "=x",    ",",
                                               ",a", "a,b", "{",  "a}b",  "{a}", "]",      ")",     "\"a\"", "'a'",
                                               "\n", "a:",  ":",  "a::b", "\"",  "'",      "x='y'", "a{b:c"},
                             *const quoted[] = {"}", "}:", "},b", "x:{a", "x:[1", "a:}", "a:1,b"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        for (size_t k = 0; k < sizeof bare / sizeof *bare; k++) {
            /* what is not declared is told by itself: its commas and what may be a value look like others */
            bool as_is = places[i].declared || !(strchr(bare[k], ',') || strchr(bare[k], '='));
            if (!strcmp(bare[k], "x=y")) as_is = true;
            check_name(&places[i], bare[k], strlen(bare[k]), as_is);
        }
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            check_name(&places[i], known[k], strlen(known[k]), places[i].declared);
        for (size_t k = 0; k < sizeof quoted / sizeof *quoted; k++)
            check_name(&places[i], quoted[k], strlen(quoted[k]), false);
    }
}

/* Every name of up to three of these characters, and pairs that begin alike. */
static void any_names_come_back(void **state)
{
    (void)state;
    static const char odd[] = "()[]{}=,:'\"\\ a1-\n";
    dice d = {.seed = 4711};
    for (int i = 0; i < 1500; i++) {
        char name[8];
        size_t n = roll(&d, 5);
        for (size_t k = 0; k < n; k++) name[k] = odd[roll(&d, sizeof odd - 1)];
        name[n] = '\0';
        check_name(&places[roll(&d, 5)], name, n, false);
    }
}

/* A declared name that another begins with, and names that are not declared beside one that is. */
static void names_that_begin_alike_are_kept_apart(void **state)
{
    (void)state;
    json_t *tools = json_array(), *v;
    json_array_append_new(
        tools,
        tool(
            "f",
            read_json("{\"type\":\"object\",\"properties\":{\"a\":{},\"a:b\":{},\"a:1\":{},\"a=b\":{},\"a:true:x\":{}},"
                      "\"additionalProperties\":true}"),
            -1));
    static const struct {
        const char *text, *want;
    } calls[] = {{"{a:1}", "{\"a\":1}"},
                 {"{a:1:1}", "{\"a:1\":1}"},
                 {"{a:1,a:b:2}", "{\"a\":1,\"a:b\":2}"},
                 {"{a:12,a=b:3}", "{\"a\":12,\"a=b\":3}"},
                 {"{a:true,b:1}", "{\"a\":true,\"b\":1}"},
                 {"{a:true:x:1}", "{\"a:true:x\":1}"},
                 {"{a:\xffx\xff,c:\xff\xff}", "{\"a\":\"x\",\"c\":\"\"}"}};
    for (int auto_call = 0; auto_call < 2; auto_call++) {
        ek_grammar *g;
        assert_int_equal(ek_grammar_open(&g, vocab, &(ek_reply_form){.calls_required = !auto_call}, tools, false),
                         EK_OK);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            ek_buf text = {0}, got = {0};
            ek_ids ids = {0};
            ek_buf_fmt(&text, "call:f%s", calls[i].text);
            bool order = !auto_call && i >= 2 && i <= 3; /* by schema they come sorted: a, a:1, a:b, a:true:x, a=b */
            if (!can_write(g, &text, i & 1, &ids) && !order) fail_msg("%s cannot be written", calls[i].text);
            v = arguments_of(&ids, tools, i & 1);
            ek_json_write(&got, v);
            assert_string_equal(ek_buf_text(&got), calls[i].want);
            json_decref(v);
            ek_buf_fini(&got);
            ek_buf_fini(&text);
            ek_ids_fini(&ids);
        }
        ek_grammar_close(g);
    }
    json_decref(tools);
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
        cmocka_unit_test(names_are_written_as_they_are_declared),
        cmocka_unit_test(any_names_come_back),
        cmocka_unit_test(names_that_begin_alike_are_kept_apart),
        cmocka_unit_test(the_first_token_is_constrained),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
