/* Arguments of calls as clients send them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "text/json/json.h"
#include "text/reply/reply.h"

static size_t count(const json_t *v)
{
    size_t n = 1;
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(v, i, member) n += count(member);
    json_object_foreach((json_t *)(uintptr_t)v, key, member) n += 1 + count(member);
    return n;
}

/* want NULL: it is not to be understood. */
static void check(const char *text, size_t n, const char *want, int line)
{
    ek_buf got = {0};
    ek_json_size size;
    json_t *v = ek_call_repair(text, n);
    ek_call_repair_scan(&size, text, n);
    if (v) ek_json_write(&got, v);
    if (!v != !want || (v && strcmp(got.data, want) != 0)) {
        printf("line %d: %.*s\n  want %s\n  got  %s\n", line, (int)n, text, want ? want : "none",
               v ? got.data : "none");
        fail();
    }
    if (v) assert_true(count(v) <= size.values);
    json_decref(v);
    ek_buf_fini(&got);
}
#define gives(text, want) check((text), strlen(text), (want), __LINE__)

static void what_is_right_stays(void **state)
{
    (void)state;
    gives("{}", "{}");
    gives(" { \"a\" : [ 1 , -2.5 , 1e3 , true , null , { } , [ ] ] , \"b c\" : \"\\u00e9\\n\\\"\\d\" } ",
          "{\"a\":[1,-2.5,1000.0,true,null,{},[]],\"b c\":\"é\\n\\\"\\\\d\"}");
}

/* Every beginning of a call that the token limit may leave is taken, and its members so far are there. */
static void cut_anywhere(void **state)
{
    static const char all[] =
        "{\"city\":\"Os\\u00e9\\ud83d\\ude00}]\",\"at\":[{\"x\":12.5,\"y\":[true,\"n\\\\\"]},null],\"z\":-1e3}";
    (void)state;
    for (size_t n = 1; n < sizeof all; n++) {
        json_t *v = ek_call_repair(all, n);
        if (!v) fail_msg("%.*s", (int)n, all);
        const char *city = json_string_value(json_object_get(v, "city"));
        if (n > 34) assert_string_equal(city, "Os\xC3\xA9\xF0\x9F\x98\x80}]");
        else if (city) assert_memory_equal(city, "Os\xC3\xA9\xF0\x9F\x98\x80}]", strlen(city)); /* no half characters */
        json_decref(v);
    }
    gives("{\"city\":\"Par", "{\"city\":\"Par\"}");
    gives("{\"code\":\"f() { return [1]; }", "{\"code\":\"f() { return [1]; }\"}");
    gives("{\"a\":\"x\\", "{\"a\":\"x\"}");
    gives("{\"a\":\"x\\u00", "{\"a\":\"x\"}");
    gives("{\"a\":\"x\\ud83d", "{\"a\":\"x\"}");
    gives("{\"a\":\"x\\ud83d\\ude", "{\"a\":\"x\"}");
    gives("{\"a\":1,", "{\"a\":1}");
    gives("{\"a\":1,\"b", "{\"a\":1}");
    gives("{\"a\":1,\"b\"", "{\"a\":1,\"b\":null}");
    gives("{\"a\":", "{\"a\":null}");
    gives("{\"a\":[1,{\"b\":\"c\"", "{\"a\":[1,{\"b\":\"c\"}]}");
    gives("{\"a\":tr", "{\"a\":true}");
    gives("{\"a\":-", "{\"a\":null}");
    gives("{\"a\":1.", "{\"a\":1}");
    gives("{\"a\":1.5e-", "{\"a\":1.5}");
    gives("{", "{}");
}

static void what_models_write(void **state)
{
    (void)state;
    gives("{\"a\":1,}", "{\"a\":1}");
    gives("{\"a\":[1,2,],}", "{\"a\":[1,2]}");
    gives("{,\"a\":1,,\"b\":2}", "{\"a\":1,\"b\":2}");
    gives("{\"a\":1}}", "{\"a\":1}");
    gives("{\"a\":1}]};\n", "{\"a\":1}");
    gives("{\"a\":[1,2}", "{\"a\":[1,2]}");
    gives("{\"a\":[{\"b\":1],\"c\":2}", "{\"a\":[{\"b\":1}],\"c\":2}");
    gives("{\"a\":1]}", "{\"a\":1}");
    gives("{'a': 'b', 'c': [True, False, None]}", "{\"a\":\"b\",\"c\":[true,false,null]}");
    gives("{'a': 'it''s', 'b': 'it\\'s \"x\"', 'c': \"it's\"}",
          "{\"a\":\"it''s\",\"b\":\"it's \\\"x\\\"\",\"c\":\"it's\"}");
    gives("{'a': 'it's'}", "{\"a\":\"it's\"}");
    gives("{\"a\":\"say \"hi\" now\",\"b\":1}", "{\"a\":\"say \\\"hi\\\" now\",\"b\":1}");
    gives("{a: 1, b_c: \"x\", d : [oslo, 'rome']}", "{\"a\":1,\"b_c\":\"x\",\"d\":[\"oslo\",\"rome\"]}");
    gives("{\"a\": , \"b\": 1}", "{\"a\":null,\"b\":1}");
    gives("{\"a\": \"x\"\n \"b\": 1\n \"c\": 2}", "{\"a\":\"x\",\"b\":1,\"c\":2}");
    gives("{\"a\":\"line\nline\"}", "{\"a\":\"line\\nline\"}");
    gives("{\"a\":1,\"a\":2}", "{\"a\":2}");
    gives("\xEF\xBB\xBF{'a':1}", "{\"a\":1}"); /* behind a byte order mark */
}

static void what_is_not_clear(void **state)
{
    (void)state;
    gives("", NULL);
    gives("Oslo", NULL);
    gives("[{\"a\":1}", NULL);
    gives("\"a\":1}", NULL);
    gives("{\"a\":1}{\"b\":2}", NULL);
    gives("{\"a\":1} and more", NULL);
    gives("{\"a\" 1}", NULL);
    gives("{\"a\"}", NULL);
    gives("{1}", NULL);
    gives("{\"a\":[1 {\"b\":2}]}", NULL);
    gives("{\"a\":{} \"b\":2}", NULL);
    check("{\xFF:1}", 5, NULL, __LINE__);
    ek_buf deep = {0};
    for (int i = 0; i < EK_JSON_DEPTH + 1; i++) ek_buf_str(&deep, "{\"a\":");
    check(deep.data, deep.len, NULL, __LINE__);
    ek_buf_fini(&deep);
}

static void linear_time(void **state)
{
    static const char *const parts[] = {
        "'      ", "\"      ", "{", "[", "],", "'a':", "\\", "'", "a b,", "\n", "{\"a\":[", "x:"};
    enum { BYTES = 1 << 20 };
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ek_buf b = {0};
        ek_buf_str(&b, "{\"a\":[\"");
        while (b.len < BYTES) ek_buf_str(&b, parts[i]);
        for (int open = 0; open < 2; open++) { /* inside a string, and in a list */
            if (open) b.data[6] = ' ';
            double begin = ek_thread_time();
            json_decref(ek_call_repair(b.data, b.len));
            double took = ek_thread_time() - begin;
            if (took > 1) fail_msg("%s: %.1f s", parts[i], took);
        }
        ek_buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_stays), cmocka_unit_test(cut_anywhere), cmocka_unit_test(what_models_write),
        cmocka_unit_test(what_is_not_clear),   cmocka_unit_test(linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
