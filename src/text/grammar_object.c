/* The automaton inside values with parts. */
#include <string.h>

#include "text/grammar_state.h"

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

/* In their order: an optional one may be left out, a required one may not. */
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

/* Properties without a name of their own come when all required ones are there, so that these are not put off for
 * ever. */
static bool others_may_come(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = ek_walk_node(w, f);
    return ek_walk_fits(w, f->depth, n->rest) && next_required(w, f) == n->n;
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

/* What a bare key of a call may hold: it ends at a colon, and must not look like anything else. */
static bool is_bare(int c, bool first)
{
    if (c == ' ') return !first; /* between other characters: around a key it would be dropped */
    return c > ' ' && c != 0x7f && c != (uint8_t)EK_GRAPH_QUOTE && !(c < 0x80 && strchr(":=,{}[]()\"'`\\", c));
}

/* Inside a key that is none of the named ones. v: the state of ek_utf8_walk, 256 once it is not empty, 512
 * behind a blank of a bare one. */
static void in_other_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    if (symbol >= EK_SYMBOL_MARK) return;
    if (n->gemma) {
        int next = is_bare(symbol, f.v == 0) ? ek_utf8_walk((int)(f.v & 255), symbol) : -1;
        if (symbol == ':' && f.v == 256) expect_value(w, f, n->rest, index_of(&f), out);
        else if (next >= 0) put_state(w, f, EK_OBJECT_OTHER, 256 | (symbol == ' ' ? 512 : 0) | (uint64_t)next, out);
    } else if (symbol == '"') {
        if (f.v == 256) put_state(w, f, EK_OBJECT_COLON, 0, out);
    } else if (symbol >= 0x20 && symbol != '\\') {
        int next = ek_utf8_walk((int)(f.v & 255), symbol);
        if (next >= 0) put_state(w, f, EK_OBJECT_OTHER, 256 | (uint64_t)next, out);
    }
}

/* Whether what was read of a named key could not be read of another one: <|"|>, or an escape. */
static bool is_spelled(const ek_walk *w, const ek_node *n, uint64_t v)
{
    const char *s = w->g->graph.blob.data + ek_text_first(w, n->first, v)->at;
    return n->gemma ? *s == EK_GRAPH_QUOTE : memchr(s, '\\', v >> 32) != NULL;
}

/* Inside a key that begins like a named one. It may still become another key, unless it is just about to end as the
 * named one would. */
static void in_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    int byte = ek_text_byte(n->gemma, symbol);
    uint32_t len = (uint32_t)(f.v >> 32);
    bool other = others_may_come(w, &f) && (len == 0 || !is_spelled(w, n, f.v));
    uint64_t v = f.v;
    if (byte < 0) return;
    int utf8 = (int)(f.a >> 24);
    if (ek_text_narrow(w, n->first, &v, byte)) {
        const ek_graph_text *t = ek_text_first(w, n->first, v);
        if (t->n == len + 1) {
            if (may_come(w, &f, t)) expect_value(w, f, t->node, t->index + 1, out);
            return;
        }
        if (n->gemma) other = other && is_bare(byte, len == 0);
        else other = other && (len == 0 || (byte != '"' && byte != '\\'));
        if (!other && !any_may_come(w, &f, (uint32_t)(v & 0xffff), (uint32_t)(v >> 16 & 0xffff))) return;
        utf8 = ek_utf8_walk(utf8, byte);
        f.state = EK_OBJECT_KEY;
        f.v = v;
        f.a = (f.a & 0xffff) | (uint32_t)(utf8 < 0 ? 0 : utf8) << 24;
        ek_walk_put(w, out, ek_walk_add(w, f));
    } else if (other) {
        if (!n->gemma && len == 0) {
            if (byte == '"') put_state(w, f, EK_OBJECT_OTHER, 0, out);
            return;
        }
        bool empty = len == (n->gemma ? 0 : 1);
        f.v = (empty ? 0 : 256) | (uint64_t)utf8;
        in_other_key(w, f, symbol, out);
    }
}

void ek_walk_in_object(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    bool complete = next_required(w, &f) == n->n;
    if (f.state != EK_OBJECT_KEY && f.state != EK_OBJECT_OTHER && f.state != EK_OBJECT_COLON &&
        ek_walk_in_space(w, f, symbol, out))
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
        /* without a maximum, counting ends where nothing depends on it */
        if (n->max < UINT32_MAX || f.v < n->min || f.v < (uint64_t)n->n) f.v++;
        ek_walk_value(w, item, symbol, f, out);
    }
}
