/* What a row depends on: numbers that no token can reach make no difference. Without this, each place in a long string,
 * each level of a recursive schema and each item of a list would have rows of its own. */
#include <string.h>

#include "base/hash/rng.h"
#include "text/grammar/vocab_data.h"

static uint32_t at_most(uint32_t x, uint32_t limit)
{
    return x < limit ? x : limit;
}

const ek_pattern *ek_grammar_pattern(const ek_walk *w, const ek_frame *f)
{
    const ek_node *n = f->node < 0 ? NULL : &w->g->graph.nodes[f->node];
    if (!n || n->kind != EK_NODE_STRING || n->pattern < 0) return NULL;
    const ek_pattern *p = w->g->graph.patterns[n->pattern];
    return ek_regex_is_free(p->regex, (int32_t)(f->v & UINT32_MAX)) ? NULL : p;
}

/* How many more there may and must be after `count`. */
static uint32_t left(uint32_t max, uint32_t count, uint32_t limit)
{
    return at_most(max == UINT32_MAX ? max : max - count, limit);
}
static uint32_t missing(uint32_t min, uint32_t count, uint32_t limit)
{
    return at_most(min > count ? min - count : 0, limit);
}

/* Depths count only near the limit: a token opens so many values. */
static uint16_t depth_of(const ek_vocab *v, const ek_grammar *g, const ek_frame *f)
{
    int deepest = EK_GRAPH_DEPTH - (v->opening + g->max_depth + 2);
    return f->depth < deepest ? 0 : f->depth;
}

static void simplify(const ek_vocab *v, const ek_walk *w, ek_frame *f)
{
    const ek_node *n = f->node < 0 ? NULL : &w->g->graph.nodes[f->node];
    const ek_pattern *p = ek_grammar_pattern(w, f);
    f->up = 0;
    f->depth = depth_of(v, w->g, f);
    if (p) { /* beyond the minimum no match is further away than the automaton has states */
        uint32_t some = missing(n->min, f->a, UINT32_MAX);
        f->up = (int32_t)left(n->max, f->a, some + (uint32_t)v->longest + (uint32_t)p->regex->n_states);
        f->a = some;
    } else if (n && n->kind == EK_NODE_STRING) {
        f->a = left(n->max, f->a, (uint32_t)v->longest) << 16 | missing(n->min, f->a, (uint32_t)v->longest);
    } else if (n && n->kind == EK_NODE_ARRAY && f->v >= (uint64_t)n->n) { /* behind each further item is a comma */
        uint32_t items = (uint32_t)f->v, limit = (uint32_t)v->commas + 2;
        f->v = (uint64_t)1 << 63 | (uint64_t)left(n->max, items, limit) << 32 | missing(n->min, items, limit);
    }
}

void ek_grammar_key(const ek_vocab *v, const ek_walk *w, int32_t top, ek_row_key *key)
{
    memcpy(key->grammar, w->g->id, sizeof key->grammar);
    key->n = 0;
    /* the value at the top may end by itself; each frame below ends by a bracket of its own */
    for (int32_t at = top; at != EK_NO_FRAME && key->n < v->closing + 3; at = w->f[at].up) {
        key->frame[key->n] = w->f[at];
        simplify(v, w, &key->frame[key->n++]);
    }
    uint64_t seed;
    memcpy(&seed, key->grammar, sizeof seed);
    key->hash = ek_hash64(seed, key->frame, sizeof *key->frame * (uint64_t)key->n);
}
