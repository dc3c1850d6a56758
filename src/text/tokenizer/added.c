/* Byte trie of added tokens: finds the longest one at a position. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_data.h"

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
