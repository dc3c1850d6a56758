/* tokenizer.json -> ek_tokenizer, with every assumption of the encoder checked. */
#include <stdlib.h>

#include "base/file.h"
#include "text/json.h"
#include "text/tokenizer_data.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

enum { MAX_ID = 1 << 24, MAX_BLOB = 1 << 26, MAX_REPLACE = 32, MAX_FILE = 1 << 30 };

static bool added_flag(const json_t *entry, const char *key)
{
    return json_is_true(ek_json_get(entry, key));
}

/* Makes room for id; new places are holes. The largest id bounds memory, so it is checked
 * against the number of entries afterwards. */
static ek_err reserve_id(ek_tokenizer *t, int64_t id, int32_t *cap)
{
    if (id < 0 || id >= MAX_ID)
        return ek_fail(EK_EFORMAT, "token id %lld, ids go from 0 to %d", (long long)id, MAX_ID - 1);
    if (id >= *cap) {
        int32_t grown = *cap ? *cap : 1024;
        while (grown <= id) grown *= 2;
        t->pieces = ek_realloc(t->pieces, (size_t)grown * sizeof *t->pieces);
        memset(t->pieces + *cap, 0, (size_t)(grown - *cap) * sizeof *t->pieces);
        *cap = grown;
    }
    if (id >= t->n_ids) t->n_ids = (int32_t)id + 1;
    return EK_OK;
}

/* Reads {"piece": id, …} straight into blob and pieces. */
static ek_err read_vocab(ek_tokenizer *t, ek_cursor *c, int32_t *cap, int32_t *n_vocab)
{
    bool first = true, more;
    EK_TRY(ek_cursor_take(c, '{'));
    for (;;) {
        EK_TRY(ek_cursor_next(c, '}', &first, &more));
        if (!more) return EK_OK;
        size_t at = t->blob.len;
        int64_t id;
        EK_TRY(ek_cursor_string(c, &t->blob));
        if (t->blob.len > MAX_BLOB) return ek_fail(EK_EFORMAT, "a vocabulary of over %d bytes", MAX_BLOB);
        if (!ek_utf8_valid(t->blob.data + at, t->blob.len - at))
            return ek_cursor_fail(c, "the piece before is not UTF-8");
        EK_TRY(ek_cursor_take(c, ':'));
        EK_TRY(ek_cursor_int(c, &id));
        EK_TRY(reserve_id(t, id, cap));
        piece *p = &t->pieces[id];
        if (p->flags & PIECE_VOCAB)
            return ek_fail(EK_EFORMAT, "id %lld belongs to '%.*s' and to '%.*s'", (long long)id,
                           (int)(p->text.n > 40 ? 40 : p->text.n), piece_text(t, (int32_t)id),
                           (int)(t->blob.len - at > 40 ? 40 : t->blob.len - at), t->blob.data + at);
        *p = (piece){.text = {(uint32_t)at, (uint32_t)(t->blob.len - at)}, .flags = PIECE_VOCAB};
        ++*n_vocab;
    }
}

static ek_err index_piece(ek_tokenizer *t, int32_t id)
{
    const piece *p = &t->pieces[id];
    uint32_t i = (uint32_t)ek_hash64(0, piece_text(t, id), p->text.n) & t->index_mask;
    for (; t->index[i]; i = (i + 1) & t->index_mask) {
        const piece *other = &t->pieces[t->index[i] - 1];
        if (other->text.n == p->text.n && !memcmp(piece_text(t, t->index[i] - 1), piece_text(t, id), p->text.n))
            return ek_fail(EK_EFORMAT, "'%.*s' has the ids %d and %d", (int)(p->text.n > 40 ? 40 : p->text.n),
                           piece_text(t, id), t->index[i] - 1, id);
    }
    t->index[i] = id + 1;
    return EK_OK;
}

static ek_err index_vocab(ek_tokenizer *t, size_t n_entries)
{
    uint32_t size = 16;
    while (size < 2 * n_entries) size *= 2;
    t->index = ek_alloc(size * sizeof *t->index);
    t->index_mask = size - 1;
    for (int32_t id = 0; id < t->n_ids; id++)
        if (t->pieces[id].flags & PIECE_VOCAB) EK_TRY(index_piece(t, id));
    return EK_OK;
}

static ek_err read_added(ek_tokenizer *t, const json_t *added, int32_t *cap)
{
    size_t n_raw = 0, n_normal = 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *a = json_array_get(added, i);
        const json_t *id_value = ek_json_get(a, "id");
        size_t n;
        const char *text = ek_json_get_text(a, "content", &n);
        if (!text || n == 0 || !json_is_integer(id_value))
            return ek_fail(EK_EFORMAT, "added token %zu has no content or no id", i);
        int64_t id = json_integer_value(id_value);
        EK_TRY(reserve_id(t, id, cap));
        piece *p = &t->pieces[id];
        if (p->flags & PIECE_ADDED) return ek_fail(EK_EFORMAT, "two added tokens have id %lld", (long long)id);
        if (p->flags & PIECE_VOCAB) {
            if (p->text.n != n || memcmp(piece_text(t, (int32_t)id), text, n) != 0)
                return ek_fail(EK_EFORMAT, "added token '%.40s' has id %lld, which is '%.*s' in the vocabulary", text,
                               (long long)id, (int)(p->text.n > 40 ? 40 : p->text.n), piece_text(t, (int32_t)id));
        } else {
            p->text = (span){(uint32_t)t->blob.len, (uint32_t)n};
            ek_buf_add(&t->blob, text, n);
            if (t->blob.len > MAX_BLOB) return ek_fail(EK_EFORMAT, "tokens of over %d bytes", MAX_BLOB);
            EK_TRY(index_piece(t, (int32_t)id));
        }
        bool normalized = added_flag(a, "normalized");
        p->flags =
            (uint8_t)(p->flags | PIECE_ADDED | (added_flag(a, "special") ? PIECE_SPECIAL : 0) |
                      (normalized ? ADDED_NORMALIZED : 0) | (added_flag(a, "single_word") ? ADDED_SINGLE_WORD : 0) |
                      (added_flag(a, "lstrip") ? ADDED_LSTRIP : 0) | (added_flag(a, "rstrip") ? ADDED_RSTRIP : 0));
        /* Normalized text can be longer by the ratio of to and from. */
        if (normalized) n_normal += n * (t->to.len + 1);
        else n_raw += n;
    }
    ek_trie_init(&t->raw, n_raw);
    ek_trie_init(&t->normal, n_normal);
    ek_buf b = {0};
    for (int32_t id = 0; id < t->n_ids; id++) {
        const piece *p = &t->pieces[id];
        if (!(p->flags & PIECE_ADDED)) continue;
        ek_buf_clear(&b);
        if (p->flags & ADDED_NORMALIZED && t->normalizes) {
            ek_replace_all(&b, piece_text(t, id), p->text.n, &t->from, &t->to);
            if (b.len) ek_trie_add(&t->normal, b.data, b.len, id);
        } else {
            ek_trie_add(p->flags & ADDED_NORMALIZED ? &t->normal : &t->raw, piece_text(t, id), p->text.n, id);
        }
    }
    ek_buf_fini(&b);
    return EK_OK;
}

static ek_err text_or_none(const json_t *o, const char *key, const char *where)
{
    const json_t *v = ek_json_get(o, key);
    if (!v || json_is_null(v) || (ek_json_is_text(v) && json_string_length(v) == 0)) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%s.%s is set, this tokenizer has none", where, key);
}

/* {"type": "Replace", "pattern": {"String": from}, "content": to} */
static ek_err read_replace(const json_t *v, ek_buf *from, ek_buf *to, const char *where)
{
    const char *type = ek_json_get_text(v, "type", NULL);
    size_t n_from = 0, n_to = 0;
    const char *f = ek_json_get_text(ek_json_get(v, "pattern"), "String", &n_from);
    const char *c = ek_json_get_text(v, "content", &n_to);
    if (!type || strcmp(type, "Replace") != 0 || !f || !c || n_from == 0)
        return ek_fail(EK_EUNSUPPORTED, "%s is of type '%s', supported is Replace of one string by another", where,
                       type ? type : "?");
    if (n_from > MAX_REPLACE || n_to > MAX_REPLACE)
        return ek_fail(EK_EUNSUPPORTED, "%s replaces %zu bytes by %zu, at most %d are supported", where, n_from, n_to,
                       MAX_REPLACE);
    ek_buf_add(from, f, n_from);
    ek_buf_add(to, c, n_to);
    return EK_OK;
}

static ek_err read_normalizer(ek_tokenizer *t, const json_t *v)
{
    if (!v || json_is_null(v)) return EK_OK;
    const json_t *list = ek_json_get(v, "normalizers");
    if (json_array_size(list) == 1) v = json_array_get(list, 0);
    t->normalizes = true;
    return read_replace(v, &t->from, &t->to, "normalizer");
}

/* A split on a text that the normalizer has already replaced never splits. */
static ek_err read_pre_tokenizer(const ek_tokenizer *t, const json_t *v)
{
    if (!v || json_is_null(v)) return EK_OK;
    const char *type = ek_json_get_text(v, "type", NULL);
    const char *on = ek_json_get_text(ek_json_get(v, "pattern"), "String", NULL);
    if (type && strcmp(type, "Split") == 0 && on && t->normalizes && strcmp(on, ek_buf_text(&t->from)) == 0 &&
        !strstr(ek_buf_text(&t->to), on))
        return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "pre_tokenizer of type '%s' splits text, supported is none that does",
                   type ? type : "?");
}

static ek_err read_decoder(ek_tokenizer *t, const json_t *v)
{
    static const char *const want[] = {"Replace", "ByteFallback", "Fuse"};
    const json_t *steps = ek_json_get(v, "decoders");
    size_t n = json_array_size(steps);
    if (!v || json_is_null(v)) return ek_fail(EK_EFORMAT, "there is no decoder");
    if (n < 2 || n > 3) return ek_fail(EK_EUNSUPPORTED, "the decoder is not the sequence Replace, ByteFallback, Fuse");
    for (size_t i = 0; i < n; i++) {
        const char *type = ek_json_get_text(json_array_get(steps, i), "type", NULL);
        if (!type || strcmp(type, want[i]) != 0)
            return ek_fail(EK_EUNSUPPORTED, "decoder step %zu is '%s', expected %s", i, type ? type : "?", want[i]);
    }
    t->decoder_replaces = true;
    return read_replace(json_array_get(steps, 0), &t->back_from, &t->back_to, "decoder step 0");
}

static ek_err check_model(ek_tokenizer *t, const json_t *m)
{
    const char *type = ek_json_get_text(m, "type", NULL), *unk;
    if (type && strcmp(type, "BPE") != 0) return ek_fail(EK_EUNSUPPORTED, "model of type '%s', supported is BPE", type);
    const json_t *dropout = ek_json_get(m, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return ek_fail(EK_EUNSUPPORTED, "model.dropout is set: encoding would be random");
    EK_TRY(text_or_none(m, "continuing_subword_prefix", "model"));
    EK_TRY(text_or_none(m, "end_of_word_suffix", "model"));
    t->byte_fallback = json_is_true(ek_json_get(m, "byte_fallback"));
    t->fuse_unk = json_is_true(ek_json_get(m, "fuse_unk"));
    t->ignore_merges = json_is_true(ek_json_get(m, "ignore_merges"));
    t->unk = -1;
    size_t n;
    unk = ek_json_get_text(m, "unk_token", &n);
    if (unk && (t->unk = find_piece(t, unk, n)) < 0)
        return ek_fail(EK_EFORMAT, "unk_token '%.40s' is not in the vocabulary", unk);
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        t->byte[b] = find_piece(t, name, 6);
        if (t->byte[b] < 0 && t->byte_fallback)
            return ek_fail(EK_EFORMAT, "byte_fallback is on, but the byte piece %s is missing", name);
    }
    if (!t->byte_fallback && t->unk < 0)
        return ek_fail(EK_EFORMAT, "neither byte_fallback nor unk_token: some text has no tokens");
    return EK_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* What each piece decodes to, and the scalars that are pieces. */
static void derive(ek_tokenizer *t)
{
    memset(t->scalar, 0xFF, sizeof t->scalar);
    ek_buf b = {0};
    for (int32_t id = 0; id < t->n_ids; id++) {
        piece *p = &t->pieces[id];
        if (!p->flags) continue;
        const char *s = piece_text(t, id);
        uint32_t cp;
        if (p->flags & PIECE_VOCAB && p->text.n > 0 && p->text.n <= 3 &&
            ek_utf8_next(s, p->text.n, &cp) == (int)p->text.n)
            t->scalar[cp] = id;
        p->bytes = p->text;
        if (p->text.n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' && hex_digit(s[3]) >= 0 && hex_digit(s[4]) >= 0) {
            char byte = (char)(hex_digit(s[3]) << 4 | hex_digit(s[4]));
            p->flags |= PIECE_BYTE;
            p->bytes = (span){(uint32_t)t->blob.len, 1};
            ek_buf_char(&t->blob, byte);
            continue;
        }
        ek_buf_clear(&b);
        ek_replace_all(&b, s, p->text.n, &t->back_from, &t->back_to);
        if (b.len == p->text.n && memcmp(ek_buf_text(&b), s, b.len) == 0) continue;
        p->bytes = (span){(uint32_t)t->blob.len, (uint32_t)b.len};
        ek_buf_add(&t->blob, ek_buf_text(&b), b.len);
    }
    ek_buf_fini(&b);
    /* A space or newline that falls apart into bytes is no place to cut; neither is any where
     * unknown scalars fuse. */
    if (t->scalar[0x2581] < 0 || !t->byte_fallback || t->ignore_merges) t->cut_space = false;
    if (t->scalar['\n'] < 0 || !t->byte_fallback || t->ignore_merges) t->cut_newline = false;
}

/* Finds the members of interest; vocabulary and merges stay text until both are known. */
typedef struct parts {
    json_t *added, *normalizer, *pre_tokenizer, *decoder, *model;
    size_t vocab_at, merges_at; /* 0: absent */
} parts;

static ek_err find_model(parts *p, ek_cursor *c)
{
    bool first = true, more;
    ek_buf key = {0};
    const char *from;
    size_t n;
    json_decref(p->model);
    p->model = json_object();
    ek_err e = ek_cursor_take(c, '{');
    while (e == EK_OK) {
        e = ek_cursor_next(c, '}', &first, &more);
        if (e != EK_OK || !more) break;
        ek_buf_clear(&key);
        if ((e = ek_cursor_string(c, &key)) != EK_OK || (e = ek_cursor_take(c, ':')) != EK_OK) break;
        const char *k = ek_buf_text(&key);
        if (strcmp(k, "vocab") == 0 || strcmp(k, "merges") == 0) {
            ek_cursor_peek(c);
            *(k[0] == 'v' ? &p->vocab_at : &p->merges_at) = c->at;
            e = ek_cursor_skip(c, &from, &n);
        } else {
            json_t *v;
            e = ek_cursor_tree(c, &v);
            if (e == EK_OK) json_object_setn_new_nocheck(p->model, k, key.len, v);
        }
    }
    ek_buf_fini(&key);
    return e;
}

static ek_err find_parts(parts *p, ek_cursor *c)
{
    static const char *const names[] = {"added_tokens", "normalizer", "pre_tokenizer", "decoder"};
    json_t **const into[] = {&p->added, &p->normalizer, &p->pre_tokenizer, &p->decoder};
    bool first = true, more;
    ek_buf key = {0};
    const char *from;
    size_t n;
    ek_err e = ek_cursor_take(c, '{');
    while (e == EK_OK) {
        e = ek_cursor_next(c, '}', &first, &more);
        if (e != EK_OK || !more) break;
        ek_buf_clear(&key);
        if ((e = ek_cursor_string(c, &key)) != EK_OK || (e = ek_cursor_take(c, ':')) != EK_OK) break;
        int which = -1;
        for (int i = 0; i < 4; i++)
            if (strcmp(ek_buf_text(&key), names[i]) == 0) which = i;
        if (which >= 0) {
            json_decref(*into[which]);
            e = ek_cursor_tree(c, into[which]);
        } else if (strcmp(ek_buf_text(&key), "model") == 0) {
            e = find_model(p, c);
        } else {
            e = ek_cursor_skip(c, &from, &n);
        }
    }
    ek_buf_fini(&key);
    return e;
}

static ek_err in_part(const char *part, ek_err err)
{
    return err ? ek_fail_in(err, "%s", part) : EK_OK;
}

static ek_err build(ek_tokenizer *t, const parts *p, const char *json, size_t n)
{
    if (!p->model || !p->vocab_at || !p->merges_at)
        return ek_fail(EK_EFORMAT, "not a whole tokenizer: %s is missing",
                       !p->model      ? "model"
                       : !p->vocab_at ? "model.vocab"
                                      : "model.merges");
    if (p->added && !json_is_array(p->added) && !json_is_null(p->added))
        return ek_fail(EK_EFORMAT, "added_tokens is not a list");
    int32_t cap = 0, n_vocab = 0;
    ek_cursor c = {json, n, p->vocab_at};
    EK_TRY(in_part("model.vocab", read_vocab(t, &c, &cap, &n_vocab)));
    if (n_vocab == 0) return ek_fail(EK_EFORMAT, "the vocabulary is empty");
    EK_TRY(index_vocab(t, (size_t)n_vocab + json_array_size(p->added)));
    EK_TRY(read_normalizer(t, p->normalizer));
    EK_TRY(read_pre_tokenizer(t, p->pre_tokenizer));
    EK_TRY(read_decoder(t, p->decoder));
    EK_TRY(in_part("added_tokens", read_added(t, p->added, &cap)));
    size_t n_entries = (size_t)n_vocab + json_array_size(p->added);
    if ((size_t)t->n_ids > 4 * n_entries + 65536)
        return ek_fail(EK_EFORMAT, "ids up to %d for %zu tokens", t->n_ids - 1, n_entries);
    EK_TRY(check_model(t, p->model));
    c.at = p->merges_at;
    EK_TRY(in_part("model.merges", ek_merges_read(t, &c, n_vocab)));
    derive(t);
    ek_merges_index(t);
    return EK_OK;
}

ek_err ek_tokenizer_parse(ek_tokenizer **out, const char *json, size_t n)
{
    *out = NULL;
    if (n > MAX_FILE) return ek_fail(EK_EFORMAT, "%zu bytes, a tokenizer has at most %d", n, MAX_FILE);
    ek_tokenizer *t = ek_alloc(sizeof *t);
    parts p = {0};
    ek_cursor c = {json, n, 0};
    ek_err e = find_parts(&p, &c);
    if (e == EK_OK && ek_cursor_peek(&c) >= 0) e = ek_cursor_fail(&c, "text after the value");
    if (e == EK_OK) e = build(t, &p, json, n);
    json_decref(p.added);
    json_decref(p.normalizer);
    json_decref(p.pre_tokenizer);
    json_decref(p.decoder);
    json_decref(p.model);
    if (e == EK_OK) *out = t;
    else {
        ek_tokenizer_close(t);
        e = ek_fail_in(e == EK_EUNSUPPORTED ? e : EK_EFORMAT, "tokenizer");
    }
    return e;
}

ek_err ek_tokenizer_open(ek_tokenizer **out, const char *path)
{
    *out = NULL;
    ek_buf name = {0};
    ek_buf_str(&name, path);
    if (ek_is_dir(path)) ek_buf_str(&name, "/tokenizer.json");
    ek_map m = {0};
    ek_err e = ek_map_open(&m, ek_buf_text(&name));
    if (e == EK_OK) {
        e = ek_tokenizer_parse(out, m.data ? (const char *)m.data : "", m.size);
        if (e != EK_OK) e = ek_fail_in(e, "%s", ek_buf_text(&name));
        ek_map_close(&m);
    }
    ek_buf_fini(&name);
    return e;
}

void ek_tokenizer_close(ek_tokenizer *t)
{
    if (!t) return;
    ek_buf_fini(&t->blob);
    ek_buf_fini(&t->from);
    ek_buf_fini(&t->to);
    ek_buf_fini(&t->back_from);
    ek_buf_fini(&t->back_to);
    ek_trie_fini(&t->raw);
    ek_trie_fini(&t->normal);
    free(t->pieces);
    free(t->index);
    free(t->merges);
    free(t->code);
    free(t->first);
    free(t->filter);
    free(t);
}
