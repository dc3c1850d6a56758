/* What a step queues: the kernels, in what order, with which grids and arguments, of models of each kind in the shapes
 * that are published, in every sort of step. The hashes of the stored table (launches.def) change when a launch does;
 * no GPU is needed, and no weights: the driver (record.h) computes nothing.
 * `test_launches print` writes the table, `test_launches show MODEL` every launch of one of its models, and
 * `test_launches time` the microseconds of the host's processor that a step takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/allocated.h"
#include "../support/drafter.h"
#include "base/log.h"
#include "cuda/exchange_args.h"
#include "gpu/gpu.h"
#include "gpu/step/run.h"
#include "model/drafter.h"
#include "record.h"
#include "shapes.h"

enum { MAX_ROWS = 512, MAX_CTX = 4096, DEEP = 3000, SHALLOW = 300, MAX_LAYERS = 8 };
enum { N_PAGES = MAX_CTX / EK_PAGE_TOKENS + 1, MANY_ROWS = 8192 };

/* --- steps */

static int32_t pages[N_PAGES];
static ek_row rows[MANY_ROWS];
static ek_seq seqs[MAX_ROWS + 4];
static bool shown[MAX_ROWS + 4], digested[MAX_ROWS + 4];

static ek_seq seq_of(int tokens, int slot)
{
    const int n = (tokens + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    return (ek_seq){.page = {pages, pages}, .end = {n, n}, .slot = slot};
}

/* n rows, each of a request of its own at about that depth. */
static ek_step decode(const ek_model *m, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        rows[i] = ek_text_row(5, depth + i % 7, i, true, m->config.sliding_window);
        seqs[i] = seq_of(depth + i % 7 + 1, i);
    }
    return (ek_step){.row = rows, .n_rows = n, .seq = seqs, .n_seqs = n, .shown = shown, .digested = digested};
}

/* first rows of requests that reply, then n of a prompt from `from` on, of which the last `wanted` want logits. */
static ek_step prompt(const ek_model *m, int first, int n, int from, int wanted)
{
    ek_step s = decode(m, first, SHALLOW);
    for (int i = 0; i < n; i++)
        rows[first + i] = ek_text_row(5, from + i, first, i >= n - wanted, m->config.sliding_window);
    seqs[first] = seq_of(from + n, first);
    s.n_rows = first + n, s.n_seqs = first + 1;
    return s;
}

/* n rows of prompts of up to MAX_CTX tokens. */
static ek_step prompts(const ek_model *m, int n)
{
    ek_step s = {.row = rows, .n_rows = n, .seq = seqs, .shown = shown, .digested = digested};
    for (int i = 0; i < n; i++) {
        rows[i] = ek_text_row(5, i % MAX_CTX, i / MAX_CTX, false, m->config.sliding_window);
        seqs[i / MAX_CTX] = seq_of(i % MAX_CTX + 1, i / MAX_CTX);
    }
    s.n_seqs = rows[n - 1].seq + 1;
    return s;
}

enum { SCENES = 8, DRAFT = 7, ROW_COUNTS = 8 };
static const int row_counts[ROW_COUNTS] = {1, 2, 8, 16, 33, 64, 128, 512};
static const char *const scenes[SCENES] = {"decode", "deep", "prompt", "chunk", "all", "mixed", "later", "draft"};

static ek_step scene(const ek_model *m, int which, int n)
{
    switch (which) {
    case 0: return decode(m, n, SHALLOW);
    case 1: return decode(m, n, DEEP);
    case 2: return prompt(m, 0, n, 0, 1);
    case 3: return prompt(m, 0, n, 0, 0);
    case 4: return prompt(m, 0, n, 100, n);
    case 5: return prompt(m, 4, n > 1 ? n - 1 : n, 0, 1);
    default: return prompt(m, 1, n > 1 ? n - 1 : n, DEEP, 2);
    }
}

/* --- what they queue */

/* Twice a draft of n requests, after the scenes above. */
static uint32_t hash_of_draft(const ek_executor *on, int n)
{
    static int32_t token[MAX_ROWS][EK_DRAFT_MAX];
    static const int32_t history[40] = {0};
    static ek_draft draft[MAX_ROWS];
    recorded.hash = 0xcbf29ce484222325, recorded.launches = 0;
    for (int i = 0; i < n; i++) {
        seqs[i] = seq_of(40, i);
        draft[i] = (ek_draft){
            .seq = &seqs[i], .tokens = history, .n_tokens = 40, .logits = i, .max = 1 + i % 2, .token = token[i]};
    }
    if (recorded.out) fprintf(recorded.out, "# draft, %d rows\n", n);
    for (int i = 0; i < 2; i++) assert_int_equal(on->draft(on->draft_arg, draft, n), EK_OK);
    return (uint32_t)(recorded.hash ^ recorded.hash >> 32);
}

/* Each step twice, and of few rows thrice: queued, where all want logits made a graph of, and replayed. */
static uint32_t hash_of(const ek_executor *on, const ek_model *m, int which, int n)
{
    if (which == DRAFT) return hash_of_draft(on, n);
    recorded.hash = 0xcbf29ce484222325, recorded.launches = 0;
    for (int i = 0; i < (n > 128 ? 2 : 3); i++) {
        const ek_step s = scene(m, which, n);
        if (recorded.out) fprintf(recorded.out, "# %s, %d rows, time %d\n", scenes[which], n, i);
        assert_int_equal(on->step(on->arg, &s), EK_OK);
    }
    return (uint32_t)(recorded.hash ^ recorded.hash >> 32);
}

typedef struct opened {
    ek_model *m;
    ek_drafter *drafter;
    ek_gpu *g;
    ek_executor on;
} opened;

/* Buffers that take turns within a step: which of the two has what is no part of the order of launches. */
static void alias_pairs(const ek_gpu_run *x)
{
    record_alias(x->buf.acts < x->buf.acts2 ? x->buf.acts : x->buf.acts2,
                 x->buf.acts < x->buf.acts2 ? x->buf.acts2 : x->buf.acts,
                 (size_t)(x->buf.acts < x->buf.acts2 ? x->buf.acts2 - x->buf.acts : x->buf.acts - x->buf.acts2));
    record_alias(x->buf.operand[0], x->buf.operand[1], x->buf.operand_bytes);
}

static void open_drafter(opened *o, int centroids)
{
    static ek_config c;
    const ek_model_opts opts = {.cpu = o->m->cpu};
    drafter_config(&c, &o->m->config, centroids > 1 ? centroids : 0);
    assert_int_equal(ek_drafter_synthetic(&o->drafter, &c, 7, o->m, &opts), EK_OK);
    assert_int_equal(ek_gpu_add_drafter(o->g, o->drafter), EK_OK);
}

static opened open_with(const gpu_shape *s, int capability, int max_rows)
{
    opened o = {.m = open_shape(s)};
    static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    ek_gpu_driver d = {.modules = modules, .built_with = 13000};
    record_reset(&d.api, s->multiprocessors);
    record_capability(capability);
    assert_int_equal(ek_gpu_open(&o.g, &d, o.m, 0), EK_OK);
    if (s->host_table) o.g->w.table = (ek_gpu_matrix){0};
    if (s->drafter) open_drafter(&o, s->drafter);
    o.on = ek_gpu_executor(o.g);
    ek_executor_sizes z = {.max_rows = max_rows, .max_logits = MAX_ROWS, .max_ctx = MAX_CTX, .max_requests = MAX_ROWS};
    for (int k = 0; k < EK_PAGE_KINDS; k++) z.n_pages[k] = N_PAGES;
    assert_int_equal(o.on.open(o.on.arg, &z), EK_OK);
    alias_pairs(o.on.arg);
    if (s->drafter) alias_pairs(((ek_gpu_run *)o.on.arg)->drafter);
    return o;
}

static opened open_as(const gpu_shape *s, int capability)
{
    return open_with(s, capability, MAX_ROWS + 4);
}

static opened open_recorded(const gpu_shape *s)
{
    return open_as(s, 90);
}

static void close_recorded(opened *o)
{
    o->on.close(o->on.arg);
    ek_gpu_close(o->g);
    ek_drafter_close(o->drafter);
    close_shape(o->m);
}

/* --- the table */

static const gpu_shape shapes[] = {
    {"e2b q4.64", "e2b", 8, "q4.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"e2b q4.64, i12", "e2b", 8, "q4.64", NULL, EK_KV_I12, 0, 132, false, 0},
    {"e2b q4.64, embeddings on the host", "e2b", 8, "q4.64", NULL, EK_KV_Q8, 0, 132, true, 0},
    {"e2b q8.64", "e2b", 8, "q8.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"e2b bf16", "e2b", 8, "bf16", NULL, EK_KV_BF16, 0, 132, false, 0},
    {"e2b q4_0", "e2b", 8, "q4_0", "q6_k", EK_KV_F16, 0, 132, false, 0},
    {"e2b q4_k", "e2b", 8, "q4_k", NULL, EK_KV_Q8, 256, 132, false, 0},
    {"e2b q6_k", "e2b", 8, "q6_k", NULL, EK_KV_F16, 0, 132, false, 0},
    {"e2b nvfp4", "e2b", 8, "nvfp4", NULL, EK_KV_F16, 0, 132, false, 0},
    {"e4b q4.64", "e4b", 8, "q4.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"e4b q8_0", "e4b", 8, "q8_0", NULL, EK_KV_Q4, 0, 132, false, 0},
    {"12b q4.64", "12b", 6, "q4.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"12b q4.32", "12b", 6, "q4.32", "q8.64", EK_KV_F16, 0, 132, false, 0},
    {"12b q5_k", "12b", 6, "q5_k", NULL, EK_KV_I16, 0, 132, false, 0},
    {"26b q4.64", "26b", 6, "q4.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"26b q8.64", "26b", 6, "q8.64", NULL, EK_KV_Q8, 0, 132, false, 0},
    {"26b q4_0", "26b", 6, "q4_0", NULL, EK_KV_F16, 0, 132, false, 0},
    {"26b q4_0, i12", "26b", 6, "q4_0", NULL, EK_KV_I12, 0, 132, false, 0},
    {"26b q6_k", "26b", 6, "q6_k", NULL, EK_KV_F16, 0, 132, false, 0},
    {"26b bf16", "26b", 6, "bf16", NULL, EK_KV_F16, 0, 132, false, 0},
    {"31b q4.64", "31b", 6, "q4.64", NULL, EK_KV_F16, 0, 132, false, 0},
    {"31b q4.64, i12", "31b", 6, "q4.64", NULL, EK_KV_I12, 0, 132, false, 0},
    {"31b q4_0", "31b", 6, "q4_0", "q8_0", EK_KV_Q8, 0, 114, false, 0},
    {"Q1", "Q1", 0, "q4.32", NULL, EK_KV_F16, 0, 4, false, 1},
    {"Q2", "Q2", 0, "q4.64", NULL, EK_KV_I16, 0, 4, false, 0},
    {"Q3", "Q3", 0, "q8.64", NULL, EK_KV_F16, 0, 4, false, 0},
    {"T6", "T6", 0, "bf16", NULL, EK_KV_Q5_128, 256, 4, false, 11},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct {
    const char *name, *scene;
    uint32_t hash[ROW_COUNTS];
} stored[] = {
#define LAUNCHES(name, scene, ...) {name, scene, {__VA_ARGS__}},
#include "launches.def"
#undef LAUNCHES
};

static int scenes_of(const gpu_shape *s)
{
    return s->drafter ? SCENES : DRAFT;
}

/* How many rows of the table, from `at` on, are not what the model queues. */
static int compare(const opened *o, const gpu_shape *s, size_t at)
{
    int changed = 0;
    for (int k = 0; k < scenes_of(s); k++, at++) {
        assert_true(at + 1 <= sizeof stored / sizeof *stored);
        assert_string_equal(stored[at].name, s->name);
        assert_string_equal(stored[at].scene, scenes[k]);
        for (int r = 0; r < ROW_COUNTS; r++) {
            if (hash_of(&o->on, o->m, k, row_counts[r]) == stored[at].hash[r]) continue;
            print_message("%s, %s, %d rows: other launches than those stored\n", s->name, scenes[k], row_counts[r]);
            changed++;
        }
    }
    return changed;
}

static void every_step_queues_the_launches_that_are_stored(void **state)
{
    (void)state;
    int changed = 0;
    size_t at = 0;
    for (int i = 0; i < SHAPES; i++) {
        opened o = open_recorded(&shapes[i]);
        changed += compare(&o, &shapes[i], at);
        at += (size_t)scenes_of(&shapes[i]);
        close_recorded(&o);
    }
    assert_int_equal(at, sizeof stored / sizeof *stored);
    assert_int_equal(changed, 0);
}

/* Nothing is asked of a device that the code for it does not have (tools/cuda/registers), or that would not fit. */
static void other_devices_are_asked_for_what_they_have(void **state)
{
    (void)state;
    static const char *const of_80[] = {
#include "emulate/kernels_80.inc"
        NULL};
    static const char *const of_100[] = {
#include "emulate/kernels_100.inc"
        NULL};
    static const char *const of_120[] = {
#include "emulate/kernels_120.inc"
        NULL};
    static const struct {
        int capability;
        const char *const *kernels;
    } devices[] = {{80, of_80}, {120, of_120}, {86, of_80}, {100, of_100}};
    enum { DEVICES = sizeof devices / sizeof *devices };
    int lacking = 0;
    for (int i = 0; i < SHAPES; i++) {
        const int d = i % DEVICES;
        opened o = open_as(&shapes[i], devices[d].capability);
        const ek_cuda_chip *chip = ek_cuda_chip_of(o.g->c);
        recorded.kernels = devices[d].kernels, recorded.block_shared = chip->block_shared;
        recorded.clusters = chip->clusters;
        for (int k = 0; k < scenes_of(&shapes[i]); k++)
            for (int r = 0; r < ROW_COUNTS; r += 2) {
                recorded.lacks[0] = 0;
                hash_of(&o.on, o.m, k, row_counts[r + (k + i) % 2]);
                if (!recorded.lacks[0]) continue;
                print_message("%s, %s, %d rows, capability %d: %s\n", shapes[i].name, scenes[k],
                              row_counts[r + (k + i) % 2], devices[d].capability, recorded.lacks);
                lacking++;
            }
        close_recorded(&o);
    }
    assert_int_equal(lacking, 0);
}

/* No launch of a step of n rows of prompts has more blocks than the device takes. */
static void launches_fit(const gpu_shape *s, int capability, int n)
{
    opened o = open_with(s, capability, n);
    const ek_step step = prompts(o.m, n);
    recorded.limit[0] = '\0';
    assert_int_equal(o.on.step(o.on.arg, &step), EK_OK);
    if (recorded.limit[0]) print_message("%s, capability %d: %s\n", s->name, capability, recorded.limit);
    assert_true(!recorded.limit[0] && recorded.launches > 0);
    close_recorded(&o);
}

/* Of 8,192 rows experts have 65,536 pairs, one more than a launch has blocks in y. */
static void many_rows_are_no_more_blocks_than_a_launch_has(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SHAPES; i++)
        if (!strncmp(shapes[i / 2].name, "26b", 3)) launches_fit(&shapes[i / 2], i % 2 ? 80 : 90, MANY_ROWS);
}

/* A plain device may have no more in x, where attention in floats has a block per segment of two queries. */
static void attention_is_no_more_blocks_than_a_plain_device_has(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        if (!strcmp(shapes[i].name, "26b q4.64") || !strcmp(shapes[i].name, "31b q4.64"))
            launches_fit(&shapes[i], EK_CUDA_PLAIN, 2048);
}

/* As one of several devices whose outputs are cut, of which the others are it again. */
static void shard(opened *o)
{
    enum { RANKS = 3 };
    ek_gpu_run *x = o->on.arg;
    o->g->share.shard = (ek_gpu_shard){.rank = 1, .ranks = RANKS, .whole_o = true};
    for (int r = 0; r < RANKS; r++) x->exchange.peer[r] = x;
    for (int i = 0; i < o->m->config.n_layers; i++) o->g->w.layer[i].o_part = o->g->w.layer[i].o;
    x->exchange.gathered = x->buf.acts, x->exchange.pair_gathered = x->experts.pair_out,
    x->exchange.landing_bytes = EK_CUDA_LANDING_BYTES;
}

static void experts_are_read_when_they_have_been_found(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        const gpu_shape *s = &shapes[i / 2];
        if (strncmp(s->name, "26b", 3) != 0) continue;
        opened o = open_recorded(s);
        if (i % 2) shard(&o);
        for (int r = 0; r < ROW_COUNTS; r++) hash_of(&o.on, o.m, 0, row_counts[r]);
        if (recorded.early[0]) print_message("%s, %s: %s\n", s->name, i % 2 ? "cut" : "whole", recorded.early);
        assert_string_equal(recorded.early, "");
        assert_true(recorded.known > 0 || strcmp(s->type, "q4.64") != 0);
        close_recorded(&o);
    }
}

/* Prompts of so many lengths that there is no room for all their recipes. */
static void recipes_are_forgotten_and_written_again_in_memory_that_is_there(void **state)
{
    (void)state;
    enum { WHICH = 0 };
    opened o = open_recorded(&shapes[WHICH]);
    for (int n = 2; n <= MAX_ROWS; n++) {
        const ek_step s = scene(o.m, 2, n);
        const int before = allocated();
        assert_int_equal(o.on.step(o.on.arg, &s), EK_OK);
        assert_int_equal(allocated(), before);
    }
    assert_int_equal(compare(&o, &shapes[WHICH], 0), 0);
    close_recorded(&o);
}

static void print_table(void)
{
    for (int i = 0; i < SHAPES; i++) {
        opened o = open_recorded(&shapes[i]);
        for (int k = 0; k < scenes_of(&shapes[i]); k++) {
            printf("LAUNCHES(\"%s\", \"%s\"", shapes[i].name, scenes[k]);
            for (int r = 0; r < ROW_COUNTS; r++) printf(", 0x%08x", hash_of(&o.on, o.m, k, row_counts[r]));
            printf(")\n");
        }
        close_recorded(&o);
    }
}

static void show(const char *name)
{
    for (int i = 0; i < SHAPES; i++) {
        if (strcmp(shapes[i].name, name) != 0) continue;
        opened o = open_recorded(&shapes[i]);
        recorded.out = stdout;
        for (int k = 0; k < scenes_of(&shapes[i]); k++)
            for (int r = 0; r < ROW_COUNTS; r++) hash_of(&o.on, o.m, k, row_counts[r]);
        close_recorded(&o);
    }
}

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* What the host takes for a step: the shortest of rounds of ten. */
static void print_times(void)
{
    for (int i = 0; i < SHAPES; i++) {
        opened o = open_recorded(&shapes[i]);
        recorded.off = true;
        printf("%-36s", shapes[i].name);
        for (int k = 0; k < DRAFT; k++)
            for (int r = 2; r < ROW_COUNTS; r += 5) {
                double best = 1e9;
                for (int round = 0; round < 9; round++) {
                    const double from = cpu_us();
                    for (int n = 0; n < 10; n++) {
                        const ek_step s = scene(o.m, k, row_counts[r]);
                        assert_int_equal(o.on.step(o.on.arg, &s), EK_OK);
                    }
                    const double us = (cpu_us() - from) / 10;
                    if (round && us < best) best = us;
                }
                printf(" %s %d: %.0f", scenes[k], row_counts[r], best);
            }
        printf("\n");
        close_recorded(&o);
    }
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    for (int i = 0; i < N_PAGES; i++) pages[i] = i;
    if (argc == 2 && strcmp(argv[1], "print") == 0) {
        print_table();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "time") == 0) {
        print_times();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "show") == 0) {
        show(argv[2]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_queues_the_launches_that_are_stored),
        cmocka_unit_test(other_devices_are_asked_for_what_they_have),
        cmocka_unit_test(many_rows_are_no_more_blocks_than_a_launch_has),
        cmocka_unit_test(attention_is_no_more_blocks_than_a_plain_device_has),
        cmocka_unit_test(experts_are_read_when_they_have_been_found),
        cmocka_unit_test(recipes_are_forgotten_and_written_again_in_memory_that_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
