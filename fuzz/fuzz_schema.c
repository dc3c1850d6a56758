/* The schema compiler and its automaton. Input: a byte of options and of choices, then a schema. Properties: a refusal
 * is one line of EINVAL or ETOOLARGE, and none comes where a schema may be left out in parts; a grammar never runs into
 * a state without a token; a reply that ends is JSON (or a call whose arguments are). */
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "text/grammar/grammar.h"
#include "text/json/json.h"
#include "text/reply/call_args.h"
#include "text/reply/reply.h"

static ek_tokenizer *tokenizer;
static ek_vocab *vocab;
static ek_marks marks;

enum { STEPS = 400, WILD = 60, WORDS = 8 };

static void open_tokenizer(void)
{
    static const char *const controls[] = {"<eos>",  "<unk>",      "<|tool_call>", "<tool_call|>", "<|tool_response>",
                                           "<|\"|>", "<|channel>", "<channel|>",   "<|turn>",      "<turn|>"};
    enum { N = sizeof controls / sizeof *controls };
    ek_buf b = {0};
    ek_buf_str(&b, "{\"added_tokens\":[");
    for (int i = 0; i < N; i++) {
        ek_buf_fmt(&b, "%s{\"id\":%d,\"content\":", i ? "," : "", i);
        ek_json_quote(&b, controls[i], strlen(controls[i]));
        ek_buf_str(&b,
                   ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    ek_buf_str(
        &b,
        "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
        "\"invert\":false},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":"
        "\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{");
    for (int i = 0; i < N; i++) {
        ek_json_quote(&b, controls[i], strlen(controls[i]));
        ek_buf_fmt(&b, ":%d,", i);
    }
    for (int i = 0; i < 256; i++) ek_buf_fmt(&b, "\"<0x%02X>\":%d%s", i, N + i, i < 255 ? "," : "},\"merges\":[]}}");
    EK_ASSERT(ek_tokenizer_parse(&tokenizer, b.data, b.len) == EK_OK);
    ek_buf_fini(&b);
    ek_marks_find(&marks, tokenizer);
    vocab = ek_vocab_open(tokenizer);
}

/* Whatever the hash picks, then what closes. */
static int32_t choose(const uint64_t *row, uint64_t hash, bool wild)
{
    static const char *const orders[] = {"}]\":0,", "}:\"]0,"};
    const char *closers = orders[hash % 2]; /* in a name that is not known all but the brace may stand */
    int32_t any = -1;
    int n = 0;
    for (int m = 0; m < EK_MARK_COUNT && !wild; m++)
        if (marks.id[m] >= 0 && m != EK_MARK_CALL_OPEN && row[marks.id[m] / 64] >> marks.id[m] % 64 & 1)
            return marks.id[m];
    for (const char *c = closers; *c && !wild; c++) {
        char name[8] = "<0x00>";
        name[3] = "0123456789ABCDEF"[(uint8_t)*c >> 4], name[4] = "0123456789ABCDEF"[*c & 15];
        int32_t id = ek_tokenizer_id(tokenizer, name);
        if (row[id / 64] >> id % 64 & 1) return id;
    }
    for (int32_t id = 0; id < ek_tokenizer_size(tokenizer); id++)
        if (row[id / 64] >> id % 64 & 1 && ek_mix64(hash + (uint64_t)id) % (uint64_t)++n == 0) any = id;
    return any;
}

static void check_reply(const ek_answer *a)
{
    json_t *v;
    for (int i = 0; i < a->n_calls; i++) {
        if (ek_json_read(&v, ek_buf_text(&a->calls[i].args), a->calls[i].args.len, 0)) __builtin_trap();
        json_decref(v);
    }
    if (a->n_calls == 0) {
        if (ek_json_read(&v, ek_buf_text(&a->content), a->content.len, 0)) __builtin_trap();
        json_decref(v);
    }
}

static void reply(const ek_grammar *g, const json_t *tools, uint64_t hash)
{
    ek_answer answer = {0};
    ek_reply_opts o = {.tools_active = true, .tools = tools, .sink = ek_reply_collect, .arg = &answer};
    ek_reply *r = ek_reply_open(tokenizer, &o);
    ek_grammar_state *s = ek_grammar_state_open(g, vocab, NULL, 0, hash & 1);
    for (int i = 0; i < STEPS && !ek_reply_stopped(r); i++) {
        uint64_t row[WORDS];
        bool all;
        ek_grammar_look(s, NULL, 0, WORDS, row, &all);
        int32_t id = all ? marks.id[EK_MARK_TURN_CLOSE] : choose(row, hash + (uint64_t)i, i < WILD);
        if (id < 0) __builtin_trap(); /* a wall */
        ek_grammar_accept(s, id);
        ek_reply_feed(r, id);
    }
    if (ek_reply_stopped(r)) {
        if (ek_reply_malformed(r)) __builtin_trap();
        check_reply(&answer);
    }
    ek_grammar_state_close(s);
    ek_reply_close(r);
    ek_answer_fini(&answer);
}

static void feed(ek_reply *r, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[8] = "<0x00>";
        name[3] = "0123456789ABCDEF"[(uint8_t)s[i] >> 4], name[4] = "0123456789ABCDEF"[s[i] & 15];
        ek_reply_feed(r, ek_tokenizer_id(tokenizer, name));
    }
}

/* {NAME:<|"|>v<|"|>} */
static void name_comes_back(const json_t *tools, const char *name, size_t n)
{
    ek_answer answer = {0};
    ek_reply_opts o = {.tools_active = true, .tools = tools, .sink = ek_reply_collect, .arg = &answer};
    ek_reply *r = ek_reply_open(tokenizer, &o);
    json_t *v;
    ek_reply_feed(r, marks.id[EK_MARK_CALL_OPEN]);
    feed(r, "call:f{", 7);
    feed(r, name, n);
    feed(r, ":", 1);
    ek_reply_feed(r, marks.id[EK_MARK_QUOTE]);
    feed(r, "v", 1);
    ek_reply_feed(r, marks.id[EK_MARK_QUOTE]);
    feed(r, "}", 1);
    ek_reply_feed(r, marks.id[EK_MARK_CALL_CLOSE]);
    ek_reply_end(r, false);
    if (answer.n_calls != 1 || ek_json_read(&v, ek_buf_text(&answer.calls[0].args), answer.calls[0].args.len, 0))
        __builtin_trap();
    if (json_object_size(v) != 1 || !json_object_getn(v, name, n)) __builtin_trap();
    json_decref(v);
    ek_reply_close(r);
    ek_answer_fini(&answer);
}

static void names_come_back(const json_t *schema, const json_t *tools)
{
    json_t *properties = json_object_get(schema, "properties");
    int left = 8;
    if (!json_is_object(properties)) return;
    for (void *i = json_object_iter(properties); i && left-- > 0; i = json_object_iter_next(properties, i))
        if (ek_call_name_is_bare(json_object_iter_key(i), json_object_iter_key_len(i)))
            name_comes_back(tools, json_object_iter_key(i), json_object_iter_key_len(i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *schema, *tools = NULL;
    ek_grammar *g;
    if (!tokenizer) open_tokenizer();
    if (n < 1 || ek_json_read(&schema, (const char *)data + 1, n - 1, 0)) return 0;
    bool call = data[0] & 1;
    ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema, .lenient = data[0] & 2};
    if (call) {
        tools = json_pack("[{s:s,s:{s:s,s:O,s:b}}]", "type", "function", "function", "name", "f", "parameters", schema,
                          "strict", !(data[0] & 2));
        form = (ek_reply_form){.calls_required = true};
        names_come_back(schema, tools);
    }
    ek_err err = ek_grammar_open(&g, vocab, &form, tools, true);
    if (err) {
        if (data[0] & 2) __builtin_trap();
        if ((err != EK_EINVAL && err != EK_ETOOLARGE) || g || !*ek_err_text() || strchr(ek_err_text(), '\n'))
            __builtin_trap();
    } else {
        reply(g, tools, ek_hash64(data[0], data, n));
    }
    ek_grammar_close(g);
    json_decref(schema);
    json_decref(tools);
    return 0;
}
