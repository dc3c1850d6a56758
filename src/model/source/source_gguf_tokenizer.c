/* Turns the tokenizer of a GGUF file's metadata back into its tokenizer.json: pieces in the order of their ids, merges
 * in the order of their ranks. Gemma 4's rules (a space is U+2581, bytes for text without a piece) are not in the file;
 * the model's name or the vocabulary itself implies them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "model/source/source_gguf.h"

/* A piece that may be an added token. */
typedef struct candidate {
    uint64_t hash;
    int64_t id;
    bool special, always; /* always: added even if merges make it */
    bool made;            /* merges make it: an ordinary piece, unless `always` */
} candidate;

typedef struct work {
    const ek_gguf *g;
    const ek_gguf_value *merges; /* NULL: merges are computed from the scores */
    ek_gguf_vocab vocab;
    ek_gguf_merges made;
    candidate *c;
    size_t n;
} work;

/* JSON's special characters are escaped; the reader checks the UTF-8. */
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

/* ------------------------------------------------------------------ added tokens */

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

/* Converters mark visible tokens as user-defined, whether special or not, and marks missing from their lists as normal.
 * So the spelling decides. */
static void find_candidates(work *w)
{
    size_t cap = 0;
    for (size_t id = 0; id < w->vocab.n; id++) {
        const ek_gguf_piece *p = &w->vocab.v[id];
        if (p->n == 0 || p->role < EK_PIECE_ADDED) continue;
        if (w->n == cap) {
            cap = cap ? 2 * cap : 64;
            w->c = ek_realloc(w->c, sizeof *w->c * cap);
        }
        w->c[w->n++] = (candidate){.hash = ek_hash64(0, p->s, p->n),
                                   .id = (int64_t)id,
                                   .special = p->role == EK_PIECE_CONTROL || p->role == EK_PIECE_MARK,
                                   .always = p->role == EK_PIECE_CONTROL};
    }
    if (w->n) qsort(w->c, w->n, sizeof *w->c, by_hash);
}

/* A piece that merges make was in the vocabulary before tokens were added. */
static void mark_made(work *w, const char *s, size_t n)
{
    candidate key = {.hash = ek_hash64(0, s, n)};
    candidate *c = bsearch(&key, w->c, w->n, sizeof key, by_hash);
    if (!c) return;
    const ek_gguf_piece *p = &w->vocab.v[c->id];
    if (p->n == n && memcmp(p->s, s, n) == 0) c->made = true;
}

static void find_made(work *w)
{
    ek_buf b = {0};
    const char *s;
    size_t n;
    if (!w->n) return;
    for (size_t i = 0; i < w->made.n; i++) {
        const ek_gguf_piece *p = &w->vocab.v[w->made.v[i].result];
        mark_made(w, p->s, p->n);
    }
    if (!w->merges) return;
    for (const uint8_t *at = w->merges->data; ek_gguf_next_text(w->merges, &at, &s, &n);) {
        const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
        if (!space) continue;
        ek_buf_clear(&b);
        ek_buf_add(&b, s, (size_t)(space - s));
        ek_buf_add(&b, space + 1, n - (size_t)(space - s) - 1);
        mark_made(w, b.data, b.len);
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
        /* With all fields, because Hugging Face's tokenizers refuse a file in which one is missing. */
        ek_buf_fmt(out,
                   "%s{\"id\":%lld,\"special\":%s,\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                   "\"normalized\":false,\"content\":",
                   first ? "" : ",", (long long)c->id, c->special ? "true" : "false");
        add_json(out, w->vocab.v[c->id].s, w->vocab.v[c->id].n);
        ek_buf_char(out, '}');
        first = false;
    }
}

/* ------------------------------------------------------------------ the file */

static void write_unknown(const work *w, ek_buf *out)
{
    const ek_gguf_value *v = ek_gguf_find(w->g, "tokenizer.ggml.unknown_token_id");
    int64_t unknown;
    if (!v || v->is_array || !ek_gguf_int(v, 0, &unknown) || unknown < 0 || (uint64_t)unknown >= w->vocab.n) return;
    ek_buf_str(out, "\"unk_token\":");
    add_json(out, w->vocab.v[unknown].s, w->vocab.v[unknown].n);
    ek_buf_char(out, ',');
}

static void write_pieces(const work *w, ek_buf *out)
{
    for (size_t id = 0; id < w->vocab.n; id++) {
        if (id) ek_buf_char(out, ',');
        add_json(out, w->vocab.v[id].s, w->vocab.v[id].n);
        ek_buf_fmt(out, ":%zu", id);
    }
}

static void write_merges(const work *w, ek_buf *out)
{
    const char *s;
    size_t n;
    bool first = true;
    for (size_t i = 0; i < w->made.n; i++) {
        const ek_gguf_piece *l = &w->vocab.v[w->made.v[i].left], *r = &w->vocab.v[w->made.v[i].right];
        ek_buf_str(out, i ? ",[" : "[");
        add_json(out, l->s, l->n);
        ek_buf_char(out, ',');
        add_json(out, r->s, r->n);
        ek_buf_char(out, ']');
    }
    if (!w->merges) return;
    for (const uint8_t *at = w->merges->data; ek_gguf_next_text(w->merges, &at, &s, &n); first = false) {
        if (!first) ek_buf_char(out, ',');
        add_json(out, s, n);
    }
}

static void write_file(work *w, ek_buf *out)
{
    ek_buf_str(out, "{\"added_tokens\":[");
    write_added(w, out);
    ek_buf_str(out,
               "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},"
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
               "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
               "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,");
    write_unknown(w, out);
    ek_buf_str(out, "\"vocab\":{");
    write_pieces(w, out);
    ek_buf_str(out, "},\"merges\":[");
    write_merges(w, out);
    ek_buf_str(out, "]}}");
}

ek_err ek_gguf_tokenizer(const ek_gguf *g, ek_buf *out)
{
    work w = {.g = g, .merges = ek_gguf_find(g, "tokenizer.ggml.merges")};
    ek_err err = ek_gguf_vocab_read(&w.vocab, g);
    if (!err && w.vocab.unmerged) {
        w.merges = NULL;
        err = ek_gguf_merges_make(&w.made, &w.vocab);
    } else if (!err) {
        err = ek_gguf_find_array(g, "tokenizer.ggml.merges", true, &w.merges);
    }
    if (!err) {
        find_candidates(&w);
        find_made(&w);
        write_file(&w, out);
    }
    ek_gguf_merges_fini(&w.made);
    ek_gguf_vocab_fini(&w.vocab);
    free(w.c);
    return err;
}
