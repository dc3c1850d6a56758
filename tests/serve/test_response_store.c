/* The store behind previous_response_id: conversations by id, items by reference, bounds and age. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "responses_case.h"

static void reply_with(ek_response_store *store, const char *id, const char *body, const char *text)
{
    scene t;
    open_reply(&t, store, id, body, false);
    say(&t, EK_REPLY_CONTENT, text, 0);
    end_scene(&t, EK_END_STOP);
    close_scene(&t);
}

static ek_err get(ek_response_store *s, uint64_t of, const char *id, bool input, ek_buf *out)
{
    ek_span text;
    ek_response_held *held;
    ek_err err = ek_response_store_hold(s, of, id, input, &text, &held);
    if (err) return err;
    ek_buf_add(out, text.p, text.n);
    ek_response_store_release(held);
    return EK_OK;
}

/* A stream that goes on has the id that its client says, which may be of one that it continues: walked around it would
 * be 4,096 responses of any size. */
static void a_circle_is_refused(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(8, 1 << 20);
    ek_api_request r;
    reply_with(s, "resp_a", "{\"input\":\"1\"}", "2");
    reply_with(s, "resp_b", "{\"input\":\"3\",\"previous_response_id\":\"resp_a\"}", "4");
    reply_with(s, "resp_a", "{\"input\":\"5\",\"previous_response_id\":\"resp_b\"}", "6");
    assert_int_equal(parse(&r, s, "{\"input\":\"x\",\"previous_response_id\":\"resp_b\"}"), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "resp_b continues itself"));
    assert_string_equal(r.param, "previous_response_id");
    ek_api_request_fini(&r);
    reply_with(s, "resp_b", "{\"input\":\"7\"}", "8"); /* the circle is open */
    assert_int_equal(parse(&r, s, "{\"input\":\"x\",\"previous_response_id\":\"resp_a\"}"), EK_OK);
    ek_api_request_fini(&r);
    ek_response_store_close(s);
}

/* Takes the ids that items were given, n of them, out of a list: they end in 24 random digits. */
static void without_new_ids(ek_buf *b, int n)
{
    static const char head[] = "\"id\":\"";
    int found = 0;
    for (char *p = b->data; (p = strstr(p, head)) != NULL;) {
        const size_t name = strcspn(p + sizeof head - 1, "_\"") + 1,
                     digits = strspn(p + sizeof head - 1 + name, "0123456789abcdef");
        char *end = p + sizeof head - 1 + name + digits + 2;
        if (digits == 24) found++, memmove(p, end, strlen(end) + 1);
        else p = end;
    }
    assert_int_equal(found, n);
}

static void conversations_by_id(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(8, 1 << 20);
    reply_with(s, "resp_a", "{\"input\":\"1\",\"instructions\":\"not kept\"}", "2");
    reply_with(s, "resp_b", "{\"input\":\"3\",\"previous_response_id\":\"resp_a\"}", "4");
    reply_with(s, "resp_c", "{\"input\":\"x\",\"store\":false}", "y");
    gives(
        s, "\"input\":\"5\",\"previous_response_id\":\"resp_b\"",
        "[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"2\"},{\"role\":\"user\",\"content\":\"3\"},"
        "{\"role\":\"assistant\",\"content\":\"4\"},{\"role\":\"user\",\"content\":\"5\"}]");
    ek_api_request r;
    assert_int_equal(parse(&r, s, "{\"input\":\"x\",\"previous_response_id\":\"resp_c\"}"), EK_ENOTFOUND);
    assert_string_equal(r.param, "previous_response_id");
    ek_api_request_fini(&r);
    ek_buf b = {0};
    assert_int_equal(get(s, 0, "resp_a", true, &b), EK_OK);
    without_new_ids(&b, 1);
    assert_string_equal(b.data, "[{\"type\":\"message\",\"role\":\"user\",\"content\":\"1\"}]");
    ek_buf_fini(&b);
    /* To another owner it does not exist. */
    assert_int_equal(get(s, 7, "resp_a", false, &b), EK_ENOTFOUND);
    assert_int_equal(ek_response_store_delete(s, 7, "resp_a"), EK_ENOTFOUND);
    responses_owner = 7;
    assert_int_equal(parse(&r, s, "{\"input\":\"x\",\"previous_response_id\":\"resp_b\"}"), EK_ENOTFOUND);
    ek_api_request_fini(&r);
    responses_owner = 0;
    assert_int_equal(ek_response_store_delete(s, 0, "resp_a"), EK_OK);
    assert_int_equal(ek_response_store_delete(s, 0, "resp_a"), EK_ENOTFOUND);
    assert_int_equal(get(s, 0, "resp_a", false, &b), EK_ENOTFOUND);
    assert_int_equal(parse(&r, s, "{\"input\":\"x\",\"previous_response_id\":\"resp_b\"}"),
                     EK_ENOTFOUND); /* its root */
    ek_api_request_fini(&r);
    ek_response_store_close(s);
}

/* The id of item i of the output of a stored response. */
static const char *item_id(ek_response_store *s, const char *response, size_t i)
{
    static char id[64];
    json_t *v;
    ek_buf b = {0};
    assert_int_equal(get(s, responses_owner, response, false, &b), EK_OK);
    assert_int_equal(ek_json_read(&v, b.data, b.len, 0), EK_OK);
    snprintf(id, sizeof id, "%s", ek_json_get_text(json_array_get(ek_json_get(v, "output"), i), "id", NULL));
    json_decref(v);
    ek_buf_fini(&b);
    return id;
}

static void refers_to_nothing(ek_response_store *s, const char *before, const char *id)
{
    ek_api_request r;
    ek_buf body = {0};
    ek_buf_fmt(&body,
               "{%s\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"type\":\"item_reference\",\"id\":\"%s\"}]}",
               before, id);
    assert_int_equal(parse(&r, s, body.data), EK_ENOTFOUND);
    assert_string_equal(r.param, "input");
    assert_non_null(strstr(ek_err_text(), "input[1]: there is no item"));
    assert_non_null(strstr(ek_err_text(), s ? id : "stores no"));
    ek_api_request_fini(&r);
    ek_buf_fini(&body);
}

#define WEATHER "{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define RAIN    "{\"type\":\"function_call_output\",\"id\":\"o_\\u00e9\",\"call_id\":\"c\",\"output\":\"rain\"}"

static void items_by_reference(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(8, 1 << 20);
    ek_buf body = {0};
    scene t; /* a thought, a text and a call, as a stream too */
    for (int stream = 0; stream < 2; stream++) {
        open_reply(&t, s, stream ? "resp_s" : "resp_a", "{\"input\":\"q\"}", stream);
        say(&t, EK_REPLY_REASONING, "so", 0);
        say(&t, EK_REPLY_CONTENT, "text", 0);
        say_call(&t, "f", "{}", 0);
        end_scene(&t, EK_END_STOP);
        close_scene(&t);
        ek_buf_clear(&body);
        ek_buf_str(&body, "\"input\":[{\"role\":\"user\",\"content\":\"q\"}");
        for (size_t i = 0; i < 3; i++) /* the type may be left out */
            ek_buf_fmt(&body, ",{%s\"id\":\"%s\"}", i ? "\"type\":\"item_reference\"," : "",
                       item_id(s, stream ? "resp_s" : "resp_a", i));
        ek_buf_str(&body, "]");
        char call[32];
        ek_buf want = {0};
        ek_call_id(call, "call_", stream ? "resp_s" : "resp_a", 0);
        ek_buf_fmt(
            &want,
            "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"reasoning_content\":\"so\",\"content\":"
            "\"text\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"%s\",\"type\":\"function\",\"function\":{"
            "\"name\":\"f\",\"arguments\":{}}}]}]",
            call);
        gives(s, body.data, want.data);
        ek_buf_fini(&want);
    }
    /* Items of an input that have ids; what a response with references keeps are the items. */
    reply_with(s, "resp_b", "{\"input\":[" WEATHER "," RAIN "]}", "2");
    reply_with(s, "resp_c", "{\"input\":[{\"id\":\"fc_1\"},{\"id\":\"o_é\"},{\"role\":\"user\",\"content\":\"3\"}]}",
               "4");
    assert_int_equal(ek_response_store_delete(s, 0, "resp_b"), EK_OK);
    static const char want[] =
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"rain\"},{\"role\":\"user\","
        "\"content\":\"3\"},{\"role\":\"assistant\",\"content\":\"4\"},{\"role\":\"user\",\"content\":\"5\"}]";
    gives(s, "\"previous_response_id\":\"resp_c\",\"input\":\"5\"", want);
    /* An item stands once: a reference to what is there already adds nothing. */
    ek_buf_clear(&body);
    ek_buf_fmt(
        &body,
        "\"previous_response_id\":\"resp_c\",\"input\":[{\"id\":\"fc_1\"},{\"type\":\"item_reference\",\"id\":\"%s\"},"
        "{\"role\":\"user\",\"content\":\"5\"}]",
        item_id(s, "resp_c", 0));
    gives(s, body.data, want);
    /* Missing, another owner's, of a response that was not stored, deleted. */
    refers_to_nothing(s, "", "msg_none");
    refers_to_nothing(s, "\"store\":false,", "msg_none");
    refers_to_nothing(NULL, "", "msg_none");
    responses_owner = 7;
    refers_to_nothing(s, "", "fc_1");
    reply_with(s, "resp_d", "{\"input\":[" WEATHER "]}", "theirs");
    gives(s, "\"input\":[{\"id\":\"fc_1\"}]",
          "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
          "\"arguments\":{}}}]}]");
    responses_owner = 0;
    reply_with(s, "resp_e", "{\"store\":false,\"input\":[{\"role\":\"user\",\"content\":\"x\",\"id\":\"msg_e\"}]}",
               "y");
    refers_to_nothing(s, "", "msg_e");
    assert_int_equal(ek_response_store_delete(s, 0, "resp_c"), EK_OK);
    refers_to_nothing(s, "", "fc_1");
    ek_buf_fini(&body);
    ek_response_store_close(s);
}

/* What an item is found by, kept and forgotten, does not depend on how many there are, nor on whose they are. */
static void many_items(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const char *const kinds[] = {"of their own ids", "of one id"};
    for (int same = 0; same < 2; same++) {
        ek_response_store *s = ek_response_store_open(8, 64 << 20);
        ek_stored_response r = {.id = "resp_1"};
        char id[32];
        for (int i = 0; i < N; i++) {
            size_t n = (size_t)snprintf(id, sizeof id, "msg_%d", same ? 0 : i), from = r.input.len + 1;
            ek_buf_fmt(&r.input, "%c{\"id\":\"%s\"}", i ? ',' : '[', id);
            ek_stored_item where = {.from = from, .n = r.input.len - from};
            ek_response_store_note(s, 0, &r.items, id, n, where);
        }
        ek_buf_str(&r.input, "]");
        ek_buf_str(&r.response, "[]");
        double begin = ek_thread_time();
        ek_response_store_put(s, 0, &r);
        double kept = ek_thread_time();
        ek_api_limits limits = {.responses = s};
        for (int i = 0; i < N; i++) {
            json_t *item;
            size_t n = (size_t)snprintf(id, sizeof id, "msg_%d", same ? 0 : i);
            assert_int_equal(ek_response_store_item(&limits, id, n, &item), EK_OK);
            assert_string_equal(json_string_value(json_object_get(item, "id")), id);
            json_decref(item);
        }
        double found = ek_thread_time();
        assert_int_equal(ek_response_store_delete(s, 0, "resp_1"), EK_OK);
        double gone = ek_thread_time();
        print_message("measured: %d items %s kept in %.1f ms, found in %.0f, forgotten in %.1f\n", N, kinds[same],
                      (kept - begin) * 1e3, (found - kept) * 1e3, (gone - found) * 1e3);
        assert_true(kept - begin < 0.2 && found - kept < 2 && gone - found < 0.2);
        ek_response_store_close(s);
    }
}

static void put(ek_response_store *s, const char *id, size_t n)
{
    ek_stored_response r = {.id = id};
    ek_buf_str(&r.input, "[]");
    for (size_t i = 0; i < n; i++) ek_buf_char(&r.response, ' ');
    ek_buf_str(&r.response, "[]");
    r.from = n;
    r.n = 2;
    ek_response_store_put(s, 0, &r);
    assert_true(!r.input.data && !r.response.data);
}

static bool has(ek_response_store *s, const char *id)
{
    return ek_response_store_knows(s, 0, id, NULL); /* it counts as a use */
}

static void the_least_used_makes_room(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(3, 4000);
    put(s, "a", 1);
    put(s, "b", 1);
    put(s, "c", 1);
    assert_true(has(s, "a")); /* used */
    put(s, "d", 1);
    assert_true(has(s, "a") && !has(s, "b") && has(s, "c") && has(s, "d"));
    put(s, "e", 3000); /* by bytes */
    assert_true(has(s, "e") && has(s, "d") && !has(s, "a"));
    put(s, "f", 5000); /* larger than all */
    assert_true(!has(s, "f") && has(s, "e"));
    ek_response_store_close(s);
}

/* What a client reads slowly stays and counts, also once it is deleted; and it does not cost the others. */
static char logged[256];

static void keep_log(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static void what_is_read_stays(void **state)
{
    (void)state;
    ek_log_sink *log = ek_log_sink_open(keep_log, NULL);
    ek_response_store *s = ek_response_store_open(8, 4000);
    ek_span text;
    ek_response_held *held[2];
    put(s, "a", 1);
    put(s, "b", 2500);
    for (int i = 0; i < 2; i++) assert_int_equal(ek_response_store_hold(s, 0, "b", false, &text, &held[i]), EK_OK);
    assert_string_equal(logged, "");
    put(s, "c", 2500);
    assert_true(has(s, "a") && has(s, "b") && !has(s, "c"));
    assert_non_null(strstr(logged, "event=not_stored id=c bytes="));
    assert_non_null(strstr(logged, " of=4000 being_read="));
    assert_int_equal(ek_response_store_delete(s, 0, "b"), EK_OK);
    ek_response_store_release(held[0]);
    put(s, "c", 2500);
    assert_true(has(s, "a") && !has(s, "b") && !has(s, "c"));
    assert_true(text.n == 2502 && text.p[2501] == ']');
    ek_response_store_release(held[1]);
    put(s, "c", 2500);
    assert_true(has(s, "a") && has(s, "c"));
    ek_response_store_close(s);
    ek_log_sink_close(log);
}

static void only_known_members_are_kept(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(8, 1 << 20);
    reply_with(
        s, "resp_a",
        "{\"input\":[{\"role\":\"user\",\"content\":\"1\",\"pad\":\"xxx\",\"id\":\"m\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"2\","
        "\"annotations\":[{\"pad\":1}],\"logprobs\":[1],\"pad\":[\"x\"]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\",\"pad\":{\"a\":1}},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\",\"text\":\"3\",\"pad\":1}]}]}",
        "4");
    ek_buf b = {0};
    assert_int_equal(get(s, 0, "resp_a", true, &b), EK_OK);
    without_new_ids(&b, 3);
    assert_string_equal(
        b.data,
        "[{\"id\":\"m\",\"role\":\"user\",\"content\":\"1\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"2\","
        "\"annotations\":[]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\",\"text\":\"3\"}]}]");
    ek_buf_fini(&b);
    ek_response_store_close(s);
}

/* What each entry of a conversation is found by does not depend on how many there are. */
static void a_long_conversation(void **state)
{
    (void)state;
    enum { N = 20000 };
    ek_response_store *s = ek_response_store_open(N, 64 << 20);
    char id[2][16];
    for (int i = 0; i < N; i++) {
        ek_stored_response r = {.id = id[i % 2], .previous = i ? id[1 - i % 2] : NULL};
        snprintf(id[i % 2], sizeof id[0], "resp_%d", i);
        ek_buf_str(&r.input, "[1]");
        ek_buf_str(&r.response, "{\"output\":[2,3]}");
        r.from = 10;
        r.n = 5;
        ek_response_store_put(s, 0, &r);
    }
    json_t *list = json_array();
    ek_api_limits limits = {.responses = s};
    double begin = ek_thread_time();
    assert_int_equal(ek_response_store_items(&limits, id[(N - 1) % 2], list), EK_OK);
    double took = ek_thread_time() - begin;
    print_message("measured: a conversation of %d responses in %.0f ms\n", N, took * 1e3);
    assert_int_equal(json_array_size(list), 3 * N);
    assert_true(took < 0.3); /* a search through all took seconds */
    json_decref(list);
    ek_response_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_by_reference),          cmocka_unit_test(many_items),
        cmocka_unit_test(conversations_by_id),         cmocka_unit_test(a_circle_is_refused),
        cmocka_unit_test(the_least_used_makes_room),   cmocka_unit_test(what_is_read_stays),
        cmocka_unit_test(only_known_members_are_kept), cmocka_unit_test(a_long_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
