/* Following a reply token by token, and the rows of tokens that may come next. A row of a state is the union of the
 * rows of its stacks; a stack's row is a function of its frames, which are the key of the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "text/vocab_data.h"

/* --- states --- */

/* The frames of the state are the first of the arena, under the same numbers. */
static void load(ek_walk *w, const ek_grammar_state *s)
{
    w->g = s->g;
    w->n = s->n_frames;
    memcpy(w->f, s->frame, sizeof *w->f * (size_t)s->n_frames);
}

/* Keeps the frames under `tops`. */
static void store(ek_grammar_state *s, const ek_walk *w, const ek_tops *tops)
{
    static const int max = EK_GRAMMAR_FRAMES;
    int32_t from[EK_GRAMMAR_FRAMES], chain[EK_GRAPH_DEPTH + 1];
    s->n_frames = s->tops.n = 0;
    for (int i = 0; i < tops->n; i++) {
        int n = 0, kept = 0;
        int32_t at = tops->at[i], up = EK_NO_FRAME;
        for (; at != EK_NO_FRAME; at = w->f[at].up) {
            for (kept = s->n_frames; kept > 0 && from[kept - 1] != at; kept--) continue;
            if (kept > 0) break;
            chain[n++] = at;
        }
        if (at != EK_NO_FRAME) up = kept - 1;
        if (s->n_frames + n > max) continue;
        while (n-- > 0) {
            s->frame[s->n_frames] = w->f[chain[n]];
            s->frame[s->n_frames].up = up;
            from[s->n_frames] = chain[n];
            up = s->n_frames++;
        }
        s->tops.at[s->tops.n++] = up;
    }
}

static int symbol_of_mark(const ek_vocab *v, int32_t token)
{
    for (int m = EK_MARK_TEXT + 1; m < EK_MARK_OTHER; m++)
        if (v->marks.id[m] == token) return EK_SYMBOL_MARK + m;
    return -1;
}

/* s after the token; false if it is not allowed, and s is then empty. */
static bool advance(ek_vocab *v, ek_grammar_state *s, int32_t token)
{
    ek_walk *w = &v->walk;
    ek_tops a = s->tops, b = {0};
    load(w, s);
    if (ek_tokenizer_is_special(v->t, token)) {
        int symbol = symbol_of_mark(v, token);
        bool free = a.n == 1 && s->frame[a.at[0]].node < 0 && s->frame[a.at[0]].state == EK_AT_FREE;
        if (symbol >= 0) ek_walk_steps(w, &a, symbol, &b);
        else if (free) return true;
    } else {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(v->t, token, &n);
        b = a;
        if (n == 0 || n > EK_VOCAB_TOKEN) b.n = 0;
        for (size_t i = 0; i < n && b.n > 0; i++) {
            a = b;
            ek_walk_steps(w, &a, (uint8_t)bytes[i], &b);
        }
    }
    store(s, w, &b);
    return s->tops.n > 0;
}

/* --- rows --- */

/* The nodes [i, end) of the trie, which are the nodes below `base` bytes that led to top. */
static void walk_part(ek_walk *w, const ek_byte_trie *t, uint32_t i, uint32_t end, int base, int32_t top, uint64_t *row)
{
    ek_tops at[EK_VOCAB_TOKEN + 1];
    int n[EK_VOCAB_TOKEN + 1]; /* frames of the arena that belong to the path down to this depth */
    at[0] = (ek_tops){.n = 1, .at = {top}};
    n[0] = w->n;
    while (i < end) {
        const ek_trie_node *node = &t->node[i];
        int depth = node->depth - base;
        w->n = n[depth - 1];
        ek_walk_steps(w, &at[depth - 1], node->byte, &at[depth]);
        n[depth] = w->n;
        if (at[depth].n == 0) {
            i = node->skip;
            continue;
        }
        i++;
        for (uint32_t k = node->token; k < t->node[i].token; k++) ek_row_set(row, t->token[k]);
    }
    w->n = n[0];
}

static void walk_trie(ek_walk *w, const ek_byte_trie *t, int32_t top, uint64_t *row)
{
    walk_part(w, t, 0, t->n_nodes, 0, top, row);
}

/* Whether everything below the node keeps the pattern in its state, with room for a match behind it. */
static bool all_loop(const ek_pattern *p, const ek_string_at *s, const ek_trie_node *node)
{
    if (s->utf8 > 0 || node->kinds & ~p->loops[s->state]) return false;
    if (p->max == UINT32_MAX) return true;
    return node->height < 3 && s->n >= p->min && p->regex->least[s->state] + (4u << 2 * node->height) <= p->max - s->n;
}

/* The same from inside a string with a pattern: its characters need no frames; what closes the string or begins an
 * escape goes on with them. */
static void walk_pattern(ek_walk *w, const ek_byte_trie *t, int32_t top, uint64_t *row)
{
    ek_string_at at[EK_VOCAB_TOKEN + 1];
    ek_frame f = w->f[top];
    const ek_node *n = &w->g->graph.nodes[f.node];
    const ek_pattern *p = w->g->graph.patterns[n->pattern];
    int first = w->n;
    ek_string_load(&f, &at[0]);
    for (uint32_t i = 0; i < t->n_nodes;) {
        const ek_trie_node *node = &t->node[i];
        int depth = node->depth;
        at[depth] = at[depth - 1];
        if (all_loop(p, &at[depth], node)) {
            for (uint32_t k = node->token, end = t->node[node->skip].token; k < end; k++) ek_row_set(row, t->token[k]);
            i = node->skip;
        } else if (!n->gemma && at[depth].utf8 == 0 && (node->byte < 0x20 || node->byte == '"' || node->byte == '\\')) {
            ek_string_store(n, &at[depth], &f);
            if (node->byte >= 0x20) walk_part(w, t, i, node->skip, depth - 1, ek_walk_add(w, f), row);
            w->n = first;
            i = node->skip;
        } else if (!ek_string_byte(p, &at[depth], node->byte)) {
            i = node->skip;
        } else {
            i++;
            for (uint32_t k = node->token; k < t->node[i].token; k++) ek_row_set(row, t->token[k]);
        }
    }
}

static uint32_t at_most(uint32_t x, uint32_t most)
{
    return x < most ? x : most;
}

/* Whether a pattern has a say in what comes next: not once it has found its match. */
static const ek_pattern *holds_pattern(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = f->node < 0 ? NULL : &w->g->graph.nodes[f->node];
    if (!n || n->kind != EK_NODE_STRING || n->pattern < 0) return NULL;
    const ek_pattern *p = w->g->graph.patterns[n->pattern];
    return ek_regex_is_free(p->regex, (int32_t)(f->v & UINT32_MAX)) ? NULL : p;
}

/* The set of text that may stand where the stack is, and the trie of the other tokens. */
static const ek_byte_trie *begin_row(const ek_vocab *v, const ek_walk *w, const ek_frame *f, uint64_t *row)
{
    size_t words = (size_t)v->n_words, bytes = sizeof *row * words;
    memset(row, 0, bytes);
    if (f->node < 0) {
        if (f->state == EK_AT_THOUGHT) memcpy(row, v->text, bytes);
        return f->state == EK_AT_THOUGHT ? NULL : &v->all;
    }
    const ek_node *n = &w->g->graph.nodes[f->node];
    bool string = n->kind == EK_NODE_STRING && f->state == EK_IN_BODY && !holds_pattern(w, f);
    bool key = n->kind == EK_NODE_OBJECT && f->state == EK_OBJECT_OTHER && !n->gemma && (f->v & 255) == 0;
    if (!string && !key) return &v->all;
    ek_body body = n->gemma ? EK_BODY_GEMMA : EK_BODY_JSON;
    uint32_t left = key || n->max == UINT32_MAX ? EK_VOCAB_CHARS : at_most(n->max - f->a, EK_VOCAB_CHARS);
    memcpy(row, v->body[body] + left * words, bytes);
    return &v->rest[body];
}

static void make_row(ek_vocab *v, int32_t top, uint64_t *row)
{
    ek_walk *w = &v->walk;
    const ek_byte_trie *t = begin_row(v, w, &w->f[top], row);
    if (t && holds_pattern(w, &w->f[top]) && w->f[top].state < EK_IN_ESCAPE) walk_pattern(w, t, top, row);
    else if (t) walk_trie(w, t, top, row);
    int n = w->n;
    for (int m = EK_MARK_TEXT + 1; m < EK_MARK_OTHER; m++) {
        ek_tops next = {0};
        if (v->marks.id[m] < 0) continue;
        ek_walk_step(w, top, EK_SYMBOL_MARK + m, &next);
        w->n = n;
        if (next.n > 0) ek_row_set(row, v->marks.id[m]);
    }
}

/* Counts that no token can reach make no difference to a row: without this, each place in a long string would have a
 * row of its own. */
static void make_key(const ek_walk *w, int32_t top, ek_row_key *key)
{
    key->g = w->g;
    key->serial = w->g->serial;
    key->n = 0;
    for (int32_t at = top; at != EK_NO_FRAME; at = w->f[at].up) {
        ek_frame f = w->f[at];
        const ek_node *n = f.node < 0 ? NULL : &w->g->graph.nodes[f.node];
        const ek_pattern *p = holds_pattern(w, &f);
        f.up = 0;
        if (p) { /* beyond the minimum no match is further away than the automaton has states */
            uint32_t left = n->max == UINT32_MAX ? n->max : n->max - f.a;
            f.a = n->min > f.a ? n->min - f.a : 0;
            f.up = (int32_t)at_most(left, f.a + EK_VOCAB_TOKEN + (uint32_t)p->regex->n_states);
        } else if (n && n->kind == EK_NODE_STRING)
            f.a = at_most(n->max == UINT32_MAX ? EK_VOCAB_TOKEN : n->max - f.a, EK_VOCAB_TOKEN) << 16 |
                  at_most(n->min > f.a ? n->min - f.a : 0, EK_VOCAB_TOKEN);
        key->frame[key->n++] = f;
    }
    key->hash = ek_hash64(key->serial, key->frame, sizeof *key->frame * (uint64_t)key->n);
}

static bool is_key(const ek_row_key *a, const ek_row_key *b)
{
    return a->used && a->hash == b->hash && a->serial == b->serial && a->g == b->g && a->n == b->n &&
           !memcmp(a->frame, b->frame, sizeof *a->frame * (size_t)a->n);
}

/* Borrowed until the next call. */
static const uint64_t *row_of(ek_vocab *v, int32_t top)
{
    ek_row_key key = {0};
    make_key(&v->walk, top, &key);
    size_t set = key.hash % EK_VOCAB_SETS * EK_VOCAB_WAYS, oldest = set, words = (size_t)v->n_words;
    for (size_t i = set; i < set + EK_VOCAB_WAYS; i++) {
        if (is_key(&v->key[i], &key)) {
            v->hits++;
            v->key[i].used = ++v->clock;
            return v->row + i * words;
        }
        if (v->key[i].used < v->key[oldest].used) oldest = i;
    }
    v->misses++;
    key.used = ++v->clock;
    v->key[oldest] = key;
    make_row(v, top, v->row + oldest * words);
    return v->row + oldest * words;
}

static bool allows_all(const ek_grammar_state *s)
{
    for (int i = 0; i < s->tops.n; i++) {
        const ek_frame *f = &s->frame[s->tops.at[i]];
        if (f->node < 0 && (f->state == EK_AT_FREE || f->state == EK_AT_DONE)) return true;
    }
    return false;
}

static void fill(ek_vocab *v, const ek_grammar_state *s, int n_words, uint64_t *row)
{
    size_t words = (size_t)(n_words < v->n_words ? n_words : v->n_words);
    memset(row, 0, sizeof *row * (size_t)n_words);
    load(&v->walk, s);
    for (int i = 0; i < s->tops.n; i++) {
        const uint64_t *one = row_of(v, s->tops.at[i]);
        if (i == 0) memcpy(row, one, sizeof *row * words);
        else
            for (size_t k = 0; k < words; k++) row[k] |= one[k];
    }
}

static void copy_state(ek_grammar_state *to, const ek_grammar_state *from)
{
    to->g = from->g;
    to->n_frames = from->n_frames;
    to->tops = from->tops;
    memcpy(to->frame, from->frame, sizeof *to->frame * (size_t)from->n_frames);
}

/* --- the interface --- */

int ek_grammar_look(ek_grammar_state *s, const int32_t *draft, int n_draft, int n_words, uint64_t *row, bool *all)
{
    ek_vocab *v = s->vocab;
    ek_grammar_state *at = s;
    int i = 0;
    pthread_mutex_lock(&v->lock);
    for (;; i++) {
        all[i] = allows_all(at);
        if (!all[i]) fill(v, at, n_words, row + (size_t)i * (size_t)n_words);
        if (i == n_draft) break;
        if (at == s) copy_state(s->ahead, s);
        at = s->ahead;
        if (!advance(v, at, draft[i])) break;
    }
    pthread_mutex_unlock(&v->lock);
    return i;
}

void ek_grammar_accept(ek_grammar_state *s, int32_t token)
{
    pthread_mutex_lock(&s->vocab->lock);
    advance(s->vocab, s, token);
    pthread_mutex_unlock(&s->vocab->lock);
}

bool ek_grammar_may_end(ek_grammar_state *s)
{
    ek_vocab *v = s->vocab;
    ek_tops a = {0}, b = {0};
    pthread_mutex_lock(&v->lock);
    load(&v->walk, s);
    ek_walk_steps(&v->walk, &s->tops, EK_SYMBOL_MARK + EK_MARK_TURN_CLOSE, &a);
    ek_walk_steps(&v->walk, &s->tops, EK_SYMBOL_MARK + EK_MARK_EOS, &b);
    pthread_mutex_unlock(&v->lock);
    return a.n > 0 || b.n > 0;
}

/* The same look back as that of the reply parser (ek_reply_start). */
static ek_frame start_of(const ek_grammar *g, const ek_vocab *v, const int32_t *prompt, size_t n, bool thinking)
{
    ek_frame f = {.up = EK_NO_FRAME, .node = -1, .depth = 1, .state = thinking ? EK_AT_START : EK_AT_BODY};
    if (g->free) f.state = EK_AT_FREE;
    size_t i = n;
    int mark = -1;
    while (i > 0 && mark < 0) {
        mark = symbol_of_mark(v, prompt[--i]) - EK_SYMBOL_MARK;
        if (mark == EK_MARK_QUOTE || mark == EK_MARK_TOOL_OPEN || mark == EK_MARK_TOOL_CLOSE || mark == EK_MARK_EOS)
            mark = -1;
    }
    if (g->free || mark != EK_MARK_CHANNEL_OPEN) return f;
    f.state = EK_AT_HEADER;
    for (i++; i < n; i++) {
        size_t len;
        const char *bytes = ek_tokenizer_bytes(v->t, prompt[i], &len);
        if (memchr(bytes, '\n', len)) {
            f.state = EK_AT_THOUGHT;
            f.a = 0;
            return f;
        }
        f.a = at_most(f.a + (uint32_t)len, 7); /* the header's name; the newline is still to come */
    }
    return f;
}

ek_grammar_state *ek_grammar_state_open(const ek_grammar *g, ek_vocab *v, const int32_t *prompt, size_t n,
                                        bool thinking)
{
    ek_grammar_state *s = ek_alloc(sizeof *s);
    s->ahead = ek_alloc(sizeof *s->ahead);
    s->g = g;
    s->vocab = v;
    s->frame[0] = start_of(g, v, prompt, n, thinking);
    s->n_frames = 1;
    s->tops = (ek_tops){.n = 1, .at = {0}};
    return s;
}

void ek_grammar_state_close(ek_grammar_state *s)
{
    if (!s) return;
    free(s->ahead);
    free(s);
}
