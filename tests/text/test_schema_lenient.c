/* schema without strict: what a grammar keeps of a schema, what it says of the rest, and that the rest forbids nothing.
 */
#include "simulate.h"
#include "taken.h"

#include <stdio.h>

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

/* What is kept, and what is said of the rest. */
typedef struct loose {
    const char *schema, *ignored, *good[6], *bad[6];
} loose;

static const loose left_out[] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^(?=x)y\"}},\"required\":[\"a\"],\"minProperties\":5}",
     "#/minProperties, #/properties/a/pattern",
     {"{\"a\":\"y\"}"},
     {"{}", "{\"a\":\"x", "{\"a\":1"}},
    {"{\"properties\":{\"a b\":{\"not\":{\"type\":\"string\"}},\"c\":{\"const\":1}},\"required\":[\"c\"]}",
     "#/properties/a%20b/not",
     {"{\"a b\":5,\"c\":1}", "{\"c\":1}"},
     {"{}", "{\"c\":2"}},
    /* what is left out may speak of other properties and types */
    {"{\"properties\":{\"a\":{\"const\":1}},\"not\":{\"maxProperties\":1}}",
     "#/not",
     {"{\"a\":1,\"b\":2}", "7"},
     {"{\"a\":2"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"if\":{\"required\":[\"a\"]},\"then\":{\"required\":[\"b\"]}}",
     "#/if",
     {"{\"a\":1,\"b\":2}", "{}"},
     {"{\"a\":2", "7"}},
    {"{\"minLength\":3,\"not\":{\"type\":\"string\"}}", "#/not", {"1", "\"abc\"", "[]"}, {"\"ab\""}},
    {"{\"allOf\":[{\"$ref\":\"http://x/y\"},{\"properties\":{\"a\":{\"const\":1}}}],\"type\":\"object\"}",
     "#/$ref",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":2"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"dependentSchemas\":{\"a\":{\"required\":[\"b\"]}}}",
     "#/dependentSchemas",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":2"}},
    {"{\"$dynamicRef\":\"#n\",\"minimum\":3}", "#/$dynamicRef", {"3", "\"x\""}, {"2"}},
    /* names by patterns */
    {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"const\":1}},\"additionalProperties\":false}",
     "#/patternProperties",
     {"{\"x-a\":1}", "{}"},
     {"{\"x-a\":2"}},
    {"{\"properties\":{\"a\":{\"const\":0}},\"patternProperties\":{\"^x-\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}",
     "#/patternProperties",
     {"{\"a\":0,\"x-a\":1,\"b\":2}"},
     {"{\"b\":3", "{\"a\":1"}},
    {"{\"properties\":{\"a\":{\"const\":0}},\"patternProperties\":{\"^x-\":{\"const\":1}}}",
     "#/patternProperties",
     {"{\"a\":0,\"b\":2}"},
     {"{\"a\":1"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^a\"},\"additionalProperties\":{\"const\":1}}",
     "#/propertyNames",
     {"{\"b\":1}"},
     {"{\"b\":2"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"const\":1},\"required\":[\"a\"]}",
     "",
     {"{\"a\":1,\"b\":1}"},
     {"{\"c\"", "{}", "{\"a\":2"}},
    /* lists */
    {"{\"items\":{\"const\":1},\"uniqueItems\":true,\"contains\":{\"const\":1}}",
     "#/contains, #/uniqueItems",
     {"[1,1]"},
     {"[2"}},
    {"{\"prefixItems\":{},\"items\":{\"const\":1}}", "#/prefixItems, #/items", {"[2,\"x\"]", "1"}, {"x"}},
    {"{\"allOf\":[{\"items\":[{\"const\":1}]},{\"additionalItems\":false}]}", "", {"[1,1,2]"}, {"[2"}},
    /* alternatives and references */
    {"{\"oneOf\":[{\"$ref\":\"#/$defs/c\"},{\"$ref\":\"#/$defs/d\"}],\"discriminator\":{\"propertyName\":\"k\",\"mapping\":{}},"
     "\"$defs\":{\"c\":{\"type\":\"object\",\"title\":\"C\",\"properties\":{\"k\":{\"const\":\"c\",\"default\":\"c\",\"type\":\"string\"}}},"
     "\"d\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"d\",\"default\":\"d\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}}}",
     "",
     {"{\"k\":\"c\"}", "{\"k\":\"d\",\"n\":1}", "{\"n\":1}"},
     {"{\"k\":\"e", "7"}},
    {"{\"properties\":{\"n\":{\"$ref\":\"#\",\"minProperties\":1}},\"type\":\"object\"}",
     "#/properties/n/minProperties",
     {"{\"n\":{\"n\":{}}}"},
     {"{\"n\":1"}},
    {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"allOf\":[{\"properties\":{\"k\":{\"allOf\":[{\"$ref\":\"#/$defs/n\"}],\"not\":true}}},"
     "{\"type\":\"object\"}]}}}",
     "#/$defs/n/properties/k/not, #/$defs/n/properties/k/properties/k/not",
     {"{\"k\":{\"k\":{}}}"},
     {"{\"k\":1"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/$defs/x\",\"type\":\"null\",\"$defs\":{\"x\":{\"const\":1}}}",
     "#",
     {"1"},
     {"null"}},
    {"{\"$ref\":\"#/$defs/x\",\"minimum\":3,\"$defs\":{\"x\":{\"type\":\"integer\",\"maximum\":5}}}",
     "",
     {"3", "5"},
     {"2", "6", "3.5"}},
    {"{\"allOf\":[{\"minimum\":1},{\"minimum\":3,\"type\":[\"integer\",\"null\"]},{\"type\":\"number\"}]}",
     "",
     {"3"},
     {"1", "null", "3.5"}},
    {"{\"allOf\":[{\"properties\":{\"k\":{\"enum\":[1,2]}}},{\"properties\":{\"k\":{\"const\":2}}}]}",
     "",
     {"{\"k\":2}"},
     {"{\"k\":1"}},
    {"{\"allOf\":[{\"if\":{\"minimum\":1},\"then\":false},{\"if\":{\"minimum\":2},\"then\":false},{\"type\":\"integer\"}]}",
     "#/if",
     {"3"},
     {"\"x\""}},
    {"{\"anyOf\":[{\"const\":1}],\"not\":{\"const\":2},\"minimum\":0}", "#/not, #/anyOf/0/minimum", {"1"}, {"2"}},
    /* values that their keywords do not have */
    {"{\"type\":\"any\"}", "#/type", {"1", "{}", "null"}, {"x"}},
    {"{\"type\":\"STRING\",\"minLength\":1}", "", {"\"x\""}, {"\"\"", "1"}},
    {"{\"type\":\"object\",\"properties\":[],\"required\":true}",
     "#/properties, #/required",
     {"{}", "{\"a\":1}"},
     {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":null,\"b\":{\"const\":1}}}",
     "#/properties/a",
     {"{\"a\":7,\"b\":1}"},
     {"{\"b\":2"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\",\"z\",5],\"additionalProperties\":false}",
     "#/required",
     {"{\"a\":1}"},
     {"{}", "{\"z\""}},
    {"{\"enum\":[\"1\",\"2\"],\"type\":\"integer\"}", "#/type", {"\"1\""}, {"1"}},
    {"{\"enum\":[\"a\"],\"pattern\":\"b\"}", "#/pattern", {"\"a\""}, {"\"b\""}},
    {"{\"enum\":null,\"type\":\"boolean\"}", "#/enum", {"true"}, {"1"}},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":1}", "#/minimum, #/maximum", {"7"}, {"x"}},
    {"{\"type\":\"integer\",\"minimum\":1e30}", "#/minimum", {"7"}, {"x"}},
    {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
     "",
     {"9007199254740991"},
     {"9007199254740992"}},
    {"{\"minLength\":3,\"maxLength\":2,\"type\":\"string\"}", "#/minLength, #/maxLength", {"\"\""}, {"1"}},
    {"{\"type\":\"number\",\"multipleOf\":5}", "#/multipleOf", {"7"}, {"7.5"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}", "#/multipleOf", {"7.5"}, {"x"}},
    {"{\"enum\":[\"a\"],\"nullable\":true}", "", {"\"a\"", "null"}, {"1"}},
    {"{\"$ref\":\"#/$defs/x\",\"nullable\":true,\"$defs\":{\"x\":{\"const\":1}}}", "", {"1", "null"}, {"2"}},
    {"{\"type\":\"array\",\"items\":false,\"prefixItems\":[false]}", "#/prefixItems/0", {"[]", "[1]"}, {"[1,1"}},
    {"{\"$ref\":\"#\"}", "#", {"1"}, {"x"}},
    /* patterns: what they look ahead to is left out, the rest is kept */
    {"{\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([a-z.(?=)]*)[a-z]@(?:[a-z]+\\\\.)+[a-z]{2,}$\",\"format\":\"email\"}",
     "#/pattern",
     {"\"a.b@x.no\"", "\".b@x.no\""},
     {"\"a.b@x\"", "\"A", "\"\""}},
    {"{\"pattern\":\"^(a|b)\\\\1\\\\b-\\\\p{L}[^\\\\p{L}x]$\"}",
     "#/pattern",
     {"\"aa-\xC3\xA9\xC3\xA9\"", "\"bxyz-ab\""},
     {"\"c", "\"b\""}},
    {"{\"pattern\":\"(?i)x\",\"maxLength\":2}", "#/pattern", {"\"ab\""}, {"\"abc"}},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^x$\"}", "", {"\"x\""}, {"\"2026"}},
};

static void what_is_not_strict_is_kept_as_far_as_it_can_be(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const loose *k = &left_out[i];
        ek_grammar *g;
        json_t *schema = read_json(k->schema);
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema, .lenient = true};
        if (ek_grammar_open(&g, vocab, &form, NULL, false)) fail_msg("%s: %s", k->schema, ek_err_text());
        for (int j = 0; j < 6 && k->good[j]; j++) {
            int n = taken(g, vocab, tokenizer, "", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++)
            if (taken(g, vocab, tokenizer, "", k->bad[j]) < 0) fail_msg("%s takes %s", k->schema, k->bad[j]);
        if (strcmp(ek_grammar_ignored(g), k->ignored))
            fail_msg("%s\n  want %s\n  got  %s", k->schema, k->ignored, ek_grammar_ignored(g));
        json_decref(schema);
        ek_grammar_close(g);
    }
}

/* Puts keywords that are left out into some of the schemas inside v. */
static void add_keywords(json_t *v, dice *d)
{
    static const char *const extra[] = {
        "{\"not\":{\"minimum\":1}}",
        "{\"if\":{\"const\":1},\"then\":false}",
        "{\"uniqueItems\":true}",
        "{\"patternProperties\":{\"^q\":{\"const\":1}}}",
        "{\"dependentRequired\":{\"a\":[\"zz\"]}}",
        "{\"dependentSchemas\":{\"a\":false}}",
        "{\"contains\":{\"const\":3},\"minContains\":2}",
        "{\"propertyNames\":{\"maxLength\":0}}",
        "{\"unevaluatedProperties\":{\"const\":1}}",
        "{\"$dynamicRef\":\"#x\"}",
        "{\"extends\":{\"const\":1}}",
        "{\"multipleOf\":0.3}",
    };
    if (json_is_object(v) && roll(d, 3) == 0)
        json_object_update_new(v, read_json(extra[roll(d, sizeof extra / sizeof *extra)]));
    static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems"},
                             *const maps[] = {"properties", "$defs"}, *const one[] = {"items", "additionalProperties"};
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < json_array_size(json_object_get(v, lists[i])); k++)
            add_keywords(json_array_get(json_object_get(v, lists[i]), k), d);
    for (int i = 0; i < 2; i++) {
        json_t *map = json_object_get(v, maps[i]);
        for (void *k = json_object_iter(map); k; k = json_object_iter_next(map, k))
            add_keywords(json_object_iter_value(k), d);
        if (json_is_object(json_object_get(v, one[i]))) add_keywords(json_object_get(v, one[i]), d);
    }
}

/* Whatever a schema lets through, it lets through with keywords that are left out. */
static void what_is_left_out_forbids_nothing(void **state)
{
    (void)state;
    int runs = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        dice d = {seed + 31000, 0};
        json_t *schema = random_document(&d);
        ek_grammar *g, *more;
        reply r;
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        if (ek_grammar_open(&g, vocab, &form, NULL, false) == EK_OK) {
            simulate(&r, g, vocab, tokenizer, NULL, "", false, (int)roll(&d, 80), &d);
            add_keywords(schema, &d);
            form.lenient = true;
            if (ek_grammar_open(&more, vocab, &form, NULL, false)) fail_msg("seed %d: %s", (int)seed, ek_err_text());
            int n = taken(more, vocab, tokenizer, "", ek_buf_text(&r.answer.content));
            if (n >= 0) {
                ek_buf text = {0};
                ek_json_write(&text, schema);
                fputs(text.data, stderr);
                fail_msg("seed %d: the schema above refuses, from byte %d on: %s", (int)seed, n, r.answer.content.data);
            }
            reply_fini(&r);
            ek_grammar_close(more);
            ek_grammar_close(g);
            runs++;
        }
        json_decref(schema);
    }
    assert_true(runs > 150);
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_strict_is_kept_as_far_as_it_can_be),
        cmocka_unit_test(what_is_left_out_forbids_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
