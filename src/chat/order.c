#include "chat/order.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "text/utf8.h"

/* A block in its place. */
typedef struct ref {
    int message, block; /* block -1: the message has none */
    int call;           /* -1 */
    int group;          /* of calls; -1: what stands between groups */
} ref;

/* Calls of one message without anything visible between them. */
typedef struct group {
    int from, to; /* refs */
    int end;      /* the message of the last result, or of their own; -1: none of them has a result */
} group;

typedef struct run {
    const ek_conversation *c;
    const ek_pairs *p;
    ek_steps *out;
    ref *refs;
    group *groups;
    int n_refs, n_groups, last_answered; /* last_answered: the last group with results; -1 */
    /* The group whose place is not settled: its calls, from several groups where none but one has results. */
    int *held, n_held, end;
} run;

bool ek_block_shows(const ek_block *b)
{
    if (b->kind == EK_BLOCK_MEDIA) return true;
    if (b->kind != EK_BLOCK_TEXT) return false;
    const char *s = ek_buf_text(&b->text);
    size_t n = b->text.len;
    ek_utf8_strip(&s, &n);
    return n > 0;
}

/* Does the block stand between the calls before and behind it? */
static bool separates(const ek_block *b)
{
    return b->kind == EK_BLOCK_REASONING || ek_block_shows(b);
}

static void add_ref(run *r, int message, int block, int call)
{
    const ek_block *b = block < 0 ? NULL : &r->c->messages[message].blocks[block];
    ref *last = r->n_refs ? &r->refs[r->n_refs - 1] : NULL;
    bool goes_on = last && last->group >= 0 && last->message == message && b && !separates(b);
    if (!goes_on && call >= 0) r->groups[r->n_groups++] = (group){r->n_refs, r->n_refs, -1};
    bool grouped = goes_on || call >= 0;
    r->refs[r->n_refs++] = (ref){message, block, call, grouped ? r->n_groups - 1 : -1};
    if (!grouped) return;
    group *g = &r->groups[r->n_groups - 1];
    int end = call >= 0 ? r->p->calls[call].last : b->kind == EK_BLOCK_RESULT ? message : -1;
    g->to = r->n_refs;
    if (end > g->end) g->end = end;
    if (g->end >= 0) r->last_answered = r->n_groups - 1;
}

static void add_message(run *r, int i)
{
    const ek_message *m = &r->c->messages[i];
    int call = r->p->first_call[i];
    if (m->n_blocks == 0) add_ref(r, i, -1, -1);
    for (int b = 0; b < m->n_blocks; b++) {
        bool is_call = m->blocks[b].kind == EK_BLOCK_CALL;
        int k = is_call ? call++ : -1;
        if (is_call && m->blocks[b].cut && r->p->calls[k].first < 0) continue; /* it was never made */
        add_ref(r, i, b, k);
    }
}

static ek_step *put(run *r, const ref *f)
{
    ek_steps *s = r->out;
    const ek_message *m = &r->c->messages[f->message];
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->at = ek_realloc(s->at, (size_t)s->cap * sizeof *s->at);
    }
    s->at[s->n] = (ek_step){m, f->block < 0 ? NULL : &m->blocks[f->block], f->call, false, false};
    return &s->at[s->n++];
}

/* What stands in refs[from..to), up to the first one of message end. Returns where it stopped. */
static int put_between(run *r, int from, int to, int end)
{
    while (from < to && r->refs[from].message < end) put(r, &r->refs[from++]);
    return from;
}

static void hold(run *r, const group *g)
{
    for (int i = g->from; i < g->to; i++) r->held[r->n_held++] = i;
    if (g->end > r->end) r->end = g->end;
}

static void close_group(run *r)
{
    for (int i = 0; i < r->n_held; i++) {
        ek_step *s = put(r, &r->refs[r->held[i]]);
        s->joins = i > 0;
        s->closes = i + 1 == r->n_held;
    }
    r->n_held = 0;
    r->end = -1;
}

/* What stands in refs[from..to) is between the held calls and the group next, or the end of the run (NULL). */
static void settle(run *r, int from, int to, const group *next)
{
    enum { EVERYTHING = INT32_MAX };
    bool answered = r->end >= 0;
    bool complete = answered && (!next || r->end < r->refs[next->from].message);
    bool join = next && !complete && (answered ? next->end < 0 : r->last_answered >= next - r->groups);
    if (complete) from = put_between(r, from, to, r->end);
    if (join && r->n_held > 0) {
        put_between(r, from, to, EVERYTHING);
    } else {
        close_group(r);
        put_between(r, from, to, EVERYTHING);
    }
    if (next) hold(r, next);
}

static int collect(run *r, int first)
{
    int i = first, n = 0;
    for (; i < r->c->n_messages; i++) {
        ek_role role = r->c->messages[i].role;
        if (role != EK_ROLE_ASSISTANT && role != EK_ROLE_TOOL) break;
        if (role == EK_ROLE_ASSISTANT) n += r->c->messages[i].n_blocks + 1;
    }
    r->refs = ek_alloc((size_t)(n + 1) * sizeof *r->refs);
    r->groups = ek_alloc((size_t)(n + 1) * sizeof *r->groups);
    r->held = ek_alloc((size_t)(n + 1) * sizeof *r->held);
    for (int k = first; k < i; k++)
        if (r->c->messages[k].role == EK_ROLE_ASSISTANT) add_message(r, k);
    return i;
}

int ek_order_run(ek_steps *out, const ek_conversation *c, const ek_pairs *p, int first)
{
    run r = {.c = c, .p = p, .out = out, .last_answered = -1, .end = -1};
    int behind = collect(&r, first), from = 0;
    out->n = 0;
    for (int g = 0; g < r.n_groups; g++) {
        settle(&r, from, r.groups[g].from, &r.groups[g]);
        from = r.groups[g].to;
    }
    settle(&r, from, r.n_refs, NULL);
    free(r.refs);
    free(r.groups);
    free(r.held);
    return behind;
}

void ek_steps_fini(ek_steps *s)
{
    free(s->at);
    *s = (ek_steps){0};
}
