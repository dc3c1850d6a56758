/* Compiles a JSON schema into a graph (graph.h). Everything that the graph allows is valid under the schema. If the
 * schema allows several orders or spellings, the graph keeps one: properties in order, other properties only if the
 * schema mentions them, bounded digits. docs/STRUCTURED.md lists the keywords. Inside src/text. */
#ifndef EK_TEXT_SCHEMA_H
#define EK_TEXT_SCHEMA_H

#include <jansson.h>

#include "text/graph/graph.h"

typedef struct ek_schema_opts {
    bool gemma;       /* true: the arguments of Gemma's calls; false: JSON */
    bool lenient;     /* unsupported parts are left out instead of refused, so more is allowed */
    ek_buf *ignored;  /* lenient: receives the left-out parts: "NAME#/properties/zip/pattern, …"; NULL: not needed */
    const char *name; /* of the tool; NULL: none; borrowed until ek_schema_finish */
} ek_schema_opts;

/* Compiles schema into g as node *root. Call it once per root, then ek_schema_finish. EINVAL with the place and the
 * keyword: "#/properties/zip: the keyword \"pattern\" is not supported"; ETOOLARGE. If lenient, the only error is
 * ETOOLARGE: the schema has to be left out as a whole. Time and memory are linear in the schema and in the repetitions
 * by references and by anyOf beside other keywords, up to the limits of graph.h. */
typedef struct ek_schema_work ek_schema_work;
ek_schema_work *ek_schema_begin(ek_graph *g);
ek_err ek_schema_compile(ek_schema_work *w, const json_t *schema, const ek_schema_opts *opts, int32_t *root);
/* Adds a node of the graph that must be able to end, besides those of schemas. */
void ek_schema_add_root(ek_schema_work *w, int32_t node);
/* Notes that a schema is left out as a whole. */
void ek_schema_leave_out(ek_schema_work *w, const ek_schema_opts *opts);
/* Finishes the graph (ek_graph_finish for each root) and checks that the alternatives of each oneOf differ. */
ek_err ek_schema_finish(ek_schema_work *w);
void ek_schema_end(ek_schema_work *w);

#endif
