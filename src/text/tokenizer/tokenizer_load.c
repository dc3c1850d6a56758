/* tokenizer.json -> ek_tokenizer: finds the sections of the file and reads them in the order they need. */
#include "text/tokenizer/tokenizer_data.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "text/json/json.h"

enum { MAX_FILE = 1 << 30 };

/* Finds the members of interest; vocabulary and merges stay text until both are known. */
typedef struct sections {
    json_t *added, *normalizer, *pre_tokenizer, *decoder, *model;
    size_t vocab_at, merges_at; /* 0: absent */
} sections;

/* The next key of an object and its colon; *more is false behind the last one. */
static ek_err next_key(ek_cursor *c, bool *first, bool *more, ek_buf *key)
{
    EK_TRY(ek_cursor_next(c, '}', first, more));
    if (!*more) return EK_OK;
    ek_buf_clear(key);
    EK_TRY(ek_cursor_string(c, key));
    return ek_cursor_expect(c, ':');
}

static ek_err find_model(sections *s, ek_cursor *c)
{
    bool first = true, more;
    ek_buf key = {0};
    const char *from;
    size_t n;
    json_decref(s->model);
    s->model = json_object();
    ek_err e = ek_cursor_expect(c, '{');
    while (e == EK_OK) {
        e = next_key(c, &first, &more, &key);
        if (e != EK_OK || !more) break;
        const char *k = ek_buf_text(&key);
        if (strcmp(k, "vocab") == 0 || strcmp(k, "merges") == 0) {
            ek_cursor_peek(c);
            *(k[0] == 'v' ? &s->vocab_at : &s->merges_at) = c->at;
            e = ek_cursor_skip(c, &from, &n);
        } else {
            json_t *v;
            e = ek_cursor_tree(c, &v);
            if (e == EK_OK) json_object_setn_new_nocheck(s->model, k, key.len, v);
        }
    }
    ek_buf_fini(&key);
    return e;
}

static ek_err find_sections(sections *s, ek_cursor *c)
{
    static const char *const names[] = {"added_tokens", "normalizer", "pre_tokenizer", "decoder"};
    json_t **const into[] = {&s->added, &s->normalizer, &s->pre_tokenizer, &s->decoder};
    bool first = true, more;
    ek_buf key = {0};
    const char *from;
    size_t n;
    ek_err e = ek_cursor_expect(c, '{');
    while (e == EK_OK) {
        e = next_key(c, &first, &more, &key);
        if (e != EK_OK || !more) break;
        int which = -1;
        for (int i = 0; i < 4; i++)
            if (strcmp(ek_buf_text(&key), names[i]) == 0) which = i;
        if (which >= 0) {
            json_decref(*into[which]);
            e = ek_cursor_tree(c, into[which]);
        } else if (strcmp(ek_buf_text(&key), "model") == 0) {
            e = find_model(s, c);
        } else {
            e = ek_cursor_skip(c, &from, &n);
        }
    }
    ek_buf_fini(&key);
    return e;
}

static ek_err in_section(const char *section, ek_err err)
{
    return err ? ek_fail_in(err, "%s", section) : EK_OK;
}

/* The rules of a tokenizer.json around its pieces: normalizer, pre-tokenizer, decoder, and the switches of its
 * model. Rules that the encoder does not implement are refused. */

enum { MAX_REPLACE = 32 };

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

/* Accepts no pre-tokenizer, and a split on a text that the normalizer has replaced, because it never splits. */
static ek_err check_pre_tokenizer(const ek_tokenizer *t, const json_t *v)
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
    return read_replace(json_array_get(steps, 0), &t->back_from, &t->back_to, "decoder step 0");
}

/* Reads the switches of the model section, its unknown token and its byte pieces; needs the index. */
static ek_err read_model_rules(ek_tokenizer *t, const json_t *m)
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

static ek_err build(ek_tokenizer *t, const sections *s, const char *json, size_t n)
{
    if (!s->model || !s->vocab_at || !s->merges_at)
        return ek_fail(EK_EFORMAT, "not a whole tokenizer: %s is missing",
                       !s->model      ? "model"
                       : !s->vocab_at ? "model.vocab"
                                      : "model.merges");
    if (s->added && !json_is_array(s->added) && !json_is_null(s->added))
        return ek_fail(EK_EFORMAT, "added_tokens is not a list");
    int32_t cap = 0, n_vocab = 0;
    ek_cursor c = {json, n, s->vocab_at};
    EK_TRY(in_section("model.vocab", ek_vocab_read(t, &c, &cap, &n_vocab)));
    if (n_vocab == 0) return ek_fail(EK_EFORMAT, "the vocabulary is empty");
    EK_TRY(ek_vocab_index(t, (size_t)n_vocab + json_array_size(s->added)));
    EK_TRY(read_normalizer(t, s->normalizer));
    EK_TRY(check_pre_tokenizer(t, s->pre_tokenizer));
    EK_TRY(read_decoder(t, s->decoder));
    EK_TRY(in_section("added_tokens", ek_added_read(t, s->added, &cap)));
    size_t n_entries = (size_t)n_vocab + json_array_size(s->added);
    if ((size_t)t->n_ids > 4 * n_entries + 65536)
        return ek_fail(EK_EFORMAT, "ids up to %d for %zu tokens", t->n_ids - 1, n_entries);
    EK_TRY(read_model_rules(t, s->model));
    c.at = s->merges_at;
    EK_TRY(in_section("model.merges", ek_merges_read(t, &c, n_vocab)));
    ek_pieces_derive(t);
    ek_merges_index(t);
    return EK_OK;
}

ek_err ek_tokenizer_parse(ek_tokenizer **out, const char *json, size_t n)
{
    *out = NULL;
    if (n > MAX_FILE) return ek_fail(EK_EFORMAT, "%zu bytes, a tokenizer has at most %d", n, MAX_FILE);
    ek_tokenizer *t = ek_alloc(sizeof *t);
    sections s = {0};
    ek_cursor c = {json, n, 0};
    ek_err e = find_sections(&s, &c);
    if (e == EK_OK && ek_cursor_peek(&c) >= 0) e = ek_cursor_fail(&c, "text after the value");
    if (e == EK_OK) e = build(t, &s, json, n);
    json_decref(s.added);
    json_decref(s.normalizer);
    json_decref(s.pre_tokenizer);
    json_decref(s.decoder);
    json_decref(s.model);
    if (e == EK_OK) *out = t;
    else {
        ek_tokenizer_close(t);
        e = ek_fail_in(e == EK_EUNSUPPORTED ? e : EK_EFORMAT, "tokenizer");
    }
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
