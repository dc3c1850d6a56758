/* One step by a symbol, per kind of frame. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/grammar_state.h"

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

/* --- texts: v = first of the range, its end, bytes read --- */

/* The byte with which texts continue; -1: none. */
int ek_text_byte(bool gemma, int symbol)
{
    if (gemma && symbol == EK_SYMBOL_MARK + EK_MARK_QUOTE) return (uint8_t)EK_GRAPH_QUOTE;
    return symbol < EK_SYMBOL_MARK && symbol != (uint8_t)EK_GRAPH_QUOTE ? symbol : -1;
}

bool ek_text_narrow(const ek_walk *w, int32_t first, uint64_t *v, int byte)
{
    uint32_t lo = (uint32_t)(*v & 0xffff), hi = (uint32_t)(*v >> 16 & 0xffff), len = (uint32_t)(*v >> 32);
    if (byte < 0) return false;
    ek_graph_narrow(&w->g->graph, w->g->graph.texts + first, &lo, &hi, len, (uint8_t)byte);
    *v = ek_text_range(lo, hi, len + 1);
    return lo < hi;
}

const ek_graph_text *ek_text_first(const ek_walk *w, int32_t first, uint64_t v)
{
    return &w->g->graph.texts[first + (int32_t)(v & 0xffff)];
}

static bool in_texts(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = ek_walk_node(w, &f);
    bool complete = ek_text_first(w, n->first, f.v)->n == f.v >> 32;
    if (!ek_text_narrow(w, n->first, &f.v, ek_text_byte(n->gemma, symbol))) return complete;
    ek_walk_put(w, out, ek_walk_add(w, f));
    return false;
}

/* --- white space between the parts of JSON: one blank, or a newline and blanks. The count is a >> 16 --- */

bool ek_walk_in_space(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    uint32_t n = f.a >> 16;
    if (ek_walk_node(w, &f)->gemma || (symbol != ' ' && symbol != '\n' && symbol != '\t')) return false;
    if (n == 0 && symbol != '\t') n = symbol == '\n' ? 2 : 1;
    else if (n >= 2 && n < 2 + MAX_INDENT && symbol != '\n') n++;
    else return true;
    f.a = (f.a & 0xffff) | n << 16;
    ek_walk_put(w, out, ek_walk_add(w, f));
    return true;
}

/* --- values --- */

static void begin_value(ek_walk *w, int32_t node, int symbol, ek_frame up, int32_t *up_at, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[node];
    if (!ek_walk_fits(w, up.depth, node)) return;
    ek_frame f = {.node = node, .depth = (uint16_t)(up.depth + 1)};
    bool opens = true;
    switch ((ek_node_kind)n->kind) {
    case EK_NODE_TEXTS:
        f.v = ek_text_range(0, (uint32_t)n->n, 0);
        opens = ek_text_narrow(w, n->first, &f.v, ek_text_byte(n->gemma, symbol));
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
    f.v = state == EK_AT_NAME ? ek_text_range(0, (uint32_t)w->g->n_names, 0) : 0;
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
    if (!ek_text_narrow(w, w->g->first_name, &f.v, ek_text_byte(false, symbol))) return;
    const ek_graph_text *t = ek_text_first(w, w->g->first_name, f.v);
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
        switch ((ek_node_kind)ek_walk_node(w, &f)->kind) {
        case EK_NODE_TEXTS: ended = in_texts(w, f, symbol, out); break;
        case EK_NODE_STRING: ended = ek_walk_in_string(w, f, symbol, out); break;
        case EK_NODE_NUMBER: ended = ek_walk_in_number(w, f, symbol, out); break;
        case EK_NODE_OBJECT: ek_walk_in_object(w, f, symbol, out); break;
        case EK_NODE_ARRAY: ek_walk_in_array(w, f, symbol, out); break;
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
