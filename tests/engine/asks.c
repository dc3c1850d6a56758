#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "base/rng.h"

ask asks[MOST_REQUESTS];

static void on_event(void *arg, const ek_event *event)
{
    ask *a = arg;
    EK_ASSERT(event->user == a && event->request == a->id);
    EK_ASSERT(a->finish == EK_FINISH_NONE); /* nothing after the last event */
    EK_ASSERT(event->n_prompt == a->n_prompt);
    if (event->token >= 0) {
        float logits[FAKE_VOCAB];
        int32_t tokens[MOST_PROMPT + MOST_REPLY];
        memcpy(tokens, a->prompt, sizeof *tokens * (size_t)a->n_prompt);
        memcpy(tokens + a->n_prompt, a->got, sizeof *tokens * (size_t)a->n_got);
        fake_logits(a->f, tokens, a->n_prompt + a->n_got, logits);
        EK_ASSERT(memcmp(logits, event->logits, sizeof logits) == 0);
        EK_ASSERT(a->n_got < a->most);
        a->got[a->n_got++] = event->token;
        EK_ASSERT(event->n_tokens == a->n_got);
    } else {
        EK_ASSERT(event->finish == EK_FINISH_CANCELLED || event->finish == EK_FINISH_ERROR);
        EK_ASSERT(!event->logits);
    }
    if (event->text) strncpy(a->text, event->text, sizeof a->text - 1);
    a->finish = event->finish;
}

static void on_prompt(void *user, int pos, const float *logits)
{
    ask *a = user;
    float want[FAKE_VOCAB];
    EK_ASSERT(pos == a->told_from + a->n_told);
    EK_ASSERT(a->n_got == 0);
    fake_logits(a->f, a->prompt, pos + 1, want);
    EK_ASSERT(memcmp(want, logits, sizeof want) == 0);
    a->n_told++;
}

ek_request_opts opts_of(ask *a)
{
    return (ek_request_opts){.tokens = a->prompt,
                             .n_tokens = a->n_prompt,
                             .max_tokens = a->most,
                             .sampling = a->sampling,
                             .ignore_eos = a->ignore_eos,
                             .sink = on_event,
                             .arg = a,
                             .user = a,
                             .prompt_logits_from = a->told_from,
                             .on_prompt_logits = on_prompt};
}

void grow(ask *a, const fake *f, uint64_t seed, int most_prompt)
{
    uint64_t r = ek_mix64(seed);
    memset(a, 0, sizeof *a);
    a->f = f;
    a->n_prompt = 1 + (int)(r % (uint64_t)most_prompt);
    for (int i = 0; i < a->n_prompt; i++) a->prompt[i] = (int32_t)(ek_mix64(seed + 1000 + (uint64_t)i) % FAKE_NAN);
    a->most = 1 + (int)((r >> 16) % MOST_REPLY);
    a->told_from = r >> 24 & 1 ? a->n_prompt : (int)((r >> 25) % (uint64_t)(a->n_prompt + 1));
    a->ignore_eos = r >> 40 & 1;
    a->sampling = ek_sampling_greedy();
    if (r >> 41 & 1) {
        a->sampling.temperature = 0.7f;
        a->sampling.seed = r;
        if (r >> 42 & 1) a->sampling.top_k = 9;
        if (r >> 43 & 1) a->sampling.top_p = 0.9f;
        if (r >> 44 & 1) a->sampling.frequency_penalty = 0.5f;
        a->bias = (ek_logit_bias){(int32_t)(r >> 45 & 63), 1.5f};
        a->sampling.bias = &a->bias;
        a->sampling.n_bias = 1;
    }
    a->n_want = fake_reply(f, a->prompt, a->n_prompt, &a->sampling, a->ignore_eos, a->most, 4096, a->want);
}

void check(const ask *a)
{
    if (a->broken && !(a->cancel && a->finish == EK_FINISH_CANCELLED)) {
        assert_int_equal(a->finish, EK_FINISH_ERROR);
        assert_int_equal(a->n_got, 0);
        assert_string_equal(a->text, "token 96 cannot be computed");
        return;
    }
    assert_true(a->n_got <= a->n_want);
    assert_memory_equal(a->got, a->want, sizeof *a->got * (size_t)a->n_got);
    if (a->cancel && a->finish == EK_FINISH_CANCELLED) return;
    assert_int_equal(a->n_got, a->n_want);
    assert_int_equal(a->n_told, a->n_prompt - a->told_from);
    bool stopped = a->want[a->n_want - 1] == FAKE_STOP && !a->ignore_eos;
    assert_int_equal(a->finish, stopped ? EK_FINISH_STOP : EK_FINISH_LENGTH);
}

ek_engine *open_engine(fake *f, int full, int sliding, int requests, int chunk)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_backend b = fake_backend(f, full, sliding);
    ek_engine *e = NULL;
    o.max_requests = requests;
    o.chunk = chunk;
    assert_int_equal(ek_engine_open_on(&e, &b, &o), EK_OK);
    return e;
}

void submit(ek_engine *e, ask *a)
{
    ek_request_opts o = opts_of(a);
    assert_int_equal(ek_engine_submit(e, &o, &a->id), EK_OK);
}

void step_until_idle(ek_engine *e)
{
    for (bool worked = true; worked;) assert_int_equal(ek_engine_step(e, &worked), EK_OK);
}
