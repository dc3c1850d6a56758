/* cache: pages change hands without loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/page_table.h"

static const int few[EK_PAGE_KINDS] = {[EK_SLIDING] = 5, [EK_FULL] = 7};

static ek_pages *open_pages(const int n[EK_PAGE_KINDS], const ek_page_memory *memory)
{
    ek_pages *p = NULL;
    assert_int_equal(ek_pages_open(&p, n, memory), EK_OK);
    return p;
}

static void pages_are_all_or_none(void **state)
{
    (void)state;
    ek_pages *p = open_pages(few, NULL);
    int32_t page[8] = {-5};
    assert_int_equal(ek_pages_acquire(p, EK_FULL, 8, page), EK_EBUSY);
    assert_int_equal(page[0], -5);
    assert_string_equal(ek_err_text(), "8 pages wanted, 7 of 7 are unused");
    assert_int_equal(ek_pages_acquire(p, EK_FULL, 7, page), EK_OK);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 0);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 5);
    for (int i = 0; i < 7; i++) {
        assert_in_range(page[i], 0, 6);
        for (int j = 0; j < i; j++) assert_int_not_equal(page[i], page[j]);
    }
    ek_pages_retain(p, EK_FULL, page[3]);
    for (int i = 0; i < 7; i++) ek_pages_release(p, EK_FULL, page[i]);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 6);
    assert_int_equal(ek_pages_refs(p, EK_FULL, page[3]), 1);
    ek_pages_release(p, EK_FULL, page[3]);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    ek_pages_close(p);
    int n[EK_PAGE_KINDS] = {[EK_SLIDING] = -1};
    assert_int_equal(ek_pages_open(&p, n, NULL), EK_EINVAL);
}

/* The owner of the memory is notified when a page changes hands, and not when it gains or loses one of several holders.
 */
static int changes[5];

static void changed(void *arg, ek_layer_kind kind, int32_t page)
{
    assert_ptr_equal(arg, changes);
    assert_int_equal(kind, EK_SLIDING);
    changes[page]++;
}

static void the_owner_of_the_memory_is_notified(void **state)
{
    (void)state;
    ek_pages *p = open_pages(few, &(ek_page_memory){.arg = changes, .changed_hands = changed});
    int32_t page;
    assert_int_equal(ek_pages_acquire(p, EK_SLIDING, 1, &page), EK_OK);
    assert_int_equal(changes[page], 1);
    ek_pages_retain(p, EK_SLIDING, page);
    ek_pages_release(p, EK_SLIDING, page);
    assert_int_equal(changes[page], 1);
    ek_pages_release(p, EK_SLIDING, page);
    assert_int_equal(changes[page], 2);
    ek_pages_close(p);
}

static void a_kind_without_keys_has_no_pages(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 0, [EK_FULL] = 64}, .sliding_window = 0};
    ek_pages *p = open_pages((const int[EK_PAGE_KINDS]){[EK_FULL] = 7}, NULL);
    ek_page_table t;
    ek_page_table_init(&t, &layout, 130);
    assert_int_equal(ek_page_table_room(&t, p, 130), 130);
    assert_int_equal(ek_page_table_extend(&t, p, 130), EK_OK);
    assert_int_equal(t.end[EK_FULL], 3);
    assert_int_equal(t.end[EK_SLIDING], 0);
    ek_page_table_trim(&t, p, t.n);
    ek_page_table_clear(&t, p);
    ek_page_table_fini(&t);
    ek_pages_close(p);
}

static void extending_is_all_or_none(void **state)
{
    (void)state;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 64}, .sliding_window = 1000};
    ek_pages *p = open_pages(few, NULL); /* 5 sliding, 7 full */
    ek_page_table t;
    ek_page_table_init(&t, &layout, 1000);
    assert_int_equal(ek_page_table_room(&t, p, 1000), 5 * 64);
    assert_int_equal(ek_page_table_extend(&t, p, 5 * 64 + 1), EK_EBUSY);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    assert_int_equal(t.n, 0);
    assert_int_equal(ek_page_table_extend(&t, p, 65), EK_OK);
    assert_int_equal(t.n, 65);
    assert_int_equal(ek_page_table_missing(&t, p, EK_FULL, 63), 0);
    assert_int_equal(ek_page_table_missing(&t, p, EK_FULL, 64), 1);
    assert_int_equal(t.page[EK_FULL][2], EK_NO_PAGE);
    assert_int_equal(ek_page_table_room(&t, p, 1000), 5 * 64 - 65);
    ek_page_table_clear(&t, p);
    assert_int_equal(ek_pages_unused(p, EK_FULL), 7);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 5);
    ek_page_table_fini(&t);
    ek_pages_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_all_or_none),
        cmocka_unit_test(the_owner_of_the_memory_is_notified),
        cmocka_unit_test(a_kind_without_keys_has_no_pages),
        cmocka_unit_test(extending_is_all_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
