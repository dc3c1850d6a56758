#include "cases.h"

#include <stdio.h>

#include "base/cpu.h"
#include "base/rng.h"

static int rows_of(const ek_ask *a)
{
    return a->n_tokens + a->max_tokens;
}

/* The requests that make at max `max` rows together, at least the shortest; 0: all. */
static int choose(const scene *s, int max, int *which)
{
    int n = 0, rows = 0, shortest = 0;
    for (int i = 0; i < s->n; i++) {
        if (rows_of(&s->ask[i]) < rows_of(&s->ask[shortest])) shortest = i;
        if (max && rows + rows_of(&s->ask[i]) > max) continue;
        rows += rows_of(&s->ask[i]);
        which[n++] = i;
    }
    if (n == 0) which[n++] = shortest;
    return n;
}

/* Runs one company and has it checked; base carries the wrong kernel, if any, and the counts. */
static ek_err one(const scene *s, company *base, company c, const char *variant, check_fn *check, void *arg)
{
    static ek_trace out[MAX_ASKS];
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = choose(s, c.max_rows, which);
    for (int i = 0; i < n; i++) ask[i] = c.ask ? c.ask[which[i]] : s->ask[which[i]];
    c.before = base->before;
    c.spoil = base->spoil;
    c.want = base->want;
    if (!c.want && c.draft == EK_DRAFT_AUTO) c.draft = EK_DRAFT_NGRAM;
    c.ask = ask;
    c.n = n;
    EK_TRY(run_in_company(s, &c, out));
    base->preempted += c.preempted;
    base->steps += c.steps;
    base->drafted += c.drafted;
    base->accepted += c.accepted;
    bool good = check(arg, variant, out, which, n);
    for (int i = 0; i < n; i++) ek_trace_fini(&out[i]);
    return good ? EK_OK : EK_EINTERNAL;
}

static uint64_t draw(const scene *s, uint64_t what)
{
    return ek_mix64(ek_mix64(s->seed ^ 0xca5e) + what);
}

static ek_err together(const scene *s, company *base, check_fn *check, void *arg)
{
    EK_TRY(one(s, base, (company){0}, "all at once", check, arg));
    return one(s, base, (company){.max_requests = 2}, "two at a time", check, arg);
}

/* Arrivals at random steps. */
static void scatter(const scene *s, ek_ask *ask, int span)
{
    for (int i = 0; i < s->n; i++) {
        ask[i] = s->ask[i];
        ask[i].arrive = (int)(draw(s, 100 + (uint64_t)i) % (uint64_t)span);
    }
}

static ek_err late(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 40);
    int chunk = 16 + (int)(draw(s, 1) % 200), slots = 1 + (int)(draw(s, 2) % (uint64_t)s->n);
    return one(s, base, (company){.ask = ask, .chunk = chunk, .max_requests = slots}, "arrivals scattered", check, arg);
}

static ek_err chunked(const scene *s, company *base, check_fn *check, void *arg)
{
    static const int chunks[] = {1, 7, 64, 255, 256, 257};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        char variant[32];
        snprintf(variant, sizeof variant, "chunk %d", chunks[i]);
        company c = {.chunk = chunks[i], .max_rows = chunks[i] == 1 ? 1000 : 0};
        EK_TRY(one(s, base, c, variant, check, arg));
    }
    return EK_OK;
}

/* Pools too small for all: some wait, and the youngest of those that run starts over. */
static ek_err evicted(const scene *s, company *base, check_fn *check, void *arg)
{
    int max = 0, prompts = 0;
    for (int i = 0; i < s->n; i++) {
        int pages = (rows_of(&s->ask[i]) + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
        if (pages > max) max = pages;
        prompts += (s->ask[i].n_tokens + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    }
    company c = {.full_pages = prompts > max ? prompts : max};
    EK_TRY(one(s, base, c, "room for prompts, not for replies", check, arg));
    c = (company){.full_pages = max + (int)(draw(s, 3) % 3), .chunk = 8 + (int)(draw(s, 4) % 90)};
    EK_TRY(one(s, base, c, "room for one", check, arg));
    c = (company){.sliding_pages = (s->config.sliding_window + 62) / EK_PAGE_TOKENS + 2,
                  .chunk = 8 + (int)(draw(s, 5) % 90)};
    return one(s, base, c, "sliding pages run out", check, arg);
}

static ek_err cancelled(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 12);
    for (int i = 0; i < s->n; i++)
        if (draw(s, 200 + (uint64_t)i) % 2) ask[i].cancel = ask[i].arrive + 1 + (int)(draw(s, 300 + (uint64_t)i) % 20);
    return one(s, base, (company){.ask = ask, .chunk = 50}, "neighbours leave", check, arg);
}

/* Guesses at the next tokens are computed and verified with the rows of all: right ones, wrong ones, and where pages
 * run out. */
static ek_err drafted(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 20);
    EK_TRY(one(s, base, (company){.draft = EK_DRAFT_NGRAM}, "from the text", check, arg));
    company c = {.ask = ask, .draft = EK_DRAFT_AUTO, .chunk = 60};
    EK_TRY(one(s, base, c, "right and wrong", check, arg));
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    c = (company){.draft = EK_DRAFT_AUTO, .full_pages = max, .chunk = 16 + (int)(draw(s, 9) % 90)};
    return one(s, base, c, "right and wrong, few pages", check, arg);
}

static ek_err threads(const scene *s, company *base, check_fn *check, void *arg)
{
    /* More threads than cores are slow, not wrong: few requests are enough. Alone is one thread. */
    for (int n = 2; n <= 4; n++) {
        char variant[32];
        snprintf(variant, sizeof variant, "%d threads", n);
        ek_pool *pool;
        company c = {.chunk = 400, .max_requests = 4, .max_rows = n == 2 ? 800 : 40};
        EK_TRY(ek_pool_open(&pool, n));
        ek_err err = model_again(s, &c.model, s->opts.cpu, pool);
        if (!err) err = one(s, base, c, variant, check, arg);
        if (c.model) ek_model_close(c.model);
        ek_pool_close(pool);
        EK_TRY(err);
    }
    return EK_OK;
}

static ek_err isas(const scene *s, company *base, check_fn *check, void *arg)
{
    for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
        company c = {.chunk = 300};
        unsigned cpu;
        EK_TRY(ek_cpu_mask(*isa, &cpu));
        if (!cpu) c.max_rows = s->shape[0] == 'Q' ? 70 : 330; /* the definition is plain, not fast */
        ek_err err = model_again(s, &c.model, cpu, NULL);
        if (!err) err = one(s, base, c, *isa, check, arg);
        if (c.model) ek_model_close(c.model);
        EK_TRY(err);
    }
    return EK_OK;
}

/* Everything above at once. */
static ek_err crowd(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 30);
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    for (int i = 0; i < s->n; i++)
        if (draw(s, 400 + (uint64_t)i) % 5 == 0)
            ask[i].cancel = ask[i].arrive + 1 + (int)(draw(s, 500 + (uint64_t)i) % 30);
    ek_pool *pool;
    company c = {.ask = ask,
                 .chunk = 1 + (int)(draw(s, 6) % 300),
                 .full_pages = max + (int)(draw(s, 7) % 8),
                 .draft = EK_DRAFT_AUTO,
                 .max_requests = 1 + (int)(draw(s, 8) % (uint64_t)s->n)};
    EK_TRY(ek_pool_open(&pool, 2));
    ek_err err = model_again(s, &c.model, s->opts.cpu, pool);
    if (!err) err = one(s, base, c, "all of it", check, arg);
    if (c.model) ek_model_close(c.model);
    ek_pool_close(pool);
    return err;
}

const same_case cases[] = {
    {"together", together, "all prompts in one batch"},
    {"late", late, "each arrives at a random step"},
    {"chunked", chunked, "prompts cut every 1, 7, 64, 255, 256, 257 tokens"},
    {"evicted", evicted, "pages run out, the youngest starts over"},
    {"cancelled", cancelled, "neighbours leave in the middle"},
    {"drafted", drafted, "tokens guessed, right and wrong, and verified with the others' rows"},
    {"threads", threads, "1 to 4 threads"},
    {"isas", isas, "every instruction set"},
    {"crowd", crowd, "all of these at once"},
};
const int n_cases = sizeof cases / sizeof *cases;
