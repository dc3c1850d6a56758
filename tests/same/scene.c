#include "scene.h"

#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "ops/kv/kv_codec.h"
#include "pictures.h"
#include "../support/beside.h"
#include "../support/drafter.h"

static const char *const shapes[] = {"T1", "T2", "T3", "T4", "T5", "T6", "Q1", "Q2", "Q3"};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static uint64_t draw(const scene *s, uint64_t what)
{
    return ek_mix64(ek_mix64(s->seed) + what);
}

static void grow_ask(scene *s, int i, int longest)
{
    ek_ask *a = &s->ask[i];
    uint64_t r = draw(s, 1000 + (uint64_t)i);
    a->n_tokens = 1 + (int)(r % (uint64_t)longest);
    /* many end just before a page does: their replies need one more while they run */
    if (r >> 8 & 1) a->n_tokens = (a->n_tokens + 63) / 64 * 64 - (int)((r >> 9) % 6);
    a->max_tokens = 1 + (int)((r >> 16) % 24);
    a->prompt_logits_from = r >> 24 & 3 ? 0 : a->n_tokens;
    a->ignore_eos = r >> 26 & 1;
    a->sampling = ek_sampling_greedy();
    if (r >> 27 & 1) {
        a->sampling.temperature = 0.5f + 0.25f * (float)(r >> 28 & 3);
        a->sampling.top_k = r >> 30 & 1 ? 40 : 0;
        a->sampling.top_p = r >> 31 & 1 ? 0.95f : 1;
        a->sampling.repetition_penalty = r >> 32 & 1 ? 1.2f : 1;
        a->sampling.seed = r;
    }
    s->tokens[i] = ek_alloc(sizeof *s->tokens[i] * (size_t)a->n_tokens);
    for (int k = 0; k < a->n_tokens; k++)
        s->tokens[i][k] = (int32_t)(draw(s, ((uint64_t)i + 1) << 20 | (uint64_t)k) % (uint64_t)s->config.vocab_size);
    /* some begin alike, as requests of one conversation do */
    if (i > 0 && r >> 33 & 1) {
        int same = s->ask[i - 1].n_tokens < a->n_tokens ? s->ask[i - 1].n_tokens : a->n_tokens;
        memcpy(s->tokens[i], s->tokens[i - 1], sizeof *s->tokens[i] * (size_t)same);
    }
    a->tokens = s->tokens[i];
}

uint64_t check_seed(int i)
{
    static const uint64_t flagged[] = {
        LARGE_VOCABULARY,           /* T1, bf16, keys and values 16 */
        LARGE_VOCABULARY | 0x57,    /* Q1, 4 bits, keys and values 16 */
        MANY_EXPERTS | 0x4f,        /* Q2, 4 bits, keys and values 16 */
        FEW_KV_BITS | 0,            /* T1, bf16, keys 6, values 5 */
        FEW_KV_BITS | 1,            /* T2, bf16, keys and values 3.64 */
        FEW_KV_BITS | 4,            /* T5, bf16, keys 8.128, values 2 */
        FEW_KV_BITS | 5,            /* T6, bf16, keys and values 5.128 */
        FEW_KV_BITS | 7,            /* Q2, 8 bits, keys 4.64, values 3 */
        KV_START | 5,               /* T6, bf16, keys and values 8 */
        KV_START | 0x16,            /* T5, bf16, keys 8, values 4 */
        KV_START | 0xf,             /* Q1, 8 bits exact, keys and values 4 */
        WHOLE_CODES | 0,            /* T1, bf16, keys and values i12 */
        WHOLE_CODES | 6,            /* Q1, 4 bits, keys i8, values i12 */
        WHOLE_CODES | 7,            /* Q2, 8 bits, keys f16, values i8 */
        WHOLE_CODES | 5,            /* T6, bf16, keys and values i8 */
        KV_START | WHOLE_CODES | 1, /* T2, bf16, keys and values i8 */
        /* the default: keys and values i12 */
        WHOLE_CODES | 60,                /* Q1, 4 bits */
        WHOLE_CODES | 32,                /* T6, bf16 */
        MANY_EXPERTS | WHOLE_CODES | 52, /* Q2, 4 bits */
    };
    return i < 27 ? (uint64_t)i : flagged[i - 27];
}

static void grow_spans(scene *s)
{
    size_t hidden = (size_t)s->config.hidden_size, n = hidden * (MAX_ASKS + LONGEST_SPAN);
    s->embedding = ek_alloc(sizeof *s->embedding * n);
    for (size_t i = 0; i < n; i++) s->embedding[i] = (float)(int32_t)(draw(s, 7000 + i) >> 32) * 0x1p-31f;
    for (int i = 0; i < s->n; i++) {
        ek_ask *a = &s->ask[i];
        a->span = s->span[i];
        for (int k = 0, at = 0; k < MAX_SPANS; k++) {
            uint64_t r = draw(s, 5000 + (uint64_t)(i * MAX_SPANS + k));
            ek_prompt_span *span = &s->span[i][k];
            *span = (ek_prompt_span){.first = at + (int)(r % 70)};
            span->end = span->first + 1 + (int)((r >> 8) % LONGEST_SPAN);
            if (span->end > a->n_tokens) break;
            if (r >> 20 & 3) span->embedding = s->embedding + (size_t)i * hidden;
            span->mutual[EK_SLIDING] = r >> 22 & 1;
            span->mutual[EK_FULL] = (r >> 23 & 3) == 0;
            a->n_spans++;
            at = span->end;
        }
    }
}

ek_err scene_open(scene *s, uint64_t seed)
{
    bool spans = seed & SCENE_SPANS, media = seed & SCENE_MEDIA;
    seed &= ~SCENE_FLAGS;
    static const int sizes[] = {2, 3, 5, 8, 16, 64}, bits[] = {4, 8, 0};
    static const ek_kv_format kv[][2] = {{EK_KV_I16, EK_KV_I16},   {EK_KV_F16, EK_KV_F16}, {EK_KV_F32, EK_KV_F32},
                                         {EK_KV_BF16, EK_KV_BF16}, {EK_KV_F32, EK_KV_F16}, {EK_KV_Q8, EK_KV_Q8},
                                         {EK_KV_Q8, EK_KV_Q4},     {EK_KV_Q4, EK_KV_Q4}};
    static const ek_kv_format few[][2] = {
        {EK_KV_Q6, EK_KV_Q5},       {EK_KV_Q3_64, EK_KV_Q3_64}, {EK_KV_Q2, EK_KV_Q6_64},
        {EK_KV_Q5, EK_KV_Q2_128},   {EK_KV_Q8_128, EK_KV_Q2},   {EK_KV_Q5_128, EK_KV_Q5_128},
        {EK_KV_Q8_64, EK_KV_Q5_64}, {EK_KV_Q4_64, EK_KV_Q3},    {EK_KV_Q6_128, EK_KV_Q4_128}};
    static const ek_kv_format whole[][2] = {
        {EK_KV_I12, EK_KV_I12}, {EK_KV_I8, EK_KV_I8}, {EK_KV_I8, EK_KV_I12}, {EK_KV_F16, EK_KV_I8}};
    enum { N_KV = sizeof kv / sizeof *kv, N_FEW = sizeof few / sizeof *few };
    *s = (scene){.seed = seed};
    uint64_t pick = seed & 0xffffffff; /* the rest are flags */
    bool large = seed & LARGE_VOCABULARY;
    s->shape = shapes[pick % N_SHAPES];
    EK_TRY(ek_config_tiny(&s->config, s->shape));
    s->config.max_position_embeddings = 4096;
    if (large) s->config.vocab_size = s->config.vocab_size_per_layer = 33803;
    if (seed & MANY_EXPERTS) s->config.n_experts = 128, s->config.top_k_experts = 8;
    s->config.own_head = (seed & OWN_HEAD) != 0;
    if (seed & WIDE_EXPERTS) s->config.moe_intermediate_size = 192;
    /* 27 seeds in a row pair every Q shape with every width */
    s->bits = s->shape[0] == 'Q' ? bits[(pick / N_SHAPES + pick) % 3] : 0;
    /* 63 seeds in a row pair every shape with every format */
    uint64_t format = (pick + pick / 63) % N_KV;
    const ek_kv_format *pair = seed & WHOLE_CODES   ? whole[pick % 4]
                               : seed & FEW_KV_BITS ? few[pick % N_FEW]
                                                    : kv[format];
    s->opts = (ek_model_opts){.k_format = pair[0], .v_format = pair[1], .cpu = ek_cpu_detect()};
    if (seed & KV_START) s->opts.kv_start = EK_SEGMENT;
    s->opts.exact = s->bits && (pick / 27 + pick) % 4 == 3;
    s->opts.activations = (ek_activations)((pick / 27 + pick) % 3);
    s->n = large ? 3 : sizes[draw(s, 4) % 6];
    /* a few long prompts: windows wrap, segments of 256 keys are crossed */
    for (int i = 0; i < s->n; i++) grow_ask(s, i, i < 2 && s->n < 64 && !large ? LONGEST_PROMPT : s->n < 16 ? 90 : 24);
    if (spans) grow_spans(s);
    if (media) scene_grow_media(s);
    s->seed |= (spans ? SCENE_SPANS : 0) | (media ? SCENE_MEDIA : 0); /* for messages */
    return model_again(s, &s->model, s->opts.cpu, NULL);
}

void scene_close(scene *s)
{
    if (s->model) ek_model_close(s->model);
    for (int i = 0; i < s->n; i++) free(s->tokens[i]);
    scene_free_media(s);
    free(s->embedding);
}

void scene_describe(const scene *s, char *out, size_t room)
{
    const bool integers = s->bits && !s->opts.exact;
    snprintf(out, room, "%s%s%s, %d bits%s%s%s, keys %s, values %s%s, %d requests%s", s->shape,
             s->seed & LARGE_VOCABULARY ? ", 33803 tokens" : "", s->seed & MANY_EXPERTS ? ", 128 experts" : "",
             s->bits ? s->bits : 16, s->opts.exact ? " exact" : "", integers ? ", activations " : "",
             integers ? ek_activations_name(s->opts.activations) : "", ek_kv_format_name(s->opts.k_format),
             ek_kv_format_name(s->opts.v_format),
             !s->opts.kv_start                 ? ""
             : ek_kv_rotated(s->opts.k_format) ? ", start in i12"
                                               : ", start in bf16",
             s->n,
             s->embedding  ? ", spans"
             : s->media[0] ? ", pictures"
                           : "");
}

ek_err model_again(const scene *s, ek_model **out, unsigned cpu, ek_pool *pool)
{
    ek_model_opts opts = s->opts;
    opts.cpu = cpu;
    opts.pool = pool;
    return ek_model_synthetic(out, &s->config, s->bits, s->seed & ~SCENE_FLAGS, &opts);
}

/* --- an executor around the CPU's, for wrong kernels; a drafter */

typedef struct wrapped {
    ek_executor inner;
    const company *company;
} wrapped;

typedef struct drafter {
    const scene *scene;
    const ek_trace *want;
    uint64_t drafts; /* made so far */
    ek_drafter *model;
    ek_err (*draft)(void *draft_arg, ek_draft *draft, int n); /* of the model */
    void *draft_arg;
    uint64_t hash;
} drafter;

static ek_err open_wrapped(void *arg, const ek_executor_sizes *sizes)
{
    wrapped *w = arg;
    return w->inner.open(w->inner.arg, sizes);
}

static ek_err step_wrapped(void *arg, const ek_step *step)
{
    wrapped *w = arg;
    w->company->before(step);
    return w->inner.step(w->inner.arg, step);
}

static const float *logits_wrapped(void *arg, int row)
{
    wrapped *w = arg;
    return w->inner.logits(w->inner.arg, row);
}

static uint64_t digest_wrapped(void *arg, int row)
{
    wrapped *w = arg;
    return w->inner.digest(w->inner.arg, row);
}

static void copy_wrapped(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    wrapped *w = arg;
    w->inner.copy_page(w->inner.arg, kind, from, to);
}

static void read_wrapped(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    wrapped *w = arg;
    w->inner.read_page(w->inner.arg, kind, page, out);
}

static void write_wrapped(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    wrapped *w = arg;
    w->inner.write_page(w->inner.arg, kind, page, in);
}

static void poison_wrapped(void *arg, ek_layer_kind kind, int32_t page)
{
    wrapped *w = arg;
    w->inner.poison_page(w->inner.arg, kind, page);
}

static void close_wrapped(void *arg)
{
    wrapped *w = arg;
    w->inner.close(w->inner.arg);
}

ek_executor (*scene_executor)(ek_model *m) = ek_executor_cpu;

/* The request that has these tokens, from what it does alone; another one that begins alike will do for a draft. */
static int find(const drafter *x, const ek_draft *d)
{
    for (int i = 0; i < x->scene->n; i++) {
        const ek_ask *a = &x->scene->ask[i];
        int replied = d->n_tokens - a->n_tokens;
        if (replied < 1 || replied > x->want[i].n_reply) continue;
        if (memcmp(a->tokens, d->tokens, sizeof *a->tokens * (size_t)a->n_tokens) != 0) continue;
        if (memcmp(x->want[i].reply, d->tokens + a->n_tokens, sizeof *a->tokens * (size_t)replied) == 0) return i;
    }
    return -1;
}

/* A drafter that is right up to a random token, and wrong behind it. */
static ek_err draft_from_want(void *arg, ek_draft *draft, int n)
{
    drafter *x = arg;
    for (int i = 0; i < n; i++) {
        ek_draft *d = &draft[i];
        uint64_t r = ek_mix64(x->scene->seed ^ ++x->drafts << 20);
        int which = find(x, d), right = (int)(r % 10);
        d->n = (int)((r >> 8) % (uint64_t)(d->max + 1));
        for (int k = 0; k < d->n; k++) {
            int at = which < 0 ? 0 : d->n_tokens - x->scene->ask[which].n_tokens + k;
            d->token[k] = (int32_t)(ek_mix64(r + (uint64_t)k) % (uint64_t)x->scene->config.vocab_size);
            if (which >= 0 && k < right && at < x->want[which].n_reply) d->token[k] = x->want[which].reply[at];
        }
    }
    return EK_OK;
}

/* Another machine that knows the replies: late, at times right up to a token and wrong behind it, ids of no vocabulary,
 * more tokens than there is room for, or nothing. */
typedef struct remote {
    drafter of;
    struct {
        uint64_t request;
        int late, n;
        int32_t token[EK_DRAFT_MAX];
    } asked[MAX_ASKS];
    uint64_t n;
} remote;

static bool ask_remote(void *arg, uint64_t request, uint64_t salt, const int32_t *tokens, int n, int max)
{
    remote *x = arg;
    const uint64_t r = ek_mix64(x->of.scene->seed ^ ++x->n << 21);
    int at = -1;
    (void)salt;
    for (int i = 0; i < MAX_ASKS && at < 0; i++)
        if (!x->asked[i].request) at = i;
    if (at < 0 || r % 16 == 0) return false;
    int32_t token[EK_DRAFT_MAX];
    ek_draft d = {.tokens = tokens, .n_tokens = n, .max = max, .token = token};
    draft_from_want(&x->of, &d, 1);
    const bool garbage = r >> 8 & 1 && r >> 9 & 1;
    for (int k = 0; garbage && k < d.n; k++)
        if (r >> (10 + k % 32) & 1) token[k] = k % 2 ? -1 - k : INT32_MAX - k;
    x->asked[at].request = request, x->asked[at].late = (int)(r >> 4 & 3);
    x->asked[at].n = garbage && r >> 50 & 1 ? 1000000 : d.n;
    memcpy(x->asked[at].token, token, sizeof token);
    return true;
}

static bool answer_remote(void *arg, uint64_t request, ek_proposal *out)
{
    remote *x = arg;
    for (int i = 0; i < MAX_ASKS; i++) {
        if (x->asked[i].request != request) continue;
        if (x->asked[i].late-- > 0) return false;
        memcpy(out->token, x->asked[i].token, sizeof x->asked[i].token);
        out->n = x->asked[i].n;
        out->seconds = 1e-6;
        x->asked[i].request = 0;
        return true;
    }
    return false;
}

static void wait_remote(void *arg, double seconds)
{
    (void)arg, (void)seconds;
}

static void forget_remote(void *arg, uint64_t request)
{
    remote *x = arg;
    for (int i = 0; i < MAX_ASKS; i++)
        if (x->asked[i].request == request) x->asked[i].request = 0;
}

void (*scene_set_drafter)(ek_executor *x, ek_drafter *d) = ek_executor_cpu_set_drafter;

static ek_err draft_from_model(void *arg, ek_draft *draft, int n)
{
    drafter *x = arg;
    EK_TRY(x->draft(x->draft_arg, draft, n));
    for (int i = 0; i < n; i++) {
        uint64_t h = (uint64_t)draft[i].n;
        for (int t = 0; t < draft[i].n_tokens; t++) h = ek_mix64(h ^ (uint64_t)draft[i].tokens[t] << 8);
        for (int t = 0; t < draft[i].n; t++) h = ek_mix64(h ^ (uint64_t)draft[i].token[t] << 9);
        x->hash += h;
    }
    return EK_OK;
}

/* Invented times: of a step from far less to far more than it may take. */
typedef struct uneven_clock {
    uint64_t n;
    double time;
} uneven_clock;

static double uneven_now(void *arg)
{
    static const double seconds[] = {0.001, 0.004, 0.02, 0.07, 0.5};
    uneven_clock *c = arg;
    return c->time += seconds[ek_mix64(++c->n) % (sizeof seconds / sizeof *seconds)];
}

static ek_err open_engine(ek_engine **out, const scene *s, const company *c, int max_requests, int chunk, int queue,
                          wrapped *w, drafter *x, remote *far, beside *b, uneven_clock *u)
{
    const ek_proposer proposer = {
        .arg = far, .ask = ask_remote, .answer = answer_remote, .wait = wait_remote, .forget = forget_remote};
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = scene_executor(c->model ? c->model : s->model);
    int whole = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    o.max_requests = max_requests;
    o.chunk = s->embedding && chunk < LONGEST_SPAN ? LONGEST_SPAN : chunk; /* a span is not cut */
    o.max_queue = queue;
    if (c->cache_bytes > 0) o.cache_bytes = c->cache_bytes;
    if (s->media[0]) on.encoder = scene_encoder(s);
    o.feature_bytes = c->feature_bytes;
    o.cache_store = c->store;
    on.n_pages[EK_FULL] = c->full_pages ? c->full_pages : whole * max_requests;
    on.n_pages[EK_SLIDING] = c->sliding_pages ? c->sliding_pages : whole * max_requests;
    on.poison = true;
    if (c->uneven) o.max_gap = 0.06, on.now = uneven_now, on.now_arg = u;
    o.draft = c->draft;
    on.row_cost = 0; /* all drafts that there are */
    *x = (drafter){.scene = s, .want = c->want};
    on.draft = draft_from_want;
    on.draft_arg = x;
    if (c->remote) {
        far->of = *x;
        on.draft = NULL;
        o.proposer = &proposer;
    }
    if (c->drafter) {
        static ek_config config;
        drafter_config(&config, &s->config, s->config.vocab_size % 11 == 0 ? 11 : 0);
        EK_TRY(ek_drafter_synthetic(&x->model, &config, s->seed, c->model ? c->model : s->model, &s->opts));
        scene_set_drafter(&on, x->model);
        on.draft_cost = 0;
        x->draft = on.draft, x->draft_arg = on.draft_arg;
        on.draft = draft_from_model, on.draft_arg = x;
    }
    if (c->before) {
        *w = (wrapped){.inner = on, .company = c};
        on.arg = w;
        on.open = open_wrapped;
        on.step = step_wrapped;
        on.begin = NULL;
        on.logits = logits_wrapped;
        on.digest = digest_wrapped;
        on.copy_page = copy_wrapped;
        on.read_page = read_wrapped;
        on.write_page = write_wrapped;
        on.poison_page = poison_wrapped;
        on.close = close_wrapped;
    }
    if (c->ahead && !on.begin) on = beside_executor(b, on);
    return ek_engine_open_on(out, &on, &o);
}

static ek_err run(const scene *s, company *c, int max_requests, int chunk, const ek_ask *ask, int n, ek_trace *out)
{
    ek_engine *e;
    wrapped w;
    drafter x;
    static remote far;
    beside b = {0};
    uneven_clock u = {.n = s->seed};
    if (c->spoil && c->model) c->spoil(c->model);
    far = (remote){0};
    EK_TRY(open_engine(&e, s, c, max_requests, chunk, n, &w, &x, &far, &b, &u));
    if (c->turns) e->turn_seconds = 0;
    ek_err err = ek_trace_run(e, ask, n, out);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    c->preempted += stats.preempted;
    c->followed += b.followed, c->drawn_late += b.drawn_late;
    c->steps += stats.steps;
    c->hits += stats.cache_hits;
    c->waits += stats.cache_waits;
    c->drafted += stats.drafted_tokens;
    c->accepted += stats.accepted_tokens;
    c->drafts += x.hash;
    c->encoded += stats.encoded[0] + stats.encoded[1];
    c->reused += stats.media_reused[0] + stats.media_reused[1];
    ek_engine_close(e);
    ek_drafter_close(x.model);
    return err;
}

ek_err run_in_company(const scene *s, company *c, ek_trace *out)
{
    const ek_ask *ask = c->ask ? c->ask : s->ask;
    int n = c->ask ? c->n : s->n;
    return run(s, c, c->max_requests ? c->max_requests : n, c->chunk ? c->chunk : 1024, ask, n, out);
}

ek_err run_alone(const scene *s, company *c, ek_trace *out)
{
    for (int i = 0; i < s->n; i++) EK_TRY(run(s, c, 1, 1024, &s->ask[i], 1, &out[i]));
    return EK_OK;
}
