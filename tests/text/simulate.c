#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash/rng.h"

ek_tokenizer *crossing_tokenizer(void)
{
    static const char *const pieces[] = {"{\"",
                                         "\":",
                                         "\",",
                                         "\"}",
                                         "\":\"",
                                         "\",\"",
                                         "},",
                                         "}}",
                                         "]}",
                                         "],",
                                         "[\"",
                                         "\"]",
                                         "[[",
                                         "{}",
                                         "[]",
                                         ":{",
                                         ":[",
                                         ",\"",
                                         "\\n",
                                         "\\\"",
                                         "\\u00",
                                         "true",
                                         "false",
                                         "null",
                                         "12",
                                         "-1",
                                         "0.",
                                         "1e",
                                         "00",
                                         "abc",
                                         "ab",
                                         "\xC3\xA9",
                                         "\xE6\x97\xA5\xE6\x9C\xAC",
                                         "e\"",
                                         "a\":",
                                         "kind",
                                         "name",
                                         "\n\n",
                                         "\n\xE2\x96\x81\xE2\x96\x81",
                                         "\xE2\x96\x81",
                                         "\xE2\x96\x81\"",
                                         "{\n",
                                         "\xE2\x96\x81{",
                                         "call",
                                         "call:",
                                         "call:a{",
                                         "thought",
                                         "thought\n",
                                         ":a",
                                         "{a:",
                                         ",b:",
                                         "b:",
                                         "}\n",
                                         "\xF0\x9F\x98\x80",
                                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                         NULL};
    ek_buf b = {0};
    ek_tokenizer *t;
    tokenizer_json(&b, pieces, NULL);
    if (ek_tokenizer_parse(&t, b.data, b.len) != EK_OK) fail_msg("%s", ek_err_text());
    ek_buf_fini(&b);
    return t;
}

static bool is_set(const uint64_t *row, int32_t id)
{
    return row[id / 64] >> id % 64 & 1;
}

/* How soon a token leads to the end: smaller is sooner. */
static int distance(const ek_tokenizer *t, const ek_marks *m, int32_t id)
{
    static const char order[] = "}]\":0123456789tfnac,-[{";
    size_t n;
    const char *s = ek_tokenizer_bytes(t, id, &n);
    if (id == m->id[EK_MARK_TURN_CLOSE] || id == m->id[EK_MARK_EOS]) return -4;
    if (id == m->id[EK_MARK_CALL_CLOSE] || id == m->id[EK_MARK_CHANNEL_CLOSE]) return -3;
    if (id == m->id[EK_MARK_RESPONSE_OPEN]) return -2;
    if (ek_tokenizer_is_special(t, id)) return -1;
    const char *at = n == 1 ? strchr(order, s[0]) : NULL;
    return at && *at ? (int)(at - order) : 100 + (int)(ek_mix64((uint64_t)id) % 100);
}

/* Where bodies end every few tokens, deep structures are reached. */
static int32_t choose(const ek_tokenizer *t, const ek_marks *m, const uint64_t *row, bool wild, dice *d)
{
    int32_t best = -1;
    int n = ek_tokenizer_size(t), seen = 0, least = 0;
    bool close = wild && roll(d, 4) == 0;
    /* both may stand in texts only, which are to be closed; if a pattern is against it, some letter brings it nearer */
    bool text = is_set(row, ek_tokenizer_id(t, "<0x5D>")) && is_set(row, ek_tokenizer_id(t, "<0x62>"));
    if ((!wild || close) && text) {
        int32_t gemma = m->id[EK_MARK_QUOTE], thought = m->id[EK_MARK_CHANNEL_CLOSE];
        int32_t quote = ek_tokenizer_id(t, "<0x22>"), letter = ek_tokenizer_id(t, "<0x61>") + (int32_t)roll(d, 5);
        if (is_set(row, gemma)) return gemma;
        if (is_set(row, thought)) return thought;
        int32_t colon = ek_tokenizer_id(t, "<0x3A>");
        if (is_set(row, colon) && !is_set(row, ek_tokenizer_id(t, "<0x7B>")) && roll(d, 2)) return colon; /* a name */
        if (is_set(row, quote) && roll(d, 2)) return quote;
        if (is_set(row, letter)) return letter;
    }
    for (int32_t id = 0; id < n; id++) {
        if (!is_set(row, id)) continue;
        int far = distance(t, m, id);
        if (wild && !close) {
            if (roll(d, (uint32_t)++seen) == 0) best = id;
        } else if (best < 0 || far < least) {
            best = id;
            least = far;
        }
    }
    return best;
}

void simulate(reply *r, const ek_grammar *g, ek_vocab *v, const ek_tokenizer *t, const json_t *tools,
              const char *prompt, bool thinking, int wild, dice *d)
{
    enum { WORDS = 128, AHEAD = 4, MAX = 4000 };
    static uint64_t row[(AHEAD + 1) * WORDS], seen[MAX][WORDS];
    static bool all[AHEAD + 1], seen_all[MAX];
    ek_ids ids = {0};
    ek_marks marks;
    ek_marks_find(&marks, t);
    assert_int_equal(ek_encode(t, prompt, strlen(prompt), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    *r = (reply){0};
    ek_reply_opts o = {.tools_active = tools != NULL,
                       .tools = tools,
                       .lenient_start = thinking,
                       .sink = ek_reply_collect,
                       .arg = &r->answer};
    ek_reply *parser = ek_reply_open(t, &o);
    ek_reply_start(parser, ids.data, ids.len);
    ek_grammar_state *s = ek_grammar_state_open(g, v, ids.data, ids.len, thinking);
    for (int i = 0; !ek_reply_stopped(parser); i++) {
        if (i == MAX) fail_msg("no end after %d tokens: %.200s", MAX, ek_buf_text(&r->answer.content));
        assert_int_equal(ek_grammar_look(s, NULL, 0, WORDS, row, all), 0);
        int32_t id = marks.id[EK_MARK_TURN_CLOSE];
        if (!all[0]) id = choose(t, &marks, row, i < wild, d);
        else if (i < wild)
            id = roll(d, 20) ? (int32_t)roll(d, (uint32_t)ek_tokenizer_size(t)) : marks.id[EK_MARK_CALL_OPEN];
        if (id < 0) fail_msg("nothing is allowed after %d tokens: %.200s", i, ek_buf_text(&r->answer.content));
        memcpy(seen[i], row, sizeof seen[i]);
        seen_all[i] = all[0];
        ek_ids_add(&r->ids, id);
        ek_grammar_accept(s, id);
        ek_reply_feed(parser, id);
    }
    /* along drafts, from the start, the rows are the same; a wrong token ends the draft */
    ek_grammar_state *again = ek_grammar_state_open(g, v, ids.data, ids.len, thinking);
    for (size_t i = 0; i < r->ids.len; i++) {
        int32_t draft[AHEAD];
        int n = (int)(r->ids.len - i < AHEAD ? r->ids.len - i : AHEAD);
        memcpy(draft, r->ids.data + i, sizeof *draft * (size_t)n);
        int wrong = n - 1;
        bool spoil = roll(d, 2) && !seen_all[i + (size_t)wrong];
        if (spoil) /* any token that is not allowed there */
            for (draft[wrong] = 0; is_set(seen[i + (size_t)wrong], draft[wrong]); draft[wrong]++) continue;
        bool peeked[AHEAD + 1];
        int k = ek_grammar_look(again, draft, n, WORDS, row, all);
        assert_int_equal(k, spoil ? wrong : n);
        assert_int_equal(ek_grammar_peek(again, draft, n, peeked), k);
        assert_memory_equal(peeked, all, sizeof *all * ((size_t)k + 1));
        for (int j = 0; j <= k && i + (size_t)j < r->ids.len; j++) {
            assert_int_equal(all[j], seen_all[i + (size_t)j]);
            if (!all[j]) assert_memory_equal(row + j * WORDS, seen[i + (size_t)j], sizeof seen[0]);
        }
        ek_grammar_accept(again, r->ids.data[i]);
    }
    ek_grammar_state_close(again);
    ek_grammar_state_close(s);
    r->stopped = ek_reply_stopped(parser);
    r->n_malformed = ek_reply_malformed(parser);
    ek_reply_close(parser);
    ek_ids_fini(&ids);
}

void reply_fini(reply *r)
{
    ek_answer_fini(&r->answer);
    ek_ids_fini(&r->ids);
}

/* --- schemas --- */

static const char *const keys[] = {"a",   "b",    "ab",  "name", "kind", "a b",  "x\"y", "\xC3\xA9t\xC3\xA9",
                                   "a-b", "c:d",  "e\\", "x=y",  "f[s]", "c:{d", "}",    " a",
                                   ",",   "ab=[", "'n'"};
enum { N_KEYS = sizeof keys / sizeof *keys };

static json_t *random_const(dice *d)
{
    switch (roll(d, 7)) {
    case 0: return json_null();
    case 1: return json_integer((json_int_t)roll(d, 300) - 100);
    case 2: return json_real(roll(d, 1000) / 8.0);
    case 3: return json_boolean(roll(d, 2));
    case 4: return json_pack("[i,s]", (int)roll(d, 9), "x");
    case 5: return json_pack("{s:s}", keys[roll(d, N_KEYS)], "}");
    default: return json_string(keys[roll(d, N_KEYS)]);
    }
}

static json_t *random_number(dice *d, bool integer)
{
    json_t *s = json_pack("{s:s}", "type", integer ? "integer" : "number");
    double lo = (double)roll(d, 4000) / (roll(d, 2) ? 1 : 7) - 2000,
           hi = lo + (double)roll(d, 3000) / (roll(d, 3) ? 1 : 100);
    if (roll(d, 4) == 0) hi = lo + 1;
    bool whole = roll(d, 2);
    if (roll(d, 2))
        json_object_set_new(s, roll(d, 3) ? "minimum" : "exclusiveMinimum",
                            whole ? json_integer((json_int_t)lo - 1) : json_real(lo - 1));
    if (roll(d, 2))
        json_object_set_new(s, roll(d, 3) ? "maximum" : "exclusiveMaximum",
                            whole ? json_integer((json_int_t)hi + 1) : json_real(hi + 1));
    return s;
}

static json_t *random_string(dice *d)
{
    json_t *s = json_pack("{s:s}", "type", "string");
    int min = (int)roll(d, 6);
    if (roll(d, 3) == 0) json_object_set_new(s, "minLength", json_integer(min));
    if (roll(d, 3) == 0) json_object_set_new(s, "maxLength", json_integer(min + (int)roll(d, 50)));
    /* what <regex.h> reads in the same way, and what texts of up to 5 and of any more characters match */
    static const char *const patterns[] = {"^[a-z]+$", "^([ab]|[0-9]{2})*$", "a.*b|c", "[^x]$|^$", "^[^\"}]*$", "e+$"};
    if (roll(d, 2)) json_object_set_new(s, "pattern", json_string(patterns[roll(d, 6)]));
    if (json_object_get(s, "maxLength") && json_object_get(s, "pattern"))
        json_object_set_new(s, "maxLength", json_integer(min + 3 + (int)roll(d, 50)));
    return s;
}

static json_t *random_object(dice *d, int depth)
{
    json_t *s = json_pack("{s:s}", "type", "object"), *p = json_object(), *required = json_array();
    int n = (int)roll(d, 5);
    for (int i = 0; i < n; i++) {
        const char *key = keys[roll(d, N_KEYS)];
        json_object_set_new(p, key, roll(d, 12) ? random_schema(d, depth - 1) : json_true());
        if (roll(d, 2)) json_array_append_new(required, json_string(key));
    }
    if (roll(d, 5)) json_object_set(s, "properties", p);
    if (roll(d, 5) && json_object_get(s, "properties")) json_object_set(s, "required", required);
    switch (roll(d, 4)) {
    case 0: json_object_set_new(s, "additionalProperties", json_false()); break;
    case 1: json_object_set_new(s, "additionalProperties", json_true()); break;
    case 2: json_object_set_new(s, "additionalProperties", random_schema(d, depth - 1)); break;
    default: break;
    }
    json_decref(p);
    json_decref(required);
    return s;
}

static json_t *random_array(dice *d, int depth)
{
    json_t *s = json_pack("{s:s}", "type", "array");
    int min = (int)roll(d, 3), prefix = (int)roll(d, 3);
    if (roll(d, 2)) json_object_set_new(s, "items", random_schema(d, depth - 1));
    if (roll(d, 3) == 0) {
        json_t *list = json_array();
        for (int i = 0; i < prefix; i++) json_array_append_new(list, random_schema(d, depth - 1));
        json_object_set_new(s, "prefixItems", list);
    }
    if (roll(d, 2)) json_object_set_new(s, "minItems", json_integer(min));
    if (roll(d, 2)) json_object_set_new(s, "maxItems", json_integer(min + (int)roll(d, 3)));
    return s;
}

/* Told apart by the constant "kind". */
static json_t *random_one_of(dice *d, int depth)
{
    json_t *list = json_array();
    int n = 1 + (int)roll(d, 4);
    for (int i = 0; i < n; i++) {
        json_t *s = random_object(d, depth), *required = json_object_get(s, "required");
        if (!json_object_get(s, "properties")) json_object_set_new(s, "properties", json_object());
        json_object_set_new(json_object_get(s, "properties"), "kind", json_pack("{s:i}", "const", i));
        if (!required) json_object_set_new(s, "required", required = json_array());
        json_array_append_new(required, json_string("kind"));
        json_array_append_new(list, s);
    }
    return json_pack("{s:o}", "oneOf", list);
}

static json_t *random_any_of(dice *d, int depth)
{
    json_t *list = json_array();
    int n = 1 + (int)roll(d, 4);
    for (int i = 0; i < n; i++) json_array_append_new(list, random_schema(d, depth - 1));
    return json_pack("{s:o,s:s}", "anyOf", list, "title", "some");
}

json_t *random_schema(dice *d, int depth)
{
    switch (roll(d, depth > 0 ? 14 : 8)) {
    case 0: return json_pack("{s:s}", "type", roll(d, 2) ? "boolean" : "null");
    case 1: return random_number(d, true);
    case 2: return random_number(d, false);
    case 3:
    case 4: return random_string(d);
    case 5: return json_pack("{s:o}", "const", random_const(d));
    case 6: return json_pack("{s:[o,o,o]}", "enum", random_const(d), random_const(d), random_const(d));
    case 7: return json_pack("{s:[s,s,s]}", "type", "string", "integer", "null");
    case 8:
    case 9: return random_array(d, depth);
    case 10: return random_any_of(d, depth);
    case 11: return random_one_of(d, depth);
    default: return random_object(d, depth);
    }
}

json_t *random_document(dice *d)
{
    json_t *doc = random_object(d, 3), *defs = json_object(), *p = json_object();
    json_object_set_new(defs, "leaf", random_schema(d, 1));
    json_object_set_new(defs, "tree",
                        json_pack("{s:s,s:{s:{s:s},s:{s:s,s:{s:s}},s:{s:[{s:s},{s:s}]}},s:[s]}", "type", "object",
                                  "properties", "v", "$ref", "#/$defs/leaf", "kids", "type", "array", "items", "$ref",
                                  "#/$defs/tree", "next", "anyOf", "$ref", "#/$defs/tree", "type", "null", "required",
                                  "v"));
    json_object_set_new(p, "tree", json_pack("{s:s}", "$ref", "#/$defs/tree"));
    json_object_set_new(p, "all",
                        json_pack("{s:[{s:s},{s:{s:o},s:[s]}]}", "allOf", "type", "object", "properties", "q",
                                  random_schema(d, 1), "required", "q"));
    json_object_set_new(p, "more", random_schema(d, 2));
    json_object_set_new(doc, "properties", p);
    json_object_set_new(doc, "required", json_pack("[s]", "tree"));
    json_object_set_new(doc, "$defs", defs);
    return doc;
}
