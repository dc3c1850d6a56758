/* schema: bounds on what a schema may make of memory and time, whether it is refused there or, without strict, left out
 * in part. */
#include "simulate.h"
#include "taken.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

static void large_schemas_end_at_a_limit(void **state)
{
    (void)state;
    ek_grammar *g;
    json_t *deep = json_true(), *wide = json_object(), *many = json_array(), *chain = json_object(),
           *alike = json_array();
    for (int i = 0; i < 500; i++) deep = json_pack("{s:o}", "items", deep);
    for (int i = 0; i < 70000; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(wide, key, json_true());
    }
    for (int i = 0; i < 21000; i++) json_array_append_new(many, json_pack("{s:i}", "minLength", i));
    for (int i = 0; i < 5000; i++) {
        char key[32], next[32];
        snprintf(key, sizeof key, "c%d", i);
        snprintf(next, sizeof next, "#/$defs/c%d", i + 1);
        json_object_set_new(chain, key,
                            i == 4999 ? json_true()
                                      : json_pack("{s:[{s:s},{s:s}]}", "anyOf", "$ref", next, "type", "null"));
    }
    for (int i = 0; i < 17; i++) json_array_append_new(alike, json_pack("{s:s,s:i}", "type", "string", "minLength", i));
    json_t *twice = json_object(), *branches = json_array();
    for (int i = 0; i < 20000; i++) {
        char key[32];
        snprintf(key, sizeof key, "x%d", i);
        json_object_set_new(twice, key, json_true());
        json_array_append_new(branches, json_object());
    }
    json_t *levels = json_object(); /* 8 kinds of objects whose property is one of 8 kinds of objects … */
    for (int i = 0; i < 8; i++) {
        char key[8], next[16];
        snprintf(key, sizeof key, "l%d", i);
        snprintf(next, sizeof next, "#/$defs/l%d", i + 2);
        json_t *kinds = json_array();
        for (int k = 0; k < 8; k++)
            json_array_append_new(kinds,
                                  json_pack("{s:{s:{s:s}},s:[s]}", "properties", "k", "$ref", next, "required", "k"));
        json_object_set_new(levels, key, json_pack("{s:o}", "anyOf", kinds));
    }
    json_object_set_new(levels, "l8", json_pack("{s:s}", "type", "string"));
    json_object_set_new(levels, "l9", json_pack("{s:s}", "type", "number"));
    json_object_set_new(twice, "anyOf", branches);
    json_object_set_new(twice, "type", json_string("null"));
    const struct {
        json_t *schema;
        ek_err err;
        const char *says;
    } large[] = {
        {deep, EK_EINVAL, "more than 400 schemas inside each other"},
        {json_pack("{s:o}", "properties", wide), EK_ETOOLARGE, "more than 60000 names and values"},
        {json_pack("{s:o}", "anyOf", many), EK_ETOOLARGE, "more than 20000 parts"},
        {json_pack("{s:s,s:o}", "$ref", "#/$defs/c0", "$defs", chain), EK_EINVAL,
         "more than 400 schemas inside each other"},
        {json_pack("{s:[{s:s},{s:s}],s:o}", "oneOf", "$ref", "#/$defs/l0", "$ref", "#/$defs/l1", "$defs", levels),
         EK_EINVAL, "cannot be told apart"},
        {twice, EK_ETOOLARGE, "repeats itself too often"},
        {json_pack("{s:o}", "anyOf", alike), EK_EINVAL, "anyOf has more than 16 alternatives that are strings"},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = large[i].schema};
        ek_err err = ek_grammar_open(&g, vocab, &form, NULL, false);
        if (err != large[i].err || !strstr(ek_err_text(), large[i].says))
            fail_msg("%s: %d %s", large[i].says, err, ek_err_text());
        json_decref(large[i].schema);
    }
}

/* Down to the last level, and up again: a value is begun only where its end still fits. */
static void the_deepest_value_can_end(void **state)
{
    (void)state;
    json_t *schema = read_json(
        "{\"properties\":{\"n\":{\"$ref\":\"#\"},\"v\":{\"items\":{\"items\":{\"type\":\"null\"},\"minItems\":1},\"minItems\":1}},"
        "\"required\":[\"v\"]}");
    ek_grammar *g;
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
    assert_int_equal(ek_grammar_open(&g, vocab, &form, NULL, false), EK_OK);
    ek_buf text = {0};
    int levels = 0;
    while (taken(g, vocab, tokenizer, "", ek_buf_text(&text)) >= 0) { /* "n" first, while it may come */
        ek_buf deeper = {0};
        ek_buf_fmt(&deeper, "%s{\"n", ek_buf_text(&text));
        if (taken(g, vocab, tokenizer, "", deeper.data) == (int)deeper.len) {
            ek_buf_str(&text, "{\"n\":");
            levels++;
        } else {
            ek_buf_str(&text, "{\"v\":[[null]]}");
            for (int i = 0; i < levels; i++) ek_buf_str(&text, ",\"v\":[[null]]}");
        }
        ek_buf_fini(&deeper);
        assert_true(levels < 100 && text.len < 5000);
    }
    assert_int_equal(levels, 59); /* 63 levels, of which the last value takes 4 */
    ek_buf_fini(&text);
    json_decref(schema);
    ek_grammar_close(g);
}

static ek_err try_schema(json_t *schema, bool lenient)
{
    ek_grammar *g;
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema, .lenient = lenient};
    ek_err err = ek_grammar_open(&g, vocab, &form, NULL, false);
    ek_grammar_close(g);
    json_decref(schema);
    return err;
}

static long max_kib(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

#ifdef EK_SANITIZED
enum { MOST_MIB = 512 }; /* what is freed stays for a while */
#else
enum { MOST_MIB = 64 };
#endif

/* Small schemas that took forever, minutes, or all memory. */
static void small_schemas_end_soon(void **state)
{
    (void)state;
    double begin = ek_thread_time();
    json_t *doubles = json_object(), *slow = json_object(), *same = json_array(), *patterns = json_object();
    for (int i = 0; i < 60; i++) { /* each level twice in the one above it, and nothing in the last */
        char key[32], next[32];
        snprintf(key, sizeof key, "a%d", i);
        snprintf(next, sizeof next, "#/$defs/a%d", i + 1);
        json_object_set_new(doubles, key, json_pack("{s:[{s:s},{s:s}]}", "allOf", "$ref", next, "$ref", next));
    }
    json_object_set_new(doubles, "a60", json_object());
    assert_int_equal(try_schema(json_pack("{s:s,s:o}", "$ref", "#/$defs/a0", "$defs", doubles), false), EK_ETOOLARGE);

    char *name = ek_alloc(100001); /* references to references with long names */
    for (int i = 0; i < 60; i++) {
        ek_buf next = {0};
        memset(name, 'k', 100000);
        ek_buf_fmt(&next, "#/$defs/%d%s", i + 1, name);
        ek_buf key = {0};
        ek_buf_fmt(&key, "%d%s", i, i ? name : "");
        json_object_set_new(slow, key.data, i < 59 ? json_pack("{s:s}", "$ref", next.data) : json_object());
        ek_buf_fini(&next);
        ek_buf_fini(&key);
    }
    for (int i = 0; i < 20000; i++) json_array_append_new(same, json_pack("{s:s}", "$ref", "#/$defs/0"));
    assert_int_equal(try_schema(json_pack("{s:o,s:o}", "allOf", same, "$defs", slow), false), EK_ETOOLARGE);

    for (int i = 0; i < 2000; i++) { /* a pattern that is left out, as it takes too long */
        char key[32];
        snprintf(key, sizeof key, "p%d", i);
        json_object_set_new(patterns, key, json_pack("{s:s,s:s}", "type", "string", "pattern", "^([ab]?){1500}$"));
    }
    assert_int_equal(try_schema(json_pack("{s:O}", "properties", patterns), false), EK_ETOOLARGE);
    assert_int_equal(try_schema(json_pack("{s:o}", "properties", patterns), true), EK_OK);
    double took = ek_thread_time() - begin;
    print_message("measured: four schemas in %.0f ms\n", took * 1e3);
    assert_true(took < 5);

    long before = max_kib(); /* many alternatives in a place with a long name */
    json_t *inner = json_object();
    for (int i = 0; i < 5000; i++) {
        char key[32];
        snprintf(key, sizeof key, "a%d", i);
        json_object_set_new(inner, key, json_pack("{s:[{s:s}]}", "oneOf", "type", "null"));
    }
    assert_int_equal(try_schema(json_pack("{s:{s:{s:o}}}", "properties", name, "properties", inner), false), EK_OK);
    print_message("measured: %ld MiB for 5000 alternatives\n", (max_kib() - before) >> 10);
    assert_true(max_kib() - before < MOST_MIB << 10);
    free(name);
}

/* More alternatives than the automaton follows at once, and schemas beyond a limit, without strict. */
static void what_goes_beyond_a_limit_is_left_out(void **state)
{
    (void)state;
    json_t *alike = json_array(), *deep = json_true(), *wide = json_object();
    for (int i = 0; i < 20; i++) {
        json_t *kind = json_pack("{s:{s:{s:i}},s:[s]}", "properties", "kind", "const", i, "required", "kind");
        json_array_append_new(alike, kind);
    }
    json_array_append_new(alike, json_pack("{s:i}", "const", 7));
    for (int i = 0; i < 500; i++) deep = json_pack("{s:o}", "items", deep);
    for (int i = 0; i < 70000; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(wide, key, json_true());
    }
    const struct {
        json_t *schema;
        const char *ignored, *good, *bad;
    } large[] = {{json_pack("{s:{s:{s:o}}}", "properties", "u", "oneOf", alike), "#/properties/u/oneOf",
                  "{\"u\":{\"kind\":3}}", "{\"u\":8}"},
                 {deep, "...", "[[[]]]", "[[5]]"},
                 {json_pack("{s:o}", "properties", wide), "#", "{\"k1\":5}", "x"}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        ek_grammar *g;
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = large[i].schema, .lenient = true};
        assert_int_equal(ek_grammar_open(&g, vocab, &form, NULL, false), EK_OK);
        assert_int_equal(taken(g, vocab, tokenizer, "", large[i].good), -1);
        assert_true(taken(g, vocab, tokenizer, "", large[i].bad) >= 0);
        if (!strstr(ek_grammar_ignored(g), large[i].ignored)) fail_msg("%s", ek_grammar_ignored(g));
        ek_grammar_close(g);
        json_decref(large[i].schema);
    }
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_schemas_end_at_a_limit),
        cmocka_unit_test(what_goes_beyond_a_limit_is_left_out),
        cmocka_unit_test(the_deepest_value_can_end),
        cmocka_unit_test(small_schemas_end_soon),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
