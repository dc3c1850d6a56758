/* Any body gives a request within its documented bounds, whose conversation renders or is refused, or a
 * 400 with a sentence. */
#include <math.h>
#include <string.h>

#include "chat/order.h"
#include "serve/api/dialect.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { VOCAB = 262144 };

static void check(const ek_api_request *r)
{
    const ek_turn_opts *t = &r->turn;
    const ek_sampling *s = &t->sampling;
    bool ok = r->n >= 1 && r->n <= 64 && t->max_tokens >= 0 && t->n_stop >= 0 && t->n_stop <= EK_STOP_MAX;
    ok &= s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
          s->min_p <= 1;
    ok &= s->top_k >= 0 && s->repetition_penalty > 0 && isfinite(s->presence_penalty) && isfinite(s->frequency_penalty);
    ok &= r->conversation.n_messages >= 1;
    ok &= !t->tools_active || json_array_size(r->tools) >= 1;
    for (int i = 0; i < s->n_bias; i++)
        ok &= s->bias[i].token >= 0 && s->bias[i].token < VOCAB && !isnan(s->bias[i].bias);
    for (int i = 0; i < t->n_stop; i++) ok &= t->stop_len[i] >= 1 && t->stop_len[i] <= EK_STOP_BYTES;
    if (!ok) __builtin_trap();
}

/* Results of tools: as messages of their own, or inside the messages that made the calls. */
static size_t count_results(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        n += json_array_size(ek_json_get(m, "tool_responses"));
        n += !strcmp(ek_json_get_text(m, "role", NULL), "tool");
    }
    return n;
}

static size_t count_given(const ek_conversation *c)
{
    size_t n = 0;
    for (int i = 0; i < c->n_messages; i++) {
        n += c->messages[i].role == EK_ROLE_TOOL;
        for (int b = 0; b < c->messages[i].n_blocks; b++) n += c->messages[i].blocks[b].kind == EK_BLOCK_RESULT;
    }
    return n;
}

static void render(const ek_api_request *r)
{
    bool mark;
    ek_prompt p = {0};
    ek_chat_opts o = {.variant = EK_CHAT_LARGE, .text_arguments = true, .add_generation_prompt = true};
    json_t *messages;
    ek_err err = ek_template_messages(&messages, &r->conversation, &mark);
    if (!err && count_results(messages) != count_given(&r->conversation)) __builtin_trap(); /* none is dropped */
    if (!err) err = ek_chat_render(&p, messages, r->tools, &o);
    if (!err && !ek_utf8_valid(ek_buf_text(&p.text), p.text.len)) __builtin_trap();
    if (err && (err != EK_EINVAL || strchr(ek_err_text(), '\n'))) __builtin_trap();
    ek_prompt_fini(&p);
    json_decref(messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1},
                            .n_vocab = VOCAB,
                            .ctx_tokens = 8192};
    ek_api_request r = {0};
    ek_err err = ek_api_parse(&r, &ek_dialect_openai_chat, (const char *)data, n, &limits);
    if (!err) {
        check(&r);
        render(&r);
    } else if (ek_err_http(err) != 400 || !*ek_err_text() || strchr(ek_err_text(), '\n')) {
        __builtin_trap();
    }
    ek_api_request_fini(&r);
    return 0;
}
