/* Limits for all drafts, whatever their source (planning.h). */
#include "engine/planning.h"

/* The minimum probability with which a draft's last row must give a token. A step of n rows takes 1 + c (n - 1), in
 * units of a step of one row, and gives n tokens; a further row takes `cost`. The row pays if tokens per time increase.
 * A tenth of the distance to 1 is added, because estimates may be too high. */
float ek_draft_least_worth(const ek_engine *e, float cost)
{
    float n = (float)e->plan.n_scheduled, even = cost * n / (1 + e->on.row_cost * (n - 1));
    if (cost <= 0) return 0;
    return even + (1 - even) / 10;
}

int ek_draft_length(float right, int max, float least)
{
    int k = 0;
    for (float p = right; k < max && p > least; p *= right) k++;
    return k;
}

/* A drafted stop id would end the reply, so no token after it can be accepted, and its own row is useless. */
static int before_stop(const ek_request *r, int k)
{
    for (int i = 0; i < k; i++)
        if (ek_request_is_stop(r, r->tokens[r->n_tokens + i])) return i;
    return k;
}

/* Shortens the draft tokens[n_tokens .. n_tokens + k) to its useful part; returns the new length. */
int ek_draft_take(ek_engine *e, ek_scheduled *s, int k)
{
    ek_request *r = s->req;
    for (int i = 0; i < k; i++)
        EK_ASSERT(r->tokens[r->n_tokens + i] >= 0 && r->tokens[r->n_tokens + i] < e->rules.vocab_size);
    s->n_draft = ek_page_table_room(&r->table, e->pages, before_stop(r, k));
    const ek_err err = s->n_draft > 0 ? ek_page_table_extend(&r->table, e->pages, s->n_draft) : EK_OK;
    EK_ASSERT(err == EK_OK); /* ek_draft_room reserved this room */
    return s->n_draft;
}

/* The number of drafted tokens that r could use, if each costs `cost`: the last token of the reply needs no row. */
int ek_draft_room(const ek_engine *e, const ek_scheduled *s, int room, float cost)
{
    const ek_request *r = s->req;
    if (s->n_rows != 1 || ek_request_rows_left(r) != 1) return 0; /* a prompt */
    int max = r->max_tokens - r->n_tokens - 1;
    if (max > e->opts.draft_max) max = e->opts.draft_max;
    if (max > room) max = room;
    return (float)max * cost > r->draft.credit ? (int)(r->draft.credit / cost) : max;
}
