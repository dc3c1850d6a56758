/* The tokenizer of a GGUF file's metadata, as the tokenizer.json that it was made of: pieces in the order of their ids,
 * merges in the order of their ranks. Gemma 4's rules (a space is U+2581, bytes for what has no piece) are not in the
 * file; the name of the model stands for them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/source_gguf.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4 };

/* A piece that may be an added token. */
typedef struct candidate {
    uint64_t hash;
    const char *s;
    size_t n;
    int64_t id;
    bool special, always; /* always: also if merges make it */
    bool made;            /* by a merge: an ordinary piece, unless always */
} candidate;

typedef struct work {
    const ek_gguf *g;
    const ek_gguf_value *tokens, *types, *merges;
    candidate *c;
    size_t n;
} work;

/* JSON's own characters are escaped; whether it is UTF-8, the reader checks. */
static void add_json(ek_buf *out, const char *s, size_t n)
{
    size_t from = 0;
    ek_buf_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] >= 0x20 && s[i] != '"' && s[i] != '\\') continue;
        ek_buf_add(out, s + from, i - from);
        if ((unsigned char)s[i] < 0x20) ek_buf_fmt(out, "\\u%04x", s[i]);
        else {
            ek_buf_char(out, '\\');
            ek_buf_char(out, s[i]);
        }
        from = i + 1;
    }
    ek_buf_add(out, s + from, n - from);
    ek_buf_char(out, '"');
}

/* ------------------------------------------------------------------ what is there */

static ek_err find_array(const ek_gguf *g, const char *key, bool text, const ek_gguf_value **out)
{
    *out = ek_gguf_find(g, key);
    if (!*out) return ek_fail(EK_EUNSUPPORTED, "it has no %s", key);
    if (!(*out)->is_array || ((*out)->kind == EK_GGUF_STRING) != text)
        return ek_fail(EK_EFORMAT, "%s is no list of %s", key, text ? "strings" : "numbers");
    return EK_OK;
}

/* "gemma4" is llama.cpp's name for the rules; others put the name of a family there and the rules beside it. */
static ek_err check_rules(const ek_gguf *g)
{
    const ek_gguf_value *model = ek_gguf_find(g, "tokenizer.ggml.model"), *pre = ek_gguf_find(g, "tokenizer.ggml.pre"),
                        *prefix = ek_gguf_find(g, "tokenizer.ggml.add_space_prefix");
    const char *s = "missing";
    size_t n = 7;
    int64_t adds = 0;
    if (prefix && ek_gguf_int(prefix, 0, &adds) && adds)
        return ek_fail(EK_EUNSUPPORTED, "tokenizer.ggml.add_space_prefix is true, Gemma 4 adds no space");
    if (ek_gguf_text_is(model, "gemma4") || ek_gguf_text_is(pre, "gemma4")) return EK_OK;
    if (model) ek_gguf_text(model, &s, &n);
    return ek_fail(EK_EUNSUPPORTED, "tokenizer.ggml.model is %.*s, gemma4 can be read", n < 60 ? (int)n : 60, s);
}

/* ------------------------------------------------------------------ added tokens */

/* How Gemma 4 spells its marks: <|turn>, <turn|>, <|image|>, <|"|>. */
static bool is_mark(const char *s, size_t n)
{
    return n > 3 && s[0] == '<' && s[n - 1] == '>' && (s[1] == '|' || s[n - 2] == '|');
}

/* <bos> and its like, under the ids that the metadata names. */
static bool is_named(const ek_gguf *g, int64_t id)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.mask_token_id",    "tokenizer.ggml.eot_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const ek_gguf_value *v = ek_gguf_find(g, keys[i]);
        int64_t named;
        if (v && !v->is_array && ek_gguf_int(v, 0, &named) && named == id) return true;
    }
    return false;
}

static int by_hash(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static int by_id(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Converters mark what programs should show as user-defined, special or not, and leave marks that no list of theirs has
 * as normal; the spelling tells. */
static void find_candidates(work *w)
{
    const char *s;
    size_t n, cap = 0;
    int64_t id = 0;
    for (const uint8_t *at = w->tokens->data; ek_gguf_next_text(w->tokens, &at, &s, &n); id++) {
        int64_t type = TYPE_NORMAL;
        if (w->types) ek_gguf_int(w->types, (uint64_t)id, &type);
        bool control = type == TYPE_CONTROL || type == TYPE_UNKNOWN, mark = is_mark(s, n);
        bool named = n > 2 && s[0] == '<' && s[n - 1] == '>' && is_named(w->g, id);
        if (n == 0 || !(control || mark || named || type == TYPE_USER_DEFINED)) continue;
        if (w->n == cap) {
            cap = cap ? 2 * cap : 64;
            w->c = ek_realloc(w->c, sizeof *w->c * cap);
        }
        w->c[w->n++] = (candidate){.hash = ek_hash64(0, s, n),
                                   .s = s,
                                   .n = n,
                                   .id = id,
                                   .special = control || mark || named,
                                   .always = control || named};
    }
    if (w->n) qsort(w->c, w->n, sizeof *w->c, by_hash);
}

/* A piece that merges make was in the vocabulary before anything was added to it. */
static void find_made(work *w)
{
    ek_buf b = {0};
    const char *s;
    size_t n;
    if (!w->n) return;
    for (const uint8_t *at = w->merges->data; ek_gguf_next_text(w->merges, &at, &s, &n);) {
        const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
        if (!space) continue;
        ek_buf_clear(&b);
        ek_buf_add(&b, s, (size_t)(space - s));
        ek_buf_add(&b, space + 1, n - (size_t)(space - s) - 1);
        candidate key = {.hash = ek_hash64(0, b.data, b.len)};
        candidate *c = bsearch(&key, w->c, w->n, sizeof key, by_hash);
        if (c && c->n == b.len && memcmp(c->s, b.data, b.len) == 0) c->made = true;
    }
    ek_buf_fini(&b);
}

static void write_added(work *w, ek_buf *out)
{
    bool first = true;
    if (w->n) qsort(w->c, w->n, sizeof *w->c, by_id);
    for (size_t i = 0; i < w->n; i++) {
        const candidate *c = &w->c[i];
        if (c->made && !c->always) continue;
        ek_buf_fmt(out, "%s{\"id\":%lld,\"special\":%s,\"content\":", first ? "" : ",", (long long)c->id,
                   c->special ? "true" : "false");
        add_json(out, c->s, c->n);
        ek_buf_char(out, '}');
        first = false;
    }
}

/* ------------------------------------------------------------------ the file */

static void write_unknown(const work *w, ek_buf *out)
{
    const ek_gguf_value *v = ek_gguf_find(w->g, "tokenizer.ggml.unknown_token_id");
    const char *s;
    size_t n;
    int64_t unknown, id = 0;
    if (!v || v->is_array || !ek_gguf_int(v, 0, &unknown)) return;
    for (const uint8_t *at = w->tokens->data; ek_gguf_next_text(w->tokens, &at, &s, &n); id++) {
        if (id != unknown) continue;
        ek_buf_str(out, "\"unk_token\":");
        add_json(out, s, n);
        ek_buf_char(out, ',');
        return;
    }
}

static void write_pieces(const work *w, ek_buf *out)
{
    const char *s;
    size_t n;
    long long id = 0;
    for (const uint8_t *at = w->tokens->data; ek_gguf_next_text(w->tokens, &at, &s, &n); id++) {
        if (id) ek_buf_char(out, ',');
        add_json(out, s, n);
        ek_buf_fmt(out, ":%lld", id);
    }
}

static void write_merges(const work *w, ek_buf *out)
{
    const char *s;
    size_t n;
    bool first = true;
    for (const uint8_t *at = w->merges->data; ek_gguf_next_text(w->merges, &at, &s, &n); first = false) {
        if (!first) ek_buf_char(out, ',');
        add_json(out, s, n);
    }
}

ek_err ek_gguf_tokenizer(const ek_gguf *g, ek_buf *out)
{
    work w = {.g = g};
    if (!ek_gguf_find(g, "tokenizer.ggml.model") && !ek_gguf_find(g, "tokenizer.ggml.tokens"))
        return ek_fail(EK_ENOTFOUND, "there is no tokenizer in the file");
    EK_TRY(check_rules(g));
    EK_TRY(find_array(g, "tokenizer.ggml.tokens", true, &w.tokens));
    EK_TRY(find_array(g, "tokenizer.ggml.merges", true, &w.merges));
    if (ek_gguf_find(g, "tokenizer.ggml.token_type"))
        EK_TRY(find_array(g, "tokenizer.ggml.token_type", false, &w.types));
    if (w.types && w.types->count != w.tokens->count)
        return ek_fail(EK_EFORMAT, "tokenizer.ggml.token_type has %llu types for %llu tokens",
                       (unsigned long long)w.types->count, (unsigned long long)w.tokens->count);
    find_candidates(&w);
    find_made(&w);
    ek_buf_str(out, "{\"added_tokens\":[");
    write_added(&w, out);
    ek_buf_str(out,
               "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},"
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
               "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
               "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,");
    write_unknown(&w, out);
    ek_buf_str(out, "\"vocab\":{");
    write_pieces(&w, out);
    ek_buf_str(out, "},\"merges\":[");
    write_merges(&w, out);
    ek_buf_str(out, "]}}");
    free(w.c);
    return EK_OK;
}
