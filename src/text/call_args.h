/* The arguments of one tool call: Gemma's notation in, compact JSON out, as it arrives. Damage is repaired
 * where the meaning is clear; otherwise the call is bad. Inside src/text. */
#ifndef EK_TEXT_CALL_ARGS_H
#define EK_TEXT_CALL_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

enum { EK_ARGS_DEPTH = 96 };

typedef struct ek_args_key {
    uint64_t hash;
    size_t at, n; /* in names */
} ek_args_key;

typedef struct ek_args_frame {
    char closer; /* } ] or ) */
    int n_members;
    int first_key;        /* of keys, where this object's begin */
    const json_t *schema; /* of this container; NULL: unknown */
} ek_args_frame;

typedef struct ek_args {
    ek_buf out; /* JSON so far that the caller has not taken; it clears it */
    int state;
    bool bad;
    ek_args_frame stack[EK_ARGS_DEPTH];
    int depth;
    int mute_depth; /* > 0: a repeated key's value at this depth is left out */
    bool in_call;   /* written like a Python call: name(k=v) */
    ek_buf held;    /* a key, a bare word, or the end of a string that may be syntax */
    size_t equals;  /* in a bare key: place of the first '=' + 1 */
    bool quote_pending, escaped;
    ek_args_key *keys;
    int n_keys, cap_keys;
    ek_buf names;
    const json_t *value_schema;
} ek_args;

/* Zero-initialise once; opener is '{' or '(' and has been read. schema: the function's
 * parameters, borrowed until the end; may be NULL. */
void ek_args_begin(ek_args *a, char opener, const json_t *schema);
void ek_args_fini(ek_args *a);
void ek_args_text(ek_args *a, const char *s, size_t n); /* whole characters */
void ek_args_quote(ek_args *a);                         /* <|"|> */
bool ek_args_in_text(const ek_args *a);                 /* between two of them */
/* The call was closed: closes what is open. False if it is bad. */
bool ek_args_close(ek_args *a);
/* It ended without being closed: true only if nothing was left open. */
bool ek_args_cut(ek_args *a);

#endif
