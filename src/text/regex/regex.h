/* Regular expressions of JSON schemas (ECMA-262 with the flag u, which sees code points) as deterministic automata. A
 * backtracking matcher says whether a text matches; a reply that is written token by token needs more: whether a
 * beginning can still become a match, and within how many characters. docs/STRUCTURED.md lists what is supported.
 * Immutable. Inside src/text. */
#ifndef EK_TEXT_REGEX_H
#define EK_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    EK_REGEX_NODES = 20000, /* of the expression with its repetitions written out */
    EK_REGEX_STATES = 4096,
    EK_REGEX_EDGES = 65536,
    EK_REGEX_WORK = 20000000, /* elementary steps of making one */
    EK_REGEX_GROUPS = 64,     /* inside each other */
    EK_REGEX_LAST = 0x10ffff  /* code point */
};

/* From a state by the code points [lo, hi] to another. */
typedef struct ek_regex_edge {
    uint32_t lo, hi;
    int32_t to;
} ek_regex_edge;

/* Every state is reachable, and from every state a match is. State 0 is the beginning. */
typedef struct ek_regex {
    int n_states, n_edges;
    int32_t *first;      /* [n_states + 1]: a state's edges are edge[first[s] .. first[s + 1]), ascending */
    ek_regex_edge *edge; /* no surrogates */
    bool *accepts;       /* [n_states]: the text matches if it ends here */
    uint32_t *least;     /* [n_states]: characters to the nearest match */
} ek_regex;

/* The automaton of texts in which the pattern, n bytes of UTF-8, finds a match: of whole texts where it says ^ and $.
 * EINVAL with the character (from 1) and what is wrong or not supported there, or if nothing matches; ETOOLARGE beyond
 * the limits above, and beyond *left steps, of which those taken are subtracted, also where it fails. Memory while it
 * is made: below 20 MiB. */
ek_err ek_regex_open_within(ek_regex **out, const char *pattern, size_t n, int64_t *left);
/* The same for an expression that may be replaced by one that matches more: what is not supported of it is left out
 * (what looks ahead or behind, word boundaries) or stands for anything (properties, back references); *cut is then set.
 * cut NULL: as ek_regex_open_within. */
ek_err ek_regex_open_lenient(ek_regex **out, const char *pattern, size_t n, int64_t *left, bool *cut);
/* The texts that both match. EINVAL if there are none; ETOOLARGE. */
ek_err ek_regex_and(ek_regex **out, const ek_regex *a, const ek_regex *b);
void ek_regex_close(ek_regex *r); /* NULL is fine */
size_t ek_regex_bytes(const ek_regex *r);

/* The edge by a character, or NULL. */
const ek_regex_edge *ek_regex_edge_of(const ek_regex *r, int32_t state, uint32_t cp);
/* The state behind one more character, or -1. */
int32_t ek_regex_step(const ek_regex *r, int32_t state, uint32_t cp);
/* Whether anything may follow. */
bool ek_regex_is_free(const ek_regex *r, int32_t state);

#endif
