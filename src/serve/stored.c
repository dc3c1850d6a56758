/* Stored replies: from a request to the stored part of its reply. */
#include "serve/session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "base/machine/cpu.h"

static bool is_storable(const ek_server *s, const ek_api_request *req, const ek_wishes *wishes)
{
    const ek_turn_opts *t = &req->turn;
    if (!s->replies || req->answered || req->no_stored || wishes->no_store) return false;
    if (!ek_reply_is_decided(&t->sampling, req->has_seed || wishes->has_seed)) return false;
    if (req->resume.on || req->resume.tokens.len > 0 || t->prompt_logprobs || t->publish || t->max_tokens < 1)
        return false;
    return !req->grammar || req->form_text.len > 0;
}

/* Whether the request itself is kept: not if its text would be large, as with a prompt of many choices. */
static bool keeps_asks(const ek_server *s, const ek_api_request *req, const ek_turn_prompt *prompt)
{
    enum { PER_TOKEN = 8, MAX_ASKS = 64 << 20 };
    double bytes = 0;
    for (int i = 0; i < req->n; i++)
        bytes += PER_TOKEN * (double)ek_api_prompt_of(req, prompt, i)->ids.len + 2.0 * (double)req->form_text.len;
    return ek_replies_keeps_asks(s->replies) && bytes <= MAX_ASKS;
}

void ek_stored_find(ek_stored *out, ek_server *s, const ek_api_request *req, const ek_turn_prompt *prompt,
                    const ek_wishes *wishes, uint64_t owner)
{
    ek_reply_key content;
    if (!is_storable(s, req, wishes)) return;
    const char *form = req->grammar ? req->form_text.data : NULL;
    ek_turn_opts opts = req->turn;
    const bool must = wishes->only_cached || s->no_engine;
    if (!req->has_seed && wishes->has_seed) opts.sampling.seed = wishes->seed;
    out->n = req->n;
    out->ask = keeps_asks(s, req, prompt) ? ek_alloc((size_t)req->n * sizeof *out->ask) : NULL;
    out->of = ek_alloc((size_t)req->n * sizeof *out->of);
    for (int i = 0; i < req->n; i++) {
        opts.choice = i % (req->n / (1 + req->n_more));
        ek_turn_key(&content, out->ask ? &out->ask[i] : NULL, ek_replies_identity(s->replies), s->chat,
                    ek_api_prompt_of(req, prompt, i), &opts, form);
        ek_turn_stored *t = &out->of[i];
        *t = (ek_turn_stored){.replies = s->replies,
                              .content = content,
                              .owner = owner,
                              .looked_up = true,
                              .keep = true,
                              .ctx_tokens = ek_engine_ctx(s->engine)};
        if (out->ask) t->ask = ek_buf_text(&out->ask[i]), t->n_ask = out->ask[i].len;
        ek_reply_key_for(&t->key, &content, owner, req->turn.cache_salt_text, req->salt_text.len);
        if (!wishes->no_cache) t->found = ek_replies_find(s->replies, &t->key, &content, owner);
        if (must && !t->found && out->nearest.len == 0)
            ek_turn_nearest(&out->nearest, s->replies, s->chat, ek_api_prompt_of(req, prompt, i), &opts, form);
    }
}

void ek_stored_fini(ek_stored *s)
{
    for (int i = 0; i < s->n; i++) ek_reply_record_release(s->of[i].found);
    for (int i = 0; i < s->n && s->ask; i++) ek_buf_fini(&s->ask[i]);
    free(s->ask);
    free(s->of);
    ek_buf_fini(&s->nearest);
    *s = (ek_stored){0};
}

ek_err ek_stored_missing(const ek_stored *s, int i)
{
    char key[EK_REPLY_KEY_TEXT];
    const ek_turn_stored *t = s->n > 0 ? &s->of[i] : NULL;
    if (!t)
        return ek_fail(EK_ENOTFOUND,
                       "a reply to this request is never stored: neither temperature 0 nor a seed decides "
                       "its tokens, or it says that it is not to be stored");
    ek_reply_key_text(key, &t->content);
    if (t->found)
        return ek_fail(EK_ENOTFOUND,
                       "the stored reply to this request is a part of the one that is asked for: it has %d tokens, "
                       "%d with log-probabilities; its key is %s",
                       ek_reply_record_tokens(t->found), ek_reply_record_n_probs(t->found), key);
    return ek_fail(EK_ENOTFOUND, "no stored reply to this request is there: its key is %s%s%s", key,
                   s->nearest.len > 0 ? "; nearest is " : "", ek_buf_text(&s->nearest));
}

/* --- audits ---
 *
 * Recomputes a fraction of the store's hits in idle time: prompt and stored tokens are read in one pass of chunks,
 * every row is compared with its stored digest, and every draw is repeated. For a reply under a mask only the rows are
 * compared. */

enum { MAX_WAITING = 8 };

struct ek_reply_audit {
    struct ek_reply_audit *next;
    ek_replies *replies;
    ek_reply_record *record;
    ek_turn_prompt prompt;
    ek_sampling sampling; /* bias is owned */
    bool draws;           /* its draws can be repeated */
    int32_t *tokens;      /* prompt, then reply */
    int n_prompt, n_reply, n_vocab;
    ek_sampler *sampler;
    bool begun, wrong;
    atomic_bool done;
};

static void free_audit(ek_reply_audit *a)
{
    ek_reply_record_release(a->record);
    ek_turn_prompt_fini(&a->prompt);
    free((void *)(uintptr_t)a->sampling.bias);
    free(a->tokens);
    if (a->sampler) ek_sampler_close(a->sampler);
    free(a);
}

void ek_audit_reply(ek_server *s, ek_turn *t, const ek_turn_opts *opts, ek_turn_prompt *prompt)
{
    int n = 0;
    ek_reply_record *record = ek_turn_stored_record(t);
    ek_reply_audit **last = &s->audits;
    for (; *last; last = &(*last)->next) n++;
    if (n == MAX_WAITING || !record || ek_turn_outcome(t) != EK_REPLY_HIT) return;
    ek_reply_audit *a = ek_alloc(sizeof *a);
    ek_logit_bias *bias = ek_alloc(((size_t)opts->sampling.n_bias + 1) * sizeof *bias);
    *a = (ek_reply_audit){.replies = s->replies,
                          .record = ek_reply_record_retain(record),
                          .prompt = *prompt,
                          .sampling = ek_turn_sampling(s->chat, opts, bias),
                          .draws = !opts->grammar && (opts->plain || opts->max_thinking == 0),
                          .n_prompt = (int)prompt->ids.len,
                          .n_reply = ek_reply_record_tokens(record),
                          .n_vocab = s->config->vocab_size};
    *prompt = (ek_turn_prompt){0};
    *last = a;
}

/* --- on the engine's thread --- */

static void compare(ek_reply_audit *a, int i, const float *logits, uint64_t row)
{
    if (i >= a->n_reply || a->wrong) return;
    a->wrong = row != ek_reply_record_row(a->record, i);
    if (a->wrong || !a->draws || !logits) return;
    const int32_t token = ek_sample(a->sampler, logits, NULL, &a->sampling, a->tokens, a->n_prompt, a->n_prompt + i);
    a->wrong = token != ek_reply_record_token(a->record, i);
}

static void on_row(void *user, int pos, const float *logits)
{
    ek_reply_audit *a = user;
    compare(a, pos + 1 - a->n_prompt, logits, ek_logits_digest(logits, a->n_vocab));
}

static void on_event(void *arg, const ek_event *e)
{
    ek_reply_audit *a = arg;
    if (e->token >= 0) compare(a, a->n_reply - 1, e->logits, e->digest);
    if (e->finish == EK_FINISH_NONE) return;
    if (e->finish == EK_FINISH_LENGTH) ek_replies_note_audit(a->replies);
    if (a->wrong) ek_replies_wrong(a->replies, a->record, "an audit computed it again");
    atomic_store(&a->done, true);
}

/* --- on the event loop's --- */

static void begin(ek_server *s, ek_reply_audit *a)
{
    const ek_config *c = s->config;
    const size_t n = (size_t)a->n_prompt + (size_t)a->n_reply;
    a->begun = true;
    a->tokens = ek_alloc(n * sizeof *a->tokens);
    memcpy(a->tokens, a->prompt.ids.data, (size_t)a->n_prompt * sizeof *a->tokens);
    for (int i = 0; i < a->n_reply; i++) a->tokens[a->n_prompt + i] = ek_reply_record_token(a->record, i);
    ek_sampler_open(&a->sampler, ek_cpu_detect(), c->vocab_size, c->suppress, c->n_suppress);
    const ek_request_opts r = {.tokens = a->tokens,
                               .n_tokens = (int)n - 1,
                               .n_replied = a->n_reply - 1,
                               .max_tokens = a->n_reply,
                               .part = a->prompt.part,
                               .n_parts = a->prompt.n_parts,
                               .sampling = a->sampling,
                               .ignore_eos = true,
                               .prompt_logits_from = a->n_reply > 1 ? a->n_prompt - 1 : (int)n - 1,
                               .on_prompt_logits = on_row,
                               .reply_logits = true,
                               .reply_digest = true,
                               .sink = on_event,
                               .arg = a,
                               .user = a,
                               .cache_salt = ek_mix64(s->nonce + 1)}; /* nobody's pages */
    if (!ek_engine_submit(s->engine, &r, NULL)) return;
    ek_log(EK_LOG_WARN, "a stored reply could not be audited: %s", ek_err_text());
    atomic_store(&a->done, true);
}

void ek_audits_tick(ek_server *s)
{
    ek_engine_stats st;
    ek_reply_audit *a = s->audits;
    if (!a) return;
    if (atomic_load(&a->done)) {
        s->audits = a->next;
        free_audit(a);
        return;
    }
    if (a->begun) return;
    ek_engine_stats_read(s->engine, &st);
    if (st.running == 0 && st.waiting == 0 && s->n_signals == 0) begin(s, a);
}

void ek_audits_close(ek_server *s)
{
    for (ek_reply_audit *a; (a = s->audits) != NULL;) {
        s->audits = a->next;
        free_audit(a);
    }
}
