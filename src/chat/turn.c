#include "chat/turn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "chat/bounds.h"
#include "chat/cache_note.h"
#include "text/utf8.h"

struct ek_turn {
    const ek_chat_model *model;
    ek_turn_opts opts;
    ek_reply *reply;
    ek_stop *stop; /* NULL without stop strings */
    ek_reply_sink_fn *sink;
    void *sink_arg;
    ek_turn_result result;
    ek_bounds bounds; /* the engine's while the turn is live */
    ek_record record;
    bool stop_hit, thinking; /* thinking: on in the prompt */
    ek_utf8_stream utf8;     /* of a plain reply */
    ek_buf held;             /* visible text of the token being fed, until its log-probabilities are recorded */
    bool holding;
    size_t fed; /* bytes of content that were found so far, visible or not */
    int cap_logprobs;

    ek_engine *engine;
    ek_request_id id;
    bool live; /* the engine has not said its last word */

    /* Written by submit, then by the engine's thread alone. */
    ek_turn_post_fn *post;
    void *post_arg, *user;
    int n_vocab, n_prompt;
    uint64_t hash;
    ek_logprobs *prompt_logprobs; /* read by others once the first token is posted */
};

/* --- text --- */

static void emit(ek_turn *t, const ek_reply_event *e)
{
    ek_reply_collect(&t->result.answer, e);
    t->sink(t->sink_arg, e);
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
        if (e->kind == EK_REPLY_CALL_START) emit_held(t); /* the text before it stays before it */
        if (e->kind == EK_REPLY_REASONING && t->fed == 0) t->result.n_logprobs = 0; /* its header looked like text */
        release(t);
        emit(t, e);
        return;
    }
    on_content(t, e->text, e->n);
}

/* Gives out what was held back. */
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

/* --- open and close --- */

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
    *out = t;
    return EK_OK;
}

void ek_turn_close(ek_turn *t)
{
    if (!t) return;
    EK_ASSERT(!t->live);
    ek_reply_close(t->reply);
    ek_bounds_fini(&t->bounds);
    if (t->stop) ek_stop_close(t->stop);
    ek_answer_fini(&t->result.answer);
    ek_record_fini(&t->record);
    free(t->result.error);
    free(t->result.logprobs);
    free(t->prompt_logprobs);
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
    t->record = (ek_record){0};
    return r;
}

/* --- out to the engine --- */

/* Runs on the engine's thread, inside a step, before the first event. The row of a position is about the token
 * behind it. */
static void on_prompt_logits(void *user, int pos, const float *logits)
{
    ek_turn *t = user;
    if (pos + 1 >= t->n_prompt) return;
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
    if (t->opts.logprobs && e->logits) ek_logprobs_of(&news.logprobs, e->logits, t->n_vocab, e->token, t->opts.n_top);
    if (e->finish == EK_FINISH_ERROR) news.text = e->text ? e->text : "the request failed";
    t->post(t->post_arg, &news);
}

/* On the engine's thread too. */
static void on_cache(void *user, const ek_cache_report *r)
{
    const ek_turn *t = user;
    ek_buf line = {0};
    ek_cache_note(&line, t->model, r);
    ek_log(EK_LOG_INFO, "%s", ek_buf_text(&line));
    ek_buf_fini(&line);
}

ek_err ek_turn_submit(ek_turn *t, ek_engine *e, const ek_turn_prompt *prompt, ek_turn_post_fn *post, void *arg,
                      void *user)
{
    ek_sampling s = t->opts.sampling;
    int32_t call_open = t->model->marks.id[EK_MARK_CALL_OPEN];
    ek_logit_bias *bias = ek_alloc(((size_t)s.n_bias + 1) * sizeof *bias);
    if (s.n_bias > 0) memcpy(bias, s.bias, (size_t)s.n_bias * sizeof *bias);
    if (!t->opts.tools_active && !t->opts.plain && call_open >= 0)
        bias[s.n_bias++] = (ek_logit_bias){call_open, -INFINITY};
    s.bias = bias;
    if (t->opts.choice > 0) s.seed = ek_mix64(s.seed + 0x9e3779b97f4a7c15u * (uint64_t)t->opts.choice);
    t->engine = e;
    t->n_vocab = t->bounds.n_vocab = ek_engine_vocab(e);
    if (t->opts.prompt_logprobs) {
        t->prompt_logprobs = ek_alloc(prompt->ids.len * sizeof *t->prompt_logprobs);
        for (size_t i = 0; i < prompt->ids.len; i++) t->prompt_logprobs[i].self.token = prompt->ids.data[i];
        t->prompt_logprobs[0].n_top = -1;
    }
    t->post = post;
    t->post_arg = arg;
    t->user = user;
    t->live = true; /* before the first news can come */
    ek_mask mask = ek_bounds_mask(&t->bounds);
    ek_request_opts r = {
        .mask = ek_bounds_any(&t->bounds) ? &mask : NULL,
        .tokens = prompt->ids.data,
        .n_tokens = (int)prompt->ids.len,
        .part = prompt->part,
        .n_parts = prompt->n_parts,
        .max_tokens = t->opts.max_tokens > 0 ? t->opts.max_tokens : 1, /* the engine makes one, the turn drops it */
        .sampling = s,
        .ignore_eos = t->opts.ignore_eos,
        .sink = on_engine_event,
        .arg = t,
        .user = t,
        .prompt_logits_from = t->opts.prompt_logprobs ? 0 : (int)prompt->ids.len,
        .on_prompt_logits = t->opts.prompt_logprobs ? on_prompt_logits : NULL,
        .reply_logits = t->opts.logprobs,
        .reply_digest = t->opts.digest,
        .client = t->opts.client,
        .cache_salt = t->opts.cache_salt,
        .cache_owner = t->opts.cache_owner,
        .on_cache = ek_log_wants(EK_LOG_CACHE) ? on_cache : NULL,
    };
    ek_record_begin(&t->record, &r);
    if (r.mask && (!t->opts.grammar || t->opts.form || t->opts.same_form))
        ek_record_bounds(&t->record, t->opts.form, t->opts.same_form, t->thinking, t->bounds.thought.max);
    ek_err err = ek_engine_submit(e, &r, &t->id);
    if (err) t->live = false;
    free(bias);
    return err;
}

bool ek_turn_live(const ek_turn *t)
{
    return t->live;
}

void ek_turn_cancel(ek_turn *t)
{
    if (t->live) ek_engine_cancel(t->engine, t->id);
}

void ek_turn_abandon(ek_turn *t)
{
    if (t->result.end == EK_END_NONE) t->result.end = EK_END_CANCELLED;
    ek_turn_cancel(t);
}

/* --- and back --- */

/* Tokens of a plain reply that are written are content. */
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
    /* A stop token says only that it stops; the configuration may add some that have a text. */
    if (news->finish == EK_FINISH_STOP) return;
    size_t from = t->fed;
    t->holding = t->opts.logprobs;
    ek_token_kind kind = t->opts.plain ? feed_plain(t, news->token) : ek_reply_feed(t->reply, news->token);
    t->holding = false;
    t->result.n_reasoning += kind == EK_TOKEN_REASONING;
    if (t->opts.logprobs && kind == EK_TOKEN_CONTENT) add_logprobs(t, &news->logprobs, from);
    release(t);
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
    else if (finish == EK_FINISH_CANCELLED) r->end = EK_END_CANCELLED;
}

void ek_turn_feed(ek_turn *t, const ek_turn_news *news)
{
    ek_turn_result *r = &t->result;
    if (news->finish != EK_FINISH_NONE) t->live = false;
    if (r->end != EK_END_NONE) return;
    r->n_prompt = news->n_prompt;
    r->n_cached = news->n_cached;
    r->n_images_kept = news->n_images_kept, r->n_sounds_kept = news->n_sounds_kept;
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
    if (news->token >= 0) feed_token(t, news);
    set_end(t, news->finish);
    if (r->end != EK_END_NONE) ek_turn_cancel(t);
}
