/* What the parser of regular expressions leaves and the automaton is made of: an expression as nodes that lead to
 * each other. Inside src/text/regex/regex*.c. */
#ifndef EK_TEXT_REGEX_WORK_H
#define EK_TEXT_REGEX_WORK_H

#include "text/regex/regex.h"

typedef enum ek_regex_kind {
    EK_REGEX_CHAR,   /* one character of set b, then a */
    EK_REGEX_EMPTY,  /* nothing, then a */
    EK_REGEX_EITHER, /* a or b */
    EK_REGEX_BEGIN,  /* ^, then a */
    EK_REGEX_END,    /* $, then a */
    EK_REGEX_MATCH
} ek_regex_kind;

typedef struct ek_regex_node {
    uint8_t kind;
    int32_t a, b;
} ek_regex_node;

typedef struct ek_regex_range {
    uint32_t lo, hi;
} ek_regex_range;

/* A set of characters: ranges [first, first + n), ascending and apart. */
typedef struct ek_regex_set {
    int32_t first, n;
    size_t at, end; /* 1 + where the pattern has it, and where it ends: what is repeated finds its sets again */
} ek_regex_set;

typedef struct ek_regex_work {
    ek_regex_node *node;
    ek_regex_set *set;
    ek_regex_range *range;
    int n_nodes, cap_nodes, n_sets, cap_sets, n_ranges, cap_ranges;
    int32_t start;     /* node */
    int64_t work;      /* steps so far */
    int64_t max;       /* at most EK_REGEX_WORK */
    bool lenient, cut; /* what is not supported is left out; something was */
} ek_regex_work;

/* Reads the pattern into w, which is zero; ek_regex_work_fini in any case. */
ek_err ek_regex_parse(ek_regex_work *w, const char *pattern, size_t n);
/* Steps more. ETOOLARGE beyond EK_REGEX_WORK. */
ek_err ek_regex_spend(ek_regex_work *w, int64_t steps);
void ek_regex_work_fini(ek_regex_work *w);

/* An automaton that is being made: edges of its states, one after the other, in ascending order. */
ek_regex *ek_regex_new(void);
ek_err ek_regex_add_edge(ek_regex *r, uint32_t lo, uint32_t hi, int32_t to);
/* The next state, whose edges follow. */
ek_err ek_regex_add_state(ek_regex *r, bool accepts);
/* Leaves out what leads to no match. EINVAL if that is all. Frees r on failure. */
ek_err ek_regex_finish(ek_regex **out, ek_regex *r);

/* Reading a regular expression: the reader's place, and what a single character of the text may be there. Inside
 * src/text/regex/regex_*.c. */

typedef struct ek_regex_reader {
    ek_regex_work *w;
    const char *s;
    size_t n, at;
    int depth; /* groups that are open */
} ek_regex_reader;

/* EINVAL "at character N: …", for where the reader stands. */
__attribute__((format(printf, 2, 3))) ek_err ek_regex_refuse(const ek_regex_reader *p, const char *fmt, ...);

/* The byte so many further on, or -1. */
static inline int ek_regex_peek(const ek_regex_reader *p, size_t ahead)
{
    return p->at + ahead < p->n ? (uint8_t)p->s[p->at + ahead] : -1;
}

/* The set of every character: the first of an expression. */
ek_err ek_regex_any_set(ek_regex_reader *p, int32_t *out);
/* The set that is spelled here; the reader moves behind it. */
ek_err ek_regex_read_set(ek_regex_reader *p, int32_t *out);

#endif
