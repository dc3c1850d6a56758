/* Models on a CUDA device, or with `vulkan` on a Vulkan device, against the CPU: the scenes of tests/same, whose
 * requests run alone on the CPU, then on the device alone and in company. Where a scene differs, its layers are gone
 * through one by one, and the first stage whose rows differ is printed. Usage: device [vulkan] [scenes [first
 * [alone]]]; alone: in no company. device drafts MODEL [LAYERS]: times of its drafter. Exits 77 without a driver or
 * device, 1 when bits differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../same/cases.h"
#include "../../support/device_pack.h"
#include "base/alloc.h"
#include "base/log.h"
#include "drafts.h"
#include "gpu/gpu.h"
#include "gpu/step/run.h"

static ek_gpu_driver driver;
static ek_gpu *gpu; /* of the scene at hand */
static int passed, failed, skipped;

/* Few leaves at a time, so that the attention of a step needs several waves. */
static ek_err (*open_whole)(void *arg, const ek_executor_sizes *sizes);

static ek_err open_few_leaves(void *arg, const ek_executor_sizes *sizes)
{
    EK_TRY(open_whole(arg, sizes));
    ((ek_gpu_run *)arg)->lists.max_items = 64;
    return EK_OK;
}

static bool few_leaves, only_alone;

static ek_executor on_gpu(ek_model *m)
{
    (void)m;                    /* the scene's model, perhaps opened again */
    ek_gpu_close(gpu->drafter); /* of the run before */
    gpu->drafter = NULL;
    ek_executor on = ek_gpu_executor(gpu);
    open_whole = on.open;
    if (few_leaves) on.open = open_few_leaves;
    return on;
}

static void must(ek_err err)
{
    if (err == EK_OK) return;
    printf("FAIL %s\n", ek_err_text());
    exit(2);
}

static void draft_on_gpu(ek_executor *on, ek_drafter *d)
{
    must(ek_gpu_add_drafter(gpu, d));
    on->draft = ek_gpu_draft, on->draft_arg = on->arg;
}

static void count(bool good, const char *what, const char *where)
{
    passed += good, failed += !good;
    if (!good) printf("FAIL %s: %s\n", what, where);
}

/* --- weights: what ek_pack_q wrote against device_pack */

static void check_matrix(const ek_gpu_matrix *m, const ek_linear *w, int number, const char *what, int layer)
{
    if (m->l.n == 0 || m->l.units == 0) return;
    uint8_t *want = calloc(1, m->l.bytes), *got = malloc(m->l.bytes);
    device_pack_for(ek_cuda_chip_of(gpu->c), &m->l, w, want);
    must(ek_cuda_download(gpu->c, got, m->at + (size_t)number * m->l.bytes, m->l.bytes));
    must(ek_cuda_sync(gpu->c));
    size_t used = m->l.code_bytes +
                  (size_t)m->l.n_panels * (size_t)(m->l.k / m->l.group) * EK_PANEL * ek_cuda_linear_scale(&m->l);
    size_t at = 0;
    while (at < used && want[at] == got[at]) at++;
    char where[160];
    snprintf(where, sizeof where, "layer %d, %d x %d, %d bits, groups %d/%d: byte %zu (codes end at %zu)", layer,
             m->l.n, m->l.k, m->l.bits, m->l.group, m->l.a_group, at, m->l.code_bytes);
    count(at == used, what, where);
    free(want), free(got);
}

static void check_weights(const ek_model *m)
{
    check_matrix(&gpu->w.embed, &m->w.embed, 0, "embedding's weights", -1);
    for (int i = 0; i < m->config.n_layers; i++) {
        const ek_gpu_layer *g = &gpu->w.layer[i];
        const ek_layer_weights *w = &m->w.layer[i];
        check_matrix(&g->q, &w->q, 0, "q_proj's weights", i);
        check_matrix(&g->v, &w->v, 0, "v_proj's weights", i);
        check_matrix(&g->down, &w->down, 0, "down_proj's weights", i);
        if (m->config.n_experts) check_matrix(&g->expert_up, &w->expert_up[1], 1, "an expert's weights", i);
    }
}

/* --- stages */

/* n rows of `width` on the device against the CPU's; true if they differ. */
static bool differs(const char *what, int layers, CUdeviceptr at, const ek_buffer *want, int n, int width)
{
    float *got = malloc(sizeof(float) * (size_t)n * (size_t)width);
    must(ek_cuda_download(gpu->c, got, at, sizeof(float) * (size_t)n * (size_t)width));
    must(ek_cuda_sync(gpu->c));
    bool bad = false;
    for (int r = 0; r < n && !bad; r++)
        for (int i = 0; i < width && !bad; i++) {
            float w = ek_at(want, r)[i], g = got[(size_t)r * (size_t)width + (size_t)i];
            if (memcmp(&w, &g, 4) == 0 || (w != w && g != g)) continue;
            printf("     first difference: model of %d layers, %s, row %d, element %d of %d: want %a, got %a\n", layers,
                   what, r, i, width, (double)w, (double)g);
            bad = true;
        }
    free(got);
    return bad;
}

/* One step of n rows of one sequence, all with logits, on both; true if a stage differed. */
static bool compare_stages(ek_model *m, const int32_t *tokens, int n)
{
    const ek_config *c = &m->config;
    const int pages = n / EK_PAGE_TOKENS + 1, layers = c->n_layers;
    const ek_layer_config *l = &c->layer[layers - 1];
    ek_kv_memory kv = {0};
    ek_scratch *s;
    int32_t *page = ek_alloc(sizeof *page * (size_t)pages);
    ek_row *rows = ek_alloc(sizeof *rows * (size_t)n);
    float *logits = ek_alloc(sizeof *logits * (size_t)n * (size_t)c->vocab_size);
    bool *shown = ek_alloc((size_t)n);
    for (int i = 0; i < pages; i++) page[i] = pages - 1 - i;
    for (int i = 0; i < n; i++) rows[i] = ek_text_row(tokens[i], i, 0, true, c->sliding_window);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        kv.stride[k] = m->layout.page_bytes[k];
        kv.base[k] = ek_alloc_big(kv.stride[k] * (size_t)pages + 64);
    }
    ek_seq seq = {.page = {page, page}, .end = {pages, pages}};
    must(ek_scratch_open(&s, m, n, n, n));
    must(ek_model_forward(m, s, &kv, rows, n, &seq, 1, logits, c->vocab_size));
    ek_executor on = ek_gpu_executor(gpu);
    ek_executor_sizes z = {.max_rows = n, .max_logits = n, .max_ctx = n, .max_requests = 1, .n_pages = {pages, pages}};
    must(on.open(on.arg, &z));
    ek_step step = {.row = rows, .n_rows = n, .seq = &seq, .n_seqs = 1, .shown = shown, .digested = shown};
    must(on.step(on.arg, &step));
    const ek_gpu_run *x = on.arg;
    const int query = c->n_heads * l->head_dim;
    bool bad = differs("cos", layers, x->now.all.cos[l->kind], &s->cos[l->kind], n, m->n_rotated[l->kind]);
    for (int k = 0; k < EK_KIND_COUNT && !bad; k++) { /* pages, up to the last token */
        size_t bytes = kv.stride[k] * (size_t)pages;
        uint8_t *got = malloc(bytes + 1);
        if (bytes) must(ek_cuda_download(gpu->c, got, x->buf.pages[k], bytes));
        must(ek_cuda_sync(gpu->c));
        size_t at = 0;
        while (at < bytes && got[at] == kv.base[k][at]) at++;
        bad = at < bytes;
        if (bad)
            printf(
                "     first difference: model of %d layers, page of kind %d, byte %zu of a page of %zu: want %02x, got %02x\n",
                layers, k, at % kv.stride[k], kv.stride[k], kv.base[k][at], got[at]);
        free(got);
    }
    if (!bad) bad = differs("o", layers, x->buf.o, &s->o, n, query);
    if (!bad && c->n_experts)
        bad = differs("route before softmax is not kept; pair rows", layers, x->experts.weight,
                      &(ek_buffer){s->weight, 1}, n * c->top_k_experts, 1);
    if (!bad)
        bad = differs("h", layers, x->buf.h, &s->h, n, c->hidden_size) ||
              differs("x", layers, x->buf.x, &s->x, n, c->hidden_size);
    if (!bad) bad = differs("logits", layers, x->buf.logits, &(ek_buffer){logits, c->vocab_size}, n, c->vocab_size);
    on.close(on.arg);
    ek_scratch_close(s);
    for (int k = 0; k < EK_KIND_COUNT; k++) ek_free_big(kv.base[k], kv.stride[k] * (size_t)pages + 64);
    free(page), free(rows), free(logits), free(shown);
    return bad;
}

static ek_err model_of(const scene *s, ek_model **out, int layers)
{
    static ek_config c;
    ek_model_opts opts = s->opts;
    c = s->config;
    if (layers < c.n_layers) {
        c.n_layers = c.first_shared = layers, c.n_kv_shared_layers = 0;
        EK_TRY(ek_config_finish(&c));
    }
    return ek_model_synthetic(out, &c, s->bits, s->seed & ~SCENE_FLAGS, &opts);
}

static void find_stage(const scene *s)
{
    ek_gpu *whole = gpu;
    bool bad = false;
    for (int layers = 1; layers <= s->config.n_layers && !bad; layers++) {
        ek_model *m;
        must(model_of(s, &m, layers));
        must(ek_gpu_open(&gpu, &driver, m, 0));
        bad = compare_stages(m, s->ask[0].tokens, s->ask[0].n_tokens);
        ek_gpu_close(gpu);
        ek_model_close(m);
    }
    if (!bad) printf("     all stages are equal for the first prompt with all logits\n");
    gpu = whole;
}

/* --- scenes */

typedef struct checker {
    const scene *s;
    const ek_trace *want;
    const char *name;
    bool good;
} checker;

static bool check(void *arg, const char *variant, const ek_trace *got, const int *which, int n)
{
    checker *c = arg;
    char where[256], what[256];
    for (int i = 0; i < n; i++) {
        bool good = ek_trace_same(&c->want[which[i]], &got[i], where, sizeof where);
        snprintf(what, sizeof what, "seed 0x%llx, %s, %s, request %d", (unsigned long long)c->s->seed, c->name, variant,
                 which[i]);
        count(good, what, where);
        c->good = c->good && good;
        if (!good) break; /* the others likewise, most likely */
    }
    return true;
}

/* A drafter model's drafts, by both. */
static void compare_drafts(const scene *s)
{
    ek_trace out[MAX_ASKS];
    char where[160];
    company cpu = {.ask = s->ask, .n = s->n, .draft = EK_DRAFT_AUTO, .drafter = true, .chunk = 60}, device = cpu;
    scene_executor = ek_executor_cpu, scene_set_drafter = ek_executor_cpu_set_drafter;
    must(run_in_company(s, &cpu, out));
    for (int i = 0; i < s->n; i++) ek_trace_fini(&out[i]);
    scene_executor = on_gpu, scene_set_drafter = draft_on_gpu;
    must(run_in_company(s, &device, out));
    for (int i = 0; i < s->n; i++) ek_trace_fini(&out[i]);
    snprintf(where, sizeof where, "seed 0x%llx: %d tokens drafted, %d accepted; on the device %d and %d",
             (unsigned long long)s->seed, (int)cpu.drafted, (int)cpu.accepted, (int)device.drafted,
             (int)device.accepted);
    count(cpu.drafts == device.drafts && cpu.drafted == device.drafted && cpu.accepted == device.accepted,
          "drafts of a model", where);
}

static void run_scene(uint64_t seed)
{
    scene s;
    char text[256];
    struct timespec a, b;
    ek_trace want[MAX_ASKS], got[MAX_ASKS];
    clock_gettime(CLOCK_MONOTONIC, &a);
    must(scene_open(&s, seed));
    scene_describe(&s, text, sizeof text);
    ek_err refused = ek_gpu_open(&gpu, &driver, s.model, 0);
    if (refused == EK_EUNSUPPORTED) {
        printf("left out seed 0x%llx: %s\n", (unsigned long long)seed, ek_err_text());
        skipped++;
        scene_close(&s);
        return;
    }
    must(refused);
    scene_executor = ek_executor_cpu;
    must(run_alone(&s, &(company){0}, want));
    check_weights(s.model);
    scene_executor = on_gpu;
    checker c = {.s = &s, .want = want, .name = "alone", .good = true};
    int which[MAX_ASKS];
    for (int i = 0; i < s.n; i++) which[i] = i;
    must(run_alone(&s, &(company){0}, got));
    check(&c, "on the device", got, which, s.n);
    for (int i = 0; i < s.n; i++) ek_trace_fini(&got[i]);
    if (!c.good) find_stage(&s);
    else compare_drafts(&s);
    for (int k = 0; k < n_cases && c.good && !only_alone; k++) {
        if (!strcmp(cases[k].name, "threads") || !strcmp(cases[k].name, "isas")) continue;
        c.name = cases[k].name;
        ek_err err = cases[k].run(&s, &(company){.want = want}, check, &c);
        if (err) count(false, c.name, ek_err_text());
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%s seed 0x%llx: %s%s, %.1f s\n", c.good ? "ok  " : "FAIL", (unsigned long long)seed, text,
           few_leaves ? ", few leaves" : "", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
    fflush(stdout);
    ek_gpu_close(gpu);
    for (int i = 0; i < s.n; i++) ek_trace_fini(&want[i]);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    const bool vulkan = argc > 1 && !strcmp(argv[1], "vulkan");
    if (vulkan) argc--, argv++;
    int scenes = argc > 1 ? atoi(argv[1]) : N_CHECK_SCENES, first = argc > 2 ? atoi(argv[2]) : 0;
    only_alone = argc > 3;
    ek_cuda *hold; /* keeps the driver's context alive between scenes */
    ek_log_set(EK_LOG_WARN);
    if (argc > 2 && !strcmp(argv[1], "drafts")) return time_drafts(argv[2], argc > 3 ? atoi(argv[3]) : 0);
    if ((vulkan ? ek_gpu_driver_load_vulkan(&driver) : ek_gpu_driver_load(&driver)) ||
        ek_cuda_open(&hold, &driver.api, driver.modules, driver.built_with, 0, 0)) {
        printf("%s\n", ek_err_text());
        return 77;
    }
    printf("%s\n", ek_cuda_text(hold));
    for (int i = first; i < first + scenes; i++) {
        run_scene(i < N_CHECK_SCENES ? check_seed(i) : (uint64_t)(i - 3));
        if (i % 3 == 0) run_scene(check_seed(i % 27) | SCENE_SPANS);
        if (i % 3 == 1) run_scene(check_seed(i % 27) | SCENE_MEDIA);
        few_leaves = i % 5 == 4;
    }
    ek_cuda_enter(hold);
    ek_cuda_close(hold);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
