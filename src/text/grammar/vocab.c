#include "text/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/vocab_data.h"
#include "text/utf8.h"

/* A token, while tries are built from sorted lists. */
typedef struct piece {
    const uint8_t *s;
    uint32_t n;
    int32_t id;
} piece;

/* Tries of tokens' bytes. */

static int by_bytes(const void *x, const void *y)
{
    const piece *a = x, *b = y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t common(const piece *a, const piece *b)
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

/* e is sorted; returns the bytes. */
static size_t build_trie(ek_byte_trie *t, const piece *e, uint32_t n)
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

static void free_trie(ek_byte_trie *t)
{
    free(t->node);
    free(t->token);
}

/* Tokens by the kinds of their characters: words with and without a blank, numbers, other scripts. */

enum { SMALL = 1 << 0 | 1 << 1, LARGE = 1 << 2 | 1 << 3, DIGIT = 1 << 4, BLANK = 1 << 8, FOREIGN = 1 << 12 };

/* A token belongs to the first kind that fits. */
static const uint16_t kinds[EK_RUNS][3] = {
    {SMALL, SMALL, SMALL},
    {BLANK, SMALL, SMALL},
    {LARGE, SMALL, SMALL},
    {BLANK, LARGE, SMALL},
    {LARGE, LARGE, LARGE},
    {DIGIT, DIGIT, DIGIT},
    {FOREIGN, FOREIGN, FOREIGN},
    {BLANK, FOREIGN, FOREIGN},
    {SMALL | LARGE, SMALL | LARGE, SMALL | LARGE},
    {BLANK, SMALL | LARGE, SMALL | LARGE},
    {SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN},
    {BLANK, SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN},
};

/* The kinds of the characters, at most EK_VOCAB_RUN; 0 if there are more, or if some are incomplete. */
static uint32_t read_kinds(const piece *e, int *kind)
{
    uint32_t chars = 0;
    for (uint32_t i = 0; i < e->n; chars++) {
        uint32_t cp;
        int len = ek_utf8_next((const char *)e->s + i, e->n - i, &cp);
        if (len < 0 || chars == EK_VOCAB_RUN) return 0;
        kind[chars] = ek_chars_kind(0, e->s[i], 0);
        i += (uint32_t)len;
    }
    return chars;
}

static int run_of(const int *kind, uint32_t chars)
{
    for (int r = 0; r < EK_RUNS; r++) {
        uint32_t i = 0;
        while (i < chars && kind[i] & kinds[r][i < 2 ? i : 2]) i++;
        if (i == chars) return r;
    }
    return EK_RUNS;
}

/* e: every token that is not special, sorted. */
static void build_runs(ek_vocab *v, const piece *e, uint32_t n)
{
    size_t words = (size_t)v->n_words, bytes = sizeof *v->made * words * (EK_VOCAB_RUN + 1);
    uint8_t *where = ek_alloc((size_t)n + 1);
    piece *some = ek_alloc(sizeof *some * ((size_t)n + 1));
    for (int r = 0; r < EK_RUNS; r++) {
        v->run[r].set = ek_alloc(bytes);
        memcpy(v->run[r].kind, kinds[r], sizeof kinds[r]);
    }
    for (uint32_t i = 0; i < n; i++) {
        int kind[EK_VOCAB_RUN];
        uint32_t chars = read_kinds(&e[i], kind);
        where[i] = (uint8_t)(chars > 0 ? run_of(kind, chars) : EK_RUNS);
        if (where[i] < EK_RUNS) ek_row_set(v->run[where[i]].set + chars * words, e[i].id);
    }
    for (int r = 0; r <= EK_RUNS; r++) {
        uint32_t n_some = 0;
        for (uint32_t i = 0; i < n; i++)
            if (where[i] == r) some[n_some++] = e[i];
        v->bytes += build_trie(r < EK_RUNS ? &v->run[r].trie : &v->odd, some, n_some);
        for (size_t w = words; r < EK_RUNS && w < words * (EK_VOCAB_RUN + 1); w++)
            v->run[r].set[w] |= v->run[r].set[w - words];
    }
    v->bytes += bytes * EK_RUNS;
    free(some);
    free(where);
}

/* --- the cache of rows --- */

enum { SLOTS = 1 << 14, WAYS = 8, DENSE = -1 };

/* Followed by the frames, then by the row: the tokens that `base` lacks, or all words. */
struct ek_row_record {
    char grammar[64];
    const uint64_t *base;
    int32_t n_frames, n_tokens; /* n_tokens: DENSE: the row itself */
    ek_frame frame[];
};

size_t ek_rows_init(ek_rows *c, int n_words, int n_rows)
{
    size_t largest = sizeof(ek_row_record) / 8 + sizeof(ek_frame) / 8 * EK_GRAPH_DEPTH + (size_t)n_words;
    *c = (ek_rows){.n_words = n_words, .cap = largest * (size_t)n_rows};
    c->ring = ek_alloc(sizeof *c->ring * c->cap);
    c->slot = ek_alloc(sizeof *c->slot * SLOTS);
    return sizeof *c->ring * c->cap + sizeof *c->slot * SLOTS;
}

void ek_rows_fini(ek_rows *c)
{
    free(c->ring);
    free(c->slot);
}

static const ek_row_record *record_at(const ek_rows *c, uint64_t at)
{
    return (const ek_row_record *)(c->ring + (at - 1) % c->cap);
}

/* Whether the record was not overwritten. */
static bool is_whole(const ek_rows *c, const ek_row_slot *s)
{
    return s->at > 0 && c->end - (s->at - 1) <= c->cap;
}

static bool is_of(const ek_row_record *r, const ek_row_key *key)
{
    return r->n_frames == key->n && !memcmp(r->grammar, key->grammar, sizeof r->grammar) &&
           !memcmp(r->frame, key->frame, sizeof *r->frame * (size_t)key->n);
}

const ek_row_record *ek_rows_find(const ek_rows *c, const ek_row_key *key)
{
    for (uint64_t i = 0; i < WAYS; i++) {
        const ek_row_slot *s = &c->slot[(key->hash + i) % SLOTS];
        if (s->hash == key->hash && is_whole(c, s) && is_of(record_at(c, s->at), key)) return record_at(c, s->at);
    }
    return NULL;
}

/* The tokens of row that base lacks; DENSE if they take more room than the row. */
static int differences(const uint64_t *base, const uint64_t *row, int n_words, int32_t *out)
{
    int n = 0;
    for (int w = 0; w < n_words; w++) {
        uint64_t bits = row[w] & ~(base ? base[w] : 0);
        if (!bits) continue;
        if (n + 64 > 2 * n_words) return DENSE;
        for (; bits; bits &= bits - 1) out[n++] = w * 64 + __builtin_ctzll(bits);
    }
    return n;
}

const ek_row_record *ek_rows_put(ek_rows *c, const ek_row_key *key, const uint64_t *base, const uint64_t *row)
{
    uint64_t head = (sizeof(ek_row_record) + sizeof(ek_frame) * (size_t)key->n) / 8, max = head + (uint64_t)c->n_words;
    if (c->end % c->cap + max > c->cap) c->end += c->cap - c->end % c->cap;
    ek_row_slot *slot = NULL;
    for (uint64_t i = 0; i < WAYS; i++) {
        ek_row_slot *s = &c->slot[(key->hash + i) % SLOTS];
        if (!slot || s->at < slot->at) slot = s;
    }
    *slot = (ek_row_slot){key->hash, c->end + 1};
    ek_row_record *r = (ek_row_record *)(c->ring + c->end % c->cap);
    memcpy(r->grammar, key->grammar, sizeof r->grammar);
    r->base = base;
    r->n_frames = key->n;
    memcpy(r->frame, key->frame, sizeof *r->frame * (size_t)key->n);
    void *rest = &r->frame[key->n];
    r->n_tokens = differences(base, row, c->n_words, rest);
    if (r->n_tokens == DENSE) memcpy(rest, row, sizeof *row * (size_t)c->n_words);
    c->end += head + (r->n_tokens == DENSE ? (uint64_t)c->n_words : ((uint64_t)r->n_tokens + 1) / 2);
    return r;
}

void ek_rows_get(const ek_rows *c, const ek_row_record *r, bool join, int n_words, uint64_t *out)
{
    size_t words = (size_t)(n_words < c->n_words ? n_words : c->n_words);
    const int32_t *token = (const int32_t *)(const void *)&r->frame[r->n_frames];
    const uint64_t *set = r->n_tokens == DENSE ? (const uint64_t *)(const void *)token : r->base;
    if (!join && set) memcpy(out, set, sizeof *out * words);
    if (!join && !set) memset(out, 0, sizeof *out * words);
    for (size_t w = 0; join && set && w < words; w++) out[w] |= set[w];
    for (int i = 0; i < r->n_tokens; i++)
        if ((size_t)token[i] / 64 < words) out[token[i] / 64] |= (uint64_t)1 << token[i] % 64;
}

/* --- the vocabulary --- */

/* The number of characters of a token that fits into a string's body; 0 if it does not. *may: whether it can begin in
 * one. */
static uint32_t body_chars(ek_body body, const piece *e, bool *may)
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

static void build_body(ek_vocab *v, ek_body body, const piece *e, uint32_t n)
{
    size_t row = (size_t)v->n_words;
    uint64_t *set = v->body[body] = ek_alloc(sizeof *set * row * (EK_VOCAB_CHARS + 1));
    piece *rest = ek_alloc(sizeof *rest * ((size_t)n + 1));
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

static int greater(int a, int b)
{
    return a > b ? a : b;
}

static void measure(ek_vocab *v, const piece *e)
{
    int opening = 0, closing = 0, commas = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        opening += e->s[i] == '{' || e->s[i] == '[';
        closing += e->s[i] == '}' || e->s[i] == ']';
        commas += e->s[i] == ',';
    }
    v->longest = greater(v->longest, (int)e->n);
    v->opening = greater(v->opening, opening);
    v->closing = greater(v->closing, closing);
    v->commas = greater(v->commas, commas);
}

static void build(ek_vocab *v)
{
    int size = ek_tokenizer_size(v->t);
    piece *e = ek_alloc(sizeof *e * ((size_t)size + 1));
    uint32_t n = 0;
    v->n_words = (size + 63) / 64;
    v->text = ek_alloc(sizeof *v->text * (size_t)v->n_words);
    for (int32_t id = 0; id < size; id++) {
        size_t len;
        const char *s = ek_tokenizer_bytes(v->t, id, &len);
        if (len == 0 || len > EK_VOCAB_TOKEN || ek_tokenizer_is_special(v->t, id)) continue;
        e[n++] = (piece){(const uint8_t *)s, (uint32_t)len, id};
        measure(v, &e[n - 1]);
        ek_row_set(v->text, id);
    }
    qsort(e, n, sizeof *e, by_bytes);
    v->bytes = sizeof *v->text * (size_t)v->n_words + build_trie(&v->all, e, n);
    for (int b = 0; b < EK_BODY_COUNT; b++) build_body(v, (ek_body)b, e, n);
    build_runs(v, e, n);
    free(e);
    v->bytes += ek_rows_init(&v->rows, v->n_words, EK_VOCAB_ROWS);
    v->made = ek_alloc(sizeof *v->made * (size_t)v->n_words);
    ek_walk_init(&v->walk);
    v->bytes += sizeof *v->walk.f * (size_t)v->walk.cap + sizeof *v->made * (size_t)v->n_words;
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

void ek_vocab_close(ek_vocab *v)
{
    if (!v) return;
    free_trie(&v->all);
    for (int b = 0; b < EK_BODY_COUNT; b++) {
        free_trie(&v->rest[b]);
        free(v->body[b]);
    }
    free(v->text);
    for (int r = 0; r < EK_RUNS; r++) {
        free_trie(&v->run[r].trie);
        free(v->run[r].set);
    }
    free_trie(&v->odd);
    ek_rows_fini(&v->rows);
    free(v->made);
    ek_walk_fini(&v->walk);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* The tables are larger than the reserve, so they are not begun if they would not fit. */
static ek_err check_room(const ek_vocab *v)
{
    size_t max = ((size_t)ek_tokenizer_size(v->t) * 256) + ((size_t)4 << 20);
    void *room = malloc(max);
    free(room);
    return room ? EK_OK : ek_fail(EK_ENOMEM, "no memory for the tables of structured output, up to %zu MiB", max >> 20);
}

ek_err ek_vocab_ready(ek_vocab *v)
{
    ek_err err = EK_OK;
    pthread_mutex_lock(&v->lock);
    if (!v->ready) err = check_room(v);
    if (!v->ready && !err) build(v);
    pthread_mutex_unlock(&v->lock);
    return err;
}

ek_vocab_stats ek_vocab_stats_of(ek_vocab *v)
{
    pthread_mutex_lock(&v->lock);
    ek_vocab_stats s = {v->bytes, v->hits, v->misses};
    pthread_mutex_unlock(&v->lock);
    return s;
}
