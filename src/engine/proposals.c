#include <string.h>

#include "engine/planning.h"

/* The maximum wait for an answer, as a multiple of a measured one; and seconds of tolerance for the clock. */
static const double PATIENCE = 2, SLACK = 0.001;

static bool is_on(const ek_engine *e)
{
    return e->opts.proposer && e->opts.draft == EK_DRAFT_AUTO;
}

static bool replies(const ek_request *r)
{
    return ek_request_rows_left(r) == 1;
}

/* Compares proposals with the tokens that were sampled meanwhile. The first wrong one ends the comparison. */
static void judge(ek_request *r)
{
    ek_request_remote *m = &r->draft.remote;
    for (; m->judged < m->n && m->at + m->judged < r->n_tokens; m->judged++) {
        const bool right = m->token[m->judged] == r->tokens[m->at + m->judged];
        m->right += ((right ? 1.0f : 0.0f) - m->right) / 8;
        if (right) continue;
        m->judged = m->n = 0;
        return;
    }
}

/* Keeps leading ids that are in the vocabulary. */
static int valid(const ek_engine *e, const int32_t *token, int n)
{
    int i = 0;
    while (i < n && i < EK_DRAFT_MAX && token[i] >= 0 && token[i] < e->rules.vocab_size) i++;
    return i;
}

static void collect(ek_engine *e, ek_request *r)
{
    ek_request_remote *m = &r->draft.remote;
    int32_t token[EK_DRAFT_MAX];
    ek_proposal p = {.token = token};
    if (m->asked && e->opts.proposer->answer(e->opts.proposer->arg, r->id, &p)) {
        const int n = valid(e, token, p.n);
        m->asked = false;
        if (p.seconds > 0) e->remote.latency += (p.seconds - e->remote.latency) * (e->remote.latency > 0 ? 0.125 : 1);
        if (n > 0) {
            memcpy(m->token, token, (size_t)n * sizeof *token);
            m->at = m->asked_at, m->n = n, m->judged = 0;
            e->remote.answers++;
        }
    }
    judge(r);
}

/* Whether the answer that s waits for would be its draft. */
static bool is_awaited(const ek_scheduled *s)
{
    const ek_request_remote *m = &s->req->draft.remote;
    return s->n_rows == 1 && s->n_draft == 0 && replies(s->req) && m->asked && m->asked_at == s->req->n_tokens &&
           m->judged == m->n;
}

/* Seconds that a step may wait for answers, by the steps that their drafts should save and by the replies' credit; 0:
 * waiting does not pay. */
static double patience(const ek_engine *e, int room, float least)
{
    const double step = e->timing.gap.reply, latency = e->remote.latency;
    double gain = 0, credit = EK_DRAFT_MAX_CREDIT;
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        const ek_scheduled *s = &e->plan.scheduled[i];
        const double p = s->req->draft.remote.right;
        if (replies(s->req) && s->req->draft.credit < credit) credit = s->req->draft.credit;
        if (!is_awaited(s)) continue;
        double each = 1;
        for (int k = ek_draft_length(s->req->draft.remote.right, ek_draft_room(e, s, room, e->on.row_cost), least);
             k > 0; k--)
            gain += each *= p;
    }
    if (gain * step < 1.1 * latency * e->plan.n_scheduled) return 0;
    double limit = PATIENCE * latency + SLACK;
    if (limit > EK_REMOTE_WAIT) limit = EK_REMOTE_WAIT;
    if (limit > credit * step) limit = credit * step;
    return limit < latency ? 0 : limit;
}

static bool any_awaited(ek_engine *e)
{
    bool any = false;
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        collect(e, e->plan.scheduled[i].req);
        any |= is_awaited(&e->plan.scheduled[i]);
    }
    return any;
}

static void await_drafts(ek_engine *e, double seconds)
{
    const double begin = ek_engine_now(e);
    double spent = 0;
    while (spent < seconds && any_awaited(e)) {
        e->opts.proposer->wait(e->opts.proposer->arg, seconds - spent);
        spent = ek_engine_now(e) - begin;
    }
    e->remote.waited += (uint64_t)(spent * 1e6);
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        ek_request *r = e->plan.scheduled[i].req;
        if (!replies(r)) continue;
        const float left = r->draft.credit - (float)(spent / e->timing.gap.reply);
        r->draft.credit = left > 0 ? left : 0;
        if (is_awaited(&e->plan.scheduled[i])) r->draft.remote.right -= r->draft.remote.right / 8; /* too late */
    }
}

int ek_proposals_plan(ek_engine *e, int room)
{
    const float cost = e->on.row_cost, least = ek_draft_least_worth(e, cost);
    if (room <= 0) return room;
    if (any_awaited(e) && e->timing.gap.reply > 0 && e->remote.latency > 0) {
        const double seconds = patience(e, room, least);
        if (seconds > 0) await_drafts(e, seconds);
    }
    any_awaited(e);
    for (int i = 0; i < e->plan.n_scheduled; i++) {
        ek_scheduled *s = &e->plan.scheduled[i];
        ek_request *r = s->req;
        const ek_request_remote *m = &r->draft.remote;
        int k = s->n_draft == 0 ? ek_draft_length(r->draft.remote.right, ek_draft_room(e, s, room, cost), least) : 0;
        if (k > m->n - m->judged) k = m->n - m->judged;
        if (k <= 0) continue;
        EK_ASSERT(m->at + m->judged == r->n_tokens);
        memcpy(r->tokens + r->n_tokens, m->token + m->judged, (size_t)k * sizeof *r->tokens);
        k = ek_draft_take(e, s, k);
        s->remote = k > 0;
        room -= k;
    }
    return room;
}

/* Whether r still has a promising draft after the current step's token, which uses one token of the present answer. */
bool ek_proposals_promises(const ek_engine *e, const ek_request *r)
{
    const ek_request_remote *m = &r->draft.remote;
    return is_on(e) && m->n - m->judged > 1 &&
           ek_draft_length(r->draft.remote.right, e->opts.draft_max, ek_draft_least_worth(e, e->on.row_cost)) > 0;
}

/* Twice the length of a draft, because the answer's first tokens are computed while it is on its way. */
static int wanted(const ek_engine *e, const ek_request *r)
{
    int max = 2 * e->opts.draft_max, left = r->max_tokens - r->n_tokens - 1;
    if (max > left) max = left;
    return max > EK_DRAFT_MAX ? EK_DRAFT_MAX : max;
}

void ek_proposals_follow(ek_engine *e)
{
    if (!is_on(e)) return;
    const ek_proposer *p = e->opts.proposer;
    for (int i = 0; i < e->n_running; i++) {
        ek_request *r = e->running[i];
        ek_request_remote *m = &r->draft.remote;
        if (!replies(r) || r->media.n_spans > 0) continue; /* pictures cannot be sent as tokens */
        collect(e, r);
        const int max = wanted(e, r);
        if (m->asked || max <= 0 || !p->ask(p->arg, r->id, r->cache.salt, r->tokens, r->n_tokens, max)) continue;
        m->asked = true, m->asked_at = r->n_tokens;
        e->remote.questions++;
    }
}

void ek_proposals_forget(ek_engine *e, const ek_request *r)
{
    if (is_on(e)) e->opts.proposer->forget(e->opts.proposer->arg, r->id);
}
