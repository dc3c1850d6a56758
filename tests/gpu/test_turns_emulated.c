/* Replies that go through several devices in turns (gpu/several/microbatches.c), with the real kernels, which run on
 * the CPU: requests of different lengths that end and are cancelled at different steps have the tokens and digests that
 * each has alone on the CPU. Devices whose streams run as late as can be show a wait that is missing, or for the wrong
 * microbatch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "../same/scene.h"
#include "base/log.h"
#include "emulated.h"
#include "gpu/several/several.h"
#include "gpu/several/state.h"

enum { REQUESTS = 5 };

static void must(ek_err err)
{
    if (err) fail_msg("%s", ek_err_text());
}

static const ek_engine_opts *options(void)
{
    static ek_engine_opts o;
    o = ek_engine_defaults();
    o.max_requests = REQUESTS - 1, o.chunk = 64, o.ctx_tokens = 64, o.kv_bytes = 64 << 20;
    return &o;
}

/* A scene's requests, of which none has anything that keeps a step from beginning behind another. */
static int ask(const scene *s, ek_ask *out)
{
    for (int i = 0; i < REQUESTS; i++) {
        const ek_ask *from = &s->ask[i % s->n];
        ek_sampling sampling = ek_sampling_greedy();
        if (i % 3) sampling.temperature = 1, sampling.seed = (uint64_t)i;
        if (i % 3 == 2) sampling.top_k = 5;
        out[i] = (ek_ask){.tokens = from->tokens,
                          .n_tokens = from->n_tokens < 2 + i ? from->n_tokens : 2 + i,
                          .max_tokens = 2 + 3 * i % 5,
                          .ignore_eos = true,
                          .sampling = sampling,
                          .digests = true};
        out[i].prompt_logits_from = out[i].n_tokens;
        if (i % 3 == 1) out[i].cancel = 2 + i / 2;
    }
    return REQUESTS;
}

/* As they run alone on the CPU, to the end. */
static void alone(const scene *s, const ek_ask *asks, int n, ek_trace *want)
{
    ek_executor on = ek_executor_cpu(s->model);
    ek_engine *e;
    must(ek_engine_open_on(&e, &on, options()));
    for (int i = 0; i < n; i++) {
        ek_ask one = asks[i];
        one.cancel = 0;
        must(ek_trace_run(e, &one, 1, &want[i]));
    }
    ek_engine_close(e);
}

typedef struct counts {
    uint64_t turns, prompts_ahead; /* steps */
} counts;

/* late: bits of devices; min_microbatch: ek_ranks. */
static counts together(const scene *s, const ek_ask *asks, int n, const ek_trace *want, int devices, int late,
                       int min_microbatch, const ek_engine_opts *o)
{
    ek_gpu_driver driver = emulated();
    ek_trace got[REQUESTS];
    ek_ranks *r;
    ek_engine *e;
    char bits[16], where[256];
    snprintf(bits, sizeof bits, "%d", late);
    setenv("EK_EMULATED_LAZY", bits, 1);
    must(ek_ranks_open(&r, &driver, s->model,
                       &(ek_fit_opts){.n = devices, .ordinal = {0, 1, 2, 3}, .split = EK_SPLIT_LAYERS}));
    r->min_microbatch = min_microbatch;
    const ek_executor on = ek_ranks_executor(r);
    must(ek_engine_open_on(&e, &on, o));
    must(ek_trace_run(e, asks, n, got));
    for (int i = 0; i < n; i++) {
        if (!ek_trace_same(&want[i], &got[i], where, sizeof where))
            fail_msg("%s over %d devices, late %d, request %d: %s", s->shape, devices, late, i, where);
        ek_trace_fini(&got[i]);
    }
    const counts c = {r->turns, r->prompts_ahead};
    ek_engine_close(e);
    ek_ranks_close(r);
    return c;
}

static void over(uint64_t seed, int devices, int late)
{
    static scene s;
    ek_ask asks[REQUESTS];
    ek_trace want[REQUESTS];
    must(scene_open(&s, seed));
    const int n = ask(&s, asks);
    alone(&s, asks, n, want);
    assert_true(together(&s, asks, n, want, devices, late, 64, options()).turns >= 3); /* of one reply, too */
    for (int i = 0; i < n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

static void over_two_devices(void **state)
{
    (void)state;
    over(4, 2, 2); /* T5 */
    over(0, 2, 1); /* T1: per-layer inputs, whose tokens the last device looks up as well */
}

static void over_three_devices(void **state)
{
    (void)state;
    over(4, 3, 4);
}

static void over_four_devices(void **state)
{
    (void)state;
    over(4, 4, 10);
}

/* --- prompts of several steps */

enum { CHUNK = 8, LONGEST = 40 };

/* Prompts of one to five steps, which reply while others' go on; one is cancelled in the middle of its own. */
static void ask_prompts(const scene *s, int32_t token[REQUESTS][LONGEST], ek_ask *out)
{
    static const int length[REQUESTS] = {27, 4, 20, 36, 17}, reply[REQUESTS] = {2, 8, 2, 2, 3};
    for (int i = 0; i < REQUESTS; i++) {
        for (int k = 0; k < length[i]; k++) token[i][k] = (7 + 31 * i + 11 * k) % s->config.vocab_size;
        ek_sampling sampling = ek_sampling_greedy();
        if (i % 2) sampling.temperature = 1, sampling.seed = (uint64_t)i;
        out[i] = (ek_ask){.tokens = token[i],
                          .n_tokens = length[i],
                          .max_tokens = reply[i],
                          .arrive = i < 2 ? 0 : 2 * i,
                          .ignore_eos = true,
                          .sampling = sampling,
                          .digests = true};
        out[i].prompt_logits_from = out[i].n_tokens;
    }
    out[3].cancel = out[3].arrive + 3;
}

/* A step of prompts begins behind another, and microbatches of it while later devices have that one's. */
static void prompts_over(uint64_t seed, int devices, int late, int min_microbatch)
{
    static scene s;
    static int32_t token[REQUESTS][LONGEST];
    ek_ask asks[REQUESTS];
    ek_trace want[REQUESTS];
    ek_engine_opts o = *options();
    o.chunk = CHUNK;
    must(scene_open(&s, seed));
    ask_prompts(&s, token, asks);
    alone(&s, asks, REQUESTS, want);
    assert_true(together(&s, asks, REQUESTS, want, devices, late, min_microbatch, &o).prompts_ahead >= 3);
    for (int i = 0; i < REQUESTS; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

static void prompts_over_two_devices(void **state)
{
    (void)state;
    prompts_over(4, 2, 2, 2);
}

static void prompts_with_per_layer_inputs(void **state)
{
    (void)state;
    prompts_over(0, 2, 2, 4);
}

static void prompts_over_three_devices(void **state)
{
    (void)state;
    prompts_over(4, 3, 4, 4);
}

static void prompts_over_four_devices(void **state)
{
    (void)state;
    prompts_over(4, 4, 10,
                 4); /* few microbatches, of which the last is begun while the last device has the step in front */
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_two_devices),
        cmocka_unit_test(over_three_devices),
        cmocka_unit_test(over_four_devices),
        cmocka_unit_test(prompts_over_two_devices),
        cmocka_unit_test(prompts_with_per_layer_inputs),
        cmocka_unit_test(prompts_over_three_devices),
        cmocka_unit_test(prompts_over_four_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
