/* The executor of a device with its real kernels, which run on the CPU (tests/emulate): requests in company get the
 * logits that they get alone from the CPU's executor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/files.h"
#include "../support/gguf_model.h"
#include "../support/mlx.h"
#include "../support/nodes.h"
#include "base/machine/cpu.h"
#include "cuda/product/product.h"
#include "emulated.h"
#include "engine/trace.h"
#include "gpu/gpu.h"
#include "gpu/weights/weights.h"

static void run(const ek_executor *on, const ek_ask *ask, int n, int chunk, ek_trace *out)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = 2, o.chunk = chunk, o.ctx_tokens = 450;
    assert_int_equal(ek_engine_open_on(&e, on, &o), EK_OK);
    assert_int_equal(ek_trace_run(e, ask, n, out), EK_OK);
    ek_engine_close(e);
}

/* Every third token may follow, of another residue for each token of the reply; no drafts. */
typedef struct thirds {
    int vocab_size, n;
} thirds;

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const thirds *t = arg;
    (void)draft, (void)n_draft;
    all[0] = false;
    memset(row, 0, sizeof *row * (size_t)ek_mask_words(t->vocab_size));
    for (int v = t->n % 3; v < t->vocab_size; v += 3) row[v / 64] |= (uint64_t)1 << v % 64;
    return 0;
}

/* Its row is then made beside the forward pass; but for the second token. */
static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    const thirds *t = arg;
    (void)draft, (void)n_draft;
    all[0] = false;
    return t->n == 1 ? -1 : 0;
}

static void accept(void *arg, int32_t token)
{
    thirds *t = arg;
    assert_int_equal(token % 3, t->n % 3);
    t->n++;
}

static void compare_traces(const char *shape, ek_trace *want, ek_trace *got, int n)
{
    char where[256];
    for (int i = 0; i < n; i++) {
        bool same = ek_trace_same(&want[i], &got[i], where, sizeof where);
        if (!same) print_message("%s, request %d: %s\n", shape, i, where);
        assert_true(same);
        ek_trace_fini(&want[i]), ek_trace_fini(&got[i]);
    }
}

static void (*tune)(ek_cuda *c); /* of the devices that compare_model opens */

/* m: opened for it, closed behind it. table: per-layer embeddings lie on the device, if there are any. */
static void compare_model(ek_model *m, const char *shape, bool table, int prompt)
{
    const ek_config c = *ek_model_config(m);
    static int32_t tokens[2][300];
    ek_gpu *g;
    ek_ask ask[2];
    ek_trace want[2], got[2];
    thirds third = {c.vocab_size, 0};
    const ek_mask mask = {&third, look, accept, peek};
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < prompt; t++) tokens[i][t] = (t * 7 + i * 3 + 5) % c.vocab_size;
        ask[i] = (ek_ask){.tokens = tokens[i],
                          .n_tokens = i ? prompt / 2 + 1 : prompt,
                          .max_tokens = 4,
                          .prompt_logits_from = i ? 1 : prompt,
                          .ignore_eos = true,
                          .sampling = ek_sampling_greedy()};
    }
    ask[1].sampling.temperature = 1, ask[1].sampling.repetition_penalty = 1.5f, ask[1].sampling.top_k = 9;
    ask[1].mask = &mask;
    ek_executor cpu = ek_executor_cpu(m);
    run(&cpu, &ask[0], 1, 64, &want[0]);
    cpu = ek_executor_cpu(m);
    run(&cpu, &ask[1], 1, 64, &want[1]);
    ek_gpu_driver d = emulated();
    d.tune = tune;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    assert_true((g->w.table.l.n > 0) == (c.per_layer_size > 0));
    if (!table) g->w.table = (ek_gpu_matrix){0}; /* as if it did not fit: a synthetic one has no memory */
    ek_executor device = ek_gpu_executor(g);
    third.n = 0;
    run(&device, ask, 2, 64, got);
    compare_traces(shape, want, got, 2);
    ek_gpu_close(g);
    ek_model_close(m);
}

/* One family a million times as fast as it is, each in turn, and the others as slow. */
static int favourite;
static char chosen[EK_CUDA_FAMILIES][EK_CUDA_NAME];

static void set_absurd_times(ek_cuda *c)
{
    ek_cuda_times t = *ek_cuda_chip_of(c)->us;
    for (int f = 0; f < EK_CUDA_FAMILIES; f++) ek_cuda_times_scale(&t, (ek_cuda_family)f, f == favourite ? 1e-6 : 1e6);
    ek_cuda_set_times(c, &t);
    const ek_weight_type *type;
    ek_linear w;
    ek_cuda_linear l;
    assert_int_equal(ek_weight_type_affine(&type, 4, 64, EK_BF16, true), EK_OK);
    assert_int_equal(ek_linear_plan(&w, 0, 256, 512, type), EK_OK);
    assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){1, 64}), EK_OK);
    assert_int_equal(ek_cuda_linear_plan(&l, &w), EK_OK);
    const ek_cuda_product p = ek_cuda_product_plan(&l, 40, ek_cuda_chip_of(c), 0);
    memcpy(chosen[favourite], p.name, sizeof p.name);
}

static void absurd_times_change_kernels_and_no_bit(void **state)
{
    (void)state;
    static const ek_cuda_family families[] = {EK_CUDA_TILE, EK_CUDA_WARP_64, EK_CUDA_MID};
    static ek_config c;
    enum { N = sizeof families / sizeof *families };
    assert_int_equal(ek_config_tiny(&c, "Q1"), EK_OK);
    tune = set_absurd_times;
    for (int i = 0; i < N; i++) {
        const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16};
        ek_model *m;
        favourite = families[i];
        assert_int_equal(ek_model_synthetic(&m, &c, 4, 5, &o), EK_OK);
        compare_model(m, "Q1", true, 60);
        for (int k = 0; k < i; k++) assert_string_not_equal(chosen[favourite], chosen[families[k]]);
    }
    tune = NULL;
}

typedef struct counted {
    ek_executor inner;
    int ahead, begun, late;
} counted;

static counted count;

static ek_err count_ahead(void *arg, const ek_step *s)
{
    count.ahead += s->follows != NULL;
    return count.inner.begin(arg, s);
}

static ek_err count_late(void *arg, const ek_step *s)
{
    count.late++;
    return count.inner.draw(arg, s);
}

/* Steps that begin before the tokens in front of them are known: three requests that come at other times, two at once.
 * late: one of them has a mask and penalties, another one's logits are read, so that their draws come later. */
static void compare_ahead(const char *shape, int bits, bool late, ek_model_opts o)
{
    static ek_config c;
    static int32_t tokens[3][80];
    ek_model *m;
    ek_gpu *g;
    ek_ask ask[3];
    ek_trace want[3], got[3];
    thirds third;
    const ek_mask mask = {&third, look, accept, peek};
    o.cpu = ek_cpu_detect();
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < 80; t++) tokens[i][t] = (t * 7 + i * 3 + 5) % c.vocab_size;
        ask[i] = (ek_ask){.tokens = tokens[i],
                          .n_tokens = 58 + i * 5, /* one crosses into the next page */
                          .max_tokens = 6 + i * 3,
                          .prompt_logits_from = 80,
                          .ignore_eos = true,
                          .arrive = i * 2,
                          .digests = true,
                          .sampling = ek_sampling_greedy()};
        ask[i].sampling.temperature = (float)i, ask[i].sampling.top_k = i == 1 ? 9 : 0;
        if (late && i == 1) ask[i].mask = &mask, ask[i].sampling.repetition_penalty = 1.5f;
        if (late && i == 2) ask[i].digests = false;
        third = (thirds){c.vocab_size, 0};
        ek_executor cpu = ek_executor_cpu(m);
        run(&cpu, &ask[i], 1, 64, &want[i]);
    }
    ek_gpu_driver d = emulated();
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    count = (counted){.inner = ek_gpu_executor(g)};
    ek_executor device = count.inner;
    device.begin = count_ahead, device.draw = count_late;
    third.n = 0;
    run(&device, ask, 3, 64, got);
    assert_true(count.ahead > 8 && (count.late > 5) == late);
    compare_traces(shape, want, got, 3);
    ek_gpu_close(g);
    ek_model_close(m);
}

static void steps_begin_ahead(void **state)
{
    (void)state;
    compare_ahead("Q1", 4, false, (ek_model_opts){.k_format = EK_KV_F16, .v_format = EK_KV_F16});
    compare_ahead("Q3", 4, false, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I12});
    compare_ahead("T2", 0, false, (ek_model_opts){.k_format = EK_KV_Q8, .v_format = EK_KV_Q8});
    compare_ahead("Q1", 4, true, (ek_model_opts){.k_format = EK_KV_F16, .v_format = EK_KV_F16});
    compare_ahead("Q3", 4, true, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I12});
    compare_ahead("T2", 0, true, (ek_model_opts){.k_format = EK_KV_Q8, .v_format = EK_KV_Q8});
}

/* --- prompts with pictures */

static int rows_hidden;

static ek_err begin_rows(void *arg, const ek_media *m, float *rows)
{
    (void)arg;
    for (int i = 0; i < m->tokens * rows_hidden; i++)
        rows[i] = (float)((i * 37 + m->digest[0] * 11) % 101 - 50) / 50.0f;
    return EK_OK;
}

static ek_err end_rows(void *arg, double macs, bool *done)
{
    (void)arg, (void)macs;
    *done = true;
    return EK_OK;
}

/* Alone on the CPU in one step, and together on the device in small chunks. everywhere: the rows of an image see each
 * other in full layers too, and past the window. */
static void compare_pictures(const char *shape, int bits, bool mutual, bool everywhere)
{
    enum { TOKENS = 20, PROMPT = 75, AT = 30 };
    static ek_config c;
    static int32_t tokens[2][PROMPT];
    ek_model *m;
    ek_gpu *g;
    ek_ask ask[2];
    ek_trace want[2], got[2];
    ek_media image[2] = {{.tokens = TOKENS, .digest = {1}, .refs = 9}, {.tokens = TOKENS, .digest = {2}, .refs = 9}};
    ek_part part[2] = {{&image[0], AT}, {&image[1], AT}};
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_I12, .v_format = EK_KV_I12};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    c.mutual = mutual, c.media.soft[EK_PART_IMAGE] = c.vocab_size - 1;
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    rows_hidden = c.hidden_size;
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < PROMPT; t++)
            tokens[i][t] = t >= AT && t < AT + TOKENS ? c.vocab_size - 1 : (t * 7 + 5) % (c.vocab_size - 1);
        ask[i] = (ek_ask){.tokens = tokens[i],
                          .n_tokens = PROMPT,
                          .max_tokens = 3,
                          .part = &part[i],
                          .n_parts = 1,
                          .ignore_eos = true,
                          .sampling = ek_sampling_greedy()};
    }
    const ek_encoder encoder = {.takes = {true},
                                .everywhere = everywhere,
                                .max_tokens = TOKENS,
                                .row_macs = 1,
                                .begin = begin_rows,
                                .advance = end_rows};
    for (int i = 0; i < 2; i++) {
        ek_executor cpu = ek_executor_cpu(m);
        cpu.encoder = encoder;
        run(&cpu, &ask[i], 1, PROMPT, &want[i]);
    }
    assert_true(want[0].row[PROMPT - 1] != want[1].row[PROMPT - 1]);
    ek_gpu_driver d = emulated();
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_executor device = ek_gpu_executor(g);
    device.encoder = encoder;
    run(&device, ask, 2, 9, got);
    compare_traces(shape, want, got, 2);
    ek_gpu_close(g);
    ek_model_close(m);
}

static void pictures(void **state)
{
    (void)state;
    compare_pictures("T1", 0, false, false);
    compare_pictures("T2", 0, true, false);
    compare_pictures("T2", 0, true, true);
    compare_pictures("Q2", 4, true, true);
}

static void compare(const char *shape, int bits, ek_model_opts o, bool table, int prompt)
{
    static ek_config c;
    ek_model *m;
    o.cpu = ek_cpu_detect();
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    compare_model(m, shape, table, prompt);
}

static void compare_gguf(const char *shape, uint32_t type, ek_activations activations, ek_kv_format kv, int prompt)
{
    static ek_config c;
    char *dir = temp_dir(), path[512];
    ek_model *m;
    ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = kv, .v_format = kv, .activations = activations};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    write_gguf(dir, "m.gguf", &c, &(gguf_opts){.type = type}, NULL);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    assert_int_equal(ek_model_open(&m, path, &o), EK_OK);
    compare_model(m, shape, true, prompt);
    remove_dir(dir);
}

/* --- groups of 32 beside groups of 64 */

enum { MULTIPROCESSORS = 40 };

static CUresult many_multiprocessors(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = attribute == EK_CU_ATTR_MAJOR ? 9 : attribute == EK_CU_ATTR_MINOR ? 0 : MULTIPROCESSORS;
    return EK_CU_OK;
}

/* One layer whose q has groups of 32, and whose k, which are values too, has groups of 64: the stage in front writes
 * records in groups of 32 and, from 256 rows on, might write an image for k. k reads an image where that is faster: as
 * small as that may be on a device of many multiprocessors. */
static void rows_for_groups_of_32_leave_no_image_for_others(void **state)
{
    (void)state;
    enum { ROWS = 385 };
    static ek_config c;
    static int32_t tokens[ROWS];
    char *dir = temp_dir(), *floats = temp_dir(), where[256];
    const mlx_opts mlx = {.bits = 4, .group = 32, .prefix = "model.", .scale_type = "BF16", .other = "k_proj", 8, 64};
    const ek_model_opts mo = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16};
    ek_model *m;
    ek_gpu *g;
    ek_trace want, got;
    assert_int_equal(ek_config_tiny(&c, "Q3"), EK_OK);
    c.hidden_size = 1024, c.n_heads = 2, c.n_layers = c.first_shared = 1;
    c.layer[0] = (ek_layer_config){
        .kind = EK_FULL, .k_eq_v = true, .head_dim = 512, .n_kv_heads = 2, .intermediate_size = 64};
    assert_int_equal(ek_config_finish(&c), EK_OK);
    write_mlx(dir, floats, &c, &mlx);
    remove_dir(floats);
    assert_int_equal(ek_model_open(&m, dir, &mo), EK_OK);
    for (int t = 0; t < ROWS; t++) tokens[t] = (t * t * 7 + 5) % c.vocab_size;
    const ek_ask ask = {.tokens = tokens,
                        .n_tokens = ROWS,
                        .max_tokens = 1,
                        .prompt_logits_from = 0, /* else q would read other rows than k */
                        .ignore_eos = true,
                        .sampling = ek_sampling_greedy()};
    const ek_executor cpu = ek_executor_cpu(m);
    run(&cpu, &ask, 1, ROWS, &want);
    ek_gpu_driver d = emulated();
    d.api.cuDeviceGetAttribute = many_multiprocessors;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    const ek_gpu_layer *w = &g->w.layer[0];
    assert_int_equal(w->q.l.a_group, 32);
    const ek_cuda_chip chip = ek_cuda_chip_like(90, MULTIPROCESSORS);
    assert_true(ek_cuda_product_plan(&w->k.l, ROWS, &chip, 0).operand > 0);
    assert_true(ek_cuda_product_plan(&w->k.l, ROWS, &chip, 1 << 26).operand > 0);
    const ek_executor device = ek_gpu_executor(g);
    run(&device, &ask, 1, ROWS, &got);
    const bool same = ek_trace_same(&want, &got, where, sizeof where);
    if (!same) print_message("%s\n", where);
    assert_true(same);
    ek_trace_fini(&want), ek_trace_fini(&got);
    ek_gpu_close(g);
    ek_model_close(m);
    remove_dir(dir);
}

static void compare_head(const char *shape, int bits, ek_model_opts o, uint32_t gguf)
{
    static ek_config c;
    char *dir = temp_dir(), path[512];
    ek_model *m;
    o.cpu = ek_cpu_detect(), o.k_format = o.v_format = EK_KV_F16;
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    c.own_head = true;
    write_gguf(dir, "m.gguf", &c, &(gguf_opts){.type = gguf, .head = 2}, NULL);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    assert_int_equal(bits < 0 ? ek_model_open(&m, path, &o) : ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    assert_int_equal(ek_model_config(m)->own_head, true);
    compare_model(m, shape, true, 40);
    remove_dir(dir);
}

/* Another matrix than the table that tokens are looked up in. */
static void a_head_of_its_own_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    compare_head("T2", 0, (ek_model_opts){0}, GGUF_F32);
    compare_head("T1", 0, (ek_model_opts){.quantise = true}, GGUF_F32);
    compare_head("Q1", 4, (ek_model_opts){0}, GGUF_F32);
    compare_head("Q2", 8, (ek_model_opts){.exact = true}, GGUF_F32);
    compare_head("Q1", -1, (ek_model_opts){0}, GGUF_Q8_0);
}

/* `make check` runs one small scene of each family of kernels, `make check-release` all of them. */
static bool few_scenes(void)
{
    const char *tier = getenv("TIER");
    return tier && strcmp(tier, "release") != 0;
}

static void requests_together_have_the_bits_of_the_cpu_alone(void **state)
{
    (void)state;
    ek_pool *pool; /* weights in two parts: a machine with a device often has two nodes */
    char *root = make_nodes((const char *const[]){ALL_CPUS, ALL_CPUS}, 2);
    assert_int_equal(ek_pool_open_nodes(&pool, 2, root), EK_OK);
    remove_nodes(root);
    compare("Q1", 4, (ek_model_opts){.k_format = EK_KV_I16, .v_format = EK_KV_I16, .pool = pool}, false, 9);
    compare("Q2", 4, (ek_model_opts){.k_format = EK_KV_F16, .v_format = EK_KV_F16}, true, 9);
    if (!few_scenes()) compare("Q4", 4, (ek_model_opts){.k_format = EK_KV_F16, .v_format = EK_KV_F16}, false, 9);
    compare("T1", 0, (ek_model_opts){.k_format = EK_KV_Q8, .v_format = EK_KV_Q5_128, .pool = pool}, true, 5);
    ek_pool_close(pool);
}

static void files_with_their_own_scales_too(void **state)
{
    (void)state;
    compare_gguf("Q1", GGUF_Q4_0, EK_ACTIVATIONS_AUTO, EK_KV_I12, 20);
    compare_gguf("Q2", GGUF_Q4_0, EK_ACTIVATIONS_AUTO, EK_KV_F16, 9); /* experts beside the dense MLP */
    if (few_scenes()) return;
    compare_gguf("Q2", GGUF_Q8_0, EK_ACTIVATIONS_8, EK_KV_Q8, 9);
    compare_gguf("Q1", GGUF_NVFP4, EK_ACTIVATIONS_AUTO, EK_KV_F16, 20);
    compare_gguf("Q4", GGUF_Q4_0, EK_ACTIVATIONS_AUTO, EK_KV_F16, 9);
    compare_gguf("T1", GGUF_BF16, EK_ACTIVATIONS_AUTO, EK_KV_F16, 9);
}

static void first_positions_may_have_a_format_of_their_own(void **state)
{
    (void)state;
    compare("Q1", 4, (ek_model_opts){.k_format = EK_KV_Q6, .v_format = EK_KV_Q3_64, .kv_start = EK_SEGMENT}, false,
            262);
    compare("Q1", 4, (ek_model_opts){.k_format = EK_KV_F32, .v_format = EK_KV_Q4, .kv_start = EK_SEGMENT}, true, 258);
}

static void keys_and_values_may_be_integers(void **state)
{
    (void)state;
    compare("Q1", 4, (ek_model_opts){.k_format = EK_KV_I8, .v_format = EK_KV_I8, .kv_start = EK_SEGMENT}, true, 262);
    compare("T1", 0, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I12}, true, 290);
    compare("Q2", 4, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I8}, true, 90);
    compare("Q3", 4, (ek_model_opts){.k_format = EK_KV_I8, .v_format = EK_KV_I12}, true, 280); /* in one launch */
}

/* --- a page that was not copied */

static CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
static int copies, fail_copy;

static CUresult count_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return ++copies == fail_copy ? EK_CU_OUT_OF_MEMORY : copy(to, from, bytes, stream);
}

/* The second request begins in the middle of a page of the first. If one of the two copies that this takes (full and
 * sliding layers) fails, by an error that passes, the request must not be answered without it. */
static void a_page_that_is_not_copied_ends_in_an_error(void **state)
{
    (void)state;
    static ek_config c;
    static int32_t tokens[2][110];
    ek_model *m;
    ek_gpu *g;
    ek_ask ask[2];
    ek_trace want[2], got[2];
    char where[256];
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16};
    assert_int_equal(ek_config_tiny(&c, "Q1"), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, 4, 5, &o), EK_OK);
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < 110; t++) tokens[i][t] = (t * 7 + (t > 100 ? i * 3 : 0) + 5) % c.vocab_size;
        ask[i] = (ek_ask){.tokens = tokens[i],
                          .n_tokens = 110,
                          .max_tokens = 4,
                          .prompt_logits_from = 110,
                          .ignore_eos = true,
                          .arrive = i * 12,
                          .sampling = ek_sampling_greedy()};
        ek_executor cpu = ek_executor_cpu(m);
        run(&cpu, &ask[i], 1, 64, &want[i]);
    }
    ek_gpu_driver d = emulated();
    copy = d.api.cuMemcpyDtoDAsync, d.api.cuMemcpyDtoDAsync = count_copy;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    for (fail_copy = 0; fail_copy < 3; fail_copy++) {
        copies = 0;
        ek_executor device = ek_gpu_executor(g);
        run(&device, ask, 2, 64, got);
        assert_int_equal(copies, 2);
        assert_true(ek_trace_same(&want[0], &got[0], where, sizeof where));
        assert_int_equal(got[1].n_cached, 101);
        if (fail_copy) {
            assert_int_equal(got[1].finish, EK_FINISH_ERROR);
            assert_int_equal(got[1].n_reply, 0);
            assert_non_null(strstr(got[1].text, "copying on the device"));
        } else {
            assert_true(ek_trace_same(&want[1], &got[1], where, sizeof where));
        }
        ek_trace_fini(&got[0]), ek_trace_fini(&got[1]);
    }
    ek_trace_fini(&want[0]), ek_trace_fini(&want[1]);
    ek_gpu_close(g);
    ek_model_close(m);
}

/* --- draws that need more candidates in order than are sorted at once */

static ek_err count_begun(void *arg, const ek_step *s)
{
    count.begun++;
    return count_ahead(arg, s);
}

static ek_err never_alone(void *arg, const ek_step *s)
{
    (void)arg, (void)s;
    return ek_fail(EK_EINTERNAL, "a step was run again");
}

/* Such a draw is no reason to compute the step of all, and the one begun behind it, again. */
static void draws_of_many_candidates_are_in_the_step(void **state)
{
    (void)state;
    static ek_config c;
    static int32_t tokens[2][20];
    ek_model *m;
    ek_gpu *g;
    ek_ask ask[2];
    ek_trace want[2], got[2];
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16};
    static const struct {
        int top_k;
        float top_p, min_p;
    } limit[] = {{64, 1, 0}, {1500, 0.99f, 0}, {0, 0.9999f, 0}, {0, 1, 1e-6f}};
    assert_int_equal(ek_config_tiny(&c, "Q1"), EK_OK);
    c.vocab_size = 4096;
    if (c.per_layer_size) c.vocab_size_per_layer = 4096;
    assert_int_equal(ek_config_finish(&c), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, 4, 5, &o), EK_OK);
    ek_gpu_driver d = emulated();
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    for (size_t k = 0; k < sizeof limit / sizeof *limit; k++) {
        for (int i = 0; i < 2; i++) {
            for (int t = 0; t < 20; t++) tokens[i][t] = (t * 7 + i * 3 + 5) % c.vocab_size;
            ask[i] = (ek_ask){.tokens = tokens[i],
                              .n_tokens = 20,
                              .max_tokens = 8,
                              .prompt_logits_from = 20,
                              .ignore_eos = true,
                              .digests = true,
                              .sampling = ek_sampling_greedy()};
            if (i) ask[i].sampling.temperature = 2, ask[i].sampling.top_k = limit[k].top_k;
            if (i) ask[i].sampling.top_p = limit[k].top_p, ask[i].sampling.min_p = limit[k].min_p;
            ek_executor cpu = ek_executor_cpu(m);
            run(&cpu, &ask[i], 1, 64, &want[i]);
        }
        count = (counted){.inner = ek_gpu_executor(g)};
        ek_executor device = count.inner;
        device.begin = count_begun, device.step = never_alone;
        run(&device, ask, 2, 64, got);
        assert_int_equal(count.begun, 8);
        assert_int_equal(count.ahead, 7);
        compare_traces("Q1", want, got, 2);
    }
    ek_gpu_close(g);
    ek_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_together_have_the_bits_of_the_cpu_alone),
        cmocka_unit_test(files_with_their_own_scales_too),
        cmocka_unit_test(a_head_of_its_own_has_the_bits_of_the_cpu),
        cmocka_unit_test(first_positions_may_have_a_format_of_their_own),
        cmocka_unit_test(keys_and_values_may_be_integers),
        cmocka_unit_test(absurd_times_change_kernels_and_no_bit),
        cmocka_unit_test(steps_begin_ahead),
        cmocka_unit_test(pictures),
        cmocka_unit_test(a_page_that_is_not_copied_ends_in_an_error),
        cmocka_unit_test(draws_of_many_candidates_are_in_the_step),
        cmocka_unit_test(rows_for_groups_of_32_leave_no_image_for_others),
    };
    static const struct CMUnitTest few[] = {
        cmocka_unit_test(requests_together_have_the_bits_of_the_cpu_alone),
        cmocka_unit_test(files_with_their_own_scales_too),
    };
    return few_scenes() ? cmocka_run_group_tests(few, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
