/* Makes the row of a stack: a walk over a trie of tokens, on which the automaton steps byte by byte. Three things
 * shorten it: bytes with which no continuation begins are skipped, characters of strings need no frames, and for tokens
 * that are only text the sets of allowed ones are known. */
#include <string.h>

#include "text/grammar/vocab_data.h"

/* --- possible bytes: all that may come, and perhaps more --- */

typedef struct bytes {
    uint64_t of[4];
} bytes;

static void put_byte(bytes *b, int byte)
{
    b->of[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

static void put_bytes(bytes *b, const char *s)
{
    for (; *s; s++) put_byte(b, (uint8_t)*s);
}

static bool has_byte(const bytes *b, int byte)
{
    return b->of[byte >> 6] >> (byte & 63) & 1;
}

/* The bytes with which the sorted texts of a range continue. */
static void put_texts(bytes *b, const ek_walk *w, int32_t first, uint64_t v)
{
    const ek_graph *g = &w->g->graph;
    uint32_t lo = (uint32_t)(v & 0xffff), hi = (uint32_t)(v >> 16 & 0xffff), len = (uint32_t)(v >> 32);
    const ek_graph_text *t = g->texts + first;
    while (lo < hi && t[lo].n == len) lo++;
    while (lo < hi) {
        uint32_t from = lo, to = hi;
        uint8_t byte = (uint8_t)g->blob.data[t[lo].at + len];
        put_byte(b, byte);
        ek_graph_narrow(g, t, &from, &to, len, byte);
        lo = to;
    }
}

static const char value_begins[] = "\"-0123456789[{tfn", space[] = " \n\t";

static bool put_object(bytes *b, const ek_walk *w, const ek_frame *f, const ek_node *n)
{
    bool names = f->state == EK_OBJECT_OPEN || f->state == EK_OBJECT_NEXT;
    if (f->state == EK_OBJECT_OTHER || f->state == EK_OBJECT_QUOTED ||
        (n->rest >= 0 && (f->state == EK_OBJECT_KEY || (names && n->gemma))))
        return false;
    if (f->state == EK_OBJECT_KEY) {
        put_texts(b, w, n->first, f->v);
        return true;
    }
    if (f->state == EK_OBJECT_COLON) {
        put_byte(b, ':');
        return true;
    }
    put_bytes(b, "},\"");
    if (!n->gemma) put_bytes(b, space);
    if (f->state == EK_OBJECT_VALUE) put_bytes(b, value_begins);
    if (names && n->gemma) put_texts(b, w, n->first, ek_text_range(0, (uint32_t)n->n, 0));
    return true;
}

static bool put_reply(bytes *b, const ek_walk *w, const ek_frame *f)
{
    switch (f->state) {
    case EK_AT_START:
    case EK_AT_BODY:
        if (w->g->json >= 0) put_bytes(b, value_begins);
        if (w->g->json >= 0 &&
            w->g->graph.nodes[w->g->json].kind == EK_NODE_TEXTS) { /* a choice begins with anything */
            const ek_node *n = &w->g->graph.nodes[w->g->json];
            put_texts(b, w, n->first, ek_text_range(0, (uint32_t)n->n, 0));
        }
        return true;
    case EK_AT_HEADER: put_bytes(b, "thought\n"); return true;
    case EK_AT_NAME: put_texts(b, w, w->g->first_name, f->v); return true;
    case EK_AT_CALL_END:
    case EK_AT_AFTER_CALL:
    case EK_AT_END: return true;
    default: return false;
    }
}

/* False: any byte may come, as far as is known. */
static bool put_frame(bytes *b, const ek_walk *w, int32_t top)
{
    for (;; top = w->f[top].up) {
        const ek_frame *f = &w->f[top];
        if (f->node < 0) return put_reply(b, w, f);
        const ek_node *n = ek_walk_node(w, f);
        switch ((ek_node_kind)n->kind) {
        case EK_NODE_TEXTS:
            put_texts(b, w, n->first, f->v);
            if (ek_text_first(w, n->first, f->v)->n != f->v >> 32) return true;
            break; /* it may be complete, so the frame below decides, too */
        case EK_NODE_NUMBER: put_bytes(b, "+-.0123456789Ee"); break;
        case EK_NODE_OBJECT: return put_object(b, w, f, n);
        case EK_NODE_ARRAY:
            put_bytes(b, "],");
            put_bytes(b, value_begins);
            if (!n->gemma) put_bytes(b, space);
            return true;
        default: return false;
        }
    }
}

static void may_come(bytes *b, const ek_walk *w, const ek_tops *tops)
{
    *b = (bytes){0};
    for (int i = 0; i < tops->n; i++)
        if (!put_frame(b, w, tops->at[i])) memset(b, 0xff, sizeof *b);
}

/* --- walks --- */

static uint32_t at_most(uint32_t x, uint32_t max)
{
    return x < max ? x : max;
}

static void take(const ek_byte_trie *t, uint32_t from, uint32_t to, uint64_t *row)
{
    for (uint32_t k = t->node[from].token; k < t->node[to].token; k++) ek_row_set(row, t->token[k]);
}

static void walk_part(ek_walk *w, const ek_byte_trie *t, uint32_t i, uint32_t end, int base, int32_t top,
                      uint64_t *row);

/* Results of ek_pattern_any during one row, by state, characters before, and kinds. */
enum { MEMO = 512, FEW = 16 /* FEW: nodes that are walked rather than asked about */ };
typedef struct memo {
    uint32_t first; /* characters before the row's tokens */
    uint64_t key[MEMO];
    uint8_t chars[MEMO];
} memo;

/* Whether everything below the node can follow, as far as its kinds of characters tell. */
static bool all_can(memo *m, const ek_pattern *p, const ek_string_at *s, const ek_trie_node *node, uint32_t n_nodes)
{
    if (s->utf8 > 0 || node->kinds & EK_CHARS_ODD || node->height == 3 || n_nodes < FEW) return false;
    uint32_t n = p->max == UINT32_MAX ? at_most(s->n, p->min) : s->n;
    if (n >= p->min && n > m->first) n = m->first + ((n - m->first + 15) & ~15u); /* a position with the same result */
    int max = 4 << 2 * node->height; /* upper bound of the characters below the node, by its bytes */
    uint64_t key = 1 + ((uint64_t)s->state << 48 | (uint64_t)n << 16 | (uint64_t)node->height << 14 | node->kinds);
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 55;
    if (m->key[at] != key) {
        m->key[at] = key;
        m->chars[at] = (uint8_t)ek_pattern_any(p, s->state, n, (uint16_t)node->kinds, max);
    }
    return m->chars[at] == max;
}

/* The nodes [i, end) of the trie, those below the `base` bytes that led to top: the body of a string, whose characters
 * need no frames. Bytes that close the string or begin an escape continue with frames. */
static void walk_string(ek_walk *w, const ek_byte_trie *t, uint32_t i, uint32_t end, int base, int32_t top,
                        uint64_t *row)
{
    ek_string_at at[EK_VOCAB_TOKEN + 1];
    ek_frame f = w->f[top];
    const ek_node *n = ek_walk_node(w, &f);
    const ek_pattern *p = ek_grammar_pattern(w, &f);
    int first = w->n;
    uint64_t state = f.v;
    ek_string_load(&f, &at[0]);
    memo m = {.first = at[0].n};
    while (i < end) {
        const ek_trie_node *node = &t->node[i];
        ek_string_at *s = &at[node->depth - base];
        *s = *(s - 1);
        if (p && all_can(&m, p, s, node, node->skip - i)) {
            take(t, i, node->skip, row);
            i = node->skip;
        } else if (!n->gemma && s->utf8 == 0 && (node->byte < 0x20 || node->byte == '"' || node->byte == '\\')) {
            if (p) ek_string_store(n, s, &f);
            else f.a = s->n, f.state = 0, f.v = state;
            if (node->byte >= 0x20) walk_part(w, t, i, node->skip, node->depth - 1, ek_walk_add(w, f), row);
            w->n = first;
            i = node->skip;
        } else if (p ? !ek_string_byte(p, s, node->byte) : !ek_string_free_byte(n, s, node->byte)) {
            i = node->skip;
        } else {
            take(t, i, i + 1, row);
            i++;
        }
    }
}

static bool is_body(const ek_walk *w, int32_t top)
{
    const ek_frame *f = &w->f[top];
    return f->node >= 0 && ek_walk_node(w, f)->kind == EK_NODE_STRING && f->state < EK_IN_ESCAPE;
}

/* The same for any stack. */
static void walk_part(ek_walk *w, const ek_byte_trie *t, uint32_t i, uint32_t end, int base, int32_t top, uint64_t *row)
{
    ek_tops at[EK_VOCAB_TOKEN + 1];
    bytes come[EK_VOCAB_TOKEN + 1];
    int n[EK_VOCAB_TOKEN + 1], known = 0; /* n: frames of the arena that belong to the path to this depth */
    at[0] = (ek_tops){.n = 1, .at = {top}};
    n[0] = w->n;
    may_come(&come[0], w, &at[0]);
    while (i < end) {
        const ek_trie_node *node = &t->node[i];
        int depth = node->depth - base;
        w->n = n[depth - 1];
        if (known < depth - 1) may_come(&come[depth - 1], w, &at[depth - 1]);
        known = depth - 1;
        at[depth].n = 0;
        if (has_byte(&come[depth - 1], node->byte)) ek_walk_steps(w, &at[depth - 1], node->byte, &at[depth]);
        n[depth] = w->n;
        if (at[depth].n == 0) {
            i = node->skip;
            continue;
        }
        take(t, i, i + 1, row);
        i++;
        if (node->skip - i < FEW || at[depth].n > 1 || !is_body(w, at[depth].at[0])) continue;
        walk_string(w, t, i, node->skip, node->depth, at[depth].at[0], row);
        i = node->skip;
    }
    w->n = n[0];
}

static void walk_trie(ek_walk *w, const ek_byte_trie *t, int32_t top, uint64_t *row)
{
    bytes come;
    may_come(&come, w, &(ek_tops){.n = 1, .at = {top}});
    for (int byte = 0; byte < 256; byte++)
        if (has_byte(&come, byte) && t->first[byte] < t->first[byte + 1])
            walk_part(w, t, t->first[byte], t->first[byte + 1], 0, top, row);
}

/* --- rows --- */

static void join(uint64_t *row, const uint64_t *set, size_t words)
{
    for (size_t i = 0; i < words; i++) row[i] |= set[i];
}

/* Inside a string that a pattern still restricts. */
static void pattern_row(ek_vocab *v, const ek_pattern *p, int32_t top, uint64_t *row)
{
    ek_walk *w = &v->walk;
    ek_string_at s;
    ek_string_load(&w->f[top], &s);
    walk_string(w, &v->odd, 0, v->odd.n_nodes, 0, top, row);
    for (int r = 0; r < EK_RUNS; r++) {
        int chars = s.utf8 ? -1 : ek_pattern_run(p, s.state, s.n, v->run[r].kind, EK_VOCAB_RUN);
        if (chars < 0) walk_string(w, &v->run[r].trie, 0, v->run[r].trie.n_nodes, 0, top, row);
        if (chars > 0) join(row, v->run[r].set + (size_t)chars * (size_t)v->n_words, (size_t)v->n_words);
    }
}

/* The set of text tokens allowed for this stack, NULL: none; *rest: the trie of the other tokens. */
static const uint64_t *known_text(const ek_vocab *v, const ek_walk *w, const ek_frame *f, const ek_byte_trie **rest)
{
    *rest = &v->all;
    if (f->node < 0) {
        if (f->state != EK_AT_THOUGHT) return NULL;
        *rest = NULL;
        return v->text;
    }
    const ek_node *n = ek_walk_node(w, f);
    bool string = n->kind == EK_NODE_STRING && f->state == EK_IN_BODY;
    bool key = n->kind == EK_NODE_OBJECT && f->state == EK_OBJECT_OTHER && !n->gemma && (f->v & 255) == 0;
    if (!string && !key) return NULL;
    ek_body body = n->gemma ? EK_BODY_GEMMA : EK_BODY_JSON;
    uint32_t left = key || n->max == UINT32_MAX ? EK_VOCAB_CHARS : at_most(n->max - f->a, EK_VOCAB_CHARS);
    *rest = &v->rest[body];
    return v->body[body] + left * (size_t)v->n_words;
}

const uint64_t *ek_grammar_make_row(ek_vocab *v, int32_t top)
{
    ek_walk *w = &v->walk;
    const ek_frame *f = &w->f[top];
    const ek_pattern *p = ek_grammar_pattern(w, f);
    const ek_byte_trie *rest;
    const uint64_t *base = NULL;
    uint64_t *row = v->made;
    bool body = is_body(w, top);
    if (!p) base = known_text(v, w, f, &rest);
    if (base) memcpy(row, base, sizeof *row * (size_t)v->n_words);
    else memset(row, 0, sizeof *row * (size_t)v->n_words);
    if (p && body) pattern_row(v, p, top, row);
    else if (p) walk_trie(w, &v->all, top, row);
    else if (rest && body) walk_string(w, rest, 0, rest->n_nodes, 0, top, row);
    else if (rest) walk_trie(w, rest, top, row);
    int n = w->n;
    for (int m = EK_MARK_TEXT + 1; m < EK_MARK_OTHER; m++) {
        ek_tops next = {0};
        if (v->marks.id[m] < 0) continue;
        ek_walk_step(w, top, EK_SYMBOL_MARK + m, &next);
        w->n = n;
        if (next.n > 0) ek_row_set(row, v->marks.id[m]);
    }
    return base;
}
