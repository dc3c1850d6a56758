/* The pieces of a tokenizer: vocabulary, added tokens, and the decoded bytes of each piece. */
#include "base/alloc.h"
#include "base/encoding.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer_data.h"
#include "text/utf8.h"

enum { MAX_ID = 1 << 24, MAX_BLOB = 1 << 26 };

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

ek_err ek_vocab_read(ek_tokenizer *t, ek_cursor *c, int32_t *cap, int32_t *n_vocab)
{
    bool first = true, more;
    EK_TRY(ek_cursor_expect(c, '{'));
    for (;;) {
        EK_TRY(ek_cursor_next(c, '}', &first, &more));
        if (!more) return EK_OK;
        size_t at = t->blob.len;
        int64_t id;
        EK_TRY(ek_cursor_string(c, &t->blob));
        if (t->blob.len > MAX_BLOB) return ek_fail(EK_EFORMAT, "a vocabulary of over %d bytes", MAX_BLOB);
        if (!ek_utf8_valid(t->blob.data + at, t->blob.len - at))
            return ek_cursor_fail(c, "the piece before is not UTF-8");
        EK_TRY(ek_cursor_expect(c, ':'));
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

ek_err ek_vocab_index(ek_tokenizer *t, size_t n_entries)
{
    uint32_t size = 16;
    while (size < 2 * n_entries) size *= 2;
    t->index = ek_alloc(size * sizeof *t->index);
    t->index_mask = size - 1;
    for (int32_t id = 0; id < t->n_ids; id++)
        if (t->pieces[id].flags & PIECE_VOCAB) EK_TRY(index_piece(t, id));
    return EK_OK;
}

ek_err ek_added_read(ek_tokenizer *t, const json_t *added, int32_t *cap)
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

void ek_pieces_derive(ek_tokenizer *t)
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
        const int byte = p->text.n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' ? ek_hex_byte(s + 3, 2) : -1;
        if (byte >= 0) {
            p->flags |= PIECE_BYTE;
            p->bytes = (span){(uint32_t)t->blob.len, 1};
            ek_buf_char(&t->blob, (char)byte);
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
