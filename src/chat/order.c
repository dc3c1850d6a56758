#include "chat/order.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "text/utf8.h"

/* A block with its position. */
typedef struct ref {
    int message, block; /* block -1: the message has none */
    int call;           /* -1 */
    int group;          /* the group of a call; -1: the block stands between groups */
} ref;

/* Calls of one message with no visible block between them. */
typedef struct group {
    int from, to; /* refs */
    int end;      /* the message of the calls' last result, or else of the calls; -1: no call has a result */
} group;

typedef struct run {
    const ek_conversation *c;
    const ek_pairs *p;
    ek_steps *out;
    ref *refs;
    group *groups;
    int n_refs, n_groups, cap_groups, last_answered; /* last_answered: the last group with results; -1: none */
    /* The groups whose place is not decided: one group, or several groups of which one has results. */
    int held_from, held_to, end;
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

/* Whether the block separates the calls before it from the calls after it. */
static bool separates(const ek_block *b)
{
    return b->kind == EK_BLOCK_REASONING || ek_block_shows(b);
}

static void add_group(run *r)
{
    if (r->n_groups == r->cap_groups) {
        r->cap_groups = r->cap_groups ? 2 * r->cap_groups : 8;
        r->groups = ek_realloc(r->groups, (size_t)r->cap_groups * sizeof *r->groups);
    }
    r->groups[r->n_groups++] = (group){r->n_refs, r->n_refs, -1};
}

static void add_ref(run *r, int message, int block, int call)
{
    const ek_block *b = block < 0 ? NULL : &r->c->messages[message].blocks[block];
    ref *last = r->n_refs ? &r->refs[r->n_refs - 1] : NULL;
    bool goes_on = last && last->group >= 0 && last->message == message && b && !separates(b);
    if (!goes_on && call >= 0) add_group(r);
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

static ek_order_step *put(run *r, const ref *f)
{
    ek_steps *s = r->out;
    const ek_message *m = &r->c->messages[f->message];
    s->at[s->n] = (ek_order_step){m, f->block < 0 ? NULL : &m->blocks[f->block], f->call, false, false};
    return &s->at[s->n++];
}

/* Writes the blocks between groups in refs[from..to), up to the first block of message end. Returns the position after
 * them. */
static int put_between(run *r, int from, int to, int end)
{
    while (from < to && r->refs[from].message < end) put(r, &r->refs[from++]);
    return from;
}

static void hold(run *r, int g)
{
    if (r->held_from == r->held_to) r->held_from = g;
    r->held_to = g + 1;
    if (r->groups[g].end > r->end) r->end = r->groups[g].end;
}

static void close_groups(run *r)
{
    for (int g = r->held_from; g < r->held_to; g++)
        for (int i = r->groups[g].from; i < r->groups[g].to; i++) {
            ek_order_step *s = put(r, &r->refs[i]);
            s->joins = g > r->held_from || i > r->groups[g].from;
            s->closes = g + 1 == r->held_to && i + 1 == r->groups[g].to;
        }
    r->held_from = r->held_to;
    r->end = -1;
}

/* Settles the held groups. refs[from..to) stand between them and the group next, or the end of the run (n_groups). */
static void settle(run *r, int from, int to, int next)
{
    enum { EVERYTHING = INT32_MAX };
    const group *g = next < r->n_groups ? &r->groups[next] : NULL;
    bool answered = r->end >= 0;
    bool complete = answered && (!g || r->end < r->refs[g->from].message);
    bool join = g && !complete && (answered ? g->end < 0 : r->last_answered >= next);
    if (complete) from = put_between(r, from, to, r->end);
    if (!join) close_groups(r);
    put_between(r, from, to, EVERYTHING);
    if (g) hold(r, next);
}

static int collect(run *r, int first)
{
    int i = first, n = 0;
    for (; i < r->c->n_messages; i++) {
        ek_role role = r->c->messages[i].role;
        if (role != EK_ROLE_ASSISTANT && role != EK_ROLE_TOOL) break;
        if (role == EK_ROLE_ASSISTANT) n += r->c->messages[i].n_blocks + (r->c->messages[i].n_blocks == 0);
    }
    r->refs = ek_alloc((size_t)(n + 1) * sizeof *r->refs);
    for (int k = first; k < i; k++)
        if (r->c->messages[k].role == EK_ROLE_ASSISTANT) add_message(r, k);
    return i;
}

int ek_order_run(ek_steps *out, const ek_conversation *c, const ek_pairs *p, int first)
{
    run r = {.c = c, .p = p, .out = out, .last_answered = -1, .end = -1};
    int behind = collect(&r, first), from = 0;
    if (out->cap < r.n_refs) out->at = ek_realloc(out->at, (size_t)(out->cap = r.n_refs) * sizeof *out->at);
    out->n = 0;
    for (int g = 0; g < r.n_groups; g++) {
        settle(&r, from, r.groups[g].from, g);
        from = r.groups[g].to;
    }
    settle(&r, from, r.n_refs, r.n_groups);
    free(r.refs);
    free(r.groups);
    return behind;
}

void ek_steps_fini(ek_steps *s)
{
    free(s->at);
    *s = (ek_steps){0};
}
