/* Look-up of tokens, and decoding. */
#include "base/alloc.h"

#include <stdlib.h>

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

/* Byte trie of added tokens: finds the longest one at a position. */

void ek_trie_init(trie *t, size_t n_bytes)
{
    uint32_t size = 16;
    while (size < 2 * n_bytes) size *= 2;
    t->mask = size - 1;
    t->key = ek_alloc(size * sizeof *t->key);
    t->child = ek_alloc(size * sizeof *t->child);
    t->id = ek_alloc((n_bytes + 1) * sizeof *t->id);
    t->id[0] = -1;
    t->n_nodes = 1;
}

static uint32_t slot(const trie *t, uint32_t node, uint8_t byte)
{
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    uint32_t i = (uint32_t)ek_mix64(key) & t->mask;
    while (t->key[i] && t->key[i] != key) i = (i + 1) & t->mask;
    return i;
}

void ek_trie_add(trie *t, const char *s, size_t n, int32_t id)
{
    uint32_t node = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = slot(t, node, (uint8_t)s[k]);
        if (!t->key[i]) {
            t->key[i] = ((uint64_t)node << 8 | (uint8_t)s[k]) + 1;
            t->child[i] = t->n_nodes;
            t->id[t->n_nodes++] = -1;
        }
        node = t->child[i];
    }
    t->id[node] = id;
    t->first[(uint8_t)s[0]] = 1;
}

void ek_trie_fini(trie *t)
{
    free(t->key);
    free(t->child);
    free(t->id);
}

size_t ek_trie_longest(const trie *t, const char *s, size_t n, const ek_tokenizer *tok, bool special_too, int32_t *id)
{
    size_t best = 0;
    uint32_t node = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = slot(t, node, (uint8_t)s[k]);
        if (!t->key[i]) break;
        node = t->child[i];
        int32_t found = t->id[node];
        if (found < 0 || (!special_too && tok->pieces[found].flags & PIECE_SPECIAL)) continue;
        best = k + 1;
        *id = found;
    }
    return best;
}
