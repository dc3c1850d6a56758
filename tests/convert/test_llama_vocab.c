/* Tokenizers that GGUF files call "llama", as `ollama create` does with Gemma's: the ids are those of the
 * tokenizer.json that they were made of, from merges where a file has them and from scores where it has not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gguf.h"
#include "../support/gguf_memory.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/rng.h"
#include "model/source/source_gguf.h"
#include "text/tokenizer/tokenizer.h"

static const char pocket[] = "models/pocket/tokenizer.json";

/* A vocabulary as a converter sees it. */
typedef struct vocab {
    int n;
    char **piece;
    int32_t *type;
    float *score;
    ek_buf merges; /* as strings of an array */
    uint64_t n_merges;
} vocab;

/* How a file is written: what stands in it, and what its scores are. */
typedef enum scores { NONE, IDS, RANKS, SAME, WITH_NAN, TOO_FEW, TEXTS } scores;
typedef struct form {
    const char *name, *model, *pre;
    scores scores;
    bool merges, no_types, empty_merges, user_defined;
    const char *says; /* the refusal; NULL: taken */
} form;

static int piece_id(json_t *pieces, const char *s)
{
    return (int)json_integer_value(json_object_get(pieces, s));
}

static bool read_pocket(vocab *v)
{
    ek_buf text = {0};
    json_error_t why;
    if (ek_file_read(&text, pocket, 1 << 24) != EK_OK) return false;
    json_t *root = json_loadb(text.data, text.len, 0, &why), *model = json_object_get(root, "model"), *one;
    json_t *pieces = json_object_get(model, "vocab");
    const char *key;
    size_t i;
    v->n = (int)json_object_size(pieces);
    v->piece = ek_alloc(sizeof *v->piece * (size_t)v->n);
    v->type = ek_alloc(sizeof *v->type * (size_t)v->n);
    v->score = ek_alloc(sizeof *v->score * (size_t)v->n);
    json_object_foreach(pieces, key, one)
    {
        int id = (int)json_integer_value(one);
        v->piece[id] = ek_strdup(key);
        v->type[id] = strncmp(key, "<0x", 3) == 0 && strlen(key) == 6 ? 6 : 1;
        v->score[id] = -(float)v->n; /* single characters: behind all that merges make */
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, one)
    {
        int id = (int)json_integer_value(json_object_get(one, "id"));
        v->type[id] = json_is_true(json_object_get(one, "special")) ? 3 : 4;
    }
    json_array_foreach(json_object_get(model, "merges"), i, one)
    {
        ek_buf pair = {0};
        char *made;
        if (json_is_array(one))
            ek_buf_fmt(&pair, "%s %s", json_string_value(json_array_get(one, 0)),
                       json_string_value(json_array_get(one, 1)));
        else ek_buf_str(&pair, json_string_value(one));
        gguf_string(&v->merges, pair.data, pair.len);
        v->n_merges++;
        made = strchr(pair.data, ' ');
        memmove(made, made + 1, strlen(made));
        v->score[piece_id(pieces, pair.data)] = -(float)i;
        ek_buf_fini(&pair);
    }
    json_decref(root);
    ek_buf_fini(&text);
    return true;
}

static void free_vocab(vocab *v)
{
    for (int i = 0; i < v->n; i++) free(v->piece[i]);
    free(v->piece), free(v->type), free(v->score);
    ek_buf_fini(&v->merges);
}

static float score_of(const vocab *v, const form *f, int id)
{
    return f->scores == IDS                             ? (float)id
           : f->scores == RANKS || f->scores == TOO_FEW ? v->score[id]
           : f->scores == WITH_NAN && id == 700         ? NAN
                                                        : -1000;
}

static void write_form(ek_buf *out, const vocab *v, const form *f)
{
    gguf_file file = {0};
    ek_buf tokens = {0};
    float *score = ek_alloc(sizeof *score * (size_t)v->n);
    int32_t *type = ek_alloc(sizeof *type * (size_t)v->n);
    for (int i = 0; i < v->n; i++) {
        gguf_string(&tokens, v->piece[i], strlen(v->piece[i]));
        score[i] = score_of(v, f, i);
        type[i] = f->user_defined && v->type[i] == 6 ? 4 : v->type[i];
    }
    gguf_text(&file, "general.architecture", "gemma4");
    gguf_text(&file, "tokenizer.ggml.model", f->model ? f->model : "llama");
    if (f->pre) gguf_text(&file, "tokenizer.ggml.pre", f->pre);
    gguf_array(&file, "tokenizer.ggml.tokens", 8, (uint64_t)v->n, tokens.data, tokens.len);
    if (!f->no_types)
        gguf_array(&file, "tokenizer.ggml.token_type", 5, (uint64_t)v->n, type, sizeof *type * (size_t)v->n);
    int n_scores = f->scores == TOO_FEW ? v->n - 1 : v->n;
    if (f->scores == TEXTS) gguf_array(&file, "tokenizer.ggml.scores", 8, (uint64_t)v->n, tokens.data, tokens.len);
    else if (f->scores)
        gguf_array(&file, "tokenizer.ggml.scores", 6, (uint64_t)n_scores, score, sizeof *score * (size_t)n_scores);
    if (f->merges) gguf_array(&file, "tokenizer.ggml.merges", 8, v->n_merges, v->merges.data, v->merges.len);
    if (f->empty_merges) gguf_array(&file, "tokenizer.ggml.merges", 8, 0, "", 0);
    gguf_u32(&file, "tokenizer.ggml.bos_token_id", 2);
    gguf_u32(&file, "tokenizer.ggml.eos_token_id", 1);
    gguf_u32(&file, "tokenizer.ggml.unknown_token_id", 3);
    gguf_u32(&file, "tokenizer.ggml.padding_token_id", 0);
    gguf_bytes(&file, out);
    gguf_fini(&file);
    ek_buf_fini(&tokens);
    free(score);
    free(type);
}

/* The tokenizer of a file in this form; NULL with the error's text. */
static ek_tokenizer *open_form(const vocab *v, const form *f)
{
    ek_buf file = {0}, json = {0};
    ek_tokenizer *t = NULL;
    ek_gguf *g;
    write_form(&file, v, f);
    assert_int_equal(gguf_of_memory(&g, (const uint8_t *)file.data, file.len, "f"), EK_OK);
    ek_err err = ek_gguf_tokenizer(g, &json);
    if (!err) err = ek_tokenizer_parse(&t, json.data, json.len);
    if (err) t = NULL;
    ek_gguf_close(g);
    ek_buf_fini(&file);
    ek_buf_fini(&json);
    return t;
}

/* ------------------------------------------------------------------ texts */

static const char *const texts[] = {
    "Hello  world,\n\n\n  {\"a\": [1, 2]} <|turn>x<turn|> \xe2\x96\x81 M\xc3\xbcnchen \xe5\x8c\x97\xe4\xba\xac \xf0\x9f\x9a\x80 <0x41>\t\"\\",
    "<bos><|turn>user\nWhat is the weather in Paris?<turn|>\n<|turn>model\n",
    "<|tool_call>call:get_weather{city:<|\"|>Rome<|\"|>}<tool_call|>",
    "the cold proposal of a member: user, number, gold, bold, tree, milling, longest",
    "\r\n\r\n        return x;\n\t\t}\n\n\n\n\n\n\n\n\n",
    "                                                              a",
    "<unused3>[PAD7]<pad></s><unk>",
    "",
    " ",
    "\xff\xfe broken \xc3",
    "a\xcc\x81\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
};

static void same_ids(const form *f, const ek_tokenizer *want, const ek_tokenizer *got, const char *s, size_t n)
{
    for (int all = 0; all < 2; all++) {
        ek_ids a = {0}, b = {0};
        assert_int_equal(ek_encode(want, s, n, NULL, all ? EK_CONTROL_ALL : 0, &a), EK_OK);
        assert_int_equal(ek_encode(got, s, n, NULL, all ? EK_CONTROL_ALL : 0, &b), EK_OK);
        if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len * sizeof *a.data) != 0))
            fail_msg("%s: other ids for \"%.*s\"", f->name, (int)n, s);
        ek_ids_fini(&a);
        ek_ids_fini(&b);
    }
}

/* A text of pieces and parts of pieces: what real text never puts side by side, too. */
static void random_text(ek_buf *out, const vocab *v, uint64_t *seed)
{
    ek_buf_clear(out);
    int parts = 1 + (int)(ek_mix64(++*seed) % 12);
    for (int i = 0; i < parts; i++) {
        uint64_t r = ek_mix64(++*seed);
        const char *p = v->piece[r % (uint64_t)v->n];
        size_t n = strlen(p), from = (r >> 40) % 3 ? 0 : (r >> 44) % (n + 1),
               to = (r >> 52) % 3 ? n : (r >> 56) % (n + 1);
        if (to > from) ek_buf_add(out, p + from, to - from);
    }
}

static void compare(const vocab *v, const form *f, const ek_tokenizer *want)
{
    ek_tokenizer *got = open_form(v, f);
    ek_buf text = {0};
    uint64_t seed = 5;
    if (!got) fail_msg("%s: %s", f->name, ek_err_text());
    assert_int_equal(ek_tokenizer_size(got), v->n);
    for (int id = 0; id < v->n; id++) {
        size_t n = 0, m = 0;
        const char *a = ek_tokenizer_bytes(want, id, &n), *b = ek_tokenizer_bytes(got, id, &m);
        if (n != m || memcmp(a, b, n) != 0 || ek_tokenizer_is_special(want, id) != ek_tokenizer_is_special(got, id))
            fail_msg("%s: token %d is another one", f->name, id);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) same_ids(f, want, got, texts[i], strlen(texts[i]));
    for (int i = 0; i < 20000; i++) {
        random_text(&text, v, &seed);
        same_ids(f, want, got, ek_buf_text(&text), text.len);
    }
    ek_buf_fini(&text);
    ek_tokenizer_close(got);
}

static const form taken[] = {
    {.name = "ollama, of today", .pre = "gemma4", .scores = IDS, .merges = true},
    {.name = "ollama, before it wrote pre", .pre = "default", .scores = IDS, .merges = true},
    {.name = "no pre, no scores", .merges = true},
    {.name = "merges, and scores of llama.cpp", .scores = SAME, .merges = true},
    {.name = "scores of SentencePiece", .scores = RANKS},
    {.name = "scores, and an empty list of merges", .scores = RANKS, .empty_merges = true},
    {.name = "scores, bytes as normal pieces", .scores = RANKS, .no_types = true},
    {.name = "merges, no types", .merges = true, .no_types = true},
};

static void ids_are_those_of_the_folder(void **state)
{
    (void)state;
    vocab v = {0};
    ek_buf json = {0};
    ek_tokenizer *want;
    if (!read_pocket(&v)) skip();
    assert_int_equal(ek_file_read(&json, pocket, 1 << 24), EK_OK);
    assert_int_equal(ek_tokenizer_parse(&want, json.data, json.len), EK_OK);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) compare(&v, &taken[i], want);
    ek_tokenizer_close(want);
    ek_buf_fini(&json);
    free_vocab(&v);
}

/* ------------------------------------------------------------------ refusals */

static const form refused[] = {
    {.name = "nothing", .says = "it has neither tokenizer.ggml.merges nor tokenizer.ggml.scores"},
    {.name = "equal scores", .scores = SAME, .says = "its scores do not say which pieces make which"},
    {.name = "ids as scores", .scores = IDS, .says = "its scores do not say which pieces make which"},
    {.name = "no number", .scores = WITH_NAN, .says = "tokenizer.ggml.scores has nan at 700"},
    {.name = "no number, merges", .scores = WITH_NAN, .merges = true, .says = "tokenizer.ggml.scores has nan at 700"},
    {.name = "too few", .scores = TOO_FEW, .says = "tokenizer.ggml.scores has 4095 scores for 4096 tokens"},
    {.name = "texts", .scores = TEXTS, .says = "tokenizer.ggml.scores is no list of numbers"},
    {.name = "empty merges alone", .empty_merges = true, .says = "it has neither tokenizer.ggml.merges nor"},
    {.name = "gpt2",
     .model = "gpt2",
     .scores = RANKS,
     .merges = true,
     .says = "tokenizer.ggml.model is gpt2; gemma4 can be read, and llama"},
};

static void without(vocab *v, const char *piece, const char *says)
{
    const form f = {.name = piece, .merges = true, .scores = RANKS};
    for (int i = 0; i < v->n; i++) {
        if (strcmp(v->piece[i], piece) != 0) continue;
        char *was = v->piece[i];
        v->piece[i] = "<|other>";
        assert_null(open_form(v, &f));
        if (!strstr(ek_err_text(), "its vocabulary is not Gemma 4's") || !strstr(ek_err_text(), says))
            fail_msg("without %s: %s", piece, ek_err_text());
        v->piece[i] = was;
        return;
    }
    fail_msg("no piece %s", piece);
}

static void what_is_not_gemmas_is_refused(void **state)
{
    (void)state;
    vocab v = {0};
    if (!read_pocket(&v)) skip();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (open_form(&v, &refused[i])) fail_msg("%s: taken", refused[i].name);
        if (!strstr(ek_err_text(), refused[i].says) || strlen(ek_err_text()) > 300)
            fail_msg("%s: \"%s\", wanted \"%s\"", refused[i].name, ek_err_text(), refused[i].says);
    }
    without(&v, "<|turn>", "it has no <|turn>");
    without(&v, "<bos>", "it has no <bos>");
    without(&v, "<0x00>", "it has no <0x00>");
    without(&v, "<0xFF>", "it has no <0xFF>");
    char *was = v.piece[4000];
    v.piece[4000] = ek_alloc(4001);
    memset(v.piece[4000], 'a', 4000);
    v.piece[4000][4000] = '\0';
    assert_null(open_form(&v, &(form){.name = "long", .scores = RANKS}));
    assert_non_null(strstr(ek_err_text(), "a piece of 4000 bytes, at most 1024 can be made"));
    free(v.piece[4000]);
    v.piece[4000] = was;
    free_vocab(&v);
}

/* ------------------------------------------------------------------ the order of merges */

/* Ties, and pieces of several bytes per character. The list is what transformers' generate_merges makes of these. */
static const struct {
    const char *piece;
    float score;
} few[] = {{"\n", 0},
           {"\n\n", 0},
           {"\n\n\n", 0},
           {"\n\n\n\n", 0},
           {"ab", -1},
           {"ba", -2},
           {"aba", -2},
           {"abab", -3},
           {"\xc3\xa9", -9},
           {"\xc3\xa9"
            "a",
            -4},
           {"a\xc3\xa9", -4},
           {"\xc3\xa9"
            "a\xc3\xa9",
            -5},
           {"a", -7},
           {"b", -8}};
static const char few_merges[] =
    "\"merges\":[[\"\\u000a\\u000a\\u000a\",\"\\u000a\"],[\"\\u000a\\u000a\",\"\\u000a\\u000a\"],[\"\\u000a\\u000a\",\"\\u000a\"],"
    "[\"\\u000a\",\"\\u000a\\u000a\\u000a\"],[\"\\u000a\",\"\\u000a\\u000a\"],[\"\\u000a\",\"\\u000a\"],[\"a\",\"b\"],[\"ab\",\"a\"],"
    "[\"a\",\"ba\"],[\"b\",\"a\"],[\"aba\",\"b\"],[\"ab\",\"ab\"],[\"\xc3\xa9\",\"a\"],[\"a\",\"\xc3\xa9\"],"
    "[\"\xc3\xa9"
    "a\",\"\xc3\xa9\"],[\"\xc3\xa9\",\"a\xc3\xa9\"]]";

static void add(vocab *v, const char *piece, int type, float score)
{
    v->piece[v->n] = ek_strdup(piece);
    v->type[v->n] = type;
    v->score[v->n++] = score;
}

/* Marks, bytes, the few pieces. user: newlines as user-defined pieces, as SentencePiece has them. */
static void make_few(vocab *v, bool user)
{
    static const char *const marks[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"};
    *v = (vocab){.piece = ek_alloc(sizeof *v->piece * 512),
                 .type = ek_alloc(sizeof *v->type * 512),
                 .score = ek_alloc(sizeof *v->score * 512)};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) add(v, marks[i], 3, 0);
    for (int i = 0; i < 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", i);
        add(v, byte, 6, 0);
    }
    add(v, "\xe2\x96\x81", 1, -10);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        add(v, few[i].piece, user && few[i].piece[0] == '\n' ? 4 : 1, few[i].score);
}

static void merges_stand_in_the_order_of_the_reference(void **state)
{
    (void)state;
    const form f = {.name = "few", .scores = RANKS};
    vocab v;
    ek_buf file = {0}, json = {0};
    ek_gguf *g;
    make_few(&v, true);
    write_form(&file, &v, &f);
    assert_int_equal(gguf_of_memory(&g, (const uint8_t *)file.data, file.len, "f"), EK_OK);
    if (ek_gguf_tokenizer(g, &json)) fail_msg("%s", ek_err_text());
    if (!strstr(json.data, few_merges)) fail_msg("%s", strstr(json.data, "\"merges\""));
    ek_gguf_close(g);
    ek_buf_fini(&file);
    ek_buf_fini(&json);
    free_vocab(&v);
}

/* Converters give -1000 to user-defined tokens that were added, and write their U+2581 as spaces. */
static void added_tokens_stay_added(void **state)
{
    (void)state;
    const form f = {.name = "added", .scores = RANKS};
    vocab v;
    make_few(&v, true);
    add(&v, "abba", 4, -1000);
    add(&v, "  ", 4, -1000);
    add(&v, "[PAD9]", 4, -1);
    ek_tokenizer *t = open_form(&v, &f);
    if (!t) fail_msg("%s", ek_err_text());
    static const struct {
        const char *text;
        int n;
        const char *ids[4];
    } row[] = {{"abba", 1, {"abba"}},
               {"xabbaab", 3, {"<0x78>", "abba", "ab"}},
               {"\xe2\x96\x81\xe2\x96\x81", 1, {"\xe2\x96\x81\xe2\x96\x81"}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_ids ids = {0};
        assert_int_equal(ek_encode(t, row[i].text, strlen(row[i].text), NULL, 0, &ids), EK_OK);
        assert_int_equal(ids.len, row[i].n);
        for (int k = 0; k < row[i].n; k++) assert_int_equal(ids.data[k], ek_tokenizer_id(t, row[i].ids[k]));
        ek_ids_fini(&ids);
    }
    ek_ids ids = {0};
    assert_int_equal(ek_encode(t, "[PAD9]", 6, NULL, EK_CONTROL_ALL, &ids), EK_OK);
    assert_true(ids.len > 1); /* nobody's token */
    ek_ids_fini(&ids);
    ek_tokenizer_close(t);
    free_vocab(&v);
}

/* Hugging Face's tokenizers refuse a file whose added token lacks one of them. */
static void added_tokens_have_every_field(void **state)
{
    (void)state;
    static const char *const flag[] = {"special", "single_word", "lstrip", "rstrip", "normalized"};
    const form f = {.name = "added", .scores = RANKS};
    vocab v;
    make_few(&v, true);
    ek_buf file = {0}, text = {0};
    ek_gguf *g;
    write_form(&file, &v, &f);
    assert_int_equal(gguf_of_memory(&g, (const uint8_t *)file.data, file.len, "f"), EK_OK);
    assert_int_equal(ek_gguf_tokenizer(g, &text), EK_OK);
    json_t *root = json_loadb(text.data, text.len, 0, NULL);
    const json_t *added = json_object_get(root, "added_tokens");
    assert_true(json_array_size(added) > 0);
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *one = json_array_get(added, i);
        assert_true(json_is_integer(json_object_get(one, "id")) && json_is_string(json_object_get(one, "content")));
        for (size_t k = 0; k < sizeof flag / sizeof *flag; k++)
            assert_true(json_is_boolean(json_object_get(one, flag[k])));
    }
    json_decref(root);
    ek_gguf_close(g);
    ek_buf_fini(&file);
    ek_buf_fini(&text);
    free_vocab(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_folder),
        cmocka_unit_test(what_is_not_gemmas_is_refused),
        cmocka_unit_test(merges_stand_in_the_order_of_the_reference),
        cmocka_unit_test(added_tokens_stay_added),
        cmocka_unit_test(added_tokens_have_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
