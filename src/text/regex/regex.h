/* Regular expressions of JSON schemas (ECMA-262 with the flag u, which sees code points) as deterministic automata. A
 * backtracking matcher says whether a text matches; a reply that is written token by token needs more: whether a
 * beginning can still become a match, and within how many characters. docs/STRUCTURED.md lists what is supported.
 * Immutable. Inside src/text. */
#ifndef EK_TEXT_REGEX_H
#define EK_TEXT_REGEX_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Every state is reachable, and a match can be reached from every state. State 0 is the beginning. */
typedef struct ek_regex {
    int n_states, n_edges;
    int32_t *first;      /* [n_states + 1]: a state's edges are edge[first[s] .. first[s + 1]), ascending */
    ek_regex_edge *edge; /* no surrogates */
    bool *accepts;       /* [n_states]: the text matches if it ends here */
    uint32_t *least;     /* [n_states]: characters to the nearest match */
} ek_regex;

/* The automaton of texts in which the pattern, n bytes of UTF-8, finds a match; ^ and $ stand for the ends of the text.
 * EINVAL, if nothing matches, or with the wrong or unsupported part and its character (from 1). ETOOLARGE beyond the
 * limits above, and beyond *left steps; the steps taken are subtracted from *left, also on failure. Memory while the
 * automaton is made: below 20 MiB. */
ek_err ek_regex_open_within(ek_regex **out, const char *pattern, size_t n, int64_t *left);
/* The same, but unsupported parts make the expression match more instead of failing: lookahead, lookbehind and word
 * boundaries are left out; properties and back references match anything. *cut is then set. cut NULL: as
 * ek_regex_open_within. */
ek_err ek_regex_open_lenient(ek_regex **out, const char *pattern, size_t n, int64_t *left, bool *cut);
/* The texts that both automata match. EINVAL if there are none; ETOOLARGE. */
ek_err ek_regex_and(ek_regex **out, const ek_regex *a, const ek_regex *b);
void ek_regex_close(ek_regex *r); /* NULL is fine */
size_t ek_regex_bytes(const ek_regex *r);

/* The state behind one more character, or -1. */
int32_t ek_regex_step(const ek_regex *r, int32_t state, uint32_t cp);
/* Whether anything may follow. */
bool ek_regex_is_free(const ek_regex *r, int32_t state);

/* --- grammars in Lark's notation as regular expressions, if they are regular: a rule that reaches itself is refused.
 * So the automata of schemas can keep the text of a tool's input to its grammar. Inside src/text and for dialects. ---
 */

enum {
    EK_LARK_PATTERN_BYTES = 64 << 10, /* of the grammar, and of the resulting pattern */
    EK_LARK_DEPTH = 100               /* nesting of names and brackets */
};

/* Appends a pattern (text/regex/regex.h) for the whole texts of the grammar's rule `start`. Supported: rules and
 * terminals, aliases and priorities (without effect), | ? * + ~n ~n..m ( ) [ ], "texts" and "texts"i, ranges,
 * /patterns/ without flags, %ignore, and %import of most of common. EINVAL with the line and the fault or unsupported
 * part; ETOOLARGE beyond the limits above. Patterns in the grammar are not parsed here. */
ek_err ek_lark_pattern(ek_buf *out, const char *grammar, size_t n);

/* --- a string that a pattern and limits of its length describe together: whether a beginning can still become one.
 * Immutable. Inside src/text. --- */

/* Kinds of characters that patterns rarely distinguish, as bits. EK_CHARS_ODD: delimiters of strings, control
 * characters, and bytes that are no UTF-8. */
enum { EK_CHARS_KINDS = 13, EK_CHARS_ODD = 1 << EK_CHARS_KINDS };
/* The kind of a byte; utf8: the state of ek_utf8_walk before it; kind: the kind of the byte before it. */
int ek_chars_kind(int utf8, int byte, int kind);

enum { EK_PATTERN_ENTRIES = 1 << 20 }; /* states times minLength */

typedef struct ek_pattern {
    ek_regex *regex;
    uint32_t min, max; /* characters; max UINT32_MAX: no limit */
    /* [min * states]: for n in 1..min and each state, the smallest number >= n of characters that lead to a match. */
    uint32_t *reach;
} ek_pattern;

/* Takes over regex, also after an error. EINVAL if no text of that length matches; ETOOLARGE. */
ek_err ek_pattern_open(ek_pattern **out, ek_regex *regex, uint32_t min, uint32_t max);
void ek_pattern_close(ek_pattern *p); /* NULL is allowed */
size_t ek_pattern_bytes(const ek_pattern *p);

/* Whether a match can follow from `state` after n characters; without a maximum, n above min may be passed as min. */
bool ek_pattern_can_end(const ek_pattern *p, int32_t state, uint32_t n);
/* Whether a match can follow after one more character of [lo, hi], the n-th. */
bool ek_pattern_may_come(const ek_pattern *p, int32_t state, uint32_t lo, uint32_t hi, uint32_t n);

/* For texts whose first character is of the kinds kind[0], the second of kind[1], all further ones of kind[2]: the
 * length, up to `max`, to which every such text can follow and beyond which none can (at max: all can follow). -1 if
 * there is no such length, or if finding it needs more work. */
int ek_pattern_run(const ek_pattern *p, int32_t state, uint32_t n, const uint16_t kind[3], int max);
/* A number of characters, up to `max`, such that any characters of these kinds can follow; perhaps more can. */
int ek_pattern_any(const ek_pattern *p, int32_t state, uint32_t n, uint16_t kinds, int max);

/* The pattern of a known `format` (date, time, date-time, uuid, ipv4), or NULL. */
const char *ek_pattern_of_format(const char *format);

#endif
