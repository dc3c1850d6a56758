/* grammar: whatever a model chooses among the allowed tokens, the reply parses, is valid under the schema, and can
 * end. */
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "validate.h"

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

static ek_grammar *open_grammar(const ek_reply_form *form, const json_t *tools)
{
    ek_grammar *g;
    if (ek_grammar_open(&g, vocab, form, tools, false) != EK_OK) fail_msg("%s", ek_err_text());
    return g;
}

static void fail_value(const char *text, const json_t *schema, const char *why)
{
    char *s = json_dumps(schema, JSON_COMPACT);
    printf("%s\n%s\nschema %s\n", why, text, s);
    free(s);
    fail();
}

static void check_json(const ek_buf *text, const json_t *schema)
{
    json_t *v;
    const char *why;
    if (ek_json_read(&v, ek_buf_text(text), text->len, 0)) fail_value(ek_buf_text(text), schema, ek_err_text());
    if (!is_valid(schema, schema, v, &why)) fail_value(ek_buf_text(text), schema, why);
    json_decref(v);
}

static void check_schema(const json_t *schema, dice *d)
{
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
    ek_grammar *g = open_grammar(&form, NULL);
    bool thinking = roll(d, 3) == 0;
    reply r;
    simulate(&r, g, vocab, tokenizer, NULL, "<|turn>model\n", thinking, (int)roll(d, 150), d);
    assert_int_equal(r.answer.n_calls, 0);
    check_json(&r.answer.content, schema);
    reply_fini(&r);
    ek_grammar_close(g);
}

static const char *const schemas[] = {
    "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
    "{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
    "{\"type\":\"number\",\"exclusiveMinimum\":-0.5,\"exclusiveMaximum\":-0.25}",
    "{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}",
    "{\"type\":\"number\",\"multipleOf\":1,\"minimum\":3}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":3}",
    "{\"type\":\"string\",\"minLength\":40,\"maxLength\":41}",
    "{\"enum\":[1,12,123,1.5,\"1\",null,[1,{\"a\":2}],\"\\u00e9\\\"\\\\\"]}",
    "{\"type\":[\"string\",\"null\"],\"maxLength\":2}",
    "{\"properties\":{\"ab\":true,\"a\":{\"type\":\"integer\"},\"abc\":{\"const\":1}},\"required\":[\"abc\"],\"additionalProperties\":true}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
    "{\"type\":\"object\",\"required\":[\"z\"]}",
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"}}",
    "{\"type\":\"object\",\"properties\":{}}",
    "{\"type\":\"object\",\"properties\":{\"no\":false,\"yes\":true},\"additionalProperties\":true}",
    "{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"type\":\"null\"}],\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#\"},\"r\":{\"$ref\":\"#\"}},\"required\":[\"l\",\"r\"]}}}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
    "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,\"minItems\":1}",
    "{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":0},\"minItems\":3,\"maxItems\":4}",
    "{\"oneOf\":[{\"const\":1,\"title\":\"one\"},{\"const\":2}]}",
    "{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
    "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"k\",\"v\"],\"additionalProperties\":false},"
    "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"ab\"},\"w\":{\"type\":\"string\"}},\"required\":[\"k\",\"w\"],\"additionalProperties\":false}]}",
    "true",
    "{}",
};

static void fixed_schemas_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            dice d = {i * 1000 + seed, 0};
            json_t *schema = read_json(schemas[i]);
            check_schema(schema, &d);
            json_decref(schema);
        }
}

static void random_schemas_hold(void **state)
{
    (void)state;
    int n = getenv("SEEDS") ? atoi(getenv("SEEDS")) : 400, refused = 0;
    for (uint64_t seed = 0; seed < (uint64_t)n; seed++) {
        dice d = {seed + 1000000, 0};
        json_t *schema = random_document(&d);
        ek_grammar *g;
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        ek_err err = ek_grammar_open(&g, vocab, &form, NULL, false);
        ek_grammar_close(g);
        if (err) refused++; /* bounds that no number meets, twins in oneOf */
        else check_schema(schema, &d);
        json_decref(schema);
    }
    assert_true(refused < n / 4);
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_schemas_hold),
        cmocka_unit_test(random_schemas_hold),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
