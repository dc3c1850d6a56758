/* schema: each keyword by the texts that a grammar takes and those it does not, and each refusal by its sentence. */
#include "simulate.h"
#include "taken.h"

#include <stdio.h>
#include <stdlib.h>

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

typedef struct keyword {
    const char *schema, *good[6], *bad[6]; /* "" ends a list; bad: cannot be written to its end */
} keyword;

static const keyword keywords[] = {
    {"{\"type\":\"null\"}", {"null"}, {"0", "nul", "\"null\"", " null", "null "}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1", "null"}},
    {"{\"type\":\"integer\"}",
     {"0", "-0", "-12", "123456789012345678"},
     {"01", "1.0", "1e3", "+1", "-", "1234567890123456789"}},
    {"{\"type\":\"number\"}", {"0", "-1.50", "1e9", "1E-07", "0.5e+1"}, {".5", "1.", "1e", "00", "1e100", "NaN"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\\n\\u00e9\xC3\xA9\"", "\"\xF0\x9F\x98\x80\""},
     {"\"", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "\"\xC3\"", "\"\xC0\x80\""}},
    {"{\"type\":[\"string\",\"null\"]}", {"null", "\"x\""}, {"1", "true"}},
    {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"x\""}, {"1"}},
    {"{\"minLength\":2}", {"\"ab\"", "\"\xC3\xA9\\n\""}, {"\"a\"", "\"\xC3\xA9\""}},
    {"{\"pattern\":\"^[a-c\\\\n\xC3\xA9\\\"]{2}$\"}",
     {"\"ab\"", "\"a\\n\"", "\"\\u0061\xC3\xA9\"", "\"\\u00e9\\u00E9\"", "\"\\\"\\u000a\""},
     {"\"a\"", "\"abc", "\"\\t", "\"\\u002", "\"\\u00f", "\"\xC4"}},
    {"{\"pattern\":\"b.*\\\\d\",\"type\":[\"string\",\"null\"]}",
     {"null", "\"xxb1\"", "\"b\xF0\x9F\x98\x80 7 and more\""},
     {"\"\"", "\"b\"", "\"1b\""}},
    {"{\"pattern\":\"^[ab]+$\",\"minLength\":3,\"maxLength\":4}",
     {"\"aba\"", "\"bbbb\""},
     {"\"ab\"", "\"aaaaa", "\"c"}},
    {"{\"pattern\":\"^(?:ab){2,}$\",\"minLength\":5,\"maxLength\":7}", {"\"ababab\""}, {"\"abab\"", "\"abababa"}},
    {"{\"pattern\":\"[^x]$\",\"maxLength\":3}", {"\"xxy\"", "\"\\n\""}, {"\"xxx", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2026-11-22\"", "\"2024-02-29\""},
     {"\"2026-11-31", "\"x", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2026-\"}", {"\"2026-11-22\""}, {"\"2025", "\"x"}},
    {"{\"maxLength\":2}", {"\"\"", "\"\xC3\xA9\\\"\""}, {"\"abc\"", "\"ab\\n\""}},
    {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12}",
     {"-5", "-1", "0", "1", "12"},
     {"-6", "13", "20", "100", "-10"}},
    {"{\"type\":\"integer\",\"minimum\":120,\"exclusiveMaximum\":130}",
     {"120", "129"},
     {"0", "2", "13", "130", "1", "-1"}},
    {"{\"type\":\"integer\",\"minimum\":1.5}", {"2", "100"}, {"1", "0", "-2"}},
    {"{\"minimum\":0,\"maximum\":1}", {"0", "0.25", "1", "1.000000000"}, {"1.1", "-0.1", "2", "1e0", "0.1234567891"}},
    {"{\"exclusiveMinimum\":0}", {"0.000001", "5", "5.5"}, {"0", "0.0", "-1", "0.0000001"}},
    {"{\"minimum\":-0.3,\"maximum\":-0.1}", {"-0.1", "-0.25", "-0.3"}, {"0", "-0.31", "-0.05", "-1"}},
    {"{\"maximum\":9.99e20}", {"5", "-99.5"}, {"1e20"}},
    {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     {"-999999999999999999"},
     {"1000000000000000000"}},
    {"{\"multipleOf\":1,\"type\":\"number\"}", {"5"}, {"5.5"}},
    {"{\"enum\":[1,12,\"a\",\"ab\",null]}", {"1", "12", "\"a\"", "\"ab\"", "null"}, {"2", "\"abc\"", "123", "\"\""}},
    {"{\"enum\":[\"a\",1,2.5],\"type\":\"string\"}", {"\"a\""}, {"1", "2.5"}},
    {"{\"const\":{\"b\":[1,\"x\"],\"a\":{}}}", {"{\"b\":[1,\"x\"],\"a\":{}}"}, {"{\"a\"", "{}"}},
    {"{\"enum\":[1,2,3],\"const\":2}", {"2"}, {"1", "3"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
     {"{\"b\":null}", "{\"a\":null,\"b\":null,\"c\":null}", "{\"a\":null,\"b\":null}", "{ \"b\": null }",
      "{\n  \"b\":\n \tnull\n}"},
     {"{}", "{\"a\":null}", "{\"b\":null,\"a\":null}", "{\"b\":null,}", "{\"d\":null}", "{  \"b\":null}"}},
    {"{\"type\":\"object\"}",
     {"{}", "{\"x y\":[{}]}", "{\"a\":1,\"a\":2}"},
     {"[]", "{\"\":1}", "{\"a\\n\":1}", "{1:2}"}},
    {"{\"properties\":{},\"type\":\"object\"}", {"{}"}, {"{\"a\":1}"}},
    {"{\"properties\":{\"ab\":{\"const\":1},\"ac\":{\"const\":2}},\"required\":[\"ac\"],\"additionalProperties\":{\"const\":0}}",
     {"{\"ac\":2,\"a\":0}", "{\"ac\":2,\"abc\":0,\"z\":0}", "{\"ab\":1,\"ac\":2,\"\xC3\xA9\":0}", "{\"ac\":2}"},
     {"{\"a\":0", "{\"ac\":2,\"ac\":0", "{\"ac\":2,\"ab\":0", "{\"ac\":2,\"ab\":1", "{\"ac\":0", "{\"ac\":2,\"\":0"}},
    {"{\"properties\":{\"no\":false,\"yes\":true},\"additionalProperties\":true}",
     {"{\"yes\":1,\"n\":1}"},
     {"{\"no\":1"}},
    {"{\"properties\":{\"x\\\"y\":{\"const\":1}},\"additionalProperties\":true}",
     {"{\"x\\\"y\":1}", "{\"x\":2}", "{\"xy\":2}"},
     {"{\"x\\q\":1", "{\"x\\\"\":1", "{\"x\\\"y\":2"}},
    {"{\"properties\":{\",\":{\"const\":1}},\"additionalProperties\":true}",
     {"{\",\":1}", "{\",a\":2}"},
     {"{\",\"a\":2}", "{\",\" "}},
    {"{\"required\":[\"z\"]}", {"{\"z\":[]}", "{\"z\":1,\"a\":2}"}, {"{}", "{\"a\":2,\"z\":1}"}},
    {"{\"items\":{\"const\":1},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 1,\n1]"},
     {"[]", "[1,1,1,1]", "[2]", "[1,]", "[,1]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}",
     {"[]", "[1]", "[1,2,3,3]"},
     {"[2]", "[1,3]", "[1,2,2]"}},
    {"{\"items\":[{\"const\":1}],\"additionalItems\":false}", {"[]", "[1]"}, {"[1,1]"}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":false,\"maxItems\":9}", {"[1]"}, {"[1,1]"}},
    {"{\"type\":\"array\"}", {"[]", "[1,\"a\",{}]"}, {"{}"}},
    {"{\"anyOf\":[{\"const\":\"ab\"},{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\"}]}",
     {"\"ab\"", "\"x\"", "7"},
     {"\"ac\"", "1.5", "null"}},
    {"{\"anyOf\":[{\"properties\":{\"k\":{\"const\":1},\"v\":{\"const\":1}},\"required\":[\"k\",\"v\"]},{\"properties\":{\"k\":{\"const\":2},\"w\":{\"const\":1}},\"required\":[\"k\",\"w\"]}]}",
     {"{\"k\":1,\"v\":1}", "{\"k\":2,\"w\":1}"},
     {"{\"k\":1,\"w\":1", "{\"k\":2,\"v\":1", "{\"k\":3"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"number\"},{\"const\":null}]}", {"\"\"", "1", "null"}, {"true"}},
    {"{\"allOf\":[{\"type\":\"number\"},{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}",
     {"3", "5"},
     {"2", "6", "3.5"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/p\"},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}],\"$defs\":{\"p\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]}}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1}", "{\"b\":2"}},
    {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"properties\":{\"n\":{\"$ref\":\"#\"}},\"type\":\"object\"}", {"{}", "{\"n\":{\"n\":{}}}"}, {"{\"n\":1"}},
    {"{\"definitions\":{\"x\":{\"const\":1}},\"items\":{\"$ref\":\"#/definitions/x\"}}", {"[1,1]"}, {"[2]"}},
    {"{\"title\":\"t\",\"format\":\"uri\",\"type\":\"string\",\"x-own\":5,\"default\":7}", {"\"x\""}, {"1"}},
    {"{\"uniqueItems\":false,\"type\":\"array\",\"items\":{\"const\":1}}", {"[1,1]"}, {"1"}},
    {"{\"minProperties\":1,\"properties\":{\"a\":true},\"required\":[\"a\"],\"maxProperties\":1}",
     {"{\"a\":1}"},
     {"{}"}},
    {"true", {"1", "{}", "\"x\"", "null"}, {"x"}},
    /* keywords that exclude nothing */
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"const\":1}}",
     {"{}", "{\"a\":1}"},
     {"{\"a\":2"}},
    {"{\"type\":\"number\",\"multipleOf\":1.0}", {"5"}, {"5.5"}},
    {"{\"type\":\"integer\",\"multipleOf\":0.5}", {"5"}, {"5.5"}},
    {"{\"type\":\"string\",\"uniqueItems\":true,\"multipleOf\":7,\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"\"x\""},
     {"7"}},
    {"{\"items\":{\"const\":1},\"contains\":false,\"minContains\":0,\"maxItems\":1,\"uniqueItems\":true}",
     {"[]", "[1]"},
     {"[1,1]"}},
    {"{\"type\":\"null\",\"not\":false,\"if\":{\"const\":1},\"else\":{},\"patternProperties\":{},\"dependentSchemas\":{},"
     "\"dependentRequired\":{\"a\":[]},\"$dynamicAnchor\":\"n\",\"$recursiveAnchor\":true,\"allOf\":[]}",
     {"null"},
     {"1"}},
    {"{\"type\":\"null\",\"then\":{\"const\":1},\"x-any\":{\"not\":{}},\"examples\":[7],\"format\":\"none\"}",
     {"null"},
     {"1"}},
    {"{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false,\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1}"},
     {"{\"b\""}},
    {"{\"$ref\":\"#/$defs/x\",\"minLength\":0,\"nullable\":false,\"required\":[],\"$defs\":{\"x\":{\"const\":1}}}",
     {"1"},
     {"2"}},
    {"{\"enum\":[\"a\"],\"type\":\"string\",\"minLength\":0,\"minimum\":3}", {"\"a\""}, {"3"}},
    {"{\"type\":\"integer\",\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":3,\"exclusiveMaximum\":false}",
     {"2", "3"},
     {"1", "4"}},
};

static void keywords_take_what_they_allow(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const keyword *k = &keywords[i];
        ek_grammar *g;
        json_t *schema = read_json(k->schema);
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        if (ek_grammar_open(&g, vocab, &form, NULL, false)) fail_msg("%s: %s", k->schema, ek_err_text());
        for (int j = 0; j < 6 && k->good[j]; j++) {
            int n = taken(g, vocab, tokenizer, "", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++)
            if (taken(g, vocab, tokenizer, "", k->bad[j]) < 0) fail_msg("%s takes %s", k->schema, k->bad[j]);
        json_decref(schema);
        ek_grammar_close(g);
    }
}

/* Arguments of a call; Q is <|"|>. */
static const keyword calls[] = {
    {"{\"properties\":{\"b\":{\"type\":\"string\"},\"A\":{\"enum\":[\"x\",[1,\"y\"],{\"k\":\"v\",\"a b\":null}]},\"my key\":{\"type\":\"integer\"}},\"required\":[\"b\"]}",
     {"{b:QQ}", "{A:QxQ,b:Qany \"text\", {even}: \\ thisQ}", "{A:[1,QyQ],b:QQ,my key:5}",
      "{A:{Qa bQ:null,k:QvQ},b:Q\nQ}"},
     {"{b:\"\"}", "{b:QQ,A", "{ b", "{b: QQ}", "{A:QyQ", "{b:QQ,Qmy"}},
    {"{\"type\":\"object\"}",
     {"{}", "{x-1:{y:[true,Q}Q]}}", "{x y:1,\xC3\xA9/@:2}"},
     {"{\"x\":1}", "{x :1}", "{:1}", "{ x:1}"}},
    {"{\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}}}",
     {"{}", "{s:Q\xC3\xA9zQ}"},
     {"{s:QQ", "{s:QabcQ"}},
    {"{\"properties\":{\"s\":{\"pattern\":\"^[\\\"\\\\n\xE6\x97\xA5]{2}$\"}}}",
     {"{s:Q\"\"Q}", "{s:Q\n\xE6\x97\xA5Q}"},
     {"{s:Q\"Q", "{s:Q\\n", "{s:Q\xE6\x97\xA6"}},
    {"{\"properties\":{\"a b\":{\"const\":1}},\"additionalProperties\":{\"const\":0}}",
     {"{Qa bQ:1,a:0}", "{x:0}"},
     {"{Qa bQ:0", "{Qa", "{QxQ"}},
};

static void calls_take_what_they_allow(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const keyword *k = &calls[i];
        ek_grammar *g;
        json_t *tools = json_pack("[{s:s,s:{s:s,s:o}}]", "type", "function", "function", "name", "f", "parameters",
                                  read_json(k->schema));
        if (ek_grammar_open(&g, vocab, &(ek_reply_form){.calls_required = true}, tools, false))
            fail_msg("%s", ek_err_text());
        for (int j = 0; j < 6 && k->good[j]; j++) {
            int n = taken(g, vocab, tokenizer, "<|tool_call>call:f", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++) {
            int n = taken(g, vocab, tokenizer, "<|tool_call>call:f", k->bad[j]);
            if (n < 0 || (n == (int)strlen(k->bad[j]) && k->bad[j][n - 1] != '}' && i != 4))
                fail_msg("%s takes %s", k->schema, k->bad[j]);
        }
        json_decref(tools);
        ek_grammar_close(g);
    }
}

static const struct {
    const char *schema, *error;
} refused[] = {
    {"5", "#: a schema must be an object, true or false"},
    {"false", "#: false allows no value"},
    {"{\"type\":\"text\"}", "#: \"type\" names \"text\", which is no JSON type"},
    {"{\"type\":7}", "#: \"type\" must be a type's name or a list of them"},
    {"{\"type\":[]}", "#: \"type\" is an empty list"},
    {"{\"properties\":{\"a\":{\"properties\":{\"b\":{\"propertyNames\":{\"minLength\":2}}}}}}",
     "#/properties/a/properties/b: the keyword \"propertyNames\" is not supported"},
    {"{\"items\":{\"pattern\":\"^(?!x)\"}}",
     "#/items: \"pattern\": at character 3: the lookahead (?! is not supported"},
    {"{\"pattern\":5}", "#: \"pattern\" must be a text"},
    {"{\"pattern\":\"^a{3}$\",\"maxLength\":2}", "#: \"pattern\": no text of 0 characters matches it"},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"x\"}", "#: \"pattern\": no text matches it"},
    {"{\"enum\":[\"a\"],\"pattern\":\"a\"}", "#: \"pattern\" beside \"enum\" or \"const\" is not supported"},
    {"{\"items\":{\"not\":{}}}", "#/items: the keyword \"not\" is not supported"},
    {"{\"anyOf\":[true,{\"if\":true,\"then\":{\"minLength\":1}}]}", "#/anyOf/1: the keyword \"if\" is not supported"},
    {"{\"uniqueItems\":true}", "#: the keyword \"uniqueItems\" is not supported"},
    {"{\"multipleOf\":0.5}", "#: the keyword \"multipleOf\" is not supported"},
    {"{\"patternProperties\":{\"^x\":false}}", "#: the keyword \"patternProperties\" is not supported"},
    {"{\"unevaluatedProperties\":false}", "#: the keyword \"unevaluatedProperties\" is not supported"},
    {"{\"minProperties\":1}", "#: the keyword \"minProperties\" is not supported beyond the required properties"},
    {"{\"properties\":{\"a\":true,\"b\":true},\"maxProperties\":1}",
     "#: the keyword \"maxProperties\" is not supported below the number of properties"},
    {"{\"minLength\":-1}", "#: \"minLength\" must be a whole number from 0 on"},
    {"{\"minLength\":3,\"maxLength\":2}", "#: at least 3 and at most 2 characters"},
    {"{\"minItems\":3,\"maxItems\":2}", "#: at least 3 and at most 2 items"},
    {"{\"minItems\":2,\"prefixItems\":[true],\"items\":false}", "#: at least 2 and at most 1 items"},
    {"{\"minimum\":\"1\"}", "#: \"minimum\" must be a number that fits 64 bits"},
    {"{\"type\":\"integer\",\"minimum\":5,\"exclusiveMaximum\":5}",
     "#: no number of 0 digits behind the point lies between the bounds"},
    {"{\"type\":\"integer\",\"minimum\":1e30}", "#: a bound of a number has more than 18 digits"},
    {"{\"enum\":5}", "#: \"enum\" must be a list of values"},
    {"{\"enum\":[]}", "#: \"enum\" or \"const\" has no value of the type"},
    {"{\"enum\":[1],\"minimum\":0}", "#: \"minimum\" beside \"enum\" or \"const\" is not supported"},
    {"{\"const\":123456789012345678901234567890}", "#: a number of \"enum\" or \"const\" does not fit 64 bits"},
    {"{\"required\":\"a\"}", "#: \"required\" must be a list of names"},
    {"{\"required\":[\"a\"],\"properties\":{},\"additionalProperties\":false}",
     "#: \"a\" is required, but may not occur"},
    {"{\"properties\":[]}", "#: \"properties\" must be an object"},
    {"{\"anyOf\":[]}", "#: \"anyOf\" must be a list with at least one schema"},
    {"{\"anyOf\":[false]}", "#: no alternative of \"anyOf\" can match"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     "#: alternatives 0 and 1 of \"oneOf\" cannot be told apart: use \"anyOf\""},
    {"{\"properties\":{\"x\":{\"oneOf\":[{\"properties\":{\"a\":true}},{\"properties\":{\"b\":true}}]}}}",
     "#/properties/x: alternatives 0 and 1 of \"oneOf\" cannot be told apart: use \"anyOf\""},
    {"{\"allOf\":[{\"minimum\":1},{\"minimum\":2}]}",
     "#: \"minimum\" occurs twice with different values, which is not supported"},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"a\":{\"const\":2}}}]}",
     "#: the property \"a\" has two schemas, which is not supported"},
    {"{\"allOf\":[{\"properties\":{\"a\":true},\"additionalProperties\":false},{\"properties\":{\"b\":true}}]}",
     "#: \"additionalProperties\" beside properties from elsewhere is not supported"},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "#: more than 64 schemas inside each other in \"allOf\""},
    {"{\"$ref\":\"http://x/y\"}",
     "#: \"$ref\" is \"http://x/y\"; only places in the schema itself (#/…) are supported"},
    {"{\"$ref\":\"#/$defs/x\"}", "#: \"$ref\" names \"#/$defs/x\", which does not exist"},
    {"{\"$ref\":\"#/$defs/x\",\"type\":\"null\",\"$defs\":{\"x\":true}}",
     "#: other keywords beside \"$ref\" are not supported"},
    {"{\"$ref\":\"#\"}", "no value fits the schema within 63 levels"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no value fits the schema within 63 levels"},
};

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ek_grammar *g;
        json_t *schema = read_json(refused[i].schema);
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        ek_err err = ek_grammar_open(&g, vocab, &form, NULL, false);
        if (err != EK_EINVAL || strcmp(ek_err_text(), refused[i].error))
            fail_msg("%s\n  want %s\n  got  %d %s", refused[i].schema, refused[i].error, err, ek_err_text());
        assert_null(g);
        json_decref(schema);
    }
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_take_what_they_allow),
        cmocka_unit_test(calls_take_what_they_allow),
        cmocka_unit_test(what_is_not_supported_is_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
