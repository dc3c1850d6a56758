#include "chat/turn.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "chat/turn_state.h"

/* --- text --- */

static void note_loop(ek_turn *t, ek_loop_kind kind, int period)
{
    ek_turn_result *r = &t->result;
    if (r->loop != EK_LOOP_NONE) return;
    r->loop = kind;
    r->loop_at = r->n_tokens;
    r->loop_period = period;
}

static void emit(ek_turn *t, const ek_reply_event *e)
{
    const ek_answer *a = &t->result.answer;
    ek_reply_collect(&t->result.answer, e);
    t->sink(t->sink_arg, e);
    if (e->kind != EK_REPLY_CALL_END || a->n_calls == 0) return;
    const ek_answer_call *c = &a->calls[a->n_calls - 1];
    if (ek_loops_call(&t->loops, t->opts.past_calls, c->name, ek_buf_text(&c->args), c->args.len))
        note_loop(t, EK_LOOP_OF_CALLS, 0);
}

static void emit_text(ek_turn *t, ek_buf *text)
{
    ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = ek_buf_text(text), .n = text->len};
    if (text->len > 0) emit(t, &e);
    ek_buf_fini(text);
}

static void emit_visible(ek_turn *t, ek_buf *text)
{
    if (!t->holding) {
        emit_text(t, text);
        return;
    }
    ek_buf_add(&t->held, ek_buf_text(text), text->len);
    ek_buf_fini(text);
}

static void release(ek_turn *t)
{
    ek_buf text = t->held;
    t->held = (ek_buf){0};
    emit_text(t, &text);
}

static void on_content(ek_turn *t, const char *s, size_t n)
{
    ek_buf visible = {0};
    int hit = ek_stop_feed(t->stop, s, n, &visible);
    t->fed += n;
    t->stop_hit = hit >= 0;
    if (hit >= 0) t->result.stop_string = hit;
    emit_visible(t, &visible);
}

static void emit_held(ek_turn *t)
{
    ek_buf rest = {0};
    if (!t->stop_hit && t->stop) ek_stop_end(t->stop, &rest);
    emit_visible(t, &rest);
}

static void on_reply(void *arg, const ek_reply_event *e)
{
    ek_turn *t = arg;
    if (t->stop_hit) return;
    if (e->kind != EK_REPLY_CONTENT) {
        if (e->kind == EK_REPLY_CALL_START) emit_held(t); /* the text before the call stays before it */
        if (e->kind == EK_REPLY_REASONING && t->fed == 0) t->result.n_logprobs = 0; /* its header was like text */
        release(t);
        emit(t, e);
        return;
    }
    on_content(t, e->text, e->n);
}

/* Releases the held text. */
static void flush(ek_turn *t, bool truncated)
{
    if (t->opts.plain) {
        ek_buf rest = {0};
        ek_utf8_stream_end(&t->utf8, &rest);
        on_content(t, ek_buf_text(&rest), rest.len);
        ek_buf_fini(&rest);
    } else {
        ek_reply_end(t->reply, truncated);
    }
    emit_held(t);
}

/* --- opening and closing --- */

void ek_turn_take_resumed(ek_turn *t, const ek_turn_resumed *r)
{
    for (int i = 0; i < r->n; i++) ek_ids_add(&t->resumed, r->tokens[i]);
    t->before = *r;
    t->before.n_cached = r->n_cached < t->n_prompt ? r->n_cached : t->n_prompt - 1;
    t->before.n_images_kept = r->n_images_kept < t->result.n_images ? r->n_images_kept : t->result.n_images;
    t->before.n_sounds_kept = r->n_sounds_kept < t->result.n_sounds ? r->n_sounds_kept : t->result.n_sounds;
    t->has_digest_before = r->digest && t->opts.digest;
    if (r->digest) t->digest_before = *r->digest;
    if (r->bounds) {
        ek_bounds_fini(&t->bounds);
        t->bounds = *r->bounds;
        *r->bounds = (ek_bounds){0};
        return;
    }
    ek_mask mask = ek_bounds_mask(&t->bounds);
    for (int i = 0; i + 1 < r->n; i++) mask.accept(mask.arg, r->tokens[i]);
}

ek_err ek_turn_open(ek_turn **out, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *opts,
                    ek_reply_sink_fn *sink, void *arg)
{
    ek_stop *stop = NULL;
    if (opts->n_stop > 0) EK_TRY(ek_stop_open(&stop, opts->stop, opts->stop_len, opts->n_stop));
    ek_turn *t = ek_alloc(sizeof *t);
    *t = (ek_turn){.model = m, .opts = *opts, .stop = stop, .sink = sink, .sink_arg = arg};
    t->record.mode = opts->record;
    ek_reply_opts r = {.tools_active = opts->tools_active,
                       .one_call = opts->one_call,
                       .stream_calls = opts->grammar != NULL,
                       .ignore_eos = opts->ignore_eos,
                       .lenient_start = prompt->thinking,
                       .tools = opts->tools,
                       .sink = on_reply,
                       .arg = t};
    t->reply = ek_reply_open(m->tokenizer, &r);
    ek_reply_start(t->reply, prompt->ids.data, prompt->ids.len);
    t->result.n_prompt = t->n_prompt = (int)prompt->ids.len;
    t->result.n_images = prompt->n_image_tokens;
    t->result.n_sounds = prompt->n_sound_tokens;
    ek_bounds_init(&t->bounds, m, opts->grammar, opts->plain ? 0 : opts->max_thinking, prompt->ids.data,
                   prompt->ids.len, prompt->thinking);
    t->thinking = prompt->thinking;
    if (opts->resumed) ek_turn_take_resumed(t, opts->resumed);
    if (opts->stored) ek_turn_plan_stored(t, prompt, opts);
    t->opts.resumed = NULL;
    t->opts.stored = NULL;
    *out = t;
    return EK_OK;
}

void ek_turn_close(ek_turn *t)
{
    if (!t) return;
    EK_ASSERT(!ek_turn_live(t) && !t->following && !t->leading);
    ek_reply_close(t->reply);
    ek_bounds_fini(&t->bounds);
    if (t->stop) ek_stop_close(t->stop);
    ek_answer_fini(&t->result.answer);
    ek_record_fini(&t->record);
    free(t->result.error);
    free(t->result.logprobs);
    free(t->prompt_logprobs);
    free(t->resumed_logprobs);
    free(t->resumed_roots);
    ek_ids_fini(&t->result.tokens);
    ek_buf_fini(&t->result.roots);
    ek_ids_fini(&t->resumed);
    ek_reply_record_release(t->stored.found);
    ek_reply_draft_fini(&t->draft);
    if (t->stored.replies) pthread_mutex_destroy(&t->keeping);
    free(t->ask);
    ek_turn_prompt_fini(&t->prompt);
    ek_buf_fini(&t->held);
    free(t);
}

const ek_turn_result *ek_turn_result_of(const ek_turn *t)
{
    return &t->result;
}

ek_record ek_turn_take_record(ek_turn *t)
{
    ek_record r = t->record;
    r.n_stored = t->n_out;
    t->record = (ek_record){0};
    return r;
}

bool ek_turn_live(const ek_turn *t)
{
    return t->live || t->follower.pending; /* after the turn becomes live, pending belongs to the turn */
}

void ek_turn_cancel(ek_turn *t)
{
    t->given_up = true;
    if (t->following) {
        const ek_turn_news news = {
            .user = t->user, .token = -1, .finish = EK_FINISH_CANCELLED, .n_prompt = t->n_prompt};
        ek_turn_unfollow(t);
        if (t->result.end == EK_END_NONE) t->post(t->post_arg, &news);
        else t->live = false;
    } else if (t->live) {
        ek_engine_cancel(t->engine, t->id);
    }
}

void ek_turn_abandon(ek_turn *t)
{
    if (t->result.end == EK_END_NONE) t->result.end = EK_END_CANCELLED;
    ek_turn_cancel(t);
}

/* --- the engine's news --- */

/* Tokens of a plain reply are content. */
static ek_token_kind feed_plain(ek_turn *t, int32_t token)
{
    size_t n;
    const char *bytes = ek_tokenizer_bytes(t->model->tokenizer, token, &n);
    if (ek_tokenizer_is_special(t->model->tokenizer, token) && !t->opts.show_special) return EK_TOKEN_MARKUP;
    if (t->stop_hit) return EK_TOKEN_CONTENT;
    ek_buf text = {0};
    ek_utf8_stream_add(&t->utf8, &text, bytes, n);
    on_content(t, ek_buf_text(&text), text.len);
    ek_buf_fini(&text);
    return EK_TOKEN_CONTENT;
}

static void add_logprobs(ek_turn *t, const ek_logprobs *at, size_t from)
{
    ek_turn_result *r = &t->result;
    if (r->n_logprobs == t->cap_logprobs) {
        t->cap_logprobs = t->cap_logprobs ? 2 * t->cap_logprobs : 64;
        r->logprobs = ek_realloc(r->logprobs, (size_t)t->cap_logprobs * sizeof *r->logprobs);
    }
    r->logprobs[r->n_logprobs++] = (ek_turn_logprobs){*at, from};
}

static void feed_token(ek_turn *t, const ek_turn_news *news)
{
    t->result.n_tokens++;
    t->result.digest = news->digest;
    ek_record_token(&t->record, news->token);
    if (t->opts.receipt) {
        ek_ids_add(&t->result.tokens, news->token);
        ek_buf_add(&t->result.roots, &news->root, sizeof news->root);
    }
    /* A stop token only ends the reply. The configuration may add stop tokens that have a text. */
    if (news->finish == EK_FINISH_STOP) return;
    const int period = ek_loops_token(&t->loops, news->token);
    if (period > 0) note_loop(t, EK_LOOP_OF_TOKENS, period);
    size_t from = t->fed;
    t->holding = t->opts.logprobs;
    ek_token_kind kind = t->opts.plain ? feed_plain(t, news->token) : ek_reply_feed(t->reply, news->token);
    t->holding = false;
    t->result.n_reasoning += kind == EK_TOKEN_REASONING;
    if (t->opts.logprobs && kind == EK_TOKEN_CONTENT) add_logprobs(t, &news->logprobs, from);
    release(t);
}

/* A reply that has ended by itself stays ended, unless it asks for the same call once more. */
static void end_loop(ek_turn *t)
{
    ek_turn_result *r = &t->result;
    if (r->end == EK_END_NONE) flush(t, true);
    else if (r->end != EK_END_CALLS || r->loop != EK_LOOP_OF_CALLS) return;
    r->n_malformed = ek_reply_malformed(t->reply);
    r->end = EK_END_LOOP;
}

static void set_end(ek_turn *t, ek_finish finish)
{
    ek_turn_result *r = &t->result;
    bool stopped = finish == EK_FINISH_STOP || ek_reply_stopped(t->reply);
    if (!t->stop_hit && (stopped || finish == EK_FINISH_LENGTH || finish == EK_FINISH_CANCELLED)) flush(t, !stopped);
    r->n_malformed = ek_reply_malformed(t->reply);
    if (t->stop_hit) r->end = EK_END_STOP_STRING;
    else if (stopped) r->end = ek_reply_calls(t->reply) > 0 ? EK_END_CALLS : EK_END_STOP;
    else if (finish == EK_FINISH_LENGTH)
        r->end = r->n_tokens >= t->opts.max_tokens ? EK_END_MAX_TOKENS : EK_END_CONTEXT;
    else if (finish == EK_FINISH_UNCACHED) r->end = EK_END_UNCACHED;
    else if (finish == EK_FINISH_CANCELLED) r->end = EK_END_CANCELLED;
    if (t->opts.stop_loops && r->loop != EK_LOOP_NONE) end_loop(t);
}

/* Prompt tokens from caches. A resumed reply has the numbers from its beginning. */
static void note_cached(ek_turn *t, const ek_turn_news *news)
{
    ek_turn_result *r = &t->result;
    const bool before = t->resumed.len > 0 && !t->checks;
    r->n_cached = before ? t->before.n_cached : news->n_cached;
    r->n_images_kept = before ? t->before.n_images_kept : news->n_images_kept;
    r->n_sounds_kept = before ? t->before.n_sounds_kept : news->n_sounds_kept;
}

static void wrong(ek_turn *t, ek_err err)
{
    t->result.end = EK_END_ERROR;
    t->result.err = err;
    t->result.error = ek_strdup(ek_err_text());
}

bool ek_turn_replay(ek_turn *t)
{
    if (t->n_replayed + 1 >= t->resumed.len || t->result.end != EK_END_NONE) return false;
    size_t i = t->n_replayed++;
    if (!t->checks) note_cached(t, NULL);
    t->result.prompt_logprobs = t->prompt_logprobs;
    ek_turn_news news = {.token = t->resumed.data[i]};
    if (t->resumed_logprobs) news.logprobs = t->resumed_logprobs[i];
    if (t->resumed_roots) news.root = t->resumed_roots[i];
    feed_token(t, &news);
    if (!t->stop_hit && !ek_reply_stopped(t->reply)) return true;
    ek_fail(EK_EINVAL, "the reply ended with its token %zu, %d, and %zu of it are given", i, news.token,
            t->resumed.len);
    wrong(t, EK_EINVAL);
    return false;
}

/* Whether the turn continues like the turn before it, as far as its last known token shows. */
static bool goes_on(ek_turn *t, const ek_turn_news *news)
{
    size_t last = t->resumed.len - 1;
    if (t->resumed.len == 0 || (size_t)t->result.n_tokens != last) return true;
    if (news->token != t->resumed.data[last])
        ek_fail(EK_EINVAL, "token %zu of the reply is %d here and was %d: it is another body's or another model's",
                last, news->token, t->resumed.data[last]);
    else if (t->has_digest_before && news->digest != t->digest_before)
        ek_fail(EK_EINVAL, "the logits have the digest %016" PRIx64 " here and had %016" PRIx64, news->digest,
                t->digest_before);
    else return true;
    wrong(t, EK_EINVAL);
    return false;
}

/* No token may follow: the mask allows none after the stored tokens, as it may also do after the model's own. */
static bool is_refused(const ek_turn_news *news)
{
    return news->finish == EK_FINISH_ERROR && news->err == EK_EINVAL;
}

/* At the first news after a stored reply that was computed again; nothing of it has been sent yet. */
static bool is_as_stored(const ek_turn *t, const ek_turn_news *news)
{
    if (!t->checks || t->n_replayed > 0 || t->result.n_tokens > 0) return true;
    return !t->contradicted && !is_refused(news) &&
           (news->token < 0 || news->token == t->resumed.data[t->resumed.len - 1]);
}

/* The stored reply was wrong, so it is dropped. Once the request that found the error has ended, this reply is computed
 * from the prompt on. */
static void restart(ek_turn *t)
{
    ek_replies_wrong(t->stored.replies, t->stored.found, "it was read again");
    t->restarts = true;
    if (t->live) ek_engine_cancel(t->engine, t->id);
}

static void go_on_with_restart(ek_turn *t)
{
    if (t->live) return;
    if (t->given_up) {
        t->result.end = EK_END_CANCELLED;
        return;
    }
    const ek_err err = ek_turn_submit_again(t);
    if (err) wrong(t, err);
}

void ek_turn_feed(ek_turn *t, const ek_turn_news *news)
{
    ek_turn_result *r = &t->result;
    if (news->finish != EK_FINISH_NONE) t->live = false;
    if (r->end != EK_END_NONE) return;
    if (!t->restarts && !is_as_stored(t, news)) restart(t);
    if (t->restarts) {
        go_on_with_restart(t);
        return;
    }
    r->n_prompt = news->n_prompt;
    note_cached(t, news);
    if (t->n_stored > 0 && r->n_tokens == t->n_stored && is_refused(news)) {
        ek_replies_wrong(t->stored.replies, t->stored.found, "no token may follow it");
        wrong(t, ek_fail(EK_EIO, "the stored reply to this request was wrong and is dropped; ask again"));
        return;
    }
    if (news->finish == EK_FINISH_ERROR) {
        r->end = EK_END_ERROR;
        r->err = news->err;
        r->error = ek_strdup(news->text);
        return;
    }
    r->prompt_logprobs = t->prompt_logprobs;
    if (t->opts.max_tokens == 0 && news->token >= 0) {
        r->end = EK_END_MAX_TOKENS;
        ek_turn_cancel(t);
        return;
    }
    while (news->token >= 0 && ek_turn_replay(t)) {
    }
    if (r->end == EK_END_NONE && (news->token < 0 || goes_on(t, news))) {
        if (news->token >= 0) feed_token(t, news);
        set_end(t, news->finish);
    }
    if (r->end == EK_END_NONE) return;
    if (t->live) ek_turn_keep_end(t, r->end == EK_END_ERROR ? EK_FINISH_ERROR : EK_FINISH_CANCELLED);
    ek_turn_cancel(t);
}
