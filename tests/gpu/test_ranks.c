/* Several devices behind one executor, on a driver made of host functions: what is taken is given back, a device that
 * fails ends requests and never answers, and pages are those of one device. Bits are test_ranks_emulated.c's, what lies
 * where test_place.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/files.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "engine/budget.h"
#include "faked.h"
#include "gpu/fit/fit.h"
#include "gpu/several/several.h"
#include "gpu/several/state.h"
#include "gpu/step/run.h"
#include "ops/linear/linear_layout.h"

/* --- steps */

static ek_model *open_model(const char *shape, ek_kv_format kv, bool deferred)
{
    return open_tiny(shape, kv, kv, deferred);
}

/* HOST: the CPU has the first layer; EXPERTS: its experts */
typedef enum how { LAYERS, HOST, EXPERTS, OUTPUTS } how;

static ek_err open_ranks(ek_ranks **out, const ek_gpu_driver *d, ek_model *m, int n, how by)
{
    const ek_fit_opts o = {.n = n,
                           .ordinal = {0, 1, 2, 3},
                           .split = by == OUTPUTS ? EK_SPLIT_OUTPUTS : EK_SPLIT_LAYERS,
                           .host = by == HOST || by == EXPERTS,
                           .part = by == EXPERTS ? EK_HOST_EXPERTS : EK_HOST_CHOSEN,
                           .host_layers = 1};
    const ek_err err = ek_ranks_open(out, d, m, &o);
    if (!err) assert_true(ek_ranks_has_host(*out) == (by == HOST || by == EXPERTS));
    if (!err) (*out)->min_microbatch = 2;
    return err;
}

static ek_err open_engine(ek_engine **out, ek_ranks *r, const ek_drafter *drafter)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_ranks_executor(r);
    o.max_requests = 2, o.chunk = 16, o.ctx_tokens = 40;
    o.kv_bytes = 64 << 20;
    if (drafter) o.draft = EK_DRAFT_AUTO, o.draft_max = 2, on.row_cost = on.draft_cost = 0;
    return ek_engine_open_on(out, &on, &o);
}

/* What cannot be shared out among so many. */
static void is_refused_in_words(how by)
{
    assert_non_null(strstr(ek_err_text(), by == OUTPUTS ? "cannot be cut for" : "devices at most"));
}

static void check_steps(const char *shape, int n, how by)
{
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_engine *e;
    ek_model *m = open_model(shape, EK_KV_I16, n != 2);
    const ek_err err = open_ranks(&r, &d, m, n, by);
    if (err == EK_EUNSUPPORTED) {
        is_refused_in_words(by);
    } else {
        assert_int_equal(err, EK_OK);
        assert_true((m->w.block == NULL) == (n == 3)); /* deferred: the CPU's part, or nothing */
        for (int i = 0; i < n; i++)                    /* each reaches the others: they are neighbours, or the last */
            assert_int_equal(fake.reached[i], ((1u << n) - 1) & ~(1u << i));
        assert_int_equal(open_engine(&e, r, NULL), EK_OK);
        check_replies(e, true);
        assert_true(fake.graph_launches > 0);
        ek_engine_close(e);
        ek_ranks_close(r);
    }
    fake_cuda_is_empty();
    ek_model_close(m);
}

static void steps_are_queued_and_all_is_given_back(void **state)
{
    (void)state;
    static const char *const shapes[] = {"T1", "T2", "T4", "T6", "Q1", "Q2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_steps(shapes[i], 1, HOST);
        for (int n = 2; n <= 3; n++) check_steps(shapes[i], n, LAYERS), check_steps(shapes[i], n, OUTPUTS);
    }
}

/* --- failures */

static bool asked(ek_model *m, const ek_drafter *drafter, int n, how by, const ek_gpu_driver *d, ek_trace out[2],
                  bool *refused, int *from, int *to)
{
    ek_ranks *r = NULL;
    ek_engine *e = NULL;
    ek_err err = open_ranks(&r, d, m, n, by);
    if (!err && drafter) err = ek_gpu_add_drafter(ek_ranks_drafting(r), drafter);
    if (!err) err = open_engine(&e, r, drafter);
    if (err) check_refusal();
    else ask_failing(e, out, refused, from, to);
    if (e) ek_engine_close(e);
    ek_ranks_close(r);
    return !err;
}

/* Every single call of a driver fails once, and with 700 that device is gone while the others go on: nothing crashes,
 * nothing waits for ever, a request has its reply or the sentence, and the others' memory is given back. */
static void any_call_of_any_device_may_fail(void **state)
{
    (void)state;
    static const CUresult errors[] = {700, 701, EK_CU_OUT_OF_MEMORY};
    const bool some = getenv("TIER") && strcmp(getenv("TIER"), "all") != 0;
    static const struct {
        const char *shape;
        int n;
        how by;
        bool drafts;
    } way[] = {{"T1", 2, LAYERS, false},  {"Q2", 3, LAYERS, true},  {"T2", 1, HOST, false},
               {"T2", 2, EXPERTS, false}, {"Q1", 2, OUTPUTS, true}, {"T2", 2, OUTPUTS, false}};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        ek_model *m = open_model(way[i].shape, EK_KV_Q8, false);
        ek_drafter *drafter = way[i].drafts ? open_drafter(m, 0) : NULL;
        ek_gpu_driver d = faked(FAKE_DEVICES);
        ek_trace whole[2], out[2];
        bool refused;
        int from = 0, to = 0, a, b, answered = 0, failed = 0;
        assert_true(asked(m, drafter, way[i].n, way[i].by, &d, whole, &refused, &from, &to));
        fake_cuda_is_empty();
        const int calls = fake.calls, more = way[i].by == OUTPUTS ? 4 : 1; /* there are more of them */
        for (int n = 1; n <= calls; n++)
            for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
                if (n % (some ? 31 * more : 5 * more) != (int)k) continue; /* calls are alike */
                d = faked(FAKE_DEVICES);
                fake.fail_call = n, fake.fail_with = errors[k];
                const bool opened = asked(m, drafter, way[i].n, way[i].by, &d, out, &refused, &a, &b);
                if (!fake.broken && n <= to) fake_cuda_is_empty(); /* what fails to be freed, behind `to`, stays */
                if (!opened) {
                    assert_true(n <= from);
                    continue;
                }
                const bool error = check_failing(out);
                if (fake.broken && n > from && n <= to) assert_true(error && refused);
                if (errors[k] == 700 && !fake.broken) assert_true(!error && !refused);
                answered += !error, failed += error;
            }
        assert_true(answered > 0 && failed > 0);
        print_message("%s on %d devices%s: each of %d calls, %d runs answered, %d ended with errors\n", way[i].shape,
                      way[i].n,
                      way[i].by == HOST      ? " and the CPU"
                      : way[i].by == EXPERTS ? " and experts on the CPU"
                      : way[i].by == OUTPUTS ? ", outputs cut"
                                             : "",
                      calls, answered, failed);
        for (int r = 0; r < 2; r++) ek_trace_fini(&whole[r]);
        ek_drafter_close(drafter);
        ek_model_close(m);
    }
}

/* In host memory the experts of those layers stay, and nothing else; a model without any is refused. */
static void experts_stay_on_the_host(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_engine *e;
    ek_model *m = open_model("Q2", EK_KV_F16, true);
    const ek_layer_weights *w = &m->w.layer[0];
    assert_int_equal(open_ranks(&r, &d, m, 1, EXPERTS), EK_OK);
    assert_non_null(strstr(ek_ranks_text(r), "experts of layer 0 on the CPU, layers 0 to "));
    assert_non_null(ek_linear_panel(&w->expert_down[1], 0));
    assert_true((double)m->w.block_bytes < ek_model_layer_bytes(m, 0) + 4e6); /* it begins with a huge page */
    assert_int_equal(open_engine(&e, r, NULL), EK_OK);
    check_replies(e, true);
    ek_engine_close(e);
    ek_ranks_close(r);
    fake_cuda_is_empty();
    ek_model_close(m);
    m = open_model("Q1", EK_KV_F16, true);
    assert_int_equal(open_ranks(&r, &d, m, 1, EXPERTS), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "no experts that the CPU could have"));
    fake_cuda_is_empty();
    ek_model_close(m);
}

static void what_is_not_there_is_refused_in_a_sentence(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_model *m = open_model("Q1", EK_KV_F16, false);
    fake.devices = 2;
    assert_int_equal(ek_ranks_open(&r, &d, m, &(ek_fit_opts){.n = 2, .ordinal = {0, 2}}), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "there is no device cuda:2, the driver has 2"));
    fake_cuda_is_empty();
    assert_int_equal(ek_ranks_open(&r, &d, m, &(ek_fit_opts){.n = 2, .ordinal = {0, 1}, .max_bytes = 2e9}), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "cuda:0 has 1.07 GB free, 2.00 GB of it are to be taken"));
    fake_cuda_is_empty();
    ek_engine *e;
    ek_place p;
    assert_int_equal(ek_place_by(&p, m, (double[]){1e9, 1e9}, &(ek_fit_opts){.n = 2}), EK_OK);
    const double max = p.bytes[0] > p.bytes[1] ? p.bytes[0] : p.bytes[1];
    const ek_fit_opts tight = {.n = 2, .ordinal = {0, 1}, .max_bytes = max / 0.95 + 1000};
    assert_int_equal(ek_ranks_open(&r, &d, m, &tight), EK_OK);
    assert_int_equal(open_engine(&e, r, NULL), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "cuda:0 may give 0.00 GB; weights take"));
    ek_ranks_close(r);
    fake_cuda_is_empty();
    ek_model_close(m);
}

/* A device gives keys and values its share of what is free once, and leaves the towers their bytes once: the device
 * whose part of a page is the largest decides. */
static void keys_get_their_share_of_each_device(void **state)
{
    (void)state;
    const double towers = 50e6;
    for (int by = LAYERS; by <= OUTPUTS; by += OUTPUTS - LAYERS)
        for (int n = 1 + (by == OUTPUTS); n <= 2; n++) {
            ek_gpu_driver d = faked(FAKE_DEVICES);
            ek_ranks *r;
            double part = 0;
            ek_model *m = open_model("Q2", EK_KV_I16, false);
            assert_int_equal(open_ranks(&r, &d, m, n, (how)by), EK_OK);
            for (int i = 0; i < n; i++) {
                r->gpu[i]->reserved = towers; /* ek_gpu_encoder_reserve */
                part = fmax(part, ek_fit_part_of_pages(&m->layout, r->gpu[i]->share.kv_bytes));
            }
            const ek_executor on = ek_ranks_executor(r);
            const double want = (double)(fake.free - fake.used) * EK_GPU_KEYS_SHARE - towers, got = on.room * part;
            if (fabs(got / want - 1) > 1e-6) fail_msg("by %d on %d: %.0f bytes of keys, not %.0f", by, n, got, want);
            on.close(on.arg);
            ek_ranks_close(r);
            fake_cuda_is_empty();
            ek_model_close(m);
        }
}

/* What `inspect` says without a device is what is done: the same lies where, and as many requests have room. r: NULL
 * where it was refused; room: of its executor. */
static void check_paper(ek_model *m, const ek_fit_opts *o, const ek_ranks *r, double room)
{
    enum { FAKE_CAPABILITY = 90, FAKE_MULTIPROCESSORS = 4 };
    ek_cuda *const paper = ek_cuda_on_paper(FAKE_CAPABILITY, FAKE_MULTIPROCESSORS), *c[EK_RANKS];
    ek_fit_parts kept[EK_RANKS] = {0};
    double each[EK_RANKS];
    char text[1024];
    ek_place p;
    for (int i = 0; i < o->n; i++) c[i] = paper, each[i] = o->max_bytes;
    assert_int_equal(ek_fit_plan(&p, kept, m, c, each, o), r ? EK_OK : EK_ENOMEM);
    ek_cuda_close(paper);
    if (!r) return;
    const int ctx = o->beside.step.max_ctx, there = ek_budget_requests_in(ek_model_kv_layout(m), room, ctx),
              said = ek_fit_count_requests(&p, kept, m, each, ctx).n;
    ek_place_text(text, sizeof text, &p, o->ordinal);
    assert_memory_equal(text, ek_ranks_text(r), strlen(text));
    const bool whole = o->n == 1 && !p.host_end; /* a part's pages are counted in bytes of whole ones */
    if (whole ? said != there : said < there - 1) fail_msg("%s: %d requests said, %d there", text, said, there);
}

/* What was placed beside a step of these rows, and with `more` beside a drafter and towers, opens and runs it, with all
 * that a device may give from too little on; what is refused took nothing, and says why. */
static void sweep(const char *shape, int n, how by, int chunk, bool more)
{
    const int requests = more ? 64 : 2; /* of a drafter a row each */
    ek_model *m = open_model(shape, EK_KV_F16, false);
    ek_drafter *drafter = more ? open_drafter(m, 0) : NULL;
    ek_engine_opts o = ek_engine_defaults();
    int opened = 0, refused = 0;
    ek_fit_opts r = {.n = n,
                     .ordinal = {0, 1, 2, 3},
                     .split = by == OUTPUTS ? EK_SPLIT_OUTPUTS : EK_SPLIT_LAYERS,
                     .host = by == HOST || by == EXPERTS,
                     .part = by == EXPERTS ? EK_HOST_EXPERTS
                             : by == HOST  ? EK_HOST_LAYERS
                                           : EK_HOST_CHOSEN};
    o.max_requests = requests, o.chunk = chunk, o.ctx_tokens = 40;
    if (more) o.draft = EK_DRAFT_AUTO, o.draft_max = 2;
    r.beside.drafter = drafter, r.beside.towers = more ? 5e6 : 0;
    r.beside.step.max_ctx = o.ctx_tokens;
    r.beside.kv_bytes = ek_budget_request_bytes(ek_model_kv_layout(m), o.ctx_tokens);
    ek_executor_sizes_of(&r.beside.step, &o, ek_model_config(m), 0);
    for (double bytes = 1e6; opened < 5; bytes *= 1.05) {
        ek_gpu_driver d = faked(FAKE_DEVICES);
        ek_ranks *ranks;
        ek_engine *e;
        r.max_bytes = bytes;
        const ek_err err = ek_ranks_open(&ranks, &d, m, &r);
        if (err) {
            assert_int_equal(err, EK_ENOMEM);
            assert_true(strlen(ek_err_text()) > 40 && fake.max < 1e6);
            assert_non_null(strstr(ek_err_text(), ", keys and values "));
            if (more) assert_true(strstr(ek_err_text(), ", a drafter ") && strstr(ek_err_text(), ", towers "));
            check_paper(m, &r, NULL, 0);
            refused++;
        } else {
            ek_ranks_first(ranks)->reserved = r.beside.towers; /* ek_gpu_encoder_reserve */
            if (more) assert_int_equal(ek_gpu_add_drafter(ek_ranks_drafting(ranks), drafter), EK_OK);
            const ek_executor on = ek_ranks_executor(ranks);
            check_paper(m, &r, ranks, on.room);
            if (ek_engine_open_on(&e, &on, &o))
                fail_msg("%s on %d by %d, %.0f bytes: %s", shape, n, by, bytes, ek_err_text());
            check_replies(e, false);
            opened++;
            ek_engine_close(e);
            ek_ranks_close(ranks);
        }
        fake_cuda_is_empty();
    }
    assert_true(opened > 0 && refused > 0);
    ek_drafter_close(drafter);
    ek_model_close(m);
}

static void what_was_placed_opens(void **state)
{
    (void)state;
    sweep("T1", 1, LAYERS, 16, false), sweep("T1", 2, LAYERS, 512, true);
    sweep("Q2", 2, OUTPUTS, 512, true), sweep("T2", 1, HOST, 512, false);
    sweep("T2", 1, EXPERTS, 512, true), sweep("Q2", 2, EXPERTS, 512, false);
}

/* --- the table of per-layer embeddings */

static ek_model *open_checkpoint(char *dir, ek_config *c)
{
    ek_model *m;
    const ek_model_opts o = {.cpu = ek_cpu_detect()};
    assert_int_equal(ek_config_tiny(c, "T1"), EK_OK);
    assert_true(c->per_layer_size > 0);
    write_hf(dir, c, NULL, NULL);
    if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
    return m;
}

/* It takes a quarter of what is left at most, of what may be taken as of what is free: the rest is for keys and values.
 */
static void the_table_stays_on_the_host_where_little_may_be_taken(void **state)
{
    (void)state;
    static ek_config c;
    char *dir = temp_dir();
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_model *m = open_checkpoint(dir, &c);
    ek_fit_opts o = {.n = 1};
    assert_int_equal(ek_ranks_open(&r, &d, m, &o), EK_OK);
    const double table = (double)r->gpu[0]->w.table.l.bytes, weights = (double)r->gpu[0]->bytes;
    assert_true(r->gpu[0]->w.table.at && ek_gpu_bytes(r->gpu[0]) == weights + table);
    ek_ranks_close(r);
    for (int fits = 0; fits < 2; fits++) {
        o.max_bytes = weights + table * (fits ? 4 : 3.99);
        if (ek_ranks_open(&r, &d, m, &o)) fail_msg("%s", ek_err_text());
        assert_int_equal(r->gpu[0]->w.table.l.n > 0, fits);
        assert_true(ek_gpu_bytes(r->gpu[0]) == weights + (fits ? table : 0));
        ek_ranks_close(r);
    }
    fake_cuda_is_empty();
    ek_model_close(m);
    remove_dir(dir);
}

static void a_drafter_counts_as_weights(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_model *m = open_model("Q1", EK_KV_F16, false);
    ek_drafter *drafter = open_drafter(m, 0);
    assert_int_equal(ek_ranks_open(&r, &d, m, &(ek_fit_opts){.n = 2, .ordinal = {0, 1}}), EK_OK);
    const double before = ek_gpu_bytes(ek_ranks_drafting(r));
    assert_int_equal(ek_gpu_add_drafter(ek_ranks_drafting(r), drafter), EK_OK);
    const double own = ek_gpu_bytes(ek_ranks_drafting(r)->drafter);
    assert_true(own > 0 && ek_gpu_bytes(ek_ranks_drafting(r)) == before + own);
    ek_ranks_close(r);
    fake_cuda_is_empty();
    ek_drafter_close(drafter);
    ek_model_close(m);
}

/* Devices that do not reach each other's memory have whole layers, and copies go by way of the host. */
static void outputs_need_peers(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_ranks *r;
    ek_model *m = open_model("Q1", EK_KV_F16, false);
    fake.apart = true;
    assert_int_equal(open_ranks(&r, &d, m, 2, OUTPUTS), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "cuda:0 does not reach the memory of cuda:1"));
    fake_cuda_is_empty();
    assert_int_equal(open_ranks(&r, &d, m, 2, LAYERS), EK_OK);
    ek_ranks_close(r);
    assert_int_equal(fake.reached[0] | fake.reached[1], 0);
    static const CUresult no[] = {EK_CU_NO_PEER, EK_CU_TOO_MANY_PEERS}; /* which break nothing */
    for (int i = 0; i < 2; i++) {
        d = faked(FAKE_DEVICES);
        fake.enable_error = no[i];
        assert_int_equal(open_ranks(&r, &d, m, 2, OUTPUTS), EK_EUNSUPPORTED);
        assert_non_null(strstr(ek_err_text(), "cuda:0 does not reach the memory of cuda:1"));
        assert_int_equal(open_ranks(&r, &d, m, 2, LAYERS), EK_OK);
        ek_engine *e;
        assert_int_equal(open_engine(&e, r, NULL), EK_OK);
        check_replies(e, true);
        ek_engine_close(e);
        ek_ranks_close(r);
    }
    ek_model_close(m);
}

/* The first device has logits for the host and the others have not, so that one may have a graph of a step that the
 * other queues kernel by kernel: each is queued to its own stream (fake_cuda.c). */
static void devices_may_have_graphs_of_their_own(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        ek_gpu_driver d = faked(FAKE_DEVICES);
        ek_ranks *r;
        ek_engine *e;
        ek_model *m = open_model("T1", EK_KV_I16, false);
        assert_int_equal(open_ranks(&r, &d, m, n, OUTPUTS), EK_OK);
        assert_int_equal(open_engine(&e, r, NULL), EK_OK);
        for (int i = 0; i < 6; i++) {
            check_replies(e, i % 3 == 0);
        }
        assert_true(fake.graph_launches > 0);
        ek_engine_close(e);
        ek_ranks_close(r);
        fake_cuda_is_empty();
        ek_model_close(m);
    }
}

/* --- pages */

/* A page over any devices has the bytes of a page of one: what one wrote, the others read. */
static void pages_go_to_the_host_and_back(void **state)
{
    (void)state;
    static const char *const shapes[] = {"T1", "T3", "T6", "Q1"};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    static const struct {
        int n;
        how by;
    } ways[] = {{1, HOST}, {2, LAYERS}, {3, LAYERS}, {2, OUTPUTS}, {3, OUTPUTS}};
    for (size_t way = 0; way < SHAPES * sizeof ways / sizeof *ways; way++) {
        ek_gpu_driver d = faked(FAKE_DEVICES);
        ek_ranks *r;
        const how by = ways[way / SHAPES].by;
        ek_model *m = open_model(shapes[way % SHAPES], EK_KV_I16, false);
        const ek_err err = open_ranks(&r, &d, m, ways[way / SHAPES].n, by);
        if (err) {
            assert_int_equal(err, EK_EUNSUPPORTED);
            is_refused_in_words(by);
            ek_model_close(m);
            continue;
        }
        ek_executor on = ek_ranks_executor(r);
        check_pages(&on);
        ek_ranks_close(r);
        fake_cuda_is_empty();
        ek_model_close(m);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_queued_and_all_is_given_back),
        cmocka_unit_test(any_call_of_any_device_may_fail),
        cmocka_unit_test(experts_stay_on_the_host),
        cmocka_unit_test(keys_get_their_share_of_each_device),
        cmocka_unit_test(what_was_placed_opens),
        cmocka_unit_test(what_is_not_there_is_refused_in_a_sentence),
        cmocka_unit_test(the_table_stays_on_the_host_where_little_may_be_taken),
        cmocka_unit_test(a_drafter_counts_as_weights),
        cmocka_unit_test(outputs_need_peers),
        cmocka_unit_test(devices_may_have_graphs_of_their_own),
        cmocka_unit_test(pages_go_to_the_host_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
