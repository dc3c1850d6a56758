/* One symbol further: what each kind of frame does with it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar_state.h"

enum { MAX_INDENT = 24 }; /* blanks that may follow a newline between the parts of JSON */

void ek_walk_init(ek_walk *w)
{
    w->cap = EK_GRAMMAR_ARENA;
    w->f = ek_alloc(sizeof *w->f * (size_t)w->cap);
}

void ek_walk_fini(ek_walk *w)
{
    free(w->f);
}

int32_t ek_walk_add(ek_walk *w, ek_frame f)
{
    if (w->n == w->cap) return EK_NO_FRAME;
    w->f[w->n] = f;
    return w->n++;
}

static bool same(const ek_frame *a, const ek_frame *b)
{
    return a->up == b->up && a->node == b->node && a->state == b->state && a->a == b->a && a->v == b->v;
}

void ek_walk_put(const ek_walk *w, ek_tops *out, int32_t top)
{
    if (top == EK_NO_FRAME || out->n == EK_GRAMMAR_TOPS) return;
    for (int i = 0; i < out->n; i++)
        if (out->at[i] == top || same(&w->f[out->at[i]], &w->f[top])) return;
    out->at[out->n++] = top;
}

static const ek_node *node_of(const ek_walk *w, const ek_frame *f)
{
    return &w->g->graph.nodes[f->node];
}

/* Whether a value of `node` fits above a frame of this depth: it can then be completed. */
static bool fits(const ek_walk *w, int depth, int32_t node)
{
    return node >= 0 && depth + w->g->graph.nodes[node].depth <= EK_GRAPH_DEPTH;
}

/* --- texts: v = first of the range, its end, bytes read --- */

static uint64_t range(uint32_t lo, uint32_t hi, uint32_t len)
{
    return lo | (uint64_t)hi << 16 | (uint64_t)len << 32;
}

/* The byte by which texts continue; -1: none. */
static int text_byte(bool gemma, int symbol)
{
    if (gemma && symbol == EK_SYMBOL_MARK + EK_MARK_QUOTE) return (uint8_t)EK_GRAPH_QUOTE;
    return symbol < EK_SYMBOL_MARK && symbol != (uint8_t)EK_GRAPH_QUOTE ? symbol : -1;
}

static bool narrow(const ek_walk *w, int32_t first, uint64_t *v, int byte)
{
    uint32_t lo = (uint32_t)(*v & 0xffff), hi = (uint32_t)(*v >> 16 & 0xffff), len = (uint32_t)(*v >> 32);
    if (byte < 0) return false;
    ek_graph_narrow(&w->g->graph, w->g->graph.texts + first, &lo, &hi, len, (uint8_t)byte);
    *v = range(lo, hi, len + 1);
    return lo < hi;
}

static const ek_graph_text *first_text(const ek_walk *w, int32_t first, uint64_t v)
{
    return &w->g->graph.texts[first + (int32_t)(v & 0xffff)];
}

static bool in_texts(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = node_of(w, &f);
    bool complete = first_text(w, n->first, f.v)->n == f.v >> 32;
    if (!narrow(w, n->first, &f.v, text_byte(n->gemma, symbol))) return complete;
    ek_walk_put(w, out, ek_walk_add(w, f));
    return false;
}

/* --- white space between the parts of JSON: one blank, or a newline and blanks. The count stands in a >> 16 --- */

static bool in_space(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    uint32_t n = f.a >> 16;
    if (node_of(w, &f)->gemma || (symbol != ' ' && symbol != '\n' && symbol != '\t')) return false;
    if (n == 0 && symbol != '\t') n = symbol == '\n' ? 2 : 1;
    else if (n >= 2 && n < 2 + MAX_INDENT && symbol != '\n') n++;
    else return true;
    f.a = (f.a & 0xffff) | n << 16;
    ek_walk_put(w, out, ek_walk_add(w, f));
    return true;
}

/* --- objects: a = the index from which properties may come, white space; v by state --- */

static int index_of(const ek_frame *f)
{
    return (int)(f->a & 0xffff);
}

static int next_required(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = node_of(w, f);
    return w->g->graph.links[n->order + index_of(f)];
}

/* In their order: an optional one may be left out, a required one may not. */
static bool may_come(const ek_walk *w, const ek_frame *f, const ek_graph_text *t)
{
    return t->index >= index_of(f) && t->index <= next_required(w, f) && fits(w, f->depth, t->node);
}

static bool any_may_come(const ek_walk *w, const ek_frame *f, uint32_t lo, uint32_t hi)
{
    const ek_graph_text *t = w->g->graph.texts + node_of(w, f)->first;
    for (uint32_t i = lo; i < hi; i++)
        if (may_come(w, f, &t[i])) return true;
    return false;
}

/* Properties without a name of their own come when all required ones are there, so that these are not put off for
 * ever. */
static bool others_may_come(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = node_of(w, f);
    return fits(w, f->depth, n->rest) && next_required(w, f) == n->n;
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

static bool is_word(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '$';
}

/* Inside a key that is none of the named ones. v: the state of ek_utf8_walk, and 256 once it is not empty. */
static void in_other_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = node_of(w, &f);
    if (symbol >= EK_SYMBOL_MARK) return;
    if (n->gemma) {
        if (symbol == ':' && f.v) expect_value(w, f, n->rest, index_of(&f), out);
        else if (is_word(symbol)) put_state(w, f, EK_OBJECT_OTHER, 256, out);
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
    const char *s = w->g->graph.blob.data + first_text(w, n->first, v)->at;
    return n->gemma ? *s == EK_GRAPH_QUOTE : memchr(s, '\\', v >> 32) != NULL;
}

/* Inside a key that begins like a named one. It may still become another key, unless it is just about to end as the
 * named one would. */
static void in_key(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = node_of(w, &f);
    int byte = text_byte(n->gemma, symbol);
    uint32_t len = (uint32_t)(f.v >> 32);
    bool other = others_may_come(w, &f) && (len == 0 || !is_spelled(w, n, f.v));
    uint64_t v = f.v;
    if (byte < 0) return;
    int utf8 = (int)(f.a >> 24);
    if (narrow(w, n->first, &v, byte)) {
        const ek_graph_text *t = first_text(w, n->first, v);
        if (t->n == len + 1) {
            if (may_come(w, &f, t)) expect_value(w, f, t->node, t->index + 1, out);
            return;
        }
        if (n->gemma) other = other && is_word(byte);
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

static void in_object(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = node_of(w, &f);
    bool complete = next_required(w, &f) == n->n;
    if (f.state != EK_OBJECT_KEY && f.state != EK_OBJECT_OTHER && f.state != EK_OBJECT_COLON &&
        in_space(w, f, symbol, out))
        return;
    switch (f.state) {
    case EK_OBJECT_OPEN:
        if (symbol == '}' && complete) ek_walk_put(w, out, f.up);
        __attribute__((fallthrough));
    case EK_OBJECT_NEXT:
        f.a &= 0xffff;
        f.v = range(0, (uint32_t)n->n, 0);
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

static void in_array(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = node_of(w, &f);
    int32_t item = item_node(w, n, f.v);
    bool more = f.v < n->max && fits(w, f.depth, item);
    if (in_space(w, f, symbol, out)) return;
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

/* --- values --- */

static void begin_value(ek_walk *w, int32_t node, int symbol, ek_frame up, int32_t *up_at, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[node];
    if (!fits(w, up.depth, node)) return;
    ek_frame f = {.node = node, .depth = (uint16_t)(up.depth + 1)};
    bool opens = true;
    switch ((ek_node_kind)n->kind) {
    case EK_NODE_TEXTS:
        f.v = range(0, (uint32_t)n->n, 0);
        opens = narrow(w, n->first, &f.v, text_byte(n->gemma, symbol));
        break;
    case EK_NODE_STRING: opens = symbol == (n->gemma ? EK_SYMBOL_MARK + EK_MARK_QUOTE : '"'); break;
    case EK_NODE_NUMBER: opens = symbol == '-' || (symbol >= '0' && symbol <= '9'); break;
    case EK_NODE_OBJECT: opens = symbol == '{'; break;
    case EK_NODE_ARRAY: opens = symbol == '['; break;
    case EK_NODE_UNION: return;
    }
    if (!opens) return;
    if (*up_at == EK_NO_FRAME) *up_at = ek_walk_add(w, up);
    f.up = *up_at;
    if (f.up == EK_NO_FRAME) return;
    if (n->kind == EK_NODE_NUMBER) ek_walk_begin_number(w, f, symbol, out);
    else ek_walk_put(w, out, ek_walk_add(w, f));
}

void ek_walk_value(ek_walk *w, int32_t node, int symbol, ek_frame up, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[node];
    int32_t up_at = EK_NO_FRAME;
    if (n->kind != EK_NODE_UNION) {
        begin_value(w, node, symbol, up, &up_at, out);
        return;
    }
    for (int i = 0; i < n->n; i++) begin_value(w, w->g->graph.links[n->first + i], symbol, up, &up_at, out);
}

/* --- the reply --- */

static void put_at(ek_walk *w, ek_frame f, int state, ek_tops *out)
{
    f.state = (uint16_t)state;
    f.a = 0;
    f.v = state == EK_AT_NAME ? range(0, (uint32_t)w->g->n_names, 0) : 0;
    ek_walk_put(w, out, ek_walk_add(w, f));
}

static void in_body(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    if (symbol == EK_SYMBOL_MARK + EK_MARK_CALL_OPEN && w->g->calls) put_at(w, f, EK_AT_NAME, out);
    if (w->g->json < 0) return;
    f.state = EK_AT_END;
    ek_walk_value(w, w->g->json, symbol, f, out);
}

static void in_name(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    if (!narrow(w, w->g->first_name, &f.v, text_byte(false, symbol))) return;
    const ek_graph_text *t = first_text(w, w->g->first_name, f.v);
    if (t->n != f.v >> 32) {
        ek_walk_put(w, out, ek_walk_add(w, f));
        return;
    }
    f.state = EK_AT_CALL_END;
    f.v = 0;
    ek_walk_value(w, t->node, symbol, f, out); /* the name's last character is the brace */
}

static void in_reply(ek_walk *w, int32_t top, int symbol, ek_tops *out)
{
    static const char header[] = "thought\n";
    ek_frame f = w->f[top];
    int mark = symbol - EK_SYMBOL_MARK;
    bool ends = mark == EK_MARK_TURN_CLOSE || mark == EK_MARK_EOS;
    switch (f.state) {
    case EK_AT_START:
        if (mark == EK_MARK_CHANNEL_OPEN) put_at(w, f, EK_AT_HEADER, out);
        else in_body(w, f, symbol, out);
        break;
    case EK_AT_HEADER:
        if (symbol != header[f.a]) break;
        f.a++;
        if (!header[f.a]) put_at(w, f, EK_AT_THOUGHT, out);
        else ek_walk_put(w, out, ek_walk_add(w, f));
        break;
    case EK_AT_THOUGHT:
        if (mark == EK_MARK_CHANNEL_CLOSE) put_at(w, f, EK_AT_BODY, out);
        else if (mark < 0) ek_walk_put(w, out, top);
        break;
    case EK_AT_BODY: in_body(w, f, symbol, out); break;
    case EK_AT_FREE:
        if (mark == EK_MARK_CALL_OPEN) put_at(w, f, EK_AT_NAME, out);
        else ek_walk_put(w, out, top);
        break;
    case EK_AT_NAME: in_name(w, f, symbol, out); break;
    case EK_AT_CALL_END:
        if (mark == EK_MARK_CALL_CLOSE) put_at(w, f, w->g->free ? EK_AT_FREE : EK_AT_AFTER_CALL, out);
        break;
    case EK_AT_AFTER_CALL:
        if (mark == EK_MARK_CALL_OPEN && !w->g->one_call) put_at(w, f, EK_AT_NAME, out);
        else if (ends || mark == EK_MARK_RESPONSE_OPEN) put_at(w, f, EK_AT_DONE, out);
        break;
    case EK_AT_END:
        if (ends) put_at(w, f, EK_AT_DONE, out);
        break;
    default: ek_walk_put(w, out, top); break;
    }
}

void ek_walk_step(ek_walk *w, int32_t top, int symbol, ek_tops *out)
{
    for (;;) {
        ek_frame f = w->f[top];
        bool ended = false;
        if (f.node < 0) {
            in_reply(w, top, symbol, out);
            return;
        }
        switch ((ek_node_kind)node_of(w, &f)->kind) {
        case EK_NODE_TEXTS: ended = in_texts(w, f, symbol, out); break;
        case EK_NODE_STRING: ended = ek_walk_in_string(w, f, symbol, out); break;
        case EK_NODE_NUMBER: ended = ek_walk_in_number(w, f, symbol, out); break;
        case EK_NODE_OBJECT: in_object(w, f, symbol, out); break;
        case EK_NODE_ARRAY: in_array(w, f, symbol, out); break;
        case EK_NODE_UNION: break;
        }
        if (!ended) return;
        top = f.up;
    }
}

void ek_walk_steps(ek_walk *w, const ek_tops *from, int symbol, ek_tops *out)
{
    out->n = 0;
    for (int i = 0; i < from->n; i++) ek_walk_step(w, from->at[i], symbol, out);
}
