/* Automata of regular expressions: stepping, conjunction, and the common part of their construction. */
#include "text/regex/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/regex/regex_work.h"

enum { DEAD = -1, NEVER = INT32_MAX };

/* --- growing --- */

ek_regex *ek_regex_new(void)
{
    ek_regex *r = ek_alloc(sizeof *r);
    r->edge = ek_alloc(sizeof *r->edge * EK_REGEX_EDGES);
    r->first = ek_alloc(sizeof *r->first * (EK_REGEX_STATES + 1));
    r->accepts = ek_alloc(sizeof *r->accepts * EK_REGEX_STATES);
    return r;
}

void ek_regex_close(ek_regex *r)
{
    if (!r) return;
    free(r->first);
    free(r->edge);
    free(r->accepts);
    free(r->least);
    free(r);
}

size_t ek_regex_bytes(const ek_regex *r)
{
    return sizeof *r + sizeof *r->edge * (size_t)r->n_edges +
           (sizeof *r->first + sizeof *r->accepts + sizeof *r->least) * (size_t)(r->n_states + 1);
}

ek_err ek_regex_add_state(ek_regex *r, bool accepts)
{
    if (r->n_states == EK_REGEX_STATES)
        return ek_fail(EK_ETOOLARGE, "its automaton has more than %d states", EK_REGEX_STATES);
    r->accepts[r->n_states] = accepts;
    r->first[r->n_states++] = r->n_edges;
    r->first[r->n_states] = r->n_edges;
    return EK_OK;
}

static ek_err add_edge(ek_regex *r, uint32_t lo, uint32_t hi, int32_t to)
{
    ek_regex_edge *last = r->n_edges > r->first[r->n_states - 1] ? &r->edge[r->n_edges - 1] : NULL;
    if (last && last->to == to && last->hi + 1 == lo) {
        last->hi = hi;
        return EK_OK;
    }
    if (r->n_edges == EK_REGEX_EDGES)
        return ek_fail(EK_ETOOLARGE, "its automaton has more than %d edges", EK_REGEX_EDGES);
    r->edge[r->n_edges++] = (ek_regex_edge){lo, hi, to};
    r->first[r->n_states] = r->n_edges;
    return EK_OK;
}

ek_err ek_regex_add_edge(ek_regex *r, uint32_t lo, uint32_t hi, int32_t to)
{
    enum { FROM = 0xd800, TO = 0xdfff }; /* surrogates */
    if (lo < FROM) EK_TRY(add_edge(r, lo, hi < FROM ? hi : FROM - 1, to));
    if (hi > TO) EK_TRY(add_edge(r, lo > TO ? lo : TO + 1, hi, to));
    return EK_OK;
}

/* --- distances to a match --- */

/* Computes the characters from each state to the nearest match: backwards from accepting states, in rings. */
static void find_least(ek_regex *r)
{
    size_t n = (size_t)r->n_states;
    int32_t *from = ek_alloc(sizeof *from * ((size_t)r->n_edges + 1)), *first = ek_alloc(sizeof *first * (n + 2)),
            *queue = ek_alloc(sizeof *queue * (n + 1));
    r->least = ek_alloc(sizeof *r->least * (n + 1));
    for (int e = 0; e < r->n_edges; e++) first[r->edge[e].to + 2]++;
    for (size_t s = 2; s < n + 2; s++) first[s] += first[s - 1];
    for (int s = 0; s < r->n_states; s++)
        for (int e = r->first[s]; e < r->first[s + 1]; e++) from[first[r->edge[e].to + 1]++] = s;
    int n_queue = 0;
    for (int s = 0; s < r->n_states; s++) {
        r->least[s] = r->accepts[s] ? 0 : NEVER;
        if (r->accepts[s]) queue[n_queue++] = s;
    }
    for (int i = 0; i < n_queue; i++)
        for (int e = first[queue[i]]; e < first[queue[i] + 1]; e++) {
            if (r->least[from[e]] != NEVER) continue;
            r->least[from[e]] = r->least[queue[i]] + 1;
            queue[n_queue++] = from[e];
        }
    free(from);
    free(first);
    free(queue);
}

static void shrink(ek_regex *r)
{
    r->edge = ek_realloc(r->edge, sizeof *r->edge * (size_t)(r->n_edges + 1));
    r->first = ek_realloc(r->first, sizeof *r->first * (size_t)(r->n_states + 1));
    r->accepts = ek_realloc(r->accepts, sizeof *r->accepts * (size_t)r->n_states);
    r->least = ek_realloc(r->least, sizeof *r->least * (size_t)r->n_states);
}

ek_err ek_regex_finish(ek_regex **out, ek_regex *r)
{
    int n_states = 0, n_edges = 0;
    int32_t *is = ek_alloc(sizeof *is * (size_t)(r->n_states + 1));
    find_least(r);
    for (int s = 0; s < r->n_states; s++) is[s] = r->least[s] == NEVER ? DEAD : n_states++;
    for (int s = 0; s < r->n_states; s++) {
        int from = r->first[s], to = r->first[s + 1];
        if (is[s] == DEAD) continue;
        r->first[is[s]] = n_edges; /* never beyond the edges that are still to be read */
        for (int e = from; e < to; e++) {
            if (is[r->edge[e].to] == DEAD) continue;
            r->edge[n_edges] = r->edge[e];
            r->edge[n_edges++].to = is[r->edge[e].to];
        }
        r->accepts[is[s]] = r->accepts[s];
        r->least[is[s]] = r->least[s];
    }
    bool empty = is[0] == DEAD;
    free(is);
    if (empty) {
        ek_regex_close(r);
        return ek_fail(EK_EINVAL, "no text matches it");
    }
    r->n_states = n_states;
    r->n_edges = n_edges;
    r->first[n_states] = n_edges;
    shrink(r);
    *out = r;
    return EK_OK;
}

/* --- conjunction --- */

typedef struct product {
    const ek_regex *a, *b;
    ek_regex *r;
    int32_t *pair; /* [EK_REGEX_STATES * 2] */
    int n_pairs;
    int32_t table[4 * EK_REGEX_STATES]; /* open addressing: 1 + the pair's number */
} product;

static ek_err pair_of(product *p, int32_t a, int32_t b, int32_t *out)
{
    uint32_t mask = 4 * EK_REGEX_STATES - 1, i = (uint32_t)ek_mix64((uint64_t)a << 32 | (uint32_t)b) & mask;
    for (; p->table[i]; i = (i + 1) & mask) {
        *out = p->table[i] - 1;
        if (p->pair[2 * *out] == a && p->pair[2 * *out + 1] == b) return EK_OK;
    }
    if (p->n_pairs == EK_REGEX_STATES)
        return ek_fail(EK_ETOOLARGE, "its automaton has more than %d states", EK_REGEX_STATES);
    p->pair[2 * p->n_pairs] = a;
    p->pair[2 * p->n_pairs + 1] = b;
    *out = p->n_pairs++;
    p->table[i] = p->n_pairs;
    return EK_OK;
}

static ek_err pair_edges(product *p, int32_t a, int32_t b)
{
    int i = p->a->first[a], k = p->b->first[b];
    EK_TRY(ek_regex_add_state(p->r, p->a->accepts[a] && p->b->accepts[b]));
    while (i < p->a->first[a + 1] && k < p->b->first[b + 1]) {
        const ek_regex_edge *x = &p->a->edge[i], *y = &p->b->edge[k];
        uint32_t lo = x->lo > y->lo ? x->lo : y->lo, hi = x->hi < y->hi ? x->hi : y->hi;
        int32_t to;
        if (lo <= hi) {
            EK_TRY(pair_of(p, x->to, y->to, &to));
            EK_TRY(ek_regex_add_edge(p->r, lo, hi, to));
        }
        if (x->hi <= y->hi) i++;
        if (y->hi <= x->hi) k++;
    }
    return EK_OK;
}

ek_err ek_regex_and(ek_regex **out, const ek_regex *a, const ek_regex *b)
{
    product *p = ek_alloc(sizeof *p);
    int32_t start;
    *p = (product){.a = a, .b = b, .r = ek_regex_new(), .pair = ek_alloc(sizeof *p->pair * 2 * EK_REGEX_STATES)};
    ek_err err = pair_of(p, 0, 0, &start);
    for (int i = 0; i < p->n_pairs && !err; i++) err = pair_edges(p, p->pair[2 * i], p->pair[2 * i + 1]);
    if (err) ek_regex_close(p->r);
    else err = ek_regex_finish(out, p->r);
    free(p->pair);
    free(p);
    return err;
}

/* --- following a text --- */

/* The edge by a character, or NULL. */
static const ek_regex_edge *regex_edge_of(const ek_regex *r, int32_t state, uint32_t cp)
{
    int lo = r->first[state], hi = r->first[state + 1];
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (r->edge[mid].hi < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < r->first[state + 1] && r->edge[lo].lo <= cp ? &r->edge[lo] : NULL;
}

int32_t ek_regex_step(const ek_regex *r, int32_t state, uint32_t cp)
{
    const ek_regex_edge *e = regex_edge_of(r, state, cp);
    return e ? e->to : DEAD;
}

bool ek_regex_is_free(const ek_regex *r, int32_t state)
{
    const ek_regex_edge *e = &r->edge[r->first[state]];
    return r->accepts[state] && r->first[state + 1] - r->first[state] == 2 && e[0].to == state && e[1].to == state &&
           e[0].lo == 0 && e[0].hi + 1 == 0xd800 && e[1].lo == 0xe000 && e[1].hi == EK_REGEX_LAST;
}
