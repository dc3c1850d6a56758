/* Submitting a turn to the engine, the record of its request, and its callbacks on the engine's thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "chat/turn_state.h"

/* --- the record of a request --- */

uint64_t ek_digest_row(uint64_t h, uint64_t row)
{
    return ek_hash64(h, &row, sizeof row);
}

uint64_t ek_prompt_hash(const int32_t *tokens, int n_tokens)
{
    return ek_hash64(0, tokens, (uint64_t)n_tokens * sizeof *tokens);
}

void ek_record_begin(ek_record *r, const ek_request_opts *request)
{
    if (r->mode == EK_RECORD_NONE) return;
    r->n_prompt = request->n_tokens - request->n_replied;
    r->prompt_hash = ek_prompt_hash(request->tokens, r->n_prompt);
    r->n_parts = request->n_parts;
    for (int i = 0; i < r->n_parts; i++) {
        const uint8_t *digest = request->part[i].media->digest;
        r->prompt_hash = ek_hash64(r->prompt_hash, digest, sizeof request->part[i].media->digest);
    }
    if (r->n_parts > 0) r->mode = EK_RECORD_FACTS;
    r->sampling = request->sampling;
    r->ignore_eos = request->ignore_eos;
    r->forced = request->mask != NULL;
    size_t n_bias = (size_t)request->sampling.n_bias;
    ek_logit_bias *bias = ek_alloc((n_bias + 1) * sizeof *bias);
    if (n_bias > 0) memcpy(bias, request->sampling.bias, n_bias * sizeof *bias);
    r->sampling.bias = bias;
    if (r->mode == EK_RECORD_TOKENS)
        for (int i = 0; i < r->n_prompt; i++) ek_ids_add(&r->prompt, request->tokens[i]);
}

void ek_record_bounds(ek_record *r, const char *form, bool same_form, bool thinking, int max_thinking)
{
    if (r->mode != EK_RECORD_TOKENS) return;
    r->has_bounds = true;
    r->thinking = thinking;
    r->max_thinking = max_thinking;
    r->same_form = same_form;
    if (form) r->form = ek_strdup(form);
}

void ek_record_token(ek_record *r, int32_t token)
{
    if (r->mode == EK_RECORD_TOKENS) ek_ids_add(&r->reply, token);
}

void ek_record_fini(ek_record *r)
{
    free((void *)(uintptr_t)r->sampling.bias);
    free(r->form);
    ek_ids_fini(&r->prompt);
    ek_ids_fini(&r->reply);
    *r = (ek_record){0};
}

/* --- on the engine's thread --- */

/* Runs on the engine's thread. Its pool has no other work between two steps. */
static void put_root(const ek_turn *t, ek_hash *out, const float *logits)
{
    ek_row_root(out, logits, t->n_vocab, ek_model_pool(ek_engine_model(t->engine)));
}

/* Computes as many likely tokens as the store keeps, because later requests may ask for more. */
static void make_logprobs(ek_logprobs *out, const ek_turn *t, const float *logits, int32_t token)
{
    const int all = t->n_vocab < EK_LOGPROBS_MAX ? t->n_vocab : EK_LOGPROBS_MAX;
    ek_logprobs_of(out, logits, t->n_vocab, token, t->stored.keep ? all : t->opts.n_top);
}

static ek_logprobs as_asked(const ek_logprobs *all, const ek_turn *t)
{
    ek_logprobs p = *all;
    if (p.n_top > t->opts.n_top) p.n_top = t->opts.n_top;
    return p;
}

/* A row from which a token of the reply was sampled before this turn. It is computed again. */
static void on_resumed_logits(ek_turn *t, int i, const float *logits)
{
    if ((size_t)i + 1 >= t->resumed.len) return; /* this row gives the next token */
    const uint64_t row = t->opts.digest || t->checks ? ek_logits_digest(logits, t->n_vocab) : 0;
    if (t->opts.digest) t->hash = ek_digest_row(t->hash, row);
    ek_logprobs all;
    if (t->resumed_logprobs) {
        make_logprobs(&all, t, logits, t->resumed.data[i]);
        t->resumed_logprobs[i] = as_asked(&all, t);
    }
    if (t->resumed_roots) put_root(t, &t->resumed_roots[i], logits);
    if (!t->checks) return;
    if (row != ek_reply_record_row(t->stored.found, i)) t->contradicted = true;
    ek_turn_keep_token(t, t->resumed.data[i], row, t->resumed_logprobs ? &all : NULL);
}

/* Runs on the engine's thread, inside a step, before the first event. The row at a position is about the next token. */
static void on_prompt_logits(void *user, int pos, const float *logits)
{
    ek_turn *t = user;
    if (pos + 1 >= t->n_prompt) {
        on_resumed_logits(t, pos + 1 - t->n_prompt, logits);
        return;
    }
    if (!t->opts.prompt_logprobs) return;
    ek_logprobs *p = &t->prompt_logprobs[pos + 1];
    ek_logprobs_of(p, logits, t->n_vocab, p->self.token, t->opts.n_top);
}

/* Runs on the engine's thread, inside a step. */
static void on_engine_event(void *arg, const ek_event *e)
{
    ek_turn *t = arg;
    if (t->opts.digest && e->token >= 0) t->hash = ek_digest_row(t->hash, e->digest);
    ek_turn_news news = {.user = t->user,
                         .token = e->token,
                         .finish = e->finish,
                         .err = e->err,
                         .n_prompt = e->n_prompt,
                         .n_cached = e->n_cached,
                         .n_images_kept = e->n_image_kept,
                         .n_sounds_kept = e->n_sound_kept,
                         .digest = t->hash};
    ek_logprobs all;
    const bool has = t->opts.logprobs && e->logits;
    if (has) {
        make_logprobs(&all, t, e->logits, e->token);
        news.logprobs = as_asked(&all, t);
    }
    if (t->opts.receipt && e->logits) put_root(t, &news.root, e->logits);
    if (e->finish == EK_FINISH_ERROR) news.text = e->text ? e->text : "the request failed";
    if (e->token >= 0) ek_turn_keep_token(t, e->token, e->digest, has ? &all : NULL);
    if (e->finish != EK_FINISH_NONE) ek_turn_keep_end(t, e->finish);
    t->post(t->post_arg, &news);
}

enum { BEFORE = 6, AFTER = 10 }; /* tokens around the place */

/* Writes tokens [from, to) as a quoted line. Bytes that are not printable ASCII become \xNN, so that different tokens
 * never look alike. */
static void quote(ek_buf *out, const ek_tokenizer *t, const int32_t *token, int from, int to)
{
    ek_buf_char(out, '"');
    for (int i = from; i < to; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(t, token[i], &n);
        for (size_t k = 0; k < n; k++) {
            unsigned char c = (unsigned char)s[k];
            if (c == '\n') ek_buf_str(out, "\\n");
            else if (c == '"' || c == '\\') ek_buf_fmt(out, "\\%c", c);
            else if (c < 32 || c > 126) ek_buf_fmt(out, "\\x%02x", c);
            else ek_buf_char(out, (char)c);
        }
    }
    ek_buf_char(out, '"');
}

static int at_most(int n, int max)
{
    return n < max ? n : max;
}

void ek_cache_note(ek_buf *out, const ek_chat_model *m, const ek_cache_report *r)
{
    ek_buf_fmt(out, "cache: %d of %d prompt tokens cached, %d of them used", r->n_found, r->n_prompt, r->n_used);
    int here = r->n_found, turns = 0;
    if (here >= r->n_prompt || !r->other) return;
    int32_t open = m->marks.id[EK_MARK_TURN_OPEN];
    for (int i = 0; i <= here; i++) turns += r->tokens[i] == open;
    int at = here - r->other_first, from = here - at_most(BEFORE, here), back = at_most(at, BEFORE);
    ek_buf_fmt(out, "; first difference at position %d, message %d: token %d here, %d cached; here ", here, turns,
               r->tokens[here], r->other[at]);
    quote(out, m->tokenizer, r->tokens, from, here);
    ek_buf_str(out, " then ");
    quote(out, m->tokenizer, r->tokens, here, at_most(here + AFTER, r->n_prompt));
    ek_buf_str(out, ", cached ");
    quote(out, m->tokenizer, r->other, at - back, at);
    ek_buf_str(out, " then ");
    quote(out, m->tokenizer, r->other, at, at_most(at + AFTER, r->n_other));
}

static void on_cache(void *user, const ek_cache_report *r)
{
    const ek_turn *t = user;
    ek_buf line = {0};
    ek_cache_note(&line, t->model, r);
    ek_log(EK_LOG_INFO, "%s", ek_buf_text(&line));
    ek_buf_fini(&line);
}

/* --- submitting --- */

/* The number of reply tokens that the engine gets after the prompt: those of a resumed reply except its last one, or
 * the stored ones. */
static int n_replied(const ek_turn *t)
{
    return t->resumed.len ? (int)t->resumed.len - 1 : t->n_stored;
}

static ek_ids tokens_of(const ek_turn *t, const ek_turn_prompt *prompt)
{
    const size_t n = prompt->ids.len;
    ek_ids ids = {.len = n + (size_t)n_replied(t)};
    ids.cap = ids.len + 1;
    ids.data = ek_alloc(ids.cap * sizeof *ids.data);
    if (n) memcpy(ids.data, prompt->ids.data, n * sizeof *ids.data);
    for (size_t i = n; i < ids.len; i++)
        ids.data[i] = t->resumed.len ? t->resumed.data[i - n] : ek_reply_record_token(t->stored.found, (int)(i - n));
    return ids;
}

ek_sampling ek_turn_sampling(const ek_chat_model *m, const ek_turn_opts *opts, ek_logit_bias *bias)
{
    ek_sampling s = opts->sampling;
    const int32_t call_open = m->marks.id[EK_MARK_CALL_OPEN];
    if (s.n_bias > 0) memcpy(bias, s.bias, (size_t)s.n_bias * sizeof *bias);
    if (!opts->tools_active && !opts->plain && call_open >= 0) bias[s.n_bias++] = (ek_logit_bias){call_open, -INFINITY};
    s.bias = bias;
    s.seed = ek_choice_seed(s.seed, opts->choice);
    return s;
}

/* Adds the rows of the stored tokens to the digest, and to the data that is stored next. */
static void begin_behind_stored(ek_turn *t)
{
    for (int i = 0; i < t->n_stored; i++)
        if (t->opts.digest) t->hash = ek_digest_row(t->hash, ek_reply_record_row(t->stored.found, i));
    if (t->stored.keep) ek_reply_draft_begin(&t->draft, t->stored.found, t->n_stored);
}

void ek_turn_keep_prompt(ek_turn *t, const ek_turn_prompt *p)
{
    t->prompt = (ek_turn_prompt){.thinking = p->thinking, .n_parts = p->n_parts};
    for (size_t i = 0; i < p->ids.len; i++) ek_ids_add(&t->prompt.ids, p->ids.data[i]);
    if (p->n_parts > 0) t->prompt.part = ek_alloc((size_t)p->n_parts * sizeof *p->part);
    for (int i = 0; i < p->n_parts; i++) {
        t->prompt.part[i] = p->part[i];
        ek_media_retain(p->part[i].media);
    }
}

ek_err ek_turn_submit(ek_turn *t, ek_engine *e, const ek_turn_prompt *prompt, ek_turn_post_fn *post, void *arg,
                      void *user)
{
    ek_logit_bias *bias = ek_alloc(((size_t)t->opts.sampling.n_bias + 1) * sizeof *bias);
    const ek_sampling s = ek_turn_sampling(t->model, &t->opts, bias);
    t->engine = e;
    t->n_vocab = t->bounds.n_vocab = ek_engine_vocab(e);
    if (t->opts.prompt_logprobs) {
        t->prompt_logprobs = ek_alloc(prompt->ids.len * sizeof *t->prompt_logprobs);
        for (size_t i = 0; i < prompt->ids.len; i++) t->prompt_logprobs[i].self.token = prompt->ids.data[i];
        t->prompt_logprobs[0].n_top = -1;
    }
    const int replied = n_replied(t), n_prompt = (int)prompt->ids.len;
    const bool again = replied > 0 && t->resumed.len > 0 &&
                       (t->opts.logprobs || t->opts.digest || t->opts.receipt || t->checks); /* its tokens' rows */
    if (again && t->opts.logprobs) t->resumed_logprobs = ek_alloc((size_t)replied * sizeof *t->resumed_logprobs);
    if (again && t->opts.receipt) t->resumed_roots = ek_alloc((size_t)replied * sizeof *t->resumed_roots);
    ek_ids ids = replied > 0 ? tokens_of(t, prompt) : prompt->ids;
    t->post = post;
    t->post_arg = arg;
    t->user = user;
    t->live = t->outcome != EK_REPLY_HIT; /* set before the first news can arrive */
    if (t->live) begin_behind_stored(t);
    if (t->checks) ek_turn_keep_prompt(t, prompt);
    const bool takes_over = t->shared_once; /* the record of the reply has begun */
    const bool shares = ek_turn_share(t, prompt);
    ek_mask mask = ek_bounds_mask(&t->bounds);
    ek_request_opts r = {
        .mask = ek_bounds_any(&t->bounds) ? &mask : NULL,
        .tokens = ids.data,
        .n_tokens = (int)ids.len,
        .n_replied = replied,
        .part = prompt->part,
        .n_parts = prompt->n_parts,
        .max_tokens = t->opts.max_tokens > 0 ? t->opts.max_tokens : 1, /* the engine makes one, the turn drops it */
        .sampling = s,
        .ignore_eos = t->opts.ignore_eos,
        .sink = on_engine_event,
        .arg = t,
        .user = t,
        .prompt_logits_from = t->opts.prompt_logprobs ? 0
                              : again                 ? n_prompt - 1
                                                      : (int)ids.len,
        .on_prompt_logits = t->opts.prompt_logprobs || again ? on_prompt_logits : NULL,
        .reply_logits = t->opts.logprobs || t->opts.receipt,
        .reply_digest = t->opts.digest || t->stored.keep,
        .client = t->opts.client,
        .cache_salt = t->opts.cache_salt,
        .cache_owner = t->opts.cache_owner,
        .min_cached = t->opts.min_cached,
        .publish = t->opts.publish,
        .cache_salt_text = t->opts.cache_salt_text,
        .cache_salt_len = t->opts.cache_salt_len,
        .reading = &t->reading,
        .on_cache = ek_log_wants(EK_LOG_CACHE) ? on_cache : NULL,
    };
    if (!takes_over) ek_record_begin(&t->record, &r);
    if (!takes_over && r.mask && (!t->opts.grammar || t->opts.form || t->opts.same_form))
        ek_record_bounds(&t->record, t->opts.form, t->opts.same_form, t->thinking, t->bounds.thought.max);
    ek_err err = t->live && !shares ? ek_engine_submit(e, &r, &t->id) : ek_sampling_check(&s, t->n_vocab);
    if (err) {
        ek_turn_unfollow(t);
        if (t->leading) ek_turn_keep_end(t, EK_FINISH_ERROR);
        t->live = false;
    }
    if (replied > 0) ek_ids_fini(&ids);
    free(bias);
    return err;
}

ek_err ek_turn_submit_again(ek_turn *t)
{
    const ek_record_mode mode = t->record.mode;
    t->restarts = t->checks = t->contradicted = false;
    t->outcome = EK_REPLY_MISS;
    t->hash = 0;
    ek_ids_fini(&t->resumed);
    free(t->resumed_logprobs);
    t->resumed_logprobs = NULL;
    free(t->resumed_roots);
    t->resumed_roots = NULL;
    ek_bounds_fini(&t->bounds);
    ek_bounds_init(&t->bounds, t->model, t->opts.grammar, t->opts.plain ? 0 : t->opts.max_thinking, t->prompt.ids.data,
                   t->prompt.ids.len, t->thinking);
    ek_record_fini(&t->record);
    t->record.mode = mode;
    ek_reply_draft_fini(&t->draft);
    t->keeps = t->stored.keep;
    return ek_turn_submit(t, t->engine, &t->prompt, t->post, t->post_arg, t->user);
}

void ek_turn_reading(ek_turn *t, int *cached, int *done)
{
    *cached = atomic_load(&t->reading.cached);
    *done = atomic_load(&t->reading.done);
}
