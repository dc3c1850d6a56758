/* schema: each keyword by the texts that a grammar takes and those it does not, and each refusal by its sentence. */
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;

/* Bytes of text (<|"|> spelled Q in calls) that can be written one after the other; -1: all, and the reply may end. */
static int taken(const ek_grammar *g, const char *prompt, const char *text)
{
    ek_ids ids = {0};
    uint64_t row[128];
    bool all;
    int quote = ek_tokenizer_id(tokenizer, "<|\"|>"), i = 0;
    assert_int_equal(ek_encode(tokenizer, prompt, strlen(prompt), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    ek_grammar_state *s = ek_grammar_state_open(g, vocab, NULL, 0, false);
    for (size_t k = 0; k < ids.len; k++) ek_grammar_accept(s, ids.data[k]);
    for (;; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (uint8_t)text[i]);
        int32_t id = text[i] == 'Q' && *prompt ? quote : ek_tokenizer_id(tokenizer, name);
        if (!text[i]) id = ek_tokenizer_id(tokenizer, *prompt ? "<tool_call|>" : "<turn|>");
        ek_grammar_look(s, NULL, 0, 128, row, &all);
        if (!(row[id / 64] >> id % 64 & 1)) break;
        if (!text[i]) {
            i = -1;
            break;
        }
        ek_grammar_accept(s, id);
    }
    ek_ids_fini(&ids);
    ek_grammar_state_close(s);
    return i;
}

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
            int n = taken(g, "", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++)
            if (taken(g, "", k->bad[j]) < 0) fail_msg("%s takes %s", k->schema, k->bad[j]);
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
            int n = taken(g, "<|tool_call>call:f", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++) {
            int n = taken(g, "<|tool_call>call:f", k->bad[j]);
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

/* What is not strict: what is kept, and what is said of the rest. */
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
            int n = taken(g, "", k->good[j]);
            if (n >= 0) fail_msg("%s: %s is refused from byte %d on", k->schema, k->good[j], n);
        }
        for (int j = 0; j < 6 && k->bad[j]; j++)
            if (taken(g, "", k->bad[j]) < 0) fail_msg("%s takes %s", k->schema, k->bad[j]);
        if (strcmp(ek_grammar_ignored(g), k->ignored))
            fail_msg("%s\n  want %s\n  got  %s", k->schema, k->ignored, ek_grammar_ignored(g));
        json_decref(schema);
        ek_grammar_close(g);
    }
}

/* More alternatives than the automaton follows at once, and schemas beyond a limit. */
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
        assert_int_equal(taken(g, "", large[i].good), -1);
        assert_true(taken(g, "", large[i].bad) >= 0);
        if (!strstr(ek_grammar_ignored(g), large[i].ignored)) fail_msg("%s", ek_grammar_ignored(g));
        ek_grammar_close(g);
        json_decref(large[i].schema);
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
            int n = taken(more, "", ek_buf_text(&r.answer.content));
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

/* Bounds on what a schema may make of memory and time. */
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
    while (taken(g, "", ek_buf_text(&text)) >= 0) { /* "n" first, while it may come */
        ek_buf deeper = {0};
        ek_buf_fmt(&deeper, "%s{\"n", ek_buf_text(&text));
        if (taken(g, "", deeper.data) == (int)deeper.len) {
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

static long most_kib(void)
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

    long before = most_kib(); /* many alternatives in a place with a long name */
    json_t *inner = json_object();
    for (int i = 0; i < 5000; i++) {
        char key[32];
        snprintf(key, sizeof key, "a%d", i);
        json_object_set_new(inner, key, json_pack("{s:[{s:s}]}", "oneOf", "type", "null"));
    }
    assert_int_equal(try_schema(json_pack("{s:{s:{s:o}}}", "properties", name, "properties", inner), false), EK_OK);
    print_message("measured: %ld MiB for 5000 alternatives\n", (most_kib() - before) >> 10);
    assert_true(most_kib() - before < MOST_MIB << 10);
    free(name);
}

int main(void)
{
    tokenizer = crossing_tokenizer();
    vocab = ek_vocab_open(tokenizer);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_take_what_they_allow),
        cmocka_unit_test(calls_take_what_they_allow),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(what_is_not_strict_is_kept_as_far_as_it_can_be),
        cmocka_unit_test(what_goes_beyond_a_limit_is_left_out),
        cmocka_unit_test(what_is_left_out_forbids_nothing),
        cmocka_unit_test(large_schemas_end_at_a_limit),
        cmocka_unit_test(the_deepest_value_can_end),
        cmocka_unit_test(small_schemas_end_soon),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_vocab_close(vocab);
    ek_tokenizer_close(tokenizer);
    return failed;
}
