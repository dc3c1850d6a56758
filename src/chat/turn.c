#include "chat/turn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "chat/cache_note.h"

struct ek_turn {
    const ek_chat_model *model;
    ek_turn_opts opts;
    ek_reply *reply;
    ek_stop *stop; /* NULL without stop strings */
    ek_reply_sink_fn *sink;
    void *sink_arg;
    ek_turn_result result;
    bool stop_hit;

    ek_engine *engine;
    ek_request_id id;
    bool live; /* the engine has not said its last word */

    /* Written by submit, then by the engine's thread alone. */
    ek_turn_post_fn *post;
    void *post_arg, *user;
    int n_vocab;
    uint64_t hash;
};

/* --- text --- */

static void emit(ek_turn *t, const ek_reply_event *e)
{
    ek_reply_collect(&t->result.answer, e);
    t->sink(t->sink_arg, e);
}

static void emit_visible(ek_turn *t, ek_buf *text)
{
    ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = ek_buf_text(text), .n = text->len};
    if (text->len > 0) emit(t, &e);
    ek_buf_fini(text);
}

static void on_reply(void *arg, const ek_reply_event *e)
{
    ek_turn *t = arg;
    if (t->stop_hit) return;
    if (e->kind != EK_REPLY_CONTENT) {
        emit(t, e);
        return;
    }
    ek_buf visible = {0};
    int hit = ek_stop_feed(t->stop, e->text, e->n, &visible);
    t->stop_hit = hit >= 0;
    if (hit >= 0) t->result.stop_string = hit;
    emit_visible(t, &visible);
}

/* Gives out what was held back. */
static void flush(ek_turn *t, bool truncated)
{
    ek_reply_end(t->reply, truncated);
    ek_buf rest = {0};
    if (!t->stop_hit && t->stop) ek_stop_end(t->stop, &rest);
    emit_visible(t, &rest);
}

/* --- open and close --- */

ek_err ek_turn_open(ek_turn **out, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *opts,
                    ek_reply_sink_fn *sink, void *arg)
{
    ek_stop *stop = NULL;
    if (opts->n_stop > 0) EK_TRY(ek_stop_open(&stop, opts->stop, opts->stop_len, opts->n_stop));
    ek_turn *t = ek_alloc(sizeof *t);
    *t = (ek_turn){.model = m, .opts = *opts, .stop = stop, .sink = sink, .sink_arg = arg};
    ek_reply_opts r = {.tools_active = opts->tools_active,
                       .one_call = opts->one_call,
                       .ignore_eos = opts->ignore_eos,
                       .lenient_start = prompt->thinking,
                       .tools = opts->tools,
                       .sink = on_reply,
                       .arg = t};
    t->reply = ek_reply_open(m->tokenizer, &r);
    ek_reply_start(t->reply, prompt->ids.data, prompt->ids.len);
    t->result.n_prompt = (int)prompt->ids.len;
    *out = t;
    return EK_OK;
}

void ek_turn_close(ek_turn *t)
{
    if (!t) return;
    EK_ASSERT(!t->live);
    ek_reply_close(t->reply);
    if (t->stop) ek_stop_close(t->stop);
    ek_answer_fini(&t->result.answer);
    free(t->result.error);
    free(t);
}

const ek_turn_result *ek_turn_result_of(const ek_turn *t)
{
    return &t->result;
}

/* --- out to the engine --- */

/* Runs on the engine's thread, inside a step. */
static void on_engine_event(void *arg, const ek_event *e)
{
    ek_turn *t = arg;
    if (t->opts.digest && e->logits) t->hash = ek_hash64(t->hash, e->logits, (uint64_t)t->n_vocab * sizeof *e->logits);
    ek_turn_news news = {.user = t->user,
                         .token = e->token,
                         .finish = e->finish,
                         .err = e->err,
                         .n_prompt = e->n_prompt,
                         .n_cached = e->n_cached,
                         .digest = t->hash};
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
    if (!t->opts.tools_active && call_open >= 0) bias[s.n_bias++] = (ek_logit_bias){call_open, -INFINITY};
    s.bias = bias;
    if (t->opts.choice > 0) s.seed = ek_mix64(s.seed + 0x9e3779b97f4a7c15u * (uint64_t)t->opts.choice);
    t->engine = e;
    t->n_vocab = ek_engine_vocab(e);
    t->post = post;
    t->post_arg = arg;
    t->user = user;
    t->live = true; /* before the first news can come */
    ek_request_opts r = {
        .tokens = prompt->ids.data,
        .n_tokens = (int)prompt->ids.len,
        .max_tokens = t->opts.max_tokens,
        .sampling = s,
        .ignore_eos = t->opts.ignore_eos,
        .sink = on_engine_event,
        .arg = t,
        .prompt_logits_from = (int)prompt->ids.len,
        .reply_logits = t->opts.digest,
        .cache_salt = t->opts.cache_salt,
        .user = t,
        .on_cache = ek_log_wants(EK_LOG_CACHE) ? on_cache : NULL,
    };
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

static void feed_token(ek_turn *t, const ek_turn_news *news)
{
    t->result.n_tokens++;
    t->result.digest = news->digest;
    /* A stop token says only that it stops; the configuration may add some that have a text. */
    if (news->finish == EK_FINISH_STOP) return;
    t->result.n_reasoning += ek_reply_feed(t->reply, news->token) == EK_TOKEN_REASONING;
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
    if (news->finish == EK_FINISH_ERROR) {
        r->end = EK_END_ERROR;
        r->err = news->err;
        r->error = ek_strdup(news->text);
        return;
    }
    if (news->token >= 0) feed_token(t, news);
    set_end(t, news->finish);
    if (r->end != EK_END_NONE) ek_turn_cancel(t);
}
