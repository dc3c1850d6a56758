/* A step: which requests share it (plan), the forward pass and sampling (executor), and delivery of the results. */
#include <stdio.h>

#include "engine/planning.h"
#include "engine/cached.h"
#include "base/clock.h"

static ek_event about(const ek_request *r, ek_event event)
{
    event.request = r->id;
    event.user = r->user;
    event.n_prompt = r->n_prompt;
    event.n_cached = r->cache.n_cached < r->n_prompt ? r->cache.n_cached : r->n_prompt - 1;
    event.n_tokens = r->n_tokens - r->n_prompt;
    event.n_image = r->media.n_tokens[0], event.n_sound = r->media.n_tokens[1];
    event.n_features = r->media.n_reused[0] + r->media.n_reused[1];
    event.n_image_kept = r->media.n_kept[0], event.n_sound_kept = r->media.n_kept[1];
    event.n_drafted = r->draft.n_drafted;
    event.n_accepted = r->draft.n_accepted;
    return event;
}

static void send(const ek_request *r, const ek_event *event)
{
    if (r->sink) r->sink(r->arg, event);
}

/* Ends a request, in whatever state, with a last event. It leaves the list before that, so a sink that cancels or
 * submits does not find it. */
static void finish(ek_engine *e, ek_request *r, ek_finish how, ek_err err, const char *text)
{
    ek_queue_remove(e, r);
    const ek_event event = about(r, (ek_event){.token = -1, .finish = how, .err = err, .text = text});
    send(r, &event);
    ek_request_free(r);
}

/* Ends a request with the sentence of the latest error. */
static void finish_failed(ek_engine *e, ek_request *r, ek_err err)
{
    char text[256];
    snprintf(text, sizeof text, "%s", ek_err_text());
    finish(e, r, EK_FINISH_ERROR, err, text);
}

static bool drop_cancelled(ek_engine *e)
{
    bool any = false;
    for (int i = e->n_running - 1; i >= 0; i--) {
        if (!atomic_load(&e->running[i]->cancelled)) continue;
        finish(e, e->running[i], EK_FINISH_CANCELLED, EK_ECANCELLED, "cancelled");
        any = true;
    }
    for (ek_request *r = e->waiting, *next; r; r = next) {
        next = r->next;
        if (!atomic_load(&r->cancelled)) continue;
        finish(e, r, EK_FINISH_CANCELLED, EK_ECANCELLED, "cancelled");
        any = true;
    }
    return any;
}

static void fail(ek_scheduled *s, ek_err err)
{
    s->err = err;
    snprintf(s->text, sizeof s->text, "%s", ek_err_text());
}

/* A draw without a token fails its request, because no answer is better than a wrong one. Draws behind the first belong
 * to drafted tokens, which are refused instead. */
static void check_draw(const ek_plan *p, ek_scheduled *s)
{
    if (s->n_draws == 0) return;
    const ek_draw *d = &p->draw[s->draw];
    if (d->token == EK_DRAW_NOT_FINITE)
        fail(s, ek_fail(EK_EINTERNAL, "the logits at position %d are not numbers: damaged weights?", d->n_tokens - 1));
    else if (d->token < 0) fail(s, ek_fail(EK_EINVAL, "every token is masked at position %d", d->n_tokens));
}

/* Keeps the digests while they are the last step's. */
static void keep_digests(const ek_engine *e, const ek_scheduled *s)
{
    for (int i = s->draw; s->req->reply_digest && i < s->draw + s->n_draws; i++)
        e->plan.draw[i].digest = e->on.digest(e->on.arg, e->plan.draw[i].logits);
}

/* Computes the step; `begun`: it was begun ahead. The next step is begun before this one ends. */
static ek_err compute(ek_engine *e, const ek_step *step, bool begun)
{
    if (!e->on.begin) return e->on.step(e->on.arg, step);
    if (!begun) EK_TRY(e->on.begin(e->on.arg, step));
    else if (step->draws_later) EK_TRY(e->on.draw(e->on.arg, step));
    ek_ahead_begin(e);
    ek_err err = e->on.end(e->on.arg, step);
    if (err) {
        char text[512];
        snprintf(text, sizeof text, "%s", ek_err_text());
        ek_ahead_drop(e);
        return ek_fail(err, "%s", text);
    }
    return EK_OK;
}

/* Runs all requests in one step of the executor. If it fails, each request runs alone, which changes no bit, so that
 * only the failing ones end. It then runs without its draft and without a step ahead, because these may have caused the
 * failure. */
static void run(ek_engine *e, bool begun)
{
    ek_plan *p = &e->plan;
    ek_step all = ek_plan_step(p);
    all.masks = p->masks, all.follows = NULL;
    if (!begun) all.draws_later = false;
    ek_err err = compute(e, &all, begun);
    ek_masks_wait(p->masks); /* a failed step did not wait for them, and the masks' states are about to change */
    if (err) ek_engine_note_broken(e); /* before a client learns of the error */
    for (int i = 0; i < p->n_scheduled; i++) {
        ek_scheduled *s = &p->scheduled[i];
        ek_err own = err;
        if (!s->req) continue;
        all.draws_later = false;
        if (err && !e->broken[0] && (e->on.end || p->n_scheduled > 1 || s->n_draft > 0)) {
            ek_draft_drop(s);
            ek_step one = all;
            one.row += s->row, one.n_rows = s->n_rows;
            one.first_logits = s->logits;
            one.draw += s->draw, one.n_draws = s->n_draws;
            own = e->on.step(e->on.arg, &one);
        }
        if (own) fail(s, own);
        else check_draw(p, s);
        if (!own) keep_digests(e, s);
        if (!s->err) ek_draft_settle(p, s);
    }
    if (err) ek_engine_note_broken(e);
}

static void send_prompt_logits(ek_engine *e, const ek_scheduled *s)
{
    ek_request *r = s->req;
    int logits = s->logits;
    for (int i = s->row; i < s->row + s->n_rows; i++) {
        const ek_row *row = &e->plan.row[i];
        if (!row->wants_logits) continue;
        if (row->pos < r->n_given && row->pos >= r->next_prompt_logits) {
            r->on_prompt_logits(r->user, row->pos, e->on.logits(e->on.arg, logits));
            r->next_prompt_logits = row->pos + 1;
        }
        logits++;
    }
}

/* Appends the sampled token to the request; true if it was the last. */
static bool send_token(ek_engine *e, ek_request *r, const ek_draw *d)
{
    r->tokens[r->n_tokens++] = d->token;
    if (r->mask.accept) r->mask.accept(r->mask.arg, d->token);
    ek_event event = {.token = d->token};
    if (r->reply_logits) event.logits = e->on.logits(e->on.arg, d->logits);
    if (r->reply_digest) event.digest = d->digest;
    if (ek_request_is_stop(r, d->token)) event.finish = EK_FINISH_STOP;
    else if (r->n_tokens == r->max_tokens) event.finish = EK_FINISH_LENGTH;
    bool last = event.finish != EK_FINISH_NONE;
    if (last) ek_queue_remove(e, r);
    event = about(r, event);
    if (last && ek_shelf_take_leaving(e, r, &event)) return true;
    send(r, &event);
    if (last) ek_request_free(r);
    return last;
}

/* Sends last events that have waited; all of them once the engine ends. */
static bool send_leaving(ek_engine *e)
{
    bool any = false, now;
    if (!e->leaving) return false;
    pthread_mutex_lock(&e->lock);
    now = e->closed;
    pthread_mutex_unlock(&e->lock);
    for (ek_leaving *l; (l = ek_shelf_next_leaving(e, now)) != NULL; any = true) {
        send(l->req, &l->event);
        ek_leaving_end(l);
    }
    return any;
}

/* Applies the results of a step to a request, only after the step succeeded. The pages of refused tokens are returned
 * before a sink is called. Each token is delivered as if it were the step's only one. */
static void deliver(ek_engine *e, const ek_scheduled *s)
{
    ek_request *r = s->req;
    if (s->err) {
        r->cache.suspect = true;
        finish(e, r, EK_FINISH_ERROR, s->err, s->text);
        return;
    }
    r->n_done += s->n_rows - s->n_draft + s->n_accepted;
    if (r->cache.reading) atomic_store(&r->cache.reading->done, r->n_done < r->n_given ? r->n_done : r->n_given);
    r->turn.n_steps++;
    ek_page_table_truncate(&r->table, e->pages, r->n_done + r->n_ahead);
    ek_reuse_capture(e, r);
    ek_page_table_trim(&r->table, e->pages, r->n_done);
    send_prompt_logits(e, s);
    ek_draft_learn(e, s);
    for (int i = 0; i < s->n_draws && i <= s->n_accepted; i++) {
        if (i > 0 && atomic_load(&r->cancelled)) return; /* no further token, as without drafts */
        if (send_token(e, r, &e->plan.draw[s->draw + i])) return;
    }
    ek_draft_follow(r);
}

static void deliver_all(ek_engine *e)
{
    const ek_plan *p = &e->plan;
    if (e->on_results) e->on_results(e->on_results_arg, true);
    for (int i = 0; i < p->n_scheduled; i++)
        if (p->scheduled[i].req) deliver(e, &p->scheduled[i]);
    if (e->on_results) e->on_results(e->on_results_arg, false);
}

/* Prompt rows of the step, for the statistics; a single row beside replies is too short to measure. */
static int prompt_rows(const ek_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_scheduled; i++) {
        const int own = p->scheduled[i].n_rows - p->scheduled[i].n_draft;
        n += own > 1 ? own : 0;
    }
    return n;
}

static int n_replies(const ek_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_scheduled; i++)
        n += p->scheduled[i].n_draws > 0 && p->scheduled[i].n_rows - p->scheduled[i].n_draft == 1;
    return n;
}

static void count(ek_engine *e, double seconds)
{
    const ek_plan *p = &e->plan;
    double waited = ek_masks_waited(p->masks);
    ek_pace_step(&e->pace, p->n_rows, seconds);
    const int rows = prompt_rows(p), replies = n_replies(p);
    ek_gap_note(&e->timing.gap, rows, seconds);
    ek_hold_note(e, rows, p->n_scheduled - replies, replies, seconds);
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    if (waited >= 0) ek_histogram_add(&e->stats.mask_seconds, EK_HISTOGRAM_MICRO, waited);
    ek_histogram_add(&e->stats.step_seconds, EK_HISTOGRAM_SECONDS, seconds);
    ek_histogram_add(&e->stats.step_requests, EK_HISTOGRAM_COUNTS, p->n_scheduled);
    for (int i = 0; i < p->n_scheduled; i++) {
        const ek_scheduled *s = &p->scheduled[i];
        if (!s->req || s->err || s->n_draws == 0) continue;
        e->stats.reply_tokens += 1 + (uint64_t)s->n_accepted;
        e->stats.drafted_tokens += (uint64_t)s->n_draft;
        e->stats.accepted_tokens += (uint64_t)s->n_accepted;
        e->stats.remote_accepted += s->remote ? (uint64_t)s->n_accepted : 0;
        if (s->req->n_tokens != s->req->n_given) continue; /* only the reply's first token */
        e->stats.prompt_tokens += (uint64_t)s->req->n_given;
        e->stats.cached_tokens += (uint64_t)s->req->cache.n_cached;
        for (int k = 0; k < 2; k++) {
            e->stats.media_tokens[k] += (uint64_t)s->req->media.n_tokens[k];
            e->stats.media_reused[k] += (uint64_t)s->req->media.n_reused[k];
        }
    }
    pthread_mutex_unlock(&e->lock);
}

#define PUBLISH_COUNTED(ctype, field, of)
#define PUBLISH_READ(ctype, field, of)
#define PUBLISH_SHARED(ctype, field, of)
#define PUBLISH_HERE(ctype, field, of) e->stats.field = (ctype)(of);
#define PUBLISH_DISK(ctype, field, of) \
    if (disk) e->stats.field = atomic_load(&disk->of);
#define PUBLISH_HOST(ctype, field, of) \
    if (host) e->stats.field = atomic_load(&host->of);

static void publish(ek_engine *e)
{
    const ek_store_counts *disk = e->store ? ek_store_counts_of(e->store) : NULL;
    const ek_store_counts *host = e->store ? ek_store_host_counts_of(e->store) : NULL;
    ek_prefix_stats cache = {0};
    if (e->prefix) ek_prefix_held_flush(e->prefix);
    if (e->prefix) ek_prefix_stats_read(e->prefix, &cache);
    pthread_mutex_lock(&e->lock);
#define STAT(section, ctype, field, from, of, type, name, help) PUBLISH_##from(ctype, field, of)
#include "engine/stats.def"
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        e->stats.pages_used[k] = e->stats.pages_total[k] - ek_pages_unused(e->pages, (ek_layer_kind)k);
        e->stats.pages_cached[k] = ek_pages_idle(e->pages, (ek_layer_kind)k);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Ends requests that require more cached tokens than there are. */
static bool drop_uncached(ek_engine *e)
{
    bool any = false;
    for (ek_request *r = e->any_uncached ? e->waiting : NULL, *next; r; r = next) {
        next = r->next;
        if (!r->cache.uncached) continue;
        finish(e, r, EK_FINISH_UNCACHED, EK_OK, NULL);
        any = true;
    }
    e->any_uncached = false;
    return any;
}

/* Computes the content ids of pictures and sounds in new requests; the first such request waits for the towers. */
static void name_parts(ek_engine *e)
{
    for (ek_request *r = e->unnamed ? e->waiting : NULL, *next; r; r = next) {
        next = r->next;
        if (r->media.n_parts == 0 || r->cache.content) continue;
        const ek_err err = ek_encoder_load(&e->on.encoder);
        if (err) finish_failed(e, r, err);
        else ek_request_name_parts(r, &e->on.encoder);
    }
    e->unnamed = false;
}

/* Encodes a slice for running requests. */
static bool encode(ek_engine *e)
{
    ek_request *failed;
    ek_err err;
    e->timing.encoded = 0;
    if (!e->on.encoder.begin) return false;
    ek_encode_supply(e);
    const double begin = ek_engine_now(e);
    if (!ek_encode_slice(e, &failed, &err)) return false;
    e->timing.encoded = ek_engine_now(e) - begin;
    if (failed) finish_failed(e, failed, err);
    return true;
}

/* Moves every live request forward by one decoded token or one prompt chunk. The plan decides
 * who shares the step and nothing else. */
bool ek_engine_step(ek_engine *e)
{
    ek_plan *p = &e->plan;
    ek_queue_drain_inbox(e);
    bool worked = drop_cancelled(e);
    name_parts(e);
    if (e->waiting || e->n_running > 0) ek_audit_pause(e);
    const bool begun = ek_ahead_take(e);
    if (!begun) {
        ek_plan_admit(e);
        worked |= drop_uncached(e);
        worked |= encode(e);
        ek_plan_make(e);
    }
    if (p->n_scheduled > 0) {
        worked = true;
        e->n_steps++;
        const double begin = begun ? e->timing.ended : ek_engine_now(e); /* times affect only speed and statistics */
        run(e, begun);
        e->timing.ended = ek_engine_now(e);
        count(e, e->timing.ended - begin);
        deliver_all(e);
        ek_proposals_follow(e);
        if (ek_ahead_is_abandoned(e)) ek_ahead_drop(e);
    }
    if (e->prefix) ek_prefix_shrink(e->prefix);
    ek_shelf_save(e);
    ek_shelf_end_unwanted_load(e);
    worked |= send_leaving(e);
    if (!worked && !e->waiting && !e->leaving) worked = ek_audit_step(e);
    if (!worked && (e->load_for || e->leaving)) { /* nothing to do except wait for the store */
        ek_store_wait(e->store, 0.005);
        worked = true;
    }
    publish(e);
    return worked;
}
