/* One chat completion: request in, engine events to text, text to the client, and every way it
 * can end early. A session outlives its client until the engine has said its last word on each
 * choice, because events name choices by pointer. */
#include "serve/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"

enum { HEARTBEAT_SECONDS = 10 };

static void free_session(ek_session *s)
{
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    for (int i = 0; i < s->req.n; i++) {
        choice *c = &s->choices[i];
        if (c->reply) ek_reply_close(c->reply);
        if (c->stop) ek_stop_close(c->stop);
        ek_answer_fini(&c->answer);
    }
    free(s->choices);
    free(s->model);
    ek_ids_fini(&s->prompt);
    ek_buf_fini(&s->out);
    ek_chat_request_fini(&s->req);
    free(s);
}

static void free_when_done(ek_session *s)
{
    if (!s->x && s->n_live == 0) free_session(s);
}

static void cancel_engine(ek_session *s)
{
    for (int i = 0; i < s->req.n; i++)
        if (s->choices[i].live) ek_engine_cancel(s->server->engine, s->choices[i].id);
}

/* The reply is out, or nobody wants it any more. */
static void leave_client(ek_session *s, const char *how)
{
    int n_tokens = 0;
    for (int i = 0; i < s->req.n; i++) n_tokens += s->choices[i].n_tokens;
    ek_log(EK_LOG_INFO, "%s %s, %d prompt tokens (%d cached), %d reply tokens, %.2f s", s->id, how, s->n_prompt,
           s->n_cached, n_tokens, ek_now() - s->opened);
    s->x = NULL;
    cancel_engine(s);
}

static void on_gone(void *user)
{
    ek_session *s = user;
    leave_client(s, "client gone");
    free_when_done(s);
}

/* --- out to the client --- */

static void flush(ek_session *s)
{
    if (s->out.len == 0) return;
    if (!ek_exchange_begun(s->x)) {
        ek_exchange_header(s->x, "cache-control", "no-cache");
        ek_exchange_header(s->x, "x-accel-buffering", "no"); /* nginx would hold the stream back */
        ek_exchange_begin(s->x, 200, "text/event-stream; charset=utf-8");
    }
    ek_exchange_send(s->x, s->out.data, s->out.len);
    ek_buf_clear(&s->out);
    s->last_sent = ek_now();
}

static void emit(choice *c, const ek_reply_event *e)
{
    if (c->session->req.stream) ek_chat_chunk_delta(&c->session->out, &c->session->head, c->index, e);
    else ek_reply_collect(&c->answer, e);
}

static void emit_visible(choice *c, ek_buf *text)
{
    ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = ek_buf_text(text), .n = text->len};
    if (text->len > 0) emit(c, &e);
    ek_buf_fini(text);
}

static void on_reply(void *arg, const ek_reply_event *e)
{
    choice *c = arg;
    if (c->stop_hit) return;
    if (e->kind != EK_REPLY_CONTENT) {
        emit(c, e);
        return;
    }
    ek_buf visible = {0};
    c->stop_hit = ek_stop_feed(c->stop, e->text, e->n, &visible) >= 0;
    emit_visible(c, &visible);
}

static uint64_t digest_of_all(const ek_session *s)
{
    if (s->req.n == 1) return s->choices[0].digest;
    uint64_t h = 0;
    for (int i = 0; i < s->req.n; i++) h = ek_hash64(h, &s->choices[i].digest, sizeof h);
    return h;
}

static void reply_whole(ek_session *s, const ek_chat_usage *u, const char *digest)
{
    ek_chat_choice *list = ek_alloc((size_t)s->req.n * sizeof *list);
    for (int i = 0; i < s->req.n; i++) list[i] = (ek_chat_choice){&s->choices[i].answer, s->choices[i].finish};
    ek_chat_whole(&s->out, &s->head, list, s->req.n, u, digest);
    free(list);
    ek_reply_json(s->x, 200, &s->out);
}

static void reply_done(ek_session *s)
{
    ek_chat_usage u = {.prompt = s->n_prompt, .cached = s->n_cached};
    for (int i = 0; i < s->req.n; i++) {
        u.completion += s->choices[i].n_tokens;
        u.reasoning += s->choices[i].n_reasoning;
    }
    if (s->req.stream) {
        if (s->req.include_usage) ek_chat_chunk_usage(&s->out, &s->head, &u);
        ek_chat_done(&s->out);
        flush(s);
        ek_exchange_end(s->x);
    } else {
        char digest[20];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)digest_of_all(s));
        reply_whole(s, &u, s->req.digest ? digest : NULL);
    }
    leave_client(s, "done");
}

/* The failure of one choice ends the whole reply: with a status while that is possible. */
static void reply_failed(ek_session *s, choice *c, ek_err err, const char *text)
{
    if (ek_exchange_begun(s->x)) {
        ek_chat_chunk_finish(&s->out, &s->head, c->index, "error", NULL, text);
        ek_chat_done(&s->out);
        flush(s);
        ek_exchange_end(s->x);
    } else {
        int status = ek_err_http(err);
        ek_reply_error(s->x, status >= 400 && status != 499 ? status : 500, text, NULL, NULL);
    }
    leave_client(s, "failed");
}

static void finish(choice *c, const char *reason)
{
    ek_session *s = c->session;
    c->finish = reason;
    s->n_open--;
    if (c->live) ek_engine_cancel(s->server->engine, c->id); /* a stop string, or the first call was enough */
    if (s->req.stream) {
        char digest[20];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)digest_of_all(s));
        ek_chat_chunk_finish(&s->out, &s->head, c->index, reason, s->req.digest && s->n_open == 0 ? digest : NULL,
                             NULL);
    }
    if (s->n_open == 0) reply_done(s);
    else if (s->req.stream) flush(s);
}

/* --- in from the engine --- */

/* Runs on the engine's thread, inside a step. */
static void on_engine_event(void *arg, const ek_event *e)
{
    choice *c = e->user;
    if (c->session->req.digest && e->logits)
        c->hash = ek_hash64(c->hash, e->logits, (uint64_t)c->n_vocab * sizeof *e->logits);
    ek_mail m = {.user = c,
                 .token = e->token,
                 .finish = e->finish,
                 .err = e->err,
                 .n_prompt = e->n_prompt,
                 .n_cached = e->n_cached,
                 .n_tokens = e->n_tokens,
                 .digest = c->hash};
    if (e->finish == EK_FINISH_ERROR) m.text = ek_strdup(e->text ? e->text : "the request failed");
    ek_mailbox_post(arg, &m);
}

static void end_text(choice *c, bool truncated)
{
    ek_reply_end(c->reply, truncated);
    ek_buf rest = {0};
    if (!c->stop_hit && c->stop) ek_stop_end(c->stop, &rest);
    emit_visible(c, &rest);
}

static void take_token(choice *c, const ek_mail *m)
{
    ek_session *s = c->session;
    if (s->req.stream && !c->role_sent) ek_chat_chunk_role(&s->out, &s->head, c->index);
    c->role_sent = true;
    c->n_tokens++;
    c->digest = m->digest;
    /* A stop token says only that it stops; the configuration may add some that have a text. */
    if (m->finish == EK_FINISH_STOP) return;
    c->n_reasoning += ek_reply_feed(c->reply, m->token) == EK_PART_REASONING;
}

static void take_mail(choice *c, const ek_mail *m)
{
    ek_session *s = c->session;
    s->n_prompt = m->n_prompt;
    s->n_cached = m->n_cached;
    if (m->finish == EK_FINISH_ERROR || m->finish == EK_FINISH_CANCELLED) {
        const char *text = m->finish == EK_FINISH_ERROR ? m->text : "the server is shutting down";
        if (m->finish == EK_FINISH_ERROR) ek_log(EK_LOG_ERROR, "%s: %s", s->id, text);
        reply_failed(s, c, m->finish == EK_FINISH_ERROR ? m->err : EK_ESHUTDOWN, text);
        return;
    }
    if (m->token >= 0) take_token(c, m);
    bool stopped = m->finish == EK_FINISH_STOP || ek_reply_stopped(c->reply);
    if (!c->stop_hit && (stopped || m->finish == EK_FINISH_LENGTH)) end_text(c, !stopped);
    if (c->stop_hit) finish(c, "stop");
    else if (stopped) finish(c, ek_reply_calls(c->reply) > 0 ? "tool_calls" : "stop");
    else if (m->finish == EK_FINISH_LENGTH) finish(c, "length");
    else if (s->req.stream) flush(s);
}

void ek_session_mail(const ek_mail *m)
{
    choice *c = m->user;
    ek_session *s = c->session;
    if (m->finish != EK_FINISH_NONE) {
        c->live = false;
        s->n_live--;
    }
    if (s->x && !c->finish) take_mail(c, m);
    if (m->finish != EK_FINISH_NONE) s->server->malformed_calls += (uint64_t)ek_reply_malformed(c->reply);
    free_when_done(s);
}

void ek_session_tick(ek_session *s)
{
    if (!s->x || !s->req.stream || ek_now() - s->last_sent < HEARTBEAT_SECONDS) return;
    ek_buf_str(&s->out, ": waiting\n\n"); /* keeps proxies from giving up, and notices dead clients */
    flush(s);
}

void ek_session_cancel(ek_session *s)
{
    cancel_engine(s);
}

ek_session *ek_session_next(ek_session *s)
{
    return s->next;
}

/* --- opening --- */

static ek_err make_prompt(ek_session *s)
{
    ek_chat_opts opts = {
        .variant = s->server->variant,
        .add_generation_prompt = s->req.add_generation_prompt,
        .enable_thinking = s->req.enable_thinking,
        .preserve_thinking = s->req.preserve_thinking,
        .continue_final = s->req.continue_final,
    };
    ek_prompt p = {0};
    ek_err err = ek_chat_render(&p, s->req.messages, s->req.tools, &opts);
    if (!err)
        err = ek_encode(s->server->tokenizer, ek_buf_text(&p.text), p.text.len, p.control, p.n_control, &s->prompt);
    ek_prompt_fini(&p);
    if (err) return err;
    int ctx = ek_engine_ctx(s->server->engine);
    if (s->prompt.len >= (size_t)ctx)
        return ek_fail(EK_ETOOLONG, "the prompt has %zu tokens; the context is %d tokens, prompt and reply together",
                       s->prompt.len, ctx);
    return EK_OK;
}

static ek_err open_choice(ek_session *s, int index)
{
    choice *c = &s->choices[index];
    ek_server *srv = s->server;
    c->session = s;
    c->index = index;
    c->n_vocab = srv->config->vocab_size;
    ek_reply_opts opts = {.tools_active = s->req.tools_active,
                          .one_call = s->req.one_call,
                          .ignore_eos = s->req.ignore_eos,
                          .lenient_start = s->req.enable_thinking,
                          .tools = s->req.tools,
                          .sink = on_reply,
                          .arg = c};
    c->reply = ek_reply_open(srv->tokenizer, &opts);
    ek_reply_start(c->reply, s->prompt.data, s->prompt.len);
    if (s->req.n_stop == 0) return EK_OK;
    return ek_stop_open(&c->stop, s->req.stop, s->req.stop_len, s->req.n_stop);
}

static ek_err submit(ek_session *s, choice *c)
{
    ek_sampling sampling = s->req.sampling;
    ek_logit_bias bias[EK_CHAT_MAX_BIAS + 1];
    if (sampling.n_bias) memcpy(bias, sampling.bias, (size_t)sampling.n_bias * sizeof *bias);
    int32_t call_open = s->server->marks.id[EK_MARK_CALL_OPEN];
    if (!s->req.tools_active && call_open >= 0) bias[sampling.n_bias++] = (ek_logit_bias){call_open, -INFINITY};
    sampling.bias = bias;
    if (c->index > 0) sampling.seed = ek_mix64(sampling.seed + 0x9e3779b97f4a7c15u * (uint64_t)c->index);
    ek_request_opts r = {
        .tokens = s->prompt.data,
        .n_tokens = (int)s->prompt.len,
        .max_tokens = s->req.max_tokens,
        .sampling = sampling,
        .ignore_eos = s->req.ignore_eos,
        .sink = on_engine_event,
        .arg = s->server->mailbox,
        .user = c,
        .prompt_logits_from = (int)s->prompt.len,
        .reply_logits = s->req.digest,
    };
    EK_TRY(ek_engine_submit(s->server->engine, &r, &c->id));
    c->live = true;
    s->n_live++;
    return EK_OK;
}

static ek_err start(ek_session *s)
{
    EK_TRY(make_prompt(s));
    for (int i = 0; i < s->req.n; i++) EK_TRY(open_choice(s, i));
    for (int i = 0; i < s->req.n; i++) EK_TRY(submit(s, &s->choices[i]));
    return EK_OK;
}

static void name_session(ek_session *s)
{
    ek_server *srv = s->server;
    uint64_t number = ek_exchange_number(s->x);
    snprintf(s->id, sizeof s->id, "chatcmpl-%016llx%08llx", (unsigned long long)ek_mix64(srv->nonce ^ number),
             (unsigned long long)(number & 0xffffffff));
    s->model = ek_strdup(*s->req.model ? s->req.model : srv->model_name);
    s->head = (ek_chat_head){s->id, s->model, srv->fingerprint, ek_unix_time(), s->req.stream && s->req.include_usage};
    if (!s->req.has_seed) s->req.sampling.seed = ek_mix64(srv->nonce + number);
}

void ek_session_open(ek_server *server, ek_exchange *x)
{
    const ek_config *config = server->config;
    ek_sampling defaults = ek_sampling_greedy();
    defaults.temperature = config->temperature;
    defaults.top_p = config->top_p;
    defaults.top_k = config->top_k;

    ek_chat_request req;
    ek_span body = ek_exchange_body(x);
    ek_err err = ek_chat_request_parse(&req, body.p, body.n, &defaults, config->vocab_size);
    if (err) {
        ek_reply_failure(x, err, req.param);
        ek_chat_request_fini(&req);
        return;
    }
    ek_session *s = ek_alloc(sizeof *s);
    s->server = server;
    s->x = x;
    s->req = req;
    s->opened = s->last_sent = ek_now();
    s->choices = ek_alloc((size_t)req.n * sizeof *s->choices);
    s->n_open = req.n;
    s->next = server->sessions;
    if (s->next) s->next->link = &s->next;
    s->link = &server->sessions;
    server->sessions = s;
    name_session(s);
    ek_exchange_on_gone(x, on_gone, s);

    err = start(s);
    if (err) {
        s->x = NULL;
        ek_exchange_on_gone(x, NULL, NULL);
        ek_reply_failure(x, err, err == EK_ETOOLONG || err == EK_EINVAL ? "messages" : NULL);
        cancel_engine(s);
        free_when_done(s);
    }
}
