/* One way of opening a model: what the plain struct opens is what its parts opened by hand are, zero is the default of
 * every field, and a wrong value of any field is one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "engine/trace.h"
#include "open/device.h"
#include "open/open.h"
#include "vulkan/vulkan.h"

#define POCKET "models/pocket"

static const int32_t prompt[] = {2, 105, 2364, 107, 3689, 563};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, REPLY = 12 };

/* Small, so that a test takes no memory to speak of. */
static ek_open_opts small(void)
{
    return (ek_open_opts){.model = POCKET, .device = "cpu", .max_requests = 2, .ctx_tokens = 256};
}

static void run(ek_engine *e, ek_trace *out)
{
    const ek_ask ask = {.tokens = prompt,
                        .n_tokens = N_PROMPT,
                        .max_tokens = REPLY,
                        .ignore_eos = true,
                        .sampling = ek_sampling_greedy()};
    assert_int_equal(ek_trace_run(e, &ask, 1, out), EK_OK);
    assert_int_equal(out->finish, EK_FINISH_LENGTH);
    assert_int_equal(out->n_reply, REPLY);
}

/* The parts opened one by one. */
static void run_by_hand(ek_trace *out, const char *kv)
{
    ek_model *m;
    ek_engine *e;
    ek_model_opts model = {.cpu = ek_cpu_detect()};
    ek_engine_opts engine = ek_engine_defaults();
    assert_int_equal(ek_kv_format_parse(kv, &model.k_format, &model.v_format), EK_OK);
    assert_int_equal(ek_model_open(&m, POCKET, &model), EK_OK);
    engine.max_requests = 1, engine.ctx_tokens = 256;
    assert_int_equal(ek_engine_open(&e, m, &engine), EK_OK);
    run(e, out);
    ek_engine_close(e);
    ek_model_close(m);
}

static void check_same(const ek_open_opts *o, const char *kv)
{
    char where[160] = "";
    ek_opened m;
    ek_trace want, got;
    run_by_hand(&want, kv);
    assert_int_equal(ek_open(&m, o), EK_OK);
    run(m.engine, &got);
    if (!ek_trace_same(&want, &got, where, sizeof where)) fail_msg("%s", where);
    ek_trace_fini(&want), ek_trace_fini(&got);
    ek_opened_close(&m);
    assert_null(m.model);
}

static void it_gives_the_logits_of_its_parts(void **state)
{
    (void)state;
    ek_open_opts o = small();
    check_same(&o, "i12");
    o.threads = 3, o.chunk = 4, o.isa = "scalar", o.draft = "ngram";
    check_same(&o, "i12");
    o = small();
    o.kv = "8:4", o.draft = "off";
    check_same(&o, "8:4");
    o.kv = "f16";
    check_same(&o, "f16");
}

static void zero_is_the_default(void **state)
{
    (void)state;
    const ek_open_opts zero = {0};
    ek_model_opts model;
    ek_engine_opts engine = ek_open_engine_opts(&zero);
    assert_int_equal(ek_open_check(&zero), EK_OK);
    assert_int_equal(ek_open_model_opts(&zero, &model), EK_OK);
    assert_int_equal(model.k_format, EK_KV_I12);
    assert_int_equal(model.v_format, EK_KV_I12);
    assert_int_equal(model.cpu, ek_cpu_detect());
    assert_false(model.exact || model.quantise);
    assert_int_equal(engine.max_requests, 16);
    assert_int_equal(engine.max_queue, 256);
    assert_int_equal(engine.chunk, 512);
    assert_int_equal(engine.draft, EK_DRAFT_AUTO);
    assert_int_equal(engine.draft_max, 8);
    assert_true(isinf(engine.cache_bytes));

    const ek_open_opts none = {.max_queue = EK_OPEN_NONE, .cache_bytes = EK_OPEN_NONE};
    engine = ek_open_engine_opts(&none);
    assert_int_equal(engine.max_queue, 0);
    assert_true(engine.cache_bytes == 0);
}

/* --- drafter, chat, cache, device --- */

/* Before, any failure was taken for a device without room. */
static void auto_leaves_a_device_for_its_room_alone(void **state)
{
    (void)state;
    ek_device d;
    assert_int_equal(ek_device_parse(&d, "auto"), EK_OK);
    assert_true(ek_device_may_leave(&d, EK_ENOMEM));
    assert_true(ek_device_may_leave(&d, EK_EUNSUPPORTED)); /* no driver, or a device that it cannot use */
    assert_false(ek_device_may_leave(&d, EK_EBUSY));
    assert_false(ek_device_may_leave(&d, EK_EIO));
    assert_false(ek_device_may_leave(&d, EK_EFORMAT));
    assert_false(ek_device_may_leave(&d, EK_EINTERNAL));
    assert_int_equal(ek_device_parse(&d, "cuda"), EK_OK);
    assert_false(ek_device_may_leave(&d, EK_ENOMEM));
}

static bool has_drafter(const char *draft)
{
    ek_opened m;
    ek_open_opts o = small();
    o.drafter = "models/pocket-drafter", o.draft = draft;
    assert_int_equal(ek_open_model(&m, &o), EK_OK);
    const bool has = m.drafter != NULL;
    ek_opened_close(&m);
    return has;
}

static void a_drafter_is_opened_where_it_drafts(void **state)
{
    (void)state;
    assert_true(has_drafter(NULL));
    assert_true(has_drafter("auto"));
    assert_false(has_drafter("ngram"));
    assert_false(has_drafter("off"));

    ek_trace want, got;
    char where[160] = "";
    ek_opened m;
    ek_open_opts o = small();
    ek_engine_stats stats;
    run_by_hand(&want, "i12");
    o.drafter = "models/pocket-drafter";
    assert_int_equal(ek_open(&m, &o), EK_OK);
    run(m.engine, &got);
    ek_engine_stats_read(m.engine, &stats);
    assert_true(stats.drafted_tokens > 0);
    if (!ek_trace_same(&want, &got, where, sizeof where)) fail_msg("%s", where);
    ek_trace_fini(&want), ek_trace_fini(&got);
    ek_opened_close(&m);
}

static void the_tokenizer_comes_with_chat(void **state)
{
    (void)state;
    ek_opened m;
    ek_open_opts o = small();
    assert_int_equal(ek_open_model(&m, &o), EK_OK);
    assert_null(m.chat.tokenizer);
    ek_opened_close(&m);
    o.chat = true;
    assert_int_equal(ek_open_model(&m, &o), EK_OK);
    assert_int_equal(ek_tokenizer_size(m.chat.tokenizer), ek_model_config(m.model)->vocab_size);
    ek_opened_close(&m);

    o.model = "models/pocket-drafter"; /* has none */
    assert_int_not_equal(ek_open_model(&m, &o), EK_OK);
    assert_null(m.model);
    assert_null(m.chat.tokenizer);
}

static void pages_survive_in_a_folder(void **state)
{
    (void)state;
    static int32_t tokens[150];
    for (int i = 0; i < 150; i++) tokens[i] = 100 + i * 37 % 2000;
    const ek_ask ask = {.tokens = tokens,
                        .n_tokens = 150,
                        .prompt_logits_from = 150,
                        .max_tokens = 2,
                        .ignore_eos = true,
                        .sampling = ek_sampling_greedy()};
    ek_open_opts o = small();
    char *dir = temp_dir();
    o.cache_dir = dir, o.cache_host_bytes = 64 << 20;
    for (int again = 0; again < 2; again++) {
        ek_opened m;
        ek_trace t;
        assert_int_equal(ek_open(&m, &o), EK_OK);
        assert_int_equal(ek_trace_run(m.engine, &ask, 1, &t), EK_OK);
        assert_int_equal(t.n_cached, again ? 128 : 0); /* two whole pages */
        ek_trace_fini(&t);
        ek_opened_close(&m);
    }
    remove_dir(dir);
}

static void only_auto_falls_back_to_the_cpu(void **state)
{
    (void)state;
    ek_gpu_driver driver;
    ek_opened m;
    ek_open_opts o = small();
    if (ek_gpu_driver_load(&driver) == EK_OK) skip();
    if (ek_gpu_driver_load_vulkan(&driver) == EK_OK && ek_vulkan_is_card(0)) skip();
    o.device = "auto";
    assert_int_equal(ek_open(&m, &o), EK_OK);
    assert_null(m.gpu);
    ek_opened_close(&m);
    o.device = "cuda";
    assert_int_not_equal(ek_open(&m, &o), EK_OK);
    assert_null(m.model);
}

static void devices_are_lists(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n, ordinal[4];
        bool host, all, split;
    } list[] = {
        {"cuda", 1, {0}, false, false, false},
        {"cuda:3", 1, {3}, false, false, false},
        {"cuda:0,1", 2, {0, 1}, false, false, true},
        {"cuda:2,0", 2, {2, 0}, false, false, true},
        {"cuda:1-3", 3, {1, 2, 3}, false, false, true},
        {"cuda:0,cuda:2-3", 3, {0, 2, 3}, false, false, true},
        {"cuda:all", 0, {0}, false, true, true},
        {"cuda:0,cpu", 1, {0}, true, false, true},
        {"cpu,cuda:0,2", 2, {0, 2}, true, false, true},
        {"cuda:all,cpu", 0, {0}, true, true, true},
        {"cuda:0,cpu:experts", 1, {0}, true, false, true},
        {"cpu:layers,cuda:1", 1, {1}, true, false, true},
        {"vulkan:0,1", 2, {0, 1}, false, false, true},
        {"vulkan:1,vulkan:0", 2, {1, 0}, false, false, true},
        {"vulkan:all", 0, {0}, false, true, true},
        {"vulkan:all,cpu", 0, {0}, true, true, true},
        {"vulkan:0-2,cpu", 3, {0, 1, 2}, true, false, true},
        {"cpu:experts,vulkan", 1, {0}, true, false, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ek_device d;
        assert_int_equal(ek_device_parse(&d, list[i].text), EK_OK);
        assert_true(d.gpu && !d.may_be_cpu);
        assert_int_equal(d.n, list[i].n);
        for (int k = 0; k < d.n; k++) assert_int_equal(d.ordinal[k], list[i].ordinal[k]);
        assert_int_equal(d.host, list[i].host);
        assert_int_equal(d.all, list[i].all);
        assert_int_equal(ek_device_is_split(&d), list[i].split);
        assert_int_equal(d.vulkan, strstr(list[i].text, "vulkan") != NULL);
    }
    ek_device d;
    assert_int_equal(ek_device_parse(&d, "vulkan"), EK_OK);
    assert_true(d.gpu && d.vulkan && !d.may_be_cpu && d.n == 1 && d.ordinal[0] == 0 && !ek_device_is_split(&d));
    assert_int_equal(ek_device_parse(&d, "vulkan:2"), EK_OK);
    assert_true(d.vulkan && d.n == 1 && d.ordinal[0] == 2);
    static const char *const none[] = {"vulkan:0,0",      "vulkan:1-0",      "vulkan:0,vulkan",    "vulkan:0,cuda:1",
                                       "cuda:0,vulkan:1", "vulkan:",         "vulkan:all,1",       "vulkan@sm_80",
                                       "vulkanic",        "cuda:all,vulkan", "vulkan:all,cuda:all"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(ek_device_parse(&d, none[i]), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), none[i]));
    }
    assert_int_equal(ek_device_parse(&d, "cpu"), EK_OK);
    assert_true(!d.gpu && !ek_device_is_split(&d));
    assert_int_equal(ek_device_parse(&d, "cpu:experts"), EK_EINVAL);
    assert_int_equal(ek_device_parse(&d, "cuda:0,cpu:heads"), EK_EINVAL);
    assert_int_equal(ek_device_parse(&d, "auto"), EK_OK);
    assert_true(d.gpu && d.may_be_cpu && !ek_device_is_split(&d));
}

/* Without a word the plan chooses; the CPU has whole layers. */
static void a_split_is_a_word(void **state)
{
    (void)state;
    static const struct {
        const char *device, *split;
        ek_err err;
        ek_split want;
    } row[] = {
        {"cuda:0,1", NULL, EK_OK, EK_SPLIT_AUTO},
        {"cuda:0,1", "auto", EK_OK, EK_SPLIT_AUTO},
        {"cuda:0,1", "layers", EK_OK, EK_SPLIT_LAYERS},
        {"cuda:0,1", "outputs", EK_OK, EK_SPLIT_OUTPUTS},
        {"cuda:all", NULL, EK_OK, EK_SPLIT_AUTO},
        {"cuda:0,cpu", NULL, EK_OK, EK_SPLIT_AUTO},
        {"cuda:0,cpu", "layers", EK_OK, EK_SPLIT_LAYERS},
        {"cuda:0,cpu", "outputs", EK_EINVAL, 0},
        {"cuda:0,1", "rows", EK_EINVAL, 0},
        {"cuda:0,1", "", EK_EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_device d;
        assert_int_equal(ek_device_parse(&d, row[i].device), EK_OK);
        assert_int_equal(d.split, EK_SPLIT_AUTO);
        assert_int_equal(ek_device_set_split(&d, row[i].split), row[i].err);
        if (!row[i].err) assert_int_equal(d.split, row[i].want);
    }
}

/* A model that was opened for several devices, whose weights were not read yet, computes on the CPU all the same. */
static void a_deferred_model_is_read_when_it_is_needed(void **state)
{
    (void)state;
    ek_opened m;
    ek_open_opts o = small();
    o.device = "cuda:0,1";
    assert_int_equal(ek_open_model(&m, &o), EK_OK);
    assert_true(ek_model_is_deferred(m.model));
    o.device = "cpu";
    assert_int_equal(ek_open_engine(&m, &o), EK_OK);
    static const int32_t tokens[] = {2, 5, 9};
    const ek_ask ask = {.tokens = tokens, .n_tokens = 3, .max_tokens = 2, .sampling = ek_sampling_greedy()};
    ek_trace t;
    assert_int_equal(ek_trace_run(m.engine, &ask, 1, &t), EK_OK);
    assert_int_equal(t.n_reply, 2);
    ek_trace_fini(&t);
    ek_opened_close(&m);
}

/* --- what is refused --- */

#define WRONG(field_, value_, quoted, ...) \
    {                                      \
#field_, quoted,                   \
        {                                  \
            .field_ = value_, __VA_ARGS__  \
        }                                  \
    }

static const struct wrong {
    const char *field, *value; /* that the line names */
    ek_open_opts opts;
} wrong[] = {
    WRONG(synthetic, "70b", "70b"),
    WRONG(synthetic, "e2b", "e2b", .model = POCKET),
    WRONG(synthetic, "e2b", "e2b", .chat = true),
    WRONG(synthetic_layers, 300, "300", .synthetic = "e2b"),
    WRONG(synthetic_layers, -1, "-1", .synthetic = "e2b"),
    WRONG(synthetic_layers, 6, "6"),
    WRONG(synthetic_bits, 5, "5", .synthetic = "e2b"),
    WRONG(weights, "4", "4"),
    WRONG(weights, "", "auto|exact|8"),
    WRONG(weights, "auto|exact", "auto|exact"),
    WRONG(kv, "f17", "f17"),
    WRONG(kv, "8:", "8:"),
    WRONG(kv_start, 100, "100", .kv = "8"),
    WRONG(kv_start, -256, "-256", .kv = "8"),
    WRONG(kv_start, 256, "256"),
    WRONG(activations, "4", "4"),
    WRONG(device, "gpu", "gpu"),
    WRONG(device, "cuda:x", "cuda:x"),
    WRONG(device, "cuda:0,", "cuda:0,"),
    WRONG(device, "cuda:0,,1", "cuda:0,,1"),
    WRONG(device, "cuda:1,1", "cuda:1 twice"),
    WRONG(device, "cuda:0-2,cuda:1", "cuda:1 twice"),
    WRONG(device, "cuda:3-1", "cuda:3-1"),
    WRONG(device, "cuda:0-", "cuda:0-"),
    WRONG(device, "cuda:0-16", "more than 16 devices"),
    WRONG(device, "cuda:all,1", "cuda:all,1"),
    WRONG(device, "cuda:0,cuda:all", "cuda:0,cuda:all"),
    WRONG(device, "cpu,cpu", "cpu twice"),
    WRONG(device, "1", "device 1;"),
    WRONG(device, "auto,cpu", "auto,cpu"),
    WRONG(gpu_bytes, -1, "-1"),
    WRONG(threads, -1, "-1"),
    WRONG(threads, 1025, "1025"),
    WRONG(isa, "mmx", "mmx"),
    WRONG(chunk, -5, "-5"),
    WRONG(chunk, (1 << 20) + 1, "1048577"),
    WRONG(draft, "on", "on"),
    WRONG(draft_max, EK_DRAFT_MAX + 1, "65"),
    WRONG(ctx_tokens, 1, "1"),
    WRONG(ctx_tokens, -7, "-7"),
    WRONG(max_requests, 65537, "65537"),
    WRONG(max_queue, -2, "-2"),
    WRONG(kv_bytes, -1, "-1"),
    WRONG(kv_bytes, NAN, "nan"),
    WRONG(cache_bytes, -2, "-2"),
    WRONG(cache_host_bytes, -1, "-1"),
    WRONG(cache_host_bytes, 1e6, "cache_bytes", .cache_bytes = EK_OPEN_NONE),
    WRONG(cache_dir, "/tmp", "cache_bytes", .cache_bytes = EK_OPEN_NONE),
    WRONG(cache_disk_bytes, -3, "-3"),
    WRONG(max_gap, 60.5, "60.5"),
    WRONG(max_gap, -0.5, "-0.5"),
    WRONG(max_gap, NAN, "nan"),
    WRONG(cache_audit, 1.5, "1.5"),
    WRONG(cache_audit, NAN, "nan"),
};

static void a_wrong_value_is_one_line_before_anything_is_opened(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct wrong *w = &wrong[i];
        ek_opened m;
        ek_err err = ek_open(&m, &w->opts);
        const char *text = ek_err_text();
        const size_t n = strlen(w->field);
        if (err != EK_EINVAL || strncmp(text, w->field, n) != 0 || text[n] != ':' || !strstr(text + n, w->value) ||
            strchr(text, '\n'))
            fail_msg("%s %s: error %d, \"%s\"", w->field, w->value, err, text);
        assert_null(m.model);
        assert_null(m.pool);
    }
}

static void a_long_or_ugly_value_is_cut_and_escaped(void **state)
{
    (void)state;
    char value[400];
    memset(value, 'x', sizeof value);
    value[1] = '\n', value[sizeof value - 1] = '\0';
    const ek_open_opts o[] = {{.weights = value}, {.kv = value},    {.activations = value}, {.device = value},
                              {.isa = value},     {.draft = value}, {.synthetic = value}};
    for (size_t i = 0; i < sizeof o / sizeof *o; i++) {
        assert_int_equal(ek_open_check(&o[i]), EK_EINVAL);
        assert_null(strchr(ek_err_text(), '\n'));
        const char *run = strstr(ek_err_text(), "xxxxx");
        assert_true(!run || strspn(run, "x") <= 80);
    }
}

static void what_only_the_model_knows_is_reported_then(void **state)
{
    (void)state;
    ek_opened m;
    ek_open_opts o = small();
    o.ctx_tokens = 1 << 30;
    assert_int_equal(ek_open(&m, &o), EK_ETOOLONG);
    assert_non_null(strstr(ek_err_text(), "ctx_tokens: 1073741824"));
    assert_null(m.model);
    o = small();
    o.model = "models/none";
    assert_int_equal(ek_open(&m, &o), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "models/none"));
    o = small();
    o.drafter = POCKET; /* no drafter */
    assert_int_not_equal(ek_open(&m, &o), EK_OK);
    assert_null(m.drafter);
    assert_null(m.model);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_the_logits_of_its_parts),
        cmocka_unit_test(auto_leaves_a_device_for_its_room_alone),
        cmocka_unit_test(zero_is_the_default),
        cmocka_unit_test(a_drafter_is_opened_where_it_drafts),
        cmocka_unit_test(the_tokenizer_comes_with_chat),
        cmocka_unit_test(pages_survive_in_a_folder),
        cmocka_unit_test(only_auto_falls_back_to_the_cpu),
        cmocka_unit_test(devices_are_lists),
        cmocka_unit_test(a_split_is_a_word),
        cmocka_unit_test(a_deferred_model_is_read_when_it_is_needed),
        cmocka_unit_test(a_wrong_value_is_one_line_before_anything_is_opened),
        cmocka_unit_test(a_long_or_ugly_value_is_cut_and_escaped),
        cmocka_unit_test(what_only_the_model_knows_is_reported_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
