#include "text/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void ek_graph_fini(ek_graph *g)
{
    free(g->nodes);
    free(g->links);
    free(g->texts);
    ek_buf_fini(&g->blob);
    for (int i = 0; i < g->n_patterns; i++) ek_pattern_close(g->patterns[i]);
    free(g->patterns);
    *g = (ek_graph){0};
}

static ek_err room(void **p, size_t size, int n, int *cap, int max, const char *what)
{
    if (n == max) return ek_fail(EK_ETOOLARGE, "the schema has more than %d %s", max, what);
    if (n < *cap) return EK_OK;
    *cap = *cap ? 2 * *cap : 16;
    *p = ek_realloc(*p, (size_t)*cap * size);
    return EK_OK;
}

ek_err ek_graph_node(ek_graph *g, ek_node_kind kind, bool gemma, int32_t *out)
{
    void *p = g->nodes;
    EK_TRY(room(&p, sizeof *g->nodes, g->n_nodes, &g->cap_nodes, EK_GRAPH_NODES, "parts"));
    g->nodes = p;
    *out = g->n_nodes;
    g->nodes[g->n_nodes++] = (ek_node){
        .kind = (uint8_t)kind, .gemma = gemma, .depth = EK_GRAPH_NEVER, .rest = -1, .pattern = -1, .max = UINT32_MAX};
    return EK_OK;
}

ek_err ek_graph_link(ek_graph *g, int32_t node)
{
    void *p = g->links;
    EK_TRY(room(&p, sizeof *g->links, g->n_links, &g->cap_links, EK_GRAPH_LINKS, "alternatives"));
    g->links = p;
    g->links[g->n_links++] = node;
    return EK_OK;
}

ek_err ek_graph_text_add(ek_graph *g, const char *s, size_t n, int32_t node, int32_t index)
{
    void *p = g->texts;
    EK_TRY(room(&p, sizeof *g->texts, g->n_texts, &g->cap_texts, EK_GRAPH_TEXTS, "names and values"));
    g->texts = p;
    if (n > EK_GRAPH_BYTES - g->blob.len)
        return ek_fail(EK_ETOOLARGE, "the schema has more than %d bytes of names and values", EK_GRAPH_BYTES);
    g->texts[g->n_texts++] = (ek_graph_text){(uint32_t)g->blob.len, (uint32_t)n, node, index};
    ek_buf_add(&g->blob, s, n);
    return EK_OK;
}

ek_err ek_graph_pattern_add(ek_graph *g, ek_pattern *p, int32_t *out)
{
    void *all = g->patterns;
    ek_err err = room(&all, sizeof(ek_pattern *), g->n_patterns, &g->cap_patterns, EK_GRAPH_NODES, "patterns");
    g->patterns = all;
    if (!err && ek_pattern_bytes(p) > EK_GRAPH_BYTES - g->pattern_bytes)
        err = ek_fail(EK_ETOOLARGE, "the patterns of the schema take more than %d bytes", EK_GRAPH_BYTES);
    if (err) {
        ek_pattern_close(p);
        return err;
    }
    g->pattern_bytes += ek_pattern_bytes(p);
    *out = g->n_patterns;
    g->patterns[g->n_patterns++] = p;
    return EK_OK;
}

static int compare(const void *x, const void *y, void *arg)
{
    const ek_graph_text *a = x, *b = y;
    const char *blob = arg;
    int c = memcmp(blob + a->at, blob + b->at, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

/* Merge sort, because not every C library has qsort_r, and qsort may be quadratic. */
static void sort(ek_graph_text *t, ek_graph_text *spare, int n, char *blob)
{
    if (n < 2) return;
    int half = n / 2, i = 0, j = half, k = 0;
    sort(t, spare, half, blob);
    sort(t + half, spare, n - half, blob);
    while (i < half || j < n) {
        bool left = j == n || (i < half && compare(&t[i], &t[j], blob) <= 0);
        spare[k++] = left ? t[i++] : t[j++];
    }
    memcpy(t, spare, sizeof *t * (size_t)n);
}

void ek_graph_texts_sort(ek_graph *g, int32_t first)
{
    int n = g->n_texts - first, kept = 0;
    if (n < 2) return;
    ek_graph_text *t = g->texts + first, *spare = ek_alloc(sizeof *spare * (size_t)n);
    sort(t, spare, n, g->blob.data);
    free(spare);
    for (int i = 0; i < n; i++)
        if (kept == 0 || compare(&t[kept - 1], &t[i], g->blob.data)) t[kept++] = t[i];
    g->n_texts = first + kept;
}

void ek_graph_narrow(const ek_graph *g, const ek_graph_text *t, uint32_t *lo, uint32_t *hi, uint32_t len, uint8_t c)
{
    uint32_t from = *lo, to = *hi, end = to;
    while (from < to) { /* the first text whose byte is at least c; a text that ends here comes first */
        uint32_t mid = from + (to - from) / 2;
        if (t[mid].n > len && (uint8_t)g->blob.data[t[mid].at + len] >= c) to = mid;
        else from = mid + 1;
    }
    *lo = from;
    for (to = end; from < to;) {
        uint32_t mid = from + (to - from) / 2;
        if ((uint8_t)g->blob.data[t[mid].at + len] > c) to = mid;
        else from = mid + 1;
    }
    *hi = from;
}

/* --- any value --- */

static ek_err texts_node(ek_graph *g, bool gemma, const char *const *text, int n, int32_t *out)
{
    EK_TRY(ek_graph_node(g, EK_NODE_TEXTS, gemma, out));
    int32_t first = g->n_texts;
    for (int i = 0; i < n; i++) EK_TRY(ek_graph_text_add(g, text[i], strlen(text[i]), -1, 0));
    ek_graph_texts_sort(g, first);
    g->nodes[*out].first = first;
    g->nodes[*out].n = g->n_texts - first;
    return EK_OK;
}

/* Links of a union of all values, which contains these objects. */
static ek_err any_value(ek_graph *g, bool gemma, int32_t object, int32_t out)
{
    static const char *const words[] = {"true", "false", "null"};
    int32_t part[5] = {[3] = object};
    EK_TRY(ek_graph_node(g, EK_NODE_STRING, gemma, &part[0]));
    EK_TRY(ek_graph_node(g, EK_NODE_NUMBER, gemma, &part[1]));
    g->nodes[part[1]].fraction = 18;
    EK_TRY(texts_node(g, gemma, words, 3, &part[2]));
    EK_TRY(ek_graph_node(g, EK_NODE_ARRAY, gemma, &part[4]));
    g->nodes[part[4]].rest = out;
    int32_t first = g->n_links;
    for (int i = 0; i < 5; i++) EK_TRY(ek_graph_link(g, part[i]));
    g->nodes[out].first = first;
    g->nodes[out].n = 5;
    return EK_OK;
}

ek_err ek_graph_any(ek_graph *g, ek_any kind, int32_t *out)
{
    if (g->any[kind]) {
        *out = g->any[kind] - 1;
        return EK_OK;
    }
    int32_t object;
    EK_TRY(ek_graph_node(g, EK_NODE_UNION, kind != EK_ANY_JSON, out));
    g->any[kind] = *out + 1;
    EK_TRY(ek_graph_any_object(g, kind, &object));
    return any_value(g, kind != EK_ANY_JSON, object, *out);
}

ek_err ek_graph_any_object(ek_graph *g, ek_any kind, int32_t *out)
{
    if (g->any_object[kind]) {
        *out = g->any_object[kind] - 1;
        return EK_OK;
    }
    int32_t any;
    EK_TRY(ek_graph_node(g, EK_NODE_OBJECT, kind != EK_ANY_JSON, out));
    g->any_object[kind] = *out + 1;
    g->nodes[*out].wide = kind == EK_ANY_CALL;
    g->nodes[*out].first = g->n_texts;
    g->nodes[*out].order = g->n_links;
    EK_TRY(ek_graph_link(g, 0));
    EK_TRY(ek_graph_any(g, kind, &any));
    g->nodes[*out].rest = any;
    return EK_OK;
}

ek_err ek_graph_call_object(ek_graph *g, const ek_call_names *names, int32_t *out)
{
    int32_t any;
    EK_TRY(ek_graph_node(g, EK_NODE_OBJECT, true, out));
    EK_TRY(ek_graph_node(g, EK_NODE_UNION, true, &any));
    int32_t first = g->n_texts, order = g->n_links;
    for (int i = 0; i < names->n; i++)
        EK_TRY(ek_graph_text_add(g, names->text.data + names->name[i].at, names->name[i].n, any, i));
    for (int i = 0; i <= names->n; i++) EK_TRY(ek_graph_link(g, names->n));
    ek_node *n = &g->nodes[*out];
    n->first = first;
    n->n = n->named = names->n;
    n->order = order;
    n->rest = any;
    n->wide = n->any_order = true;
    return any_value(g, true, *out, any);
}
