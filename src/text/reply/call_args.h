/* Streaming parser of the arguments of one tool call: Gemma's notation in, compact JSON out. The JSON grows as
 * the text arrives. Malformed text is repaired where the meaning is clear; otherwise the call is marked bad. Inside
 * src/text. */
#ifndef EK_TEXT_CALL_ARGS_H
#define EK_TEXT_CALL_ARGS_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* --- names of a tool's arguments. Syntax alone cannot find their ends, because the template writes names unquoted,
 * whatever they contain. Inside src/text. --- */

/* Names, each with its colon, ascending by bytes. Immutable. */
typedef struct ek_call_names {
    struct ek_call_name {
        uint32_t at, n; /* in text */
    } * name;
    int n;
    ek_buf text;
} ek_call_names;

/* Whether a known name can stand without <|"|>, because nothing else in a call looks like it. */
bool ek_call_name_is_bare(const char *s, size_t n);

/* Collects the bare names of all properties anywhere in the schema; plain: including plain names. Time and memory are
 * linear, except sorting. */
void ek_call_names_init(ek_call_names *names, const json_t *schema, bool plain);
void ek_call_names_fini(ek_call_names *names);
/* Narrows [*lo, *hi), names with a common beginning of len bytes, to those whose next byte is c. True if any remain;
 * *whole: the first of them ends with it. */
bool ek_call_names_narrow(const ek_call_names *names, int *lo, int *hi, uint32_t len, char c, bool *whole);
/* The length of a name, with its colon, at the beginning of s; 0: none. */
size_t ek_call_names_at(const ek_call_names *names, const char *s, size_t n);

/* Whether calls of a tool with these parameters need more than plain names: a name that is not plain, or objects with
 * unknown names. */
bool ek_call_names_matter(const json_t *schema);

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

/* The names of a schema, for all calls of a reply. */
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
    int mute_depth; /* > 0: the value of a repeated key at this depth is dropped */
    char last;      /* the last byte of syntax that was written */
    bool in_call;   /* written like a Python call: name(k=v) */
    ek_buf held;    /* a key, a bare word, or a string's end that may be syntax */
    size_t equals;  /* in a bare key: 1 + offset of the first '=' in held; 0: none */
    bool quote_pending, escaped;
    int braces, nested; /* in a bare key: braces, brackets and parentheses that it opened */
    ek_args_names *known;
    int n_known, cap_known, names; /* names: index in known, for this call */
    int lo, hi;                    /* KEY_NAMED: names that begin with held */
    size_t match;                  /* length of the longest name that begins held, with its colon; 0: none */
    bool unnamed;                  /* the current key is not a known name */
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
bool ek_args_in_text(const ek_args *a);                 /* whether the text is between two <|"|> tokens */
bool ek_args_done(const ek_args *a);                    /* whether the outermost container was closed */
/* Takes the call's end marker: closes open containers. False if the call is bad. */
bool ek_args_close(ek_args *a);
/* Appends the text that completes the JSON written so far to an object. */
void ek_args_closing(const ek_args *a, ek_buf *out);
/* Ends a call without its marker: true only if it is not bad and nothing was left open. */
bool ek_args_cut(ek_args *a);

/* --- states of the argument parser (ek_args.state) and its JSON output, one container at a time; for call_args.c.
 * Inside src/text. --- */

enum {
    KEY_START, /* before a key, or the end of the object */
    KEY_NAMED, /* a possible known name */
    KEY_BARE,
    KEY_QUOTED,
    KEY_JSON,
    KEY_SINGLE,
    COLON, /* after a quoted key */
    VALUE, /* before a value */
    BARE,  /* a word without quotes, kept in held */
    HOLD,  /* a word that is no literal: <|"|> or the end decides its type */
    TEXT,  /* between two <|"|> tokens */
    JSON,
    SINGLE,
    AFTER, /* after a value */
    DONE
};

ek_args_frame *ek_args_top(ek_args *a); /* the innermost open container; depth > 0 */
bool ek_args_is_closer(const ek_args *a, char c);
void ek_args_fail(ek_args *a); /* marks the call bad */

/* Append to out, unless the value is muted or the call is bad. */
void ek_args_emit(ek_args *a, const char *s, size_t n);
void ek_args_emit_char(ek_args *a, char c);
void ek_args_emit_escaped(ek_args *a, const char *s, size_t n);
void ek_args_emit_text(ek_args *a, const char *s, size_t n); /* escaped, with quotes */

void ek_args_begin_value(ek_args *a);
void ek_args_end_value(ek_args *a);
void ek_args_end_key(ek_args *a, const char *key, size_t n);
void ek_args_push(ek_args *a, char opener);
void ek_args_close_with(ek_args *a, char c);

/* --- steps of reading a call's arguments, which its end needs too. Inside src/text. --- */

static inline bool ek_args_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The known names of the open container. */
static inline const ek_call_names *ek_args_known_names(const ek_args *a)
{
    return &a->known[a->names].names;
}

/* Reads one character. */
void ek_args_step(ek_args *a, char c);

/* Holds the following bytes until the state decides their meaning. */
void ek_args_begin_held(ek_args *a, int state);
/* Decodes the held bytes in place, because they stood between JSON quotes. */
void ek_args_decode_json(ek_args *a);
/* The held bytes are a text, and the whole value. */
void ek_args_end_text(ek_args *a);
/* A bare word is the whole value. */
void ek_args_emit_bare(ek_args *a, const char *s, size_t n);

/* The first n held bytes are a key without quotes. */
void ek_args_end_bare_key(ek_args *a, size_t n);
/* A bare key without a colon: `k=v`, or unintelligible. */
void ek_args_end_without_colon(ek_args *a);
/* The held bytes became a known name, perhaps with more bytes, or no known name. */
void ek_args_end_named(ek_args *a);

/* --- unquoted values in a tool call, and their types by the tool's JSON schema. Inside src/text. --- */

/* Schema look-up. Results are borrowed; NULL if nothing is known, also for a NULL argument. */
const json_t *ek_schema_of_tool(const json_t *tools, const char *name); /* the function's parameters */
const json_t *ek_schema_property(const json_t *schema, const char *key, size_t n);
const json_t *ek_schema_items(const json_t *schema); /* of all items */

/* True if the word is a value without quotes: a JSON or Python literal, or, if the schema wants a number, a number in a
 * spelling that JSON lacks. */
bool ek_bare_is_literal(const char *s, size_t n, const json_t *schema);
/* Appends the word to out as JSON: a literal, else a string. An empty word becomes null, or an empty string if the
 * schema wants a string. */
void ek_bare_value(ek_buf *out, const char *s, size_t n, const json_t *schema);
/* Length in bytes of the word at s, in complete text: up to a comma that a key follows (in a list: any comma), or up to
 * a closer that the word did not open. names: known keys. */
size_t ek_bare_extent(const char *s, size_t n, bool in_list, bool in_call, const ek_call_names *names);
/* For a <|"|> that comes after the held text s: true if it opens a new string (the text is bare words and syntax),
 * false if it closes the present one. */
bool ek_bare_opens_text(const char *s, size_t n, const ek_call_names *names);

#endif
