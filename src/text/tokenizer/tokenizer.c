/* Look-up of tokens, and decoding. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_data.h"
#include "text/utf8.h"

void ek_ids_add(ek_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) {
        ids->cap = ids->cap ? 2 * ids->cap : 64;
        ids->data = ek_realloc(ids->data, ids->cap * sizeof *ids->data);
    }
    ids->data[ids->len++] = id;
}

void ek_ids_fini(ek_ids *ids)
{
    free(ids->data);
    *ids = (ek_ids){0};
}

void ek_replace_all(ek_buf *out, const char *s, size_t n, const ek_buf *from, const ek_buf *to)
{
    if (from->len == 0) {
        ek_buf_add(out, s, n);
        return;
    }
    size_t done = 0;
    for (size_t i = 0; i + from->len <= n;) {
        const char *hit = memchr(s + i, from->data[0], n - i - from->len + 1);
        if (!hit) break;
        i = (size_t)(hit - s);
        if (memcmp(hit, from->data, from->len) != 0) {
            i++;
            continue;
        }
        ek_buf_add(out, s + done, i - done);
        ek_buf_add(out, ek_buf_text(to), to->len);
        done = i += from->len;
    }
    ek_buf_add(out, s + done, n - done);
}

int ek_tokenizer_size(const ek_tokenizer *t)
{
    return t->n_ids;
}

int32_t ek_tokenizer_id(const ek_tokenizer *t, const char *text)
{
    return find_piece(t, text, strlen(text));
}

bool ek_tokenizer_is_special(const ek_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_ids && t->pieces[id].flags & PIECE_SPECIAL;
}

const char *ek_tokenizer_bytes(const ek_tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= t->n_ids || !t->pieces[id].flags) return "";
    *n = t->pieces[id].bytes.n;
    return ek_buf_text(&t->blob) + t->pieces[id].bytes.at;
}

static void end_run(ek_buf *out, ek_buf *run)
{
    if (ek_utf8_valid(ek_buf_text(run), run->len)) ek_buf_add(out, ek_buf_text(run), run->len);
    else
        for (size_t i = 0; i < run->len; i++) ek_buf_add(out, EK_UTF8_BAD, 3);
    ek_buf_clear(run);
}

void ek_decode(const ek_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, ek_buf *out)
{
    ek_buf run = {0}; /* consecutive byte pieces */
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->n_ids || !t->pieces[ids[i]].flags) continue;
        if (skip_special && t->pieces[ids[i]].flags & PIECE_SPECIAL) continue;
        size_t len;
        const char *bytes = ek_tokenizer_bytes(t, ids[i], &len);
        bool byte = t->pieces[ids[i]].flags & PIECE_BYTE;
        if (!byte && run.len) end_run(out, &run);
        ek_buf_add(byte ? &run : out, bytes, len);
    }
    if (run.len) end_run(out, &run);
    ek_buf_fini(&run);
}
