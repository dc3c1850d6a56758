#include "engine/planning.h"

#include "engine/sample/sampler.h"

/* Prompt tokens that remain after the current step; 0: the request replies, or will reply. */
static int left_behind(const ek_scheduled *s)
{
    return s->req->n_tokens - s->req->n_done - (s->n_rows - s->n_draft);
}

/* Whether a draw of r needs earlier tokens on the host, or its logits need the buffer that the current step uses. */
static bool draws_late(const ek_request *r)
{
    return r->mask.look || r->reply_logits || ek_sampling_has_penalties(&r->sampling);
}

/* Whether the request of s, which is in the current step, certainly draws in the next step too, unless a token ends
 * it. */
static bool draws_on(const ek_engine *e, const ek_scheduled *s)
{
    return (e->on.draw || !draws_late(s->req)) && !ek_draft_promises(e, s->req);
}

/* The number of rows that certainly follow those of s, at most `share` rows of a prompt; 0: none. */
static int rows_behind(const ek_engine *e, const ek_scheduled *s, int share)
{
    const ek_request *r = s->req;
    const int left = left_behind(s), n = left <= 1 ? 1 : left < share ? left : share;
    if (left == 0) return s->n_draws == 1 && s->n_draft == 0 && draws_on(e, s);
    const bool text = r->media.n_spans == 0 && r->next_prompt_logits >= r->n_given;
    return e->on.begins_prompts && text && (n < left || draws_on(e, s)) ? n : 0;
}

/* The step's rows for prompts, as in ek_plan_make. */
static int prompt_rows(const ek_engine *e)
{
    bool replying = false;
    for (int i = 0; i < e->plan.n_scheduled; i++)
        replying |= e->plan.scheduled[i].req && left_behind(&e->plan.scheduled[i]) <= 1;
    return ek_engine_prompt_rows(e, replying, 0);
}

/* max_rows of each request, as in ek_plan_make. */
static void divide(ek_engine *e, int chunk)
{
    int n = 0;
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        const ek_scheduled *s = &e->plan.scheduled[i];
        if (!s->req) continue;
        const int left = left_behind(s);
        e->share[n++] = (ek_share){.client = s->req->turn.client, .left = left > 1 ? left : 0};
    }
    ek_engine_divide(e->share, n, chunk, e->n_steps);
    for (int i = n = 0; i < e->plan.n_scheduled; i++)
        if (e->plan.scheduled[i].req) e->plan.scheduled[i].req->turn.max_rows = e->share[n++].max;
}

static bool is_poked(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const bool poked = e->poked;
    pthread_mutex_unlock(&e->lock);
    return poked;
}

enum { PLAN_EVERY = 4 }; /* steps: while a request waits for a turn, every fourth step is planned, not begun ahead */

/* Whether a step may begin ahead. A drafter needs each token first, and an admissible request would wait a step
 * longer. */
static bool can_begin(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    int n = 0;
    if (!e->on.begin || p->draft || (e->waiting && e->n_running < e->opts.max_requests) ||
        (e->waiting && e->turn_due && e->n_steps % PLAN_EVERY == 0))
        return false;
    for (int i = 0; i < p->n_scheduled; i++) n += p->scheduled[i].req != NULL;
    return n == e->n_running && !is_poked(e);
}

/* Adds the draw of the last row of `to`, whose request will then have n_tokens. */
static void add_draw(ek_plan *a, ek_scheduled *to, int n_tokens)
{
    const ek_request *r = to->req;
    a->shown[a->n_logits] = false, a->digested[a->n_logits++] = r->reply_digest;
    a->draws_later |= draws_late(r);
    ek_plan_add_draw(a, r, n_tokens, NULL);
    to->n_logits = to->n_draws = 1;
}

/* Lays out n rows after those of s: rows of a prompt, or the row of the token that s will draw. */
static void lay_out(ek_plan *a, const ek_scheduled *s, int n)
{
    ek_request *r = s->req;
    const int i = a->n_scheduled++, first = r->n_done + s->n_rows, left = left_behind(s);
    ek_scheduled *to = &a->scheduled[i];
    *to = (ek_scheduled){.req = r, .row = a->n_rows, .n_rows = n, .logits = a->n_logits, .draw = a->n_draws};
    r->n_ahead = n;
    for (int pos = first; pos < first + n; pos++) {
        const bool draws = pos >= r->n_tokens - 1;
        a->row[a->n_rows] = ek_request_row(r, pos, i, draws);
        if (left == 0) a->row[a->n_rows].token = 0;
        a->follows[a->n_rows++] = left == 0 ? s->draw : -1;
        if (draws) add_draw(a, to, pos + 1);
    }
    a->seq[i] = ek_request_seq(r);
}

static void forget(ek_engine *e)
{
    ek_plan *a = &e->ahead;
    for (int i = 0; i < a->n_scheduled; i++) {
        ek_request *r = a->scheduled[i].req;
        if (!r) continue;
        ek_page_table_truncate(&r->table, e->pages, r->table.n - r->n_ahead);
        r->n_ahead = 0;
    }
    a->n_scheduled = 0;
}

/* Takes pages for n rows after those of s, and lays them out. */
static bool add(ek_engine *e, const ek_scheduled *s, int n)
{
    ek_request *r = s->req;
    if (n == 0 || ek_page_table_room(&r->table, e->pages, n) < n) return false;
    const ek_err err = ek_page_table_extend(&r->table, e->pages, n);
    EK_ASSERT(err == EK_OK);
    lay_out(&e->ahead, s, n);
    return true;
}

void ek_ahead_begin(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    if (!can_begin(e)) return;
    int spare = 0, chunk = prompt_rows(e);
    divide(e, chunk);
    e->ahead.n_rows = e->ahead.n_logits = e->ahead.n_draws = 0, e->ahead.draws_later = false;
    for (int i = 0; i < p->n_scheduled; i++) {
        const ek_scheduled *s = &p->scheduled[i];
        if (!s->req) continue;
        const int own = s->req->turn.max_rows + spare;
        const int left = left_behind(s), n = rows_behind(e, s, own < chunk ? own : chunk);
        if (left == 0 && s->req->n_tokens + 1 == s->req->max_tokens) continue;
        if (!add(e, s, n)) {
            forget(e);
            return;
        }
        if (left > 1) spare = own - n, chunk -= n; /* the others share the rest */
    }
    if (e->ahead.n_scheduled == 0) return;
    const ek_step step = ek_plan_step(&e->ahead);
    if (e->on.begin(e->on.arg, &step) != EK_OK)
        forget(e); /* if it cannot be computed at all, the next plan finds out */
}

/* Adds the parts of s's draws that were not known when the step began. */
static void complete(ek_engine *e, ek_scheduled *s)
{
    bool all[EK_DRAFT_MAX + 1];
    const uint64_t *allowed = s->n_draws ? ek_engine_ask_mask(e, s, s->draw, all) : NULL;
    for (int i = s->draw; i < s->draw + s->n_draws; i++) {
        e->plan.shown[e->plan.draw[i].logits] = s->req->reply_logits;
        e->plan.draw[i].allowed = allowed && !all[0] ? allowed : NULL;
    }
}

bool ek_ahead_take(ek_engine *e)
{
    if (e->ahead.n_scheduled == 0) return false;
    ek_plan front = e->plan, *p = &e->plan;
    e->plan = e->ahead, e->ahead = front;
    p->masks = front.masks, p->allowed = front.allowed; /* of the next step */
    e->ahead.n_scheduled = 0;
    for (int i = 0; i < p->n_scheduled; i++) { /* as a plan would have it if it knew the tokens */
        ek_request *r = p->scheduled[i].req;
        p->seq[i] = r ? ek_request_seq(r) : (ek_seq){.slot = p->seq[i].slot}; /* no other request has it yet */
        if (!r) continue;
        for (int j = p->scheduled[i].row; j < p->scheduled[i].row + p->scheduled[i].n_rows; j++)
            p->row[j].token = r->tokens[p->row[j].pos];
        r->n_ahead = 0;
        if (p->draws_later) complete(e, &p->scheduled[i]);
    }
    ek_masks_begin(p->masks);
    return true;
}

/* Makes pending draws void, because nobody reads them and their tokens may not be there. */
static void void_draws(ek_plan *a, const ek_scheduled *s)
{
    static const ek_sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    for (int i = s->draw; i < s->draw + s->n_draws; i++) {
        ek_draw *d = &a->draw[i];
        d->sampling = &greedy, d->tokens = NULL, d->n_prompt = 0, d->allowed = NULL;
    }
}

void ek_ahead_drop(ek_engine *e)
{
    ek_plan *a = &e->ahead;
    if (a->n_scheduled == 0) return;
    for (int i = 0; i < a->n_scheduled; i++) void_draws(a, &a->scheduled[i]);
    const ek_step step = ek_plan_step(&e->ahead);
    if (!step.draws_later || e->on.draw(e->on.arg, &step) == EK_OK) e->on.end(e->on.arg, &step);
    forget(e);
}

void ek_ahead_leave(ek_engine *e, ek_request *r)
{
    ek_plan *a = &e->ahead;
    for (int i = 0; r->n_ahead && i < a->n_scheduled; i++) {
        if (a->scheduled[i].req != r) continue;
        a->scheduled[i].req = NULL;
        void_draws(a, &a->scheduled[i]);
    }
    r->n_ahead = 0;
}

bool ek_ahead_is_abandoned(const ek_engine *e)
{
    for (int i = 0; i < e->ahead.n_scheduled; i++)
        if (e->ahead.scheduled[i].req) return false;
    return e->ahead.n_scheduled > 0;
}
