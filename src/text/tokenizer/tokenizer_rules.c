/* The rules of a tokenizer.json around its pieces: normalizer, pre-tokenizer, decoder, and the switches of its
 * model. Rules that the encoder does not implement are refused. */
#include <stdio.h>

#include "text/json/json.h"
#include "text/tokenizer/tokenizer_load.h"

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

ek_err ek_normalizer_read(ek_tokenizer *t, const json_t *v)
{
    if (!v || json_is_null(v)) return EK_OK;
    const json_t *list = ek_json_get(v, "normalizers");
    if (json_array_size(list) == 1) v = json_array_get(list, 0);
    t->normalizes = true;
    return read_replace(v, &t->from, &t->to, "normalizer");
}

ek_err ek_pre_tokenizer_check(const ek_tokenizer *t, const json_t *v)
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

ek_err ek_decoder_read(ek_tokenizer *t, const json_t *v)
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

ek_err ek_model_rules_read(ek_tokenizer *t, const json_t *m)
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
