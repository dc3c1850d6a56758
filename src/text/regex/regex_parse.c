/* Parses a regular expression. A repeated part is read again for each repetition, so no tree is kept. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/regex/regex_work.h"

enum { MAX_COUNT = 1000000, NO_MAX = -1 };

/* It ends with an EMPTY node without a successor yet. */
typedef struct part {
    int32_t start, end;
} part;

ek_err ek_regex_spend(ek_regex_work *w, int64_t steps)
{
    w->work += steps;
    if (w->work <= w->max) return EK_OK;
    return ek_fail(EK_ETOOLARGE, "it takes more than %lld steps to compile", (long long)w->max);
}

void ek_regex_work_fini(ek_regex_work *w)
{
    free(w->node);
    free(w->set);
    free(w->range);
    *w = (ek_regex_work){0};
}

/* --- nodes --- */

static ek_err add_node(ek_regex_reader *p, int kind, int32_t a, int32_t b, int32_t *out)
{
    ek_regex_work *w = p->w;
    *out = -1;
    if (w->n_nodes == EK_REGEX_NODES)
        return ek_fail(EK_ETOOLARGE, "it has more than %d parts with its repetitions written out", EK_REGEX_NODES);
    if (w->n_nodes == w->cap_nodes) {
        w->cap_nodes = w->cap_nodes ? 2 * w->cap_nodes : 64;
        w->node = ek_realloc(w->node, sizeof *w->node * (size_t)w->cap_nodes);
    }
    w->node[w->n_nodes] = (ek_regex_node){(uint8_t)kind, a, b};
    *out = w->n_nodes++;
    return EK_OK;
}

static ek_err empty_part(ek_regex_reader *p, part *out)
{
    ek_err err = add_node(p, EK_REGEX_EMPTY, -1, -1, &out->start);
    out->end = out->start;
    return err;
}

/* A part of one node. */
static ek_err single_part(ek_regex_reader *p, int kind, int32_t b, part *out)
{
    EK_TRY(add_node(p, EK_REGEX_EMPTY, -1, -1, &out->end));
    return add_node(p, kind, out->end, b, &out->start);
}

static void append(ek_regex_reader *p, part *x, part y)
{
    p->w->node[x->end].a = y.start;
    x->end = y.end;
}

/* --- parts --- */

static ek_err alternatives(ek_regex_reader *p, part *out);

/* Skips a group that is left out; at stands behind its opening parenthesis. */
static ek_err skip_group(ek_regex_reader *p, part *out)
{
    size_t from = p->at;
    bool set = false;
    for (int depth = 1; depth > 0; p->at++) {
        int c = ek_regex_peek(p, 0);
        if (c < 0) return ek_regex_refuse(p, "a group is not closed");
        if (c == '\\') p->at++;
        else if (set) set = c != ']';
        else if (c == '[') set = true;
        else depth += (c == '(') - (c == ')');
    }
    p->w->cut = true;
    EK_TRY(ek_regex_spend(p->w, (int64_t)(p->at - from)));
    return empty_part(p, out);
}

static ek_err group(ek_regex_reader *p, part *out)
{
    int c = ek_regex_peek(p, 1), d = ek_regex_peek(p, 2);
    if (ek_regex_peek(p, 0) == '?') {
        bool behind = c == '<' && (d == '=' || d == '!');
        if (p->w->lenient && (c == '=' || c == '!' || behind)) return skip_group(p, out);
        if (c == '=' || c == '!') return ek_regex_refuse(p, "the lookahead (?%c is not supported", c);
        if (behind) return ek_regex_refuse(p, "the lookbehind (?<%c is not supported", d);
        if (c != ':' && c != '<')
            return ek_regex_refuse(p, "groups of the form (?%c are not supported", c > 32 ? c : ' ');
        p->at += 2;
        while (c == '<' && ek_regex_peek(p, 0) != '>') {
            if (p->at == p->n) return ek_regex_refuse(p, "a group's name has no end");
            p->at++;
        }
        p->at += c == '<';
    }
    if (++p->depth > EK_REGEX_GROUPS)
        return ek_regex_refuse(p, "more than %d groups inside each other", EK_REGEX_GROUPS);
    EK_TRY(alternatives(p, out));
    p->depth--;
    if (ek_regex_peek(p, 0) != ')') return ek_regex_refuse(p, "a group is not closed");
    p->at++;
    return EK_OK;
}

/* {m}, {m,} or {m,n}; otherwise the brace is a character. */
static bool read_counts(ek_regex_reader *p, int *min, int *max)
{
    size_t i = p->at + 1;
    int value[2] = {0, NO_MAX}, n_digits[2] = {0, 0}, k = 0;
    for (;; i++) {
        int c = i < p->n ? (uint8_t)p->s[i] : -1;
        if (c >= '0' && c <= '9') {
            if (n_digits[k]++ == 0) value[k] = 0;
            value[k] = value[k] < MAX_COUNT ? value[k] * 10 + c - '0' : MAX_COUNT;
        } else if (c == ',' && k == 0) {
            k = 1;
        } else if (c == '}' && n_digits[0]) {
            break;
        } else {
            return false;
        }
    }
    *min = value[0], *max = k ? value[1] : value[0];
    p->at = i + 1;
    return true;
}

static bool read_quantifier(ek_regex_reader *p, int *min, int *max)
{
    int c = ek_regex_peek(p, 0);
    if (c == '*' || c == '+' || c == '?') {
        *min = c == '+', *max = c == '?' ? 1 : NO_MAX;
        p->at++;
    } else if (c != '{' || !read_counts(p, min, max)) {
        return false;
    }
    if (ek_regex_peek(p, 0) == '?') p->at++; /* "as few as possible" matches the same texts */
    return true;
}

/* A part that replaces an unsupported escape: nothing for a word boundary, any text for the text of a group. */
static ek_err stand_in(ek_regex_reader *p, int escape, part *out)
{
    int32_t any, set;
    p->w->cut = true;
    p->at += 2;
    if (escape == 'b' || escape == 'B') return empty_part(p, out);
    while (escape != 'k' && ek_regex_peek(p, 0) >= '0' && ek_regex_peek(p, 0) <= '9') p->at++;
    while (escape == 'k' && p->at < p->n && p->s[p->at++] != '>') continue;
    EK_TRY(ek_regex_any_set(p, &set));
    EK_TRY(add_node(p, EK_REGEX_EMPTY, -1, -1, &out->end));
    EK_TRY(add_node(p, EK_REGEX_CHAR, -1, set, &any));
    EK_TRY(add_node(p, EK_REGEX_EITHER, any, out->end, &out->start));
    p->w->node[any].a = out->start;
    return EK_OK;
}

/* *repeats: whether a quantifier may follow. */
static ek_err read_atom(ek_regex_reader *p, part *out, bool *repeats)
{
    int c = ek_regex_peek(p, 0), min, max;
    int32_t set;
    *repeats = c != '^' && c != '$';
    if (!*repeats) {
        p->at++;
        return single_part(p, c == '^' ? EK_REGEX_BEGIN : EK_REGEX_END, -1, out);
    }
    if (c == '(') {
        p->at++;
        return group(p, out);
    }
    size_t at = p->at;
    if (p->w->lenient && c == '\\') {
        int d = ek_regex_peek(p, 1);
        if (d == 'b' || d == 'B' || (d >= '1' && d <= '9') || d == 'k') return stand_in(p, d, out);
    }
    if (read_quantifier(p, &min, &max)) {
        p->at = at;
        return ek_regex_refuse(p, "nothing to repeat");
    }
    EK_TRY(ek_regex_read_set(p, &set));
    return single_part(p, EK_REGEX_CHAR, set, out);
}

static ek_err atom(ek_regex_reader *p, part *out, bool *repeats)
{
    size_t from = p->at;
    EK_TRY(read_atom(p, out, repeats));
    return ek_regex_spend(p->w, (int64_t)(p->at - from));
}

/* Repeats x, which was read from `from` on, min to max times. */
static ek_err repeat(ek_regex_reader *p, part x, size_t from, int min, int max, part *out)
{
    part y = x, end;
    bool repeats;
    size_t after = p->at;
    EK_TRY(empty_part(p, out));
    EK_TRY(empty_part(p, &end));
    for (int i = 0; i < min || i < max || (i == 0 && max == NO_MAX); i++) {
        p->at = from;
        if (i > 0) EK_TRY(atom(p, &y, &repeats));
        if (i >= min) { /* one more, or no more */
            int32_t choice;
            EK_TRY(add_node(p, EK_REGEX_EITHER, y.start, end.start, &choice));
            y.start = choice;
        }
        append(p, out, y);
    }
    p->at = after;
    if (max == NO_MAX) { /* the last one again */
        int32_t again;
        EK_TRY(add_node(p, EK_REGEX_EITHER, y.start, end.start, &again));
        p->w->node[out->end].a = again;
    } else {
        p->w->node[out->end].a = end.start;
    }
    out->end = end.end;
    return EK_OK;
}

static ek_err term(ek_regex_reader *p, part *out)
{
    size_t from = p->at;
    bool repeats;
    int min, max;
    EK_TRY(atom(p, out, &repeats));
    size_t after = p->at;
    if (!read_quantifier(p, &min, &max)) return EK_OK;
    EK_TRY(ek_regex_spend(p->w, (int64_t)(p->at - after)));
    if (!repeats) {
        p->at = after;
        return ek_regex_refuse(p, "nothing to repeat");
    }
    if (max != NO_MAX && max < min) return ek_regex_refuse(p, "at least %d and at most %d times", min, max);
    return repeat(p, *out, from, min, max, out);
}

static ek_err sequence(ek_regex_reader *p, part *out)
{
    EK_TRY(empty_part(p, out));
    while (p->at < p->n && ek_regex_peek(p, 0) != '|' && ek_regex_peek(p, 0) != ')') {
        part x;
        EK_TRY(term(p, &x));
        append(p, out, x);
    }
    return EK_OK;
}

static ek_err alternatives(ek_regex_reader *p, part *out)
{
    EK_TRY(sequence(p, out));
    while (ek_regex_peek(p, 0) == '|') {
        part x, end;
        p->at++;
        EK_TRY(sequence(p, &x));
        EK_TRY(empty_part(p, &end));
        p->w->node[out->end].a = p->w->node[x.end].a = end.start;
        EK_TRY(add_node(p, EK_REGEX_EITHER, out->start, x.start, &out->start));
        out->end = end.end;
    }
    return EK_OK;
}

/* A match may begin anywhere: characters before it, the expression, and what follows does not matter. */
ek_err ek_regex_parse(ek_regex_work *w, const char *pattern, size_t n)
{
    ek_regex_reader p = {.w = w, .s = pattern, .n = n};
    int32_t any, match, skip;
    part x;
    EK_TRY(ek_regex_any_set(&p, &any));
    EK_TRY(alternatives(&p, &x));
    if (p.at < n) return ek_regex_refuse(&p, "a parenthesis is closed that was not opened");
    EK_TRY(add_node(&p, EK_REGEX_MATCH, -1, -1, &match));
    w->node[x.end].a = match;
    EK_TRY(add_node(&p, EK_REGEX_CHAR, -1, any, &skip));
    EK_TRY(add_node(&p, EK_REGEX_EITHER, x.start, skip, &w->start));
    w->node[skip].a = w->start;
    return EK_OK;
}
