/* The automaton inside values with parts. */
#include "text/grammar/grammar_state.h"

#include <string.h>

#include "base/hash/rng.h"
#include "text/grammar/vocab_data.h"

/* --- objects: a = the index from which properties may come, white space; v by state --- */

static int index_of(const ek_frame *f)
{
    return (int)(f->a & 0xffff);
}

static int next_required(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = ek_walk_node(w, f);
    return w->g->graph.links[n->order + index_of(f)];
}

/* Properties come in order: an optional one may be skipped, a required one may not. */
static bool may_come(const ek_walk *w, const ek_frame *f, const ek_graph_text *t)
{
    return t->index >= index_of(f) && t->index <= next_required(w, f) && ek_walk_fits(w, f->depth, t->node);
}

static bool any_may_come(const ek_walk *w, const ek_frame *f, uint32_t lo, uint32_t hi)
{
    const ek_graph_text *t = w->g->graph.texts + ek_walk_node(w, f)->first;
    for (uint32_t i = lo; i < hi; i++)
        if (may_come(w, f, &t[i])) return true;
    return false;
}

/* Unnamed properties may come only once all required ones are there, so that these cannot be put off for ever. */
static bool others_may_come(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = ek_walk_node(w, f);
    return ek_walk_fits(w, f->depth, n->rest) && next_required(w, f) == n->named;
}

static void put_state(ek_walk *w, ek_frame f, int state, uint64_t v, ek_tops *out)
{
    f.state = (uint16_t)state;
    f.a &= 0xffff;
    f.v = v;
    ek_walk_put(w, out, ek_walk_add(w, f));
}

static void expect_value(ek_walk *w, ek_frame f, int32_t node, int index, ek_tops *out)
{
    f.a = (uint32_t)index;
    put_state(w, f, EK_OBJECT_VALUE, (uint64_t)node, out);
}

/* The allowed bytes of a bare key in a call. Only its own form distinguishes it from other syntax: it ends at a colon
 * and must not look like anything else. behind: EK_KEY_… of its bytes so far. */
enum { EK_KEY_BEGUN = 256, EK_KEY_BLANK = 512, EK_KEY_EQUALS = 1024 };

static bool is_bare(const ek_node *n, int c, uint64_t behind)
{
    bool first = !(behind & EK_KEY_BEGUN);
    if (c == ' ') return !first; /* only between other characters, because around a key it would be dropped */
    if (c < ' ' || c == 0x7f || c == (uint8_t)EK_GRAPH_QUOTE || (c < 0x80 && strchr(":,{}", c))) return false;
    if (c >= 0x80 || !strchr("=[]()\"'`\\", c)) return true;
    if (!n->wide || (first && strchr("=])\"'", c))) return false;
    return c == '\\' || c == '`' || !(behind & EK_KEY_EQUALS); /* k='v' would be read as a value */
}

/* Inside a key that is not a named one. v: the state of ek_utf8_walk and EK_KEY_…. */
static void in_other_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    if (symbol >= EK_SYMBOL_MARK) return;
    if (n->gemma) {
        int next = is_bare(n, symbol, f.v) ? ek_utf8_walk((int)(f.v & 255), symbol) : -1;
        uint64_t is = EK_KEY_BEGUN | (f.v & EK_KEY_EQUALS) | (symbol == ' ' ? EK_KEY_BLANK : 0) |
                      (symbol == '=' ? EK_KEY_EQUALS : 0);
        if (symbol == ':' && (f.v & ~(uint64_t)EK_KEY_EQUALS) == EK_KEY_BEGUN)
            expect_value(w, f, n->rest, index_of(&f), out);
        else if (next >= 0) put_state(w, f, EK_OBJECT_OTHER, is | (uint64_t)next, out);
    } else if (symbol == '"') {
        if (f.v == 256) put_state(w, f, EK_OBJECT_COLON, 0, out);
    } else if (symbol >= 0x20 && symbol != '\\') {
        int next = ek_utf8_walk((int)(f.v & 255), symbol);
        if (next >= 0) put_state(w, f, EK_OBJECT_OTHER, 256 | (uint64_t)next, out);
    }
}

/* The same inside a key between <|"|> and <|"|>. */
static void in_quoted_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    if (symbol == EK_SYMBOL_MARK + EK_MARK_QUOTE) {
        if (f.v == 0) put_state(w, f, EK_OBJECT_COLON, 0, out);
    } else if (symbol < EK_SYMBOL_MARK) {
        int next = ek_utf8_walk((int)f.v, symbol);
        if (next >= 0) put_state(w, f, EK_OBJECT_QUOTED, (uint64_t)next, out);
    }
}

/* Whether the beginning of a named key cannot begin another one: it has an escape, or <|"|> where others have none. */
static bool is_spelled(const ek_walk *w, const ek_node *n, uint64_t v)
{
    const char *s = w->g->graph.blob.data + ek_text_first(w, n->first, v)->at;
    return n->gemma ? *s == EK_GRAPH_QUOTE && !n->wide : memchr(s, '\\', v >> 32) != NULL;
}

/* Inside a named key of a call. A longer named key may continue beyond it, and so may a key that is not named, because
 * the value behind a key does not look like a name. */
static void end_or_go_on(ek_walk *w, ek_frame f, uint64_t v, bool other, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    const ek_graph_text *t = ek_text_first(w, n->first, v);
    uint32_t lo = (uint32_t)(v & 0xffff), hi = (uint32_t)(v >> 16 & 0xffff), len = (uint32_t)(v >> 32);
    if (t->n == len) {
        if (may_come(w, &f, t)) expect_value(w, f, t->node, n->any_order ? 0 : t->index + 1, out);
        if (++lo == hi) return;
    } else if (other) {
        expect_value(w, f, n->rest, index_of(&f), out);
    }
    if (!any_may_come(w, &f, lo, hi)) return;
    f.state = EK_OBJECT_KEY;
    f.v = ek_text_range(lo, hi, len);
    f.a &= 0xffff; /* a colon is a character of its own */
    ek_walk_put(w, out, ek_walk_add(w, f));
}

/* The state, as in in_other_key, of a key that has begun like a named one. False if it cannot become another key. */
static bool key_so_far(const ek_walk *w, const ek_node *n, uint64_t v, int utf8, uint64_t *is)
{
    uint32_t len = (uint32_t)(v >> 32);
    *is = (uint64_t)utf8;
    if (len <= (n->gemma ? 0 : 1)) return true;
    *is |= EK_KEY_BEGUN;
    const char *s = w->g->graph.blob.data + ek_text_first(w, n->first, v)->at;
    /* the closing quote is followed by its colon */
    if (!n->gemma || *s == EK_GRAPH_QUOTE) return !memchr(s + 1, *s, len - 1);
    uint64_t so_far = 0;
    for (uint32_t i = 0; i < len; i++) {
        if (!is_bare(n, (uint8_t)s[i], so_far)) return false;
        so_far = EK_KEY_BEGUN | (so_far & EK_KEY_EQUALS) | (s[i] == '=' ? EK_KEY_EQUALS : 0) |
                 (s[i] == ' ' ? EK_KEY_BLANK : 0);
    }
    *is |= so_far;
    return true;
}

/* Inside a key that begins like a named one. It may become another key, unless it is about to end like the named
 * one. */
static void in_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    int byte = ek_text_byte(n->gemma, symbol);
    uint32_t len = (uint32_t)(f.v >> 32);
    bool other = others_may_come(w, &f) && (len == 0 || !is_spelled(w, n, f.v));
    bool quoted = n->gemma && (len ? w->g->graph.blob.data[ek_text_first(w, n->first, f.v)->at] == EK_GRAPH_QUOTE
                                   : byte == (uint8_t)EK_GRAPH_QUOTE);
    uint64_t v = f.v;
    if (byte < 0) return;
    int utf8 = (int)(f.a >> 24);
    uint64_t so_far = 0;
    if (other && n->n > 0) other = key_so_far(w, n, f.v, utf8, &so_far);
    bool narrows = ek_text_narrow(w, n->first, &v, byte);
    if (narrows && n->gemma && byte == ':' && !quoted) {
        end_or_go_on(w, f, v, other && (so_far & ~(uint64_t)EK_KEY_EQUALS) == EK_KEY_BEGUN, out);
    } else if (narrows) {
        const ek_graph_text *t = ek_text_first(w, n->first, v);
        if (t->n == len + 1) {
            if (may_come(w, &f, t)) expect_value(w, f, t->node, n->any_order ? 0 : t->index + 1, out);
            return;
        }
        if (n->gemma)
            other = other &&
                    (quoted ? n->wide && (len == 0 || byte != (uint8_t)EK_GRAPH_QUOTE) : is_bare(n, byte, so_far));
        else other = other && (len == 0 || (byte != '"' && byte != '\\'));
        if (!other && !any_may_come(w, &f, (uint32_t)(v & 0xffff), (uint32_t)(v >> 16 & 0xffff))) return;
        utf8 = ek_utf8_walk(utf8, byte);
        f.state = EK_OBJECT_KEY;
        f.v = v;
        f.a = (f.a & 0xffff) | (uint32_t)(utf8 < 0 ? 0 : utf8) << 24;
        ek_walk_put(w, out, ek_walk_add(w, f));
    } else if (other && quoted) {
        if (len == 0) {
            if (n->wide) put_state(w, f, EK_OBJECT_QUOTED, 0, out);
            return;
        }
        f.v = (uint64_t)utf8;
        in_quoted_key(w, f, symbol, out);
    } else if (other) {
        if (!n->gemma && len == 0) {
            if (byte == '"') put_state(w, f, EK_OBJECT_OTHER, 0, out);
            return;
        }
        v = f.v;
        if (n->gemma && byte == '=' && ek_text_narrow(w, n->first, &v, ':')) return; /* NAME=VALUE of a named one */
        f.v = so_far;
        in_other_key(w, f, symbol, out);
    }
}

void ek_walk_in_object(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    bool complete = next_required(w, &f) == n->named;
    if (f.state != EK_OBJECT_KEY && f.state != EK_OBJECT_OTHER && f.state != EK_OBJECT_COLON &&
        f.state != EK_OBJECT_QUOTED && ek_walk_in_space(w, f, symbol, out))
        return;
    switch (f.state) {
    case EK_OBJECT_OPEN:
        if (symbol == '}' && complete) ek_walk_put(w, out, f.up);
        __attribute__((fallthrough));
    case EK_OBJECT_NEXT:
        f.a &= 0xffff;
        f.v = ek_text_range(0, (uint32_t)n->n, 0);
        in_key(w, f, symbol, out);
        break;
    case EK_OBJECT_KEY: in_key(w, f, symbol, out); break;
    case EK_OBJECT_OTHER: in_other_key(w, f, symbol, out); break;
    case EK_OBJECT_QUOTED: in_quoted_key(w, f, symbol, out); break;
    case EK_OBJECT_COLON:
        if (symbol == ':') expect_value(w, f, n->rest, index_of(&f), out);
        break;
    case EK_OBJECT_VALUE: {
        int32_t node = (int32_t)f.v;
        f.state = EK_OBJECT_AFTER;
        f.a &= 0xffff;
        f.v = 0;
        ek_walk_value(w, node, symbol, f, out);
        break;
    }
    default:
        if (symbol == '}' && complete) ek_walk_put(w, out, f.up);
        if (symbol == ',' && (others_may_come(w, &f) || any_may_come(w, &f, 0, (uint32_t)n->n)))
            put_state(w, f, EK_OBJECT_NEXT, 0, out);
        break;
    }
}

/* --- lists: v = items, a = white space --- */

static int32_t item_node(const ek_walk *w, const ek_node *n, uint64_t i)
{
    return i < (uint64_t)n->n ? w->g->graph.links[n->first + (int32_t)i] : n->rest;
}

void ek_walk_in_array(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    int32_t item = item_node(w, n, f.v);
    bool more = f.v < n->max && ek_walk_fits(w, f.depth, item);
    if (ek_walk_in_space(w, f, symbol, out)) return;
    if (symbol == ']' && f.state != EK_OBJECT_NEXT && f.v >= n->min) {
        ek_walk_put(w, out, f.up);
    } else if (f.state == EK_OBJECT_AFTER) {
        if (symbol == ',' && more) put_state(w, f, EK_OBJECT_NEXT, f.v, out);
    } else if (more) {
        f.state = EK_OBJECT_AFTER;
        f.a = 0;
        /* without a maximum, counting ends once nothing depends on the count */
        if (n->max < UINT32_MAX || f.v < n->min || f.v < (uint64_t)n->n) f.v++;
        ek_walk_value(w, item, symbol, f, out);
    }
}

/* The part of a frame on which a row depends: numbers beyond the reach of a token make no difference. Otherwise each
 * position in a long string, each level of a recursive schema and each item of a list would have rows of its own. */

static uint32_t at_most(uint32_t x, uint32_t limit)
{
    return x < limit ? x : limit;
}

const ek_pattern *ek_grammar_pattern(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = f->node < 0 ? NULL : &w->g->graph.nodes[f->node];
    if (!n || n->kind != EK_NODE_STRING || n->pattern < 0) return NULL;
    const ek_pattern *p = w->g->graph.patterns[n->pattern];
    return ek_regex_is_free(p->regex, (int32_t)(f->v & UINT32_MAX)) ? NULL : p;
}

/* The number of further ones that may or must come after `count`. */
static uint32_t left(uint32_t max, uint32_t count, uint32_t limit)
{
    return at_most(max == UINT32_MAX ? max : max - count, limit);
}
static uint32_t missing(uint32_t min, uint32_t count, uint32_t limit)
{
    return at_most(min > count ? min - count : 0, limit);
}

/* Depths matter only near the limit, because a token opens few values. */
static uint16_t depth_of(const ek_vocab *v, const ek_grammar *g, const ek_frame *f)
{
    int deepest = EK_GRAPH_DEPTH - (v->opening + g->max_depth + 2);
    return f->depth < deepest ? 0 : f->depth;
}

static void simplify(const ek_vocab *v, const ek_walk *w, ek_frame *f)
{
    const ek_node *n = f->node < 0 ? NULL : &w->g->graph.nodes[f->node];
    const ek_pattern *p = ek_grammar_pattern(w, f);
    f->up = 0;
    f->depth = depth_of(v, w->g, f);
    if (p) { /* beyond the minimum no match is further away than the number of states */
        uint32_t some = missing(n->min, f->a, UINT32_MAX);
        f->up = (int32_t)left(n->max, f->a, some + (uint32_t)v->longest + (uint32_t)p->regex->n_states);
        f->a = some;
    } else if (n && n->kind == EK_NODE_STRING) {
        f->a = left(n->max, f->a, (uint32_t)v->longest) << 16 | missing(n->min, f->a, (uint32_t)v->longest);
    } else if (n && n->kind == EK_NODE_ARRAY && f->v >= (uint64_t)n->n) { /* each further item is followed by a comma */
        uint32_t items = (uint32_t)f->v, limit = (uint32_t)v->commas + 2;
        f->v = (uint64_t)1 << 63 | (uint64_t)left(n->max, items, limit) << 32 | missing(n->min, items, limit);
    }
}

void ek_grammar_key(const ek_vocab *v, const ek_walk *w, int32_t top, ek_row_key *key)
{
    memcpy(key->grammar, w->g->id, sizeof key->grammar);
    key->n = 0;
    /* the value at the top may end by itself; each frame below ends by its own bracket */
    for (int32_t at = top; at != EK_NO_FRAME && key->n < v->closing + 3; at = w->f[at].up) {
        key->frame[key->n] = w->f[at];
        simplify(v, w, &key->frame[key->n++]);
    }
    uint64_t seed;
    memcpy(&seed, key->grammar, sizeof seed);
    key->hash = ek_hash64(seed, key->frame, sizeof *key->frame * (uint64_t)key->n);
}
