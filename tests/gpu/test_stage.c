/* What steps take by the model, and the microbatches that it chooses: over several devices none is cut where that is
 * slower.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "../support/published.h"
#include "gpu/fit/fit.h"

static void lay_out(ek_stage *s, const ek_model *m, int n)
{
    ek_place p;
    const double room[] = {140e9, 140e9, 140e9, 140e9};
    assert_int_equal(ek_place_by(&p, m, room, &(ek_fit_opts){.n = n}), EK_OK);
    for (int i = 0; i < n; i++) s[i] = ek_stage_of(m, p.share[i].first, p.share[i].end);
}

/* Milliseconds read on one H200, of as many replies (docs/log/2026-11-27-several-gpus.md). */
static void steps_take_what_was_read(void **state)
{
    (void)state;
    enum { SIZES = 5 };
    static const int rows[SIZES] = {1, 2, 4, 8, 64};
    static const struct {
        const char *name;
        double ms[SIZES];
    } row[] = {{"31b", {5.97, 6.13, 6.61, 8.68, 25.3}},
               {"26b", {1.74, 2.01, 2.53, 3.34, 8.77}},
               {"e4b", {1.93, 2.02, 2.18, 2.49, 5.70}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_model *m = open_published(row[i].name, 4);
        const ek_stage s = ek_stage_of(m, 0, m->config.n_layers);
        for (int j = 0; j < SIZES; j++) {
            const double ms = ek_stage_time(&s, rows[j], rows[j]) / 4.5e9, off = ms / row[i].ms[j];
            if (rows[j] <= 8) assert_true(off > 0.85 && off < 1.1);
            else assert_true(off > 0.9 && off < 1.4);
        }
        ek_model_close(m);
    }
}

static void parts_are_the_whole(void **state)
{
    (void)state;
    ek_stage s[4];
    ek_model *m = open_published("e4b", 4);
    const ek_stage all = ek_stage_of(m, 0, m->config.n_layers);
    for (int n = 2; n <= 4; n++) {
        lay_out(s, m, n);
        for (int rows = 1; rows < 3000; rows += rows) {
            double replies = 0, prompt = 0;
            for (int i = 0; i < n; i++) {
                replies += ek_stage_time(&s[i], rows, rows);
                prompt += ek_stage_time(&s[i], rows, 1);
            }
            assert_true(fabs(replies / ek_stage_time(&all, rows, rows) - 1) < 1e-9);
            assert_true(fabs(prompt / ek_stage_time(&all, rows, 1) - 1) < 1e-9);
        }
    }
    ek_model_close(m);
}

/* E4B's last device has what reads keys of others, and the head: more than half of a reply, and next to nothing of a
 * prompt. */
static void microbatches_are_as_many_as_gain(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int devices, one, eight, many, prompt;
    } row[] = {{"31b", 2, 1, 2, 2, 4}, {"31b", 3, 1, 3, 3, 4}, {"31b", 4, 1, 4, 4, 4}, {"26b", 2, 1, 2, 2, 2},
               {"26b", 3, 1, 3, 3, 3}, {"26b", 4, 1, 4, 4, 3}, {"e4b", 2, 1, 2, 2, 1}, {"e4b", 3, 1, 2, 2, 2},
               {"e4b", 4, 1, 2, 2, 3}, {"e2b", 2, 1, 1, 2, 1}, {"e2b", 3, 1, 1, 2, 1}, {"e2b", 4, 1, 1, 2, 2}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_stage s[4];
        ek_model *m = open_published(row[i].name, 4);
        const int n = row[i].devices;
        lay_out(s, m, n);
        assert_int_equal(ek_stage_microbatches(s, n, 1, 1, true, n), row[i].one);
        assert_int_equal(ek_stage_microbatches(s, n, 8, 8, true, n), row[i].eight);
        assert_int_equal(ek_stage_microbatches(s, n, 64, 64, true, n), row[i].many);
        assert_int_equal(ek_stage_microbatches(s, n, 2048, 1, false, 4), row[i].prompt);
        assert_int_equal(ek_stage_microbatches(s, 1, 2048, 1, false, 4), 1); /* one device has nobody to wait for */
        assert_int_equal(ek_stage_microbatches(s, n, 8, 8, true, 1), 1);
        assert_int_equal(ek_stage_microbatches(s, n, 8, 8, true, 0), 1);
        ek_model_close(m);
    }
}

/* Of what was measured over two devices (docs/log/2026-11-28-decisions.md; of experts agents' turns, docs/log/
 * 2026-11-29-two-gpus.md), and what follows for more. */
static void outputs_are_preferred_where_reading_takes_long(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        bool outputs;
    } row[] = {{"31b", 1, false}, {"31b", 2, true},  {"31b", 3, true},  {"31b", 4, true},
               {"31b", 8, true},  {"12b", 2, true},  {"26b", 2, true},  {"26b", 4, true},
               {"e4b", 2, false}, {"e4b", 4, false}, {"e2b", 2, false}, {"e2b", 4, false}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_model *m = open_published(row[i].name, 4);
        assert_int_equal(ek_stage_prefers_outputs(m, row[i].n), row[i].outputs);
        ek_model_close(m);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_what_was_read),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(microbatches_are_as_many_as_gain),
        cmocka_unit_test(outputs_are_preferred_where_reading_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
