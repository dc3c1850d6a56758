/* Compiles a JSON schema into a graph (graph.h). What the graph allows is valid under the schema; where a schema
 * allows more than one order or spelling, the graph keeps one: properties in their order, no other properties unless
 * the schema speaks of them, bounded digits. docs/STRUCTURED.md lists the keywords. Inside src/text. */
#ifndef EK_TEXT_SCHEMA_H
#define EK_TEXT_SCHEMA_H

#include <jansson.h>

#include "text/graph/graph.h"

typedef struct ek_schema_opts {
    bool gemma;       /* the notation: arguments of Gemma's calls instead of JSON */
    bool lenient;     /* what is not supported is left out instead of refused, so that more is allowed */
    ek_buf *ignored;  /* lenient: what was left out is added: "NAME#/properties/zip/pattern, …"; NULL: nobody asks */
    const char *name; /* of the tool, NULL: none; borrowed until ek_schema_finish */
} ek_schema_opts;

/* Compiles schema into g as node *root. Once per root; then ek_schema_finish. EINVAL with the place and the keyword:
 * "#/properties/zip: the keyword \"pattern\" is not supported"; ETOOLARGE. Lenient: ETOOLARGE alone, for a schema
 * that has to be left out as a whole, at the end too. Time and memory are linear in the schema and
 * in what its references and its anyOf beside other keywords repeat, up to the limits of graph.h. */
typedef struct ek_schema_work ek_schema_work;
ek_schema_work *ek_schema_begin(ek_graph *g);
ek_err ek_schema_compile(ek_schema_work *w, const json_t *schema, const ek_schema_opts *opts, int32_t *root);
/* A node of the graph that must be able to end, beside those of schemas. */
void ek_schema_add_root(ek_schema_work *w, int32_t node);
/* Says that a schema is left out as a whole. */
void ek_schema_leave_out(ek_schema_work *w, const ek_schema_opts *opts);
/* Finishes the graph (ek_graph_finish for each root) and checks that the alternatives of each oneOf differ. */
ek_err ek_schema_finish(ek_schema_work *w);
void ek_schema_end(ek_schema_work *w);

#endif
