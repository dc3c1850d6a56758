/* Rows of allowed tokens against their definition: a token is allowed if the automaton, without rows, without a cache
 * and without a trie, can take it. Patterns, lengths, lists, depths and long enums come in the vocabulary of the
 * bundled model too, whose words make the shortcuts work. */
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "text/utf8.h"
#include "text/grammar/vocab_data.h"

enum { WORDS = 128 };

static ek_tokenizer *crossing, *words;

static bool can_take(const ek_grammar_state *s, int32_t id)
{
    static ek_grammar_state copy;
    copy = *s;
    ek_grammar_accept(&copy, id);
    return copy.tops.n > 0;
}

static void check_row(ek_grammar_state *s, const ek_tokenizer *t, const uint64_t *row, const char *schema,
                      const ek_buf *text)
{
    for (int32_t id = 0; id < ek_tokenizer_size(t); id++) {
        bool is = row[id / 64] >> id % 64 & 1;
        if (is == can_take(s, id)) continue;
        size_t n;
        const char *bytes = ek_tokenizer_bytes(t, id, &n);
        fail_msg("token %d \"%.*s\" is %s behind %s under %s", id, (int)n, bytes, is ? "allowed" : "masked",
                 ek_buf_text(text), schema);
    }
}

/* A random reply of n tokens: each row is checked. Every second token continues a word if it can. */
static void follow(ek_vocab *v, const ek_tokenizer *t, const ek_grammar *g, const char *schema, int n, dice *d)
{
    static uint64_t row[WORDS];
    ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, roll(d, 4) == 0);
    ek_buf text = {0};
    for (int i = 0; i < n; i++) {
        bool all;
        ek_grammar_look(s, NULL, 0, WORDS, row, &all);
        if (all) break;
        check_row(s, t, row, schema, &text);
        int32_t id = -1, seen = 0;
        for (int32_t k = 0; k < ek_tokenizer_size(t); k++) {
            if (!(row[k / 64] >> k % 64 & 1)) continue;
            size_t len;
            const char *bytes = ek_tokenizer_bytes(t, k, &len);
            seen += len == 1 && strchr("[{}]\":,", bytes[0]) ? 20 : 1; /* structure often enough */
            if ((int32_t)roll(d, (uint32_t)seen) < (len == 1 ? 20 : 1)) id = k;
        }
        if (id < 0) fail_msg("nothing is allowed behind %s under %s", ek_buf_text(&text), schema);
        size_t len;
        const char *bytes = ek_tokenizer_bytes(t, id, &len);
        ek_buf_add(&text, bytes, len);
        ek_grammar_accept(s, id);
    }
    ek_buf_fini(&text);
    ek_grammar_state_close(s);
}

static const char *const schemas[] = {
    "{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9_-]{2,29}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[^\\\\s@]+@[^\\\\s@]+\\\\.[a-z]{2,}$\",\"maxLength\":30}",
    "{\"type\":\"string\",\"pattern\":\"^(\\\\w+ ){2,4}\\\\w+$\"}",
    "{\"type\":\"string\",\"pattern\":\"\\\\S\",\"maxLength\":12}",
    "{\"type\":\"string\",\"pattern\":\"^[^<>]*$\",\"minLength\":9,\"maxLength\":20}",
    "{\"type\":\"string\",\"pattern\":\"^([A-Z][a-z]+ ?){1,5}$\",\"minLength\":4}",
    "{\"type\":\"string\",\"pattern\":\".{3,}x$\",\"maxLength\":25}",
    "{\"type\":\"string\",\"pattern\":\"^[\\u00e0-\\u00ff a-z]{1,12}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^(..)*$\",\"minLength\":3,\"maxLength\":9}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}",
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":7,\"maxItems\":12}",
    "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"enum\":[1,12,\"a\",null]},\"maxItems\":30},\"minItems\":3}",
    "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"object\","
    "\"properties\":{\"in\":{\"$ref\":\"#/$defs/n\"}}}]}}}}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"note\":{\"type\":\"number\"}},\"additionalProperties\":true}",
    "{\"type\":\"object\",\"properties\":{\"when\":{\"format\":\"date-time\",\"type\":\"string\"},\"n\":{\"type\":\"integer\",\"minimum\":-5,"
    "\"maximum\":1205}},\"required\":[\"when\",\"n\"]}",
};

static void check_schema(ek_vocab *v, const ek_tokenizer *t, const json_t *schema, const char *text, int n, dice *d)
{
    ek_grammar *g;
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
    if (ek_grammar_open(&g, v, &form, NULL, false) != EK_OK) return;
    follow(v, t, g, text, n, d);
    ek_grammar_close(g);
    json_t *tools = json_pack("[{s:s,s:{s:s,s:{s:s,s:{s:O},s:[s]},s:b}}]", "type", "function", "function", "name", "f",
                              "parameters", "type", "object", "properties", "v", schema, "required", "v", "strict", 1);
    if (!json_object_get(schema, "$ref") && !json_object_get(schema, "$defs")) {
        form = (ek_reply_form){.calls_required = true};
        if (ek_grammar_open(&g, v, &form, tools, false) == EK_OK) {
            follow(v, t, g, text, n, d);
            ek_grammar_close(g);
        }
    }
    json_decref(tools);
}

static void check_all(const ek_tokenizer *t, int n_tokens)
{
    ek_vocab *v = ek_vocab_open(t);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        dice d = {i + 500, 0};
        json_t *schema = read_json(schemas[i]);
        for (int k = 0; k < 2; k++) check_schema(v, t, schema, schemas[i], n_tokens, &d);
        json_decref(schema);
    }
    ek_vocab_close(v);
}

static void rows_are_what_the_automaton_takes(void **state)
{
    (void)state;
    check_all(crossing, 120);
    ek_vocab *v = ek_vocab_open(crossing);
    for (uint64_t seed = 0; seed < 150; seed++) { /* more rows than the cache holds */
        dice d = {seed + 7000, 0};
        json_t *schema = random_document(&d);
        char *text = json_dumps(schema, JSON_COMPACT);
        check_schema(v, crossing, schema, text, 40, &d);
        free(text);
        json_decref(schema);
    }
    ek_vocab_close(v);
}

static void so_are_those_of_words(void **state)
{
    (void)state;
    if (!words) skip();
    check_all(words, 25);
}

static void an_enum_of_thousands(void **state)
{
    (void)state;
    if (!words) skip();
    json_t *list = json_array();
    for (int i = 0; i < 3000; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(words, 300 + i, &n);
        char name[80];
        snprintf(name, sizeof name, "%c%d %.*s", 'a' + i % 26, i, n < 9 ? (int)n : 0, s);
        if (ek_utf8_valid(name, strlen(name))) json_array_append_new(list, json_string(name));
    }
    json_t *schema = json_pack("{s:o}", "enum", list);
    ek_vocab *v = ek_vocab_open(words);
    dice d = {99, 0};
    check_schema(v, words, schema, "an enum", 12, &d);
    ek_vocab_close(v);
    json_decref(schema);
}

/* Two requests with the same schema, spelled differently, and a third one whose bound is another. */
static void equal_schemas_share_rows(void **state)
{
    (void)state;
    static const char *const same[] = {"{\"type\":\"string\",\"maxLength\":7,\"description\":\"one\"}",
                                       "{\"maxLength\":7,\"type\":[\"string\"]}",
                                       "{\"type\":\"string\",\"maxLength\":6}"};
    uint64_t misses[3], row[WORDS];
    ek_vocab *v = ek_vocab_open(crossing);
    for (int i = 0; i < 3; i++) {
        bool all;
        json_t *schema = read_json(same[i]);
        ek_grammar *g;
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        assert_int_equal(ek_grammar_open(&g, v, &form, NULL, false), EK_OK);
        json_decref(schema);
        ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, false);
        for (int k = 0; k < 9; k++) {
            ek_grammar_look(s, NULL, 0, WORDS, row, &all);
            ek_grammar_accept(s, ek_tokenizer_id(crossing, k == 0 || k == 8 ? "<0x22>" : "<0x62>"));
        }
        misses[i] = ek_vocab_stats_of(v).misses;
        ek_grammar_state_close(s);
        ek_grammar_close(g);
    }
    assert_true(misses[0] > 5);
    assert_int_equal(misses[1], misses[0]);
    assert_true(misses[2] > misses[1]);
    ek_vocab_close(v);
}

/* A list of 1,000 items and a tree of 50 levels have few rows. */
static void places_alike_share_rows(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"array\",\"maxItems\":2000,\"items\":{\"anyOf\":"
        "[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}}}}";
    uint64_t row[WORDS];
    bool all;
    json_t *o = read_json(schema);
    ek_grammar *g;
    ek_vocab *v = ek_vocab_open(crossing);
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = o};
    assert_int_equal(ek_grammar_open(&g, v, &form, NULL, false), EK_OK);
    ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, false);
    for (int i = 0; i < 50 + 2 * 1000; i++) {
        ek_grammar_look(s, NULL, 0, WORDS, row, &all);
        ek_grammar_accept(s, ek_tokenizer_id(crossing, i < 50 ? "<0x5B>" : i % 2 ? "<0x2C>" : "null"));
    }
    ek_grammar_look(s, NULL, 0, WORDS, row, &all);
    assert_true(row[0] || row[1] || row[2] || row[3] || row[4]);
    assert_true(ek_vocab_stats_of(v).misses < 40);
    ek_grammar_state_close(s);
    ek_grammar_close(g);
    ek_vocab_close(v);
    json_decref(o);
}

/* "[[" is one token: it may stand two levels above the limit, not one. */
static void the_deepest_levels_differ(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}";
    uint64_t row[WORDS];
    bool all;
    int levels = 0;
    json_t *o = read_json(schema);
    ek_grammar *g;
    ek_buf text = {0};
    ek_vocab *v = ek_vocab_open(crossing);
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = o};
    assert_int_equal(ek_grammar_open(&g, v, &form, NULL, false), EK_OK);
    ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, false);
    int32_t open = ek_tokenizer_id(crossing, "<0x5B>");
    for (;; levels++) {
        ek_grammar_look(s, NULL, 0, WORDS, row, &all);
        check_row(s, crossing, row, schema, &text);
        if (!(row[open / 64] >> open % 64 & 1)) break;
        ek_grammar_accept(s, open);
        ek_buf_str(&text, "[");
    }
    assert_int_equal(levels, EK_GRAPH_DEPTH - 1);
    ek_grammar_state_close(s);
    ek_grammar_close(g);
    ek_vocab_close(v);
    ek_buf_fini(&text);
    json_decref(o);
}

/* Rows of all kinds, of two grammars with the same frames, in a ring that holds a few of them. */
static void an_old_row_is_right_or_gone(void **state)
{
    (void)state;
    enum { N = 400, W = 40 };
    static uint64_t row[N][W], base[W], got[W];
    static ek_row_key key[N];
    ek_rows c;
    dice d = {3, 0};
    int found = 0;
    ek_rows_init(&c, W, 4);
    for (int w = 0; w < W; w++) base[w] = (uint64_t)roll(&d, 1u << 31) << 32;
    for (int i = 0; i < N; i++) {
        bool dense = roll(&d, 4) == 0, alone = roll(&d, 2);
        key[i] = (ek_row_key){.hash = (uint64_t)(i / 2 % 3), .n = 1 + (i / 2) % 5};
        key[i].grammar[0] = (char)('a' + i % 2);
        for (int f = 0; f < key[i].n; f++) key[i].frame[f] = (ek_frame){.node = i / 2, .v = (uint64_t)f};
        for (int w = 0; w < W; w++)
            row[i][w] = (alone ? 0 : base[w]) | (dense || roll(&d, 8) == 0 ? roll(&d, 1u << 31) : 0);
        ek_rows_put(&c, &key[i], alone ? NULL : base, row[i]);
        for (int k = 0; k <= i; k++) {
            const ek_row_record *r = ek_rows_find(&c, &key[k]);
            if (!r) continue;
            found++;
            ek_rows_get(&c, r, false, W, got);
            assert_memory_equal(got, row[k], sizeof got);
        }
        assert_non_null(ek_rows_find(&c, &key[i]));
    }
    assert_true(found > 2 * N); /* the latest and one before it, at least */
    ek_rows_fini(&c);
}

int main(void)
{
    ek_buf file = {0};
    crossing = crossing_tokenizer();
    if (ek_file_read(&file, "models/pocket/tokenizer.json", (size_t)1 << 28) == EK_OK)
        assert_int_equal(ek_tokenizer_parse(&words, file.data, file.len), EK_OK);
    ek_buf_fini(&file);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_what_the_automaton_takes),
        cmocka_unit_test(so_are_those_of_words),
        cmocka_unit_test(an_enum_of_thousands),
        cmocka_unit_test(equal_schemas_share_rows),
        cmocka_unit_test(places_alike_share_rows),
        cmocka_unit_test(the_deepest_levels_differ),
        cmocka_unit_test(an_old_row_is_right_or_gone),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_tokenizer_close(crossing);
    ek_tokenizer_close(words);
    return failed;
}
