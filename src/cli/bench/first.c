#include "cli/bench/first.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"

enum { AROUND = 2, REPLY = 8 };

int ek_bench_first_context(int tokens, int n)
{
    return n + tokens + AROUND + REPLY;
}

typedef struct waited {
    bool ended;
    ek_err err;
} waited;

static void on_event(void *arg, const ek_event *e)
{
    waited *w = arg;
    if (e->finish == EK_FINISH_NONE) return;
    w->ended = true;
    if (e->finish == EK_FINISH_ERROR) w->err = ek_fail(e->err, "%s", e->text);
}

static bool is_media(const ek_media_ids *ids, int32_t id)
{
    bool any = ek_part_kind_of(ids, id) != EK_PART_KINDS;
    for (int k = 0; k < EK_PART_KINDS; k++) any |= id == ids->begin[k] || id == ids->end[k];
    return any;
}

/* Tokens of text, which no two runs share. */
static void fill(int32_t *to, int n, const ek_media_ids *ids, int vocab, uint64_t run)
{
    for (int i = 0; i < n; i++) {
        uint64_t x = run << 32 | (uint64_t)i;
        do x = ek_mix64(x);
        while (is_media(ids, (int32_t)(x % (uint64_t)vocab)));
        to[i] = (int32_t)(x % (uint64_t)vocab);
    }
}

static ek_err run(ek_engine *e, const ek_request_opts *r, waited *w, double *seconds)
{
    ek_request_id id;
    const double start = ek_now();
    *w = (waited){0};
    EK_TRY(ek_engine_submit(e, r, &id));
    while (!w->ended && ek_engine_step(e)) continue;
    *seconds = ek_now() - start;
    return w->err;
}

ek_err ek_bench_first(const ek_opened *o, ek_media *m, int n, double *first, double *again)
{
    static uint64_t number;
    const ek_media_ids *ids = &o->chat.media.ids;
    const int vocab = ek_model_config(o->model)->vocab_size, before = n / 2, all = n + m->tokens + AROUND;
    int32_t *token = ek_alloc(sizeof *token * (size_t)all);
    fill(token, all, ids, vocab, ++number);
    token[before] = ids->begin[m->kind];
    for (int i = 0; i < m->tokens; i++) token[before + 1 + i] = ids->soft[m->kind];
    token[before + 1 + m->tokens] = ids->end[m->kind];
    const ek_part part = {m, before + 1};
    waited w;
    const ek_request_opts r = {.tokens = token,
                               .n_tokens = all,
                               .max_tokens = 1,
                               .part = &part,
                               .n_parts = 1,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_event,
                               .arg = &w,
                               .prompt_logits_from = all};
    ek_err err = run(o->engine, &r, &w, first);
    if (!err) err = run(o->engine, &r, &w, again);
    free(token);
    return err;
}
