/* tokenizer.json -> ek_tokenizer: finds the sections of the file and reads them in the order they need. */
#include "text/tokenizer/tokenizer_load.h"

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
    EK_TRY(ek_normalizer_read(t, s->normalizer));
    EK_TRY(ek_pre_tokenizer_check(t, s->pre_tokenizer));
    EK_TRY(ek_decoder_read(t, s->decoder));
    EK_TRY(in_section("added_tokens", ek_added_read(t, s->added, &cap)));
    size_t n_entries = (size_t)n_vocab + json_array_size(s->added);
    if ((size_t)t->n_ids > 4 * n_entries + 65536)
        return ek_fail(EK_EFORMAT, "ids up to %d for %zu tokens", t->n_ids - 1, n_entries);
    EK_TRY(ek_model_rules_read(t, s->model));
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
