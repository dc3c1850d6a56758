/* tokenizer.json to GGUF's arrays. The file has half a million strings, so it is read in one pass, and only the added
 * tokens become a tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "convert/meta.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_PIECES = 1 << 24 };
/* Types of tokens. Source: llama.cpp, llama.h. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct piece {
    size_t at, n; /* in blob */
    int32_t type; /* 0: the id does not exist */
} piece;

typedef struct vocab {
    ek_buf blob;
    piece *piece;
    size_t n, cap;
    ek_gguf_meta merges; /* merges as strings of an array */
    size_t n_merges;
    json_t *added;
} vocab;

static ek_err add_piece(vocab *v, int64_t id, const char *text, size_t n, int32_t type)
{
    if (id < 0 || id >= MAX_PIECES) return ek_fail(EK_EFORMAT, "a token has the id %lld", (long long)id);
    while (v->cap <= (size_t)id) {
        size_t cap = v->cap ? 2 * v->cap : 1024;
        v->piece = ek_realloc(v->piece, cap * sizeof *v->piece);
        memset(v->piece + v->cap, 0, (cap - v->cap) * sizeof *v->piece);
        v->cap = cap;
    }
    v->piece[id] = (piece){v->blob.len, n, type};
    ek_buf_add(&v->blob, text, n);
    if (v->n <= (size_t)id) v->n = (size_t)id + 1;
    return EK_OK;
}

static int32_t type_of(const char *text, size_t n)
{
    return n == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' ? BYTE : NORMAL;
}

static ek_err read_vocab(vocab *v, ek_cursor *c)
{
    ek_buf text = {0};
    bool first = true, more = true;
    ek_err err = ek_cursor_expect(c, '{');
    while (!err && !(err = ek_cursor_next(c, '}', &first, &more)) && more) {
        int64_t id = 0;
        ek_buf_clear(&text);
        err = ek_cursor_string(c, &text);
        if (!err) err = ek_cursor_expect(c, ':');
        if (!err) err = ek_cursor_int(c, &id);
        if (!err) err = add_piece(v, id, ek_buf_text(&text), text.len, type_of(ek_buf_text(&text), text.len));
    }
    ek_buf_fini(&text);
    return err;
}

/* "a b", or ["a", "b"] */
static ek_err read_merge(ek_buf *text, ek_cursor *c)
{
    if (ek_cursor_peek(c) == '"') return ek_cursor_string(c, text);
    EK_TRY(ek_cursor_expect(c, '['));
    EK_TRY(ek_cursor_string(c, text));
    EK_TRY(ek_cursor_expect(c, ','));
    ek_buf_char(text, ' ');
    EK_TRY(ek_cursor_string(c, text));
    return ek_cursor_expect(c, ']');
}

static ek_err read_merges(vocab *v, ek_cursor *c)
{
    ek_buf text = {0};
    bool first = true, more = true;
    ek_err err = ek_cursor_expect(c, '[');
    while (!err && !(err = ek_cursor_next(c, ']', &first, &more)) && more) {
        ek_buf_clear(&text);
        err = read_merge(&text, c);
        ek_gguf_add_string(&v->merges, ek_buf_text(&text), text.len);
        v->n_merges++;
    }
    ek_buf_fini(&text);
    return err;
}

/* Calls member for each member of the object at c. member has to read the value. */
static ek_err each_member(vocab *v, ek_cursor *c, ek_err (*member)(vocab *v, const char *name, ek_cursor *c))
{
    ek_buf name = {0};
    bool first = true, more = true;
    ek_err err = ek_cursor_expect(c, '{');
    while (!err && !(err = ek_cursor_next(c, '}', &first, &more)) && more) {
        ek_buf_clear(&name);
        err = ek_cursor_string(c, &name);
        if (!err) err = ek_cursor_expect(c, ':');
        if (!err) err = member(v, ek_buf_text(&name), c);
    }
    ek_buf_fini(&name);
    return err;
}

static ek_err skip(ek_cursor *c)
{
    const char *from;
    size_t n;
    return ek_cursor_skip(c, &from, &n);
}

static ek_err model_member(vocab *v, const char *name, ek_cursor *c)
{
    if (strcmp(name, "vocab") == 0) return read_vocab(v, c);
    return strcmp(name, "merges") == 0 ? read_merges(v, c) : skip(c);
}

static ek_err top_member(vocab *v, const char *name, ek_cursor *c)
{
    if (strcmp(name, "model") == 0) return each_member(v, c, model_member);
    if (strcmp(name, "added_tokens") != 0) return skip(c);
    json_decref(v->added);
    return ek_cursor_tree(c, &v->added);
}

static ek_err add_added(vocab *v)
{
    for (size_t i = 0; i < json_array_size(v->added); i++) {
        const json_t *one = json_array_get(v->added, i), *id = ek_json_get(one, "id");
        size_t n = 0;
        const char *text = ek_json_get_text(one, "content", &n);
        if (!text || !json_is_integer(id)) return ek_fail(EK_EFORMAT, "added token %zu has no id or no content", i);
        EK_TRY(add_piece(v, json_integer_value(id), text, n,
                         json_is_true(ek_json_get(one, "special")) ? CONTROL : USER_DEFINED));
    }
    return v->n ? EK_OK : ek_fail(EK_EFORMAT, "there are no tokens");
}

static int32_t find(const vocab *v, const char *text)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->piece[i].type && v->piece[i].n == strlen(text) &&
            memcmp(v->blob.data + v->piece[i].at, text, v->piece[i].n) == 0)
            return (int32_t)i;
    return -1;
}

/* Writes the ids that Gemma's tokenizer has. Their values come from the file. */
static void put_ids(ek_gguf_meta *m, const vocab *v)
{
    static const char *const named[][2] = {
        {"bos", "<bos>"},     {"eos", "<eos>"},     {"eot", "<turn|>"},
        {"unknown", "<unk>"}, {"padding", "<pad>"}, {"mask", "<mask>"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        ek_buf key = {0};
        int32_t id = find(v, named[i][1]);
        ek_buf_fmt(&key, "tokenizer.ggml.%s_token_id", named[i][0]);
        if (id >= 0) ek_gguf_put_u32(m, key.data, (uint32_t)id);
        ek_buf_fini(&key);
    }
}

static void put_tokens(ek_gguf_meta *m, const vocab *v)
{
    float *score = ek_alloc(sizeof *score * v->n);
    int32_t *type = ek_alloc(sizeof *type * v->n);
    ek_gguf_put_string(m, "tokenizer.ggml.model", "gemma4", strlen("gemma4"));
    ek_gguf_put_strings(m, "tokenizer.ggml.tokens", v->n);
    for (size_t i = 0; i < v->n; i++) {
        const piece *p = &v->piece[i];
        char hole[32];
        int n = snprintf(hole, sizeof hole, "[PAD%zu]", i); /* fills a hole as llama.cpp's converter does */
        if (p->type) ek_gguf_add_string(m, v->blob.data + p->at, p->n);
        else ek_gguf_add_string(m, hole, (size_t)n);
        type[i] = p->type ? p->type : UNUSED;
        score[i] = -1000;
    }
    ek_gguf_put_f32s(m, "tokenizer.ggml.scores", score, v->n);
    ek_gguf_put_i32s(m, "tokenizer.ggml.token_type", type, v->n);
    ek_gguf_put_strings(m, "tokenizer.ggml.merges", v->n_merges);
    ek_buf_add(&m->bytes, v->merges.bytes.data, v->merges.bytes.len);
    ek_gguf_put_bool(m, "tokenizer.ggml.add_bos_token", true);
    ek_gguf_put_bool(m, "tokenizer.ggml.add_space_prefix", false);
    free(score);
    free(type);
}

ek_err ek_meta_gguf_tokenizer(ek_gguf_meta *m, const ek_meta_opts *o)
{
    vocab v = {0};
    ek_cursor c = {o->tokenizer, o->tokenizer_bytes, 0};
    ek_err err = each_member(&v, &c, top_member);
    if (!err) err = add_added(&v);
    if (!err) put_tokens(m, &v);
    if (!err) put_ids(m, &v);
    ek_buf_fini(&v.blob);
    ek_gguf_meta_fini(&v.merges);
    json_decref(v.added);
    free(v.piece);
    return err ? ek_fail_in(err, "tokenizer.json") : EK_OK;
}
