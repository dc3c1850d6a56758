#include <stdio.h>
#include <string.h>

#include "engine/state.h"

void ek_engine_remove(ek_engine *e, ek_request *r)
{
    if (r->state == EK_RUNNING) {
        int at = 0;
        while (e->running[at] != r) at++;
        e->n_running--;
        for (; at < e->n_running; at++) e->running[at] = e->running[at + 1];
    } else {
        ek_request **p = &e->waiting;
        while (*p != r) p = &(*p)->next;
        *p = r->next;
        r->next = NULL;
    }
}

void ek_engine_wait_again(ek_engine *e, ek_request *r)
{
    ek_request **p = &e->waiting;
    while (*p && (*p)->id < r->id) p = &(*p)->next;
    r->next = *p;
    *p = r;
    r->state = EK_WAITING;
}

static void tell(const ek_request *r, ek_event event)
{
    if (!r->sink) return;
    event.request = r->id;
    event.user = r->user;
    event.n_prompt = r->n_prompt;
    event.n_tokens = r->n_tokens - r->n_prompt;
    r->sink(r->arg, &event);
}

/* Before its last event, so that a sink that cancels or submits finds it gone. */
static void forget(ek_engine *e, ek_request *r)
{
    ek_engine_remove(e, r);
    ek_table_clear(&r->table, e->pages);
    pthread_mutex_lock(&e->lock);
    if (r->live_prev) r->live_prev->live_next = r->live_next;
    else e->live = r->live_next;
    if (r->live_next) r->live_next->live_prev = r->live_prev;
    e->n_live--;
    pthread_mutex_unlock(&e->lock);
}

void ek_engine_finish(ek_engine *e, ek_request *r, ek_finish finish, ek_err err, const char *text)
{
    forget(e, r);
    tell(r, (ek_event){.token = -1, .finish = finish, .err = err, .text = text});
    ek_request_free(r);
}

/* The inbox, in order, behind the waiting: later arrivals have larger ids. */
static void take_arrivals(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    ek_request *first = e->inbox;
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
    e->poked = false;
    pthread_mutex_unlock(&e->lock);
    ek_request **end = &e->waiting;
    while (*end) end = &(*end)->next;
    *end = first;
}

static bool drop_cancelled(ek_engine *e)
{
    bool any = false;
    for (int i = e->n_running - 1; i >= 0; i--) {
        if (!atomic_load(&e->running[i]->cancelled)) continue;
        ek_engine_finish(e, e->running[i], EK_FINISH_CANCELLED, EK_ECANCELLED, "cancelled");
        any = true;
    }
    for (ek_request *r = e->waiting, *next; r; r = next) {
        next = r->next;
        if (!atomic_load(&r->cancelled)) continue;
        ek_engine_finish(e, r, EK_FINISH_CANCELLED, EK_ECANCELLED, "cancelled");
        any = true;
    }
    return any;
}

static void fail_part(ek_part *part, ek_err err)
{
    part->err = err;
    snprintf(part->text, sizeof part->text, "%s", ek_err_text());
}

/* All parts in one pass. If that fails each runs by itself, which changes no bit, so that the
 * ones that cannot be computed are known and the others do not suffer. */
static void forward(ek_engine *e)
{
    ek_plan *p = &e->plan;
    ek_err err = e->on.forward(e->on.arg, p->row, p->n_rows, p->seq, p->n_parts, e->logits, e->ld);
    if (err == EK_OK) return;
    for (int i = 0; i < p->n_parts; i++) {
        ek_part *part = &p->part[i];
        if (p->n_parts > 1)
            err = e->on.forward(e->on.arg, p->row + part->row, part->n_rows, p->seq, p->n_parts,
                                e->logits + part->logit * e->ld, e->ld);
        if (err != EK_OK) fail_part(part, err);
    }
}

/* NaN and infinity have all exponent bits set. */
static bool all_finite(const float *x, int n)
{
    uint32_t bad = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        bad |= (u & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

static void sample(void *arg, int task, int worker)
{
    ek_engine *e = arg;
    ek_part *part = &e->plan.part[task];
    const ek_request *r = part->req;
    if (part->err || !part->samples) return;
    const float *row = e->logits + (part->logit + part->n_logits - 1) * e->ld;
    part->token = -1;
    if (!all_finite(row, e->rules.vocab_size))
        fail_part(part, ek_fail(EK_EINTERNAL, "the logits at position %d are not numbers: damaged weights?",
                                r->n_tokens - 1));
    else if ((part->token = ek_sample(e->sampler[worker], row, &r->sampling, r->tokens, r->n_prompt, r->n_tokens)) < 0)
        fail_part(part, ek_fail(EK_EINVAL, "every token is masked at position %d", r->n_tokens));
}

static void tell_prompt(ek_engine *e, const ek_part *part)
{
    ek_request *r = part->req;
    const float *row = e->logits + part->logit * e->ld;
    for (int i = part->row; i < part->row + part->n_rows; i++) {
        const ek_row *planned = &e->plan.row[i];
        if (!planned->wants_logits) continue;
        if (planned->pos < r->n_prompt && planned->pos >= r->n_told) {
            r->on_prompt_logits(r->user, planned->pos, row);
            r->n_told = planned->pos + 1;
        }
        row += e->ld;
    }
}

/* What a step made is given to a request only here, after it succeeded. */
static void deliver(ek_engine *e, const ek_part *part)
{
    ek_request *r = part->req;
    if (part->err) {
        ek_engine_finish(e, r, EK_FINISH_ERROR, part->err, part->text);
        return;
    }
    r->n_done += part->n_rows;
    ek_table_trim(&r->table, e->pages, r->n_done);
    tell_prompt(e, part);
    if (!part->samples) return;

    r->tokens[r->n_tokens++] = part->token;
    ek_event event = {.token = part->token, .logits = e->logits + (part->logit + part->n_logits - 1) * e->ld};
    if (ek_request_is_stop(r, part->token)) event.finish = EK_FINISH_STOP;
    else if (r->n_tokens == r->most_tokens) event.finish = EK_FINISH_LENGTH;
    if (event.finish != EK_FINISH_NONE) forget(e, r);
    tell(r, event);
    if (event.finish != EK_FINISH_NONE) ek_request_free(r);
}

static void count(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    for (int i = 0; i < p->n_parts; i++) {
        const ek_part *part = &p->part[i];
        if (part->err) continue;
        e->stats.reply_tokens += part->samples;
        if (part->samples && part->req->n_tokens == part->req->n_prompt)
            e->stats.prompt_tokens += (uint64_t)part->req->n_prompt;
    }
    pthread_mutex_unlock(&e->lock);
}

static void publish(ek_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stats.running = e->n_running;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        e->stats.pages_used[k] = e->stats.pages_total[k] - ek_pages_unused(e->pages, (ek_layer_kind)k);
    pthread_mutex_unlock(&e->lock);
}

/* Moves every live request forward by one decoded token or one prompt chunk. The plan decides
 * who shares the step and nothing else. */
ek_err ek_engine_step(ek_engine *e, bool *worked)
{
    ek_plan *p = &e->plan;
    take_arrivals(e);
    *worked = drop_cancelled(e);
    ek_plan_admit(e);
    ek_plan_make(e);
    if (p->n_parts > 0) {
        *worked = true;
        forward(e);
        ek_pool_run(e->on.pool, sample, e, p->n_parts);
        count(e);
        for (int i = 0; i < p->n_parts; i++) deliver(e, &p->part[i]);
    }
    publish(e);
    return EK_OK;
}
