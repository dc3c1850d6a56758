#include "cli/bench/bench.h"

#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"

int ek_bench_max(const ek_list *l)
{
    int max = 0;
    for (int i = 0; i < l->n; i++)
        if (l->v[i] > max) max = l->v[i];
    return max;
}

typedef struct tally {
    int started; /* requests with a first token */
    int running;
    int tokens;
    ek_err err;
} tally;

static void on_event(void *arg, const ek_event *e)
{
    tally *t = arg;
    t->started += e->token >= 0 && e->n_tokens == 1;
    t->tokens += e->token >= 0;
    if (e->finish != EK_FINISH_NONE) t->running--;
    if (e->finish == EK_FINISH_ERROR) t->err = ek_fail(e->err, "%s", e->text);
}

/* Tokens that differ in every run, so that caches cannot help. again: the tokens of the run before. */
static int32_t *prompt_ids(const ek_engine *e, int n, bool again)
{
    static uint64_t run;
    int vocab = ek_model_config(ek_engine_model(e))->vocab_size;
    int32_t *ids = ek_alloc((size_t)n * sizeof *ids);
    run += !again;
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(ek_mix64(run << 32 | (uint64_t)i) % (uint64_t)vocab);
    return ids;
}

/* Acts like a grammar: writes a row of allowed tokens, half of all, for each token of the reply. */
typedef struct half {
    int words, n;
} half;

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const half *h = arg;
    (void)draft, (void)n_draft;
    all[0] = false;
    for (int i = 0; i < h->words; i++) row[i] = h->n % 2 ? 0xaaaaaaaaaaaaaaaaULL : 0x5555555555555555ULL;
    return 0;
}

static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    (void)arg, (void)draft, (void)n_draft;
    all[0] = false;
    return 0;
}

static void accept(void *arg, int32_t token)
{
    half *h = arg;
    (void)token;
    h->n++;
}

static ek_err submit(ek_engine *e, int n, int max_tokens, bool again, const ek_mask *mask, tally *t, ek_request_id *id)
{
    int32_t *ids = prompt_ids(e, n, again);
    ek_request_opts r = {.tokens = ids,
                         .n_tokens = n,
                         .max_tokens = max_tokens,
                         .sampling = ek_sampling_greedy(),
                         .ignore_eos = true,
                         .sink = on_event,
                         .arg = t,
                         .mask = mask,
                         .prompt_logits_from = n};
    ek_err err = ek_engine_submit(e, &r, id);
    free(ids);
    if (!err) t->running++;
    return err;
}

static ek_err run_prompt(ek_engine *e, int n, bool again, double *seconds)
{
    tally t = {0};
    ek_request_id id;
    EK_TRY(submit(e, n, 1, again, NULL, &t, &id));
    double start = ek_now();
    bool worked = true;
    while (t.running > 0 && worked) worked = ek_engine_step(e);
    *seconds = ek_now() - start;
    return t.err;
}

static ek_err run_generate(ek_engine *e, int batch, int structured, int depth, int n_steps, double *seconds,
                           double *prompts)
{
    const double first = ek_now();
    tally t = {0};
    ek_request_id *id = ek_alloc((size_t)batch * sizeof *id);
    half *state = ek_alloc((size_t)batch * sizeof *state);
    ek_mask *mask = ek_alloc((size_t)batch * sizeof *mask);
    ek_err err = EK_OK;
    bool worked = true;
    int n = 0;
    for (; n < batch && !err; n++) {
        state[n] = (half){.words = ek_mask_words(ek_model_config(ek_engine_model(e))->vocab_size)};
        mask[n] = (ek_mask){&state[n], look, accept, peek};
        err = submit(e, depth > 0 ? depth : 1, INT_MAX, false, n < structured ? &mask[n] : NULL, &t, &id[n]);
    }
    while (!err && !t.err && t.started < batch && worked) worked = ek_engine_step(e);
    int before = t.tokens;
    double start = ek_now();
    *prompts = start - first;
    for (int i = 0; i < n_steps && !err && !t.err && worked; i++) worked = ek_engine_step(e);
    *seconds = ek_now() - start;
    if (!err && !t.err && t.tokens - before != batch * n_steps)
        err = ek_fail(
            EK_EINTERNAL,
            "%d steps of %d requests made %d tokens: they did not run together; the memory for keys and values "
            "may be too small",
            n_steps, batch, t.tokens - before);
    for (int i = 0; i < n; i++) ek_engine_cancel(e, id[i]);
    for (worked = true; t.running > 0 && worked;) worked = ek_engine_step(e);
    free(id), free(state), free(mask);
    return err ? err : t.err;
}

/* Repetitions of one measurement, each with the limit measured beside it. */
typedef struct series {
    double *per_second, *per_limit, *limit;
    int n, max;
    double begun, before;
} series;

static void series_begin(series *s, int max, ek_bench_limit *limit)
{
    double *v = ek_alloc(3 * (size_t)max * sizeof *v);
    *s = (series){.per_second = v, .per_limit = v + max, .limit = v + 2 * max, .max = max, .begun = ek_now()};
    s->before = limit->measure(limit->arg);
}

static bool series_more(const series *s)
{
    return s->n == 0 || (s->n < s->max && ek_now() - s->begun < EK_BENCH_SECONDS);
}

static void series_add(series *s, double per_second, ek_bench_limit *limit)
{
    double after = limit->measure(limit->arg), mean = (s->before + after) / 2;
    s->per_second[s->n] = per_second;
    s->per_limit[s->n] = mean > 0 ? per_second / mean : 0;
    s->limit[s->n++] = mean;
    s->before = after;
}

static void series_end(series *s, ek_bench_limit *limit, double *per_second, double *per_limit)
{
    if (s->n) {
        *per_second = ek_median(s->per_second, s->n);
        *per_limit = ek_median(s->per_limit, s->n);
        limit->median = ek_median(s->limit, s->n);
    }
    free(s->per_second);
}

ek_err ek_bench_prompt(ek_engine *e, int n, int runs, ek_bench_limit *limit, double *per_second, double *per_limit,
                       double *again)
{
    double *sooner = ek_alloc((size_t)runs * sizeof *sooner);
    int n_sooner = 0;
    series s;
    ek_err err = EK_OK;
    series_begin(&s, runs, limit);
    while (!err && series_more(&s)) {
        double seconds = 0, second_time = 0;
        err = run_prompt(e, n, false, &seconds);
        if (!err) err = run_prompt(e, n, true, &second_time);
        if (!err) sooner[n_sooner++] = seconds / second_time;
        if (!err) series_add(&s, n / seconds, limit);
    }
    series_end(&s, limit, per_second, per_limit);
    if (n_sooner) *again = ek_median(sooner, n_sooner);
    free(sooner);
    return err;
}

ek_err ek_bench_generate(ek_engine *e, int batch, int structured, int depth, int n_steps, int runs,
                         ek_bench_limit *limit, double *per_second, double *per_limit, double *prompts)
{
    double *read = ek_alloc((size_t)runs * sizeof *read);
    series s;
    ek_err err = EK_OK;
    series_begin(&s, runs, limit);
    while (!err && series_more(&s)) {
        double seconds = 0, before = 0;
        err = run_generate(e, batch, structured, depth, n_steps, &seconds, &before);
        if (!err) read[s.n] = (double)batch * depth / before;
        if (!err) series_add(&s, n_steps / seconds, limit);
    }
    if (s.n) *prompts = ek_median(read, s.n);
    free(read);
    series_end(&s, limit, per_second, per_limit);
    return err;
}

int ek_bench_context(int batch, int depth, int n_steps, int chunk)
{
    int64_t waiting = (int64_t)batch * (depth / chunk + 2);
    int64_t n = depth + n_steps + waiting + 16;
    return n < INT_MAX ? (int)n : INT_MAX;
}
