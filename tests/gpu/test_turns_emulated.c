/* Replies that go through several devices in turns (gpu/ranks/pieces.h), with the real kernels, which run on the CPU:
 * requests of different lengths that end and are cancelled at different steps have the tokens and digests that each has
 * alone on the CPU. Devices whose streams run as late as can be show a wait that is missing, or for the wrong piece. */
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
#include "gpu/ranks/ranks.h"
#include "gpu/ranks/state.h"

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

/* late: bits of devices. Returns how many steps went in turns. */
static uint64_t together(const scene *s, const ek_ask *asks, int n, const ek_trace *want, int devices, int late)
{
    ek_gpu_driver driver = emulated();
    ek_trace got[REQUESTS];
    ek_ranks *r;
    ek_engine *e;
    char bits[16], where[256];
    snprintf(bits, sizeof bits, "%d", late);
    setenv("EK_EMULATED_LAZY", bits, 1);
    must(ek_ranks_open(&r, &driver, s->model,
                       &(ek_ranks_opts){.n = devices, .ordinal = {0, 1, 2, 3}, .split = EK_SPLIT_LAYERS}));
    r->min_piece = 64; /* of one reply, too */
    const ek_executor on = ek_ranks_executor(r);
    must(ek_engine_open_on(&e, &on, options()));
    must(ek_trace_run(e, asks, n, got));
    for (int i = 0; i < n; i++) {
        if (!ek_trace_same(&want[i], &got[i], where, sizeof where))
            fail_msg("%s over %d devices, late %d, request %d: %s", s->shape, devices, late, i, where);
        ek_trace_fini(&got[i]);
    }
    const uint64_t turns = r->turns;
    ek_engine_close(e);
    ek_ranks_close(r);
    return turns;
}

static void over(uint64_t seed, int devices, int late)
{
    static scene s;
    ek_ask asks[REQUESTS];
    ek_trace want[REQUESTS];
    must(scene_open(&s, seed));
    const int n = ask(&s, asks);
    alone(&s, asks, n, want);
    assert_true(together(&s, asks, n, want, devices, late) >= 3);
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

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_two_devices),
        cmocka_unit_test(over_three_devices),
        cmocka_unit_test(over_four_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
