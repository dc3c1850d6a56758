/* The time of a published model's drafter on a device, with random weights: microseconds of a draft and of a step. */
#include "drafts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/drafter.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "engine/trace.h"

enum { PROMPT = 300, REPLY = 64, MAX_REQUESTS = 8 };

typedef struct timed {
    ek_executor inner;
    double step_s, draft_s;
    int steps, drafts, tokens; /* steps: of replies alone */
} timed;

static timed the_time;

static ek_err step_timed(void *arg, const ek_step *step)
{
    timed *t = &the_time;
    double start = ek_now();
    ek_err err = t->inner.step(arg, step);
    if (step->n_rows > PROMPT / 4) return err;
    t->step_s += ek_now() - start;
    t->steps++;
    return err;
}

static ek_err draft_timed(void *arg, ek_draft *draft, int n)
{
    timed *t = &the_time;
    double start = ek_now();
    ek_err err = t->inner.draft(arg, draft, n);
    t->draft_s += ek_now() - start;
    t->drafts++;
    t->tokens += draft[0].max;
    return err;
}

static ek_err run(ek_gpu *g, int requests, int max)
{
    static int32_t tokens[PROMPT];
    static ek_ask ask[MAX_REQUESTS];
    static ek_trace out[MAX_REQUESTS];
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_gpu_executor(g);
    the_time = (timed){.inner = on};
    o.max_requests = requests, o.chunk = 512, o.ctx_tokens = 1024;
    o.draft = max ? EK_DRAFT_AUTO : EK_DRAFT_OFF, o.draft_max = max ? max : 1;
    on.step = step_timed, on.begin = NULL, on.draft = draft_timed, on.row_cost = on.draft_cost = 0;
    EK_TRY(ek_engine_open_on(&e, &on, &o));
    for (int i = 0; i < PROMPT; i++) tokens[i] = i * 7919 % 100000;
    for (int i = 0; i < requests; i++)
        ask[i] = (ek_ask){.tokens = tokens + i,
                          .n_tokens = PROMPT - i,
                          .max_tokens = REPLY,
                          .prompt_logits_from = PROMPT - i,
                          .ignore_eos = true,
                          .sampling = ek_sampling_greedy()};
    ek_err err = ek_trace_run(e, ask, requests, out);
    for (int i = 0; i < requests && !err; i++) ek_trace_fini(&out[i]);
    ek_engine_close(e);
    const timed *t = &the_time;
    if (err) return err;
    printf("%d requests, drafts of %d: %.0f us per step", requests, max, t->step_s / t->steps * 1e6);
    if (t->drafts)
        printf(", %.0f us per draft, %.0f us per token of it", t->draft_s / t->drafts * 1e6,
               t->draft_s / t->tokens * 1e6);
    printf("\n");
    return EK_OK;
}

static void drafter_of(ek_config *c, const ek_config *target)
{
    const bool small = target->per_layer_size > 0;
    drafter_config(c, target, small ? 2048 : 0);
    c->hidden_size = small ? 256 : 1024;
    if (small) c->top_k_centroids = 32;
    for (int i = 0; i < c->n_layers; i++) c->layer[i].intermediate_size = small ? 2048 : 8192;
    if (small) c->n_heads = 4;
}

static ek_err open_and_run(const char *name, int layers, ek_pool *pool)
{
    static ek_config c, dc;
    ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16, .pool = pool};
    ek_model *m;
    ek_drafter *d;
    ek_gpu *g;
    ek_gpu_driver driver;
    EK_TRY(ek_gpu_driver_load(&driver));
    EK_TRY(ek_config_published(&c, name, layers));
    EK_TRY(ek_model_synthetic(&m, &c, 4, 1, &o));
    drafter_of(&dc, &c);
    EK_TRY(ek_drafter_synthetic(&d, &dc, 2, m, &o));
    EK_TRY(ek_gpu_open(&g, &driver, m, 0));
    EK_TRY(ek_gpu_add_drafter(g, d));
    ek_executor on = ek_gpu_executor(g);
    printf("%s, %d layers: cost of a drafted token %.2f of a step\n", name, c.n_layers, (double)on.draft_cost);
    on.close(on.arg);
    for (int requests = 1; requests <= MAX_REQUESTS; requests *= MAX_REQUESTS)
        for (int max = 0; max <= 8; max = max ? 2 * max : 1) EK_TRY(run(g, requests, max));
    ek_gpu_close(g);
    ek_drafter_close(d);
    ek_model_close(m);
    return EK_OK;
}

int time_drafts(const char *name, int layers)
{
    ek_pool *pool;
    ek_err err = ek_pool_open(&pool, ek_cpu_count());
    if (!err) err = open_and_run(name, layers, pool);
    if (err) printf("%s\n", ek_err_text());
    return err != EK_OK;
}
