/* Several devices behind one executor, with the real kernels, which run on the CPU (tests/emulate): the scenes of
 * tests/same, whose requests run alone on the CPU, then over devices alone and in company. Devices whose streams run as
 * late as can be show a wait that is missing.
 *
 *   test_ranks_emulated [TEST]                      a small scene of each kind, or one of these tests
 *   test_ranks_emulated SEED DEVICES HOST LAZY PIECE [CASE]
 *                       one scene; HOST: layers of the CPU, or `outputs`: these are cut; LAZY: bits of devices; PIECE:
 *                       rows of a piece of a step
 */
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
#include "emulated.h"
#include "gpu/ranks/ranks.h"
#include "gpu/ranks/state.h"
#include "gpu/weights/state.h"

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
    int n, host, lazy, piece; /* piece: rows from which on a step is cut; 0: as it is */
    bool outputs;             /* are cut; host and piece are 0 */
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
    const ek_ranks_opts o = {.n = w.n,
                             .ordinal = {0, 1, 2, 3},
                             .split = w.outputs ? EK_SPLIT_OUTPUTS : EK_SPLIT_LAYERS,
                             .host = w.host > 0,
                             .host_layers = w.host};
    snprintf(lazy, sizeof lazy, "%d", w.lazy);
    setenv("EK_EMULATED_LAZY", lazy, 1);
    const ek_err refused = ek_ranks_open(&ranks, &driver, s.model, &o);
    if (refused == EK_EUNSUPPORTED) {
        print_message("left out seed %#llx: %s\n", (unsigned long long)seed, ek_err_text());
        scene_close(&s);
        return;
    }
    must(refused);
    ranks->min_piece = w.piece;
    if (w.outputs) snprintf(where, sizeof where, "outputs cut for %d devices, late %d", w.n, w.lazy);
    else snprintf(where, sizeof where, "on %d devices, %d layers on the CPU, late %d", w.n, w.host, w.lazy);
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
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

/* Two devices, the first or both late, and steps in pieces. */
static void over_two_devices(void **state)
{
    (void)state;
    run_scene(1, (way){2, 0, 3, 4, false}, (const char *const[]){"ahead", NULL}, true);     /* T2: experts */
    run_scene(0, (way){2, 0, 1, 4, false}, (const char *const[]){"together", NULL}, false); /* T1: per-layer inputs */
}

/* What a cut of two may hide. */
static void over_three_devices(void **state)
{
    (void)state;
    run_scene(4, (way){3, 0, 5, 4, false}, (const char *const[]){"drafted", NULL}, false); /* T5 */
}

static void over_a_device_and_the_cpu(void **state)
{
    (void)state;
    run_scene(0, (way){1, 1, 1, 4, false}, (const char *const[]){"together", NULL}, false);
    run_scene(4 | SCENE_SPANS, (way){2, 2, 3, 3, false}, (const char *const[]){"cached", NULL}, false);
}

/* Every output is one device's, and all have it behind an exchange: both late, so that who does not wait reads what was
 * there before. */
static void outputs_of_two_devices(void **state)
{
    (void)state;
    run_scene(6, (way){.n = 2, .lazy = 3, .outputs = true}, (const char *const[]){"ahead", NULL}, true); /* Q1 */
    run_scene(79 | WIDE_EXPERTS, (way){.n = 2, .lazy = 2, .outputs = true}, (const char *const[]){"together", NULL},
              false); /* Q2 */
    run_scene(0, (way){.n = 2, .lazy = 1, .outputs = true}, (const char *const[]){"together", NULL},
              false); /* T1: per-layer inputs */
}

static void outputs_of_three_devices(void **state)
{
    (void)state;
    run_scene(0, (way){.n = 3, .lazy = 5, .outputs = true}, (const char *const[]){"none", NULL}, true); /* T1 */
    run_scene(15, (way){.n = 3, .lazy = 0, .outputs = true}, (const char *const[]){"none", NULL},
              false); /* Q1, alone */
}

/* What a device stores is lost from some exchange on: who waits gives up, the request ends with the reason, and the
 * next one, of a device that is heard again, has its bits. */
static void a_part_that_is_lost(void **state)
{
    (void)state;
    static scene s;
    static ek_trace want[MAX_ASKS], got[MAX_ASKS];
    ek_gpu_driver driver = emulated();
    must(scene_open(&s, 0)); /* T1 */
    shrink(&s);
    s.n = 1;
    setenv("EK_EMULATED_LAZY", "3", 1);
    must(ek_ranks_open(&ranks, &driver, s.model,
                       &(ek_ranks_opts){.n = 2, .ordinal = {0, 1}, .split = EK_SPLIT_OUTPUTS}));
    scene_executor = ek_executor_cpu;
    must(run_alone(&s, &(company){0}, want));
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_ranks_executor(ranks);
    o.max_requests = 1, o.chunk = 64, o.ctx_tokens = 256, o.kv_bytes = 64 << 20;
    must(ek_engine_open_on(&e, &on, &o));
    for (int lost = 1; lost <= 30; lost += 23) {
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

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc >= 6) {
        const char *const names[] = {argc > 6 ? argv[6] : NULL, NULL};
        const bool outputs = strcmp(argv[3], "outputs") == 0;
        const way w = {atoi(argv[2]), outputs ? 0 : atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), outputs};
        run_scene(strtoull(argv[1], NULL, 0), w, argc > 6 ? names : NULL, argc <= 6);
        return 0;
    }
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_two_devices),          cmocka_unit_test(over_three_devices),
        cmocka_unit_test(over_a_device_and_the_cpu), cmocka_unit_test(outputs_of_two_devices),
        cmocka_unit_test(outputs_of_three_devices),  cmocka_unit_test(a_part_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
