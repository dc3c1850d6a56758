#include "engine/state.h"

#include <stdio.h>

void ek_engine_note_broken(ek_engine *e)
{
    const char *why = e->on.broken ? e->on.broken(e->on.arg) : NULL;
    if (!why) return;
    pthread_mutex_lock(&e->lock);
    snprintf(e->broken, sizeof e->broken, "%s", why);
    pthread_mutex_unlock(&e->lock);
}

int ek_engine_oldest_share(int chunk, int64_t others)
{
    const int half = (chunk + 1) / 2;
    return others < chunk - half ? chunk - (int)others : half;
}

void ek_engine_divide(ek_share *share, int n, int chunk)
{
    int first = -1;
    int64_t others = 0;
    for (int i = 0; i < n; i++) {
        share[i].max = 0, share[i].of_client = 0;
        if (share[i].left == 0) continue;
        if (first < 0) first = i;
        else others += share[i].left;
    }
    if (first < 0) return;
    share[first].max = ek_engine_oldest_share(chunk, others);
    chunk -= share[first].left < share[first].max ? share[first].left : share[first].max;
    for (int i = first + 1; i < n; i++)
        for (int j = first + 1; j < n; j++)
            if (share[j].client == share[i].client) share[i].of_client += share[j].left;
    while (chunk > 0) {
        const ek_share *next = NULL;
        for (int i = first + 1; i < n; i++)
            if (share[i].left > 0 && share[i].max == 0 && (!next || share[i].of_client < next->of_client))
                next = &share[i];
        if (!next) return;
        for (ek_share *s = share + first + 1; s < share + n && chunk > 0; s++) {
            if (s->left == 0 || s->client != next->client) continue;
            s->max = s->left < chunk ? s->left : chunk;
            chunk -= s->max;
        }
    }
}

/* The rows are made while the step computes, where the mask can say all else without them. */
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
