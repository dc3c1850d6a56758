/* engine: the split of memory between the two pools of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/hash/rng.h"
#include "cache/page_table.h"
#include "engine/budget.h"

static const ek_kv_layout both = {.page_bytes = {[EK_SLIDING] = 4096, [EK_FULL] = 1024}, .sliding_window = 512};

static void enough_is_not_exceeded(void **state)
{
    (void)state;
    ek_budget b;
    assert_int_equal(ek_budget_plan(&b, &both, 4, 8192, 256, 1e12, false), EK_OK);
    assert_int_equal(b.n_pages[EK_FULL], 4 * 128);
    assert_int_equal(b.n_pages[EK_SLIDING], 4 * 13); /* 511 + 256 positions touch at most 13 pages */
    assert_int_equal(b.ctx, 8192);
}

static void one_context_always_fits(void **state)
{
    (void)state;
    ek_budget b;
    /* 128 full and 9 sliding pages: 131072 + 36864 bytes */
    assert_int_equal(ek_budget_plan(&b, &both, 4, 8192, 256, 167936 * 2, false), EK_OK);
    assert_int_equal(ek_budget_plan(&b, &both, 4, 8192, 256, 167936, false), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "one context of 8192 tokens needs 0.2 MiB"));
    assert_int_equal(ek_budget_plan(&b, &both, 4, 8192, 256, 100000, true), EK_OK);
    assert_true(b.ctx < 8192 && b.ctx == b.n_pages[EK_FULL] * 64);
    assert_int_equal(ek_budget_plan(&b, &both, 4, 8192, 256, 1000, true), EK_ENOMEM);
}

static void what_one_kind_cannot_use_is_for_the_other(void **state)
{
    (void)state;
    ek_budget b;
    /* at most 4 * 32 full pages and 4 * 13 sliding ones: 131072 + 212992 bytes */
    assert_int_equal(ek_budget_plan(&b, &both, 4, 2048, 256, 300000, false), EK_OK);
    assert_int_equal(b.n_pages[EK_FULL], 4 * 32);
    assert_int_equal(b.n_pages[EK_SLIDING], (300000 - 131072) / 4096);
}

static void people_read_what_fits(void **state)
{
    (void)state;
    assert_true(ek_budget_token_bytes(&both, EK_FULL) == 16 && ek_budget_token_bytes(&both, EK_SLIDING) == 64);
    /* 128 full pages, and the 9 that a window of 512 touches at most */
    assert_true(ek_budget_request_bytes(&both, 8192) == 128 * 1024 + 9 * 4096);
    assert_true(ek_budget_request_bytes(&both, 100) == 2 * 1024 + 2 * 4096);
    const int pages[EK_PAGE_KINDS] = {[EK_SLIDING] = 9 * 5 + 8, [EK_FULL] = 128 * 7};
    assert_int_equal(ek_budget_requests(&both, pages, 8192), 5);
    assert_int_equal(ek_budget_requests(&both, pages, 16384), 3);
    assert_int_equal(ek_budget_requests_in(&both, 167936 * 3 - 1, 8192), 2);
    assert_int_equal(ek_budget_requests_in(&both, 0, 8192), 0);
}

/* 167,936 bytes for 8,192 tokens */
static void a_device_runs_as_many_as_its_memory_holds(void **state)
{
    (void)state;
    const double each = 167936;
    static const struct {
        double requests;
        int want;
    } rows[] = {{0, 16}, {31.9, 16}, {32, 32}, {63.9, 32}, {64, 64}, {127.9, 64}, {128, 128}, {1e9, 128}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ek_budget_max_requests(&both, rows[i].requests * each, 8192), rows[i].want);
        assert_int_equal(ek_budget_max_requests(&both, rows[i].requests * each, 1 << 20), rows[i].want);
    }
    assert_int_equal(ek_budget_max_requests(&both, 64 * (2 * 1024 + 2 * 4096), 100), 64); /* of short ones more fit */
}

static void every_budget_keeps_its_promises(void **state)
{
    (void)state;
    int fits = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        uint64_t r = ek_mix64(seed);
        ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = r & 7 ? (1 + (r >> 3) % 64) * 64 : 0,
                                              [EK_FULL] = r >> 20 & 7 ? (1 + (r >> 23) % 64) * 64 : 0},
                               .sliding_window = 1 + (int)((r >> 32) % 1500)};
        layout.n_start = ek_mix64(r + 2) & 1 ? 4 * (int)(ek_mix64(r + 3) % 4) : 0;
        for (int k = 0; k < EK_KIND_COUNT && layout.n_start > 0; k++)
            layout.page_bytes[EK_KIND_COUNT + k] = 3 * layout.page_bytes[k];
        int requests = 1 + (int)((r >> 44) % 20), ctx = 2 + (int)((r >> 48) % 9000), chunk = 1 + (int)((r >> 12) % 600);
        double limit = (double)(1 + ek_mix64(r) % (1 << (10 + ek_mix64(r + 1) % 18)));
        bool shrink = r >> 62 & 1;
        ek_budget b;
        if (ek_budget_plan(&b, &layout, requests, ctx, chunk, limit, shrink) != EK_OK) continue;
        fits++;
        assert_true(b.bytes <= limit && b.bytes == ek_budget_bytes(&layout, b.n_pages));
        assert_true(b.ctx >= 2 && b.ctx <= ctx && (shrink || b.ctx == ctx));
        for (int k = 0; k < EK_PAGE_KINDS; k++)
            assert_true(b.n_pages[k] >= ek_page_table_max(&layout, (ek_layer_kind)k, b.ctx, 1));
        for (int k = EK_FULL; k < EK_PAGE_KINDS; k += EK_KIND_COUNT)
            assert_true(b.n_pages[k] <= requests * ek_page_table_max(&layout, (ek_layer_kind)k, ctx, 1));
        const int ample = requests * ek_page_table_max(&layout, EK_SLIDING, ctx, chunk);
        const int whole = requests * ek_page_table_max(&layout, EK_FULL, ctx, chunk);
        if (layout.n_start == 0 && b.n_pages[EK_SLIDING] < ample && b.n_pages[EK_FULL] == whole)
            assert_true(limit - b.bytes < (double)layout.page_bytes[EK_SLIDING]);
    }
    assert_true(fits > 5000 && fits < 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_is_not_exceeded),
        cmocka_unit_test(one_context_always_fits),
        cmocka_unit_test(what_one_kind_cannot_use_is_for_the_other),
        cmocka_unit_test(people_read_what_fits),
        cmocka_unit_test(a_device_runs_as_many_as_its_memory_holds),
        cmocka_unit_test(every_budget_keeps_its_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
