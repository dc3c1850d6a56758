/* The parsed form of a grammar in Lark's notation: its tokens, and the definition of each name. Inside
 * src/text/regex/lark*.c. */
#ifndef EK_TEXT_LARK_WORK_H
#define EK_TEXT_LARK_WORK_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum ek_lark_kind {
    EK_LARK_END,
    EK_LARK_NEWLINE,
    EK_LARK_NAME,
    EK_LARK_TEXT,    /* between quotes */
    EK_LARK_PATTERN, /* between slashes */
    EK_LARK_NUMBER,
    EK_LARK_DOTS, /* .. */
    EK_LARK_ARROW,
    EK_LARK_WORD, /* %word */
    EK_LARK_SIGN  /* one character */
} ek_lark_kind;

typedef struct ek_lark_token {
    ek_lark_kind kind;
    const char *s; /* of texts and patterns without delimiters */
    size_t n;
    int line;
    bool folds; /* EK_LARK_TEXT: case-insensitive, "…"i */
} ek_lark_token;

typedef struct ek_lark_rule {
    const char *pattern; /* of a common terminal, else NULL */
    int at;              /* index of the first token after the colon */
    bool active;         /* its pattern is being written */
} ek_lark_rule;

typedef struct ek_lark {
    ek_lark_token *t;
    int n, cap;
    ek_lark_rule *rules;
    int n_rules, cap_rules;
    json_t *names;  /* numbers of rules by name */
    ek_buf ignored; /* the pattern that may precede every terminal */
    ek_buf *out;
    size_t limit; /* of out->len */
    int depth;
} ek_lark;

/* Reads the tokens and definitions of a grammar into l, which is zeroed except out and limit; call ek_lark_fini in any
 * case. EINVAL with the line. */
ek_err ek_lark_read(ek_lark *l, const char *s, size_t n);
void ek_lark_fini(ek_lark *l);
/* The index after the definition that continues at `at`; newlines before | do not end it. */
int ek_lark_end_of(const ek_lark *l, int at);

/* EINVAL: "lark grammar, line N: " and the fault, or the token between two texts. */
ek_err ek_lark_wrong(const ek_lark_token *t, const char *what);
ek_err ek_lark_wrong_name(const ek_lark_token *t, const char *before, const char *after);

static inline bool ek_lark_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static inline bool ek_lark_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ek_lark_is_sign(const ek_lark_token *t, char c)
{
    return t->kind == EK_LARK_SIGN && *t->s == c;
}

static inline bool ek_lark_is_word(const ek_lark_token *t, const char *word)
{
    return t->kind == EK_LARK_WORD && t->n == strlen(word) && !memcmp(t->s, word, t->n);
}

#endif
