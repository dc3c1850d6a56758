/* Several devices behind one executor, with the real kernels, which run on the CPU (tests/emulate): the scenes of
 * tests/same, whose requests run alone on the CPU, then over devices alone and in company. Devices whose streams run as
 * late as can be show a wait that is missing.
 *
 *   test_ranks_emulated [TEST]                      a small scene of each kind, or one of these tests
 *   test_ranks_emulated SEED DEVICES HOST LAZY PIECE [CASE]
 *                       one scene; HOST: layers of the CPU, with an e behind the number their experts alone, or
 *                       `outputs`: these are cut; LAZY: bits of devices; PIECE:
 *                       rows of a microbatch of a step
 */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../same/cases.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "cuda/exchange_args.h"
#include "emulated.h"
#include "gpu/several/several.h"
#include "gpu/several/state.h"
#include "gpu/step/run.h"
#include "gpu/weights/weights.h"

static ek_ranks *ranks; /* of the scene at hand */

static ek_executor on_ranks(ek_model *m)
{
    ek_gpu *drafts = ek_ranks_drafting(ranks);
    (void)m;                       /* the scene's model, perhaps opened again */
    ek_gpu_close(drafts->drafter); /* of the run before */
    drafts->drafter = NULL;
    return ek_ranks_executor(ranks);
}

static void must(ek_err err)
{
    if (err) fail_msg("%s", ek_err_text());
}

static void draft_on_ranks(ek_executor *on, ek_drafter *d)
{
    must(ek_gpu_add_drafter(ek_ranks_drafting(ranks), d));
    on->close(on->arg); /* an executor drafts by the drafter that was there when it was made */
    const ek_executor again = ek_ranks_executor(ranks);
    on->arg = again.arg, on->draft = again.draft, on->draft_arg = again.draft_arg;
}

typedef struct checker {
    const scene *s;
    const ek_trace *want;
    const char *name, *where;
    bool good;
    int compared;
} checker;

static bool check(void *arg, const char *variant, const ek_trace *got, const int *which, int n)
{
    checker *c = arg;
    char where[256];
    for (int i = 0; i < n; i++, c->compared++) {
        if (ek_trace_same(&c->want[which[i]], &got[i], where, sizeof where)) continue;
        print_message("FAIL seed %#llx %s, %s (%s), request %d: %s\n", (unsigned long long)c->s->seed, c->where,
                      c->name, variant, which[i], where);
        c->good = false;
        return false;
    }
    return true;
}

typedef struct way {
    int n, host, lazy, microbatch; /* microbatch: rows from which on a step is cut; 0: as it is */
    bool outputs;                  /* are cut; host and microbatch are 0 */
    bool experts;                  /* of `host` layers the CPU has the experts alone */
} way;

/* A drafter model's drafts, as on the CPU. */
static void compare_drafts(const scene *s, const char *where)
{
    ek_trace out[MAX_ASKS];
    company cpu = {.ask = s->ask, .n = s->n, .draft = EK_DRAFT_AUTO, .drafter = true, .chunk = 60}, device = cpu;
    scene_executor = ek_executor_cpu, scene_set_drafter = ek_executor_cpu_set_drafter;
    must(run_in_company(s, &cpu, out));
    for (int i = 0; i < s->n; i++) ek_trace_fini(&out[i]);
    scene_executor = on_ranks, scene_set_drafter = draft_on_ranks;
    must(run_in_company(s, &device, out));
    for (int i = 0; i < s->n; i++) ek_trace_fini(&out[i]);
    if (cpu.drafts != device.drafts || cpu.accepted != device.accepted)
        fail_msg("seed %#llx %s: drafts differ", (unsigned long long)s->seed, where);
}

/* As many and as long requests as a device made of a CPU computes in a second or two. */
static void shrink(scene *s)
{
    enum { REQUESTS = 3, PROMPT = 10, REPLY = 4 };
    for (int i = REQUESTS; i < s->n; i++) free(s->tokens[i]);
    if (s->n > REQUESTS) s->n = REQUESTS;
    for (int i = 0; i < s->n; i++) {
        ek_ask *a = &s->ask[i];
        a->n_tokens = a->n_tokens < PROMPT - i ? a->n_tokens : PROMPT - i;
        if (a->prompt_logits_from > a->n_tokens) a->prompt_logits_from = a->n_tokens;
        a->max_tokens = a->max_tokens < REPLY ? a->max_tokens : REPLY;
        while (a->n_spans && a->span[a->n_spans - 1].end > a->n_tokens) a->n_spans--;
    }
}

/* names: cases to run, NULL: all; drafts: a drafter's too. */
static void run_scene(uint64_t seed, way w, const char *const *names, bool drafts)
{
    static scene s;
    static ek_trace want[MAX_ASKS], got[MAX_ASKS];
    char lazy[16], where[64], text[256];
    const double start = ek_now();
    ek_gpu_driver driver = emulated();
    must(scene_open(&s, seed));
    shrink(&s);
    scene_describe(&s, text, sizeof text);
    const ek_fit_opts o = {.n = w.n,
                           .ordinal = {0, 1, 2, 3},
                           .split = w.outputs ? EK_SPLIT_OUTPUTS : EK_SPLIT_LAYERS,
                           .host = w.host > 0,
                           .part_o = w.n == 3,
                           .part = w.experts ? EK_HOST_EXPERTS : EK_HOST_CHOSEN,
                           .host_layers = w.host};
    snprintf(lazy, sizeof lazy, "%d", w.lazy);
    setenv("EK_EMULATED_LAZY", lazy, 1);
    ek_model *own = NULL; /* deferred: of the CPU's layers it has the experts alone (a drafter would ask for s.model) */
    ek_model_opts deferred = s.opts;
    deferred.deferred = true;
    if (w.experts && !drafts) must(ek_model_synthetic(&own, &s.config, s.bits, seed & ~SCENE_FLAGS, &deferred));
    const ek_err refused = ek_ranks_open(&ranks, &driver, own ? own : s.model, &o);
    if (refused == EK_EUNSUPPORTED) {
        print_message("left out seed %#llx: %s\n", (unsigned long long)seed, ek_err_text());
        scene_close(&s);
        return;
    }
    must(refused);
    ranks->min_microbatch = w.microbatch;
    if (w.outputs) snprintf(where, sizeof where, "outputs cut for %d devices, late %d", w.n, w.lazy);
    else
        snprintf(where, sizeof where, "on %d devices, %s%d layers on the CPU, late %d", w.n,
                 w.experts ? "experts of " : "", w.host, w.lazy);
    scene_executor = ek_executor_cpu;
    must(run_alone(&s, &(company){0}, want));
    scene_executor = on_ranks, scene_set_drafter = draft_on_ranks;
    checker c = {.s = &s, .want = want, .name = "alone", .where = where, .good = true};
    int which[MAX_ASKS];
    for (int i = 0; i < s.n; i++) which[i] = i;
    must(run_alone(&s, &(company){0}, got));
    check(&c, "alone", got, which, s.n);
    for (int i = 0; i < s.n; i++) ek_trace_fini(&got[i]);
    for (int k = 0; k < n_cases && c.good; k++) {
        bool wanted = strcmp(cases[k].name, "threads") != 0 && strcmp(cases[k].name, "isas") != 0;
        for (int j = 0; names && wanted; j++) {
            if (names[j] && strcmp(names[j], cases[k].name) != 0) continue;
            wanted = names[j] != NULL;
            break;
        }
        if (!wanted) continue;
        c.name = cases[k].name;
        must(cases[k].run(&s, &(company){.want = want}, check, &c));
    }
    assert_true(c.good && c.compared > 0);
    if (drafts) compare_drafts(&s, where);
    print_message("seed %#llx: %s, %s, %d compared, %.1f s\n", (unsigned long long)seed, text, where, c.compared,
                  ek_now() - start);
    ek_ranks_close(ranks);
    ek_model_close(own);
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

/* Two devices, the first or both late, and steps in microbatches. */
static void over_two_devices(void **state)
{
    (void)state;
    run_scene(1, (way){2, 0, 3, 4, false, false}, (const char *const[]){"ahead", NULL}, true); /* T2: experts */
    run_scene(0, (way){2, 0, 1, 4, false, false}, (const char *const[]){"together", NULL},
              false); /* T1: per-layer inputs */
}

/* The head is another matrix than the table that tokens are looked up in: layers on devices of their own, a part on the
 * CPU, and outputs cut. */
static void with_a_head_of_its_own(void **state)
{
    (void)state;
    const char *const some[] = {"together", NULL};
    run_scene(OWN_HEAD | 1, (way){2, 0, 3, 4, false, false}, some, true);            /* T2 */
    run_scene(OWN_HEAD | 0, (way){1, 1, 1, 4, false, false}, some, false);           /* T1: per-layer inputs */
    run_scene(OWN_HEAD | 6, (way){.n = 2, .lazy = 3, .outputs = true}, some, false); /* Q1 */
    run_scene(OWN_HEAD | 1, (way){.n = 1, .host = 1, .experts = true}, some, false); /* T2 */
}

/* What a cut of two may hide. */
static void over_three_devices(void **state)
{
    (void)state;
    run_scene(4, (way){3, 0, 5, 4, false, false}, (const char *const[]){"drafted", NULL}, false); /* T5 */
}

static void over_a_device_and_the_cpu(void **state)
{
    (void)state;
    run_scene(0, (way){1, 1, 1, 4, false, false}, (const char *const[]){"together", NULL}, false);
    run_scene(4 | SCENE_SPANS, (way){2, 2, 3, 3, false, false}, (const char *const[]){"cached", NULL}, false);
}

/* The CPU computes experts in the middle of a device's layers: few rows and many, which all their cuts share. */
static void over_a_device_and_experts_of_the_cpu(void **state)
{
    (void)state;
    const char *const all[] = {"together", "chunked", "masked", "cached", NULL};
    run_scene(1, (way){.n = 1, .host = 1, .lazy = 1, .experts = true}, all, true); /* T2 */
    run_scene(79 | WIDE_EXPERTS, (way){.n = 1, .host = 9, .experts = true}, (const char *const[]){"together", NULL},
              false); /* Q2, all layers */
    run_scene(1, (way){.n = 2, .host = 2, .lazy = 3, .experts = true}, (const char *const[]){"together", NULL}, false);
}

/* Every output is one device's, and all have it behind an exchange: both late, so that who does not wait reads what was
 * there before. */
static void outputs_of_two_devices(void **state)
{
    (void)state;
    run_scene(6, (way){.n = 2, .lazy = 3, .outputs = true}, (const char *const[]){"ahead", "structured", NULL},
              true); /* Q1 */
    run_scene(79 | WIDE_EXPERTS, (way){.n = 2, .lazy = 2, .outputs = true}, (const char *const[]){"together", NULL},
              false); /* Q2 */
    run_scene(0, (way){.n = 2, .lazy = 1, .outputs = true}, (const char *const[]){"together", NULL},
              false); /* T1: per-layer inputs */
}

static void outputs_of_three_devices(void **state)
{
    (void)state;
    run_scene(0, (way){.n = 3, .lazy = 5, .outputs = true}, (const char *const[]){"none", NULL}, true); /* T1 */
    run_scene(15, (way){.n = 3, .outputs = true}, (const char *const[]){"none", NULL}, false); /* Q1, exact, alone */
}

static void outputs_of_four_devices(void **state)
{
    (void)state;
    run_scene(0, (way){.n = 4, .lazy = 5, .outputs = true}, (const char *const[]){"none", NULL}, false); /* T1, alone */
}

/* T1's first n requests, their replies alone on the CPU, and an engine over two devices by outputs; late: bits of those
 * that run as late as can be. */
static ek_engine *open_sharded(scene *s, int n, int max_requests, const char *late, ek_trace *want)
{
    ek_gpu_driver driver = emulated();
    must(scene_open(s, 0));
    s->model->config.final_logit_softcapping = 5; /* as published models, which a tiny one is without */
    shrink(s);
    if (s->n > n) s->n = n;
    setenv("EK_EMULATED_LAZY", late, 1);
    must(
        ek_ranks_open(&ranks, &driver, s->model, &(ek_fit_opts){.n = 2, .ordinal = {0, 1}, .split = EK_SPLIT_OUTPUTS}));
    scene_executor = ek_executor_cpu;
    must(run_alone(s, &(company){0}, want));
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_ranks_executor(ranks);
    o.max_requests = max_requests, o.chunk = 64, o.ctx_tokens = 256, o.kv_bytes = 64 << 20;
    must(ek_engine_open_on(&e, &on, &o));
    return e;
}

/* What a device leaves is lost from some exchange on: who waits gives up, the request ends with the reason, and the
 * next one, of a device that is heard again, has its bits. */
static void a_part_that_is_lost(void **state)
{
    (void)state;
    static scene s;
    static ek_trace want[MAX_ASKS], got[MAX_ASKS];
    ek_engine *const e = open_sharded(&s, 1, 1, "3", want);
    /* of 52 exchanges of many rows the first, then twice in words of one */
    for (int lost = 1; lost <= 119; lost += 59) {
        char count[16], where[256];
        snprintf(count, sizeof count, "%d", lost);
        setenv("EK_EMULATED_LOST", count, 1);
        must(ek_trace_run(e, s.ask, 1, got));
        unsetenv("EK_EMULATED_LOST");
        assert_int_equal(got[0].finish, EK_FINISH_ERROR);
        assert_non_null(strstr(got[0].text, "did not come"));
        ek_trace_fini(&got[0]);
        must(ek_trace_run(e, s.ask, 1, got));
        if (!ek_trace_same(&want[0], &got[0], where, sizeof where)) fail_msg("lost %d: %s", lost, where);
        ek_trace_fini(&got[0]);
    }
    ek_trace_fini(&want[0]);
    ek_engine_close(e);
    ek_ranks_close(ranks);
    scene_close(&s);
}

/* Of the numbers beside words that lie at a device's landings the largest. */
static uint32_t largest_number(const ek_gpu_run *x)
{
    const size_t bytes = EK_CUDA_LANDINGS * x->exchange.landing_bytes;
    uint64_t *word = malloc(bytes);
    uint32_t max = 0;
    must(ek_cuda_enter(x->g->c));
    must(ek_cuda_download(x->g->c, word, x->exchange.landing, bytes));
    must(ek_cuda_sync(x->g->c));
    for (size_t i = 0; i < bytes / 8; i++) max = (uint32_t)(word[i] >> 32) > max ? (uint32_t)(word[i] >> 32) : max;
    free(word);
    return max;
}

static void count_from(uint32_t step)
{
    for (int i = 0; i < 2; i++) ranks->run[i]->exchange.n_exchanged = step;
}

/* The number beside a word has no room for those of all steps: before they come again no landing has any of them, also
 * where only a step of more rows has written. */
static void numbers_of_steps_begin_anew(void **state)
{
    (void)state;
    static scene s;
    static ek_trace want[MAX_ASKS], got[MAX_ASKS];
    char where[256];
    ek_engine *const e = open_sharded(&s, MAX_ASKS, 4, "1", want);
    count_from(EK_CUDA_EXCHANGE_STEPS - 100);
    for (int n = s.n; n > 0; n = n > 1 ? 1 : 0) { /* all, then one over the border */
        must(ek_trace_run(e, s.ask, n, got));
        for (int i = 0; i < n; i++) {
            if (!ek_trace_same(&want[i], &got[i], where, sizeof where)) fail_msg("%d together: %s", n, where);
            ek_trace_fini(&got[i]);
        }
        assert_true(ranks->run[0]->exchange.n_exchanged > EK_CUDA_EXCHANGE_STEPS - 100 || n == 1);
        assert_true(largest_number(ranks->run[1]) > 0);
        if (n > 1) count_from(EK_CUDA_EXCHANGE_STEPS);
    }
    for (int i = 0; i < 2; i++) {
        const uint32_t steps = ranks->run[i]->exchange.n_exchanged, number = largest_number(ranks->run[i]);
        if (steps > 100 || number >= EK_CUDA_EXCHANGES * steps)
            fail_msg("device %d has a word with number %u after %u steps", i, number, steps);
    }
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    ek_engine_close(e);
    ek_ranks_close(ranks);
    scene_close(&s);
}

/* More rows of logits than go in words lie where the others read them, and are capped there: by who runs ahead, not
 * before the late one has taken them. */
static void logits_are_taken_before_they_are_capped(void **state)
{
    (void)state;
    static scene s;
    static ek_trace want[MAX_ASKS], got[MAX_ASKS];
    for (int late = 1; late <= 2; late++) {
        char text[8], where[256];
        snprintf(text, sizeof text, "%d", late);
        ek_engine *const e = open_sharded(&s, 1, 1, text, want);
        must(ek_trace_run(e, s.ask, 1, got));
        assert_true(s.ask[0].n_tokens - s.ask[0].prompt_logits_from > EK_CUDA_WORDS_ROWS);
        if (!ek_trace_same(&want[0], &got[0], where, sizeof where)) fail_msg("late %d: %s", late, where);
        ek_trace_fini(&want[0]), ek_trace_fini(&got[0]);
        ek_engine_close(e);
        ek_ranks_close(ranks);
        scene_close(&s);
    }
}

/* Of two layers and a head that take longer to read than two layers' exchanges. */
static void the_devices_choose(void **state)
{
    (void)state;
    static ek_config c;
    ek_gpu_driver driver = emulated();
    ek_model *m;
    const ek_model_opts opts = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16};
    must(ek_config_published(&c, "12b", 2));
    c.vocab_size = 2048;
    for (int i = 0; i < 2; i++) c.layer[i].intermediate_size = 7680;
    must(ek_model_synthetic(&m, &c, 0, 1, &opts));
    for (int apart = 0; apart < 2; apart++) {
        if (apart) setenv("EK_EMULATED_APART", "1", 1);
        must(ek_ranks_open(&ranks, &driver, m, &(ek_fit_opts){.n = 2, .ordinal = {0, 1}, .split = EK_SPLIT_AUTO}));
        unsetenv("EK_EMULATED_APART");
        assert_int_equal(ranks->place.split, apart ? EK_SPLIT_LAYERS : EK_SPLIT_OUTPUTS);
        assert_string_equal(ranks->place.why, apart ? "layers, for outputs cannot be cut: cuda:0 does not reach the "
                                                      "memory of cuda:1"
                                                    : "");
        ek_ranks_close(ranks);
    }
    ek_model_close(m);
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc >= 6) {
        const char *const names[] = {argc > 6 ? argv[6] : NULL, NULL};
        const bool outputs = strcmp(argv[3], "outputs") == 0;
        const way w = {atoi(argv[2]), outputs ? 0 : atoi(argv[3]),     atoi(argv[4]), atoi(argv[5]),
                       outputs,       !outputs && strchr(argv[3], 'e')};
        run_scene(strtoull(argv[1], NULL, 0), w, argc > 6 ? names : NULL, argc <= 6);
        return 0;
    }
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_two_devices),
        cmocka_unit_test(with_a_head_of_its_own),
        cmocka_unit_test(over_three_devices),
        cmocka_unit_test(over_a_device_and_the_cpu),
        cmocka_unit_test(over_a_device_and_experts_of_the_cpu),
        cmocka_unit_test(outputs_of_two_devices),
        cmocka_unit_test(outputs_of_three_devices),
        cmocka_unit_test(outputs_of_four_devices),
        cmocka_unit_test(a_part_that_is_lost),
        cmocka_unit_test(numbers_of_steps_begin_anew),
        cmocka_unit_test(logits_are_taken_before_they_are_capped),
        cmocka_unit_test(the_devices_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
