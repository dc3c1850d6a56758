/* Replies under a mask, as those of a grammar: which tokens may come next is a function of the reply so far. Alone
 * and without drafts first, then with the others' rows and drafts, right and wrong; and some of them beside plain
 * requests, in steps begun before the tokens in front are known, to which their draws come later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "base/hash/rng.h"
#include "cases.h"

enum { MAX_ROWS = 1500, MAX_WORDS = 544 }; /* of the requests that run here; of a row of allowed tokens */

typedef struct automaton {
    uint64_t seed;
    int vocab_size;
    int32_t last; /* token of the reply; -1: none yet */
    int n;        /* tokens of the reply */
} automaton;

/* A reply has places where anything may follow, some tokens may, or exactly one may (the fixed parts of a notation);
 * there a draft is right without a guess. */
static void allow(const automaton *a, int32_t last, int n, uint64_t *row, bool *all)
{
    uint64_t r = ek_mix64(a->seed ^ (uint64_t)(last + 1) << 8 ^ (uint64_t)(n % 5));
    *all = r % 4 == 0;
    if (*all) return;
    memset(row, 0, sizeof *row * (size_t)ek_mask_words(a->vocab_size));
    for (int v = 0; v < a->vocab_size && r % 4 != 1; v++)
        row[v / 64] |= (uint64_t)(ek_mix64(r + (uint64_t)v) % (r % 4) == 0) << v % 64;
    int32_t one = (int32_t)((r >> 8) % (uint64_t)a->vocab_size);
    row[one / 64] |= (uint64_t)1 << one % 64;
}

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const automaton *a = arg;
    ptrdiff_t words = ek_mask_words(a->vocab_size);
    for (int i = 0;; i++, row += words) {
        allow(a, i > 0 ? draft[i - 1] : a->last, a->n + i, row, &all[i]);
        if (i == n_draft || !(all[i] || row[draft[i] / 64] >> draft[i] % 64 & 1)) return i;
    }
}

/* Of the first requests' masks, whose rows are then made beside the step; not everywhere. */
static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    static uint64_t row[(EK_DRAFT_MAX + 1) * MAX_WORDS];
    const automaton *a = arg;
    EK_ASSERT(ek_mask_words(a->vocab_size) <= MAX_WORDS);
    if (a->n % 7 == 6) return -1;
    return look(arg, draft, n_draft, row, all);
}

static void accept(void *arg, int32_t token)
{
    automaton *a = arg;
    a->last = token;
    a->n++;
}

typedef struct masks {
    automaton state[MAX_ASKS];
    ek_mask mask[MAX_ASKS];
} masks;

/* The scene's requests, each at the beginning of its mask; every: one of so many has one. */
static void begin(const scene *s, masks *m, ek_ask *ask, int every)
{
    for (int i = 0; i < s->n; i++) {
        ask[i] = s->ask[i];
        ask[i].prompt_logits_from = ask[i].n_tokens;
        m->state[i] = (automaton){ek_mix64(s->seed + (uint64_t)i), s->config.vocab_size, -1, 0};
        m->mask[i] = (ek_mask){&m->state[i], look, accept, i % 4 ? peek : NULL};
        ask[i].mask = i % every == 0 ? &m->mask[i] : NULL;
    }
}

static ek_err compare(const char *variant, const ek_trace *want, const ek_trace *got, int n)
{
    char where[160];
    for (int i = 0; i < n; i++)
        if (!ek_trace_same(&want[i], &got[i], where, sizeof where))
            return ek_fail(EK_EINTERNAL, "%s, request %d: %s", variant, i, where);
    return EK_OK;
}

static ek_err together(const scene *s, company *base, const char *variant, company c, int every, int n, ek_trace *want)
{
    static masks m;
    static ek_trace got[MAX_ASKS];
    ek_ask ask[MAX_ASKS];
    begin(s, &m, ask, every);
    for (int i = 0; i < n && c.ahead; i++) {
        const uint64_t r = ek_mix64(s->seed + 990 + (uint64_t)i);
        ask[i].digests = i % (2 * every) != 0; /* the others' logits are asked for, too */
        if (c.chunk && r % 4 == 0) ask[i].cancel = 20 + (int)((r >> 8) % 40);
    }
    for (int i = 0; i < n; i++) ask[i].arrive = c.chunk ? (int)(ek_mix64(s->seed + 77 + (uint64_t)i) % 20) : 0;
    c.ask = ask, c.n = n, c.want = want;
    EK_TRY(run_in_company(s, &c, got));
    ek_err err = compare(variant, want, got, n);
    for (int i = 0; i < n; i++) ek_trace_fini(&got[i]);
    base->preempted += c.preempted;
    base->masked_drafts += c.drafted;
    base->masked_accepted += c.accepted;
    base->drawn_late += c.drawn_late, base->followed += c.followed, base->steps += c.steps;
    return err;
}

static ek_err in_all_companies(const scene *s, company *base, int every, int n, ek_trace *want)
{
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    company c = {.draft = EK_DRAFT_NGRAM};
    EK_TRY(together(s, base, "from the text", c, every, n, want));
    c = (company){.draft = EK_DRAFT_AUTO, .chunk = 60};
    EK_TRY(together(s, base, "right and wrong", c, every, n, want));
    c.full_pages = max;
    EK_TRY(together(s, base, "right and wrong, few pages", c, every, n, want));
    c = (company){.draft = EK_DRAFT_AUTO, .drafter = true, .chunk = 90};
    return together(s, base, "by a drafter model", c, every, n, want);
}

static ek_err all_ahead(const scene *s, company *base, int every, int n, ek_trace *want)
{
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    company c = {.ahead = true};
    EK_TRY(together(s, base, "ahead", c, every, n, want));
    c.chunk = 60;
    EK_TRY(together(s, base, "ahead, come and go", c, every, n, want));
    c = (company){.ahead = true, .chunk = 90, .full_pages = max, .max_requests = n > 2 ? n - 1 : n, .turns = true};
    EK_TRY(together(s, base, "ahead, few pages, in turns", c, every, n, want));
    c = (company){.ahead = true, .uneven = true, .chunk = 400};
    EK_TRY(together(s, base, "ahead, prompts cut by time", c, every, n, want));
    c = (company){.ahead = true, .chunk = 60, .draft = EK_DRAFT_NGRAM};
    return together(s, base, "ahead, with drafts", c, every, n, want);
}

/* Requests behind the beginnings of their replies, which a store had: their masks accepted these tokens. */
static ek_err behind(const scene *s, company *base, const char *variant, company c, const char *dir, int every, int n,
                     const ek_trace *want)
{
    static masks m;
    static ek_trace got[MAX_ASKS], wanted[MAX_ASKS];
    kept_ask kept[MAX_ASKS];
    ek_ask whole[MAX_ASKS], ask[MAX_ASKS];
    int32_t *tokens[MAX_ASKS] = {0};
    int n_kept = 0;
    begin(s, &m, whole, every);
    for (int i = 0; i < n; i++) {
        if (want[i].n_reply < 2) continue;
        wanted[n_kept] = want[i];
        kept[n_kept++] = (kept_ask){.ask = whole[i], .want = &want[i], .number = i};
    }
    ek_err err = behind_store(s, dir, kept, n_kept, ask, tokens);
    for (int i = 0; i < n_kept && !err; i++) {
        for (int k = 0; k < ask[i].n_replied && ask[i].mask; k++)
            ask[i].mask->accept(ask[i].mask->arg, ask[i].tokens[ask[i].n_tokens - ask[i].n_replied + k]);
        ask[i].arrive = (int)(ek_mix64(s->seed + 55 + (uint64_t)i) % 9);
        ask[i].digests = c.ahead;
    }
    c.ask = ask, c.n = n_kept;
    if (!err && n_kept) {
        err = run_in_company(s, &c, got);
        if (!err) err = compare(variant, wanted, got, n_kept);
        for (int i = 0; i < n_kept; i++) ek_trace_fini(&got[i]);
        base->steps += c.steps, base->followed += c.followed, base->drawn_late += c.drawn_late;
    }
    for (int i = 0; i < n_kept; i++) free(tokens[i]);
    return err;
}

static ek_err all_stored(const scene *s, company *base, int every, int n, ek_trace *want)
{
    const int chunk = 5 + (int)(ek_mix64(s->seed) % 90);
    company c = {.max_requests = 6, .chunk = chunk, .draft = EK_DRAFT_NGRAM};
    EK_TRY(behind(s, base, "stored, with drafts", c, NULL, every, n, want));
    char *dir = temp_dir();
    c = (company){.max_requests = 6, .chunk = chunk, .ahead = true};
    const ek_err err = behind(s, base, "stored on disk, ahead", c, dir, every, n, want);
    remove_dir(dir);
    return err;
}

typedef ek_err companies_fn(const scene *s, company *base, int every, int n, ek_trace *want);

/* Alone, and then as `companies` says. */
static ek_err compare_with_alone(const scene *s, company *base, int every, companies_fn *companies)
{
    static ek_trace want[MAX_ASKS];
    static masks m;
    ek_ask ask[MAX_ASKS];
    int n = 0, rows = 0;
    begin(s, &m, ask, every);
    memset(want, 0, sizeof want);
    ek_err err = EK_OK;
    ek_executor (*device)(ek_model * m) = scene_executor;
    scene_executor = ek_executor_cpu; /* without drafts; a device that forgot masks would agree with itself */
    for (; n < s->n && rows < MAX_ROWS && !err; n++) {
        company c = {.ask = &ask[n], .n = 1, .max_requests = 1};
        rows += ask[n].n_tokens + ask[n].max_tokens;
        err = run_in_company(s, &c, &want[n]);
    }
    scene_executor = device;
    if (!err) err = companies(s, base, every, n, want);
    for (int i = 0; i < n; i++) ek_trace_fini(&want[i]);
    return err;
}

ek_err masked(const scene *s, company *base, check_fn *check, void *arg)
{
    (void)check, (void)arg; /* what the scene's requests get alone has no mask */
    return compare_with_alone(s, base, 1, in_all_companies);
}

ek_err masked_ahead(const scene *s, company *base, check_fn *check, void *arg)
{
    (void)check, (void)arg;
    return compare_with_alone(s, base, 3, all_ahead);
}

ek_err masked_stored(const scene *s, company *base, check_fn *check, void *arg)
{
    (void)check, (void)arg;
    return compare_with_alone(s, base, 2, all_stored);
}
