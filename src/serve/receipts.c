/* A reply's receipts, from its request and its turns. */
#include "serve/receipts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"

static const char *finish_of(const ek_turn_result *r)
{
    static const char *const names[] = {
        [EK_END_STOP] = "stop",         [EK_END_CALLS] = "tool_calls", [EK_END_STOP_STRING] = "stop_string",
        [EK_END_MAX_TOKENS] = "length", [EK_END_CONTEXT] = "context",  [EK_END_LOOP] = "loop",
        [EK_END_ERROR] = NULL};
    return names[r->end];
}

size_t ek_receipts_bytes(const ek_receipt_of *of)
{
    enum { FIXED = 8192, PER_PROMPT_TOKEN = 11, PER_TOKEN = 11 + 44, PER_PART = 100, PER_BIAS = 48 };
    size_t size = 0;
    for (int i = 0; i < of->req->n; i++) {
        const ek_turn_prompt *p = ek_api_prompt_of(of->req, of->prompt, i);
        size += FIXED + PER_PROMPT_TOKEN * p->ids.len + PER_TOKEN * of->results[i]->tokens.len +
                PER_PART * (size_t)p->n_parts + PER_BIAS * (size_t)of->req->turn.sampling.n_bias;
        size += 6 * of->req->form_text.len;
        for (int k = 0; k < of->req->turn.n_stop; k++) size += 6 * of->req->turn.stop_len[k];
    }
    return size;
}

static void state_sampling(ek_statement *s, const ek_sampling *o, ek_seed_from from)
{
    const bool draws = o->temperature >= EK_MIN_TEMPERATURE;
    s->sampling.temperature = o->temperature;
    s->sampling.top_p = o->top_p;
    s->sampling.min_p = o->min_p;
    s->sampling.top_k = o->top_k;
    s->sampling.repetition_penalty = o->repetition_penalty;
    s->sampling.presence_penalty = o->presence_penalty;
    s->sampling.frequency_penalty = o->frequency_penalty;
    s->sampling.seed = draws ? o->seed : 0;
    s->sampling.from = draws ? from : EK_SEED_NONE;
    s->sampling.n_bias = o->n_bias;
    s->sampling.bias = ek_alloc(((size_t)o->n_bias + 1) * sizeof *s->sampling.bias);
    for (int i = 0; i < o->n_bias; i++) s->sampling.bias[i] = (ek_stated_bias){o->bias[i].token, o->bias[i].bias};
}

/* States the options in the form in which the engine got them. */
static void state_options(ek_statement *s, const ek_server *server, const ek_receipt_of *of, int choice,
                          const ek_turn_prompt *prompt)
{
    ek_turn_opts opts = of->req->turn;
    ek_logit_bias *bias = ek_alloc(((size_t)opts.sampling.n_bias + 1) * sizeof *bias);
    opts.choice = choice % (of->req->n / (1 + of->req->n_more));
    const ek_sampling sampling = ek_turn_sampling(server->chat, &opts, bias);
    state_sampling(s, &sampling, of->seed_from);
    free(bias);
    s->form.max_thinking = opts.plain ? 0 : opts.max_thinking;
    s->form.any = of->req->grammar != NULL || s->form.max_thinking > 0;
    s->form.thinking = prompt->thinking;
    s->ends.context = ek_engine_ctx(server->engine);
    s->ends.max_tokens = opts.max_tokens < s->ends.context ? opts.max_tokens : s->ends.context;
    s->ends.ignore_eos = opts.ignore_eos;
    s->ends.plain = opts.plain;
    s->ends.special = opts.plain && opts.show_special;
    s->ends.calls = opts.tools_active;
    s->ends.one_call = opts.one_call;
}

static ek_commit_part *parts_of(const ek_turn_prompt *p)
{
    ek_commit_part *part = ek_alloc(((size_t)p->n_parts + 1) * sizeof *part);
    for (int i = 0; i < p->n_parts; i++) {
        part[i] = (ek_commit_part){.first = p->part[i].first, .kind = (int32_t)p->part[i].media->kind};
        memcpy(part[i].digest, p->part[i].media->digest, sizeof part[i].digest);
    }
    return part;
}

static ek_err write_one(const ek_server *server, ek_buf *out, const ek_receipt_of *of, int i)
{
    const ek_receipts *k = server->receipts;
    const ek_turn_prompt *prompt = ek_api_prompt_of(of->req, of->prompt, i);
    const ek_turn_result *r = of->results[i];
    const char *finish = finish_of(r);
    ek_statement s = {.hides = k->hides_lengths,
                      .profile = server->fingerprint,
                      .api = (char *)(uintptr_t)of->api,
                      .program = (char *)(uintptr_t)EK_VERSION};
    ek_opening o = {.prompt = prompt->ids.data,
                    .n_prompt = prompt->ids.len,
                    .reply = r->tokens.data,
                    .n_reply = r->tokens.len,
                    .stop_len = (size_t *)(uintptr_t)of->req->turn.stop_len,
                    .stop = (char **)(uintptr_t)of->req->turn.stop,
                    .n_stop = (size_t)of->req->turn.n_stop,
                    .form = of->req->grammar ? of->req->form_text.data : NULL,
                    .n_form = of->req->grammar ? of->req->form_text.len : 0,
                    .n_parts = (size_t)prompt->n_parts,
                    .row = (ek_hash *)(void *)r->roots.data};
    if (!finish) return ek_fail(EK_EINTERNAL, "a reply that failed has no receipt");
    if (!ek_random(&o.secret, sizeof o.secret))
        return ek_fail(EK_EIO, "the system has no random numbers for a receipt");
    memcpy(s.weights, k->weights, sizeof s.weights);
    memcpy(s.tokenizer, k->tokenizer, sizeof s.tokenizer);
    snprintf(s.reply.finish, sizeof s.reply.finish, "%s", finish);
    snprintf(s.nonce, sizeof s.nonce, "%s", of->req->nonce);
    ek_statement_time(s.time, ek_unix_time());
    if (k->log) s.log = (char *)(uintptr_t)ek_receipt_log_origin(k->log);
    state_options(&s, server, of, i, prompt);
    ek_buf text = {0};
    for (size_t t = 0; t < r->tokens.len; t++) {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(server->chat->tokenizer, r->tokens.data[t], &n);
        ek_buf_add(&text, bytes, n);
    }
    o.part = parts_of(prompt);
    ek_receipt_commit(&s, &o, ek_signing_key_public(of->key), ek_buf_text(&text), text.len);
    const size_t from = out->len;
    ek_err err = ek_receipt_write(out, &s, &o, of->key, k->log);
    if (!err && k->openings) err = ek_openings_add(k->openings, of->id, i, out->data + from, out->len - from);
    ek_buf_fini(&text);
    free(o.part);
    free(s.sampling.bias);
    return err;
}

ek_err ek_receipts_write(const ek_server *s, ek_buf *out, const ek_receipt_of *of)
{
    const int n = of->req->n;
    if (n > 1) ek_buf_char(out, '[');
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        EK_TRY(write_one(s, out, of, i));
    }
    if (n > 1) ek_buf_char(out, ']');
    return EK_OK;
}
