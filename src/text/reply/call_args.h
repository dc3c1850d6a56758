/* Streaming parser of the arguments of one tool call: Gemma's notation in, compact JSON out. The JSON grows as
 * the text arrives. Malformed text is repaired where the meaning is clear; otherwise the call is marked bad. Inside
 * src/text. */
#ifndef EK_TEXT_CALL_ARGS_H
#define EK_TEXT_CALL_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "text/reply/call_names.h"

enum { EK_ARGS_DEPTH = 96 };

typedef struct ek_args_key {
    uint64_t hash;
    size_t at, n; /* the key is key_names[at..at+n) */
} ek_args_key;

typedef struct ek_args_frame {
    char closer; /* } ] or ) */
    int n_members;
    int first_key;        /* index in keys of this object's first key */
    const json_t *schema; /* of this container; NULL: unknown */
} ek_args_frame;

/* What is known of a schema's names, for all calls of a reply. */
typedef struct ek_args_names {
    const json_t *schema;
    ek_call_names names;
} ek_args_names;

typedef struct ek_args {
    ek_buf out; /* JSON that the caller has not taken yet; the caller clears it */
    int state;
    bool bad;
    ek_args_frame stack[EK_ARGS_DEPTH];
    int depth;
    int mute_depth; /* > 0: the value of a repeated key at this depth is not written */
    char last;      /* byte of syntax that was written */
    bool in_call;   /* written like a Python call: name(k=v) */
    ek_buf held;    /* a key, a bare word, or the end of a string that may be syntax */
    size_t equals;  /* in a bare key: 1 + offset of the first '=' in held; 0: none */
    bool quote_pending, escaped;
    int braces, nested; /* in a bare key: braces, brackets and parentheses that it opened */
    ek_args_names *known;
    int n_known, cap_known, names; /* names: of known, of this call */
    int lo, hi;                    /* KEY_NAMED: names that begin with held */
    size_t match;                  /* the longest of them that held has whole, with its colon; 0: none */
    bool unnamed;                  /* the key that comes is none of them */
    ek_args_key *keys;
    int n_keys, cap_keys;
    ek_buf key_names;
    const json_t *value_schema;
} ek_args;

/* Starts a new call. Zero-initialise a before the first one; ek_args_fini frees it. opener is '{' or '(' and has
 * been read already. schema: the function's parameters, borrowed until the call ends; may be NULL. */
void ek_args_begin(ek_args *a, char opener, const json_t *schema);
void ek_args_fini(ek_args *a);
void ek_args_text(ek_args *a, const char *s, size_t n); /* n bytes of whole characters */
void ek_args_quote(ek_args *a);                         /* the token <|"|> */
bool ek_args_in_text(const ek_args *a);                 /* between two <|"|> tokens */
bool ek_args_done(const ek_args *a);                    /* the outermost container was closed */
/* The call's end marker came: closes the containers that are open. False if the call is bad. */
bool ek_args_close(ek_args *a);
/* What the JSON that was written so far lacks to be a JSON object; appends. */
void ek_args_closing(const ek_args *a, ek_buf *out);
/* The call ended without its marker: true only if it is not bad and nothing was left open. */
bool ek_args_cut(ek_args *a);

#endif
