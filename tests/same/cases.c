#include "cases.h"

#include <stdio.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "base/hash/rng.h"

static int end_of(const ek_part *p)
{
    return p->first + p->media->tokens;
}

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
    for (int i = 0; i < n; i++) {
        ask[i] = c.ask ? c.ask[which[i]] : s->ask[which[i]];
        ask[i].digests = c.ahead;
    }
    c.before = base->before;
    c.spoil = base->spoil;
    c.want = base->want;
    if (!c.store) c.feature_bytes = (double)(c.chunk % 3) * 20000;
    if (!c.want && c.draft == EK_DRAFT_AUTO) c.draft = EK_DRAFT_NGRAM;
    c.ask = ask;
    c.n = n;
    EK_TRY(run_in_company(s, &c, out));
    base->preempted += c.preempted;
    base->steps += c.steps;
    base->hits += c.hits;
    base->followed += c.followed;
    base->encoded += c.encoded;
    base->reused += c.reused;
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

/* Clients take turns: who runs more than others, or longer, gives way and starts over. */
static ek_err turns(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 20);
    for (int i = 0; i < s->n; i++) ask[i].client = 1 + draw(s, 500 + (uint64_t)i) % 2;
    company c = {.ask = ask, .turns = true, .max_requests = 3, .chunk = 8 + (int)(draw(s, 6) % 90)};
    const uint64_t before = base->preempted;
    EK_TRY(one(s, base, c, "two clients", check, arg));
    for (int i = 0; i < s->n; i++) ask[i].client = (uint64_t)i + 1;
    c.max_requests = 2;
    c.cache_bytes = 1;
    EK_TRY(one(s, base, c, "a client for each", check, arg));
    base->yielded += base->preempted - before;
    return EK_OK;
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
    c.remote = true;
    EK_TRY(one(s, base, c, "from another machine", check, arg));
    c.ahead = true;
    EK_TRY(one(s, base, c, "from another machine, ahead", check, arg));
    c.remote = c.ahead = false, c.drafter = true;
    EK_TRY(one(s, base, c, "by a drafter model", check, arg));
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

/* --- prefixes from the cache */

enum { LATER = 100000 }; /* a step at which all that came before has ended */

/* Runs n requests; those with which[i] >= 0 are checked. */
ek_err run_cached(const scene *s, company *base, company c, const char *variant, const ek_ask *ask, const int *which,
                  int n, check_fn *check, void *arg)
{
    static ek_trace out[MAX_ASKS], got[MAX_ASKS];
    int whose[MAX_ASKS] = {0}, n_got = 0;
    c.before = base->before;
    c.spoil = base->spoil;
    if (!c.store && c.feature_bytes == 0) c.feature_bytes = (double)(c.chunk % 3) * 20000;
    c.ask = ask;
    c.n = n;
    EK_TRY(run_in_company(s, &c, out));
    base->steps += c.steps;
    base->hits += c.hits;
    base->waits += c.waits;
    base->preempted += c.preempted;
    base->followed += c.followed;
    base->encoded += c.encoded;
    base->reused += c.reused;
    for (int i = 0; i < n; i++)
        if (which[i] >= 0) got[n_got] = out[i], whose[n_got++] = which[i];
    bool good = check(arg, variant, got, whose, n_got);
    for (int i = 0; i < n; i++) ek_trace_fini(&out[i]);
    return good ? EK_OK : EK_EINTERNAL;
}

/* The k-th length at which a prompt of n tokens is cut: around pages and windows, then anywhere. */
static int cut_at(const scene *s, int n, int k)
{
    static const int around[] = {1, 63, 64, 65, 127, 128, 129};
    int w = s->config.sliding_window, cut;
    if (k < 7) cut = around[k];
    else if (k < 12) cut = w + k - 10;
    else if (k < 15) cut = n - 1 - (k - 12);
    else if (k < 18) cut = (w / 64 + 1) * 64 + k - 16;
    else cut = (int)(draw(s, 900 + (uint64_t)k) % (uint64_t)n);
    return cut < 1 || cut >= n ? 1 + (int)(draw(s, 950 + (uint64_t)k) % (uint64_t)n) : cut;
}

/* A prompt of which another left the first `cut` tokens: every position from there on is compared. */
static ek_err cached_at_every_length(const scene *s, company *base, check_fn *check, void *arg)
{
    enum { CUTS = 30 };
    static int32_t other[CUTS][LONGEST_PROMPT + 1];
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 0, longest = 0;
    for (int i = 0; i < s->n; i++)
        if (s->ask[i].n_tokens > s->ask[longest].n_tokens) longest = i;
    const ek_ask *a = &s->ask[longest];
    for (int k = 0; k < CUTS && a->n_tokens > 1; k++) {
        int cut = cut_at(s, a->n_tokens, k);
        memcpy(other[k], a->tokens, sizeof *other[k] * (size_t)cut);
        for (int i = 0; i < a->n_parts; i++) /* no placeholder without its picture */
            if (a->part[i].first < cut && cut < end_of(&a->part[i])) cut = a->part[i].first;
        other[k][cut] = (a->tokens[cut < a->n_tokens ? cut : 0] + 1) % (s->config.vocab_size - 4);
        which[n] = -1;
        ask[n] = *a;
        ask[n].tokens = other[k];
        ask[n].n_tokens = ask[n].prompt_logits_from = cut + 1;
        ask[n].max_tokens = 1;
        ask[n].cache_salt = (uint64_t)k + 1;
        ask[n].n_spans = 0;
        while (ask[n].n_spans < a->n_spans && a->span[ask[n].n_spans].end <= cut) ask[n].n_spans++;
        ask[n].n_parts = 0;
        while (ask[n].n_parts < a->n_parts && a->part[ask[n].n_parts].first < cut) ask[n].n_parts++;
        ask[n].arrive = k * 40;
        n++;
        which[n] = longest;
        ask[n] = *a;
        ask[n].cache_salt = (uint64_t)k + 1;
        if (cut > a->prompt_logits_from) ask[n].prompt_logits_from = cut;
        ask[n].arrive = LATER + k % 5;
        n++;
    }
    company c = {.max_requests = 5, .chunk = 16 + (int)(draw(s, 11) % 200), .full_pages = 700, .sliding_pages = 700};
    return run_cached(s, base, c, "after others that begin alike", ask, which, n, check, arg);
}

/* Every request a second time; how much of the prompt is asked for again differs. */
ek_err cached_again(const scene *s, company *base, const char *variant, company c, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 0, half = s->n < MAX_ASKS / 2 ? s->n : MAX_ASKS / 2;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < half; i++, n++) {
            ask[n] = s->ask[i];
            ask[n].digests = c.ahead;
            which[n] = i;
            ask[n].arrive = round * LATER + (int)(draw(s, 600 + (uint64_t)n) % 9);
            int from = (int)(draw(s, 700 + (uint64_t)i) % (uint64_t)(ask[n].n_tokens + 1));
            if (round && from > ask[n].prompt_logits_from) ask[n].prompt_logits_from = from;
        }
    return run_cached(s, base, c, variant, ask, which, n, check, arg);
}

/* Many that are one prompt, at once and while the first is still computed. */
static ek_err cached_by_several(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 12;
    for (int i = 0; i < n; i++) {
        which[i] = i % 2 && s->n > 1 ? 1 : 0;
        ask[i] = s->ask[which[i]];
        ask[i].prompt_logits_from = ask[i].n_tokens;
        ask[i].arrive = i < 2 ? 0 : 2 + (int)(draw(s, 800 + (uint64_t)i) % 9);
        if (i % 5 == 4) ask[i].cancel = ask[i].arrive + 3;
    }
    company c = {.max_requests = 6, .chunk = 70, .full_pages = 30};
    return run_cached(s, base, c, "several at once", ask, which, n, check, arg);
}

/* All at once, prompts that begin alike: the front is computed by one, and the others wait for its pages. */
static ek_err cached_in_a_burst(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 8, longest = 0;
    for (int i = 0; i < s->n; i++)
        if (s->ask[i].n_tokens > s->ask[longest].n_tokens) longest = i;
    for (int i = 0; i < n; i++) {
        ask[i] = s->ask[longest];
        ask[i].prompt_logits_from = ask[i].n_tokens;
        which[i] = longest;
        if (i % 2 == 0 || ask[i].n_tokens < 2) continue;
        which[i] = -1; /* cut, it has another reply */
        ask[i].n_tokens -= 1 + (int)(draw(s, 850 + (uint64_t)i) % (uint64_t)(ask[i].n_tokens - 1));
        while (ask[i].n_parts > 0 && end_of(&ask[i].part[ask[i].n_parts - 1]) > ask[i].n_tokens) {
            const ek_part *last = &ask[i].part[--ask[i].n_parts];
            if (last->first < ask[i].n_tokens) ask[i].n_tokens = last->first;
        }
        ask[i].prompt_logits_from = ask[i].n_tokens;
        while (ask[i].n_spans > 0 && ask[i].span[ask[i].n_spans - 1].end > ask[i].n_tokens) ask[i].n_spans--;
        if (i % 4 == 3) ask[i].cancel = 1 + i;
    }
    int swap = (int)(draw(s, 860) % (uint64_t)n);
    ek_ask first = ask[swap];
    int whose = which[swap];
    ask[swap] = ask[0], which[swap] = which[0];
    ask[0] = first, which[0] = whose;
    company c = {.max_requests = n, .chunk = 30 + (int)(draw(s, 861) % 100)};
    return run_cached(s, base, c, "in a burst", ask, which, n, check, arg);
}

static ek_err cached(const scene *s, company *base, check_fn *check, void *arg)
{
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    EK_TRY(cached_at_every_length(s, base, check, arg));
    EK_TRY(cached_again(s, base, "twice", (company){.max_requests = 8, .chunk = 100}, check, arg));
    company tight = {.max_requests = 4, .chunk = 50, .full_pages = max + 4};
    tight.sliding_pages = (s->config.sliding_window + 62) / EK_PAGE_TOKENS + 6;
    EK_TRY(cached_again(s, base, "twice, pages run out", tight, check, arg));
    company few = {.max_requests = 4, .chunk = 50, .cache_bytes = 300000};
    EK_TRY(cached_again(s, base, "twice, few cached bytes", few, check, arg));
    EK_TRY(cached_by_several(s, base, check, arg));
    return cached_in_a_burst(s, base, check, arg);
}

/* A step begins before the tokens that it follows are drawn (engine/planning.h); those who end with these leave rows
 * that nobody reads. */
static ek_err ahead(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 30);
    EK_TRY(one(s, base, (company){.ahead = true}, "all at once", check, arg));
    for (int i = 0; i < s->n; i++)
        if (draw(s, 600 + (uint64_t)i) % 3 == 0)
            ask[i].cancel = ask[i].arrive + 1 + (int)(draw(s, 700 + (uint64_t)i) % 30);
    company c = {.ahead = true, .ask = ask, .chunk = 16 + (int)(draw(s, 10) % 200)};
    c.max_requests = 1 + (int)(draw(s, 11) % (uint64_t)s->n);
    EK_TRY(one(s, base, c, "come and go", check, arg));
    c = (company){.ahead = true, .draft = EK_DRAFT_NGRAM, .chunk = 50};
    c.sliding_pages = (s->config.sliding_window + 62) / EK_PAGE_TOKENS + 4;
    EK_TRY(one(s, base, c, "few pages", check, arg));
    return cached_again(s, base, "twice", (company){.ahead = true, .max_requests = 8, .chunk = 100}, check, arg);
}

/* What a step of prompts may have beside replies changes from step to step, by times of steps. */
static ek_err uneven(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    scatter(s, ask, 30);
    company c = {.uneven = true, .ask = ask, .chunk = 300};
    EK_TRY(one(s, base, c, "come and go", check, arg));
    c.draft = EK_DRAFT_AUTO, c.max_requests = 1 + (int)(draw(s, 12) % (uint64_t)s->n);
    EK_TRY(one(s, base, c, "with drafts", check, arg));
    c = (company){.uneven = true, .ahead = true, .ask = ask, .chunk = 500};
    c.full_pages = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS + 3;
    EK_TRY(one(s, base, c, "ahead, few pages", check, arg));
    return cached_again(s, base, "twice", (company){.uneven = true, .max_requests = 8, .chunk = 200}, check, arg);
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
    {"turns", turns, "clients take turns, who gives way starts over"},
    {"cancelled", cancelled, "neighbours leave in the middle"},
    {"drafted", drafted, "tokens guessed, right and wrong, and verified with the others' rows"},
    {"masked", masked, "replies under a mask, with drafts right and wrong"},
    {"threads", threads, "1 to 4 threads"},
    {"isas", isas, "every instruction set"},
    {"cached", cached, "prefixes that other requests left, of every length"},
    {"continued", continued, "replies that were cut anywhere and go on in another engine"},
    {"stored", stored, "replies from a store, in memory, on disk and on a server, cut and continued, beside drafts"},
    {"stored_masked", masked_stored, "such replies under a mask, which has accepted what the store had"},
    {"ahead", ahead, "steps begun before the tokens in front of them are known"},
    {"structured", masked_ahead, "plain requests ahead beside masks, penalties and logits, whose draws come later"},
    {"uneven", uneven, "prompts cut by invented times of steps, beside replies, drafts and steps ahead"},
    {"media", media, "pictures: cut at every border, again from memory, from disk and without room for features"},
    {"shared", shared, "pages that another process left on a server, as it wrote them and changed"},
    {"crowd", crowd, "all of these at once"},
};
const int n_cases = sizeof cases / sizeof *cases;
