/* Which part of a model lies on which of several devices: layers by room, and outputs of every layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/drafter.h"
#include "../support/published.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "engine/budget.h"
#include "gpu/fit/fit.h"
#include "gpu/gpu.h"
#include "gpu/weights/shard.h"
#include "model/pass.h"
#include "ops/linear/linear_layout.h"

/* --- which layers lie where */

static void check_place(const ek_place *p, const ek_model *m)
{
    const int layers = m->config.n_layers;
    int at = p->host_end;
    for (int r = 0; r < p->n; r++) {
        assert_int_equal(p->share[r].first, at);
        assert_true(p->share[r].end > at);
        assert_true(p->share[r].embed || (at > 0 && r + 1 < p->n));
        at = p->share[r].end;
    }
    assert_int_equal(at, layers);
    for (int k = 0; k < EK_KIND_COUNT; k++) assert_true(m->last[k] < 0 || p->share[p->n - 1].first <= m->last[k]);
}

static void layers_are_placed_by_room(void **state)
{
    (void)state;
    ek_place p;
    ek_model *m = open_published("31b", 0); /* 61 GB in bf16 */
    assert_int_equal(ek_place_by(&p, m, (double[]){80e9, 80e9}, &(ek_fit_opts){.n = 2}), EK_OK);
    check_place(&p, m);
    assert_true(p.share[0].end >= 29 && p.share[0].end <= 31);
    assert_int_equal(ek_place_by(&p, m, (double[]){24e9, 24e9, 24e9}, &(ek_fit_opts){.n = 3}), EK_OK);
    check_place(&p, m);
    for (int r = 0; r < 3; r++) assert_true(p.bytes[r] < 0.95 * 24e9);
    assert_int_equal(ek_place_by(&p, m, (double[]){16e9, 80e9}, &(ek_fit_opts){.n = 2}), EK_OK);
    check_place(&p, m);
    assert_true(p.bytes[0] < p.bytes[1] / 3);
    assert_int_equal(ek_place_by(&p, m, (double[]){24e9, 24e9}, &(ek_fit_opts){.n = 2}), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "on 2 devices, which have room for 24.00, 24.00 GB"));
    ek_model_close(m);
}

/* Where weights take half of each device's room at most, so that a few replies take none much longer than the others:
 * head and draws cost as much as some layers. With less room none is fuller than it must be. */
static void layers_are_dealt_by_time_where_there_is_room(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n, by_time[3], by_room[3]; /* where the second begins, the third, the fourth */
    } row[] = {{"31b", 2, {31}, {30}}, {"31b", 3, {21, 42}, {19, 41}}, {"31b", 4, {16, 31, 47}, {14, 30, 47}},
               {"26b", 2, {16}, {15}}, {"26b", 3, {11, 22}, {10, 20}}, {"26b", 4, {8, 16, 24}, {7, 15, 23}},
               {"e4b", 2, {22}, {21}}, {"e4b", 3, {11, 22}, {11, 22}}, {"e4b", 4, {7, 14, 22}, {7, 14, 22}},
               {"e2b", 2, {13}, {13}}, {"e2b", 3, {6, 13}, {6, 13}},   {"e2b", 4, {4, 8, 13}, {4, 8, 13}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_model *m = open_published(row[i].name, 4);
        double room[4] = {80e9, 80e9, 80e9, 80e9}, all = 0, max = 0;
        ek_place p;
        for (int tight = 0; tight < 2; tight++) {
            assert_int_equal(ek_place_by(&p, m, room, &(ek_fit_opts){.n = row[i].n}), EK_OK);
            check_place(&p, m);
            for (int r = 1; r < row[i].n; r++)
                assert_int_equal(p.share[r].first, (tight ? row[i].by_room : row[i].by_time)[r - 1]);
            for (int r = 0; r < row[i].n; r++) all += p.bytes[r], max = fmax(max, p.bytes[r]);
            for (int r = 0; r < row[i].n; r++) room[r] = fmax(all / row[i].n * 1.9, max * 1.1); /* no half suffices */
        }
        ek_model_close(m);
    }
}

static void the_cpu_has_what_does_not_fit(void **state)
{
    (void)state;
    ek_place p;
    ek_model *m = open_published("31b", 4);
    assert_int_equal(ek_place_by(&p, m, (double[]){12e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_LAYERS}),
                     EK_OK);
    check_place(&p, m);
    assert_true(p.host_end > 20 && p.host_end < 40 && p.bytes[0] <= 9e9);
    const int one = p.host_end;
    assert_int_equal(
        ek_place_by(&p, m, (double[]){6e9, 12e9}, &(ek_fit_opts){.n = 2, .host = true, .part = EK_HOST_LAYERS}), EK_OK);
    check_place(&p, m);
    assert_true(p.n == 2 && p.host_end < one && p.host_end > 0 && p.share[1].first == one);
    assert_int_equal(
        ek_place_by(&p, m, (double[]){6e9, 80e9}, &(ek_fit_opts){.n = 2, .host = true, .part = EK_HOST_LAYERS}),
        EK_OK); /* all on the last */
    assert_true(p.n == 1 && p.device[0] == 1 && p.host_end == 0);
    assert_int_equal(ek_place_by(&p, m, (double[]){1e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_LAYERS}),
                     EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "which stay together, need"));
    ek_model_close(m);
}

/* Of experts, of which a token reads a few, the CPU reads less than of layers. */
static void the_cpu_has_experts_where_it_reads_less_of_them(void **state)
{
    (void)state;
    ek_place p, layers;
    ek_model *m = open_published("26b", 4);
    assert_int_equal(
        ek_place_by(&layers, m, (double[]){12e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_LAYERS}), EK_OK);
    assert_true(layers.host_end > 0 && !layers.host_experts);
    assert_int_equal(ek_place_by(&p, m, (double[]){12e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_CHOSEN}),
                     EK_OK);
    check_place(&p, m);
    assert_true(!p.host_end && p.host_experts >= layers.host_end && p.host_experts < layers.host_end + 6);
    assert_true(p.bytes[0] <= 9e9 && p.share[0].host_experts == p.host_experts);
    char text[512];
    ek_place_text(text, sizeof text, &p, (int[]){0});
    assert_non_null(strstr(text, "experts of layers 0 to "));
    assert_non_null(strstr(text, " on the CPU, layers 0 to 29 and the head on cuda:0 (weights "));
    assert_int_equal(ek_place_by(&p, m, (double[]){4e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_CHOSEN}),
                     EK_OK); /* nearly all */
    assert_true(p.host_experts > 25);
    assert_int_equal(ek_place_by(&p, m, (double[]){80e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_CHOSEN}),
                     EK_OK);
    assert_true(!p.host_end && !p.host_experts);
    assert_int_equal(
        ek_place_by(&p, m, (double[]){6e9, 6e9}, &(ek_fit_opts){.n = 2, .host = true, .part = EK_HOST_CHOSEN}), EK_OK);
    check_place(&p, m);
    assert_true(p.n == 2 && p.host_experts > 0);
    assert_int_equal(ek_place_by(&p, m, (double[]){1e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_CHOSEN}),
                     EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "which stay together, need"));
    assert_int_equal(ek_place_by(&p, m, (double[]){1e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_EXPERTS}),
                     EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "without its experts the model needs "));
    ek_model_close(m);
    m = open_published("31b", 4);
    assert_int_equal(
        ek_place_by(&p, m, (double[]){12e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_EXPERTS}),
        EK_EUNSUPPORTED);
    assert_int_equal(ek_place_by(&p, m, (double[]){12e9}, &(ek_fit_opts){.n = 1, .host = true, .part = EK_HOST_CHOSEN}),
                     EK_OK);
    assert_true(p.host_end > 0 && !p.host_experts);
    ek_model_close(m);
}

/* Layers without keys of their own stay with those whose keys they read. */
static void layers_that_share_keys_stay_together(void **state)
{
    (void)state;
    static const char *const names[] = {"e2b", "e4b", "12b", "26b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ek_place p;
        ek_model *m = open_published(names[i], 4);
        const double room[] = {80e9, 80e9, 80e9, 80e9};
        for (int n = 2; n <= 4; n++) {
            assert_int_equal(ek_place_by(&p, m, room, &(ek_fit_opts){.n = n}), EK_OK);
            assert_int_equal(p.n, n);
            check_place(&p, m);
        }
        ek_model_close(m);
    }
}

/* --- which weights are read */

static ek_model *open_tiny(const char *shape, bool deferred)
{
    static ek_config c;
    ek_model *m;
    const ek_model_opts o = {
        .cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16, .deferred = deferred};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, 4, 5, &o), EK_OK);
    return m;
}

/* Host memory holds one device's weights at a time, not the model. */
static void weights_are_read_device_by_device(void **state)
{
    (void)state;
    ek_model *whole = open_tiny("Q1", false), *m = open_tiny("Q1", true);
    ek_place p;
    assert_int_equal(ek_place_by(&p, m, (double[]){1e9, 1e9}, &(ek_fit_opts){.n = 2}), EK_OK);
    size_t sum = 0;
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ek_model_pack(m, &p.share[r]), EK_OK);
        double others = 0;
        for (int i = 0; i < m->config.n_layers; i++)
            if (i < p.share[r].first || i >= p.share[r].end) others += ek_model_layer_bytes(m, i);
        assert_true(others > 0 && (double)m->w.block_bytes + others <= (double)whole->w.block_bytes);
        sum += m->w.block_bytes;
        for (int i = p.share[r].first; i < p.share[r].end; i++) { /* the same bytes as in the whole */
            const ek_linear *a = &m->w.layer[i].down, *b = &whole->w.layer[i].down;
            assert_int_equal(a->bytes, b->bytes);
            assert_memory_equal(a->data, b->data, a->bytes);
        }
    }
    assert_true(sum >= whole->w.block_bytes);
    ek_model_close(m), ek_model_close(whole);
}

/* Returns the bytes of the rows that are not there. */
static size_t check_rows(const ek_linear *a, const ek_linear *b, ek_gpu_range p)
{
    const int first = p.first / EK_PANEL, end = (p.first + p.n + EK_PANEL - 1) / EK_PANEL;
    for (int i = first; i < end; i++) assert_memory_equal(ek_linear_panel(a, i), ek_linear_panel(b, i), b->panel_bytes);
    return (size_t)(b->n_panels - (end - first)) * b->panel_bytes;
}

/* The same of outputs: a device's rows have the bytes of the whole, and the others' are not in memory. */
static void weights_are_read_output_by_output(void **state)
{
    (void)state;
    enum { RANKS = 2 };
    static const char *const shapes[] = {"Q1", "Q2"};
    for (int s = 0; s < 2; s++) {
        ek_model *whole = open_tiny(shapes[s], false), *m = open_tiny(shapes[s], true);
        for (int r = 0; r < RANKS; r++) {
            const ek_gpu_wanted w = {m, {r, RANKS, s == 1}, 0};
            const ek_rows_wanted rows = {ek_gpu_rows_wanted, &w};
            const ek_model_share share = {.end = m->config.n_layers, .embed = true, .rows = &rows};
            assert_int_equal(ek_model_pack(m, &share), EK_OK);
            size_t missing = 0;
            for (int i = 0; i < m->config.n_layers; i++) {
                const ek_layer_weights *a = &m->w.layer[i], *b = &whole->w.layer[i];
                const ek_linear *const pair[][2] = {{&a->q, &b->q},       {&a->k, &b->k},   {&a->o, &b->o},
                                                    {&a->gate, &b->gate}, {&a->up, &b->up}, {&a->down, &b->down},
                                                    {&a->v, &b->v}};
                for (size_t j = 0; j < sizeof pair / sizeof *pair; j++)
                    if (pair[j][0]->n)
                        missing += check_rows(pair[j][0], pair[j][1], ek_gpu_rows_here(&w.shard, m, i, pair[j][0]));
                for (int j = 0; j < m->config.n_experts; j++) {
                    const ek_linear *const expert[][2] = {{&a->expert_gate[j], &b->expert_gate[j]},
                                                          {&a->expert_up[j], &b->expert_up[j]},
                                                          {&a->expert_down[j], &b->expert_down[j]}};
                    for (size_t k = 0; k < 3; k++)
                        missing += check_rows(expert[k][0], expert[k][1],
                                              ek_gpu_rows_here(&w.shard, m, i, expert[k][0]));
                }
            }
            assert_true(missing > 0);
            assert_int_equal(m->w.block_bytes + missing, whole->w.block_bytes);
        }
        ek_model_close(m), ek_model_close(whole);
    }
}

/* --- outputs */

static void check_range(ek_gpu_range p, int *next, int unit)
{
    assert_int_equal(p.first, *next);
    assert_true(p.n > 0 && p.first % unit == 0);
    *next = p.first + p.n;
}

/* Every output is one device's, and of keys and values every head somebody's whose queries read it. */
static void every_output_is_computed_once(void **state)
{
    (void)state;
    static const char *const names[] = {"e2b", "e4b", "12b", "26b", "31b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ek_model *m = open_published(names[i], 4);
        const ek_config *c = &m->config;
        for (int ranks = 2; ranks <= 8; ranks++) {
            assert_int_equal(ek_gpu_shard_check(m, ranks), EK_OK);
            for (int j = 0; j < c->n_layers; j++) {
                const ek_layer_config *l = &c->layer[j];
                int heads = 0, columns = 0, outputs = 0;
                for (int r = 0; r < ranks; r++) {
                    const ek_gpu_shard shard = {.rank = r, .ranks = ranks};
                    const ek_gpu_head_part h = ek_gpu_heads_here(&shard, c, l);
                    check_range(h.q, &heads, 1);
                    assert_int_equal(h.q.n % h.kv.n, 0);
                    for (int q = 0; q < h.q.n; q++) /* the head that a query reads, here and in all */
                        assert_int_equal(h.kv.first + q / (h.q.n / h.kv.n),
                                         (h.q.first + q) * l->n_kv_heads / c->n_heads);
                    check_range(ek_gpu_columns_here(&shard, &m->w.layer[j].down), &columns, 64);
                    check_range(ek_gpu_outputs_here(&shard, c->hidden_size), &outputs, 64);
                }
                assert_true(heads == c->n_heads && columns == l->intermediate_size && outputs == c->hidden_size);
            }
        }
        assert_int_equal(ek_gpu_shard_check(m, 9), EK_EUNSUPPORTED);
        assert_non_null(strstr(ek_err_text(), "8 devices at most, not for 9"));
        ek_model_close(m);
    }
}

static void outputs_are_placed_by_room(void **state)
{
    (void)state;
    ek_place p;
    char text[256];
    ek_model *m = open_published("31b", 0);
    assert_int_equal(ek_place_by(&p, m, (double[]){80e9, 80e9}, &(ek_fit_opts){.n = 2, .split = EK_SPLIT_OUTPUTS}),
                     EK_OK);
    assert_true(p.whole_o && p.bytes[0] > 33e9 && p.bytes[0] < 37e9 && p.bytes[1] > 33e9 && p.bytes[1] < 37e9);
    assert_int_equal(ek_place_by(&p, m, (double[]){80e9, 60e9}, &(ek_fit_opts){.n = 2, .split = EK_SPLIT_OUTPUTS}),
                     EK_OK); /* one has too little for all of o */
    assert_true(!p.whole_o && p.bytes[0] > 30e9 && p.bytes[0] < 34e9 && p.bytes[1] > 30e9 && p.bytes[1] < 34e9);
    ek_place_text(text, sizeof text, &p, (const int[]){0, 3});
    assert_non_null(strstr(text, "outputs cut over cuda:0 and cuda:3 (weights up to 3"));
    assert_int_equal(ek_place_by(&p, m, (double[]){80e9, 24e9}, &(ek_fit_opts){.n = 2, .split = EK_SPLIT_OUTPUTS}),
                     EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "device 1 of 2 has room for 24.00 GB"));
    ek_model_close(m);
    m = open_tiny("Q2", true);
    assert_int_equal(
        ek_place_by(&p, m, (double[]){1e9, 1e9, 1e9, 1e9, 1e9}, &(ek_fit_opts){.n = 5, .split = EK_SPLIT_OUTPUTS}),
        EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "4 heads cannot be cut for 5 devices"));
    ek_model_close(m);
}

/* As many as fit and no more, on the device that holds fewest. */
static void requests_are_counted_beside_the_weights(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        double room[3];
        bool host;
        ek_split split;
    } row[] = {{"e4b", 1, {8e9}, false, EK_SPLIT_LAYERS},
               {"31b", 2, {14e9, 20e9}, false, EK_SPLIT_LAYERS},
               {"26b", 1, {12e9}, true, EK_SPLIT_LAYERS},
               {"31b", 2, {14e9, 20e9}, false, EK_SPLIT_OUTPUTS},
               {"31b", 3, {9e9, 9e9, 9e9}, false, EK_SPLIT_OUTPUTS}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_model *m = open_published(row[i].name, 4);
        ek_place p;
        double least = INFINITY;
        assert_int_equal(
            ek_place_by(&p, m, row[i].room, &(ek_fit_opts){.n = row[i].n, .split = row[i].split, .host = row[i].host}),
            EK_OK);
        ek_fit_parts kept[3] = {0}, full[3] = {0};
        for (int d = 0; d < p.n; d++)
            kept[p.device[d]].weights = p.bytes[d], full[p.device[d]].weights = row[i].room[p.device[d]];
        const ek_fit_requests k = ek_fit_count_requests(&p, kept, m, row[i].room, 32768);
        const int n = k.n;
        const double each = k.each;
        for (int d = 0; d < p.n; d++) least = fmin(least, (row[i].room[p.device[d]] - p.bytes[d]) * EK_GPU_KEYS_SHARE);
        assert_true(n > 0 && each > 0 && n * each <= fmax(least, n * each * (p.n > 1)));
        const double whole = ek_budget_request_bytes(&m->layout, 32768);
        assert_true(each <= whole &&
                    (p.n == 1 && !p.host_end ? each == whole && (n + 1) * each > least : each < whole));
        if (row[i].split == EK_SPLIT_OUTPUTS) assert_true(each * row[i].n <= whole * 1.5);
        assert_true(n * each <= k.left && (n + 1) * each > k.left && k.left >= least);
        assert_int_equal(ek_fit_count_requests(&p, full, m, row[i].room, 32768).n, 0);
        ek_model_close(m);
    }
}

/* Where nobody says how: outputs if a reply is faster so, and layers where these cannot be cut, with the reason. */
static void the_plan_chooses(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        double room; /* of each but the first, which has half */
        bool host, apart;
        ek_split want;
        const char *why;
    } row[] = {
        {"31b", 2, 80e9, false, false, EK_SPLIT_OUTPUTS, ""},
        {"31b", 3, 80e9, false, false, EK_SPLIT_OUTPUTS, ""},
        {"31b", 1, 80e9, false, false, EK_SPLIT_LAYERS, ""},
        {"31b", 2, 80e9, true, false, EK_SPLIT_LAYERS, ""},
        {"26b", 2, 80e9, false, false, EK_SPLIT_OUTPUTS, ""},
        {"e4b", 2, 80e9, false, false, EK_SPLIT_LAYERS, ""},
        {"e4b", 2, 80e9, false, true, EK_SPLIT_LAYERS, ""},
        {"31b", 2, 80e9, false, true, EK_SPLIT_LAYERS, "layers, for outputs cannot be cut: two are apart"},
        {"31b", 9, 80e9, false, false, EK_SPLIT_LAYERS, "cut for 8 devices at most, not for 9"},
        {"31b", 2, 14e9, false, false, EK_SPLIT_LAYERS, "on each of 2 devices its part of the weights needs up to "},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_model *m = open_published(row[i].name, 4);
        ek_fit_opts o = {
            .n = row[i].n, .split = EK_SPLIT_AUTO, .host = row[i].host, .apart = row[i].apart ? "two are apart" : NULL};
        ek_fit_parts kept[EK_RANKS] = {0};
        ek_cuda *c[EK_RANKS] = {0};
        double room[EK_RANKS];
        ek_place p;
        for (int d = 0; d < o.n; d++) room[d] = d ? row[i].room : row[i].room / 2;
        assert_int_equal(ek_fit_plan(&p, kept, m, c, room, &o), EK_OK);
        assert_int_equal(p.split, row[i].want);
        assert_true(row[i].why[0] ? strstr(p.why, row[i].why) != NULL : !p.why[0]);
        for (int d = 0; d < p.n; d++) assert_true(kept[p.device[d]].weights == p.bytes[d]);
        o.split = EK_SPLIT_LAYERS; /* who insists has his way */
        assert_int_equal(ek_fit_plan(&p, kept, m, c, room, &o), EK_OK);
        assert_true(p.split == EK_SPLIT_LAYERS && !p.why[0]);
        ek_model_close(m);
    }
}

/* Layers, too, for a drafter that reads more KV heads than it has launches for with outputs cut. */
static void the_plan_chooses_what_the_drafter_can_do(void **state)
{
    (void)state;
    static const int heads[] = {16, 24, 32};
    for (int i = 0; i < 3; i++) {
        static ek_config c, own;
        ek_model *m;
        ek_drafter *d;
        const ek_model_opts opts = {.cpu = ek_cpu_detect(), .deferred = true};
        assert_int_equal(ek_config_published(&c, "31b", 0), EK_OK);
        c.n_heads = heads[i] * 2;
        for (int l = 0; l < c.n_layers; l++) c.layer[l].n_kv_heads = heads[i];
        assert_int_equal(ek_model_synthetic(&m, &c, 4, 1, &opts), EK_OK);
        drafter_config(&own, &c, 0);
        assert_int_equal(ek_drafter_synthetic(&d, &own, 5, m, &opts), EK_OK);
        ek_fit_opts o = {.n = 2, .split = EK_SPLIT_AUTO, .beside = {.drafter = d}};
        ek_fit_parts kept[EK_RANKS] = {0};
        ek_cuda *none[EK_RANKS] = {0};
        ek_place p;
        assert_int_equal(ek_fit_plan(&p, kept, m, none, (double[]){80e9, 80e9}, &o), EK_OK);
        assert_int_equal(p.split, heads[i] > 24 ? EK_SPLIT_LAYERS : EK_SPLIT_OUTPUTS);
        assert_true(heads[i] > 24 ? strstr(p.why, "a drafter reads 32 KV heads") != NULL : !p.why[0]);
        o.split = EK_SPLIT_OUTPUTS; /* who insists hears why not, before a weight is read */
        assert_int_equal(ek_fit_plan(&p, kept, m, none, (double[]){80e9, 80e9}, &o),
                         heads[i] > 24 ? EK_EUNSUPPORTED : EK_OK);
        ek_drafter_close(d);
        ek_model_close(m);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_placed_by_room),
        cmocka_unit_test(layers_are_dealt_by_time_where_there_is_room),
        cmocka_unit_test(the_cpu_has_what_does_not_fit),
        cmocka_unit_test(the_cpu_has_experts_where_it_reads_less_of_them),
        cmocka_unit_test(layers_that_share_keys_stay_together),
        cmocka_unit_test(weights_are_read_device_by_device),
        cmocka_unit_test(weights_are_read_output_by_output),
        cmocka_unit_test(every_output_is_computed_once),
        cmocka_unit_test(outputs_are_placed_by_room),
        cmocka_unit_test(requests_are_counted_beside_the_weights),
        cmocka_unit_test(the_plan_chooses),
        cmocka_unit_test(the_plan_chooses_what_the_drafter_can_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
