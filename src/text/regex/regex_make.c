/* From the nodes of an expression to its automaton: a state is the set of nodes that a text may have reached. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/regex/regex_work.h"

enum { ARENA = 1 << 20, TABLE = 4 * EK_REGEX_STATES };

typedef struct maker {
    ek_regex_work *w;
    ek_regex *r;
    /* sets of nodes: arena[at[s] .. at[s + 1]), ascending. The first is the beginning, which no other state equals */
    int32_t *arena, at[EK_REGEX_STATES + 1], n_sets;
    int32_t table[TABLE]; /* open addressing: 1 + a set's number */
    uint32_t *seen, mark; /* per node: number of the last closure that reached it */
    int32_t *todo;        /* [2 * nodes]: a node waits once per path to it */
    int32_t *now;         /* [nodes]: the closure that is being made */
    int n_now;
    bool match;
    /* borders of the state whose edges are being made */
    uint32_t *border; /* the beginnings of sets of characters, and their ends + 1 */
    int n_borders;
    int32_t *chars; /* [sets]: sets of characters, each once */
    int n_chars;
    uint32_t *char_seen, char_mark;
} maker;

/* Adds `node` and all nodes reachable without a character to the closure; matches at an end count if `at_end`. */
static ek_err reach(maker *m, int32_t node, bool at_start, bool at_end)
{
    int n = 0;
    m->todo[n++] = node;
    while (n > 0) {
        int32_t i = m->todo[--n];
        const ek_regex_node *x = &m->w->node[i];
        if (m->seen[i] == m->mark) continue;
        m->seen[i] = m->mark;
        EK_TRY(ek_regex_spend(m->w, 1));
        switch ((ek_regex_kind)x->kind) {
        case EK_REGEX_CHAR: m->now[m->n_now++] = i; break;
        case EK_REGEX_EMPTY: m->todo[n++] = x->a; break;
        case EK_REGEX_EITHER:
            m->todo[n++] = x->b;
            m->todo[n++] = x->a;
            break;
        case EK_REGEX_BEGIN:
            if (at_start) m->todo[n++] = x->a;
            break;
        case EK_REGEX_END:
            if (at_end) m->todo[n++] = x->a;
            else m->now[m->n_now++] = i;
            break;
        case EK_REGEX_MATCH: m->match = true; break;
        }
    }
    return EK_OK;
}

static void begin_closure(maker *m)
{
    m->mark++;
    m->n_now = 0;
    m->match = false;
}

static int by_number(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* The state of the closure. After a match anything may follow, so all matches share one state: the set of no nodes. */
static ek_err state_of(maker *m, int32_t *out)
{
    if (m->match) m->n_now = 0;
    size_t n = (size_t)m->n_now, bytes = sizeof *m->now * n;
    if (n > 1) qsort(m->now, n, sizeof *m->now, by_number);
    EK_TRY(ek_regex_spend(m->w, m->n_now));
    uint32_t i = (uint32_t)ek_hash64(n, m->now, bytes) % TABLE;
    for (; m->table[i]; i = (i + 1) % TABLE) {
        int32_t s = m->table[i] - 1;
        *out = s;
        if (m->at[s + 1] - m->at[s] == m->n_now && !memcmp(m->arena + m->at[s], m->now, bytes)) return EK_OK;
    }
    if (m->n_sets == EK_REGEX_STATES)
        return ek_fail(EK_ETOOLARGE, "its automaton has more than %d states", EK_REGEX_STATES);
    if ((size_t)(ARENA - m->at[m->n_sets]) < n)
        return ek_fail(EK_ETOOLARGE, "the states of its automaton have more than %d parts", ARENA);
    memcpy(m->arena + m->at[m->n_sets], m->now, bytes);
    *out = m->n_sets++;
    m->at[m->n_sets] = m->at[*out] + m->n_now;
    if (*out > 0) m->table[i] = *out + 1;
    return EK_OK;
}

static int by_size(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Finds the borders: between two of them each set holds all characters or none. */
static ek_err find_borders(maker *m, int32_t s)
{
    m->char_mark++;
    m->n_borders = m->n_chars = 0;
    for (int32_t i = m->at[s]; i < m->at[s + 1]; i++) {
        const ek_regex_node *x = &m->w->node[m->arena[i]];
        if (x->kind != EK_REGEX_CHAR || m->char_seen[x->b] == m->char_mark) continue;
        m->char_seen[x->b] = m->char_mark;
        m->chars[m->n_chars++] = x->b;
        const ek_regex_set *set = &m->w->set[x->b];
        for (int k = 0; k < set->n; k++) {
            m->border[m->n_borders++] = m->w->range[set->first + k].lo;
            m->border[m->n_borders++] = m->w->range[set->first + k].hi + 1;
        }
    }
    EK_TRY(ek_regex_spend(m->w, m->at[s + 1] - m->at[s] + 4 * m->n_borders));
    if (m->n_borders > 1) qsort(m->border, (size_t)m->n_borders, sizeof *m->border, by_size);
    int n = 0;
    for (int i = 0; i < m->n_borders; i++)
        if (n == 0 || m->border[n - 1] != m->border[i]) m->border[n++] = m->border[i];
    m->n_borders = n;
    return EK_OK;
}

static bool holds(const ek_regex_work *w, int32_t set, uint32_t cp)
{
    const ek_regex_range *r = w->range + w->set[set].first;
    int lo = 0, hi = w->set[set].n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (r[mid].hi < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < w->set[set].n && r[lo].lo <= cp;
}

static ek_err make_edges(maker *m, int32_t s)
{
    EK_TRY(find_borders(m, s));
    for (int i = 0; i + 1 < m->n_borders; i++) {
        bool any = false;
        int32_t to;
        m->char_mark++;
        EK_TRY(ek_regex_spend(m->w, 2 * m->n_chars + m->at[s + 1] - m->at[s]));
        for (int k = 0; k < m->n_chars; k++)
            if (holds(m->w, m->chars[k], m->border[i])) m->char_seen[m->chars[k]] = m->char_mark, any = true;
        if (!any) continue;
        begin_closure(m);
        for (int32_t k = m->at[s]; k < m->at[s + 1]; k++) {
            const ek_regex_node *x = &m->w->node[m->arena[k]];
            if (x->kind == EK_REGEX_CHAR && m->char_seen[x->b] == m->char_mark) EK_TRY(reach(m, x->a, false, false));
        }
        EK_TRY(state_of(m, &to));
        EK_TRY(ek_regex_add_edge(m->r, m->border[i], m->border[i + 1] - 1, to));
    }
    return EK_OK;
}

static ek_err accepts(maker *m, int32_t s, bool *yes)
{
    begin_closure(m);
    *yes = false;
    if (s == 0) EK_TRY(reach(m, m->w->start, true, true));
    for (int32_t k = m->at[s]; k < m->at[s + 1]; k++) {
        int32_t i = m->arena[k];
        if (m->w->node[i].kind == EK_REGEX_END) EK_TRY(reach(m, i, false, true));
    }
    *yes = m->match || (s > 0 && m->at[s] == m->at[s + 1]);
    return EK_OK;
}

static ek_err make(maker *m)
{
    int32_t start;
    begin_closure(m);
    EK_TRY(reach(m, m->w->start, true, false));
    bool free = m->match; /* the empty text matches, so any text does */
    if (free) m->n_now = 0;
    EK_TRY(state_of(m, &start));
    for (int32_t s = 0; s < m->n_sets; s++) {
        bool yes;
        EK_TRY(accepts(m, s, &yes));
        EK_TRY(ek_regex_add_state(m->r, yes));
        if (m->at[s] < m->at[s + 1] || (s == 0 && !free)) EK_TRY(make_edges(m, s));
        else EK_TRY(ek_regex_add_edge(m->r, 0, EK_REGEX_LAST, s));
    }
    return EK_OK;
}

ek_err ek_regex_open_within(ek_regex **out, const char *pattern, size_t n, int64_t *left)
{
    return ek_regex_open_lenient(out, pattern, n, left, NULL);
}

ek_err ek_regex_open_lenient(ek_regex **out, const char *pattern, size_t n, int64_t *left, bool *cut)
{
    ek_regex_work w = {.max = *left < EK_REGEX_WORK ? *left : EK_REGEX_WORK, .lenient = cut != NULL};
    *out = NULL;
    ek_err err = ek_regex_parse(&w, pattern, n);
    if (err) {
        *left -= w.work;
        ek_regex_work_fini(&w);
        return err;
    }
    if (cut) *cut = w.cut;
    size_t nodes = (size_t)w.n_nodes, sets = (size_t)w.n_sets;
    maker *m = ek_alloc(sizeof *m);
    *m = (maker){.w = &w,
                 .r = ek_regex_new(),
                 .arena = ek_alloc(sizeof *m->arena * ARENA),
                 .seen = ek_alloc(sizeof *m->seen * nodes),
                 .todo = ek_alloc(sizeof *m->todo * (2 * nodes + 1)),
                 .now = ek_alloc(sizeof *m->now * nodes),
                 .border = ek_alloc(sizeof *m->border * (2 * (size_t)w.n_ranges + 1)),
                 .chars = ek_alloc(sizeof *m->chars * sets),
                 .char_seen = ek_alloc(sizeof *m->char_seen * sets)};
    err = make(m);
    if (err) ek_regex_close(m->r);
    else err = ek_regex_finish(out, m->r);
    free(m->arena);
    free(m->seen);
    free(m->todo);
    free(m->now);
    free(m->border);
    free(m->chars);
    free(m->char_seen);
    free(m);
    *left -= w.work;
    ek_regex_work_fini(&w);
    return err;
}
