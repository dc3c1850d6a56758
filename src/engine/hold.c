#include "engine/planning.h"

#define HOLD_SECONDS 8.0 /* maximum time that a prompt is held */
#define COMPANY      1.0 /* seconds after which requests that ran together are not expected again */
#define LONGER       4.0 /* a prompt does not wait for one with more than this many times its rows left */
#define DEAR         1.1 /* holding is faster if rows beside replies cost this many times more */

enum { LAST_ROWS = 2 }; /* rows that a held prompt leaves; a single row would be a reply's */

/* The rows of a prompt that can be computed while it is held. */
static int before_last(const ek_request *r)
{
    const int left = ek_request_rows_left(r);
    return left > LAST_ROWS ? left - LAST_ROWS : 0;
}

int ek_hold_rows(const ek_request *r, int n)
{
    return r->turn.held && n > before_last(r) ? before_last(r) : n;
}

static void follow(double *mean, double value)
{
    *mean += (value - *mean) / (*mean > 0 ? 4 : 1);
}

void ek_hold_note(ek_engine *e, int rows, int prompts, int replies, double seconds)
{
    if (prompts + replies > 1) e->timing.company = e->timing.ended;
    if (rows == 0) e->timing.n_replies = replies;
    if (rows < EK_GAP_LEAST * prompts || rows == 0) return;
    if (replies > 0) {
        const double share = replies < e->timing.n_replies ? (double)replies / e->timing.n_replies : 1;
        follow(&e->timing.beside, (seconds - e->timing.gap.reply * share) / rows);
    } else if (rows >= e->opts.chunk / 4) follow(&e->timing.alone, seconds / rows);
}

/* Whether separate steps for prompts and for replies take less time than steps of both. */
static bool is_dear_beside_replies(const ek_engine *e)
{
    return e->timing.beside == 0 || e->timing.beside > e->timing.alone * DEAR;
}

/* Seconds that the other prompts of r's client take without their last rows; 0: r does not wait, because there are
 * none, or one is far longer than r. */
static double others_seconds(const ek_engine *e, const ek_request *r)
{
    const double own = r->n_prompt - r->cache.n_hit;
    double rows = 0;
    for (int i = 0; i < e->n_running; i++) {
        const ek_request *q = e->running[i];
        if (q == r || q->turn.client != r->turn.client) continue;
        if (before_last(q) > own * LONGER) return 0;
        rows += before_last(q);
    }
    return rows * e->timing.alone;
}

/* Whether the only prompt would end in a long step. During such a step, requests may come that ran beside it before. */
static bool waits_for_company(ek_engine *e, ek_request *r, double now)
{
    const bool ends = ek_request_rows_left(r) <= e->opts.chunk, looked = r->turn.looked;
    r->turn.looked = ends;
    return ends && !looked && now - e->timing.company < COMPANY &&
           before_last(r) * e->timing.alone > e->opts.max_gap / 2;
}

/* Decides whether r is held. all: rows of all prompts; if a step has room for them, they end together in it. */
static void decide(ek_engine *e, ek_request *r, double all, double now)
{
    const double others = others_seconds(e, r);
    const bool alone = all == ek_request_rows_left(r), waits = waits_for_company(e, r, now);
    if (!r->turn.held) r->turn.held_since = now;
    r->turn.held = alone ? waits
                         : others > 0 && all > e->opts.chunk && now - r->turn.held_since + others < HOLD_SECONDS;
}

void ek_hold_plan(ek_engine *e, bool replying)
{
    const double now = ek_engine_now(e);
    double all = 0;
    if (replying || e->opts.max_gap == 0 || e->timing.alone == 0 || e->on.begins_prompts ||
        !is_dear_beside_replies(e)) {
        ek_hold_end(e);
        return;
    }
    for (int i = 0; i < e->n_running; i++) all += ek_request_rows_left(e->running[i]);
    for (int i = 0; i < e->n_running; i++)
        if (ek_request_rows_left(e->running[i]) > 1) decide(e, e->running[i], all, now);
}

bool ek_hold_end(ek_engine *e)
{
    bool any = false;
    for (int i = 0; i < e->n_running; i++) {
        any |= e->running[i]->turn.held;
        e->running[i]->turn.held = false;
    }
    return any;
}
