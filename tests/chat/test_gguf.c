/* The tokenizer and the chat variant of a GGUF file's metadata: those of the tokenizer.json and the template that it
 * was made of, whatever types its converter gave the tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/err_name.h"
#include "../support/gguf.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "chat/prompt.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, BYTE = 6, STRINGS = 400 };

static const char pocket[] = "models/pocket";

/* What converters do with the tokens' types. */
typedef enum habit {
    ALL_CONTROL, /* every special token is control */
    VISIBLE,     /* those of calls and channels are user-defined: llama.cpp's converter */
    ONLY_NAMED,  /* control only for <bos> and its like */
    NO_TYPES,
    HABITS
} habit;

static bool visible(const char *s)
{
    static const char *const names[] = {"<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
                                        "<|tool_response>", "<tool_response|>", "<|\"|>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(s, names[i]) == 0) return true;
    return false;
}

static int type_of(const char *s, bool special, int id, habit how)
{
    if (strlen(s) == 6 && strncmp(s, "<0x", 3) == 0) return BYTE;
    if (!special) return NORMAL;
    if (how == ONLY_NAMED) return id == 3 ? UNKNOWN : id < 5 ? CONTROL : NORMAL;
    return how == VISIBLE && visible(s) ? USER_DEFINED : CONTROL;
}

static void put_strings(gguf_file *f, const char *key, const char *const *s, size_t n)
{
    ek_buf b = {0};
    for (size_t i = 0; i < n; i++) gguf_string(&b, s[i], strlen(s[i]));
    gguf_array(f, key, 8, n, b.data, b.len);
    ek_buf_fini(&b);
}

static void put_merges(gguf_file *f, const json_t *list)
{
    ek_buf b = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        char one[512];
        const json_t *m = json_array_get(list, i);
        snprintf(one, sizeof one, "%s %s", json_string_value(json_array_get(m, 0)),
                 json_string_value(json_array_get(m, 1)));
        gguf_string(&b, one, strlen(one));
    }
    gguf_array(f, "tokenizer.ggml.merges", 8, json_array_size(list), b.data, b.len);
    ek_buf_fini(&b);
}

/* The metadata of pocket's tokenizer. Only the marks and the named tokens are special in ONLY_NAMED and NO_TYPES: what
 * pocket adds beside them (<unused7>) is an ordinary piece then. */
static void put_tokenizer(gguf_file *f, habit how)
{
    json_error_t why;
    json_t *top = json_load_file("models/pocket/tokenizer.json", 0, &why), *id;
    const json_t *model = json_object_get(top, "model"), *added = json_object_get(top, "added_tokens");
    const char *piece;
    size_t n = json_object_size(json_object_get(model, "vocab"));
    const char **s = ek_alloc(n * sizeof *s);
    int32_t *type = ek_alloc(n * sizeof *type);
    bool *special = ek_alloc(n);
    for (size_t i = 0; i < json_array_size(added); i++)
        special[json_integer_value(json_object_get(json_array_get(added, i), "id"))] = true;
    json_object_foreach(json_object_get(model, "vocab"), piece, id) s[json_integer_value(id)] = piece;
    for (size_t i = 0; i < n; i++) type[i] = type_of(s[i], special[i], (int)i, how);
    gguf_text(f, "tokenizer.ggml.model", "gemma4");
    put_strings(f, "tokenizer.ggml.tokens", s, n);
    if (how != NO_TYPES) gguf_array(f, "tokenizer.ggml.token_type", 5, n, type, n * sizeof *type);
    put_merges(f, json_object_get(model, "merges"));
    gguf_u32(f, "tokenizer.ggml.bos_token_id", 2);
    gguf_u32(f, "tokenizer.ggml.eos_token_id", 106);
    gguf_u32(f, "tokenizer.ggml.unknown_token_id", 3);
    gguf_u32(f, "tokenizer.ggml.padding_token_id", 0);
    gguf_u32(f, "tokenizer.ggml.mask_token_id", 4);
    if (how != ALL_CONTROL) gguf_u32(f, "tokenizer.ggml.eot_token_id", 1);
    json_decref(top);
    free(s), free(type), free(special);
}

static ek_err open_tokenizer(ek_tokenizer **t, const char *dir)
{
    char path[300];
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    return ek_chat_tokenizer_open(t, path);
}

/* Text of pieces, marks, spaces, newlines, any scalars and bytes that are no UTF-8. */
static void random_text(ek_buf *b, const ek_tokenizer *t, uint64_t seed)
{
    static const char *const bits[] = {
        " ",       "  ",     "\n",           "\n\n\n", "\xE2\x96\x81", "<0x41>",
        "<|turn>", "<turn|", "<|tool_call>", "<bos>",  "<eos",         "\xF0\x9F\x9A\x80",
        "\xFF",    "\"\\",   "<|\"|>",       "{\"a\":"};
    uint64_t n = ek_mix64(seed) % 40;
    ek_buf_clear(b);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = ek_mix64(seed * 64 + i + 1);
        size_t len;
        const char *piece = ek_tokenizer_bytes(t, (int32_t)(107 + r / 8 % 3900), &len);
        if (r % 4 == 0) ek_buf_str(b, bits[r / 8 % (sizeof bits / sizeof *bits)]);
        else if (r % 16 == 1) ek_buf_char(b, (char)(r >> 8));
        else ek_buf_add(b, piece, len);
    }
}

static void same_ids(const ek_tokenizer *a, const ek_tokenizer *b, const ek_buf *text, size_t control)
{
    ek_ids x = {0}, y = {0};
    ek_buf s = {0}, r = {0};
    assert_int_equal(ek_encode(a, ek_buf_text(text), text->len, NULL, control, &x), EK_OK);
    assert_int_equal(ek_encode(b, ek_buf_text(text), text->len, NULL, control, &y), EK_OK);
    if (x.len != y.len || (x.len && memcmp(x.data, y.data, x.len * sizeof *x.data)))
        fail_msg("'%s': %zu ids, of the GGUF file %zu", ek_buf_text(text), x.len, y.len);
    ek_decode(a, x.data, x.len, true, &s), ek_decode(b, y.data, y.len, true, &r);
    assert_true(s.len == r.len && (s.len == 0 || memcmp(s.data, r.data, s.len) == 0));
    ek_ids_fini(&x), ek_ids_fini(&y);
    ek_buf_fini(&s), ek_buf_fini(&r);
}

static void test_same_tokenizer(void **state)
{
    (void)state;
    ek_tokenizer *want, *got;
    assert_int_equal(ek_chat_tokenizer_open(&want, pocket), EK_OK);
    for (int how = 0; how < HABITS; how++) {
        char *dir = temp_dir();
        gguf_file f = {0};
        ek_buf text = {0};
        put_tokenizer(&f, (habit)how);
        gguf_save(&f, dir, "m.gguf");
        if (open_tokenizer(&got, dir)) fail_msg("%s", ek_err_text());
        assert_int_equal(ek_tokenizer_size(got), ek_tokenizer_size(want));
        for (int32_t id = 0; id < ek_tokenizer_size(want); id++) {
            size_t n, m;
            const char *a = ek_tokenizer_bytes(want, id, &n), *b = ek_tokenizer_bytes(got, id, &m);
            assert_true(n == m && memcmp(a, b, n) == 0);
            bool unused = n > 7 && strncmp(a, "<unused", 7) == 0 && how >= ONLY_NAMED;
            if (ek_tokenizer_is_special(got, id) != (ek_tokenizer_is_special(want, id) && !unused))
                fail_msg("habit %d: %.*s", how, (int)n, a);
        }
        for (uint64_t i = 0; i < STRINGS; i++) {
            random_text(&text, want, i);
            same_ids(want, got, &text, EK_CONTROL_ALL);
            same_ids(want, got, &text, 0);
        }
        ek_buf_fini(&text);
        ek_tokenizer_close(got);
        remove_dir(dir);
    }
    ek_tokenizer_close(want);
}

/* Pieces that merges make stay pieces though a converter calls them user-defined; others are added tokens. */
static void test_user_defined(void **state)
{
    (void)state;
    char *dir = temp_dir();
    gguf_file f = {0};
    ek_tokenizer *t;
    ek_ids ids = {0};
    static const char *fixed[] = {"a", "b", "ab", "[T]", "\n", "\n\n", "<|x|>"};
    static const char *const merges[] = {"a b", "\n \n"};
    static const char *const marks[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "\xE2\x96\x81"};
    enum { PIECES = 7 + 256 + 7 }; /* without the marks it would not be Gemma's vocabulary */
    static const int32_t type[PIECES] = {NORMAL, NORMAL,       USER_DEFINED, USER_DEFINED,
                                         NORMAL, USER_DEFINED, USER_DEFINED};
    char bytes[256][8];
    const char *s[PIECES];
    memcpy(s, fixed, sizeof fixed);
    memcpy(s + 7 + 256, marks, sizeof marks);
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        s[7 + i] = bytes[i];
    }
    gguf_text(&f, "tokenizer.ggml.model", "llama"); /* Ollama's converter */
    gguf_text(&f, "tokenizer.ggml.pre", "gemma4");
    put_strings(&f, "tokenizer.ggml.tokens", s, PIECES);
    gguf_array(&f, "tokenizer.ggml.token_type", 5, PIECES, type, sizeof type);
    put_strings(&f, "tokenizer.ggml.merges", merges, 2);
    gguf_save(&f, dir, "m.gguf");
    if (open_tokenizer(&t, dir)) fail_msg("%s", ek_err_text());
    static const char text[] = "ab[T]\n\n\n<|x|>";
    static const int32_t all[] = {2, 3, 5, 4, 6}, typed[] = {2, 3, 5, 4, 7 + '<', 7 + '|', 7 + 'x', 7 + '|', 7 + '>'};
    assert_int_equal(ek_encode(t, text, sizeof text - 1, NULL, EK_CONTROL_ALL, &ids), EK_OK);
    assert_true(ids.len == 5 && memcmp(ids.data, all, sizeof all) == 0);
    ids.len = 0;
    assert_int_equal(ek_encode(t, text, sizeof text - 1, NULL, 0, &ids), EK_OK);
    assert_true(ids.len == 9 && memcmp(ids.data, typed, sizeof typed) == 0);
    assert_true(ek_tokenizer_is_special(t, 6) && !ek_tokenizer_is_special(t, 3));
    ek_ids_fini(&ids);
    ek_tokenizer_close(t);
    remove_dir(dir);
}

static void refused(gguf_file *f, ek_err want, const char *says)
{
    char *dir = temp_dir();
    ek_tokenizer *t;
    gguf_save(f, dir, "m.gguf");
    ek_err err = open_tokenizer(&t, dir);
    if (err != want || !strstr(ek_err_text(), says) || !strstr(ek_err_text(), "m.gguf"))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
    remove_dir(dir);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const twice[] = {"a", "a"}, *const one[] = {"a"}, *const bad[] = {"\xFF"};
    gguf_file f = {0};
    refused(&f, EK_ENOTFOUND, "there is no tokenizer in the file");
    gguf_text(&f, "tokenizer.ggml.model", "gpt2");
    refused(&f, EK_EUNSUPPORTED, "tokenizer.ggml.model is gpt2");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4");
    refused(&f, EK_EUNSUPPORTED, "has no tokenizer.ggml.tokens");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), gguf_u32(&f, "tokenizer.ggml.tokens", 1);
    refused(&f, EK_EFORMAT, "tokenizer.ggml.tokens is no list of strings");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), put_strings(&f, "tokenizer.ggml.tokens", one, 1);
    refused(&f, EK_EUNSUPPORTED, "has no tokenizer.ggml.merges");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), put_strings(&f, "tokenizer.ggml.tokens", twice, 2);
    put_strings(&f, "tokenizer.ggml.merges", one, 0);
    refused(&f, EK_EFORMAT, "'a' has the ids 0 and 1");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), put_strings(&f, "tokenizer.ggml.tokens", bad, 1);
    put_strings(&f, "tokenizer.ggml.merges", one, 0);
    refused(&f, EK_EFORMAT, "not UTF-8");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), put_strings(&f, "tokenizer.ggml.tokens", one, 1);
    put_strings(&f, "tokenizer.ggml.merges", one, 1);
    refused(&f, EK_EFORMAT, "byte_fallback is on, but the byte piece <0x00> is missing");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), put_strings(&f, "tokenizer.ggml.tokens", one, 1);
    put_strings(&f, "tokenizer.ggml.merges", one, 1);
    gguf_array(&f, "tokenizer.ggml.token_type", 5, 2, (const int32_t[]){1, 1}, 8);
    refused(&f, EK_EFORMAT, "has 2 types for 1 tokens");
    gguf_text(&f, "tokenizer.ggml.model", "gemma4"), gguf_bool(&f, "tokenizer.ggml.add_space_prefix", 1);
    refused(&f, EK_EUNSUPPORTED, "add_space_prefix is true");
}

/* ------------------------------------------------------------------ chat */

static ek_chat_variant variant(const char *template_text, int per_layer, const char *own)
{
    char *dir = temp_dir(), path[300];
    gguf_file f = {0};
    ek_chat_variant v;
    if (template_text) gguf_text(&f, "tokenizer.chat_template", template_text);
    if (own) gguf_text(&f, "evenkeel.chat_variant", own);
    if (per_layer >= 0) gguf_u32(&f, "gemma4.embedding_length_per_layer_input", (uint32_t)per_layer);
    gguf_save(&f, dir, "m.gguf");
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    if (ek_chat_variant_open(&v, path)) fail_msg("%s", ek_err_text());
    remove_dir(dir);
    return v;
}

static void test_variant(void **state)
{
    (void)state;
    static const char small[] = "{{'<|tool_call>call:'}}{{'<|turn>model\\n'}}",
                      large[] = "{{'<|tool_call>call:'}}{{'<|turn>model\\n<|channel>thought\\n<channel|>'}}";
    ek_chat_variant v;
    assert_int_equal(variant(NULL, 256, NULL), EK_CHAT_SMALL);
    assert_int_equal(variant(NULL, 0, NULL), EK_CHAT_LARGE);
    assert_int_equal(variant(NULL, -1, NULL), EK_CHAT_LARGE);
    assert_int_equal(variant(NULL, 0, "small"), EK_CHAT_SMALL);
    assert_int_equal(variant(NULL, 256, "large"), EK_CHAT_LARGE);
    ek_log_set(EK_LOG_ERROR); /* a template that is not known is a warning */
    assert_int_equal(variant(small, 0, NULL), EK_CHAT_SMALL);
    assert_int_equal(variant(large, 256, NULL), EK_CHAT_LARGE);
    assert_int_equal(variant("another", 256, NULL), EK_CHAT_SMALL);
    assert_int_equal(variant("another", 256, "large"), EK_CHAT_LARGE);
    assert_int_equal(variant(small, 0, "large"), EK_CHAT_SMALL);
    ek_log_set(EK_LOG_WARN);
    assert_int_equal(ek_chat_variant_open(&v, pocket), EK_OK);
    assert_int_equal(v, EK_CHAT_SMALL);
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokenizer),
        cmocka_unit_test(test_user_defined),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
