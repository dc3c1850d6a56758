#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "base/hash/rng.h"
#include "../support/beside.h"

ask asks[MAX_REQUESTS];
static float embeddings[1 << 12][FAKE_HIDDEN];

static fake_prompt prompt_of(const ask *a)
{
    return (fake_prompt){a->prompt, a->n_prompt, a->span, a->n_spans, a->masked};
}

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const ask *a = arg;
    for (int i = 0; i <= n_draft; i++, row += ek_mask_words(FAKE_VOCAB)) {
        int32_t last = i > 0 ? draft[i - 1] : a->accepted;
        all[i] = false;
        memset(row, 0, sizeof *row * (size_t)ek_mask_words(FAKE_VOCAB));
        for (int v = 0; v < FAKE_VOCAB; v++) row[v / 64] |= (uint64_t)fake_allows(last, v) << v % 64;
        if (i == n_draft || !fake_allows(last, draft[i])) return i;
    }
    return n_draft;
}

static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    const ask *a = arg;
    for (int i = 0;; i++) {
        all[i] = false;
        if (i == n_draft || !fake_allows(i > 0 ? draft[i - 1] : a->accepted, draft[i])) return i;
    }
}

static void accept(void *arg, int32_t token)
{
    ask *a = arg;
    EK_ASSERT(fake_allows(a->accepted, token));
    a->accepted = token;
}

static void on_event(void *arg, const ek_event *event)
{
    ask *a = arg;
    EK_ASSERT(event->user == a && event->request == a->id);
    EK_ASSERT(a->finish == EK_FINISH_NONE); /* nothing after the last event */
    EK_ASSERT(event->n_prompt == a->n_prompt && event->n_cached >= 0 && event->n_cached < a->n_prompt);
    EK_ASSERT(a->n_got == 0 || event->n_cached == a->n_cached);
    a->n_cached = event->n_cached;
    a->n_image = event->n_image, a->n_sound = event->n_sound, a->n_features = event->n_features;
    a->n_kept = event->n_image_kept + event->n_sound_kept;
    if (event->token >= 0) {
        float logits[FAKE_VOCAB];
        int32_t tokens[MAX_PROMPT + MAX_REPLY];
        memcpy(tokens, a->prompt, sizeof *tokens * (size_t)a->n_prompt);
        memcpy(tokens + a->n_prompt, a->got, sizeof *tokens * (size_t)a->n_got);
        fake_prompt p = prompt_of(a);
        p.tokens = tokens;
        fake_logits(a->f, &p, a->n_prompt + a->n_got - 1, logits);
        EK_ASSERT(!event->logits || memcmp(logits, event->logits, sizeof logits) == 0);
        EK_ASSERT(a->n_got < a->max_tokens);
        a->got[a->n_got++] = event->token;
        EK_ASSERT(event->n_tokens == a->n_got);
        EK_ASSERT(a->cancel_at == 0 || a->n_got <= a->cancel_at);
        if (a->n_got == a->cancel_at) ek_engine_cancel(a->engine, event->request);
    } else {
        EK_ASSERT(event->finish == EK_FINISH_CANCELLED || event->finish == EK_FINISH_ERROR);
        EK_ASSERT(!event->logits);
    }
    EK_ASSERT(event->n_accepted <= event->n_drafted && event->n_accepted >= a->n_accepted);
    a->n_drafted = event->n_drafted, a->n_accepted = event->n_accepted;
    if (event->text) strncpy(a->text, event->text, sizeof a->text - 1);
    a->finish = event->finish;
}

static void on_prompt(void *user, int pos, const float *logits)
{
    ask *a = user;
    float want[FAKE_VOCAB];
    EK_ASSERT(pos == a->prompt_logits_from + a->n_prompt_logits);
    EK_ASSERT(a->n_got == 0);
    fake_prompt p = prompt_of(a);
    fake_logits(a->f, &p, pos, want);
    EK_ASSERT(memcmp(want, logits, sizeof want) == 0);
    a->n_prompt_logits++;
}

ek_request_opts opts_of(ask *a)
{
    a->mask = (ek_mask){a, look, accept, a->n_prompt % 3 ? peek : NULL};
    return (ek_request_opts){.mask = a->masked ? &a->mask : NULL,
                             .tokens = a->prompt,
                             .n_tokens = a->n_prompt,
                             .max_tokens = a->max_tokens,
                             .sampling = a->sampling,
                             .ignore_eos = a->ignore_eos,
                             .sink = on_event,
                             .arg = a,
                             .user = a,
                             .prompt_logits_from = a->prompt_logits_from,
                             .on_prompt_logits = on_prompt,
                             .reply_logits = !a->f->beside || a->n_prompt % 32 == 0,
                             .span = a->span,
                             .n_spans = a->n_parts ? 0 : a->n_spans,
                             .part = a->part,
                             .n_parts = a->n_parts,
                             .stop = &a->own_stop,
                             .n_stop = a->own_stop > 0,
                             .client = (uint64_t)(a - asks) % 3,
                             .cache_salt = a->salt,
                             .cache_owner = a->salt % 3};
}

void grow(ask *a, const fake *f, uint64_t seed, int max_prompt)
{
    uint64_t r = ek_mix64(seed);
    memset(a, 0, sizeof *a);
    a->f = f;
    a->n_prompt = 1 + (int)(r % (uint64_t)max_prompt);
    for (int i = 0; i < a->n_prompt; i++) a->prompt[i] = (int32_t)(ek_mix64(seed + 1000 + (uint64_t)i) % FAKE_NAN);
    a->max_tokens = 1 + (int)((r >> 16) % MAX_REPLY);
    a->prompt_logits_from = r >> 24 & 1 ? a->n_prompt : (int)((r >> 25) % (uint64_t)(a->n_prompt + 1));
    a->ignore_eos = r >> 40 & 1;
    a->masked = (r >> 51 & 3) == 0;
    a->accepted = -1;
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
    set_want(a, 4096);
}

void set_want(ask *a, int ctx)
{
    fake_prompt p = prompt_of(a);
    a->n_want = fake_reply(a->f, &p, &a->sampling, a->ignore_eos, a->max_tokens, ctx, a->want);
    for (int i = 0; i < a->n_want && a->own_stop > 0; i++)
        if (a->want[i] == a->own_stop) a->n_want = i + 1;
}

void grow_spans(ask *a, uint64_t seed, int longest)
{
    for (size_t i = 0; i < sizeof embeddings / sizeof(float); i++) (&embeddings[0][0])[i] = (float)(ek_mix64(i) >> 40);
    a->n_spans = 0;
    for (int i = 0, at = 0; i < MAX_SPANS; i++) {
        uint64_t r = ek_mix64(seed * 31 + (uint64_t)i);
        ek_prompt_span *s = &a->span[i];
        *s = (ek_prompt_span){.first = at + (int)(r % 40)};
        s->end = s->first + 1 + (int)((r >> 8) % (uint64_t)longest);
        if (s->end > a->n_prompt) return;
        if (r >> 30 & 1) s->embedding = embeddings[(r >> 32) % (sizeof embeddings / sizeof *embeddings - 512)];
        s->mutual[EK_FULL] = (r >> 24 & 3) == 0;
        s->mutual[EK_SLIDING] = r >> 26 & 1;
        a->n_spans++;
        at = s->end;
    }
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
    if (a->cancel_at > 0 && a->cancel_at < a->n_want) {
        assert_int_equal(a->finish, EK_FINISH_CANCELLED);
        assert_int_equal(a->n_got, a->cancel_at);
        return;
    }
    assert_int_equal(a->n_got, a->n_want);
    assert_int_equal(a->n_prompt_logits, a->n_prompt - a->prompt_logits_from);
    int32_t last = a->want[a->n_want - 1];
    bool stopped = (last == FAKE_STOP && !a->ignore_eos) || (a->own_stop > 0 && last == a->own_stop);
    assert_int_equal(a->finish, stopped ? EK_FINISH_STOP : EK_FINISH_LENGTH);
}

void (*change_opts)(ek_executor *x, ek_engine_opts *o);

ek_engine *open_engine(fake *f, int full, int sliding, int requests, int chunk)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_executor x = fake_executor(f, full, sliding);
    ek_engine *e = NULL;
    o.max_requests = requests;
    o.chunk = chunk;
    o.draft = f->draft;
    o.draft_max = f->draft_max;
    if (change_opts) change_opts(&x, &o);
    if (f->beside) x = beside_executor(f->beside, x);
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    guess_for = e;
    return e;
}

const ek_engine *guess_for;

ek_err guess_at_random(void *arg, ek_draft *draft, int n)
{
    const fake *f = arg;
    static uint64_t calls;
    for (int i = 0; i < n; i++) {
        ek_draft *d = &draft[i];
        const ask *a = guess_for->slot[d->seq->slot]->user;
        uint64_t r = ek_mix64(++calls);
        int at = d->n_tokens - a->n_prompt, wrong = (int)(r % 12), len = (int)((r >> 8) % 20);
        EK_ASSERT(d->max >= 1 && d->logits >= 0 && d->logits < f->sizes.max_logits);
        EK_ASSERT(memcmp(d->tokens, a->prompt, sizeof *d->tokens * (size_t)a->n_prompt) == 0);
        EK_ASSERT(at == a->n_got && memcmp(d->tokens + a->n_prompt, a->got, sizeof *d->tokens * (size_t)at) == 0);
        if ((r >> 16) % 32 == 0) return ek_fail(EK_EINTERNAL, "no draft today");
        for (d->n = 0; d->n < d->max && d->n < len; d->n++) {
            bool right = d->n < wrong && at + d->n < a->n_want;
            int32_t other = (int32_t)(ek_mix64(r + (uint64_t)d->n) % FAKE_VOCAB);
            d->token[d->n] = right                ? a->want[at + d->n]
                             : (r >> 32) % 4 == 0 ? FAKE_FAILS - (int32_t)(r >> 34 & 1)
                                                  : other;
        }
    }
    return EK_OK;
}

void submit(ek_engine *e, ask *a)
{
    ek_request_opts o = opts_of(a);
    a->engine = e;
    assert_int_equal(ek_engine_submit(e, &o, &a->id), EK_OK);
}

void step_until_idle(ek_engine *e)
{
    while (ek_engine_step(e)) continue;
}

void run_and_check(ek_engine *e, const fake *f)
{
    for (int step = 0; ek_engine_step(e); step++)
        if (step % 8 == 0) check_cache(e, f);
    check_cache(e, f);
}

void ask_greedy(ask *a, const fake *f, int n_prompt, int max_tokens)
{
    a->f = f;
    a->n_prompt = a->prompt_logits_from = n_prompt;
    a->max_tokens = max_tokens;
    a->ignore_eos = true;
    a->sampling = ek_sampling_greedy();
    set_want(a, 4096);
}

int ask_alone(ek_engine *e, ask *a)
{
    a->n_got = a->n_prompt_logits = a->n_cached = 0;
    a->finish = EK_FINISH_NONE;
    submit(e, a);
    run_and_check(e, a->f);
    check(a);
    return a->n_cached;
}

void ask_fill(int32_t *token, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) token[i] = (int32_t)(ek_mix64(seed * 7919 + (uint64_t)i) % 90);
}
