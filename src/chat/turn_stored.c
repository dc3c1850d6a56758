/* The part of a turn's reply that comes from the store of replies or from another turn, and the data that the turn
 * stores. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "chat/turn_state.h"
#include "replies/ask.h"

/* s: of ek_turn_sampling. */
static ek_reply_ask ask_of(const char *identity, const ek_turn_prompt *prompt, const ek_turn_opts *opts,
                           const ek_sampling *s, const char *form)
{
    const int max_thinking = opts->plain ? 0 : opts->max_thinking;
    return (ek_reply_ask){.identity = identity,
                          .tokens = prompt->ids.data,
                          .n_tokens = (int)prompt->ids.len,
                          .part = prompt->part,
                          .n_parts = prompt->n_parts,
                          .sampling = s,
                          .masked = form || max_thinking > 0,
                          .program = EK_VERSION,
                          .form = form,
                          .max_thinking = max_thinking,
                          .thinking = prompt->thinking};
}

void ek_turn_key(ek_reply_key *out, ek_buf *to, const char *identity, const ek_chat_model *m,
                 const ek_turn_prompt *prompt, const ek_turn_opts *opts, const char *form)
{
    ek_logit_bias *bias = ek_alloc(((size_t)opts->sampling.n_bias + 1) * sizeof *bias);
    const ek_sampling s = ek_turn_sampling(m, opts, bias);
    const ek_reply_ask ask = ask_of(identity, prompt, opts, &s, form);
    ek_reply_content_key(out, &ask);
    if (to) ek_reply_ask_write(to, &ask);
    free(bias);
}

void ek_turn_nearest(ek_buf *out, const ek_replies *r, const ek_chat_model *m, const ek_turn_prompt *prompt,
                     const ek_turn_opts *opts, const char *form)
{
    ek_logit_bias *bias = ek_alloc(((size_t)opts->sampling.n_bias + 1) * sizeof *bias);
    const ek_sampling s = ek_turn_sampling(m, opts, bias);
    const ek_reply_ask ask = ask_of(ek_replies_identity(r), prompt, opts, &s, form);
    ek_replies_nearest(r, out, &ask);
    free(bias);
}

/* --- tokens from the store --- */

static void ignore(void *arg, const ek_reply_event *e)
{
    (void)arg, (void)e;
}

static bool is_stop(const ek_turn *t, int32_t token)
{
    return !t->opts.ignore_eos && ek_replies_is_stop(t->stored.replies, token);
}

/* The end that stored token i causes, or NONE. */
static ek_finish finish_at(const ek_turn *t, int i, int32_t token)
{
    if (is_stop(t, token)) return EK_FINISH_STOP;
    return i + 1 == t->limit ? EK_FINISH_LENGTH : EK_FINISH_NONE;
}

/* Maximum tokens of the reply; below 1: none fit. */
static int limit_of(const ek_turn *t)
{
    const int room = t->stored.ctx_tokens - t->n_prompt;
    return t->opts.max_tokens < room ? t->opts.max_tokens : room;
}

static ek_turn_news news_at(const ek_turn *t, int i, int32_t token)
{
    return (ek_turn_news){.token = token, .n_prompt = t->n_prompt, .finish = finish_at(t, i, token)};
}

static ek_turn_news news_of(const ek_turn *t, int i)
{
    return news_at(t, i, ek_reply_record_token(t->stored.found, i));
}

/* The number of the n stored tokens after which the reply ends: by a stop string, by a call that was enough, or by
 * ends_by_tokens; 0: it does not end. */
static int ends_within(const ek_turn *t, const ek_turn_prompt *prompt, const ek_turn_opts *opts, int n)
{
    ek_turn *dry;
    ek_turn_opts o = *opts;
    o.stored = NULL, o.resumed = NULL;
    o.grammar = NULL;
    o.max_thinking = 0;
    o.record = EK_RECORD_NONE;
    o.logprobs = o.prompt_logprobs = o.digest = o.receipt = false;
    if (ek_turn_open(&dry, t->model, prompt, &o, ignore, NULL)) return 0; /* t was opened with the same options */
    for (int i = 0; i < n && dry->result.end == EK_END_NONE; i++) {
        const ek_turn_news news = news_of(t, i);
        ek_turn_feed(dry, &news);
    }
    const int end = dry->result.end != EK_END_NONE ? dry->result.n_tokens : 0;
    ek_turn_close(dry);
    return end;
}

/* The end that tokens alone determine: after a stop token, or at the limit; 0: none. */
static int ends_by_tokens(const ek_turn *t)
{
    const int n = ek_reply_record_tokens(t->stored.found);
    for (int i = 0; i < n; i++)
        if (news_of(t, i).finish != EK_FINISH_NONE) return i + 1;
    return 0;
}

static void read_again(ek_turn *t, int n)
{
    int32_t *tokens = ek_alloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = ek_reply_record_token(t->stored.found, i);
    const ek_turn_resumed again = {.tokens = tokens, .n = n};
    ek_turn_take_resumed(t, &again);
    t->checks = true;
    free(tokens);
}

/* Continues after the record's first n tokens. */
static void go_on_behind(ek_turn *t, int n)
{
    ek_mask mask = ek_bounds_mask(&t->bounds);
    t->n_stored = n;
    for (int i = 0; i < n && ek_bounds_any(&t->bounds); i++)
        mask.accept(mask.arg, ek_reply_record_token(t->stored.found, i));
}

static void plan(ek_turn *t, const ek_turn_prompt *prompt, const ek_turn_opts *opts)
{
    const ek_reply_record *found = t->stored.found;
    const int n = ek_reply_record_tokens(found);
    /* No record has roots of rows. */
    const int complete = opts->receipt ? 0 : opts->logprobs ? ek_reply_record_n_probs(found) : n;
    t->limit = limit_of(t);
    if (t->limit < 1) return; /* the engine reports the error */
    int end = ends_by_tokens(t);
    if (!end || complete < end) {
        const int sooner = ends_within(t, prompt, opts, end ? end : n);
        if (sooner) end = sooner;
    }
    const bool lacks = complete < (end ? end : n);
    t->outcome = lacks || !end ? EK_REPLY_PART : EK_REPLY_HIT;
    if (lacks) read_again(t, end ? end : n);
    else if (!end) go_on_behind(t, n);
    else t->n_stored = end;
}

void ek_turn_plan_stored(ek_turn *t, const ek_turn_prompt *prompt, const ek_turn_opts *opts)
{
    t->stored = *opts->stored;
    t->stored.found = ek_reply_record_retain(t->stored.found);
    t->stored.keep &= opts->max_tokens > 0;
    t->keeps = t->stored.keep;
    pthread_mutex_init(&t->keeping, NULL);
    if (t->stored.ask && t->stored.keep) {
        t->ask = ek_alloc(t->stored.n_ask + 1);
        memcpy(t->ask, t->stored.ask, t->stored.n_ask);
    }
    t->stored.ask = NULL;
    if (t->stored.looked_up) t->outcome = EK_REPLY_MISS;
    if (t->stored.found) plan(t, prompt, opts);
}

ek_reply_outcome ek_turn_outcome(const ek_turn *t)
{
    return t->outcome;
}

ek_reply_record *ek_turn_stored_record(const ek_turn *t)
{
    return t->stored.found;
}

bool ek_turn_has_stored(const ek_turn *t)
{
    if (t->following) return t->result.end == EK_END_NONE && t->n_out < ek_flight_tokens(t->following);
    return t->n_out < t->n_stored && t->result.end == EK_END_NONE;
}

int ek_turn_stored_tokens(const ek_turn *t)
{
    return t->n_out;
}

/* The reply is computed by another turn, so this turn computed none of it. */
static void next_of_flight(ek_turn *t, ek_turn_news *news)
{
    int32_t token;
    uint64_t row;
    ek_logprobs probs = {0};
    const int i = t->n_out++;
    ek_flight_get(t->following, i, &token, &row, t->opts.logprobs ? &probs : NULL);
    *news = news_at(t, i, token);
    news->user = t->user;
    news->n_cached = t->n_prompt;
    news->n_images_kept = t->result.n_images;
    news->n_sounds_kept = t->result.n_sounds;
    if (t->opts.digest) news->digest = t->stored_hash = ek_digest_row(t->stored_hash, row);
    if (probs.n_top > t->opts.n_top) probs.n_top = t->opts.n_top;
    news->logprobs = probs;
    if (news->finish != EK_FINISH_NONE) ek_turn_unfollow(t);
}

bool ek_turn_next_stored(ek_turn *t, ek_turn_news *news)
{
    const ek_reply_record *found = t->stored.found;
    const bool all = t->outcome == EK_REPLY_HIT; /* otherwise the prompt still has to be computed */
    if (!ek_turn_has_stored(t)) return false;
    if (t->following) {
        next_of_flight(t, news);
        return true;
    }
    const int i = t->n_out++;
    *news = news_of(t, i);
    news->user = t->user;
    news->n_cached = all ? t->n_prompt : 0;
    news->n_images_kept = all ? t->result.n_images : 0;
    news->n_sounds_kept = all ? t->result.n_sounds : 0;
    if (t->opts.digest) news->digest = t->stored_hash = ek_digest_row(t->stored_hash, ek_reply_record_row(found, i));
    if (t->opts.logprobs) ek_reply_record_probs(found, i, t->opts.n_top, &news->logprobs);
    return true;
}

/* --- tokens to the store --- */

void ek_turn_keep_token(ek_turn *t, int32_t token, uint64_t row, const ek_logprobs *probs)
{
    if (!t->stored.keep) return;
    pthread_mutex_lock(&t->keeping);
    if (t->keeps) ek_reply_draft_add(&t->draft, token, row, probs);
    if (t->keeps && t->leading) ek_flight_add(t->leading, token, row, probs);
    pthread_mutex_unlock(&t->keeping);
}

void ek_turn_keep_end(ek_turn *t, ek_finish finish)
{
    const bool good = finish == EK_FINISH_STOP || finish == EK_FINISH_LENGTH || finish == EK_FINISH_CANCELLED;
    ek_reply_record *r = NULL;
    if (!t->stored.keep) return;
    pthread_mutex_lock(&t->keeping);
    ek_flight *flight = t->leading;
    if (t->keeps && good && t->draft.n > 0 && !t->contradicted)
        r = ek_reply_record_make(&t->stored.key, &t->draft, t->ask, t->stored.n_ask);
    t->keeps = false;
    t->leading = NULL;
    pthread_mutex_unlock(&t->keeping);
    if (r) ek_replies_put(t->stored.replies, t->stored.owner, r);
    if (flight) ek_flight_land(flight); /* after the store, so that a later turn finds the reply there */
}

/* --- a reply that another turn computes (ek_flight): this one takes its tokens as they arrive, and computes the rest
 * itself if the other turn ends earlier --- */

/* Runs on the leader's engine thread, so it only sends news. */
static void wake(void *arg)
{
    const ek_turn *t = arg;
    const ek_turn_news news = {.user = t->user, .token = -1, .wakes = true, .n_prompt = t->n_prompt};
    t->post(t->post_arg, &news);
}

static bool may_share(const ek_turn *t)
{
    const ek_turn_opts *o = &t->opts;
    return t->outcome == EK_REPLY_MISS && t->stored.keep && !t->stored.found && o->min_cached <= 0 && !o->receipt &&
           !o->publish && !t->shared_once;
}

bool ek_turn_share(ek_turn *t, const ek_turn_prompt *prompt)
{
    bool leads;
    if (!may_share(t)) return false;
    t->shared_once = true;
    t->follower = (ek_flight_follower){.wake = wake, .arg = t};
    t->limit = limit_of(t);
    if (t->limit < 1) return false; /* the engine reports the error */
    ek_flight *f = ek_flight_join(ek_replies_flights(t->stored.replies), &t->stored.key, t->opts.logprobs, &t->follower,
                                  &leads);
    if (!f) return false;
    if (leads) {
        t->leading = f;
        return false;
    }
    t->following = f;
    t->outcome = EK_REPLY_PART;
    ek_turn_keep_prompt(t, prompt);
    return true;
}

void ek_turn_unfollow(ek_turn *t)
{
    if (!t->following) return;
    ek_flight_leave(t->following, &t->follower);
    t->following = NULL;
}

/* Whether the turn's own end is among the present tokens. */
static bool ends_there(const ek_turn *t)
{
    int32_t token;
    uint64_t row;
    for (int i = t->n_out; ek_flight_get(t->following, i, &token, &row, NULL); i++)
        if (finish_at(t, i, token) != EK_FINISH_NONE) return true;
    return false;
}

static ek_err take_over(ek_turn *t)
{
    ek_reply_record *so_far;
    ek_flight *f = t->following;
    if (ek_flight_has_leader(f) || ends_there(t) || !ek_flight_claim(f, &t->follower, &so_far)) return EK_OK;
    t->following = NULL;
    t->leading = f;
    t->stored.found = so_far;
    go_on_behind(t, so_far ? ek_reply_record_tokens(so_far) : 0);
    return ek_turn_submit(t, t->engine, &t->prompt, t->post, t->post_arg, t->user);
}

ek_err ek_turn_awake(ek_turn *t)
{
    if (!t->following) {
        t->follower.pending = false;
        return EK_OK;
    }
    ek_flight_awake(t->following, &t->follower);
    return t->result.end == EK_END_NONE ? take_over(t) : EK_OK;
}
