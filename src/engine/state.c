#include "engine/state.h"

#include <stdio.h>

#include "base/clock.h"

ek_step ek_plan_step(const ek_plan *p)
{
    return (ek_step){.row = p->row,
                     .n_rows = p->n_rows,
                     .seq = p->seq,
                     .n_seqs = p->n_scheduled,
                     .shown = p->shown,
                     .digested = p->digested,
                     .draw = p->draw,
                     .n_draws = p->n_draws,
                     .draws_later = p->draws_later,
                     .follows = p->follows};
}

void ek_plan_add_draw(ek_plan *p, const ek_request *r, int n_tokens, const uint64_t *allowed)
{
    p->draw[p->n_draws++] = (ek_draw){.logits = p->n_logits - 1,
                                      .slot = r->slot,
                                      .sampling = &r->sampling,
                                      .tokens = r->tokens,
                                      .n_prompt = r->n_prompt,
                                      .n_tokens = n_tokens,
                                      .allowed = allowed};
}

void ek_engine_count(ek_engine *e, uint64_t *counter)
{
    pthread_mutex_lock(&e->lock);
    ++*counter;
    pthread_mutex_unlock(&e->lock);
}

void ek_engine_note_broken(ek_engine *e)
{
    const char *why = e->on.broken ? e->on.broken(e->on.arg) : NULL;
    if (!why) return;
    pthread_mutex_lock(&e->lock);
    snprintf(e->broken, sizeof e->broken, "%s", why);
    pthread_mutex_unlock(&e->lock);
}

double ek_engine_now(const ek_engine *e)
{
    return e->on.now ? e->on.now(e->on.now_arg) : ek_now();
}

bool ek_engine_replies(const ek_engine *e)
{
    for (int i = 0; i < e->n_running; i++)
        if (ek_request_rows_left(e->running[i]) == 1) return true;
    return false;
}

int ek_engine_prompt_rows(const ek_engine *e, bool replying, double spent)
{
    if (!replying || e->opts.max_gap == 0) return e->opts.chunk;
    const int rows = ek_gap_rows(&e->timing.gap, e->opts.max_gap, spent, e->opts.chunk);
    int replies = 0;
    for (int i = 0; i < e->n_running; i++) replies += ek_request_rows_left(e->running[i]) == 1;
    return ek_gap_whole(rows, replies, e->on.row_tile, e->opts.chunk);
}

/* The part of a step's `chunk` prompt rows for the oldest prompt, if the other prompts have `others` rows left: the
 * rows that they leave, at least half. A short prompt then does not wait for the end of a long one, which takes at most
 * twice as long. */
static int oldest_share(int chunk, int64_t others)
{
    const int half = (chunk + 1) / 2;
    return others < chunk - half ? chunk - (int)others : half;
}

/* Divides the rows among all prompts but share[first]; the client with the fewest remaining rows comes first. Returns
 * the rest. */
static int divide_rest(ek_share *share, int first, int n, int chunk)
{
    while (chunk > 0) {
        const ek_share *next = NULL;
        for (int i = first + 1; i < n; i++)
            if (share[i].left > 0 && share[i].max == 0 && (!next || share[i].of_client < next->of_client))
                next = &share[i];
        if (!next) return chunk;
        for (ek_share *s = share + first + 1; s < share + n && chunk > 0; s++) {
            if (s->left == 0 || s->client != next->client) continue;
            s->max = s->left < chunk ? s->left : chunk;
            chunk -= s->max;
        }
    }
    return 0;
}

void ek_engine_divide(ek_share *share, int n, int chunk, uint64_t turn)
{
    enum { FEW = 1024 };
    int first = -1;
    int64_t others = 0;
    for (int i = 0; i < n; i++) {
        share[i].max = 0, share[i].of_client = 0;
        if (share[i].left == 0) continue;
        if (first < 0) first = i;
        else others += share[i].left;
    }
    if (first < 0) return;
    for (int i = first + 1; i < n; i++)
        for (int j = first + 1; j < n; j++)
            if (share[j].client == share[i].client) share[i].of_client += share[j].left;
    if (chunk >= FEW || others <= chunk / 2) share[first].max = oldest_share(chunk, others);
    else if (turn % 2) {
        share[first].max = divide_rest(share, first, n, chunk);
        return;
    } else share[first].max = chunk;
    divide_rest(share, first, n, chunk - (share[first].left < share[first].max ? share[first].left : share[first].max));
}

/* If the mask can decide everything else without rows, these are made while the step computes. */
const uint64_t *ek_engine_ask_mask(ek_engine *e, ek_scheduled *s, int first, bool all[EK_DRAFT_MAX + 1])
{
    const ek_request *r = s->req;
    if (!r->mask.look || s->n_rows < ek_request_rows_left(r)) return NULL;
    uint64_t *row = e->plan.allowed + (ptrdiff_t)first * ek_mask_words(e->rules.vocab_size);
    const int32_t *draft = r->tokens + r->n_tokens;
    int n = r->mask.peek ? r->mask.peek(r->mask.arg, draft, s->n_draft, all) : -1;
    s->n_draft = n >= 0 ? n : r->mask.look(r->mask.arg, draft, s->n_draft, row, all);
    bool rows = false;
    for (int i = 0; i <= n; i++) rows |= !all[i];
    if (rows) ek_masks_add(e->plan.masks, &r->mask, draft, n, row);
    return row;
}
