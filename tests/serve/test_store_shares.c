/* Shares of stored responses: no owner loses anything to one who has more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "serve/store/response_store.h"

static ek_response_store *store;

static void put(uint64_t owner, const char *name, int number, size_t bytes)
{
    char id[32];
    snprintf(id, sizeof id, "%s%d", name, number);
    ek_stored_response r = {.id = id};
    ek_buf_str(&r.input, "[]");
    ek_buf_str(&r.response, "\"");
    for (size_t i = 2; i < bytes; i++) ek_buf_char(&r.response, 'x');
    ek_buf_str(&r.response, "\"");
    ek_response_store_put(store, owner, &r);
}

/* Of the responses NAME0..n) of an owner, those that are there. */
static int count(uint64_t owner, const char *name, int n)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        char id[32];
        ek_span text;
        ek_response_held *held;
        snprintf(id, sizeof id, "%s%d", name, i);
        if (ek_response_store_hold(store, owner, id, false, &text, &held)) continue;
        ek_response_store_release(held);
        found++;
    }
    return found;
}

static void many_push_out_none_of_few(void **state)
{
    (void)state;
    store = ek_response_store_open(100, 1 << 20);
    for (int i = 0; i < 10; i++) put(1, "few", i, 10);
    for (int i = 0; i < 1000; i++) put(2, "many", i, 10);
    assert_int_equal(count(1, "few", 10), 10);
    assert_int_equal(count(2, "many", 1000), 90);
    for (int i = 0; i < 1000; i++) put(3, "more", i, 10);
    assert_int_equal(count(1, "few", 10), 10);
    assert_int_equal(count(2, "many", 1000), 45);
    assert_int_equal(count(3, "more", 1000), 45);
    assert_int_equal(ek_response_store_delete(store, 3, "more999"), EK_OK);
    put(1, "last", 0, 10); /* in the free place */
    assert_int_equal(count(2, "many", 1000), 45);
    ek_response_store_close(store);
}

static void bytes_count_too(void **state)
{
    (void)state;
    store = ek_response_store_open(1000, 100000);
    for (int i = 0; i < 10; i++) put(1, "few", i, 1000);
    for (int i = 0; i < 100; i++) put(2, "large", i, 20000);
    assert_int_equal(count(1, "few", 10), 10);
    assert_int_equal(count(2, "large", 100), 4);
    put(3, "whole", 0, 95000); /* it would take what others have */
    assert_int_equal(count(3, "whole", 1), 0);
    assert_int_equal(count(1, "few", 10), 10);
    assert_int_equal(count(2, "large", 100), 4);
    put(2, "huge", 0, 80000); /* nor does it cost its owner what it has, in vain */
    assert_int_equal(count(2, "huge", 1), 1);
    assert_int_equal(count(2, "large", 100), 0);
    put(2, "vain", 0, 99000);
    assert_int_equal(count(2, "huge", 1), 1);
    for (int i = 0; i < 10; i++) put(3, "new", i, 5000); /* up to what the largest has */
    assert_int_equal(count(3, "new", 10), 10);
    assert_int_equal(count(2, "huge", 1), 0);
    assert_int_equal(count(1, "few", 10), 10);
    ek_response_store_close(store);
}

/* With one owner it is the least recently used of all. */
static void one_owner_has_all(void **state)
{
    (void)state;
    store = ek_response_store_open(3, 100000);
    for (int i = 0; i < 3; i++) put(0, "a", i, 10);
    assert_int_equal(count(0, "a", 1), 1); /* a0 is used */
    put(0, "a", 3, 10);
    ek_span text;
    ek_response_held *held;
    assert_int_equal(ek_response_store_hold(store, 0, "a1", false, &text, &held), EK_ENOTFOUND);
    assert_int_equal(count(0, "a", 4), 3);
    ek_response_store_close(store);
}

/* More owners than places: the ones that were silent for longest go. */
static void more_owners_than_places(void **state)
{
    (void)state;
    store = ek_response_store_open(8, 100000);
    for (int i = 0; i < 30; i++) put((uint64_t)i + 1, "o", i, 10);
    int found = 0;
    for (int i = 0; i < 30; i++) found += count((uint64_t)i + 1, "o", 30);
    assert_int_equal(found, 8);
    assert_int_equal(count(30, "o", 30), 1);
    assert_int_equal(count(23, "o", 30), 1);
    ek_response_store_close(store);
}

static ek_err hold(uint64_t owner, const char *id, ek_response_held **held)
{
    ek_span text;
    return ek_response_store_hold(store, owner, id, false, &text, held);
}

/* Clients that read slowly, of one owner, whose responses are replaced or deleted meanwhile. */
static void slow_readers_of_one_leave_room_to_others(void **state)
{
    (void)state;
    ek_response_held *held[4];
    store = ek_response_store_open(100, 100000);
    for (int round = 0; round < 2; round++) { /* what was held is free again */
        for (int i = 0; i < 4; i++) {
            char id[] = "slow0";
            id[4] = (char)('0' + i);
            put(1, "slow", i, 20000);
            const ek_err err = hold(1, id, &held[i]);
            assert_int_equal(err, i < 2 ? EK_OK : EK_EBUSY);
            if (i % 2) assert_int_equal(ek_response_store_delete(store, 1, id), EK_OK);
        }
        assert_non_null(strstr(ek_err_text(), "are being read, of at most "));
        assert_int_equal(hold(1, "slow0", &held[2]), EK_OK); /* once more costs nothing */
        put(2, "other", 0, 35000);
        assert_int_equal(count(2, "other", 1), 1);
        for (int i = 0; i < 3; i++) ek_response_store_release(held[i]);
        assert_int_equal(ek_response_store_delete(store, 1, "slow0"), EK_OK);
        assert_int_equal(ek_response_store_delete(store, 1, "slow2"), EK_OK);
        assert_int_equal(ek_response_store_delete(store, 2, "other0"), EK_OK);
    }
    put(1, "large", 0, 90000);
    assert_int_equal(hold(1, "large0", &held[0]), EK_OK); /* alone, of any size */
    ek_response_store_release(held[0]);
    ek_response_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_push_out_none_of_few),
        cmocka_unit_test(bytes_count_too),
        cmocka_unit_test(one_owner_has_all),
        cmocka_unit_test(more_owners_than_places),
        cmocka_unit_test(slow_readers_of_one_leave_room_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
