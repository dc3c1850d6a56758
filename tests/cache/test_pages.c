/* cache: pages change hands without loss, and a sliding layer keeps exactly what is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cache/table.h"

static const int few[EK_KIND_COUNT] = {[EK_SLIDING] = 5, [EK_FULL] = 7};

static ek_pages *open_pages(const ek_kv_layout *layout, const int n[EK_KIND_COUNT])
{
    ek_pages *p = NULL;
    assert_int_equal(ek_pages_open(&p, layout, n), EK_OK);
    return p;
}

static void pages_are_all_or_none(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 100, [EK_FULL] = 4096}, .sliding_window = 8};
    ek_pages *p = open_pages(&layout, few);
    assert_int_equal(ek_pages_bytes(&layout, few), 5 * 128 + 7 * 4096);
    ek_page *page[8] = {0};
    assert_int_equal(ek_pages_acquire(p, EK_FULL, 8, page), EK_EBUSY);
    assert_null(page[0]);
    assert_string_equal(ek_err_text(), "8 pages wanted, 7 of 7 are unused");
    assert_int_equal(ek_pages_acquire(p, EK_FULL, 7, page), EK_OK);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 0);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 5);
    for (int i = 0; i < 7; i++) {
        assert_int_equal((uintptr_t)page[i]->data % 64, 0);
        memset(page[i]->data, i, 4096);
    }
    for (int i = 0; i < 7; i++) /* no two overlap */
        for (int b = 0; b < 4096; b++) assert_int_equal(page[i]->data[b], i);
    ek_page_retain(page[3]);
    ek_pages_release(p, page, 7);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 6);
    assert_int_equal(page[3]->refs, 1);
    ek_pages_release(p, page + 3, 1);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    ek_pages_close(p);
}

static void pages_are_poisoned(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 64}, .sliding_window = 8};
    ek_pages *p = open_pages(&layout, few);
    ek_pages_poison(p, true);
    ek_page *page;
    float f;
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(ek_pages_acquire(p, EK_SLIDING, 1, &page), EK_OK);
        memcpy(&f, page->data + 60, sizeof f);
        assert_true(isnan(f));
        memset(page->data, 0, 64);
        ek_pages_release(p, &page, 1);
    }
    ek_pages_close(p);
}

static void too_many_pages_are_refused(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = (size_t)1 << 40, [EK_FULL] = 64}, .sliding_window = 8};
    int n[EK_KIND_COUNT] = {[EK_SLIDING] = 1 << 20, [EK_FULL] = 1};
    ek_pages *p = NULL;
    assert_int_equal(ek_pages_open(&p, &layout, n), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "MiB of memory are available"));
    n[EK_SLIDING] = -1;
    assert_int_equal(ek_pages_open(&p, &layout, n), EK_EINVAL);
    assert_null(p);
}

static void a_kind_without_keys_has_no_pages(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 0, [EK_FULL] = 64}, .sliding_window = 0};
    ek_pages *p = open_pages(&layout, few);
    assert_int_equal(ek_pages_total(p, EK_SLIDING), 0);
    ek_table t;
    ek_table_init(&t, &layout, 130);
    assert_int_equal(ek_table_room(&t, p, 0, 130), 130);
    assert_int_equal(ek_table_extend(&t, p, 0, 130), EK_OK);
    assert_int_equal(t.end[EK_FULL], 3);
    assert_int_equal(t.end[EK_SLIDING], 0);
    ek_table_trim(&t, p, 130);
    ek_table_clear(&t, p);
    ek_table_fini(&t);
    ek_pages_close(p);
}

static void extending_is_all_or_none(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 64}, .sliding_window = 1000};
    ek_pages *p = open_pages(&layout, few); /* 5 sliding, 7 full */
    ek_table t;
    ek_table_init(&t, &layout, 1000);
    assert_int_equal(ek_table_room(&t, p, 0, 1000), 5 * 64);
    assert_int_equal(ek_table_extend(&t, p, 0, 5 * 64 + 1), EK_EBUSY);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    assert_int_equal(ek_table_extend(&t, p, 0, 65), EK_OK);
    assert_int_equal(ek_table_missing(&t, EK_FULL, 65, 63), 0);
    assert_int_equal(ek_table_missing(&t, EK_FULL, 65, 64), 1);
    assert_ptr_equal(t.data[EK_FULL][1], t.page[EK_FULL][1]->data);
    assert_null(t.data[EK_FULL][2]);
    assert_int_equal(ek_table_room(&t, p, 65, 1000), 5 * 64 - 65);
    ek_table_clear(&t, p);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 5);
    ek_table_fini(&t);
    ek_pages_close(p);
}

/* A request of random chunks: after each, held are exactly the pages that some future row
 * sees, and while a chunk runs every page its rows see or write. */
static void walk(uint64_t seed)
{
    int window = 1 + (int)(ek_mix64(seed) % 300), tokens = 1 + (int)(ek_mix64(seed + 1) % 1500), most = 0;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 64}, .sliding_window = window};
    int n[EK_KIND_COUNT] = {[EK_SLIDING] = 32, [EK_FULL] = 32}, largest = 1;
    ek_pages *p = open_pages(&layout, n);
    ek_table t;
    ek_table_init(&t, &layout, tokens);
    for (int pos = 0; pos < tokens;) {
        uint64_t r = ek_mix64(seed * 1000 + (uint64_t)pos + 2);
        int rows = r % 3 == 0 ? 1 : 1 + (int)((r >> 8) % 257);
        if (rows > tokens - pos) rows = tokens - pos;
        if (rows > largest) largest = rows;
        assert_int_equal(ek_table_extend(&t, p, pos, rows), EK_OK);
        for (int q = pos; q < pos + rows; q++)
            for (int key = 0; key <= q; key++) {
                assert_non_null(t.data[EK_FULL][key / 64]);
                if (key >= q - window + 1) assert_non_null(t.data[EK_SLIDING][key / 64]);
            }
        if (32 - ek_pages_unused(p, EK_SLIDING) > most) most = 32 - ek_pages_unused(p, EK_SLIDING);
        pos += rows;
        ek_table_trim(&t, p, pos);
        for (int i = 0; i < t.end[EK_SLIDING]; i++) {
            bool seen = false; /* by row pos, and so by any later one that sees it */
            for (int key = 64 * i; key < 64 * i + 64; key++) seen = seen || key >= pos - window + 1;
            assert_int_equal(t.page[EK_SLIDING][i] != NULL, seen);
            assert_int_equal(t.data[EK_SLIDING][i] != NULL, seen);
        }
        assert_int_equal(32 - ek_pages_unused(p, EK_FULL), (pos + 63) / 64);
    }
    assert_true(most <= ek_table_most(&layout, EK_SLIDING, tokens, largest));
    assert_int_equal(ek_table_most(&layout, EK_FULL, tokens, largest), (tokens + 63) / 64);
    ek_table_clear(&t, p);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 32);
    ek_table_fini(&t);
    ek_pages_close(p);
}

static void sliding_pages_are_held_while_seen(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) walk(seed * 77);
}

/* The bound is reached: it is not merely large enough. */
static void most_is_the_least_bound(void **state)
{
    (void)state;
    for (int window = 1; window < 200; window += 3)
        for (int rows = 1; rows < 200; rows += 7) {
            ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 0}, .sliding_window = window};
            int worst = 0;
            for (int pos = window; pos < window + 64; pos++) {
                int pages = (pos + rows - 1) / 64 - (pos - window + 1) / 64 + 1;
                if (pages > worst) worst = pages;
            }
            assert_int_equal(ek_table_most(&layout, EK_SLIDING, 100000, rows), worst);
            assert_int_equal(ek_table_most(&layout, EK_FULL, 100000, rows), 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_all_or_none),      cmocka_unit_test(pages_are_poisoned),
        cmocka_unit_test(too_many_pages_are_refused), cmocka_unit_test(a_kind_without_keys_has_no_pages),
        cmocka_unit_test(extending_is_all_or_none),   cmocka_unit_test(sliding_pages_are_held_while_seen),
        cmocka_unit_test(most_is_the_least_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
