/* The form of a value as a graph: a JSON schema compiled for the automaton of grammar.h. Nodes refer to each other by
 * number, so schemas may be recursive. A graph holds values in two notations: JSON, and the arguments of Gemma's tool
 * calls. Immutable once it is finished. Inside src/text. */
#ifndef EK_TEXT_GRAPH_H
#define EK_TEXT_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/regex/regex.h"
#include "text/reply/call_args.h"

enum {
    EK_GRAPH_NODES = 20000, /* maximum of each kind of part */
    EK_GRAPH_LINKS = 200000,
    EK_GRAPH_TEXTS = 60000,   /* also per node, whose counts have 16 bits */
    EK_GRAPH_BYTES = 4 << 20, /* maximum bytes of texts; of patterns */
    EK_GRAPH_ALIKE = 16,      /* alternatives with the same first character */
    EK_GRAPH_DEPTH = 64,      /* the reply itself and nested values */
    EK_GRAPH_NEVER = 255      /* ek_node.depth of a node that cannot end */
};

/* Any value: in JSON; in calls with plain names; in calls with any names. */
typedef enum ek_any { EK_ANY_JSON, EK_ANY_PLAIN, EK_ANY_CALL } ek_any;

/* The token <|"|> in texts; not a byte of UTF-8. */
#define EK_GRAPH_QUOTE '\xff'

typedef enum ek_node_kind {
    EK_NODE_TEXTS,  /* one of a list of texts: enum, const, true, false, null */
    EK_NODE_STRING, /* min to max characters; pattern */
    EK_NODE_NUMBER,
    EK_NODE_OBJECT,
    EK_NODE_ARRAY, /* min to max items */
    EK_NODE_UNION  /* never the target of a union's link after ek_graph_finish */
} ek_node_kind;

typedef struct ek_node {
    uint8_t kind;
    bool gemma;       /* the notation */
    uint8_t depth;    /* nesting of its smallest value, itself included */
    uint8_t fraction; /* NUMBER: maximum digits after the point; 0: an integer */
    bool bounded;     /* NUMBER: lo <= value * 10^fraction <= hi, without exponent */
    bool closed;      /* OBJECT: the schema itself excludes other properties */
    bool wide;        /* OBJECT, calls: unknown names may be written in every way that a parser of calls reads */
    bool any_order;   /* OBJECT: properties come in any order and any number of times */
    bool loose;  /* UNION: alternatives that begin alike may be joined to one that allows more, if there are too many */
    bool joined; /* UNION: they were joined */
    int32_t first,
        n;        /* number: TEXTS, OBJECT: texts, ascending by bytes; UNION: links; ARRAY: links of the first items */
    int32_t rest; /* ARRAY: the node of further items; OBJECT: of other properties; -1: none allowed */
    int32_t pattern; /* STRING: index of a pattern; -1: none */
    int32_t order;   /* OBJECT: links [order, order + named]: for i, the first required property from i on, or named */
    int32_t named;   /* OBJECT: number of properties; a property has a text per spelling */
    uint32_t min, max;
    int64_t lo, hi;
} ek_node;

/* A text, or a property's key with its delimiters and the colon. */
typedef struct ek_graph_text {
    uint32_t at, n; /* in blob */
    int32_t node;   /* of a property's value; -1: the property is forbidden */
    int32_t index;  /* of a property: its index in writing order */
} ek_graph_text;

typedef struct ek_graph {
    ek_node *nodes;
    int32_t *links;
    ek_graph_text *texts;
    ek_buf blob;
    ek_pattern **patterns;
    size_t pattern_bytes;
    int n_patterns, cap_patterns;
    int n_nodes, cap_nodes, n_links, cap_links, n_texts, cap_texts;
    int32_t any[3];        /* the node of any value, per ek_any: 0, or 1 + its number once it exists */
    int32_t any_object[3]; /* the same for any object */
} ek_graph;

void ek_graph_fini(ek_graph *g);

/* The adders take memory only up to the limits above; ETOOLARGE names the reached limit. */
ek_err ek_graph_node(ek_graph *g, ek_node_kind kind, bool gemma, int32_t *out);
ek_err ek_graph_link(ek_graph *g, int32_t node);
ek_err ek_graph_text_add(ek_graph *g, const char *s, size_t n, int32_t node, int32_t index);
/* Takes over p, also after an error. */
ek_err ek_graph_pattern_add(ek_graph *g, ek_pattern *p, int32_t *out);
/* Sorts the texts [first, n_texts) and removes duplicates. */
void ek_graph_texts_sort(ek_graph *g, int32_t first);
/* Any value, any object; recursive, limited by EK_GRAPH_DEPTH. */
ek_err ek_graph_any(ek_graph *g, ek_any kind, int32_t *out);
ek_err ek_graph_any_object(ek_graph *g, ek_any kind, int32_t *out);
/* Any object of a call; in it, and in nested objects, these names may be written bare. */
ek_err ek_graph_call_object(ek_graph *g, const ek_call_names *names, int32_t *out);
/* Resolves unions of unions, joins their texts, and computes depths. EINVAL if more than EK_GRAPH_ALIKE alternatives
 * begin alike. */
ek_err ek_graph_finish(ek_graph *g);
/* Whether a value of the node can end. Call after finish. */
bool ek_graph_can_end(const ek_graph *g, int32_t node);
/* Whether no value fits both a and b, as far as types, texts and required properties show; budget: remaining parts to
 * look at. Call after finish. */
bool ek_graph_apart(const ek_graph *g, int32_t a, int32_t b, size_t *budget);

/* Narrows [*lo, *hi), texts relative to t that begin alike with `len` bytes, to those whose next byte is c. */
void ek_graph_narrow(const ek_graph *g, const ek_graph_text *t, uint32_t *lo, uint32_t *hi, uint32_t len, uint8_t c);

#endif
