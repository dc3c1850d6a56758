/* engine: how many rows of prompts a step has, by the times of steps. Times are made up: the fake executor's clock goes
 * on with the rows that it computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "asks.h"
#include "base/hash/rng.h"

#define GAP 0.06

/* --- the model of steps alone */

/* Of a device: a step of replies, and what rows add, the less the more there are. */
typedef struct device {
    double reply, row, bend;
} device;

static double time_of(const device *d, int rows)
{
    return d->reply + d->row * pow(rows, d->bend);
}

static const device devices[] = {
    {0.003, 40e-6, 1},    /* 26B-A4B on a GPU */
    {0.003, 400e-6, 0.7}, /* rows that share what is read */
    {0.012, 400e-6, 1},   /* 31B */
    {0.0005, 5e-6, 1},    /* a small model */
    {0.05, 0.008, 1},     /* a CPU: no step with prompts takes so little */
    {0.002, 6e-3, 0.4},
};
enum { N_DEVICES = sizeof devices / sizeof *devices, MOST = 8192 };

/* The largest step within the limits. */
static int best(const device *d)
{
    int n = EK_GAP_LEAST;
    while (n < MOST && time_of(d, n + 1) <= fmax(GAP, 2 * d->reply)) n++;
    return n;
}

static double allowed(const device *d)
{
    return fmax(fmax(GAP, 2 * d->reply), time_of(d, EK_GAP_LEAST));
}

static int step_on(const device *d, ek_gap *g)
{
    const int n = ek_gap_rows(g, GAP, 0, MOST);
    ek_gap_note(g, n, time_of(d, n));
    return n;
}

/* From nothing known, no step takes longer than it may, and after some the size is not far from the largest. */
static void steps_grow_to_what_fits(void **state)
{
    (void)state;
    for (int i = 0; i < N_DEVICES; i++) {
        const device *d = &devices[i];
        ek_gap g = {0};
        assert_int_equal(ek_gap_rows(&g, GAP, 0, MOST), EK_GAP_LEAST);
        assert_int_equal(ek_gap_rows(&g, GAP, 0, 7), 7);
        int n = 0;
        for (int s = 0; s < 16; s++) {
            ek_gap_note(&g, 0, d->reply);
            n = step_on(d, &g);
            assert_true(time_of(d, n) <= allowed(d) * 1.0001);
        }
        print_message("device %d: %d rows of at most %d\n", i, n, best(d));
        assert_true(n == EK_GAP_LEAST || n == MOST || time_of(d, n) >= 0.8 * allowed(d));
    }
}

/* A prompt of a few rows says little of long steps: nothing is concluded that they do not do. */
static void short_prompts_promise_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < N_DEVICES; i++)
        for (int rows = 2; rows < 300; rows = rows * 3 / 2 + 1) {
            ek_gap g = {0};
            ek_gap_note(&g, rows, time_of(&devices[i], rows));
            ek_gap_note(&g, 0, devices[i].reply);
            assert_true(time_of(&devices[i], ek_gap_rows(&g, GAP, 0, MOST)) <= allowed(&devices[i]) * 1.0001);
        }
}

/* A device that becomes slower, by a long context or others beside it, is believed at the first slow step, and one
 * that becomes faster after some. */
static void a_slow_step_is_believed(void **state)
{
    (void)state;
    for (int i = 0; i < N_DEVICES; i++)
        for (double factor = 2; factor < 20; factor *= 2) {
            device slow = devices[i];
            slow.row *= factor;
            ek_gap g = {0};
            for (int s = 0; s < 16; s++) ek_gap_note(&g, 0, slow.reply), step_on(&devices[i], &g);
            const int before = step_on(&devices[i], &g);
            step_on(&slow, &g);          /* the one that nobody could know */
            for (int s = 0; s < 10; s++) /* few rows say little of how others share what is read */
                assert_true(time_of(&slow, step_on(&slow, &g)) <= allowed(&slow) * (s == 0   ? 1.7
                                                                                    : s == 1 ? 1.2
                                                                                             : 1.05));
            for (int s = 0; s < 12; s++) step_on(&devices[i], &g);
            assert_true(step_on(&devices[i], &g) >= before * 7 / 10);
        }
}

/* One step that the machine held up costs a few short ones. */
static void one_that_was_held_up_is_forgotten(void **state)
{
    (void)state;
    for (int i = 0; i < N_DEVICES; i++) {
        ek_gap g = {0};
        for (int s = 0; s < 16; s++) ek_gap_note(&g, 0, devices[i].reply), step_on(&devices[i], &g);
        const int before = step_on(&devices[i], &g);
        ek_gap_note(&g, before, 2);
        for (int s = 0; s < 12; s++) step_on(&devices[i], &g);
        assert_true(step_on(&devices[i], &g) >= before * 7 / 10);
    }
}

static void whatever_is_measured(void **state)
{
    (void)state;
    static const double times[] = {-1, 0, 1e-9, 1e-3, 1, 1e9, NAN, INFINITY};
    ek_gap g = {0};
    for (uint64_t i = 0; i < 100000; i++) {
        ek_gap_note(&g, (int)(ek_mix64(i) % 9000) - 3, times[ek_mix64(i + 7) % 8]);
        const int n = ek_gap_rows(&g, times[ek_mix64(i + 9) % 5 + 1], times[ek_mix64(i + 5) % 6], MOST);
        assert_in_range(n, EK_GAP_LEAST, MOST);
        if (i % 100 == 0) g = (ek_gap){0};
    }
}

/* --- the engine's steps */

/* What a step had. */
typedef struct seen {
    int rows;
    double seconds;
} seen;

enum { STEPS = 400 };

static seen steps[STEPS];
static int n_steps;
static int32_t tokens[32000];

typedef struct client {
    int n, first_at; /* tokens; the step of the first one */
} client;

static void on_token(void *arg, const ek_event *event)
{
    client *c = arg;
    assert_true(event->finish != EK_FINISH_ERROR);
    if (event->token >= 0 && c->n++ == 0) c->first_at = n_steps;
}

static void ask_for(ek_engine *e, client *c, int prompt, int reply, int seed)
{
    for (int i = 0; i < prompt; i++) tokens[i] = (int32_t)(ek_mix64((uint64_t)(seed * 100000 + i)) % 90);
    const ek_request_opts r = {.tokens = tokens,
                               .n_tokens = prompt,
                               .max_tokens = reply,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_token,
                               .arg = c,
                               .client = (uint64_t)seed,
                               .prompt_logits_from = prompt};
    assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
}

static void step(fake *f, ek_engine *e)
{
    const uint64_t rows = f->rows;
    const double time = f->time;
    assert_true(n_steps < STEPS && ek_engine_step(e));
    steps[n_steps++] = (seen){(int)(f->rows - rows), f->time - time};
}

static ek_engine *open(fake *f, double base, double row, int chunk, double max_gap)
{
    ek_engine *e;
    fake_init(f, 512, true, true);
    f->config.max_position_embeddings = 65536;
    f->base_seconds = base, f->row_seconds = row;
    ek_executor x = fake_executor(f, 3000, 3000);
    ek_engine_opts o = ek_engine_defaults();
    o.chunk = chunk, o.max_gap = max_gap, o.cache_bytes = 0;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    n_steps = 0;
    return e;
}

/* Nobody replies: steps of the chunk. One replies: steps of the time that it may wait, in which its tokens come. */
static void prompts_beside_a_reply_take_what_it_may_wait(void **state)
{
    (void)state;
    fake f;
    client a = {0}, b = {0};
    ek_engine *e = open(&f, 0.004, 50e-6, 4096, GAP);
    ask_for(e, &a, 8192 + 100, 60, 1);
    for (int i = 0; i < 2; i++) step(&f, e), assert_int_equal(steps[i].rows, 4096);
    while (a.n < 10) step(&f, e);
    const int from = n_steps, had = a.n;
    ask_for(e, &b, 20000, 3, 2);
    while (b.n == 0) step(&f, e);
    for (int i = from; i < n_steps; i++) {
        assert_true(steps[i].seconds <= GAP);
        if (i > from + 1 && i + 1 < n_steps) assert_in_range(steps[i].rows, 850, 1200);
    }
    assert_int_equal(a.n - had, n_steps - from); /* a token in every step */
    assert_in_range(n_steps - from, 20000 / 1200, 20000 / 800 + 2);
    while (a.n < 60 || b.n < 3) step(&f, e);
    ek_engine_close(e);
    e = open(&f, 0.004, 50e-6, 4096, 0); /* no limit */
    a = b = (client){0};
    ask_for(e, &a, 50, 60, 1);
    while (a.n < 10) step(&f, e);
    ask_for(e, &b, 20000, 3, 2);
    step(&f, e), assert_int_equal(steps[n_steps - 1].rows, 4096 + 1);
    ek_engine_close(e);
}

/* Short ones share a step, and one that comes behind a long one does not wait for its end. */
static void short_prompts_share_a_step(void **state)
{
    (void)state;
    fake f;
    client a = {0}, b = {0}, c = {0}, d = {0}, g = {0};
    ek_engine *e = open(&f, 0.004, 50e-6, 4096, GAP);
    ask_for(e, &a, 3000, 200, 1);
    while (a.n < 3) step(&f, e);
    ask_for(e, &b, 300, 30, 2), ask_for(e, &c, 400, 30, 3);
    const int from = n_steps;
    step(&f, e);
    assert_int_equal(steps[from].rows, 1 + 300 + 400);
    assert_true(b.n == 1 && c.n == 1 && steps[from].seconds <= GAP);
    ask_for(e, &d, 30000, 2, 4);
    step(&f, e), step(&f, e);
    ask_for(e, &g, 300, 2, 5);
    step(&f, e), step(&f, e); /* in the turn of those that are not the oldest */
    assert_true(g.n >= 1 && d.n == 0);
    for (int i = n_steps - 4; i < n_steps; i++) assert_in_range(steps[i].rows, 850, 1200);
    ek_engine_close(e);
}

/* Prompts of two clients get as many rows as each other, whole steps in turns where a step has few. */
static void few_rows_go_in_turns(void **state)
{
    (void)state;
    ek_share s[3] = {{.client = 1, .left = 0}, {.client = 2, .left = 900}, {.client = 3, .left = 700}};
    ek_engine_divide(s, 3, 400, 0);
    assert_true(s[0].max == 0 && s[1].max == 400 && s[2].max == 0);
    ek_engine_divide(s, 3, 400, 1);
    assert_true(s[0].max == 0 && s[1].max == 0 && s[2].max == 400);
    s[2].left = 200; /* short ones share a step */
    ek_engine_divide(s, 3, 400, 0);
    assert_true(s[1].max == 200 && s[2].max == 200);
    s[2].left = 700;
    ek_engine_divide(s, 3, 1023, 0);
    assert_true(s[1].max >= 900 && s[2].max == 123); /* what it leaves */
    ek_engine_divide(s, 3, 1023, 1);
    assert_true(s[1].max == 323 && s[2].max == 700);
    ek_engine_divide(s, 3, 1024, 1);
    assert_true(s[1].max == 512 && s[2].max == 512);
    fake f;
    client a = {0}, b = {0}, c = {0};
    ek_engine *e = open(&f, 0.004, 200e-6, 2048, GAP);
    ask_for(e, &a, 600, 100, 1);
    while (a.n < 3) step(&f, e);
    ask_for(e, &b, 4000, 2, 2), ask_for(e, &c, 4000, 2, 3);
    while (b.n == 0 || c.n == 0) step(&f, e);
    assert_true(abs(b.first_at - c.first_at) < 5);
    ek_engine_close(e);
}

/* The device becomes five times slower in the middle. */
static void a_device_that_becomes_slower(void **state)
{
    (void)state;
    fake f;
    client a = {0}, b = {0};
    ek_engine *e = open(&f, 0.004, 50e-6, 2048, GAP);
    ask_for(e, &a, 3000, 300, 1);
    while (a.n < 3) step(&f, e);
    ask_for(e, &b, 30000, 2, 2);
    for (int i = 0; i < 6; i++) step(&f, e);
    f.row_seconds *= 5;
    int late = 0;
    for (int i = 0; i < 20; i++) step(&f, e), late += steps[n_steps - 1].seconds > GAP;
    assert_int_equal(late, 1);
    ek_engine_close(e);
}

/* Where one reply's step takes longer than it should, a step with prompts takes twice as long, or has the least rows.
 */
static void a_prompt_goes_forward_on_a_slow_device(void **state)
{
    (void)state;
    static const double row[] = {1e-3, 0.1};
    for (int i = 0; i < 2; i++) {
        fake f;
        client a = {0}, b = {0};
        ek_engine *e = open(&f, 0.1, row[i], 512, GAP);
        ask_for(e, &a, 100, 100, 1);
        while (a.n < 5) step(&f, e);
        ask_for(e, &b, 1500, 2, 2);
        while (b.n == 0) {
            step(&f, e);
            const int n = steps[n_steps - 1].rows - 1;
            assert_in_range(n, b.n ? 1 : EK_GAP_LEAST, i ? EK_GAP_LEAST : 100);
        }
        ek_engine_close(e);
    }
}

/* Rows of prompts beside those of replies are whole tiles of products. */
static void rows_are_whole_tiles(void **state)
{
    (void)state;
    static const struct {
        int rows, others, max, want;
    } row[] = {{64, 4, 2048, 60},  {120, 9, 2048, 119}, {96, 8, 2048, 88},  {250, 8, 2048, 248},
               {110, 4, 2048, 92}, {52, 4, 2048, 60},   {36, 4, 2048, 36},  {64, 8, 64, 56},
               {52, 4, 55, 55},    {40, 30, 2048, 34},  {34, 40, 2048, 34}, {2048, 8, 2048, 2040}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ek_gap_whole(row[i].rows, row[i].others, 64, row[i].max), row[i].want);
        assert_int_equal(ek_gap_whole(row[i].rows, row[i].others, 0, row[i].max), row[i].rows);
    }
    fake f;
    client a = {0}, b = {0};
    ek_engine *e = open(&f, 0.004, 50e-6, 4096, GAP);
    e->on.row_tile = 64;
    ask_for(e, &a, 100, 60, 1);
    while (a.n < 10) step(&f, e);
    const int from = n_steps;
    ask_for(e, &b, 20000, 3, 2);
    while (b.n == 0) step(&f, e);
    for (int i = from + 1; i + 1 < n_steps; i++) assert_int_equal(steps[i].rows % 64, 0);
    assert_true(n_steps - from < 20000 / 700);
    ek_engine_close(e);
}

/* Steps by tiles of 32 rows, the third of which takes `third` ms in all; returns how many of 300 steps had it. */
static int steps_of_tiles(double third, int *late)
{
    const double ms[] = {35.6, 43, third, 69, 80, 92};
    const int replies = 4;
    int large = 0;
    ek_gap g = {0};
    *late = 0;
    for (int s = 0; s < 400; s++) {
        const int n = ek_gap_whole(ek_gap_rows(&g, GAP, 0, 2048), replies, 64, 2048), tiles = (n + replies - 1) / 32;
        const double noise = 1 + 0.03 * ((double)(ek_mix64((uint64_t)s) % 1000) / 1000 - 0.5);
        assert_true(tiles < (int)(sizeof ms / sizeof *ms));
        if (s % 20 == 0) ek_gap_note(&g, 0, 0.0135);
        ek_gap_note(&g, n, ms[tiles] * noise / 1000);
        large += s >= 100 && n == 92, *late += ms[tiles] * noise > 1000 * GAP;
    }
    return large;
}

/* 31B in Q4_0 on an H200 behind 15,000 tokens: steps of 64 rows took 43 ms, of 96 rows 55 to 58. A row's share of the
 * first promises no 96, the line through 32 and 64 rows does. One that took too long is tried again, seldom. */
static void one_tile_and_a_half_is_found(void **state)
{
    (void)state;
    int late;
    assert_true(steps_of_tiles(55, &late) > 240 && late == 0);
    assert_true(steps_of_tiles(57.4, &late) > 240 && late == 0);
    assert_true(steps_of_tiles(62, &late) < 20 && late < 20);
}

/* The time that encoding a picture took of a step is not the prompts' any more. */
static void what_encoding_took_is_gone(void **state)
{
    (void)state;
    ek_gap g = {.reply = 0.004};
    for (int i = 0; i < EK_GAP_BINS; i++) g.row[i] = 50e-6;
    const int all = ek_gap_rows(&g, GAP, 0, MOST), rest = ek_gap_rows(&g, GAP, GAP / 2, MOST);
    assert_in_range(all, 950, 1100);
    assert_in_range(rest, 380, 500);
    assert_int_equal(ek_gap_rows(&g, GAP, 10 * GAP, MOST), EK_GAP_LEAST);
}

static void what_cannot_be_a_gap(void **state)
{
    (void)state;
    static const double wrong[] = {-1, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fake f;
        ek_engine *e;
        fake_init(&f, 512, true, true);
        ek_executor x = fake_executor(&f, 100, 100);
        ek_engine_opts o = ek_engine_defaults();
        o.max_gap = wrong[i];
        assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "max_gap"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_grow_to_what_fits),      cmocka_unit_test(short_prompts_promise_nothing),
        cmocka_unit_test(a_slow_step_is_believed),      cmocka_unit_test(one_that_was_held_up_is_forgotten),
        cmocka_unit_test(whatever_is_measured),         cmocka_unit_test(prompts_beside_a_reply_take_what_it_may_wait),
        cmocka_unit_test(short_prompts_share_a_step),   cmocka_unit_test(few_rows_go_in_turns),
        cmocka_unit_test(a_device_that_becomes_slower), cmocka_unit_test(a_prompt_goes_forward_on_a_slow_device),
        cmocka_unit_test(rows_are_whole_tiles),         cmocka_unit_test(one_tile_and_a_half_is_found),
        cmocka_unit_test(what_encoding_took_is_gone),   cmocka_unit_test(what_cannot_be_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
