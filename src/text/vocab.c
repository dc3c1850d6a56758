#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"
#include "text/vocab_data.h"

typedef struct entry {
    const uint8_t *s;
    uint32_t n;
    int32_t id;
} entry;

static int by_bytes(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t common(const entry *a, const entry *b)
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
static size_t build_trie(ek_byte_trie *t, const entry *e, uint32_t n)
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
    return sizeof *t->node * ((size_t)n_nodes + 1) + sizeof *t->token * ((size_t)n + 1);
}

/* Characters of a token that is nothing but the body of a string; 0 if it is something else. *may: whether it may
 * at least begin in one. */
static uint32_t body_chars(ek_body body, const entry *e, bool *may)
{
    uint32_t chars = 0;
    *may = true;
    for (uint32_t i = 0; i < e->n; chars++) {
        uint32_t cp;
        int len = ek_utf8_next((const char *)e->s + i, e->n - i, &cp);
        if (len < 0) return 0;
        if (body == EK_BODY_JSON && (cp == '"' || cp == '\\')) return 0;
        if (body == EK_BODY_JSON && cp < 0x20) {
            *may = false;
            return 0;
        }
        i += (uint32_t)len;
    }
    return chars <= EK_VOCAB_CHARS ? chars : 0;
}

static void build_body(ek_vocab *v, ek_body body, const entry *e, uint32_t n)
{
    size_t row = (size_t)v->n_words;
    uint64_t *set = v->body[body] = ek_alloc(sizeof *set * row * (EK_VOCAB_CHARS + 1));
    entry *rest = ek_alloc(sizeof *rest * ((size_t)n + 1));
    uint32_t n_rest = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool may;
        uint32_t chars = body_chars(body, &e[i], &may);
        if (chars > 0) ek_row_set(set + chars * row, e[i].id);
        else if (may) rest[n_rest++] = e[i];
    }
    for (size_t chars = 1; chars <= EK_VOCAB_CHARS; chars++)
        for (size_t w = 0; w < row; w++) set[chars * row + w] |= set[(chars - 1) * row + w];
    v->bytes += sizeof *set * row * (EK_VOCAB_CHARS + 1) + build_trie(&v->rest[body], rest, n_rest);
    free(rest);
}

static void build(ek_vocab *v)
{
    int size = ek_tokenizer_size(v->t);
    entry *e = ek_alloc(sizeof *e * ((size_t)size + 1));
    uint32_t n = 0;
    v->n_words = (size + 63) / 64;
    v->text = ek_alloc(sizeof *v->text * (size_t)v->n_words);
    for (int32_t id = 0; id < size; id++) {
        size_t len;
        const char *s = ek_tokenizer_bytes(v->t, id, &len);
        if (len == 0 || len > EK_VOCAB_TOKEN || ek_tokenizer_is_special(v->t, id)) continue;
        e[n++] = (entry){(const uint8_t *)s, (uint32_t)len, id};
        ek_row_set(v->text, id);
    }
    qsort(e, n, sizeof *e, by_bytes);
    v->bytes = sizeof *v->text * (size_t)v->n_words + build_trie(&v->all, e, n);
    for (int b = 0; b < EK_BODY_COUNT; b++) build_body(v, (ek_body)b, e, n);
    free(e);
    int rows = EK_VOCAB_WAYS * EK_VOCAB_SETS;
    v->key = ek_alloc(sizeof *v->key * (size_t)rows);
    v->row = ek_alloc(sizeof *v->row * (size_t)v->n_words * (size_t)rows);
    v->bytes += (sizeof *v->key + sizeof *v->row * (size_t)v->n_words) * (size_t)rows;
    ek_walk_init(&v->walk);
    v->bytes += sizeof *v->walk.f * (size_t)v->walk.cap;
    v->ready = true;
}

ek_vocab *ek_vocab_open(const ek_tokenizer *t)
{
    ek_vocab *v = ek_alloc(sizeof *v);
    v->t = t;
    ek_marks_find(&v->marks, t);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

static void free_trie(ek_byte_trie *t)
{
    free(t->node);
    free(t->token);
}

void ek_vocab_close(ek_vocab *v)
{
    if (!v) return;
    free_trie(&v->all);
    for (int b = 0; b < EK_BODY_COUNT; b++) {
        free_trie(&v->rest[b]);
        free(v->body[b]);
    }
    free(v->text);
    free(v->key);
    free(v->row);
    ek_walk_fini(&v->walk);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

void ek_vocab_ready(ek_vocab *v)
{
    pthread_mutex_lock(&v->lock);
    if (!v->ready) build(v);
    pthread_mutex_unlock(&v->lock);
}

ek_vocab_stats ek_vocab_stats_of(ek_vocab *v)
{
    pthread_mutex_lock(&v->lock);
    ek_vocab_stats s = {v->bytes, v->hits, v->misses};
    pthread_mutex_unlock(&v->lock);
    return s;
}
