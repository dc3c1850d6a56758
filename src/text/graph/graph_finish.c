/* The last pass over a complete graph: removes unions within unions, finds depths, and checks that alternatives
 * differ. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/graph/graph.h"

/* --- unions --- */

enum { MAX_VISITS = 1000000 };

typedef struct flat {
    ek_graph *g;
    uint32_t *seen; /* per node: the union that reached it last */
    uint32_t mark;
    int32_t *todo; /* nodes to be visited, the next one last */
    int n_todo;
    int32_t *texts; /* TEXTS nodes found */
    int n_texts;
    int64_t n_visits;
} flat;

/* Leaves become links; texts are collected. */
static ek_err visit(flat *f, int32_t node)
{
    f->mark++;
    f->n_todo = f->n_texts = 0;
    f->todo[f->n_todo++] = node;
    f->seen[node] = f->mark;
    while (f->n_todo > 0) {
        int32_t at = f->todo[--f->n_todo];
        const ek_node *n = &f->g->nodes[at];
        if (f->n_visits++ > MAX_VISITS) return ek_fail(EK_ETOOLARGE, "the schema has too many unions of unions");
        if (n->kind == EK_NODE_TEXTS) f->texts[f->n_texts++] = at;
        else if (n->kind != EK_NODE_UNION) EK_TRY(ek_graph_link(f->g, at));
        if (n->kind != EK_NODE_UNION) continue;
        for (int i = n->n; i-- > 0;) { /* in order: the first alternative is visited first */
            int32_t to = f->g->links[n->first + i];
            if (f->seen[to] == f->mark) continue;
            f->seen[to] = f->mark;
            f->todo[f->n_todo++] = to;
        }
    }
    return EK_OK;
}

static ek_err join_texts(flat *f, bool gemma)
{
    ek_graph *g = f->g;
    int32_t joined = f->n_texts ? f->texts[0] : -1;
    if (f->n_texts > 1) {
        EK_TRY(ek_graph_node(g, EK_NODE_TEXTS, gemma, &joined));
        int32_t first = g->n_texts;
        for (int i = 0; i < f->n_texts; i++) {
            ek_node n = g->nodes[f->texts[i]];
            for (int k = 0; k < n.n; k++) {
                ek_graph_text t = g->texts[n.first + k];
                EK_TRY(ek_graph_text_add(g, "", 0, -1, 0));
                g->texts[g->n_texts - 1].at = t.at;
                g->texts[g->n_texts - 1].n = t.n;
            }
        }
        ek_graph_texts_sort(g, first);
        g->nodes[joined].first = first;
        g->nodes[joined].n = g->n_texts - first;
    }
    return joined >= 0 ? ek_graph_link(g, joined) : EK_OK;
}

/* New links follow all old ones, so that unions that were not visited yet find theirs. */
static ek_err flatten(ek_graph *g)
{
    int n = g->n_nodes;
    size_t size = 4 * (size_t)n;
    flat f = {.g = g, .seen = ek_alloc(size), .todo = ek_alloc(size), .texts = ek_alloc(size)};
    int32_t *first = ek_alloc(size), *count = ek_alloc(size);
    ek_err err = EK_OK;
    for (int i = 0; i < n && !err; i++) {
        if (g->nodes[i].kind != EK_NODE_UNION) continue;
        first[i] = g->n_links;
        err = visit(&f, i);
        if (!err) err = join_texts(&f, g->nodes[i].gemma);
        count[i] = g->n_links - first[i];
    }
    for (int i = 0; i < n && !err; i++)
        if (g->nodes[i].kind == EK_NODE_UNION) g->nodes[i].first = first[i], g->nodes[i].n = count[i];
    free(f.seen);
    free(f.todo);
    free(f.texts);
    free(first);
    free(count);
    return err;
}

/* A node for any value of the kind. */
static ek_err any_of_kind(ek_graph *g, int kind, bool gemma, int32_t *out)
{
    int32_t any = -1;
    if (kind == EK_NODE_OBJECT) return ek_graph_any_object(g, gemma ? EK_ANY_CALL : EK_ANY_JSON, out);
    if (kind == EK_NODE_ARRAY) EK_TRY(ek_graph_any(g, gemma ? EK_ANY_CALL : EK_ANY_JSON, &any));
    EK_TRY(ek_graph_node(g, (ek_node_kind)kind, gemma, out));
    g->nodes[*out].fraction = kind == EK_NODE_NUMBER ? 18 : 0;
    g->nodes[*out].rest = any;
    return EK_OK;
}

/* Joins all alternatives of the kind. By now each union has its own links. */
static ek_err join_kind(ek_graph *g, int32_t node, int kind)
{
    int32_t any, kept = 0;
    EK_TRY(any_of_kind(g, kind, g->nodes[node].gemma, &any));
    ek_node *n = &g->nodes[node];
    int32_t *links = g->links + n->first;
    bool first = true;
    for (int32_t i = 0; i < n->n; i++) {
        bool alike = g->nodes[links[i]].kind == kind;
        if (!alike || first) links[kept++] = alike ? any : links[i];
        if (alike) first = false;
    }
    n->n = kept;
    n->joined = true;
    return EK_OK;
}

static ek_err check_alike(ek_graph *g)
{
    static const char *const what[] = {"texts", "strings", "numbers", "objects", "lists"};
    int n_nodes = g->n_nodes;
    for (int i = 0; i < n_nodes; i++) {
        const ek_node *n = &g->nodes[i];
        int count[EK_NODE_UNION] = {0};
        if (n->kind != EK_NODE_UNION) continue;
        for (int k = 0; k < n->n; k++) count[g->nodes[g->links[n->first + k]].kind]++;
        for (int kind = 0; kind < EK_NODE_UNION; kind++) {
            if (count[kind] <= EK_GRAPH_ALIKE) continue;
            if (!g->nodes[i].loose)
                return ek_fail(EK_EINVAL, "anyOf has more than %d alternatives that are %s", EK_GRAPH_ALIKE,
                               what[kind]);
            EK_TRY(join_kind(g, i, kind));
        }
    }
    return EK_OK;
}

/* --- depths --- */

static int depth_at(const ek_graph *g, int32_t node)
{
    return node < 0 ? EK_GRAPH_NEVER : g->nodes[node].depth;
}

static int depth_of(const ek_graph *g, const ek_node *n)
{
    int depth = 0;
    switch ((ek_node_kind)n->kind) {
    case EK_NODE_TEXTS: return n->n > 0 ? 1 : EK_GRAPH_NEVER;
    case EK_NODE_STRING:
    case EK_NODE_NUMBER: return 1;
    case EK_NODE_OBJECT:
        for (int i = 0; i < n->n; i++) {
            const ek_graph_text *t = &g->texts[n->first + i];
            bool required = g->links[n->order + t->index] == t->index;
            if (required && depth_at(g, t->node) > depth) depth = depth_at(g, t->node);
        }
        break;
    case EK_NODE_ARRAY:
        for (int i = 0; i < n->n && (uint32_t)i < n->min; i++)
            if (depth_at(g, g->links[n->first + i]) > depth) depth = depth_at(g, g->links[n->first + i]);
        if (n->min > (uint32_t)n->n && depth_at(g, n->rest) > depth) depth = depth_at(g, n->rest);
        break;
    case EK_NODE_UNION:
        depth = EK_GRAPH_NEVER;
        for (int i = 0; i < n->n; i++)
            if (depth_at(g, g->links[n->first + i]) < depth) depth = depth_at(g, g->links[n->first + i]);
        return depth;
    }
    return depth >= EK_GRAPH_DEPTH ? EK_GRAPH_NEVER : depth + 1;
}

/* Depths fall from "never" to their final values. A round without a change is the last one; there are few rounds,
 * because no depth lies between EK_GRAPH_DEPTH and "never". */
static void find_depths(ek_graph *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = g->n_nodes; i-- > 0;) {
            int depth = depth_of(g, &g->nodes[i]);
            changed |= depth != g->nodes[i].depth;
            g->nodes[i].depth = (uint8_t)depth;
        }
    }
}

ek_err ek_graph_finish(ek_graph *g)
{
    EK_TRY(flatten(g));
    EK_TRY(check_alike(g));
    find_depths(g);
    return EK_OK;
}

bool ek_graph_can_end(const ek_graph *g, int32_t node)
{
    return g->nodes[node].depth < EK_GRAPH_DEPTH;
}

/* --- alternatives --- */

enum { LOOKS = 4 }; /* levels of objects to compare */

static bool apart(const ek_graph *g, int32_t a, int32_t b, int looks, size_t *budget);

/* The text of n that equals t, or NULL. */
static const ek_graph_text *find(const ek_graph *g, const ek_node *n, const ek_graph_text *t)
{
    uint32_t lo = 0, hi = (uint32_t)n->n;
    const ek_graph_text *of = g->texts + n->first;
    for (uint32_t i = 0; i < t->n && lo < hi; i++)
        ek_graph_narrow(g, of, &lo, &hi, i, (uint8_t)g->blob.data[t->at + i]);
    return lo < hi && of[lo].n == t->n ? &of[lo] : NULL;
}

static bool is_required(const ek_graph *g, const ek_node *n, const ek_graph_text *t)
{
    return g->links[n->order + t->index] == t->index;
}

/* Whether they differ by a property that a requires: b excludes it, or has other values for it. */
static bool differ_by_property(const ek_graph *g, const ek_node *a, const ek_node *b, int looks, size_t *budget)
{
    for (int i = 0; i < a->n; i++) {
        const ek_graph_text *t = &g->texts[a->first + i], *u;
        if (!is_required(g, a, t)) continue;
        u = find(g, b, t);
        if (!u && b->closed) return true;
        if (u && u->node < 0) return true;
        if (u && looks > 0 && apart(g, t->node, u->node, looks - 1, budget)) return true;
    }
    return false;
}

/* Whether a text of a may be a value of this kind, by its first character. */
static bool text_of_kind(const ek_graph *g, const ek_node *a, const ek_node *b)
{
    for (int i = 0; i < a->n; i++) {
        const ek_graph_text *t = &g->texts[a->first + i];
        char c = t->n ? g->blob.data[t->at] : 0;
        bool string = c == (b->gemma ? EK_GRAPH_QUOTE : '"'), number = c == '-' || (c >= '0' && c <= '9');
        if (b->kind == EK_NODE_STRING   ? string
            : b->kind == EK_NODE_NUMBER ? number
            : b->kind == EK_NODE_OBJECT ? c == '{'
            : b->kind == EK_NODE_ARRAY  ? c == '['
                                        : find(g, b, t) != NULL)
            return true;
    }
    return false;
}

static bool leaves_apart(const ek_graph *g, const ek_node *a, const ek_node *b, int looks, size_t *budget)
{
    size_t cost = 1 + (size_t)a->n + (size_t)b->n;
    if (*budget < cost) return false; /* too much to compare: they count as alike */
    *budget -= cost;
    if (a->kind == EK_NODE_TEXTS) return !text_of_kind(g, a, b);
    if (b->kind == EK_NODE_TEXTS) return !text_of_kind(g, b, a);
    if (a->kind != b->kind) return true;
    if (a->kind == EK_NODE_STRING) return a->max < b->min || b->max < a->min;
    if (a->kind == EK_NODE_NUMBER)
        return a->bounded && b->bounded && a->fraction == b->fraction && (a->hi < b->lo || b->hi < a->lo);
    if (a->kind == EK_NODE_OBJECT)
        return differ_by_property(g, a, b, looks, budget) || differ_by_property(g, b, a, looks, budget);
    return false;
}

static bool apart(const ek_graph *g, int32_t a, int32_t b, int looks, size_t *budget)
{
    const ek_node *x = &g->nodes[a], *y = &g->nodes[b];
    int nx = x->kind == EK_NODE_UNION ? x->n : 1, ny = y->kind == EK_NODE_UNION ? y->n : 1;
    for (int i = 0; i < nx; i++)
        for (int k = 0; k < ny; k++) {
            const ek_node *p = x->kind == EK_NODE_UNION ? &g->nodes[g->links[x->first + i]] : x;
            const ek_node *q = y->kind == EK_NODE_UNION ? &g->nodes[g->links[y->first + k]] : y;
            if (!leaves_apart(g, p, q, looks, budget)) return false;
        }
    return true;
}

bool ek_graph_apart(const ek_graph *g, int32_t a, int32_t b, size_t *budget)
{
    return apart(g, a, b, LOOKS, budget);
}
