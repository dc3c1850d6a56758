/* Any body gives a request within its documented bounds or a 400 with a sentence. */
#include <math.h>
#include <string.h>

#include "serve/chat_request.h"

enum { VOCAB = 262144 };

static void check(const ek_chat_request *r)
{
    const ek_sampling *s = &r->sampling;
    bool ok = r->n >= 1 && r->n <= EK_CHAT_MAX_N && r->max_tokens >= 1 && r->n_stop >= 0 && r->n_stop <= EK_STOP_MAX;
    ok &= s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
          s->min_p <= 1;
    ok &= s->top_k >= 0 && s->repetition_penalty > 0 && isfinite(s->presence_penalty) && isfinite(s->frequency_penalty);
    ok &= json_is_array(r->messages) && json_array_size(r->messages) >= 1;
    ok &= !r->tools_active || json_array_size(r->tools) >= 1;
    for (int i = 0; i < s->n_bias; i++)
        ok &= s->bias[i].token >= 0 && s->bias[i].token < VOCAB && !isnan(s->bias[i].bias);
    for (int i = 0; i < r->n_stop; i++) ok &= r->stop_len[i] >= 1 && r->stop_len[i] <= EK_STOP_BYTES;
    if (!ok) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_sampling defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1};
    ek_chat_request r;
    ek_err err = ek_chat_request_parse(&r, (const char *)data, n, &defaults, VOCAB);
    if (!err) check(&r);
    else if (ek_err_http(err) != 400 || !*ek_err_text() || strchr(ek_err_text(), '\n')) __builtin_trap();
    ek_chat_request_fini(&r);
    return 0;
}
