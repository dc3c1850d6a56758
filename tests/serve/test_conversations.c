/* Conversations in the store of responses: what a change keeps, what it may take, whose they are. The API:
 * tests/e2e/conversations.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "responses_case.h"
#include "serve/openai/responses.h"

static ek_response_store *store;

/* Items of these JSON texts; a reference of the caller's. */
static ek_new_items made(uint64_t owner, const char *list)
{
    ek_new_items out = {0};
    const ek_api_limits limits = {.responses = store, .owner = owner};
    json_t *items, *seen = json_object();
    assert_int_equal(ek_json_read(&items, list, strlen(list), 0), EK_OK);
    assert_int_equal(ek_responses_add_items(&out, items, seen, &limits), EK_OK);
    assert_int_equal(json_object_size(seen), out.at.n);
    json_decref(items);
    json_decref(seen);
    return out;
}

static void has(uint64_t owner, const char *id, const char *want)
{
    ek_buf out = {0};
    const ek_item_page all = {.after = "", .limit = 100, .oldest_first = true};
    assert_int_equal(ek_conversation_put_page(&out, store, owner, id, &all), EK_OK);
    if (strncmp(out.data, want, strlen(want)) != 0) fail_msg("%s\nnot %s", out.data, want);
    ek_buf_fini(&out);
}

#define ONE   "{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\",\"content\":"
#define ONE_A ONE "[{\"type\":\"input_text\",\"text\":\"a\"}]}"
#define TWO \
    "{\"id\":\"out_2\",\"type\":\"function_call_output\",\"status\":\"incomplete\",\"call_id\":\"c\",\"output\":\"o\"}"

static void items_come_and_go(void **state)
{
    (void)state;
    char id[EK_CONVERSATION_ID];
    store = ek_response_store_open(8, 1 << 20);
    ek_new_items items = made(0, "[{\"role\":\"user\",\"content\":\"a\",\"id\":\"msg_1\",\"extra\":5}]");
    assert_int_equal(ek_conversation_create(store, 0, 77, "{\"k\":\"v\"}", &items, id), EK_OK);
    has(0, id,
        "{\"object\":\"list\",\"data\":[" ONE_A "],\"first_id\":\"msg_1\",\"last_id\":\"msg_1\",\"has_more\":false}");
    items = made(0, "[" TWO ",{\"type\":\"compaction_trigger\"}]");
    assert_int_equal(ek_conversation_append(store, 0, id, &items, NULL), EK_OK);
    has(0, id, "{\"object\":\"list\",\"data\":[" ONE_A "," TWO "],\"first_id\":\"msg_1\",\"last_id\":\"out_2\",");
    items = made(0, "[" ONE "\"b\"}]"); /* its id is taken */
    ek_buf added = {0};
    assert_int_equal(ek_conversation_append(store, 0, id, &items, &added), EK_OK);
    assert_non_null(strstr(added.data, "[{\"id\":\"item_"));
    ek_buf_fini(&added);
    has(0, id, "{\"object\":\"list\",\"data\":[" ONE_A "," TWO ",{\"id\":\"item_");
    const ek_item_page last = {.limit = 1};
    assert_int_equal(ek_conversation_put_page(&added, store, 0, id, &last), EK_OK);
    char name[EK_CONVERSATION_ID];
    assert_int_equal(sscanf(added.data, "{\"object\":\"list\",\"data\":[{\"id\":\"%63[^\"]", name), 1);
    ek_buf_fini(&added);
    assert_int_equal(ek_conversation_delete_item(store, 0, id, name), EK_OK);
    /* They can be referred to, and are continued as a response is. */
    gives(store, "\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_1\"}]",
          "[{\"role\":\"user\",\"content\":\"a\"}]");
    assert_int_equal(ek_conversation_delete_item(store, 0, id, "out_2"), EK_OK);
    assert_int_equal(ek_conversation_delete_item(store, 0, id, "out_2"), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "no item \"out_2\""));
    has(0, id, "{\"object\":\"list\",\"data\":[" ONE_A "],");
    ek_buf body = {0};
    ek_buf_fmt(&body, "\"input\":\"b\",\"conversation\":\"%s\"", id);
    gives(store, body.data, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]");
    ek_buf_fini(&body);
    assert_int_equal(ek_conversation_set_metadata(store, 0, id, "{}"), EK_OK);
    ek_buf object = {0};
    assert_int_equal(ek_conversation_put(&object, store, 0, id), EK_OK);
    assert_non_null(strstr(object.data, "\"object\":\"conversation\",\"created_at\":77,\"metadata\":{}}"));
    ek_buf_fini(&object);
    assert_int_equal(ek_conversation_delete(store, 0, id), EK_OK);
    assert_int_equal(ek_conversation_delete(store, 0, id), EK_ENOTFOUND);
    items = made(0, "[" TWO "]");
    assert_int_equal(ek_conversation_append(store, 0, id, &items, NULL), EK_ENOTFOUND);
    ek_response_store_close(store);
}

static void others_have_none_of_it(void **state)
{
    (void)state;
    char id[EK_CONVERSATION_ID];
    size_t n;
    ek_buf out = {0};
    store = ek_response_store_open(8, 1 << 20);
    ek_new_items items = made(1, "[{\"role\":\"user\",\"content\":\"a\"}]");
    assert_int_equal(ek_conversation_create(store, 1, 0, "{}", &items, id), EK_OK);
    for (uint64_t other = 0; other < 3; other += 2) {
        items = made(other, "[]");
        assert_int_equal(ek_conversation_append(store, other, id, &items, NULL), EK_ENOTFOUND);
        assert_int_equal(ek_conversation_put(&out, store, other, id), EK_ENOTFOUND);
        assert_int_equal(ek_conversation_size(store, other, id, &n), EK_ENOTFOUND);
        assert_int_equal(ek_conversation_set_metadata(store, other, id, "{}"), EK_ENOTFOUND);
        assert_int_equal(ek_conversation_delete(store, other, id), EK_ENOTFOUND);
    }
    assert_int_equal(ek_conversation_size(store, 1, id, &n), EK_OK);
    /* A response is no conversation. */
    ek_stored_response r = {.id = "resp_1"};
    ek_buf_str(&r.input, "[]");
    ek_response_store_put(store, 1, &r);
    assert_int_equal(ek_conversation_size(store, 1, "resp_1", &n), EK_ENOTFOUND);
    assert_int_equal(ek_conversation_delete(store, 1, "resp_1"), EK_ENOTFOUND);
    assert_true(ek_response_store_knows(store, 1, "resp_1", NULL));
    ek_buf_fini(&out);
    ek_response_store_close(store);
}

/* A change that finds no room leaves what was there. */
static void a_change_without_room_changes_nothing(void **state)
{
    (void)state;
    char id[EK_CONVERSATION_ID];
    size_t before, after;
    store = ek_response_store_open(8, 4000);
    ek_new_items items = made(0, "[{\"role\":\"user\",\"content\":\"a\",\"id\":\"msg_1\"}]");
    assert_int_equal(ek_conversation_create(store, 0, 77, "{}", &items, id), EK_OK);
    assert_int_equal(ek_conversation_size(store, 0, id, &before), EK_OK);
    ek_buf list = {0};
    ek_buf_fmt(&list, "[{\"role\":\"user\",\"content\":\"%4000s\"}]", "x");
    items = made(0, list.data);
    assert_int_equal(ek_conversation_append(store, 0, id, &items, NULL), EK_ENOMEM);
    assert_int_equal(ek_conversation_size(store, 0, id, &after), EK_OK);
    assert_int_equal(before, after);
    has(0, id, "{\"object\":\"list\",\"data\":[" ONE_A "],");
    ek_buf_fini(&list);
    ek_response_store_close(store);
}

/* A reply adds its items behind the request's, stored or not; one that failed adds nothing. */
static void replies_add_to_it(void **state)
{
    (void)state;
    char id[EK_CONVERSATION_ID];
    store = ek_response_store_open(8, 1 << 20);
    for (int stored = 0; stored < 2; stored++) {
        ek_new_items items = {0};
        assert_int_equal(ek_conversation_create(store, 0, 77, "{}", &items, id), EK_OK);
        ek_buf body = {0};
        ek_buf_fmt(
            &body,
            "{\"input\":[{\"role\":\"user\",\"content\":\"a\",\"id\":\"msg_1\"}],\"store\":%s,\"conversation\":{\"id\":\"%s\"}}",
            stored ? "true" : "false", id);
        for (int fails = 1; fails >= 0; fails--) {
            scene t;
            open_reply(&t, store, "resp_1", body.data, false);
            say(&t, EK_REPLY_CONTENT, "b", 0);
            if (fails) {
                ek_dialect_responses.failed(&t.out, &t.r, 0, "no time");
            } else {
                end_scene(&t, EK_END_STOP);
                assert_non_null(strstr(t.out.data, ",\"conversation\":{\"id\":\"conv_"));
            }
            close_scene(&t);
            if (fails) has(0, id, "{\"object\":\"list\",\"data\":[],");
        }
        has(0, id, "{\"object\":\"list\",\"data\":[" ONE_A ",{\"id\":\"msg_");
        assert_int_equal(ek_response_store_knows(store, 0, "resp_1", NULL), stored);
        ek_buf_fini(&body);
    }
    ek_response_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_and_go),
        cmocka_unit_test(others_have_none_of_it),
        cmocka_unit_test(a_change_without_room_changes_nothing),
        cmocka_unit_test(replies_add_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
