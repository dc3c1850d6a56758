/* The internals of the schema compiler. Inside src/text/schema/schema*.c. */
#ifndef EK_TEXT_SCHEMA_WORK_H
#define EK_TEXT_SCHEMA_WORK_H

#include "text/schema/schema.h"
#include "text/tokenizer/tokenizer.h"

/* Marks a schema, until it is compiled, of which a part was left out that could mention any property and type. */
#define EK_SCHEMA_LOOSE "\x01loose"

enum {
    EK_SCHEMA_MERGES = 60,     /* maximum depth to which two schemas of a place are merged if one may be left out */
    EK_SCHEMA_PATH_SHOWN = 120 /* bytes of a path in a message */
};

enum {
    EK_TYPE_NULL = 1,
    EK_TYPE_BOOLEAN = 2,
    EK_TYPE_INTEGER = 4,
    EK_TYPE_NUMBER = 8,
    EK_TYPE_STRING = 16,
    EK_TYPE_ARRAY = 32,
    EK_TYPE_OBJECT = 64
};

/* A schema that was the target of $ref, and its node. */
typedef struct ek_schema_ref {
    const json_t *schema;
    int32_t node;
} ek_schema_ref;

typedef struct ek_schema_one_of {
    int32_t *node;
    int n;
    char *path;
} ek_schema_one_of;

typedef struct ek_schema_union {
    int32_t node;
    char *path, *name; /* path: its place; name: its tool */
    const char *keyword;
} ek_schema_union;

struct ek_schema_work {
    ek_graph *g;
    const json_t *doc; /* the document that references point into */
    ek_schema_opts opts;
    ek_buf path; /* the compiler's position, as a JSON pointer */
    int depth;
    size_t work;         /* compiled schemas and copied keywords */
    ek_schema_ref *refs; /* hash table with open addressing, by address; for the present doc and notation */
    uint32_t n_refs, ref_mask;
    int64_t regex_left; /* steps left for patterns, over all schemas */
    json_t *patterns;   /* an object: numbers of the graph's patterns by their source */
    json_t *made;       /* a list of merged schemas, from which nodes in work borrow */
    json_t *noted;      /* an object: left-out keywords that were noted */
    ek_ids roots;
    bool *lenient;           /* per root */
    ek_schema_union *unions; /* of lenient schemas */
    int n_unions, cap_unions;
    ek_schema_one_of *one_of;
    int n_one_of;
};

/* EINVAL "PATH: …". */
__attribute__((format(printf, 2, 3))) ek_err ek_schema_fail(ek_schema_work *w, const char *fmt, ...);
/* Counts work, because alternatives beside other keywords repeat these, and a small schema could cause a lot. ETOOLARGE
 * beyond a million. */
ek_err ek_schema_spend(ek_schema_work *w, size_t work);
ek_err ek_schema_value(ek_schema_work *w, const json_t *schema, int32_t *out);
/* The same, one step further down the path. */
ek_err ek_schema_child(ek_schema_work *w, const char *key, const json_t *schema, int32_t *out);
ek_err ek_schema_child_at(ek_schema_work *w, const char *key, size_t i, const json_t *schema, int32_t *out); /* KEY/I */

int ek_schema_type_of_name(const char *name); /* 0: none */
/* Whether the schema's keyword excludes nothing. */
bool ek_schema_is_idle(const json_t *schema, const char *keyword);
/* Notes that the keyword is left out here; "": the whole schema of this place. */
void ek_schema_note(ek_schema_work *w, const char *keyword);
/* The schema, an object, without its unsupported parts: itself, or a copy borrowed from w. Lenient schemas only. */
const json_t *ek_schema_clean(ek_schema_work *w, const json_t *schema);
/* A value of the keyword that means both a and b, or allows more; NULL if there is none. A new reference. */
json_t *ek_schema_both(ek_schema_work *w, const char *keyword, json_t *a, json_t *b);

/* Whether a keyword restricts no values, or none that this compiler knows. */
bool ek_schema_is_note(const char *keyword);
ek_err ek_schema_check_keywords(ek_schema_work *w, const json_t *schema);
/* Whether $ref has siblings that restrict values. */
bool ek_schema_ref_has_siblings(const json_t *schema);
/* The target of `ref`, borrowed. */
ek_err ek_schema_resolve(ek_schema_work *w, const char *ref, const json_t **out);
/* One schema for values that fit all schemas of allOf, borrowed from w. schema: the one with allOf. */
ek_err ek_schema_merge_all(ek_schema_work *w, const json_t *schema, const json_t **out);

/* Sets *types to the types that the schema allows: those that it names, or those that its keywords imply; 0: all. */
ek_err ek_schema_types(ek_schema_work *w, const json_t *schema, int *types);
ek_err ek_schema_object(ek_schema_work *w, const json_t *schema, int32_t *out);
ek_err ek_schema_array(ek_schema_work *w, const json_t *schema, int32_t *out);
ek_err ek_schema_texts(ek_schema_work *w, const json_t *schema, int32_t *out); /* enum, const */
ek_err ek_schema_number(ek_schema_work *w, const json_t *schema, bool integer, int32_t *out);
ek_err ek_schema_string(ek_schema_work *w, const json_t *schema, int32_t *out);
/* Reads a count, a whole number from 0 on; *out keeps its value if the keyword is absent. */
ek_err ek_schema_count(ek_schema_work *w, const json_t *schema, const char *keyword, uint32_t *out);

/* --- in schema_parts.c --- */

/* Makes a union of one link for a schema that may contain itself. *known: it exists already. */
ek_err ek_schema_stand_for(ek_schema_work *w, const json_t *schema, int32_t *out, bool *known);
ek_err ek_schema_link_one(ek_schema_work *w, int32_t from, int32_t node); /* sets the union's link */
/* The target of "$ref", merged with its siblings. */
ek_err ek_schema_reference(ek_schema_work *w, const json_t *schema, int32_t *out);

/* --- in schema_merge.c --- */

ek_err ek_schema_union_of(ek_schema_work *w, const ek_ids *ids, int32_t *out);
/* keyword: "anyOf" or "oneOf". */
ek_err ek_schema_alternatives(ek_schema_work *w, const json_t *schema, const char *keyword, int32_t *out);
/* Once the graph is complete: notes left-out alternatives; EINVAL for alternatives of a "oneOf" that cannot be told
 * apart. */
ek_err ek_schema_check_unions(ek_schema_work *w);

#endif
