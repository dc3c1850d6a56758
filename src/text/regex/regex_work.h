/* The parser's result, from which the automaton is built: an expression as linked nodes. Inside
 * src/text/regex/regex*.c. */
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

/* A set of characters: ranges [first, first + n), ascending and disjoint. */
typedef struct ek_regex_set {
    int32_t first, n;
    size_t at, end; /* 1 + its offset in the pattern, and its end: a repeated part finds its sets again */
} ek_regex_set;

typedef struct ek_regex_work {
    ek_regex_node *node;
    ek_regex_set *set;
    ek_regex_range *range;
    int n_nodes, cap_nodes, n_sets, cap_sets, n_ranges, cap_ranges;
    int32_t start;     /* node */
    int64_t work;      /* steps so far */
    int64_t max;       /* maximum steps, at most EK_REGEX_WORK */
    bool lenient, cut; /* lenient: unsupported parts are left out; cut: some were */
} ek_regex_work;

/* Parses the pattern into w, which is zero; call ek_regex_work_fini in any case. */
ek_err ek_regex_parse(ek_regex_work *w, const char *pattern, size_t n);
/* Counts steps. ETOOLARGE beyond EK_REGEX_WORK. */
ek_err ek_regex_spend(ek_regex_work *w, int64_t steps);
void ek_regex_work_fini(ek_regex_work *w);

/* An automaton under construction: edges of its states, one state after the other, in ascending order. */
ek_regex *ek_regex_new(void);
ek_err ek_regex_add_edge(ek_regex *r, uint32_t lo, uint32_t hi, int32_t to);
/* Adds the next state; its edges follow. */
ek_err ek_regex_add_state(ek_regex *r, bool accepts);
/* Removes states that lead to no match. EINVAL if none remains. Frees r after an error. */
ek_err ek_regex_finish(ek_regex **out, ek_regex *r);

/* --- reading a regular expression: the reader's position, and the sets of characters. Inside src/text/regex/regex_*.c.
 * --- */

typedef struct ek_regex_reader {
    ek_regex_work *w;
    const char *s;
    size_t n, at;
    int depth; /* open groups */
} ek_regex_reader;

/* EINVAL "at character N: …", at the reader's position. */
__attribute__((format(printf, 2, 3))) ek_err ek_regex_refuse(const ek_regex_reader *p, const char *fmt, ...);

/* The byte `ahead` bytes further, or -1. */
static inline int ek_regex_peek(const ek_regex_reader *p, size_t ahead)
{
    return p->at + ahead < p->n ? (uint8_t)p->s[p->at + ahead] : -1;
}

/* The set of all characters: the first of an expression. */
ek_err ek_regex_any_set(ek_regex_reader *p, int32_t *out);
/* Reads the set at the reader's position. */
ek_err ek_regex_read_set(ek_regex_reader *p, int32_t *out);

#endif
