/* Events of a chat. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "capi/chat.h"
#include "text/json/json.h"

static void post_text(chat_choice *c, evenkeel_kind kind, const ek_reply_event *e)
{
    const evenkeel_event out = {.kind = kind, .choice = c->index, .token = -1, .text = e->text, .n = e->n};
    if (e->n > 0) capi_post(&c->chat->base, &out);
}

/* The id equals the one in the whole reply (serve/openai). */
static void post_call(chat_choice *c, int call)
{
    char request[EK_RESUME_ID + 16], id[32];
    snprintf(request, sizeof request, "%s.%d", c->chat->id, c->index);
    ek_call_id(id, "call_", request, call);
    const evenkeel_event out = {.kind = EVENKEEL_CALL,
                                .choice = c->index,
                                .token = -1,
                                .text = ek_buf_text(&c->args),
                                .n = c->args.len,
                                .name = c->name,
                                .call_id = id};
    capi_post(&c->chat->base, &out);
}

static void forget_call(chat_choice *c)
{
    free(c->name);
    c->name = NULL;
    ek_buf_clear(&c->args);
}

void chat_on_reply(void *arg, const ek_reply_event *e)
{
    chat_choice *c = arg;
    switch (e->kind) {
    case EK_REPLY_CONTENT: post_text(c, EVENKEEL_TEXT, e); break;
    case EK_REPLY_REASONING: post_text(c, EVENKEEL_REASONING, e); break;
    case EK_REPLY_CALL_START:
        forget_call(c);
        c->name = ek_strdup(e->text);
        break;
    case EK_REPLY_CALL_ARGS: ek_buf_add(&c->args, e->text, e->n); break;
    case EK_REPLY_CALL_END:
        if (c->name) post_call(c, e->call);
        forget_call(c);
        break;
    case EK_REPLY_CALL_CUT:
    case EK_REPLY_CALL_DROP: forget_call(c); break;
    case EK_REPLY_STOP: break;
    }
}

/* --- the end --- */

static evenkeel_finish finish_of(ek_turn_end end)
{
    switch (end) {
    case EK_END_STOP:
    case EK_END_STOP_STRING: return EVENKEEL_STOP;
    case EK_END_CALLS: return EVENKEEL_CALLS;
    case EK_END_MAX_TOKENS:
    case EK_END_CONTEXT:
    case EK_END_LOOP: return EVENKEEL_LENGTH;
    case EK_END_CANCELLED: return EVENKEEL_CANCELLED;
    case EK_END_NONE:
    case EK_END_UNCACHED: /* chat.c refuses this in the body */
    case EK_END_ERROR: break;
    }
    return EVENKEEL_ERROR;
}

/* The end that the program has to know: errors come before cancelled choices, and these before choices that are too
 * long. */
static evenkeel_finish finish_of_all(const chat *c)
{
    evenkeel_finish all = EVENKEEL_STOP;
    for (int i = 0; i < c->n_submitted; i++) {
        const evenkeel_finish f = finish_of(c->results[i]->end);
        if (f > all) all = f;
    }
    return all;
}

static const ek_turn_result *failed(const chat *c)
{
    for (int i = 0; i < c->n_submitted; i++)
        if (c->results[i]->end == EK_END_ERROR) return c->results[i];
    return NULL;
}

/* The members: serve/resume/resume.h. */
static void put_state(ek_buf *out, const chat *c)
{
    const ek_turn_result *r = c->results[0];
    const size_t n = (size_t)r->n_tokens;
    uint64_t chain = ek_resume_seed(c->req.resume.begin, &c->req.turn.sampling);
    if (n == 0 || n > c->tokens.len) return;
    for (size_t i = 0; i < n; i++) chain = ek_resume_token(chain, c->tokens.data[i]);
    ek_resume_marks whole = {.id = c->id,
                             .created = c->reply.created,
                             .seed = c->req.turn.sampling.temperature >= EK_MIN_TEMPERATURE ? &c->req.turn.sampling.seed
                                                                                            : NULL,
                             .at = (int)n,
                             .fresh = {.data = c->tokens.data, .len = n}, /* borrowed */
                             .chain = chain};
    ek_resume_put(&whole, out, r, c->req.turn.digest ? &r->digest : NULL);
}

static void post_counted(chat *c, evenkeel_finish finish)
{
    char digest[20];
    ek_buf whole = {0}, state = {0};
    const ek_api_usage u = ek_api_usage_of(&c->reply);
    const uint64_t hash = c->req.turn.digest ? ek_api_reply_digest(&c->reply) : 0;
    snprintf(digest, sizeof digest, "%016" PRIx64, hash);
    if (c->req.turn.digest) c->reply.digest = digest;
    if (finish != EVENKEEL_CANCELLED) ek_dialect_openai_chat.end(&whole, &c->reply);
    if (finish == EVENKEEL_CANCELLED && c->reply.n == 1) put_state(&state, c);
    const evenkeel_event out = {.kind = EVENKEEL_END,
                                .token = -1,
                                .text = ek_buf_text(&whole),
                                .n = whole.len,
                                .digest = hash,
                                .finish = finish,
                                .state = ek_buf_text(&state),
                                .prompt_tokens = (int)u.prompt,
                                .cached_tokens = (int)u.cached,
                                .tokens = (int)u.completion,
                                .reasoning_tokens = (int)u.reasoning};
    capi_end(&c->base, &out);
    ek_buf_fini(&whole);
    ek_buf_fini(&state);
}

void chat_post_end(chat *c)
{
    const ek_turn_result *wrong = failed(c);
    evenkeel_event out = capi_error(c->err, c->why);
    if (c->err == EK_ECANCELLED) out = capi_error(EK_OK, ""), out.finish = EVENKEEL_CANCELLED;
    if (!c->err && wrong) out = capi_error(wrong->err, wrong->error ? wrong->error : "the request failed");
    if (c->err || wrong) capi_end(&c->base, &out);
    else post_counted(c, finish_of_all(c));
}
