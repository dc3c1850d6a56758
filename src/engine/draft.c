#include "engine/planning.h"

enum { DRAFTER_REST = 48 }; /* tokens without a draft after the drafter was found not to pay */

/* The largest length, at most max, of a draft whose last row still pays. */
static int ngram_length(const ek_request *r, int max, float least)
{
    float p = 1;
    for (int k = 0; k < max; k++) {
        p *= ek_ngram_right(&r->draft.ngram, k);
        if (p <= least) return k;
    }
    return max;
}

static int drafter_length(const ek_request *r, int max, float least)
{
    const int k = ek_draft_length(r->draft.drafter_right, max, least);
    return k > 0 || r->draft.drafter_rests > 0 || least >= 1 ? k : 1; /* sometimes one, to measure */
}

static int draft_ngrams(ek_engine *e, int room)
{
    float least = ek_draft_least_worth(e, e->on.row_cost);
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        ek_scheduled *s = &e->plan.scheduled[i];
        ek_request *r = s->req;
        int k = ngram_length(r, ek_draft_room(e, s, room, e->on.row_cost), least);
        if (k == 0) continue;
        ek_ngram_guess(&r->draft.ngram, r->tokens, k);
        room -= ek_draft_take(e, s, k);
    }
    return room;
}

/* Asks the drafter for requests without another draft, but only if their last token was sampled in the last step,
 * because the executor keeps no older state. */
static int ask_drafter(ek_engine *e, int room)
{
    ek_plan *p = &e->plan;
    float cost = e->on.row_cost + e->on.draft_cost, least = ek_draft_least_worth(e, cost);
    int n = 0;
    for (int i = 0, left = room; i < p->n_scheduled; i++) {
        const ek_request *r = p->scheduled[i].req;
        int max = p->scheduled[i].n_draft == 0 ? ek_draft_room(e, &p->scheduled[i], left, cost) : 0;
        if (r->draft.last_draw == 0 || r->draft.last_draw != e->n_steps || max <= 0) continue;
        max = drafter_length(r, max, least);
        if (max == 0) continue;
        left -= max;
        p->seq[i] = ek_request_seq(r);
        p->draft[n] = (ek_draft){.seq = &p->seq[i],
                                 .tokens = r->tokens,
                                 .n_tokens = r->n_tokens,
                                 .logits = r->draft.last_logits,
                                 .max = max,
                                 .token = p->draft_token[n]};
        n++;
    }
    if (n == 0 || e->on.draft(e->on.draft_arg, p->draft, n) != EK_OK) return room;
    for (int i = 0; i < n; i++) {
        const ek_draft *d = &p->draft[i];
        ek_scheduled *s = &p->scheduled[d->seq - p->seq];
        EK_ASSERT(d->n >= 0 && d->n <= d->max);
        for (int k = 0; k < d->n; k++) s->req->tokens[s->req->n_tokens + k] = d->token[k];
        s->n_proposed = ek_draft_take(e, s, d->n);
        s->req->draft.drafter_rests = DRAFTER_REST;
        room -= s->n_proposed;
    }
    return room;
}

bool ek_draft_promises(const ek_engine *e, const ek_request *r)
{
    const float cost = e->on.row_cost;
    return e->opts.draft != EK_DRAFT_OFF && r->draft.credit >= cost &&
           (ngram_length(r, e->opts.draft_max, ek_draft_least_worth(e, cost)) > 0 || ek_proposals_promises(e, r));
}

void ek_draft_plan(ek_engine *e, int room)
{
    if (e->opts.draft == EK_DRAFT_OFF) return;
    if (room > e->max_draft_rows) room = e->max_draft_rows;
    room = draft_ngrams(e, room);
    if (e->plan.draft) room = ask_drafter(e, room);
    if (e->opts.proposer && e->opts.draft == EK_DRAFT_AUTO) ek_proposals_plan(e, room);
}

void ek_draft_drop(ek_scheduled *s)
{
    s->n_rows -= s->n_draft;
    s->n_logits -= s->n_draft;
    s->n_draws -= s->n_draft;
    s->n_draft = s->n_proposed = 0;
    s->remote = false;
}

void ek_draft_settle(const ek_plan *p, ek_scheduled *s)
{
    const ek_draw *d = &p->draw[s->draw];
    const int32_t *draft = s->req->tokens + s->req->n_tokens;
    /* An accepted token gives the sample after it. If that sample is invalid, the token is refused, and the next step
     * finds the failure as it would have without a draft. */
    while (s->n_accepted < s->n_draft && d[s->n_accepted].token == draft[s->n_accepted] &&
           d[s->n_accepted + 1].token >= 0)
        s->n_accepted++;
}

/* Adds to the credit: an accepted token saves the request its part of a step. */
static void settle_credit(const ek_engine *e, const ek_scheduled *s)
{
    float n = (float)e->plan.n_scheduled, cost = e->on.row_cost, credit = s->req->draft.credit;
    credit += (float)s->n_accepted * (1 + cost * (n - 1)) / n;
    credit -= (float)s->n_draft * cost + (float)s->n_proposed * e->on.draft_cost;
    credit += (float)(1 + s->n_accepted) * EK_DRAFT_REGAIN;
    s->req->draft.credit = credit < 0 ? 0 : credit > EK_DRAFT_MAX_CREDIT ? EK_DRAFT_MAX_CREDIT : credit;
}

void ek_draft_learn(ek_engine *e, const ek_scheduled *s)
{
    ek_request *r = s->req;
    if (s->n_draws == 0) return;
    settle_credit(e, s);
    r->draft.last_draw = e->n_steps;
    r->draft.last_logits = e->plan.draw[s->draw + s->n_accepted].logits;
    r->draft.n_drafted += s->n_draft;
    r->draft.n_accepted += s->n_accepted;
    if (r->draft.drafter_rests > s->n_accepted) r->draft.drafter_rests -= s->n_accepted + 1;
    else r->draft.drafter_rests = 0;
    for (int i = 0; i < s->n_proposed && i <= s->n_accepted; i++)
        r->draft.drafter_right += ((i < s->n_accepted ? 1.0f : 0.0f) - r->draft.drafter_right) / 8;
}

void ek_draft_follow(ek_request *r)
{
    if (r->draft.ngram.bits > 0) ek_ngram_add(&r->draft.ngram, r->tokens, r->n_tokens, true);
}
