/* Who shares the next step. Nothing decided here reaches the arithmetic of a row: a row is a
 * token at an absolute position with its own pages, whoever stands beside it. */
#include "engine/state.h"

/* Pages of a kind that a request needs at least to compute all tokens it has. */
static int need(const ek_engine *e, const ek_request *r, ek_layer_kind kind)
{
    return ek_table_most(e->on.layout, kind, r->n_tokens, 1);
}

/* Whether r fits beside the running ones once these have all pages their tokens need. */
static bool has_room(const ek_engine *e, const ek_request *r)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int unused = ek_pages_unused(e->pages, (ek_layer_kind)k);
        for (int i = 0; i < e->n_running; i++) {
            const ek_request *run = e->running[i];
            int more = need(e, run, (ek_layer_kind)k) - (run->table.end[k] - run->table.first[k]);
            if (more > 0) unused -= more;
        }
        if (unused < need(e, r, (ek_layer_kind)k)) return false;
    }
    return true;
}

/* In order of arrival: one that does not fit holds back those behind it, so that none starves. */
void ek_plan_admit(ek_engine *e)
{
    for (ek_request *r; (r = e->waiting) && e->n_running < e->opts.max_requests;) {
        if (e->n_running > 0 && !has_room(e, r)) return;
        e->waiting = r->next;
        r->next = NULL;
        r->state = EK_RUNNING;
        /* Those that wait are younger than those that run: preemption takes the youngest. */
        EK_ASSERT(e->n_running == 0 || e->running[e->n_running - 1]->id < r->id);
        e->running[e->n_running++] = r;
    }
}

/* The youngest starts over later, from its tokens: prompt and reply so far are its prompt
 * then, and the keys and values come out the same. */
static void preempt_youngest(ek_engine *e)
{
    ek_request *r = e->running[e->n_running - 1];
    ek_engine_remove(e, r);
    ek_table_clear(&r->table, e->pages);
    r->n_done = 0;
    ek_engine_wait_again(e, r);
    pthread_mutex_lock(&e->lock);
    e->stats.preempted++;
    pthread_mutex_unlock(&e->lock);
}

/* Prompt rows among [n_done, n_done + n) whose logits were asked for. */
static int told_rows(const ek_request *r, int n)
{
    int first = r->n_done > r->n_told ? r->n_done : r->n_told;
    int end = r->n_done + n < r->n_prompt ? r->n_done + n : r->n_prompt;
    return end > first ? end - first : 0;
}

static void add_part(ek_engine *e, ek_request *r, int n)
{
    ek_plan *p = &e->plan;
    ek_part *part = &p->part[p->n_parts];
    *part = (ek_part){.req = r, .row = p->n_rows, .n_rows = n, .logit = p->n_logits};
    part->samples = r->n_done + n == r->n_tokens;
    for (int pos = r->n_done; pos < r->n_done + n; pos++) {
        bool wants = (pos >= r->n_told && pos < r->n_prompt) || pos == r->n_tokens - 1;
        p->row[p->n_rows++] = (ek_row){r->tokens[pos], pos, p->n_parts, wants};
        part->n_logits += wants;
    }
    p->n_logits += part->n_logits;
    for (int k = 0; k < EK_KIND_COUNT; k++) p->seq[p->n_parts].page[k] = r->table.data[k];
    p->n_parts++;
}

static int rows_left(const ek_request *r)
{
    return r->n_tokens - r->n_done;
}

/* Prompt rows for the oldest prompt: what the others leave, at least half. A short prompt then
 * does not stand behind a long one to its end, which takes at most twice as long for it. */
static int oldest_share(const ek_engine *e)
{
    int64_t others = 0;
    for (int i = 0, prompts = 0; i < e->n_running; i++)
        if (rows_left(e->running[i]) > 1 && prompts++ > 0) others += rows_left(e->running[i]);
    int half = (e->opts.chunk + 1) / 2;
    return others < e->opts.chunk - half ? e->opts.chunk - (int)others : half;
}

/* Every request gets one row; a prompt takes more, as far as the step's chunk, the room for
 * logits and the pages go. The oldest are served first. */
void ek_plan_make(ek_engine *e)
{
    ek_plan *p = &e->plan;
    int chunk = e->opts.chunk, told = e->max_told, share = oldest_share(e);
    p->n_parts = p->n_rows = p->n_logits = 0;
    for (int i = 0; i < e->n_running; i++) {
        ek_request *r = e->running[i];
        int left = rows_left(r), n = left, fit;
        EK_ASSERT(left >= 1);
        if (left > 1 && n > share) n = share;
        int over = told_rows(r, n) - told;
        if (over > 0) n -= over; /* the rows that want logits are the last ones */
        if (n == 0) continue;
        while ((fit = ek_table_room(&r->table, e->pages, r->n_done, n)) == 0 && e->n_running > i + 1)
            preempt_youngest(e);
        EK_ASSERT(fit > 0 || i > 0); /* alone, a request always fits */
        if (fit == 0) continue;      /* the youngest waits, with what it has, for the older */
        n = fit;
        EK_ASSERT(ek_table_extend(&r->table, e->pages, r->n_done, n) == EK_OK);
        if (left > 1) share = chunk -= n; /* the others share what the oldest left */
        told -= told_rows(r, n);
        add_part(e, r, n);
    }
    EK_ASSERT(p->n_rows <= e->max_rows && p->n_logits <= e->max_told + e->opts.max_requests);
}
