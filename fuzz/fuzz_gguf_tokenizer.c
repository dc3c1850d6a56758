/* The tokenizer of GGUF metadata, made from lines: "1word" to "6word" are tokens of that type, "m" begins a merge, and
 * every byte piece is there. Properties: an accepted tokenizer has each token under its own id and spelled as in the
 * file, control tokens are special, and its ids decode to what was encoded. A first line "L" makes it a vocabulary that
 * is called llama, with the marks of Gemma 4's and scores that fall: merges stand in it or are made. */
#include <stdlib.h>
#include <string.h>

#include "../tests/support/gguf_memory.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "model/source/source_gguf.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

typedef struct lists {
    ek_buf tokens, types, merges, scores;
    uint64_t n, n_merges;
    bool llama;
} lists;

static void add_text(ek_buf *b, const char *s, size_t n)
{
    uint64_t length = n;
    ek_buf_add(b, &length, sizeof length);
    ek_buf_add(b, s, n);
}

static void add_token(lists *l, const char *s, size_t n, int32_t type)
{
    add_text(&l->tokens, s, n);
    ek_buf_add(&l->types, &type, sizeof type);
    float score = -(float)l->n++;
    ek_buf_add(&l->scores, &score, sizeof score);
}

static void read_lines(lists *l, const char *s, size_t n)
{
    static const char *const marks[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"};
    l->llama = n >= 2 && s[0] == 'L' && s[1] == '\n';
    for (size_t i = 0; l->llama && i < sizeof marks / sizeof *marks; i++) add_token(l, marks[i], strlen(marks[i]), 3);
    if (l->llama) add_token(l, "\xE2\x96\x81", 3, 1);
    for (const char *end = s + n; s < end;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        if (stop > s && *s == 'm') {
            add_text(&l->merges, s + 1, (size_t)(stop - s - 1));
            l->n_merges++;
        } else if (stop > s) {
            add_token(l, s + 1, (size_t)(stop - s - 1), *s - '0');
        }
        s = stop + 1;
    }
    for (int i = 0; i < 256; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "<0x%02X>", i);
        add_token(l, b.data, b.len, 6);
        ek_buf_fini(&b);
    }
}

static void add_array(ek_buf *b, const char *key, uint32_t kind, uint64_t count, const ek_buf *data)
{
    uint32_t array = EK_GGUF_ARRAY;
    add_text(b, key, strlen(key));
    ek_buf_add(b, &array, sizeof array);
    ek_buf_add(b, &kind, sizeof kind);
    ek_buf_add(b, &count, sizeof count);
    ek_buf_add(b, ek_buf_text(data), data->len);
}

static void write_file(ek_buf *b, const lists *l)
{
    uint32_t version = 3, kind = EK_GGUF_STRING;
    uint64_t n_tensors = 0, n_values = 4 + l->llama;
    ek_buf_str(b, "GGUF");
    ek_buf_add(b, &version, sizeof version);
    ek_buf_add(b, &n_tensors, sizeof n_tensors);
    ek_buf_add(b, &n_values, sizeof n_values);
    add_text(b, "tokenizer.ggml.model", strlen("tokenizer.ggml.model"));
    ek_buf_add(b, &kind, sizeof kind);
    if (l->llama) add_text(b, "llama", 5);
    else add_text(b, "gemma4", 6);
    add_array(b, "tokenizer.ggml.tokens", EK_GGUF_STRING, l->n, &l->tokens);
    add_array(b, "tokenizer.ggml.token_type", EK_GGUF_I32, l->n, &l->types);
    if (l->llama) add_array(b, "tokenizer.ggml.scores", EK_GGUF_F32, l->n, &l->scores);
    add_array(b, "tokenizer.ggml.merges", EK_GGUF_STRING, l->n_merges, &l->merges);
}

static void check_pieces(const ek_tokenizer *t, const ek_gguf *g)
{
    const ek_gguf_value *tokens = ek_gguf_find(g, "tokenizer.ggml.tokens"),
                        *types = ek_gguf_find(g, "tokenizer.ggml.token_type");
    const uint8_t *at = tokens->data;
    const char *s;
    size_t n;
    int64_t type = 0;
    if (ek_tokenizer_size(t) != (int)tokens->count) __builtin_trap();
    for (int32_t id = 0; ek_gguf_next_text(tokens, &at, &s, &n); id++) {
        char *copy = ek_alloc(n + 1);
        memcpy(copy, s, n);
        if (strlen(copy) == n && ek_tokenizer_id(t, copy) != id) __builtin_trap();
        free(copy);
        if (!ek_gguf_int(types, (uint64_t)id, &type)) __builtin_trap();
        if (type == 3 && n && !ek_tokenizer_is_special(t, id)) __builtin_trap();
        if (type == 6 && n == 6 && s[0] == '<' && s[1] == '0' && ek_tokenizer_is_special(t, id)) __builtin_trap();
    }
}

/* Encoding cannot tell U+2581 from a space, and without a piece for it a space comes back as U+2581. */
static void add_spaced(ek_buf *out, const ek_buf *from)
{
    for (size_t i = 0; i < from->len; i++)
        if (from->len - i >= 3 && memcmp(from->data + i, "\xE2\x96\x81", 3) == 0) {
            ek_buf_char(out, ' ');
            i += 2;
        } else {
            ek_buf_char(out, from->data[i]);
        }
}

static void check_text(const ek_tokenizer *t, const char *s, size_t n)
{
    ek_ids ids = {0};
    ek_buf clean = {0}, want = {0}, back = {0}, got = {0};
    ek_utf8_clean(&clean, s, n);
    add_spaced(&want, &clean);
    if (ek_encode(t, s, n, NULL, 0, &ids) != EK_OK) __builtin_trap();
    ek_decode(t, ids.data, ids.len, false, &back);
    add_spaced(&got, &back);
    if (got.len != want.len || (got.len && memcmp(got.data, want.data, got.len) != 0)) __builtin_trap();
    ek_ids_fini(&ids);
    ek_buf_fini(&clean), ek_buf_fini(&want), ek_buf_fini(&back), ek_buf_fini(&got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lists l = {0};
    ek_buf file = {0}, json = {0};
    ek_gguf *g;
    ek_tokenizer *t;
    read_lines(&l, (const char *)data, n);
    write_file(&file, &l);
    if (gguf_of_memory(&g, (const uint8_t *)file.data, file.len, "f") != EK_OK) __builtin_trap();
    ek_err err = ek_gguf_tokenizer(g, &json);
    if (err && !l.llama) __builtin_trap();
    if (!err && ek_tokenizer_parse(&t, json.data, json.len) == EK_OK) {
        if (!l.llama) check_pieces(t, g); /* there, spaces of user-defined pieces become U+2581 */
        check_text(t, (const char *)data, n < 500 ? n : 500);
        ek_tokenizer_close(t);
    } else if (strchr(ek_err_text(), '\n')) {
        __builtin_trap();
    }
    ek_gguf_close(g);
    ek_buf_fini(&file), ek_buf_fini(&json);
    ek_buf_fini(&l.tokens), ek_buf_fini(&l.types), ek_buf_fini(&l.merges), ek_buf_fini(&l.scores);
    return 0;
}
