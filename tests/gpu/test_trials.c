/* Evidence before an answer (gpu/evidence) leaves nothing out: every kernel that a step of a model, or of its drafter,
 * queues on a device that is not CUDA's is one that the comparisons of this model have launched; and every shader that
 * such a device has is launched by those of some model, but for a few with a reason. The driver (record.h) computes
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/drafter.h"
#include "base/log.h"
#include "gpu/evidence/evidence.h"
#include "gpu/gpu.h"
#include "gpu/step/run.h"
#include "record.h"
#include "shapes.h"

enum { MAX_ROWS = 128, MAX_CTX = 4096, N_PAGES = MAX_CTX / EK_PAGE_TOKENS + 1, DRAWS = 6 };

/* --- what is launched */

enum { KERNELS = 256 };
typedef struct kernels {
    const char *name[KERNELS];
    int n;
} kernels;

static kernels *into;

static bool has(const kernels *k, const char *name)
{
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->name[i], name)) return true;
    return false;
}

static void add(kernels *k, const char *name)
{
    if (has(k, name)) return;
    assert_true(k->n < KERNELS);
    k->name[k->n++] = name;
}

/* The driver's functions are their kernels' names, which the device's table of kernels keeps. */
static CUresult launch(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    (void)config, (void)args, (void)extra;
    if (into) add(into, strdup((const char *)f));
    return EK_CU_OK;
}

/* --- which pipeline computes it: of a shader, specialised */

typedef struct pipeline {
    const char *kernel, *shader;
    int threads, tile;
} pipeline;

static const pipeline pipelines[] = {
#define SIZED(name, shader, args, use, threads, tile) {#name, #shader, threads, tile},
#define KERNEL(name, shader, args)                    {#name, #shader, 0, 0},
#include "vulkan/kernels.def"
#undef KERNEL
#undef SIZED
};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

static const pipeline *pipeline_of(const char *kernel)
{
    for (int i = 0; i < PIPELINES; i++)
        if (!strcmp(pipelines[i].kernel, kernel)) return &pipelines[i];
    fail_msg("%s is no kernel of vulkan/kernels.def", kernel);
    return NULL;
}

static bool are_alike(const pipeline *a, const pipeline *b)
{
    return !strcmp(a->shader, b->shader) && a->threads == b->threads && a->tile == b->tile;
}

/* Whether one of k is computed by the pipeline of this kernel. */
static bool covers(const kernels *k, const char *kernel)
{
    for (int i = 0; i < k->n; i++)
        if (are_alike(pipeline_of(k->name[i]), pipeline_of(kernel))) return true;
    return false;
}

/* --- steps */

static int32_t pages[N_PAGES];
static ek_row rows[MAX_ROWS];
static ek_seq seqs[MAX_ROWS];
static bool shown[MAX_ROWS], digested[MAX_ROWS];
static const int32_t history[40] = {0};
static const ek_logit_bias bias[] = {{7, 3}};
static ek_draw draws[DRAWS];

/* Of every way to a token (note_kernels in gpu/step/sample.c). */
static void make_draws(void)
{
    static ek_sampling way[DRAWS];
    for (int i = 0; i < DRAWS; i++) {
        way[i] = ek_sampling_greedy();
        if (i) way[i].temperature = 0.7f;
        draws[i] = (ek_draw){.logits = i, .sampling = &way[i], .tokens = history, .n_prompt = 20, .n_tokens = 40};
    }
    way[1].bias = bias, way[1].n_bias = 1, way[2].top_k = 16, way[3].top_p = 0.9f, way[4].min_p = 0.1f;
    way[5].top_k = 1500, way[5].repetition_penalty = 1.3f;
}

static ek_seq seq_of(int tokens, int slot)
{
    const int n = (tokens + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    return (ek_seq){.page = {pages, pages}, .end = {n, n}, .slot = slot};
}

/* n rows at about that depth: of a request each, which all want a draw, or of one, whose last one does. */
static ek_step step_of(const ek_model *m, int n, int depth, bool prompt)
{
    for (int i = 0; i < n; i++) {
        rows[i] = ek_text_row(5, depth + i, prompt ? 0 : i, !prompt || i == n - 1, m->config.sliding_window);
        seqs[i] = seq_of(depth + (prompt ? n : i + 1), i);
    }
    const int wanted = prompt ? 1 : n;
    return (ek_step){.row = rows,
                     .n_rows = n,
                     .seq = seqs,
                     .n_seqs = prompt ? 1 : n,
                     .shown = shown,
                     .digested = digested,
                     .draw = draws,
                     .n_draws = wanted < DRAWS ? wanted : DRAWS};
}

static void draft(const ek_executor *on, int n)
{
    static int32_t token[MAX_ROWS][EK_DRAFT_MAX];
    static ek_draft all[MAX_ROWS];
    for (int i = 0; i < n; i++) {
        seqs[i] = seq_of(40, i);
        all[i] = (ek_draft){
            .seq = &seqs[i], .tokens = history, .n_tokens = 40, .logits = i, .max = 2, .token = token[i]};
    }
    assert_int_equal(on->draft(on->draft_arg, all, n), EK_OK);
}

static void run_steps(ek_gpu *g, const ek_model *m)
{
    ek_executor on = ek_gpu_executor(g);
    ek_executor_sizes z = {.max_rows = MAX_ROWS, .max_logits = MAX_ROWS, .max_ctx = MAX_CTX, .max_requests = MAX_ROWS};
    for (int k = 0; k < EK_PAGE_KINDS; k++) z.n_pages[k] = N_PAGES;
    assert_int_equal(on.open(on.arg, &z), EK_OK);
    for (int n = 1; n <= MAX_ROWS; n += n < 20 ? 1 : 27)
        for (int i = 0; i < 4; i++) {
            const ek_step s = step_of(m, n, i % 2 ? 3000 : 0, i / 2);
            assert_int_equal(on.step(on.arg, &s), EK_OK);
        }
    for (int n = 1; n <= MAX_ROWS && on.draft; n *= 2) draft(&on, n);
    on.close(on.arg);
}

/* --- models */

static const gpu_shape shapes[] = {
    {"q4_0", "e2b", 8, "q4_0", "q6_k", EK_KV_F16, 0, 16, false, 1},
    {"q8_0", "e2b", 8, "q8_0", NULL, EK_KV_I12, 0, 16, false, 0},
    {"q4.64", "e2b", 8, "q4.64", NULL, EK_KV_I12, 0, 16, false, 64},
    {"q8.64, on the host", "e4b", 8, "q8.64", NULL, EK_KV_Q8, 0, 16, true, 0},
    {"nvfp4", "e2b", 8, "nvfp4", NULL, EK_KV_I8, 0, 16, false, 0},
    {"bf16", "12b", 6, "bf16", NULL, EK_KV_BF16, 0, 16, false, 1},
    {"f16", "e2b", 8, "f16", NULL, EK_KV_F32, 0, 16, false, 0},
    {"q4.64, start", "12b", 6, "q4.64", NULL, EK_KV_Q4, 256, 16, false, 0},
    {"31b", "31b", 6, "q4_0", "q8_0", EK_KV_I16, 0, 16, false, 0},
    {"31b q6_k", "31b", 6, "q4_0", "q6_k", EK_KV_I12, 0, 16, false, 0},
    {"31b q4.64", "31b", 6, "q4.64", NULL, EK_KV_I12, 0, 16, false, 0},
    {"31b q8.64", "31b", 6, "q8.64", NULL, EK_KV_I12, 0, 16, false, 0},
    {"experts q4.64", "26b", 6, "q4.64", NULL, EK_KV_I12, 0, 16, false, 0},
    {"experts q8.64", "26b", 6, "q8.64", NULL, EK_KV_F16, 0, 16, false, 0},
    {"experts q4_0", "26b", 6, "q4_0", NULL, EK_KV_F16, 0, 16, false, 1},
    {"experts q8_0", "26b", 6, "q8_0", NULL, EK_KV_I12, 0, 16, false, 0},
    {"experts nvfp4", "26b", 6, "nvfp4", NULL, EK_KV_I12, 0, 16, false, 0},
    {"experts q6_k", "26b", 6, "q6_k", NULL, EK_KV_F16, 0, 16, false, 0},
    {"experts bf16", "26b", 6, "bf16", NULL, EK_KV_F16, 0, 16, false, 0},
    {"experts f16", "26b", 6, "f16", NULL, EK_KV_F16, 0, 16, false, 0},
    {"Q1", "Q1", 0, "q4.32", NULL, EK_KV_I12, 0, 4, false, 1},
    {"Q2", "Q2", 0, "q4.64", NULL, EK_KV_I16, 0, 4, false, 11},
    {"T6", "T6", 0, "f32", NULL, EK_KV_Q5_128, 256, 4, false, 11},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void compare_all(ek_gpu *g, const ek_model *m, kernels *to)
{
    ek_trial t = {.g = g, .m = m, .goes_on = true};
    into = to;
    if (ek_trial_all(&t)) fail_msg("%s", ek_err_text());
    into = NULL;
    assert_true(t.n > 0);
}

/* How many kernels a model's steps launch that its comparisons have not; its comparisons' kernels join *all. */
static int look_at(const gpu_shape *s, int capability, kernels *all)
{
    static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    static kernels compared, launched;
    static ek_config c;
    ek_gpu_driver d = {.modules = modules, .built_with = 13000};
    ek_drafter *drafter = NULL;
    ek_gpu *g;
    ek_model *m = open_shape(s);
    const ek_model_opts opts = {.cpu = m->cpu};
    int missing = 0;
    compared.n = launched.n = 0;
    record_reset(&d.api, s->multiprocessors);
    record_capability(capability);
    d.api.cuLaunchKernelEx = launch;
    assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_OK);
    compare_all(g, m, &compared);
    assert_int_equal(ek_gpu_load(g, m, &(ek_model_share){.end = m->config.n_layers, .embed = true}, (ek_gpu_shard){0}),
                     EK_OK);
    if (s->host_table) g->w.table = (ek_gpu_matrix){0};
    if (s->drafter) {
        drafter_config(&c, &m->config, s->drafter > 1 ? s->drafter : 0);
        assert_int_equal(ek_drafter_synthetic(&drafter, &c, 7, m, &opts), EK_OK);
        compare_all(g, ek_drafter_model(drafter), &compared);
        assert_int_equal(ek_gpu_add_drafter(g, drafter), EK_OK);
    }
    into = &launched;
    run_steps(g, m);
    into = NULL;
    for (int i = 0; i < launched.n; i++) {
        if (covers(&compared, launched.name[i])) continue;
        print_message("%s: %s is launched and was not compared\n", s->name, launched.name[i]);
        missing++;
    }
    for (int i = 0; i < compared.n; i++) add(all, compared.name[i]);
    ek_gpu_close(g);
    ek_drafter_close(drafter);
    close_shape(m);
    return missing;
}

static kernels all;

static void no_step_launches_what_was_not_compared(void **state)
{
    (void)state;
    int missing = 0;
    for (int i = 0; i < SHAPES; i++)
        for (int capability = EK_CUDA_PLAIN; capability <= EK_CUDA_PLAIN_MATRICES; capability++)
            missing += look_at(&shapes[i], capability, &all);
    assert_int_equal(missing, 0);
}

/* Rows of more inputs than published models have, codes of 8 bits for one limb of an activation, experts of two, groups
 * of 32 with biases. */
static void compare_other_matrices(int group)
{
    static const int width[] = {40960, 1024, 3072};
    static const gpu_shape s = {"Q2", "Q2", 0, "q4.64", NULL, EK_KV_F16, 0, 4, false, 0};
    for (int capability = EK_CUDA_PLAIN; capability <= EK_CUDA_PLAIN_MATRICES; capability++) {
        static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
        ek_gpu_driver d = {.modules = modules, .built_with = 13000};
        ek_gpu *g;
        ek_model *m = open_shape(&s);
        ek_linear *const at[] = {&m->w.layer[0].q, &m->w.layer[0].k, &m->w.layer[0].o, &m->w.layer[0].gate};
        for (int i = 0; i < 12; i++) {
            const ek_weight_type *type;
            ek_linear w;
            assert_int_equal(ek_weight_type_affine(&type, i % 2 ? 8 : 4, group, EK_BF16, true), EK_OK);
            assert_int_equal(ek_linear_plan(&w, m->cpu, 32, width[i / 4], type), EK_OK);
            assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){1 + i / 2 % 2, group}), EK_OK);
            if (i < 4) *at[i] = w;
            else if (i < 8) m->w.layer[i - 3].q = *m->w.layer[i - 3].expert_gate = w;
            else *m->w.layer[i - 7].expert_up = m->w.layer[i - 7].o = w;
        }
        record_reset(&d.api, 4);
        record_capability(capability);
        d.api.cuLaunchKernelEx = launch;
        assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_OK);
        compare_all(g, m, &all);
        ek_gpu_close(g);
        close_shape(m);
    }
}

/* Those that no comparison needs to launch, and why. */
static const struct {
    const char *kernel, *why;
} others[] = {
    {"ek_evidence", "every start of a device compares it (vulkan/evidence.c)"},
    {"ek_math", "tests alone launch it"},
    {"ek_experts_end_wide", "no published model with experts has such rows; one would compare it"},
    {"ek_products_plain_one_q4_l1_t512_half_32", "the same"},
    {"ek_stage", "no published model has such rows; one would compare it"},
    {"ek_read_stream", "it measures a rate, and its result is not read"},
};

static void every_shader_is_compared(void **state)
{
    (void)state;
    int missing = 0;
    compare_other_matrices(64), compare_other_matrices(32);
    for (int i = 0; i < PIPELINES; i++) {
        const char *why = NULL;
        for (size_t j = 0; j < sizeof others / sizeof *others; j++)
            if (!strcmp(others[j].kernel, pipelines[i].kernel)) why = others[j].why;
        const bool is = covers(&all, pipelines[i].kernel);
        if (is != (why != NULL)) continue;
        print_message("%s: %s\n", pipelines[i].kernel,
                      is ? "it is compared, and a reason stands here" : "no comparison launches it");
        missing++;
    }
    assert_int_equal(missing, 0);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    for (int i = 0; i < N_PAGES; i++) pages[i] = i;
    make_draws();
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_step_launches_what_was_not_compared),
                                       cmocka_unit_test(every_shader_is_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
