/* Making a grammar from the form of a reply, the schema and the tools. */
#include "text/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "text/grammar/vocab_data.h"
#include "text/json/json.h"
#include "text/schema/schema.h"

typedef struct maker {
    ek_grammar *g;
    ek_schema_work *work;
    const ek_reply_form *form;
    const json_t *tools;
    bool had_lenient, no_lenient; /* a schema may be left out; all such are */
} maker;

static bool is_strict(const json_t *tool)
{
    return json_is_true(ek_json_get(ek_json_get(tool, "function"), "strict"));
}

/* The texts of a list as the keys of an object; NULL without a list. */
static json_t *keys_of(const json_t *list)
{
    json_t *keys = list ? json_object() : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (ek_json_is_text(v)) json_object_set_new_nocheck(keys, json_string_value(v), json_true());
    }
    return keys;
}

/* Whether the request demands a form of the reply; otherwise calls are only kept well-formed, if possible. */
static bool is_asked(const ek_reply_form *form, const json_t *tools)
{
    if (form->text != EK_TEXT_FREE || form->calls_required || form->only) return true;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (is_strict(json_array_get(tools, i))) return true;
    return false;
}

/* Whether the reply parser accepts it as a function's name. */
static bool can_be_called(const char *s)
{
    for (const char *c = s; *c; c++)
        if ((uint8_t)*c <= ' ' || *c == 0x7f || strchr("\"'`<>()[]{}=,;\\", *c)) return false;
    return *s && s[strlen(s) - 1] != ':';
}

/* A schema that may be left out in parts, or as a whole if it exceeds a limit even then. */
static ek_err lenient_schema(maker *m, const json_t *schema, const char *name, int32_t *node)
{
    ek_schema_opts opts = {.gemma = name != NULL, .lenient = true, .ignored = &m->g->ignored, .name = name};
    m->had_lenient = true;
    if (!m->no_lenient) return ek_schema_compile(m->work, schema, &opts, node);
    ek_schema_leave_out(m->work, &opts);
    return name ? ek_graph_any_object(&m->g->graph, EK_ANY_CALL, node) : ek_graph_any(&m->g->graph, EK_ANY_JSON, node);
}

bool ek_grammar_reads(const json_t *tool, const ek_reply_form *form)
{
    return is_strict(tool) || form->calls_required ||
           ek_call_names_matter(ek_json_get(ek_json_get(tool, "function"), "parameters"));
}

/* Any arguments. Declared names can be written as declared, so that the model is not forced to use others. If all names
 * are plain, all tools share a node. */
static ek_err any_arguments(ek_graph *g, const json_t *schema, int32_t *node)
{
    enum { MOST_NODES = EK_GRAPH_NODES / 2, MOST_TEXTS = EK_GRAPH_TEXTS / 2, MOST_NAMES = 5000 };
    ek_call_names names;
    if (!ek_call_names_matter(schema)) return ek_graph_any_object(g, EK_ANY_PLAIN, node);
    ek_call_names_init(&names, schema, true);
    bool room = names.n <= MOST_NAMES && g->n_nodes < MOST_NODES && g->n_texts < MOST_TEXTS &&
                names.text.len + g->blob.len < EK_GRAPH_BYTES / 2;
    ek_err err = room ? ek_graph_call_object(g, &names, node) : ek_graph_any_object(g, EK_ANY_PLAIN, node);
    ek_call_names_fini(&names);
    return err;
}

static ek_err arguments(maker *m, const json_t *tool, const char *name, int32_t *node)
{
    const json_t *schema = ek_json_get(ek_json_get(tool, "function"), "parameters");
    ek_schema_opts opts = {.gemma = true};
    if (!is_strict(tool) && !m->form->calls_required) return any_arguments(&m->g->graph, schema, node);
    json_t *nothing = schema && !json_is_null(schema) ? NULL : json_pack("{s:s,s:{}}", "type", "object", "properties");
    if (nothing) schema = nothing;
    ek_err err = is_strict(tool) ? ek_schema_compile(m->work, schema, &opts, node)
                                 : lenient_schema(m, schema, name, node);
    json_decref(nothing);
    return err ? ek_fail_in(err, "the parameters of the tool \"%.60s\"", name) : EK_OK;
}

/* A tool that cannot be called is left out, unless the request demands it. */
static bool must_be_called(const maker *m, const json_t *tool)
{
    return is_strict(tool) || m->form->only;
}

static ek_err add_names(maker *m)
{
    ek_graph *graph = &m->g->graph;
    size_t n = json_array_size(m->tools);
    int32_t *node = ek_alloc(sizeof *node * (n + 1));
    json_t *only = keys_of(m->form->only);
    ek_err err = EK_OK;
    for (size_t i = 0; i < n && !err; i++) { /* the texts of all schemas come before those of the names */
        const json_t *tool = json_array_get(m->tools, i);
        const char *name = ek_json_get_text(ek_json_get(tool, "function"), "name", NULL);
        node[i] = -1;
        if (!name || (only && !json_object_get(only, name))) continue;
        if (!can_be_called(name) && !must_be_called(m, tool)) continue;
        if (!can_be_called(name)) err = ek_fail(EK_EINVAL, "a tool named \"%.60s\" cannot be called", name);
        else err = arguments(m, tool, name, &node[i]);
    }
    json_decref(only);
    m->g->first_name = graph->n_texts;
    for (size_t i = 0; i < n && !err; i++) {
        if (node[i] < 0) continue;
        ek_buf b = {0};
        ek_buf_fmt(&b, "call:%s{",
                   ek_json_get_text(ek_json_get(json_array_get(m->tools, i), "function"), "name", NULL));
        err = ek_graph_text_add(graph, b.data, b.len, node[i], (int32_t)i);
        ek_buf_fini(&b);
    }
    free(node);
    if (err) return err;
    ek_graph_texts_sort(graph, m->g->first_name);
    m->g->n_names = graph->n_texts - m->g->first_name;
    m->g->calls = m->g->n_names > 0;
    if (m->form->calls_required && !m->g->calls)
        return ek_fail(EK_EINVAL, "a call is required, but no tool may be called");
    return EK_OK;
}

static ek_err add_choices(maker *m)
{
    ek_graph *g = &m->g->graph;
    EK_TRY(ek_graph_node(g, EK_NODE_TEXTS, false, &m->g->json));
    int32_t first = g->n_texts;
    for (size_t i = 0; i < json_array_size(m->form->schema); i++) {
        const json_t *v = json_array_get(m->form->schema, i);
        if (ek_json_is_text(v) && json_string_length(v) > 0)
            EK_TRY(ek_graph_text_add(g, json_string_value(v), json_string_length(v), -1, 0));
    }
    ek_graph_texts_sort(g, first);
    g->nodes[m->g->json].first = first;
    g->nodes[m->g->json].n = g->n_texts - first;
    ek_schema_add_root(m->work, m->g->json);
    return EK_OK;
}

static ek_err add_text(maker *m)
{
    ek_schema_opts opts = {0};
    m->g->json = -1;
    if (m->form->calls_required) return EK_OK;
    if (m->form->text == EK_TEXT_JSON_OBJECT) return ek_graph_any_object(&m->g->graph, EK_ANY_JSON, &m->g->json);
    if (m->form->text == EK_TEXT_CHOICE) return add_choices(m);
    if (m->form->text == EK_TEXT_JSON_SCHEMA && m->form->lenient)
        return lenient_schema(m, m->form->schema, NULL, &m->g->json);
    if (m->form->text == EK_TEXT_JSON_SCHEMA) return ek_schema_compile(m->work, m->form->schema, &opts, &m->g->json);
    m->g->free = true;
    return EK_OK;
}

static bool is_object(const ek_graph *g, int32_t node)
{
    const ek_node *n = &g->nodes[node];
    for (int i = 0; n->kind == EK_NODE_UNION && i < n->n; i++)
        if (g->nodes[g->links[n->first + i]].kind == EK_NODE_OBJECT) return true;
    return n->kind == EK_NODE_OBJECT;
}

static ek_err make(maker *m)
{
    EK_TRY(add_text(m));
    EK_TRY(add_names(m));
    EK_TRY(ek_schema_finish(m->work));
    for (int i = 0; i < m->g->n_names; i++) {
        const ek_graph_text *t = &m->g->graph.texts[m->g->first_name + i];
        if (is_object(&m->g->graph, t->node)) continue;
        const json_t *tool = json_array_get(m->tools, (size_t)t->index);
        if (!is_strict(tool)) return ek_fail(EK_ETOOLARGE, "the parameters of a tool must be an object");
        return ek_fail(EK_EINVAL, "the parameters of the tool \"%.*s\" must be an object", (int)t->n - 6,
                       m->g->graph.blob.data + t->at + 5);
    }
    return EK_OK;
}

/* Refuses a reply that cannot end, or a call that cannot be written. */
static ek_err check_marks(const ek_vocab *v, const ek_grammar *g)
{
    const int32_t *id = v->marks.id;
    if (id[EK_MARK_TURN_CLOSE] < 0 && id[EK_MARK_EOS] < 0)
        return ek_fail(EK_EUNSUPPORTED, "structured output needs a tokenizer with <turn|> or <eos>");
    if (g->calls && (id[EK_MARK_CALL_OPEN] < 0 || id[EK_MARK_CALL_CLOSE] < 0 || id[EK_MARK_QUOTE] < 0))
        return ek_fail(EK_EUNSUPPORTED, "tool calls need a tokenizer with <|tool_call>, <tool_call|> and <|\"|>");
    return EK_OK;
}

static void add_pattern(ek_sha256_state *s, const ek_pattern *p)
{
    const ek_regex *r = p->regex;
    uint32_t n[] = {p->min, p->max, (uint32_t)r->n_states, (uint32_t)r->n_edges};
    ek_sha256_add(s, n, sizeof n);
    ek_sha256_add(s, r->first, sizeof *r->first * ((size_t)r->n_states + 1));
    ek_sha256_add(s, r->edge, sizeof *r->edge * (size_t)r->n_edges);
    ek_sha256_add(s, r->accepts, sizeof *r->accepts * (size_t)r->n_states);
}

/* Hashes everything that rows depend on; derived values (depths, nearest matches) are left out. */
static void identify(ek_grammar *g)
{
    const ek_graph *x = &g->graph;
    ek_sha256_state s;
    ek_sha256_init(&s);
    int64_t head[] = {g->json,    g->free,    g->calls,   g->one_call,   g->first_name,       g->n_names,
                      x->n_nodes, x->n_links, x->n_texts, x->n_patterns, (int64_t)x->blob.len};
    ek_sha256_add(&s, head, sizeof head);
    for (int i = 0; i < x->n_nodes; i++) {
        const ek_node *n = &x->nodes[i];
        int64_t node[] = {n->kind,    n->gemma, n->fraction, n->bounded,   n->closed, n->first, n->n,  n->rest,
                          n->pattern, n->order, n->wide,     n->any_order, n->min,    n->max,   n->lo, n->hi};
        ek_sha256_add(&s, node, sizeof node);
        if (n->depth != EK_GRAPH_NEVER && n->depth > g->max_depth) g->max_depth = n->depth;
    }
    ek_sha256_add(&s, x->links, sizeof *x->links * (size_t)x->n_links);
    ek_sha256_add(&s, x->texts, sizeof *x->texts * (size_t)x->n_texts);
    ek_sha256_add(&s, x->blob.data, x->blob.len);
    for (int i = 0; i < x->n_patterns; i++) add_pattern(&s, x->patterns[i]);
    ek_sha256_end(&s, g->id);
}

static ek_err try_to_make(ek_grammar **out, const ek_reply_form *form, const json_t *tools, bool one_call,
                          bool *no_lenient)
{
    ek_grammar *g = *out = ek_alloc(sizeof *g);
    g->one_call = one_call;
    maker m = {.g = g, .work = ek_schema_begin(&g->graph), .form = form, .tools = tools, .no_lenient = *no_lenient};
    ek_err err = make(&m);
    ek_schema_end(m.work);
    *no_lenient = !*no_lenient && m.had_lenient && (err == EK_ETOOLARGE || err == EK_EINVAL);
    return err;
}

ek_err ek_grammar_open(ek_grammar **out, ek_vocab *v, const ek_reply_form *form, const json_t *tools, bool one_call)
{
    *out = NULL;
    bool asked = is_asked(form, tools), no_lenient = false;
    if (!asked && json_array_size(tools) == 0) return EK_OK;
    ek_grammar *g;
    ek_err err = try_to_make(&g, form, tools, one_call, &no_lenient);
    if (no_lenient) {
        ek_grammar_close(g);
        err = try_to_make(&g, form, tools, one_call, &no_lenient);
    }
    if (!err) err = check_marks(v, g);
    if (!err && !(g->free && !g->calls)) err = ek_vocab_ready(v);
    if (err || (g->free && !g->calls)) {
        ek_grammar_close(g);
        return asked || err == EK_ENOMEM ? err : EK_OK;
    }
    identify(g);
    *out = g;
    return EK_OK;
}

const char *ek_grammar_ignored(const ek_grammar *g)
{
    return g ? ek_buf_text(&g->ignored) : "";
}

void ek_grammar_close(ek_grammar *g)
{
    if (!g) return;
    ek_buf_fini(&g->ignored);
    ek_graph_fini(&g->graph);
    free(g);
}

size_t ek_grammar_bytes(const ek_grammar *g)
{
    if (!g) return 0;
    const ek_graph *x = &g->graph;
    return sizeof *g + g->ignored.cap + x->blob.cap + x->pattern_bytes + sizeof *x->patterns * (size_t)x->cap_patterns +
           sizeof *x->nodes * (size_t)x->cap_nodes + sizeof *x->links * (size_t)x->cap_links +
           sizeof *x->texts * (size_t)x->cap_texts;
}
