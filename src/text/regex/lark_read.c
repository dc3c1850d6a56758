#include "text/regex/lark_work.h"

#include <stdlib.h>

#include "base/alloc.h"

ek_err ek_lark_wrong(const ek_lark_token *t, const char *what)
{
    return ek_fail(EK_EINVAL, "lark grammar, line %d: %s", t->line, what);
}

ek_err ek_lark_wrong_name(const ek_lark_token *t, const char *before, const char *after)
{
    return ek_fail(EK_EINVAL, "lark grammar, line %d: %s%.*s%s", t->line, before, t->n < 80 ? (int)t->n : 80, t->s,
                   after);
}

/* --- tokens --- */

static void add_token(ek_lark *l, ek_lark_token t)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->t = ek_realloc(l->t, sizeof *l->t * (size_t)l->cap);
    }
    l->t[l->n++] = t;
}

/* The length of the text between delimiters, after the first; -1 if the second is not on the line. */
static ptrdiff_t delimited(const char *s, size_t n, char end)
{
    for (size_t i = 0; i < n && s[i] != '\n'; i++) {
        if (s[i] == end) return (ptrdiff_t)i;
        if (s[i] == '\\') i++;
    }
    return -1;
}

static ek_err read_delimited(ek_lark *l, ek_lark_token t, size_t left, size_t *took)
{
    ptrdiff_t len = delimited(t.s + 1, left - 1, *t.s);
    if (len < 0)
        return ek_lark_wrong(&t,
                             *t.s == '"' ? "a text without its second quote" : "a pattern without its second slash");
    t.s++;
    t.n = (size_t)len;
    *took = t.n + 2;
    size_t flags = 0;
    while (*took + flags < left && ek_lark_is_letter(t.s[t.n + 1 + flags])) flags++;
    const char *flag = t.s + t.n + 1;
    if (t.kind == EK_LARK_TEXT && flags == 1 && *flag == 'i') t.folds = true;
    else if (flags > 0 && !(t.kind == EK_LARK_PATTERN && flags == 1 && *flag == 'u')) {
        t.s = flag;
        t.n = flags;
        return ek_lark_wrong_name(&t, "the flag ", " is not supported");
    }
    *took += flags;
    add_token(l, t);
    return EK_OK;
}

static ek_err read_token(ek_lark *l, const char *s, size_t left, int line, size_t *took)
{
    ek_lark_token t = {.s = s, .n = 1, .line = line};
    size_t n = *s == '%' ? 1 : 0;
    if (*s == '"' || *s == '/') {
        t.kind = *s == '"' ? EK_LARK_TEXT : EK_LARK_PATTERN;
        return read_delimited(l, t, left, took);
    }
    while (n < left && (ek_lark_is_letter(s[n]) || (n > 0 && ek_lark_is_digit(s[n])))) n++;
    if (n > 0) {
        t.kind = *s == '%' ? EK_LARK_WORD : EK_LARK_NAME;
        t.n = n;
    } else if (ek_lark_is_digit(*s)) {
        t.kind = EK_LARK_NUMBER;
        while (t.n < left && ek_lark_is_digit(s[t.n])) t.n++;
    } else if (left > 1 && s[0] == '-' && s[1] == '>') {
        t.kind = EK_LARK_ARROW;
        t.n = 2;
    } else if (left > 1 && s[0] == '.' && s[1] == '.') {
        t.kind = EK_LARK_DOTS;
        t.n = 2;
    } else if (strchr(":|()[]?*+~.!,{}", *s) && *s) {
        t.kind = EK_LARK_SIGN;
    } else {
        return ek_fail(EK_EINVAL, "lark grammar, line %d: a character that has no meaning here", line);
    }
    *took = t.n;
    add_token(l, t);
    return EK_OK;
}

static ek_err read_tokens(ek_lark *l, const char *s, size_t n)
{
    int line = 1;
    for (size_t i = 0; i < n;) {
        size_t took = 1;
        bool comment = s[i] == '#' || (s[i] == '/' && i + 1 < n && s[i + 1] == '/');
        if (comment) {
            while (i < n && s[i] != '\n') i++;
            continue;
        }
        if (s[i] == '\n') add_token(l, (ek_lark_token){.kind = EK_LARK_NEWLINE, .s = s + i, .n = 1, .line = line++});
        else if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') EK_TRY(read_token(l, s + i, n - i, line, &took));
        i += took;
    }
    add_token(l, (ek_lark_token){.kind = EK_LARK_END, .s = "", .line = line});
    return EK_OK;
}

/* --- definitions --- */

/* The token after the definition whose expansions begin at `at`; newlines before | do not end it. */
int ek_lark_end_of(const ek_lark *l, int at)
{
    for (;; at++) {
        int next = at;
        while (l->t[next].kind == EK_LARK_NEWLINE) next++;
        if (l->t[next].kind == EK_LARK_END) return next;
        if (next > at && !ek_lark_is_sign(&l->t[next], '|')) return next;
        at = next;
    }
}

static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT", "(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"SIGNED_FLOAT", "[+\\-]?(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

static ek_err add_rule(ek_lark *l, const ek_lark_token *name, ek_lark_rule r)
{
    if (json_object_getn(l->names, name->s, name->n)) return ek_lark_wrong_name(name, "", " is defined twice");
    if (l->n_rules == l->cap_rules) {
        l->cap_rules = l->cap_rules ? 2 * l->cap_rules : 32;
        l->rules = ek_realloc(l->rules, sizeof *l->rules * (size_t)l->cap_rules);
    }
    json_object_setn_new_nocheck(l->names, name->s, name->n, json_integer(l->n_rules));
    l->rules[l->n_rules++] = r;
    return EK_OK;
}

static ek_err import_one(ek_lark *l, const ek_lark_token *from, const ek_lark_token *as)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (from->n == strlen(common[i].name) && !memcmp(from->s, common[i].name, from->n))
            return add_rule(l, as, (ek_lark_rule){.pattern = common[i].pattern});
    return ek_lark_wrong_name(from, "common.", " is not known");
}

/* %import common.NAME, common.NAME -> NAME, common (NAME, NAME); *at is behind the word. */
static ek_err read_import(ek_lark *l, int *at)
{
    const ek_lark_token *t = l->t + *at;
    if (t->kind != EK_LARK_NAME) return ek_lark_wrong(t, "%import needs a name");
    if (t->n != 6 || memcmp(t->s, "common", 6))
        return ek_lark_wrong_name(t, "%import of ", " is not supported, only of common");
    t++;
    if (ek_lark_is_sign(t, '.')) {
        const ek_lark_token *from = ++t, *as = from;
        if (t++->kind != EK_LARK_NAME) return ek_lark_wrong(from, "%import needs a name");
        if (t->kind == EK_LARK_ARROW) {
            as = t + 1;
            t += 2;
            if (as->kind != EK_LARK_NAME) return ek_lark_wrong(as, "a name is needed behind ->");
        }
        EK_TRY(import_one(l, from, as));
    } else if (ek_lark_is_sign(t, '(')) {
        do {
            const ek_lark_token *from = ++t;
            if (t++->kind != EK_LARK_NAME) return ek_lark_wrong(from, "%import needs a name");
            EK_TRY(import_one(l, from, from));
        } while (ek_lark_is_sign(t, ','));
        if (!ek_lark_is_sign(t++, ')')) return ek_lark_wrong(t - 1, "a ) is missing");
    } else {
        return ek_lark_wrong(t, "%import needs a name");
    }
    *at = (int)(t - l->t);
    return EK_OK;
}

static ek_err read_definition(ek_lark *l, int *at)
{
    const ek_lark_token *t = l->t + *at;
    while (ek_lark_is_sign(t, '?') || ek_lark_is_sign(t, '!')) t++;
    const ek_lark_token *name = t++;
    if (name->kind != EK_LARK_NAME) return ek_lark_wrong(name, "a definition, NAME: …, is needed");
    if (ek_lark_is_sign(t, '{')) return ek_lark_wrong_name(name, "the template ", " is not supported");
    if (ek_lark_is_sign(t, '.') && t[1].kind == EK_LARK_NUMBER) t += 2;
    if (!ek_lark_is_sign(t, ':')) return ek_lark_wrong_name(name, "a colon is needed behind ", "");
    int first = (int)(t - l->t) + 1;
    EK_TRY(add_rule(l, name, (ek_lark_rule){.at = first}));
    *at = ek_lark_end_of(l, first);
    return EK_OK;
}

ek_err ek_lark_read(ek_lark *l, const char *s, size_t n)
{
    l->names = json_object();
    EK_TRY(read_tokens(l, s, n));
    for (int at = 0; l->t[at].kind != EK_LARK_END;) {
        const ek_lark_token *t = &l->t[at];
        if (t->kind == EK_LARK_NEWLINE) {
            at++;
        } else if (ek_lark_is_word(t, "%ignore")) {
            at = ek_lark_end_of(l, at + 1);
        } else if (ek_lark_is_word(t, "%import")) {
            at++;
            EK_TRY(read_import(l, &at));
        } else if (t->kind == EK_LARK_WORD) {
            return ek_lark_wrong_name(t, "", " is not supported");
        } else {
            EK_TRY(read_definition(l, &at));
        }
    }
    return EK_OK;
}

void ek_lark_fini(ek_lark *l)
{
    json_decref(l->names);
    ek_buf_fini(&l->ignored);
    free(l->t);
    free(l->rules);
}
