#include "engine/ahead.h"

#include "engine/draft.h"
#include "engine/sample/sampler.h"

/* Whether r, scheduled in the step in front, is known to have one row behind it if its token does not end it. */
static bool goes_on(const ek_engine *e, const ek_scheduled *s)
{
    const ek_request *r = s->req;
    return s->n_draws == 1 && s->n_draft == 0 && !r->mask.look && !r->reply_logits &&
           !ek_sampling_has_penalties(&r->sampling) && !ek_draft_promises(e, r);
}

static bool is_poked(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const bool poked = e->poked;
    pthread_mutex_unlock(&e->lock);
    return poked;
}

/* A drafter would be asked for the token behind each, and a request that could be admitted would wait a step longer. */
static bool can_begin(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    int n = 0;
    if (!e->on.begin || p->draft || (e->waiting && e->n_running < e->opts.max_requests)) return false;
    for (int i = 0; i < p->n_scheduled; i++) {
        if (!p->scheduled[i].req) continue;
        if (!goes_on(e, &p->scheduled[i])) return false;
        n++;
    }
    return n == e->n_running && !is_poked(e);
}

/* The row behind the token that s will draw. */
static void lay_out(ek_plan *a, const ek_scheduled *s)
{
    ek_request *r = s->req;
    const int i = a->n_scheduled++;
    r->n_ahead = 1;
    a->scheduled[i] = (ek_scheduled){.req = s->req, .row = i, .n_rows = 1, .logits = i, .n_logits = 1, .draw = i};
    a->scheduled[i].n_draws = 1;
    a->row[i] = ek_request_row(r, r->n_tokens, i, true);
    a->row[i].token = 0;
    a->follows[i] = s->draw;
    a->shown[i] = false, a->digested[i] = r->reply_digest;
    a->seq[i] = ek_request_seq(r);
    a->draw[i] = (ek_draw){.logits = i,
                           .slot = r->slot,
                           .sampling = &r->sampling,
                           .tokens = r->tokens,
                           .n_prompt = r->n_prompt,
                           .n_tokens = r->n_tokens + 1};
}

static void forget(ek_engine *e)
{
    ek_plan *a = &e->ahead;
    for (int i = 0; i < a->n_scheduled; i++) {
        ek_request *r = a->scheduled[i].req;
        if (!r) continue;
        ek_page_table_truncate(&r->table, e->pages, r->table.n - 1);
        r->n_ahead = 0;
    }
    a->n_scheduled = 0;
}

static ek_step step_of(const ek_engine *e)
{
    const ek_plan *a = &e->ahead;
    return (ek_step){.row = a->row,
                     .n_rows = a->n_scheduled,
                     .seq = a->seq,
                     .n_seqs = a->n_scheduled,
                     .shown = a->shown,
                     .digested = a->digested,
                     .draw = a->draw,
                     .n_draws = a->n_scheduled,
                     .follows = a->follows};
}

void ek_ahead_begin(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    if (!can_begin(e)) return;
    for (int i = 0; i < p->n_scheduled; i++) {
        ek_request *r = p->scheduled[i].req;
        if (!r || r->n_tokens + 1 == r->max_tokens) continue;
        if (ek_page_table_room(&r->table, e->pages, 1) < 1) {
            forget(e);
            return;
        }
        EK_ASSERT(ek_page_table_extend(&r->table, e->pages, 1) == EK_OK);
        lay_out(&e->ahead, &p->scheduled[i]);
    }
    if (e->ahead.n_scheduled == 0) return;
    e->ahead.n_rows = e->ahead.n_logits = e->ahead.n_draws = e->ahead.n_scheduled;
    const ek_step step = step_of(e);
    if (e->on.begin(e->on.arg, &step) != EK_OK)
        forget(e); /* if it cannot be computed at all, the next plan finds out */
}

bool ek_ahead_take(ek_engine *e)
{
    if (e->ahead.n_scheduled == 0) return false;
    ek_plan front = e->plan, *p = &e->plan;
    e->plan = e->ahead, e->ahead = front;
    p->masks = front.masks, p->allowed = front.allowed; /* of the step that is planned with its tokens known */
    e->ahead.n_scheduled = 0;
    for (int i = 0; i < p->n_scheduled; i++) { /* as a plan would have it that knows the tokens */
        ek_request *r = p->scheduled[i].req;
        p->seq[i] = r ? ek_request_seq(r) : (ek_seq){.slot = p->seq[i].slot}; /* nobody else has it yet */
        if (!r) continue;
        p->row[i].token = r->tokens[p->row[i].pos];
        r->n_ahead = 0;
    }
    return true;
}

void ek_ahead_drop(ek_engine *e)
{
    if (e->ahead.n_scheduled == 0) return;
    const ek_step step = step_of(e);
    e->on.end(e->on.arg, &step);
    forget(e);
}

void ek_ahead_leave(ek_engine *e, ek_request *r)
{
    for (int i = 0; r->n_ahead && i < e->ahead.n_scheduled; i++)
        if (e->ahead.scheduled[i].req == r) e->ahead.scheduled[i].req = NULL;
    r->n_ahead = 0;
}

bool ek_ahead_is_abandoned(const ek_engine *e)
{
    for (int i = 0; i < e->ahead.n_scheduled; i++)
        if (e->ahead.scheduled[i].req) return false;
    return e->ahead.n_scheduled > 0;
}
