/* Stored replies: from a request to the stored part of its reply. */
#include "serve/session.h"

#include <stdlib.h>

#include "base/alloc.h"

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
