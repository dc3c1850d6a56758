/* Tries of tokens' bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/vocab_data.h"

int ek_piece_order(const void *x, const void *y)
{
    const ek_piece *a = x, *b = y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t common(const ek_piece *a, const ek_piece *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n]) n++;
    return n;
}

/* A path from the root, while the trie is built. */
typedef struct path {
    uint32_t node[EK_VOCAB_TOKEN + 1], depth;
    int utf8[EK_VOCAB_TOKEN + 1], kind[EK_VOCAB_TOKEN + 1]; /* behind its bytes */
    uint32_t height[EK_VOCAB_TOKEN + 2];
} path;

static void open_node(ek_byte_trie *t, path *p, uint32_t at, uint32_t token, uint8_t byte)
{
    uint32_t d = ++p->depth;
    p->node[d] = at;
    p->kind[d] = ek_chars_kind(p->utf8[d - 1], byte, p->kind[d - 1]);
    p->utf8[d] = p->utf8[d - 1] < 0 ? -1 : ek_utf8_walk(p->utf8[d - 1], byte);
    if (p->utf8[d] < 0) p->kind[d] = EK_CHARS_ODD;
    p->height[d + 1] = 0;
    t->node[at] = (ek_trie_node){
        .token = token, .byte = byte, .depth = (uint8_t)d, .kinds = (uint32_t)p->kind[d] & 0x3fffu};
}

static void close_node(ek_byte_trie *t, path *p, uint32_t skip)
{
    uint32_t d = p->depth--, height = p->height[d + 1] + 1;
    ek_trie_node *n = &t->node[p->node[d]];
    n->skip = skip;
    n->height = height <= 4 ? 0 : height <= 16 ? 1 : height <= 64 ? 2 : 3;
    if (p->height[d] < height) p->height[d] = height;
    if (d > 1) t->node[p->node[d - 1]].kinds |= n->kinds;
}

/* e is sorted. */
size_t ek_trie_build(ek_byte_trie *t, const ek_piece *e, uint32_t n)
{
    uint32_t n_nodes = 0;
    path p = {0};
    for (uint32_t i = 0; i < n; i++) n_nodes += e[i].n - (i ? common(&e[i - 1], &e[i]) : 0);
    t->n_nodes = n_nodes;
    t->n_tokens = n;
    t->node = ek_alloc(sizeof *t->node * ((size_t)n_nodes + 1));
    t->token = ek_alloc(sizeof *t->token * ((size_t)n + 1));
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t keep = i ? common(&e[i - 1], &e[i]) : 0;
        while (p.depth > keep) close_node(t, &p, at);
        for (; p.depth < e[i].n; at++) open_node(t, &p, at, i, e[i].s[p.depth]);
        t->token[i] = e[i].id;
    }
    while (p.depth > 0) close_node(t, &p, at);
    t->node[at].token = n;
    EK_ASSERT(at == n_nodes);
    for (uint32_t i = 0, byte = 0; byte <= 256; byte++) {
        while (i < n_nodes && t->node[i].byte < byte) i = t->node[i].skip;
        t->first[byte] = i;
    }
    return sizeof *t->node * ((size_t)n_nodes + 1) + sizeof *t->token * ((size_t)n + 1);
}

void ek_trie_free(ek_byte_trie *t)
{
    free(t->node);
    free(t->token);
}
